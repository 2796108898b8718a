/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Memory of a Python process, read in a "walk". Data that may change (dicts, instances) is read
 * each time. Constant data (strings, type names) may come from pages cached in the same walk.
 * A system call costs the same for 8 bytes as for a page, so paged walks over many objects are ten
 * times faster. In a snapshot, all data comes from pages, and changeable data is noted.
 * pymem__holds() reads the noted data again: if it is equal, it was constant during the snapshot.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/pylayout.h"

struct proc;
struct python;
struct pypages;
struct pynote;

struct pymem {
	const struct python *py;
	const struct proc *proc;
	const struct pylayout *l;
	struct pypages *pages; /* NULL until needed, and without paging */
	bool paging;
	bool snapshot;
	bool unchecked; /* a snapshot without notes */
	bool overflow;	/* too many notes: the snapshot cannot be checked */
	struct pynote *notes;
	size_t nnotes, notes_cap;
};

/* Borrows py. paging: cache pages, for walks over many objects. */
void pymem__init(struct pymem *m, const struct python *py, bool paging);
void pymem__fini(struct pymem *m);
/* Starts another walk: drops everything cached. */
void pymem__forget(struct pymem *m);
/* Starts a walk as a snapshot; without paging, as an ordinary walk. */
void pymem__begin_snapshot(struct pymem *m);
/* Between these two calls, changeable data may come from pages of the walk and is not noted. The
 * reader checks by other means what it found. Without paging they have no effect. */
void pymem__begin_unchecked(struct pymem *m);
void pymem__end_unchecked(struct pymem *m);
/* Ends a snapshot. True: all data is still as it was read. */
bool pymem__holds(struct pymem *m);

/* Each reads all or nothing: 0, -EFAULT, -ESRCH, -EPERM. -EFAULT also if the address range wraps
 * around. _old: constant data, which may come from cached pages. */
int pymem__read(struct pymem *m, uint64_t addr, void *buf, size_t len);
int pymem__read_old(struct pymem *m, uint64_t addr, void *buf, size_t len);
int pymem__u64(struct pymem *m, uint64_t addr, uint64_t *ret);
int pymem__old_u64(struct pymem *m, uint64_t addr, uint64_t *ret);
/* Reads the current memory from addr up to len bytes or the end of the page. Number of bytes, or
 * -errno. */
int pymem__read_page(struct pymem *m, uint64_t addr, void *buf, size_t len);
