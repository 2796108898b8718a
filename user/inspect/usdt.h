/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Static probes (SystemTap notes): their addresses in a file, their arguments, and the semaphore
 * that enables them. The notes are hostile. */
#include <stddef.h>
#include <stdint.h>

#include "inspect/elf.h"
#include "memtrace.h"

struct usdt {
	/* Virtual addresses in the file; semaphore 0: none. */
	uint64_t pc, base, semaphore;
	char args[256]; /* text in the note: "-8@%rax -1@%dl" */
};

/* Finds the probes of this name in a .note.stapsdt section and stores the first max of them in v.
 * Returns the number stored. Stops at a malformed note. */
size_t usdt__notes(const uint8_t *notes, size_t len, const char *provider, const char *name,
		   struct usdt *v, size_t max);

/* Parses the first n arguments, for x86-64: registers, and memory at a register with optional
 * offset. 0; -EINVAL: fewer, or another form. */
int usdt__args(const char *text, struct mt_usdt_arg *v, size_t n);

struct usdt_sites {
	size_t n;
	struct {
		uint64_t offset, semaphore; /* file offsets */
	} site[MT_ASKED_SITES];
	struct mt_usdt_args args[MT_ASKED_SITES];
};

/*
 * Finds the sites of a probe with n arguments in a file. 0, or -errno. -ENOENT: no such
 * probe. -EINVAL: unknown form of arguments, an instruction that cannot be probed, or more than
 * MT_ASKED_SITES sites.
 */
int usdt__find(const struct elf *e, const char *provider, const char *name, size_t n,
	       struct usdt_sites *ret);
