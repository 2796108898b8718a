/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the processes to watch by scanning /proc. */
#include "watch/watch.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "capture/pick.h"
#include "inspect/arrival.h"
#include "inspect/proc.h"

/* A value of struct seen.pages that no process has: check the process again in the next scan. */
#define LATER 1
#define SCAN_ANEW 12 /* every 12th scan checks all PIDs again, because they may be reused */

/* Result for a PID in the last scan. */
struct seen {
	pid_t pid;
	bool taken; /* the caller has accepted the process */
	/* If not taken: the pages of its address space then, since a process that grows may have
	 * loaded PyTorch; 0: it cannot match; LATER. */
	uint64_t pages;
};

struct watch_find {
	struct pick_args args;
	struct pick *pick;
	struct torch_scan *torch;
	bool (*may)(void *ctx, pid_t pid); /* NULL: all processes */
	void *may_ctx;
	struct seen *seen; /* sorted by PID */
	size_t n_seen;
	unsigned scans;
};

/* bytes: a smaller address space has no PyTorch, whose library for the CPU alone is larger */
#define TORCH_LEAST (128u << 20)

/* True for memtrace-bpf, which maps the CUDA of a dry run to read what the driver would report. */
static bool is_own(const struct proc *p)
{
	char exe[PATH_MAX];
	const char *base = strrchr(proc__exe(p, exe, sizeof(exe)), '/');

	return base && !strcmp(base, "/memtrace-bpf");
}

/* In a helper process: true for PyTorch or CUDA, and for a Python process whose files are not
 * readable. */
static bool may_use_torch(pid_t pid)
{
	struct proc *p = proc__open(pid);
	struct pick_process q;
	struct maps maps;
	bool ret = false;
	int err = p ? proc__maps(p, &maps) : -errno;

	if (!err) {
		ret = arrival__maps_c10_functions(p, &maps, /*unreadable=*/true) ||
		      (arrival__maps_cuda(&maps) && !is_own(p));
		maps__free(&maps);
	} else if ((err == -EACCES || err == -EPERM) && !pick_process__read(pid, &q)) {
		ret = pick_process__is_python(&q) &&
		      descendants__pages(pid) >= TORCH_LEAST / (uint64_t)sysconf(_SC_PAGESIZE);
		pick_process__free(&q);
	}
	proc__free(p);
	return ret;
}

/* has_torch: tells whether a process may be of interest; runs in a helper process. NULL: out of
 * memory. */
static struct watch_find *new_find(const struct pick_args *args, bool (*has_torch)(pid_t pid))
{
	struct watch_find *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->args = *args;
	f->pick = pick__new(args);
	f->torch = torch_scan__new(has_torch);
	if (!f->pick || !f->torch) {
		watch_find__free(f);
		return NULL;
	}
	return f;
}

struct watch_find *watch_find__new(const struct pick_args *args)
{
	return new_find(args, descendants__has_torch);
}

struct watch_find *watch_find__new_for_list(void)
{
	return new_find(&(struct pick_args){ .all = true }, may_use_torch);
}

size_t watch_find__unanswered(const struct watch_find *f)
{
	size_t n = 0;

	/* A process that has ended since has no pages. */
	for (size_t i = 0; i < f->n_seen; i++)
		n += f->seen[i].pages == LATER && descendants__pages(f->seen[i].pid) > 0;
	return n;
}

void watch_find__free(struct watch_find *f)
{
	if (!f)
		return;
	pick__free(f->pick);
	torch_scan__free(f->torch);
	free(f->seen);
	free(f);
}

void watch_find__guard(struct watch_find *f, bool (*may)(void *ctx, pid_t pid), void *ctx)
{
	f->may = may;
	f->may_ctx = ctx;
}

bool watch_find__open_ended(const struct watch_find *f)
{
	return f->args.n_names || f->args.all || pick__open_ended(f->pick);
}

