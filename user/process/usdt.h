/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_USDT_H
#define MT_PROCESS_USDT_H
/*
 * Static probes (SystemTap's notes, which other tracers read too): where they are in a file, where
 * their arguments are there, and the counter that has to be above zero for the program to pass by.
 * The notes are as hostile as the file.
 */
#include <linux/types.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"
#include "process/proc.h"

struct usdt {
	uint64_t pc, base,
		semaphore; /* virtual addresses in the file; semaphore 0: there is none */
	char args[256];	   /* "-8@%rax -1@%dl", as noted */
};

/*
 * All probes of that name in a .note.stapsdt's bytes, the first max of them into v. Returns how
 * many went there. A note that does not hold together ends the reading.
 */
size_t usdt__notes(const uint8_t *notes, size_t len, const char *provider, const char *name,
		   struct usdt *v, size_t max);

/*
 * The first n arguments of such a text, for x86-64: registers, and memory at a register with or
 * without a distance. 0, -EINVAL: there are fewer, or one has another form.
 */
int usdt__args(const char *text, struct mt_usdt_arg *v, size_t n);

struct usdt_sites {
	char path[512]; /* as proc__map_path() has it */
	size_t n;
	struct {
		uint64_t offset, semaphore; /* in the file */
	} site[MT_ASKED_SITES];
	struct mt_usdt_args args[MT_ASKED_SITES];
};

/*
 * The sites of a mapped file's probe with n arguments. 0; -ENOENT: it has none; -EINVAL: arguments
 * in a form that is not understood, or an instruction that cannot be probed, or more than
 * MT_ASKED_SITES sites; other -errno.
 */
int usdt__find(const struct proc *p, const struct map *map, const char *provider, const char *name,
	       size_t n, struct usdt_sites *ret);

#endif
