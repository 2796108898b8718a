# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# What calls PyTorch's allocator for replay: a program that loads the target's library and no more of PyTorch than that. The library
# finds the program's own functions before others'. Its calls may throw, hence the C++ compiler.
REPLAYER_OBJS := $(patsubst tools/%,$(OUTPUT)/obj/tools/%.o,$(basename $(wildcard tools/replayer/*.c tools/replayer/*.cc))) \
	$(OUTPUT)/obj/tools/replayer/varint.o $(OUTPUT)/obj/tools/replayer/array.o
REPLAYER_CFLAGS = -Itools -Itools/replayer $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) -fvisibility=hidden

$(OUTPUT)/obj/tools/replayer/%.o: tools/replayer/%.c Makefile
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) $(CPPFLAGS) $(REPLAYER_CFLAGS) -c -o $@ $<

$(OUTPUT)/obj/tools/replayer/varint.o: user/record/mtr/varint.c
$(OUTPUT)/obj/tools/replayer/array.o: user/base/array.c
$(OUTPUT)/obj/tools/replayer/varint.o $(OUTPUT)/obj/tools/replayer/array.o:
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) $(CPPFLAGS) $(REPLAYER_CFLAGS) -c -o $@ $<

$(OUTPUT)/obj/tools/replayer/%.o: tools/replayer/%.cc Makefile
	$(call msg,CXX,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CXX) $(CPPFLAGS) $(filter-out -std=gnu11 -Wstrict-prototypes -Wmissing-prototypes,$(REPLAYER_CFLAGS)) -std=gnu++17 -fno-rtti -c -o $@ $<

$(OUTPUT)/replay/replayer: $(REPLAYER_OBJS)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_LINK_CXX) $(LOADED_LDFLAGS) -rdynamic -o $@ $^ $(LOADED_CXX_LIBS) -ldl
