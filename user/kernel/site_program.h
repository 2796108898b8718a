/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Perf uprobes that tell their program a number, for kernels without attach cookies. */
#include <stdint.h>
#include <sys/types.h>

/* Maps of bpf/old.bpf.h. Descriptors, borrowed. */
struct site_program_maps {
	int cookies;  /* site_cookies */
	int programs; /* site_programs */
};

/*
 * Loads a program for one place in a file, and attaches it. On a hit the program stores the cookie
 * in maps->cookies and jumps to the program at `index` of maps->programs, which must be there.
 * pid: -1 for all processes. ref_ctr: file offset of a USDT's semaphore, 0: none.
 * Returns the perf event; closing it removes the probe. Or -errno.
 */
int site_program__attach(const struct site_program_maps *maps, uint32_t index, pid_t pid,
			 const char *path, uint64_t offset, uint64_t cookie, uint64_t ref_ctr);
/* Attaches a loaded program to one place in a file. Returns the perf event, as
 * site_program__attach() does, or -errno. */
int site_program__probe(int program, pid_t pid, const char *path, uint64_t offset,
			uint64_t ref_ctr);
