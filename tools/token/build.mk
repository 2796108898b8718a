# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# What root runs so that another user can record: it needs no library that is not on every host.
TOKEN := $(OUTPUT)/memtrace-bpf-token
TOKEN_OBJS := $(patsubst %,$(OUTPUT)/obj/tools/token/%.o,token user subprocess io clock)

$(TOKEN): $(TOKEN_OBJS)
	$(call msg,LINK,$@)
	$(Q)$(LOADED_CC) $(LOADED_LDFLAGS) -o $@ $^

$(OUTPUT)/obj/tools/token/token.o: tools/token/token.c
$(OUTPUT)/obj/tools/token/user.o: user/base/user.c
$(OUTPUT)/obj/tools/token/subprocess.o: user/base/subprocess.c
$(OUTPUT)/obj/tools/token/io.o: user/base/io.c
$(OUTPUT)/obj/tools/token/clock.o: user/base/clock.c
$(TOKEN_OBJS):
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) $(CPPFLAGS) $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) -c -o $@ $<
