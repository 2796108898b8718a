# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# What developers run: measurements, comparisons, other kernels and systems. Each installs what it needs.

TRUTH_TARGETS := chaos truth attribution formats estimate-truth advice-truth
.PHONY: demo fleet check test mutate browsers bench bench-long bench-compare bench-page bench-serve $(TRUTH_TARGETS) leak-rates soak soak-real test-kernels test-many-cpus distros asan asan-serve gpu-bundle \
	deps deps-demo deps-fuzz deps-bench deps-test deps-kernels lint format manifests

deps: ## install what building needs
	$(Q)SERVE=$(SERVE) tools/deps.sh build

deps-demo:
	$(Q)tools/deps.sh build torch

deps-fuzz:
	$(Q)tools/deps.sh build fuzz

deps-bench:
	$(Q)tools/deps.sh build torch bench

# NEEDS: what a target needs besides what `make test` does.
deps-test:
	$(Q)tools/deps.sh build torch test $(NEEDS)
truth estimate-truth matrix: NEEDS := versions
formats: NEEDS := formats tables pages
browsers bench-page: NEEDS := pages
asan-serve: NEEDS := api

deps-kernels:
	$(Q)tools/deps.sh build kernels

demo: deps-demo ## record a small GPT training on the CPU and show the report
	$(Q)tools/demo.sh

check: all tests ## run the tests that need no root, no PyTorch and no network (three minutes)
	$(Q)OUTPUT=$(OUTPUT) tests/run.py --ring check

test: deps-test ## run the tests that CI runs
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)OUTPUT=$(OUTPUT) tests/run.py

night-versions: NEEDS := versions estimate
night-programs: NEEDS := formats tables api pages engines pytest loggers
night-pages: NEEDS := pages
night-fleet: NEEDS := pages charts collector
night-hosts: NEEDS := guests golden
zoo night-zoo: NEEDS := zoo
night-versions: deps-test ## test other versions of PyTorch
night-programs: deps-test ## let programs of others read exports, tables and documents, and run our pytest plugin
night-pages: deps-test ## use exported pages and the dashboard in Chromium
night-fleet: deps-test ## test metrics, manifests and many hosts with Prometheus, Helm and an OpenTelemetry collector
night-long: deps-test ## test long captures and a loaded server
night-hosts: deps-test ## test gVisor, musl, images and emulated kernels
night-zoo: deps-test ## compare jobs of common libraries with the history that PyTorch keeps (1.5 GB once)
zoo: night-zoo ## the same
NIGHT_TESTS := $(addprefix night-,versions programs pages fleet long hosts zoo)
$(NIGHT_TESTS):
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)OUTPUT=$(OUTPUT) tests/run.py --ring nightly=$(@:night-%=%)

# NIGHT="chaos night-fleet": only these.
NIGHT ?= $(NIGHT_TESTS) chaos truth attribution formats advice-truth estimate-truth browsers serving host-leaks fleet leak-rates soak soak-real \
	test-kernels test-many-cpus test-kernels-arm test-emulated distros test-packages matrix asan asan-serve fuzz-long mutate
.PHONY: nightly zoo $(NIGHT_TESTS)
nightly: ## run all that `make test` leaves to the night, with results in docs/reference/SUPPORT.md; NIGHT=TARGET: only that
	$(Q)OUTPUT=$(OUTPUT) tools/dev/matrix.py night $(NIGHT)

mutate: deps-test ## plant 20 faults one at a time and see which tests find them: tests/README.md (an hour)
	$(Q)tests/mutate.py

bench: deps-demo ## measure what being traced costs: docs/internals/OVERHEAD.md (under 15 minutes)
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tools/dev/bench.py

bench-long: deps-bench ## the same with all tools and models (over an hour)
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tools/dev/bench.py --long

bench-compare: ## what the last make bench has better and worse than docs/internals/bench has
	$(Q)tools/dev/bench_history.py compare --run

browsers: deps-test ## open exported pages and the dashboard in Chromium and Firefox; pictures: .output/test-logs/looks*
	$(Q)tools/deps.sh browsers
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)BROWSERS=all python3 tests/e2e/test_page.py test_looks test_page_in_firefox
	$(Q)BROWSERS=all python3 tests/e2e/http_dashboard.py test_looks test_firefox test_ranks_in_firefox

bench-page: deps-test ## measure the page of export html: docs/internals/OVERHEAD.md (a minute)
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tools/dev/bench_page.py

bench-serve: deps-bench ## measure serve: docs/internals/OVERHEAD.md (two minutes)
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/dev/bench_serve.py

chaos: deps-test ## try to harm a traced process and its tracer: docs/internals/SAFETY.md (ten minutes)
truth: deps-test ## compare recordings with PyTorch's own history: docs/internals/TRUTH.md (an hour)
attribution: deps-test ## compare lines, modules and names with what jobs know: docs/internals/ATTRIBUTION.md (15 minutes)
formats: deps-test ## let other programs read everything that export writes: docs/internals/FORMATS.md (a few minutes)
advice-truth: deps-test ## compare what --advice promises with what it saves: docs/internals/ESTIMATE.md (a few minutes)
estimate-truth: deps-test deps-estimate ## compare estimates with PyTorch's counters: docs/internals/TRUTH_ESTIMATE.md (one to two hours)
$(TRUTH_TARGETS):
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)tools/dev/$(subst -,_,$@).py

.PHONY: deps-estimate
deps-estimate:
	$(Q)tools/deps.sh estimate

