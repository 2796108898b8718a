# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# memtrace-bpf: everything is built below $(OUTPUT). V=1 shows the commands. `make help` lists the targets.

# ARCH=aarch64 on another machine: with Debian's cross compiler and the libraries that tools/deps.sh arm64 unpacks. What is built runs
# under EMULATOR where the build needs it.
HOST_ARCH := $(shell uname -m)
ARCH ?= $(HOST_ARCH)
ifneq ($(ARCH),$(HOST_ARCH))
OUTPUT ?= .output$(if $(filter 1,$(STATIC)),-static)-$(ARCH)
CROSS_COMPILE ?= $(ARCH)-linux-gnu-
SYSROOT ?= $(shell tools/deps.sh arm64-root)
EMULATOR ?= qemu-$(ARCH)-static -L $(SYSROOT)
CC := $(CROSS_COMPILE)gcc --sysroot=$(SYSROOT)
CXX := $(CROSS_COMPILE)g++ --sysroot=$(SYSROOT)
AR := $(CROSS_COMPILE)ar
CURSES := -lncursesw -ltinfo
endif
# STATIC=1: one static file that starts on any Linux. What programs load is built for glibc 2.17. tools/packaging/static.mk has the rest.
STATIC ?= 0
OUTPUT ?= .output$(if $(filter 1,$(STATIC)),-static)
PREFIX ?= /usr/local
UNITDIR ?= $(PREFIX)/lib/systemd/system
VERSION := 0.2.0
# Compilers that you do not name get ccache in front of them, if it is installed and has a place. Releases are built without it.
ifneq ($(STATIC),1)
CCACHE := $(shell d=$$(ccache -k cache_dir 2>/dev/null) && mkdir -p "$$d" 2>/dev/null && [ -w "$$d" ] && echo ccache)
endif
ifneq ($(filter default file,$(origin CC)),)
CC := $(strip $(CCACHE) $(CC))
endif
CLANG ?= $(CCACHE) clang
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
# No path of this machine gets into what is built.
NO_PATHS := -ffile-prefix-map=$(CURDIR)=.
override CFLAGS += -std=gnu11 -D_GNU_SOURCE $(WARN) $(NO_PATHS) $(SANITIZE)
CPPFLAGS += -Iuser -Ibpf -I$(OUTPUT)/gen -DMEMTRACE_VERSION='"$(VERSION)"' -MMD -MP
override LDFLAGS += $(SANITIZE)
# In some systems' ncurses the part that knows terminals is a library of its own.
CURSES ?= $(shell pkg-config --libs ncursesw tinfo 2>/dev/null || echo -lncursesw -ltinfo)
# SERVE=0 leaves `serve` out, and the libraries that only it needs.
SERVE ?= 1
SERVE_LIBS := $(if $(filter 0,$(SERVE)),,-lmicrohttpd -lcurl -lseccomp -lgnutls)
# Compilers and flags for what is loaded into programs or loads their libraries, and may meet an older C library than the one here.
LOADED_CC := $(CC)
LOADED_LINK_CXX := $(CXX)
LOADED_LDFLAGS := $(filter-out -fsanitize=%,$(LDFLAGS))
# HTTPS=0: serve has HTTP only, without GnuTLS.
HTTPS := 1
DW_LIBS := -ldw
ifeq ($(STATIC),1)
include tools/packaging/static.mk
endif
CPPFLAGS += -DMEMTRACE_HTTPS=$(HTTPS)
# The demangler of the C++ library is C. It is linked statically, so that nothing else of that library is needed.
DEMANGLER := $(shell $(CXX) -print-file-name=libstdc++.a)
LDLIBS := -lbpf $(DW_LIBS) -lelf -lz -lzstd -ljansson $(DEMANGLER) $(CURSES) $(SERVE_LIBS) -lpthread -lm

BPF_ARCH := $(if $(filter aarch64,$(ARCH)),arm64,x86)
BPF_CFLAGS := -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCH) -Wall -Wextra $(ERROR_ON_WARNING) -Wno-unused-parameter \
	$(NO_PATHS) -I$(OUTPUT)/gen -Ibpf -MMD -MP

