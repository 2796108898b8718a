# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# STATIC=1: a program without shared libraries. tools/packaging/static_libs.sh builds the libraries that Debian has no suitable static
# file of. HTTPS for serve needs GnuTLS, which cannot be linked so.
STATIC_LIBS := $(shell tools/packaging/static_libs.sh $(ARCH))
ifeq ($(STATIC_LIBS),)
$(error tools/packaging/static_libs.sh has failed)
endif
ZIG := $(shell tools/deps.sh zig)
HTTPS := 0
CPPFLAGS += -isystem $(STATIC_LIBS)/include
PROGRAM_OBJS := $(OUTPUT)/obj/tools/packaging/no_lookups.o $(OUTPUT)/obj/tools/packaging/libdw_parts.o
PROGRAM_LDFLAGS := -static -s -Wl,--gc-sections,--fatal-warnings
override LDFLAGS += -L$(STATIC_LIBS)/lib
override CFLAGS += -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables
SERVE_LIBS := $(if $(filter 0,$(SERVE)),,-lmicrohttpd -lcurl -lwolfssl -lcares -lseccomp)
CURSES := -lncursesw -ltinfo
DW_LIBS := -ldw -lelf -llzma

LOADED_CC := $(ZIG) cc -target $(ARCH)-linux-gnu.2.17
LOADED_LDFLAGS := -Wl,--strip-debug
# zig has a C++ library of its own, but PyTorch's exceptions are those of libstdc++.
LOADED_LINK_CXX := $(LOADED_CC)
LOADED_CXX_LIBS := $(shell $(CXX) -print-file-name=libstdc++.so.6) -Wl,--allow-shlib-undefined

$(OUTPUT)/memtrace-bpf: $(PROGRAM_OBJS)
# Other libraries: another program. They are no prerequisite of the program, which would have them twice.
$(OUTPUT)/obj/user/main.o: $(wildcard $(STATIC_LIBS)/lib/*.a)
