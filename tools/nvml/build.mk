# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# The helper that calls NVML, as an array in the program.
NVML_HELPER := $(OUTPUT)/nvml/helper
NVML_HELPER_OBJS := $(patsubst %,$(OUTPUT)/obj/tools/nvml/%.o,helper cuda_memory io memory clock)

$(OUTPUT)/obj/tools/nvml/helper.o: tools/nvml/helper.c
$(OUTPUT)/obj/tools/nvml/cuda_memory.o: tools/nvml/cuda_memory.c
$(OUTPUT)/obj/tools/nvml/io.o: user/base/io.c
$(OUTPUT)/obj/tools/nvml/memory.o: user/base/memory.c
$(OUTPUT)/obj/tools/nvml/clock.o: user/base/clock.c
$(NVML_HELPER_OBJS):
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) $(CPPFLAGS) $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) -c -o $@ $<

$(NVML_HELPER): $(NVML_HELPER_OBJS)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(LOADED_CC) -s $(LOADED_LDFLAGS) -o $@ $^ -ldl

$(OUTPUT)/gen/assets/gpus_helper.h: $(NVML_HELPER) tools/dev/embed.py tools/dev/packed.py
	$(call msg,EMBED,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/embed.py asset_gpus_helper $< >$@
