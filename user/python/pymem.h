/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PYTHON_PYMEM_H
#define MT_PYTHON_PYMEM_H
/*
 * Reading a Python process's memory for one look at it (a "walk"). Two kinds of reads: what can
 * change while the program runs (dicts, instances), and what cannot (strings, types' names), which
 * may come from pages that were read earlier in the same walk. Internal to pyobj, pydict and
 * nntree.
 *
 * A system call costs the same for 8 bytes as for a page, so that a walk over many objects is ten
 * times faster from pages. For that there are snapshots: everything comes from pages, what can
 * change is noted down, and pymem__holds() reads it all again at the end. What holds was so all the
 * while in between.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "python/pylayout.h"

struct proc;
struct python;
struct pypages;
struct pynote;

struct pymem {
	const struct python *py;
	const struct proc *proc;
	const struct pylayout *l;
	struct pypages *pages; /* NULL until needed, and where paging is off */
	bool paging;
	bool snapshot;
	bool overflow; /* more than can be noted: the snapshot cannot be checked */
	struct pynote *notes;
	size_t nnotes, notes_cap;
};

/* Borrows py. paging: worth it for a walk over many objects, not for one string. */
void pymem__init(struct pymem *m, const struct python *py, bool paging);
void pymem__fini(struct pymem *m);
/* Begins another walk: nothing read before is used again. */
void pymem__forget(struct pymem *m);
/* Begins a walk that is a snapshot; without paging it is an ordinary one. */
void pymem__begin_snapshot(struct pymem *m);
/* Ends a snapshot: true if all that was read still is as it was read. */
bool pymem__holds(struct pymem *m);

/* Both all or nothing: 0, -EFAULT, -ESRCH, -EPERM. An address range that wraps around is -EFAULT. */
int pymem__read(struct pymem *m, uint64_t addr, void *buf, size_t len);
int pymem__read_old(struct pymem *m, uint64_t addr, void *buf, size_t len);
int pymem__u64(struct pymem *m, uint64_t addr, uint64_t *ret);
int pymem__old_u64(struct pymem *m, uint64_t addr, uint64_t *ret);
/* Fills buf from addr up to len bytes or the end of addr's page, as it is now. Bytes or -errno. */
int pymem__read_page(struct pymem *m, uint64_t addr, void *buf, size_t len);

#endif
