# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# What reads hostile input under libFuzzer: builds all, runs each for FUZZ_SECONDS. With clang, whose runtime it needs.
FUZZ_SECONDS ?= 60
# For fuzz-long: runs of each fuzzer, and recordings that are wrong inside.
FUZZ_RUNS ?= 1000000
MUTANTS ?= 10000
FUZZERS := $(patsubst tests/fuzz/%.c,$(OUTPUT)/fuzz/%,$(filter-out $(OF_SERVE),$(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_OBJS := $(patsubst %.c,$(OUTPUT)/fuzz/obj/%.o,$(filter-out user/main.c,$(SRCS)))
FUZZ_SANITIZE := address,undefined -fno-sanitize-recover=undefined
FUZZ_CPPFLAGS := -DMEMTRACE_VERSION='"$(VERSION)"' -DMEMTRACE_HTTPS=$(HTTPS) -Iuser -Ibpf -I$(OUTPUT)/gen -Itests -MMD -MP

$(OUTPUT)/fuzz/obj/tests/fuzz/fuzz_walk.o: FUZZ_CPPFLAGS := -Ibpf/host $(FUZZ_CPPFLAGS) -D__TARGET_ARCH_x86
$(OUTPUT)/fuzz/obj/user/live/screen/terminal.o: $(OUTPUT)/gen/built_in_terminal.h
$(OUTPUT)/obj/tests/fuzz/fuzz_walk.o: override CPPFLAGS := -Ibpf/host $(CPPFLAGS) -D__TARGET_ARCH_x86
# The kernel takes what is not aligned.
$(OUTPUT)/fuzz/obj/tests/fuzz/fuzz_walk.o: FUZZ_CFLAGS := -fno-sanitize=alignment
$(OUTPUT)/fuzz/fuzz_tensors $(OUTPUT)/tests/fuzz/fuzz_tensors: FUZZ_LDFLAGS := -Wl,--wrap=process_vm_readv,--wrap=poll
$(OUTPUT)/fuzz/fuzz_objects $(OUTPUT)/tests/fuzz/fuzz_objects: FUZZ_LDFLAGS := -Wl,--wrap=process_vm_readv,--wrap=poll,--wrap=python__symbol,--wrap=pymem__init
$(foreach f,hostmem jemalloc jeprof tcmalloc,$(OUTPUT)/fuzz/fuzz_$f $(OUTPUT)/tests/fuzz/fuzz_$f): FUZZ_LDFLAGS := -Wl,--wrap=process_vm_readv,--wrap=poll,--wrap=host_resident__read
$(OUTPUT)/fuzz/fuzz_mallocs $(OUTPUT)/tests/fuzz/fuzz_mallocs: FUZZ_LDFLAGS := -Wl,--wrap=process_vm_readv,--wrap=poll,--wrap=proc__exe \
	$(foreach f,read walk count,-Wl,--wrap=host_resident__$(f))
$(OUTPUT)/fuzz/fuzz_native $(OUTPUT)/tests/fuzz/fuzz_native: FUZZ_LDFLAGS := $(foreach f,maps pages open_map pin_map open_file,-Wl,--wrap=proc__$(f))
$(OUTPUT)/fuzz/fuzz_serve_ask $(OUTPUT)/tests/fuzz/fuzz_serve_ask: FUZZ_LDFLAGS := -Wl,--wrap=spawn__self
$(OUTPUT)/fuzz/fuzz_records $(OUTPUT)/tests/fuzz/fuzz_records: FUZZ_LDFLAGS := -Wl,--wrap=process_vm_readv,--wrap=poll,--wrap=python__symbol,--wrap=pymem__init \
	$(foreach f,add_root clear_roots bump_epoch attached set_module_type set_node_layout both_until,-Wl,--wrap=probes__$(f))

$(OUTPUT)/fuzz/obj/%.o: %.c | $(ASSETS) $(SKELS)
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CLANG) -std=gnu11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer-no-link,$(FUZZ_SANITIZE) $(FUZZ_CFLAGS) $(FUZZ_CPPFLAGS) -c -o $@ $<

$(OUTPUT)/fuzz/%: $(OUTPUT)/fuzz/obj/tests/fuzz/%.o $(FUZZ_OBJS)
	$(call msg,LINK,$@)
	$(Q)$(CLANG) -fsanitize=fuzzer,$(FUZZ_SANITIZE) $(FUZZ_LDFLAGS) -o $@ $^ $(LDLIBS)

# The same without libFuzzer and sanitizers, on the objects of the program: each runs its corpus once.
CORPUS_TESTS := $(FUZZERS:$(OUTPUT)/fuzz/%=$(OUTPUT)/tests/fuzz/%)
$(OUTPUT)/tests/fuzz/fuzz_%: $(OUTPUT)/obj/tests/fuzz/fuzz_%.o $(OUTPUT)/obj/tests/fuzz/once.o $(LIB)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(LDFLAGS) $(FUZZ_LDFLAGS) -o $@ $^ $(LDLIBS)
tests: $(CORPUS_TESTS)
$(OUTPUT)/obj/tests/fuzz/%.o: private override CFLAGS += -Wno-type-limits -Wno-dangling-pointer -Wno-unused -Wno-missing-field-initializers

.PHONY: fuzz
fuzz: deps-fuzz ## run the readers of hostile input under libFuzzer, FUZZ_SECONDS each
	$(Q)$(MAKE) --no-print-directory $(FUZZERS)
	$(Q)OUTPUT=$(OUTPUT) tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZERS)

.PHONY: fuzz-long
fuzz-long: deps-fuzz ## hours: FUZZ_RUNS runs of each fuzzer, and MUTANTS recordings through all commands under the sanitizers
	$(Q)$(MAKE) --no-print-directory $(FUZZERS)
	$(Q)$(MAKE) --no-print-directory $(SANITIZED) $(OUTPUT)/asan/memtrace-bpf
	$(Q)OUTPUT=$(OUTPUT) nice -n 19 tests/fuzz/mutants.py $(OUTPUT)/asan/memtrace-bpf $(MUTANTS)
	$(Q)OUTPUT=$(OUTPUT) FUZZ_RUNS=$(FUZZ_RUNS) nice -n 19 tests/fuzz/run.sh 0 $(FUZZERS)
