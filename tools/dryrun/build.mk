# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# The dry-run CUDA runtime, two libraries by the names that programs look for. Most of its functions ignore most of
# their arguments; each is one of its own (no folding), since observers put probes on them by name, and calls what it
# needs instead of jumping there: a probe on the return finds the call's own result.
DRYRUN := $(OUTPUT)/dryrun
DRYRUN_CFLAGS := -fPIC -fvisibility=hidden $(if $(ZIG),,-fno-ipa-icf) -fno-optimize-sibling-calls -fno-semantic-interposition \
	-ftls-model=initial-exec -Wno-unused-parameter
DRYRUN_NVML := nvml nvml_machine config props log values
DRYRUN_CUDA_OBJS := $(patsubst tools/%.c,$(OUTPUT)/obj/tools/%.o,$(filter-out tools/dryrun/nvml%.c,\
	$(wildcard tools/dryrun/*.c tools/dryrun/gen/*.c))) $(OUTPUT)/obj/tools/dryrun/array.o
DRYRUN_NVML_OBJS := $(DRYRUN_NVML:%=$(OUTPUT)/obj/tools/dryrun/%.o)

.PHONY: dryrun
dryrun: $(DRYRUN)/libcuda.so.1 $(DRYRUN)/libnvidia-ml.so.1 $(DRYRUN)/libcuda.so

$(OUTPUT)/obj/tools/dryrun/%.o: tools/dryrun/%.c Makefile
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) $(CPPFLAGS) -Itools/dryrun $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) $(DRYRUN_CFLAGS) -c -o $@ $<

# Thousands of functions of two lines: optimizing them takes gcc six times as long, and they get no smaller. At -O0, clang would read arguments that nobody passed.
ifeq ($(ZIG),)
$(OUTPUT)/obj/tools/dryrun/lib_other.o: private override CFLAGS := $(filter-out -g,$(subst -O2,-O0,$(CFLAGS)))
endif

$(OUTPUT)/obj/tools/dryrun/array.o: user/base/array.c
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) $(CPPFLAGS) $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) $(DRYRUN_CFLAGS) -c -o $@ $<

$(DRYRUN)/libcuda.so.1: $(DRYRUN_CUDA_OBJS)
$(DRYRUN)/libnvidia-ml.so.1: $(DRYRUN_NVML_OBJS)
$(DRYRUN)/%.so.1:
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) -shared -Wl,-soname,$(notdir $@) -Wl,-z,defs -Wl,-z,now $(LOADED_LDFLAGS) -o $@ $^ -ldl -lpthread

# Under this name Triton's compiler links it.
$(DRYRUN)/libcuda.so: $(DRYRUN)/libcuda.so.1
	$(Q)ln -sf libcuda.so.1 $@
