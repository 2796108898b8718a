/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Perf uprobes that tell their program a number, for kernels without attach cookies. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Maps of bpf/old.bpf.h. Descriptors, borrowed. */
struct site_program_maps {
	int cookies;  /* site_cookies */
	int programs; /* site_programs */
};

/* A place for a perf uprobe. */
struct uprobe_place {
	const char *path;
	uint64_t offset;
	uint64_t ref_ctr; /* file offset of a USDT's semaphore, 0: none */
	uint64_t cookie;  /* for the program; 0: none */
	bool returns;	  /* probe the return of the function */
};

/*
 * Loads a program for one place in a file, and attaches it. On a hit the program stores the cookie
 * in maps->cookies and jumps to the program at `index` of maps->programs, which must be there.
 * pid: -1 for all processes. Returns a descriptor; closing it removes the probe. Or -errno.
 */
int site_program__attach(const struct site_program_maps *maps, uint32_t index, pid_t pid,
			 const struct uprobe_place *at);
/* Attaches a loaded program to one place in a file. Cookies need Linux 5.15. Returns a descriptor,
 * as site_program__attach() does, or -errno. */
int site_program__probe(int program, pid_t pid, const struct uprobe_place *at);
