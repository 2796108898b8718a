# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# memtrace-bpf: everything is built below $(OUTPUT). V=1 shows the commands.

OUTPUT ?= .output
ARCH := $(shell uname -m)
PREFIX ?= /usr/local
UNITDIR ?= $(PREFIX)/lib/systemd/system
VERSION := 0.1.0
CLANG ?= clang
BPFTOOL ?= $(shell command -v bpftool || echo /usr/sbin/bpftool)
LLVM_STRIP ?= $(shell command -v llvm-strip || echo llvm-strip-14)

ifeq ($(V),1)
Q :=
msg :=
else
Q := @
msg = @printf '  %-8s %s\n' $(1) $(patsubst $(OUTPUT)/%,%,$(2));
endif

# WERROR=1 makes warnings errors: for developers and CI. A user's newer compiler may warn of more than ours, and still builds.
WERROR ?= 0
ERROR_ON_WARNING := $(if $(filter 1,$(WERROR)),-Werror)
WARN := -Wall -Wextra -Wshadow -Wformat=2 -Wtype-limits -Wstrict-prototypes -Wmissing-prototypes $(ERROR_ON_WARNING)
CFLAGS ?= -O2 -g
override CFLAGS += -std=gnu11 -D_GNU_SOURCE $(WARN) $(SANITIZE)
CPPFLAGS += -Iuser -Ibpf -I$(OUTPUT)/gen -DMEMTRACE_VERSION='"$(VERSION)"' -MMD -MP
override LDFLAGS += $(SANITIZE)
# In some systems' ncurses the part that knows terminals is a library of its own.
CURSES := $(shell pkg-config --libs ncursesw tinfo 2>/dev/null || echo -lncursesw -ltinfo)
# SERVE=0 leaves `serve` out, and the libraries that only it needs.
SERVE ?= 1
SERVE_LIBS := $(if $(filter 0,$(SERVE)),,-lmicrohttpd -lcurl -lseccomp -lgnutls)
LDLIBS := -lbpf -lelf -lz -lzstd -ljansson $(CURSES) $(SERVE_LIBS) -lpthread -lm

BPF_ARCH := $(if $(filter aarch64,$(ARCH)),arm64,x86)
BPF_CFLAGS := -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCH) -Wall -Wextra $(ERROR_ON_WARNING) -Wno-unused-parameter \
	-I$(OUTPUT)/gen -Ibpf -MMD -MP