OF_SERVE := $(if $(filter 0,$(SERVE)),user/cmd/serve.c user/cmd/fetch.c $(wildcard user/serve/*/*.c) $(shell grep -rlsE --include=*.c '"serve/' tests/unit tests/fuzz)) \
	$(if $(filter 0,$(HTTPS)),user/serve/server/certificate.c tests/unit/serve/test_secret.c,user/serve/server/no_certificate.c)
SRCS := $(filter-out $(OF_SERVE),$(wildcard user/*.c user/*/*.c user/*/*/*.c))
# All of user/ but main.c, for the program and for tests.
LIB := $(OUTPUT)/libmemtrace.a
LIBOBJS := $(patsubst %.c,$(OUTPUT)/obj/%.o,$(filter-out user/main.c,$(SRCS)))
SKELS := $(patsubst bpf/%.bpf.c,$(OUTPUT)/gen/%.skel.h,$(wildcard bpf/*.bpf.c))
ASSETS := $(patsubst user/export/assets/%,$(OUTPUT)/gen/assets/%.h,$(wildcard user/export/assets/*)) $(OUTPUT)/gen/assets/page.html.h $(OUTPUT)/gen/assets/schemas.h \
	$(OUTPUT)/gen/assets/ranks.html.h $(OUTPUT)/gen/assets/gpus_helper.h \
	$(if $(filter 0,$(SERVE)),,$(OUTPUT)/gen/assets/serve_pages.h)

# A page for each command: docs/man describes the command, the program's own option tables have the rest.
COMMAND_PAGES := $(filter-out $(if $(filter 0,$(SERVE)),docs/man/memtrace-bpf-serve.8.in docs/man/memtrace-bpf-fetch.8.in),$(wildcard docs/man/*.8.in))
MANUAL := $(patsubst docs/man/%.in,$(OUTPUT)/man/%,$(COMMAND_PAGES)) $(patsubst docs/man/%,$(OUTPUT)/man/%,$(wildcard docs/man/*.[78]))

.DEFAULT_GOAL := all
.PHONY: all clean help
.DELETE_ON_ERROR:
.SECONDARY:

all: $(OUTPUT)/memtrace-bpf dryrun inside $(OUTPUT)/replay/replayer $(OUTPUT)/memtrace-bpf-token $(MANUAL) ## build the program and what it starts (the default)

help: ## list the targets
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(LIB): $(LIBOBJS)
	$(call msg,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(OUTPUT)/memtrace-bpf: $(OUTPUT)/obj/user/main.o $(LIB)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $(PROGRAM_LDFLAGS) -Wl,-Map=$@.map -o $@.new $^ $(LDLIBS) && mv -f $@.new $@

$(OUTPUT)/obj/%.o: %.c | $(ASSETS) $(SKELS)
	$(call msg,CC,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)$(CC) $(CPPFLAGS) -Itests $(CFLAGS) -c -o $@ $<

# What runs for each event of a recording.
$(OUTPUT)/obj/user/model/heap/%.o $(OUTPUT)/obj/user/record/%.o: override CFLAGS := $(subst -O2,-O3,$(CFLAGS))

$(OUTPUT)/man/memtrace-bpf-%.8: docs/man/memtrace-bpf-%.8.in $(OUTPUT)/memtrace-bpf
	$(Q)mkdir -p $(dir $@)
	$(Q)$(EMULATOR) $(OUTPUT)/memtrace-bpf --manual $* <$< >$@

$(OUTPUT)/man/%: docs/man/%
	$(Q)mkdir -p $(dir $@)
	$(Q)cp $< $@

# What is in this build: main.c is compiled again when that has changed. Written while make reads this file, so that no target is
# made for nothing: tests run make while others run the program. At midnight the date in it changes, so the new program is linked
# under another name and takes the place of the one that runs.
# A source tarball has the commit in its file RELEASE. SOURCE_DATE_EPOCH makes the date reproducible.
comma := ,
COMMIT := $(if $(wildcard .git),$(shell git rev-parse --short=10 HEAD 2>/dev/null),$(shell sed -n 's/^commit=//p' RELEASE 2>/dev/null))
BUILD_DATE := $(shell date -u $(if $(SOURCE_DATE_EPOCH),-d @$(SOURCE_DATE_EPOCH)) +%Y-%m-%d)
$(shell mkdir -p $(OUTPUT)/gen; printf '\043define %s\n' 'MEMTRACE_SERVE $(if $(filter 0,$(SERVE)),0,1)' \
	'MEMTRACE_STATIC $(if $(filter 1,$(STATIC)),1,0)' 'MEMTRACE_BUILD "$(if $(COMMIT),git $(COMMIT)$(comma) )built $(BUILD_DATE)"' >$(OUTPUT)/gen/in_this_build.$$$$; \
	cmp -s $(OUTPUT)/gen/in_this_build.$$$$ $(OUTPUT)/gen/in_this_build.h || cp $(OUTPUT)/gen/in_this_build.$$$$ $(OUTPUT)/gen/in_this_build.h; \
	rm -f $(OUTPUT)/gen/in_this_build.$$$$)
$(OUTPUT)/obj/user/main.o: $(OUTPUT)/gen/in_this_build.h

# For hosts without a description of the user's terminal.
BUILT_IN_TERMINAL := xterm-256color
$(OUTPUT)/gen/built_in_terminal.h: Makefile
	$(call msg,GEN,$@)
	$(Q)mkdir -p $(dir $@)
	$(Q)infocmp -0 -Q2 $(BUILT_IN_TERMINAL) | sed -n 's/^b64:.*/#define BUILT_IN_TERMINAL "&"/p' >$@
	$(Q)printf '#define %s "%s"\n' BUILT_IN_TERMINAL_NAME $(BUILT_IN_TERMINAL) >>$@
$(OUTPUT)/obj/user/live/screen/terminal.o: $(OUTPUT)/gen/built_in_terminal.h

include bpf/build.mk tools/dev/pages.mk tools/dryrun/build.mk tools/inprocess/build.mk tools/replayer/build.mk tools/token/build.mk tools/nvml/build.mk tests/build.mk tests/fuzz/build.mk \
	tools/dev/targets.mk tools/packaging/install.mk tools/packaging/packages.mk

clean: ## remove everything that was built
	rm -rf $(OUTPUT)

# Headers that a file of ours includes, as the compiler wrote them down.
-include $(shell find $(OUTPUT) -type f -name '*.d' 2>/dev/null)
