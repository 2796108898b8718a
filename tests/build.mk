# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Unit tests (tests/unit), and programs that other tests run (tests/tools). Each links what it needs of the library.

TESTS := $(patsubst %.c,$(OUTPUT)/%,$(filter-out $(OF_SERVE),$(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c)))
TESTTOOLS := $(patsubst tests/tools/%.c,$(OUTPUT)/tests/tools/%,$(wildcard tests/tools/*.c))
TESTLIB := $(patsubst %.c,$(OUTPUT)/obj/%.o,$(wildcard tests/unit/*.c))

.PHONY: tests
tests: $(TESTS) $(TESTTOOLS) ## build the unit tests and the programs that tests run

# A test gets the group's state and a callback gets its context, also if it needs neither. The tests' own code is not optimized: compiling
# it takes a quarter of the time. Programs that measure something or make large recordings are.
$(OUTPUT)/obj/tests/%.o: private override CFLAGS += -Wno-unused-parameter
$(OUTPUT)/obj/tests/unit/%.o $(OUTPUT)/obj/tests/fuzz/%.o: private override CFLAGS += -O0

# The kernel side as part of a program of its own: with headers instead of the kernel's and libbpf's. Its data is of x86-64 processes, on
# any machine, but test_records is about aarch64.
BPF_ON_HOST := tests/unit/bpf/test_nodes tests/unit/bpf/test_detail tests/unit/bpf/test_host tests/unit/bpf/test_scopes tests/unit/bpf/test_malloc tests/unit/bpf/test_walk tests/unit/bpf/test_walk_moves tests/unit/bpf/test_suspended tests/unit/bpf/test_tensors tests/tools/walk_image
$(BPF_ON_HOST:%=$(OUTPUT)/obj/%.o): override CPPFLAGS := -Ibpf/host $(CPPFLAGS) -D__TARGET_ARCH_x86
$(OUTPUT)/obj/tests/unit/bpf/test_records.o: override CPPFLAGS := -Ibpf/host $(CPPFLAGS) -D__TARGET_ARCH_arm64

# Its readers read through it.
$(OUTPUT)/tests/tools/object_image: override LDFLAGS += -Wl,--wrap=process_vm_readv,--wrap=pymem__init

$(OUTPUT)/tests/tools/%: $(OUTPUT)/obj/tests/tools/%.o $(LIB)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# It runs itself with the library.
$(OUTPUT)/tests/unit/capture/test_inside: | inside
$(OUTPUT)/tests/unit/nvml/test_gpus: | dryrun

# Programs whose stacks it unwinds, as compilers and strip leave them.
NATIVE := $(OUTPUT)/tests/programs/native
NATIVE_PROGRAMS := plain with_pointer clang stripped linked mistaken inlined $(if $(shell command -v xz),mini) $(if $(shell rustc --version 2>/dev/null),rusty rusty_v0)
$(OUTPUT)/tests/unit/native/test_native: | $(NATIVE_PROGRAMS:%=$(NATIVE)/%)
$(NATIVE)/snapshot.o: tests/programs/native/snapshot.c tests/programs/native/snapshot.h
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) -D_GNU_SOURCE -O2 -g -c -o $@ $<
$(NATIVE)/plain $(NATIVE)/with_pointer: $(NATIVE)/%: tests/programs/native/plain.c $(NATIVE)/snapshot.o
	$(call msg,LINK,$@)
	$(Q)$(CC) -O2 -g -Wl,--build-id -f$(if $(filter plain,$*),,no-)omit-frame-pointer -o $@ $^ -lpthread
$(NATIVE)/clang: tests/programs/native/plain.c $(NATIVE)/snapshot.o
	$(call msg,LINK,$@)
	$(Q)$(CLANG) $(if $(filter-out $(HOST_ARCH),$(ARCH)),--target=$(ARCH)-linux-gnu --sysroot=$(SYSROOT)) -O2 -g -o $@ $^ -lpthread
$(NATIVE)/inlined: tests/programs/native/inlined.cc $(NATIVE)/snapshot.o
	$(call msg,LINK,$@)
	$(Q)$(CXX) -O2 -g -o $@ $^
$(NATIVE)/stripped: $(NATIVE)/plain
	$(Q)$(CROSS_COMPILE)objcopy --strip-all $< $@
# With debug information in another file, which is the right one, or of another build.
$(NATIVE)/linked: $(NATIVE)/plain
	$(Q)mkdir -p $(NATIVE)/.debug
	$(Q)$(CROSS_COMPILE)objcopy --only-keep-debug $< $(NATIVE)/.debug/linked.debug
	$(Q)$(CROSS_COMPILE)objcopy --strip-all --add-gnu-debuglink=$(NATIVE)/.debug/linked.debug $< $@
$(NATIVE)/mistaken: $(NATIVE)/plain $(NATIVE)/with_pointer
	$(Q)mkdir -p $(NATIVE)/.debug
	$(Q)$(CROSS_COMPILE)objcopy --only-keep-debug $(NATIVE)/with_pointer $(NATIVE)/.debug/mistaken.debug
	$(Q)$(CROSS_COMPILE)objcopy --strip-all --add-gnu-debuglink=$(NATIVE)/.debug/mistaken.debug $< $@
# With the names of functions only, as Fedora's packages are.
$(NATIVE)/mini: $(NATIVE)/plain
	$(Q)$(CROSS_COMPILE)objcopy --only-keep-debug --strip-debug $< $@.names
	$(Q)xz -kf $@.names
	$(Q)$(CROSS_COMPILE)objcopy --strip-all --add-section .gnu_debugdata=$@.names.xz $< $@
$(NATIVE)/rusty $(NATIVE)/rusty_v0: tests/programs/native/rusty.rs $(NATIVE)/snapshot.o
	$(call msg,RUST,$@)
	$(Q)MAKEFLAGS= rustc -O -g $(if $(filter %_v0,$@),-C symbol-mangling-version=v0) -C link-arg=$(NATIVE)/snapshot.o -o $@ $<

# Their allocations fail: see tests/unit/no_memory.h.
NO_MEMORY_WRAPS := malloc calloc realloc reallocarray strdup strndup free
$(patsubst %.c,$(OUTPUT)/%,$(wildcard tests/unit/*/test_no_memory.c)): override LDFLAGS += $(NO_MEMORY_WRAPS:%=-Wl,--wrap=%)

# Its program goes on between two reads.
$(OUTPUT)/tests/unit/python/test_python_fake: override LDFLAGS += -Wl,--wrap=process_vm_readv

# Its sessions are made up: nothing is probed.
TRACEES_WRAPS := $(addprefix session__,finish new_forked set_process free events lost steps found_torch) proc_group__give_back
$(OUTPUT)/tests/unit/follow/test_tracees: override LDFLAGS += $(TRACEES_WRAPS:%=-Wl,--wrap=%)

# What stands for the kernel side, and for a target's memory, where there is neither.
SOAK_WRAPS := probes__consume probes__counters probes__lost_ends probes__epoch probes__bumps probes__ends probes__bump_epoch \
	probes__both_until probes__taken probes__times_forgotten code_cache__known code_cache__need code_cache__find proc__open_memory proc__thread_comm proc__thread_started cuda_calls__after_drain cuda_calls__used
$(OUTPUT)/tests/tools/soak: override LDFLAGS += $(SOAK_WRAPS:%=-Wl,--wrap=%)

$(OUTPUT)/tests/unit/%: $(OUTPUT)/obj/tests/unit/%.o $(TESTLIB) $(LIB)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)