OF_SERVE := $(if $(filter 0,$(SERVE)),user/cmd/serve.c $(wildcard user/serve/*.c user/serve/*/*.c) $(shell grep -rls --include=*.c '"serve/' tests/unit tests/fuzz))
SRCS := $(filter-out $(OF_SERVE),$(wildcard user/*.c user/*/*.c user/*/*/*.c))
OBJS := $(SRCS:%.c=$(OUTPUT)/obj/%.o)
LIBOBJS := $(filter-out $(OUTPUT)/obj/user/main.o,$(OBJS))
TESTS := $(patsubst %.c,$(OUTPUT)/%,$(filter-out $(OF_SERVE),$(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c)))
TESTTOOLS := $(patsubst tests/tools/%.c,$(OUTPUT)/tests/tools/%,$(wildcard tests/tools/*.c))
TESTLIB := $(patsubst %.c,$(OUTPUT)/obj/%.o,$(wildcard tests/unit/*.c))
SKELS := $(patsubst bpf/%.bpf.c,$(OUTPUT)/gen/%.skel.h,$(wildcard bpf/*.bpf.c))
ASSETS := $(patsubst user/export/assets/%,$(OUTPUT)/gen/assets/%.h,$(wildcard user/export/assets/*)) $(OUTPUT)/gen/assets/page.html.h \
	$(if $(filter 0,$(SERVE)),,$(OUTPUT)/gen/assets/serve_pages.h)

.PHONY: all tests test gpu-bundle leak-rates soak soak-real test-kernels distros demo bench bench-page bench-serve chaos truth advice-truth estimate-truth attribution formats fuzz asan asan-serve deps deps-test deps-demo deps-fuzz deps-bench \
	deps-kernels install uninstall clean format FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: $(OUTPUT)/memtrace-bpf dryrun inside $(OUTPUT)/replay/replayer

$(OUTPUT)/memtrace-bpf: $(OBJS)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(OBJS) $(LDLIBS)

$(OUTPUT)/obj/%.o: %.c | $(ASSETS) $(SKELS)
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(CPPFLAGS) -Itests $(CFLAGS) -c -o $@ $<

# What is in this build: main.c is built anew where that has changed.
$(OUTPUT)/gen/in_this_build.h: FORCE
	$(Q)mkdir -p $(dir $@)
	$(Q)echo '#define MEMTRACE_SERVE $(if $(filter 0,$(SERVE)),0,1)' | cmp -s - $@ || \
		echo '#define MEMTRACE_SERVE $(if $(filter 0,$(SERVE)),0,1)' >$@

$(OUTPUT)/obj/user/main.o: $(OUTPUT)/gen/in_this_build.h

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

$(OUTPUT)/gen/%.skel.h: $(OUTPUT)/bpf/%.bpf.o
	$(call msg,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name $*_bpf >$@

# What exported pages are made of, as arrays.
$(OUTPUT)/gen/assets/%.h: user/export/assets/% tools/dev/embed.sh
	$(call msg,EMBED,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/embed.sh asset_$(subst .,_,$*) $< >$@

# The page of export html: its parts and uPlot as one template. uPlot comes through npm, once: tools/deps.sh keeps it.
PAGE := user/export/page
PAGE_STYLES := $(wildcard $(PAGE)/*.css)
# kit.js and base.js have what the others stand on, main.js puts them together.
PAGE_SCRIPTS := $(wildcard user/export/assets/words.js $(PAGE)/kit.js $(PAGE)/base.js) \
	$(filter-out $(PAGE)/kit.js $(PAGE)/base.js $(PAGE)/main.js,$(sort $(wildcard $(PAGE)/*.js))) $(wildcard $(PAGE)/main.js)

$(OUTPUT)/gen/uplot/.complete: $(PAGE)/package-lock.json
	$(call msg,UPLOT,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)dir=$$(tools/deps.sh page) && cp $$dir/node_modules/uplot/dist/uPlot.iife.min.js $$dir/node_modules/uplot/dist/uPlot.min.css \
		$$dir/node_modules/uplot/LICENSE $(dir $@)
	$(Q)touch $@

$(OUTPUT)/gen/page.html: tools/dev/bundle_page.py $(PAGE)/page.html $(PAGE_STYLES) $(PAGE_SCRIPTS) $(OUTPUT)/gen/uplot/.complete
	$(call msg,BUNDLE,$@)
	$(Q)tools/dev/bundle_page.py $(PAGE)/page.html -o $@ --notice $(OUTPUT)/gen/uplot/LICENSE \
		--style $(OUTPUT)/gen/uplot/uPlot.min.css $(PAGE_STYLES) --script $(OUTPUT)/gen/uplot/uPlot.iife.min.js $(PAGE_SCRIPTS)

$(OUTPUT)/gen/assets/page.html.h: $(OUTPUT)/gen/page.html tools/dev/embed.sh
	$(call msg,EMBED,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/embed.sh asset_page_html $< >$@

# What serve shows in a browser: the dashboard, which looks as the page does, and the documentation of its API.
DASH := user/serve/web/page
DASH_STYLES := $(PAGE)/page.css $(wildcard $(DASH)/*.css)
DASH_FIRST := user/export/assets/words.js $(PAGE)/kit.js $(DASH)/base.js $(PAGE)/list.js $(DASH)/grid.js
DASH_SCRIPTS := $(DASH_FIRST) $(filter-out $(DASH_FIRST) $(DASH)/main.js,$(sort $(wildcard $(DASH)/*.js))) $(DASH)/main.js
DOCS := user/serve/web/docs
DOCS_FILES := swagger-ui-dist/swagger-ui-bundle.js swagger-ui-dist/swagger-ui.css swagger-ui-dist/LICENSE swagger-ui-dist/NOTICE \
	swagger-ui-dist/swagger-ui-bundle.js.LICENSE.txt redoc/bundles/redoc.standalone.js redoc/LICENSE redoc/bundles/redoc.standalone.js.LICENSE.txt
comma := ,
empty :=
listed = $(subst $(empty) $(empty),$(comma),$(strip $(1)))

$(OUTPUT)/gen/docs/.complete: $(DOCS)/package-lock.json
	$(call msg,DOCS,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)dir=$$(tools/deps.sh docs) && cd $$dir/node_modules && cp --parents $(DOCS_FILES) $(abspath $(dir $@))
	$(Q)touch $@

$(OUTPUT)/gen/assets/serve_pages.h: tools/dev/bundle_serve.py $(wildcard $(DASH)/*.html $(DOCS)/*.html $(DOCS)/*.js $(DOCS)/*.css) $(DASH_STYLES) \
	$(DASH_SCRIPTS) $(OUTPUT)/gen/uplot/.complete $(OUTPUT)/gen/docs/.complete
	$(call msg,BUNDLE,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)tools/dev/bundle_serve.py -o $@ --page /=$(DASH)/index.html --page /api/docs=$(DOCS)/swagger.html --page /api/redoc=$(DOCS)/redoc.html \
		--asset dash.css=$(call listed,$(OUTPUT)/gen/uplot/uPlot.min.css $(DASH_STYLES)) --asset dash.js=$(call listed,$(DASH_SCRIPTS)) \
		--asset uplot.js=$(OUTPUT)/gen/uplot/uPlot.iife.min.js --asset docs.css=$(DOCS)/docs.css \
		--asset swagger.js=$(DOCS)/swagger.js --asset redoc.js=$(DOCS)/redoc.js \
		--asset swagger-ui-bundle.js=$(OUTPUT)/gen/docs/swagger-ui-dist/swagger-ui-bundle.js \
		--asset swagger-ui.css=$(OUTPUT)/gen/docs/swagger-ui-dist/swagger-ui.css \
		--asset redoc.standalone.js=$(OUTPUT)/gen/docs/redoc/bundles/redoc.standalone.js \
		--asset licences.txt=$(call listed,$(OUTPUT)/gen/uplot/LICENSE $(addprefix $(OUTPUT)/gen/docs/,$(filter %LICENSE %NOTICE %.txt,$(DOCS_FILES)))) \
		--replace redoc.standalone.js https://cdn.redoc.ly/redoc/logo-mini.svg 'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E'

# The dry-run CUDA runtime, two libraries by the names that programs look for. Most of its functions ignore most of
# their arguments; each is one of its own (no folding), since observers put probes on them by name, and calls what it
# needs instead of jumping there: a probe on the return finds the call's own result.
DRYRUN := $(OUTPUT)/dryrun
DRYRUN_CFLAGS := -fPIC -fvisibility=hidden -fno-ipa-icf -fno-optimize-sibling-calls -fno-semantic-interposition \
	-ftls-model=initial-exec -Wno-unused-parameter
DRYRUN_NVML := nvml nvml_machine config props log values
DRYRUN_CUDA_OBJS := $(patsubst tools/%.c,$(OUTPUT)/obj/tools/%.o,$(filter-out tools/dryrun/nvml%.c,\
	$(wildcard tools/dryrun/*.c tools/dryrun/gen/*.c)))
DRYRUN_NVML_OBJS := $(DRYRUN_NVML:%=$(OUTPUT)/obj/tools/dryrun/%.o)

.PHONY: dryrun
dryrun: $(DRYRUN)/libcuda.so.1 $(DRYRUN)/libnvidia-ml.so.1 $(DRYRUN)/libcuda.so

$(OUTPUT)/obj/tools/dryrun/%.o: tools/dryrun/%.c Makefile
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(CPPFLAGS) -Itools/dryrun $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) $(DRYRUN_CFLAGS) -c -o $@ $<

$(DRYRUN)/libcuda.so.1: $(DRYRUN_CUDA_OBJS)
$(DRYRUN)/libnvidia-ml.so.1: $(DRYRUN_NVML_OBJS)
$(DRYRUN)/%.so.1:
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) -shared -Wl,-soname,$(notdir $@) -Wl,-z,defs -Wl,-z,now $(filter-out -fsanitize=%,$(LDFLAGS)) -o $@ $^ -ldl -lpthread

# Under this name Triton's compiler links it.
$(DRYRUN)/libcuda.so: $(DRYRUN)/libcuda.so.1
	$(Q)ln -sf libcuda.so.1 $@

# The programs of bpf/ as a library for a recorder's own child: docs/ESTIMATE.md, "Without privileges". first and last have
# their places in the link: between them lie the pages that are shared.
INSIDE := $(OUTPUT)/inside
INSIDE_CFLAGS := -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-stack-protector -Wno-unused-parameter
INSIDE_OBJS := $(patsubst %,$(OUTPUT)/obj/tools/inprocess/%.o,first $(filter-out first last,$(patsubst tools/inprocess/%.c,%,\
	$(sort $(wildcard tools/inprocess/*.c)))) last)

.PHONY: inside
inside: $(INSIDE)/libmemtrace-inside.so

$(OUTPUT)/obj/tools/inprocess/%.o: tools/inprocess/%.c Makefile
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) -Ibpf/host $(CPPFLAGS) $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) $(INSIDE_CFLAGS) -c -o $@ $<

$(INSIDE)/libmemtrace-inside.so: $(INSIDE_OBJS)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) -shared -Wl,-soname,$(notdir $@) -Wl,-z,defs -Wl,-z,now $(filter-out -fsanitize=%,$(LDFLAGS)) -o $@ $(INSIDE_OBJS) -ldl

# What calls PyTorch's allocator for replay: a program that loads the target's library and no more of PyTorch than that. The library
# finds the program's own functions before others'. Its calls may throw, hence the C++ compiler.
REPLAYER_OBJS := $(patsubst tools/%,$(OUTPUT)/obj/tools/%.o,$(basename $(wildcard tools/replayer/*.c tools/replayer/*.cc))) \
	$(OUTPUT)/obj/tools/replayer/varint.o
REPLAYER_CFLAGS = -Itools -Itools/replayer $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS)) -fvisibility=hidden

$(OUTPUT)/obj/tools/replayer/%.o: tools/replayer/%.c Makefile
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(CPPFLAGS) $(REPLAYER_CFLAGS) -c -o $@ $<

$(OUTPUT)/obj/tools/replayer/varint.o: user/record/varint.c
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(CPPFLAGS) $(REPLAYER_CFLAGS) -c -o $@ $<

$(OUTPUT)/obj/tools/replayer/%.o: tools/replayer/%.cc Makefile
	$(call msg,CXX,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CXX) $(CPPFLAGS) $(filter-out -std=gnu11 -Wstrict-prototypes -Wmissing-prototypes,$(REPLAYER_CFLAGS)) -std=gnu++17 -fno-rtti -c -o $@ $<

$(OUTPUT)/replay/replayer: $(REPLAYER_OBJS)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CXX) $(filter-out -fsanitize=%,$(LDFLAGS)) -rdynamic -o $@ $^ -ldl

tests: $(TESTS) $(TESTTOOLS)

# The kernel side as part of a program of its own: with headers instead of the kernel's and libbpf's.
BPF_ON_HOST := tests/unit/bpf/test_nodes tests/unit/bpf/test_walk tests/unit/bpf/test_walk_moves tests/unit/bpf/test_suspended tests/tools/walk_image
$(BPF_ON_HOST:%=$(OUTPUT)/obj/%.o): override CPPFLAGS := -Ibpf/host $(CPPFLAGS)

# Its readers read through it.
$(OUTPUT)/tests/tools/object_image: override LDFLAGS += -Wl,--wrap=process_vm_readv,--wrap=pymem__init

$(OUTPUT)/tests/tools/%: $(OUTPUT)/obj/tests/tools/%.o $(LIBOBJS)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# It runs itself with the library.
$(OUTPUT)/tests/unit/capture/test_inside: | inside
$(OUTPUT)/tests/unit/nvml/test_gpus: | dryrun

# What stands for the kernel side, and for a target's memory, where there is neither.
SOAK_WRAPS := probes__consume probes__counters probes__lost_ends probes__epoch probes__bumps probes__ends probes__bump_epoch \
	probes__both_until probes__taken probes__times_forgotten codes__known codes__need codes__find proc__thread_comm proc__thread_started calls__after_drain calls__used session__through_state
$(OUTPUT)/tests/tools/soak: override LDFLAGS += $(SOAK_WRAPS:%=-Wl,--wrap=%)

$(OUTPUT)/tests/unit/%: $(OUTPUT)/obj/tests/unit/%.o $(TESTLIB) $(LIBOBJS)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

deps:
	$(Q)SERVE=$(SERVE) tools/deps.sh build

deps-demo:
	$(Q)tools/deps.sh build torch

deps-fuzz:
	$(Q)tools/deps.sh build fuzz

deps-bench:
	$(Q)tools/deps.sh build torch bench

deps-test:
	$(Q)tools/deps.sh build torch test

demo: deps-demo
	$(Q)tools/demo.sh

test: deps-test
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tests/run.sh

bench: deps-bench
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tools/dev/bench.py

# The page of export html in a browser: docs/REPORT.md, "The page". A minute.
bench-page: deps-test
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tools/dev/bench_page.py

# How fast serve answers, and what it costs: docs/SERVE.md, "What it costs". Two minutes.
bench-serve: deps-bench
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/dev/bench_serve.py

# Whatever may happen to a tracer or to what it traces, often: docs/SAFETY.md. Ten minutes.
chaos: deps-test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/dev/chaos.py

# Recordings against PyTorch's own history of the same runs: docs/TRUTH.md. About an hour.
truth: deps-test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/dev/truth.py

# Estimates against PyTorch's own counters and against fake tensors: docs/ESTIMATE.md. An hour or two.
estimate-truth: deps-test
	$(Q)tools/deps.sh estimate
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/dev/estimate_truth.py

# What `report --advice` says that a remedy saves against what it saves: the table in docs/ESTIMATE.md. Some minutes.
advice-truth: deps-test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/dev/advice_truth.py

# Everything that export writes, read by programs of others and compared with report: docs/FORMATS.md. A few minutes.
formats: deps-test
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tools/dev/formats.py

# Lines, modules and names of training jobs' memory against what the jobs know: docs/ATTRIBUTION.md. About a quarter of an hour.
attribution: deps-test
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/dev/attribution.py

# How often `leaks` is wrong, on series at random: docs/LEAKS.md. Half a minute.
leak-rates: $(OUTPUT)/tests/tools/trend_rates
	$(Q)$<

# 10^9 records through the program: memory, disk, totals (docs/LONG.md). Some 20 minutes of one core.
SOAK_EVENTS ?= 1000000000
soak: $(OUTPUT)/tests/tools/soak
	$(Q)rm -rf $(OUTPUT)/soak && nice -n 10 $< -n $(SOAK_EVENTS) $(OUTPUT)/soak

# Real ones, of a job that allocates flat out for SECONDS.
SECONDS ?= 60
soak-real: all
	$(Q)SECONDS=$(SECONDS) python3 tests/e2e/soak_real.py

# What reads hostile input under libFuzzer: builds all, runs each for FUZZ_SECONDS. With clang, whose runtime it needs.
FUZZ_SECONDS ?= 60
FUZZERS := $(patsubst tests/fuzz/%.c,$(OUTPUT)/fuzz/%,$(filter-out $(OF_SERVE),$(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_OBJS := $(patsubst %.c,$(OUTPUT)/fuzz/obj/%.o,$(filter-out user/main.c,$(SRCS)))
FUZZ_SANITIZE := address,undefined -fno-sanitize-recover=undefined
FUZZ_CPPFLAGS := -DMEMTRACE_VERSION='"$(VERSION)"' -Iuser -Ibpf -I$(OUTPUT)/gen -Itests -MMD -MP

$(OUTPUT)/fuzz/obj/tests/fuzz/fuzz_walk.o: FUZZ_CPPFLAGS := -Ibpf/host $(FUZZ_CPPFLAGS)
# The kernel takes what is not aligned.
$(OUTPUT)/fuzz/obj/tests/fuzz/fuzz_walk.o: FUZZ_CFLAGS := -fno-sanitize=alignment
$(OUTPUT)/fuzz/fuzz_tensors: FUZZ_LDFLAGS := -Wl,--wrap=process_vm_readv,--wrap=poll
$(OUTPUT)/fuzz/fuzz_objects: FUZZ_LDFLAGS := -Wl,--wrap=process_vm_readv,--wrap=poll,--wrap=python__symbol,--wrap=pymem__init
$(OUTPUT)/fuzz/fuzz_serve_ask: FUZZ_LDFLAGS := -Wl,--wrap=spawn__self
$(OUTPUT)/fuzz/fuzz_records: FUZZ_LDFLAGS := -Wl,--wrap=process_vm_readv,--wrap=poll,--wrap=python__symbol,--wrap=pymem__init \
	$(foreach f,add_root clear_roots bump_epoch attached set_module_type set_node_layout both_until,-Wl,--wrap=probes__$(f)) \
	-Wl,--wrap=session__census_sees,--wrap=session__through_state

$(OUTPUT)/fuzz/obj/%.o: %.c | $(ASSETS) $(SKELS)
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CLANG) -std=gnu11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer-no-link,$(FUZZ_SANITIZE) $(FUZZ_CFLAGS) $(FUZZ_CPPFLAGS) -c -o $@ $<

$(OUTPUT)/fuzz/%: $(OUTPUT)/fuzz/obj/tests/fuzz/%.o $(FUZZ_OBJS)
	$(call msg,LINK,$@)
	$(Q)$(CLANG) -fsanitize=fuzzer,$(FUZZ_SANITIZE) $(FUZZ_LDFLAGS) -o $@ $^ $(LDLIBS)

fuzz: deps-fuzz
	$(Q)$(MAKE) --no-print-directory $(FUZZERS)
	$(Q)OUTPUT=$(OUTPUT) tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZERS)

# The program on other kernels, emulated: docs/KERNELS.md. Some minutes.
test-kernels: deps-kernels
	$(Q)$(MAKE) --no-print-directory all
	$(Q)OUTPUT=$(OUTPUT) tests/kernels/run.py

# The first command of the README on fresh Debian 12, 13 and sid: docs/KERNELS.md. Half an hour, most of it downloads.
distros:
	$(Q)tools/deps.sh distros
	$(Q)OUTPUT=$(OUTPUT) tools/dev/distros.sh

deps-kernels:
	$(Q)tools/deps.sh build kernels

# The unit tests once more under AddressSanitizer and UndefinedBehaviorSanitizer.
asan:
	$(Q)$(MAKE) --no-print-directory OUTPUT=$(OUTPUT)/asan SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined" tests
	$(Q)OUTPUT=$(OUTPUT)/asan tests/run.sh unit

UNITS := tools/packaging/systemd/memtrace-bpf-watch@.service tools/packaging/deploy/memtrace-bpf-serve.service

# What serve answers, likewise: clients at once, and requests that are made up from its schema. Some minutes.
asan-serve: deps-test
	$(Q)$(MAKE) --no-print-directory OUTPUT=$(OUTPUT)/asan SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined" all
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)MEMTRACE_SERVE=$(abspath $(OUTPUT))/asan/memtrace-bpf ASAN_OPTIONS=quarantine_size_mb=8 tests/run.sh http_load http_contract

# What tools/gpu_check.sh needs on a machine with a GPU, in one file: docs/GPU_CHECK.md. The libraries lie beside the program, and theirs too.
$(OUTPUT)/gpu-bundle/memtrace-bpf: $(OBJS)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(LDFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/libs' -o $@ $(OBJS) $(LDLIBS)

gpu-bundle: $(OUTPUT)/gpu-bundle/memtrace-bpf all
	$(Q)OUTPUT=$(OUTPUT) tools/dev/gpu_bundle.sh $<

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man8 $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/dryrun $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/inside
	install -m 0755 $(OUTPUT)/memtrace-bpf $(DESTDIR)$(PREFIX)/bin/
	install -m 0644 $(DRYRUN)/libcuda.so.1 $(DRYRUN)/libnvidia-ml.so.1 $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/dryrun/
	ln -sf libcuda.so.1 $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/dryrun/libcuda.so
	install -m 0644 $(INSIDE)/libmemtrace-inside.so $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/inside/

	install -d $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/replay
	install -m 0755 $(OUTPUT)/replay/replayer $(DESTDIR)$(PREFIX)/lib/memtrace-bpf/replay/
	install -m 0644 docs/memtrace-bpf.8 $(DESTDIR)$(PREFIX)/share/man/man8/
	install -d $(DESTDIR)$(UNITDIR)
	for unit in $(UNITS); do \
		sed 's|@BINDIR@|$(PREFIX)/bin|' $$unit >$(DESTDIR)$(UNITDIR)/$$(basename $$unit) && chmod 0644 $(DESTDIR)$(UNITDIR)/$$(basename $$unit) || exit 1; \
	done

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/memtrace-bpf $(DESTDIR)$(PREFIX)/share/man/man8/memtrace-bpf.8
	rm -rf $(DESTDIR)$(PREFIX)/lib/memtrace-bpf
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(UNITS)))

format:
	clang-format -i $(SRCS) $(wildcard user/*.h user/*/*.h)

clean:
	rm -rf $(OUTPUT)

-include $(OBJS:.o=.d) $(DRYRUN_CUDA_OBJS:.o=.d) $(DRYRUN_NVML_OBJS:.o=.d) $(INSIDE_OBJS:.o=.d) $(REPLAYER_OBJS:.o=.d) \
	$(SKELS:$(OUTPUT)/gen/%.skel.h=$(OUTPUT)/bpf/%.bpf.d) $(TESTLIB:.o=.d) \
	$(TESTS:$(OUTPUT)/tests/%=$(OUTPUT)/obj/tests/%.d) \
	$(TESTTOOLS:$(OUTPUT)/tests/%=$(OUTPUT)/obj/tests/%.d) $(FUZZ_OBJS:.o=.d) \
	$(FUZZERS:$(OUTPUT)/fuzz/%=$(OUTPUT)/fuzz/obj/tests/fuzz/%.d)
