/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The helper of native_stacks.c, and the messages between them, over a socket that keeps message
 * boundaries. The helper parses hostile files, so native_stacks.c checks all its messages.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/native/native.h"

#define WIRE_MODULES_MAX 8192
#define WIRE_TEXT_MAX (48 * 1024)
#define WIRE_NAME_MAX 256
#define WIRE_BUILD_ID_MAX 64

enum wire_kind {
	WIRE_MODULES = 1, /* to the helper: n struct wire_module follow */
	WIRE_UNWIND,   /* to the helper: struct wire_unwind, then the stack; answer: WIRE_FRAMES */
	WIRE_NEED_ELF, /* from the helper: struct wire_need; answer: WIRE_FILE */
	WIRE_NEED_DEBUG, /* as WIRE_NEED_ELF, for a file with debug information; n: number of the
			    candidate, from 0 */
	WIRE_FILE,   /* to the helper: the file's descriptor as control data; none: no such file */
	WIRE_FRAMES, /* from the helper: n struct wire_frame, then text */
};

struct wire_hdr {
	uint32_t kind, n;
};

struct wire_module {
	uint64_t start, end; /* addresses of a mapped file */
};

struct wire_unwind {
	struct wire_hdr h;
	struct native_regs regs;
};

struct wire_need {
	struct wire_hdr h;
	uint32_t module; /* index in the last WIRE_MODULES */
	uint32_t build_id_len;
	uint8_t build_id[WIRE_BUILD_ID_MAX];
	char name[WIRE_NAME_MAX]; /* file name of .gnu_debuglink; "": none */
};

#define WIRE_NO_MODULE UINT32_MAX

struct wire_frame { /* fields as in struct native_frame */
	uint64_t at, offset;
	uint32_t module;		   /* index in the last WIRE_MODULES, or WIRE_NO_MODULE */
	uint32_t build_id, function, file; /* offsets in the text; at offset 0 is "" */
	uint32_t line;
	uint32_t inlined;
};

struct wire_frames {
	struct wire_hdr h;
	uint32_t whole;
	uint32_t text; /* bytes of text after the frames; the last one is NUL */
	struct wire_frame v[NATIVE_FRAMES_MAX];
	char chars[WIRE_TEXT_MAX];
};

/* Paths of the modules by number; owned by the caller. */
struct answer_modules {
	const char *(*path)(const void *ctx, uint32_t module);
	const void *ctx;
	size_t n;
};

/* Checks an answer of len bytes and sets *ret, whose texts belong to a and modules. False: the
 * answer is not valid. */
bool wire__read_answer(const struct wire_frames *answer, size_t len,
		       const struct answer_modules *modules, struct native_frames *ret);

/* ---- the helper, which parses files of the target: see native.h ---- */

/* Main function of the helper, for base/subprocess.h. fd: the helper's end of the socket. Returns
 * the exit code: 0 when the other end is closed, or HELPER_UNUSABLE. */
#define HELPER_UNUSABLE 2 /* the helper could not be confined, or had no memory */
int helper__run(int fd);

/*
 * Confines this process for good: no capability, no privilege through exec, no core file, and only
 * system calls for memory and for descriptors that it has. Other calls fail with EPERM. It cannot
 * open a file or a socket, signal, trace or start a process. 0, or -errno: the process must exit.
 */
int helper__confine(void);

/* Writes a symbol's name as people read it: C++ and Rust names demangled, without parameters,
 * return type and the compiler's suffixes (".isra.0"). Other names stay, also those of Rust's newer
 * scheme ("_R..."). Returns buf. */
char *helper__demangle(const char *symbol, char *buf, size_t size);
