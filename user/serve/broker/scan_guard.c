/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/scan_guard.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/subprocess.h"
#include "capture/pick.h"

#define SECOND UINT64_C(1000000000)
#define STUCK_AFTER (10 * SECOND)
#define BUSY_MOST (60 * SECOND) /* for one that runs, on a busy machine */
#define LEFT_OUT_FOR (600 * SECOND)
#define LEFT_OUT 256
#define TIMES_OF_OWNER 2 /* processes of an owner that had to be left out */

struct left_out {
	pid_t pid;
	char owner[OWNER_NAME];
	uint64_t until; /* CLOCK_MONOTONIC, ns */
};

struct scan_guard {
	_Atomic uint64_t since; /* of the present read, or of the last one's end */
	_Atomic pid_t pid;
	char owner[OWNER_NAME];
	/* The broker's. */
	struct left_out v[LEFT_OUT];
	size_t next; /* the oldest entry */
};

struct scan_guard *scan_guard__new(void)
{
	void *g = mmap(NULL, sizeof(struct scan_guard), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return g == MAP_FAILED ? NULL : g;
}

void scan_guard__free(struct scan_guard *g)
{
	if (g)
		munmap(g, sizeof(*g));
}

static bool is_left_out(const struct scan_guard *g, pid_t pid, const char *owner)
{
	uint64_t now = clock__monotonic();
	unsigned times = 0;

	for (size_t i = 0; i < LEFT_OUT; i++) {
		const struct left_out *l = &g->v[i];

		if (l->until <= now)
			continue;
		if (l->pid == pid)
			return true;
		times += *owner && !strncmp(l->owner, owner, sizeof(l->owner));
	}
	return times >= TIMES_OF_OWNER;
}

bool scan_guard__enter(struct scan_guard *g, pid_t pid, const char *owner)
{
	if (!g)
		return true;
	if (pid && is_left_out(g, pid, owner))
		return false;
	snprintf(g->owner, sizeof(g->owner), "%s", pid ? owner : "");
	atomic_store(&g->pid, pid);
	atomic_store(&g->since, clock__monotonic());
	return true;
}

void scan_guard__begin(struct scan_guard *g)
{
	scan_guard__enter(g, 0, "");
}

bool scan_guard__stuck(struct scan_guard *g, const struct subprocess *looks, pid_t *pid)
{
	uint64_t since = atomic_load(&g->since), now = clock__monotonic();

	*pid = atomic_load(&g->pid);
	if (now <= since || now - since < STUCK_AFTER)
		return false;
	return now - since >= BUSY_MOST || !subprocess__computes(looks);
}

void scan_guard__leave_out(struct scan_guard *g)
{
	struct left_out *l = &g->v[g->next++ % LEFT_OUT];

	*l = (struct left_out){ .pid = atomic_load(&g->pid),
				.until = clock__monotonic() + LEFT_OUT_FOR };
	snprintf(l->owner, sizeof(l->owner), "%.*s", (int)sizeof(g->owner) - 1, g->owner);
}
