# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# The kernel side: object, then skeleton.
$(OUTPUT)/gen/vmlinux.h: tools/dev/gen_vmlinux.sh vmlinux/$(ARCH)/vmlinux.h
	$(call msg,GEN,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)BPFTOOL=$(BPFTOOL) tools/dev/gen_vmlinux.sh $(ARCH) $@

$(OUTPUT)/bpf/%.bpf.o: bpf/%.bpf.c $(OUTPUT)/gen/vmlinux.h
	$(call msg,BPF,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CLANG) $(BPF_CFLAGS) -c -o $@ $<
	$(Q)$(LLVM_STRIP) -g $@

$(OUTPUT)/gen/%.skel.h: $(OUTPUT)/bpf/%.bpf.o tools/dev/pack_skeleton.py tools/dev/packed.py
	$(call msg,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name $*_bpf >$@.plain
	$(Q)tools/dev/pack_skeleton.py $*_bpf $< <$@.plain >$@
	$(Q)rm $@.plain
