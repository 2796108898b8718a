# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# The programs of bpf/ as a library for a recorder's own child: docs/internals/ESTIMATE.md, "Without privileges". first and last have
# their places in the link: between them lie the pages that are shared.
INSIDE := $(OUTPUT)/inside
INSIDE_CFLAGS := -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-stack-protector -Wno-unused-parameter
INSIDE_OBJS := $(patsubst %,$(OUTPUT)/obj/tools/inprocess/%.o,first $(filter-out first last machine_$(if $(filter aarch64,$(ARCH)),x86,a64),$(patsubst tools/inprocess/%.c,%,\
	$(sort $(wildcard tools/inprocess/*.c)))) last)

.PHONY: inside
inside: $(INSIDE)/libmemtrace-inside.so

$(OUTPUT)/obj/tools/inprocess/%.o: tools/inprocess/%.c Makefile
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) -Ibpf/host $(CPPFLAGS) $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) $(INSIDE_CFLAGS) -c -o $@ $<

$(INSIDE)/libmemtrace-inside.so: $(INSIDE_OBJS)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) -shared -Wl,-soname,$(notdir $@) -Wl,-z,defs -Wl,-z,now $(LOADED_LDFLAGS) -o $@ $(INSIDE_OBJS) -ldl
