# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# What root runs so that another user can record: it needs no library of ours.
TOKEN := $(OUTPUT)/memtrace-bpf-token

$(TOKEN): $(OUTPUT)/obj/tools/token/token.o
	$(call msg,LINK,$@)
	$(Q)$(LOADED_CC) $(LOADED_LDFLAGS) -o $@ $^

$(OUTPUT)/obj/tools/token/token.o: tools/token/token.c
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) $(CPPFLAGS) $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) -c -o $@ $<