const char *watch_find__title(struct watch_find *f, char *buf, size_t size)
{
	return pick__title(f->pick, buf, size);
}

void watch_find__ended(struct watch_find *f, pid_t pid, uint64_t now)
{
	for (size_t i = 0; i < f->n_seen; i++)
		if (f->seen[i].pid == pid)
			f->seen[i] = (struct seen){ .pid = pid };
	pick__ended(f->pick, pid, now);
}

/* Reads the process and offers it to fn if it matches. Sets s->taken to the answer of fn, or
 * s->pages to what tells the next scan whether to check again. */
static void check_process(struct watch_find *f, struct seen *s,
			  bool (*fn)(void *ctx, const struct pick_process *process), void *ctx)
{
	enum torch_scan_is torch;
	struct pick_process process;
	enum pick_is match;

	s->pages = LATER;
	if (f->may && !f->may(f->may_ctx, s->pid))
		return;
	s->pages = 0;
	if (pick_process__read(s->pid, &process))
		return;
	match = pick__is(f->pick, &process);
	torch = match == PICK_IF_TORCH ? torch_scan__ask(f->torch, &process) : TORCH_NO;
	if (match == PICK_YES || torch == TORCH_YES)
		s->taken = fn(ctx, &process);
	if (s->taken)
		pick__remember(f->pick, &process);
	else if (match != PICK_NO)
		s->pages = torch == TORCH_LATER ? LATER : descendants__pages(s->pid);
	pick_process__free(&process);
}

/* The result for this PID in the last scan, or NULL. *at: search start; PIDs are in ascending
 * order. */
static const struct seen *find_previous(const struct watch_find *f, pid_t pid, size_t *at)
{
	while (*at < f->n_seen && f->seen[*at].pid < pid)
		++*at;
	return *at < f->n_seen && f->seen[*at].pid == pid ? &f->seen[*at] : NULL;
}

ARRAY_COMPARE(by_pid, struct seen, pid)

/* Lists the PIDs to check, in ascending order. The caller frees them. NULL: out of memory. *n:
 * their number. */
static struct seen *list_pids(const struct watch_find *f, size_t *n)
{
	bool only_given = pick__only_pids(f->pick) && !pick__open_ended(f->pick);
	DIR *dir = only_given ? NULL : opendir("/proc");
	size_t cap = 256;
	struct seen *pids = calloc(cap, sizeof(*pids));
	struct dirent *entry;

	*n = 0;
	for (size_t i = 0; only_given && pids && i < f->args.n_pids; i++)
		pids[(*n)++].pid = f->args.pids[i];
	while (pids && dir && (entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		if (array__grow(&pids, &cap, *n + 1, sizeof(*pids)))
			break;
		pids[(*n)++] = (struct seen){ .pid = atoi(entry->d_name) };
	}
	if (dir)
		closedir(dir);
	if (pids)
		qsort(pids, *n, sizeof(*pids), by_pid);
	return pids;
}

void watch_find__scan(struct watch_find *f, bool (*fn)(void *ctx, const struct pick_process *p),
		      void *ctx)
{
	bool check_all = !(f->scans++ % SCAN_ANEW);
	size_t n, at = 0; /* at: for find_previous() */
	struct seen *pids = list_pids(f, &n);

	if (!pids)
		return;
	torch_scan__begin(f->torch);
	for (size_t i = 0; i < n; i++) {
		const struct seen *before = find_previous(f, pids[i].pid, &at);

		if (before && before->taken) {
			pids[i] = *before;
		} else if (before && before->pages && !check_all) { /* rejected so far */
			pids[i].pages = before->pages;
			if (descendants__pages(pids[i].pid) != before->pages)
				check_process(f, &pids[i], fn, ctx);
		} else if (!before || check_all) { /* otherwise: it cannot match */
			check_process(f, &pids[i], fn, ctx);
		}
	}
	free(f->seen);
	f->seen = pids;
	f->n_seen = n;
}
