/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The parts of host memory, for rules that need them. `dump --device host` reads one process at a
 * time. It is a separate process: a reading takes up to seconds, and its failure does not end
 * `watch`. The control group's use is a number in a file, so each check reads it here.
 */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "inspect/proc.h"
#include "record/cond.h"
#include "watch/targets/spawn.h"
#include "watch/watch.h"

#define EVERY UINT64_C(10000000000)	/* ns between two readings of a process, at least */
#define SHARE 20			/* readings take at most 1/20 of the time */
#define LONGEST UINT64_C(30000000000)	/* time limit of a reading, ns */
#define KILL_AFTER UINT64_C(5000000000) /* delay between SIGINT and SIGKILL, in ns */
#define NICE 10				/* nice value of the reading process */

/* The reader of host memory, and the reading under way, if there is one. */
struct watch_host {
	struct watch *w;
	struct subprocess process; /* `dump`; its pid is 0 without a reading under way */
	int out;		   /* memfd with the output of dump; -1: none */
	pid_t pid;		   /* the watched process that dump reads */
	uint64_t started;	   /* start of that process, as in struct watch_target */
	uint64_t begin, deadline;  /* the reading's begin and latest end, CLOCK_MONOTONIC, ns */
	bool sigint_sent;	   /* to dump, because its time was over */
};

struct watch_host *watch_host__new(struct watch *w)
{
	struct watch_host *h = calloc(1, sizeof(*h));

	if (h)
		*h = (struct watch_host){ .w = w, .out = -1 };
	return h;
}

static void close_output(struct watch_host *h)
{
	if (h->out >= 0)
		close(h->out);
	h->out = -1;
}

void watch_host__free(struct watch_host *h)
{
	int status;

	if (!h)
		return;
	subprocess__signal(&h->process, SIGINT);
	if (h->process.pid && !subprocess__wait(&h->process, KILL_AFTER / 1000000, &status))
		subprocess__kill(&h->process);
	close_output(h);
	free(h);
}

/* ---- readings ---- */

static void begin_reading(struct watch_host *h, struct watch_target *t, uint64_t now)
{
	char pid[16];
	const char *const argv[] = {
		"dump", "-p", pid, "--device", "host", "--format", "json", NULL
	};

	t->host.next = now + EVERY;
	h->out = memfd_create("host", MFD_CLOEXEC);
	if (h->out < 0)
		return;
	snprintf(pid, sizeof(pid), "%d", (int)t->pid);
	if (watch_spawn__self(argv, h->out, 0, NICE, &h->process)) {
		close_output(h);
		return;
	}
	h->pid = t->pid;
	h->started = t->started;
	h->begin = now;
	h->deadline = now + LONGEST;
	h->sigint_sent = false;
}

/* The process whose reading is due for the longest time; NULL: none is due. */
static struct watch_target *next_due(const struct watch *w, uint64_t now)
{
	struct watch_target *earliest = NULL;

	for (size_t i = 0; i < w->n_targets; i++) {
		struct watch_target *t = w->targets[i];

		if (t->host.next <= now && (!earliest || t->host.next < earliest->host.next))
			earliest = t;
	}
	return earliest;
}

/* The watched process that dump has read. NULL: it is not watched any more. */
static struct watch_target *find_target(const struct watch_host *h)
{
	for (size_t i = 0; i < h->w->n_targets; i++)
		if (h->w->targets[i]->pid == h->pid && h->w->targets[i]->started == h->started)
			return h->w->targets[i];
	return NULL;
}

static bool read_part(const json_t *parts, unsigned part, struct host_figure *ret)
{
	const json_t *o = json_object_get(parts, host_part__name(part));
	const json_t *bytes = json_object_get(o, "bytes");
	const json_t *second = json_object_get(o, "second");

	if (!json_is_integer(bytes) || json_integer_value(bytes) < 0)
		return false;
	ret->bytes = (uint64_t)json_integer_value(bytes);
	ret->known = json_is_true(json_object_get(o, "known"));
	ret->has_second = json_is_integer(second) && json_integer_value(second) >= 0;
	ret->second = ret->has_second ? (uint64_t)json_integer_value(second) : 0;
	return true;
}

/* Reads the output of dump. False: a part that counts towards RSS is missing. */
static bool read_sheet(int fd, struct host_sheet *ret)
{
	struct host_sheet s = { 0 };
	json_t *doc = watch_spawn__document(fd), *parts;
	bool complete = true;

	parts = json_object_get(json_object_get(doc, "host"), "parts");
	for (unsigned i = 1; i < HOST_PART_NR; i++)
		if (host_part__name(i) && !read_part(parts, i, &s.part[i]))
			complete &= !host_part__adds_up(i); /* optional if it does not count */
	json_decref(doc);
	if (complete)
		*ret = s;
	return complete;
}

static void take_reading(struct watch_host *h, bool ok, uint64_t now)
{
	struct watch_target *t = find_target(h);
	uint64_t pause = (now - h->begin) * SHARE;

	if (t) {
		t->host.known = ok && read_sheet(h->out, &t->host.sheet);
		t->host.failed = !t->host.known;
		t->host.next = now + (pause > EVERY ? pause : EVERY);
	}
	close_output(h);
}

void watch_host__pump(struct watch_host *h, uint64_t now)
{
	struct watch_target *t;
	int status;

	if (h->process.pid) {
		if (subprocess__ended(&h->process, &status)) {
			take_reading(h, !status, now);
		} else if (now >= h->deadline) {
			subprocess__signal(&h->process, h->sigint_sent ? SIGKILL : SIGINT);
			h->sigint_sent = true;
			h->deadline = now + KILL_AFTER;
		}
		return;
	}
	t = next_due(h->w, now);
	if (t)
		begin_reading(h, t, now);
}

/* ---- values ---- */

/* Sets the use and the limit of the control group that limits the process, if they can be read. */
static void put_group(const struct watch_target *t, struct cond_values *v)
{
	struct memcg_figures f;
	struct memcg m;

	/* If the process is alive now, the PID was its own when its group was read. */
	if (memcg__find(t->pid, &m) || !proc__alive(t->proc))
		return;
	memcg__limiting(&m, &m); /* m stays its own group if none has a limit */
	memcg__read(&m, &f);
	if (f.usage != MEMCG_NONE)
		host_figures__put_group(v, f.usage, f.limit);
}

void watch_host__values(const struct watch *w, const struct watch_target *t, struct cond_values *v)
{
	const char *why = "the host memory was not read yet";

	v->v[COND_RSS].whole = w->ram;
	if (!w->wants_host && !w->wants_cgroup)
		return;
	if (t->host.failed)
		why = "the host memory of the process cannot be read";
	host_figures__put(v, t->host.known ? &t->host.sheet : NULL, w->ram, why);
	v->v[COND_HOST_CGROUP] = (struct cond_value){ 0 };
	v->why[COND_HOST_CGROUP] = "its memory control group is not visible here";
	if (w->wants_cgroup)
		put_group(t, v);
}