leak-rates: $(OUTPUT)/tests/tools/trend_rates ## how often `leaks` is wrong on random series: docs/internals/LEAKS.md (half a minute)
	$(Q)$<

.PHONY: serving
serving: all ## programs besides training, on the dry run and attached: docs/internals/DRYRUN.md (a few minutes, 2 GB once)
	$(Q)tests/serving/run.py

.PHONY: host-leaks
host-leaks: all ## twelve planted leaks of host memory, and what names each: docs/internals/HOST_LINES.md (6 minutes)
	$(Q)python3 tests/e2e/host_leaks.py

SOAK_EVENTS ?= 1000000000
soak: $(OUTPUT)/tests/tools/soak ## 10^9 records through the program: memory, disk, totals: docs/internals/ROLLING.md (20 minutes)
	$(Q)rm -rf $(OUTPUT)/soak && nice -n 10 $< -n $(SOAK_EVENTS) $(OUTPUT)/soak

SECONDS ?= 60
fleet: all ## 64 ranks on 8 simulated hosts through fetch and report, as root (5 minutes)
	$(Q)python3 tests/e2e/fleet_many.py

soak-real: all ## the same with a job that allocates for SECONDS
	$(Q)SECONDS=$(SECONDS) python3 tests/e2e/soak_real.py

test-many-cpus: deps-kernels ## captures on hosts with many CPUs, emulated: docs/reference/hosts.md (half an hour)
	$(Q)tests/kernels/run.py --many

test-kernels: deps-kernels ## run the program on other kernels, emulated: docs/internals/KERNELS.md (5 minutes)
	$(Q)$(MAKE) --no-print-directory all
	$(Q)OUTPUT=$(OUTPUT) tests/kernels/run.py
	$(Q)OUTPUT=$(OUTPUT) tests/kernels/run.py --stall 2048

# For another architecture: the rest of such a build is made with ARCH=aarch64.
ARM64 := $(MAKE) --no-print-directory ARCH=aarch64 OUTPUT=.output-aarch64
.PHONY: deps-arm test-kernels-arm test-emulated
deps-arm: ## install what building for aarch64 needs on another machine: make ARCH=aarch64
	$(Q)tools/deps.sh build arm64

test-kernels-arm: ## the same for aarch64, and PyTorch for aarch64: docs/internals/KERNELS.md (an hour)
	$(Q)tools/deps.sh build kernels-arm64 torch-arm64
	$(Q)$(ARM64) .output-aarch64/memtrace-bpf
	$(Q)OUTPUT=.output-aarch64 tests/kernels/run.py --arm64
	$(Q)OUTPUT=.output-aarch64 tests/kernels/run.py --torch $$(tools/deps.sh kernel-images-arm64 | grep /linux-image-cloud-arm64@trixie/)

test-emulated: deps-arm ## build for aarch64 and run the unit tests under emulation (a few minutes)
	$(Q)$(ARM64) all tests
	$(Q)OUTPUT=.output-aarch64 tests/emulated.sh qemu-aarch64-static -L $$(tools/deps.sh arm64-root)

distros: ## build and run the demo on fresh Debian 12, 13 and sid: docs/internals/KERNELS.md (half an hour)
	$(Q)tools/deps.sh distros
	$(Q)OUTPUT=$(OUTPUT) tools/dev/distros.sh

.PHONY: matrix matrix-full
matrix: deps-test ## test each CPython and PyTorch that is here and write docs/reference/SUPPORT.md (a few minutes)
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/dev/matrix.py interpreters
	$(Q)tools/dev/matrix.py pytorch

matrix-full: matrix ## the same, with all kernels and Debian suites (over an hour)
	$(Q)MATRIX=1 $(MAKE) --no-print-directory test-kernels
	$(Q)MATRIX=1 $(MAKE) --no-print-directory distros
	$(Q)tools/dev/matrix_python.py
	$(Q)tools/dev/matrix.py

SANITIZED := OUTPUT=$(OUTPUT)/asan SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
asan: ## run the unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(Q)$(MAKE) --no-print-directory $(SANITIZED) tests
	$(Q)OUTPUT=$(OUTPUT)/asan tests/run.py unit

asan-serve: deps-test ## test serve under the sanitizers (a few minutes)
	$(Q)$(MAKE) --no-print-directory $(SANITIZED) all
	$(Q)$(MAKE) --no-print-directory all tests
	$(Q)MEMTRACE_SERVE=$(abspath $(OUTPUT))/asan/memtrace-bpf ASAN_OPTIONS=quarantine_size_mb=8 tests/run.py http_load http_contract

# The libraries lie next to the program, and theirs too.
$(OUTPUT)/gpu-bundle/memtrace-bpf: $(OUTPUT)/obj/user/main.o $(LIB)
	$(call msg,LINK,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(LDFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/libs' -o $@ $^ $(LDLIBS)

gpu-bundle: $(OUTPUT)/gpu-bundle/memtrace-bpf all ## pack what tools/gpu_check.sh needs on a machine with a GPU
	$(Q)OUTPUT=$(OUTPUT) tools/dev/gpu_bundle.sh $<

manifests: ## write the Kubernetes manifests of tools/packaging/deploy from the Helm chart
	$(Q)tools/deps.sh charts
	$(Q)tools/packaging/deploy/manifests.sh

lint: all tests ## check format, scripts, layers, words and commits
	$(Q)tools/deps.sh lint
	$(Q)OUTPUT=$(OUTPUT) tools/dev/lint.sh

format: ## format the C code
	git ls-files -- '*.c' '*.h' '*.cc' ':!vmlinux' ':!tests/data' | xargs clang-format -i
