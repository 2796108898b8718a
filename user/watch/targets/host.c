/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The host memory of watched processes, for rules that need it. One process is read at a time, in a
 * child process: a reading takes up to seconds, and its failure does not end `watch`. The control
 * group's use is a number in a file, so each check reads it here.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "inspect/proc.h"
#include "inspect/python.h"
#include "record/cond.h"
#include "report/dump.h"
#include "watch/watch.h"

#define EVERY UINT64_C(10000000000) /* ns between two readings of a process, without growth rules */
#define LONGEST_EVERY UINT64_C(60000000000) /* the same with growth rules, at most */
#define WINDOW_PART 64			    /* readings in the window of a growth rule */
#define BUDGET 50   /* readings of all processes take at most 1/50 of a CPU's time */
#define RSS_PART 16 /* change of RSS that a rule about RSS has explained: 1/16 */
#define RSS_LEAST (UINT64_C(1) << 20)	      /* and the least such change, bytes */
#define EXPLAIN_WINDOW UINT64_C(600000000000) /* ns, for rules without a window of their own */
#define LONGEST UINT64_C(30000000000)	      /* time limit of a reading, ns */
#define KILL_AFTER UINT64_C(5000000000)	      /* delay between SIGINT and SIGKILL, in ns */

/* The reader of host memory, and the reading under way, if there is one. */
struct watch_host {
	struct watch *w;
	/* the child that reads; its pid is 0 without a reading under way */
	struct subprocess process;
	int out;	  /* memfd for its struct reading; -1: none */
	pid_t pid;	  /* the watched process that it reads */
	uint64_t started; /* start of that process, as in struct watch_target */
	struct dump_host_opts what;
	uint64_t deadline; /* the reading's latest end, CLOCK_MONOTONIC, ns */
	uint64_t next;	   /* earliest begin of the next reading, CLOCK_MONOTONIC, ns */
	bool sigint_sent;  /* to the child, because its time was over */
};

/* What the child hands over. */
struct reading {
	struct host_sheet sheet;
	uint64_t cpu;  /* CPU time that it took, ns */
	char why[160]; /* reason why memory in use is not known; "": it is */
};

/* What a child reads, and where to. */
struct job {
	const struct watch_target *t;
	const struct dump_host_opts *what;
	int out;
};

struct watch_host *watch_host__new(struct watch *w)
{
	struct watch_host *h = calloc(1, sizeof(*h));

	if (h)
		*h = (struct watch_host){ .w = w, .out = -1 };
	return h;
}

/* Closes the memfd of the last reading. */
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

/* ---- in the child ---- */

/* CPU time of this process, ns. */
static uint64_t own_cpu_time(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u))
		return 0;
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * UINT64_C(1000000000) +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

/* An allocator whose tables cannot be read may have any free memory: then memory in use is not
 * known. It is malloc's second figure (see struct host_figure). */
static void check_allocators(const struct host_ledger *l, struct reading *r)
{
	struct host_figure *malloc = &r->sheet.part[HOST_MALLOC];
	char name[128];

	for (size_t i = 0; i < l->allocators && i < HOST_ALLOCATORS; i++) {
		const struct host_allocator *a = &l->allocator[i];

		if (a->known)
			continue;
		malloc->has_second = false;
		snprintf(r->why, sizeof(r->why), "the tables of %s cannot be read",
			 text__clean(name, sizeof(name), a->file,
				     strnlen(a->file, sizeof(a->file))));
	}
	if (!malloc->has_second && !*r->why)
		snprintf(r->why, sizeof(r->why), "%s",
			 malloc->known ? "malloc's lists of free memory cannot be read"
				       : "the process has no allocator that memtrace-bpf reads");
}

/* Reads the process, and writes a struct reading. Returns an exit code. */
static int read_in_child(void *ctx)
{
	const struct job *job = ctx;
	struct dump_host_process process;
	struct reading r = { 0 };
	const char *why = "";
	struct python *py;
	struct maps m;
	int err = proc__maps(job->t->proc, &m);

	if (err)
		return EXIT_FAILURE;
	py = python__open(job->t->proc, &m, &why);
	err = dump_host__read(job->t->proc, py, job->what, &process);
	python__free(py);
	maps__free(&m);
	if (err)
		return EXIT_FAILURE;
	r.sheet = process.ledger.sheet;
	if (!job->what->brief)
		check_allocators(&process.ledger, &r);
	r.cpu = own_cpu_time();
	return write(job->out, &r, sizeof(r)) == sizeof(r) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- readings ---- */

static uint64_t larger_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t smaller_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Interval of readings for a figure of a rule, in ns. window: that of a growth figure, ns;
 * otherwise 0. */
static uint64_t reading_interval(enum cond_figure f, uint64_t window)
{
	bool is_of_moment = !window && f < COND_GROWTH;

	return is_of_moment ? EVERY : window / WINDOW_PART;
}

void watch_host__need(struct watch *w, const struct cond *c)
{
	static const enum cond_figure of_free[] = { COND_HOST_LIVE, COND_MALLOC_FREE };
	uint64_t every = LONGEST_EVERY; /* shortest interval that a figure of c needs, ns */

	w->wants_cgroup |= cond__needs(c, COND_HOST_CGROUP);
	w->host_needs.tensors |= cond__needs(c, COND_HOST_TENSORS);
	w->host_needs.explains |= cond__needs(c, COND_RSS);
	for (size_t i = 0; i < sizeof(of_free) / sizeof(*of_free); i++)
		w->host_needs.free |= cond__needs(c, of_free[i]);
	for (int f = 0; f < COND_NR; f++) {
		uint64_t window;

		if (!cond__needs(c, f) ||
		    !(cond__reads_host(f) || cond__base_figure(f) == COND_RSS))
			continue;
		w->host_needs.parts |= cond__reads_host(f);
		window = cond__window(c, f);
		w->host_needs.window = larger_of(w->host_needs.window,
						 larger_of(window, EXPLAIN_WINDOW));
		every = smaller_of(every, reading_interval(f, window));
	}
	if (!w->host_needs.every || every < w->host_needs.every)
		w->host_needs.every = every;
}

/* True if RSS has changed so much since the last whole reading that a rule about it needs another. */
static bool has_changed(const struct watch_target *t)
{
	uint64_t change = t->rss > t->host.rss ? t->rss - t->host.rss : t->host.rss - t->rss;

	return change >= RSS_LEAST && change >= t->host.rss / RSS_PART;
}

/* True if a process is to be read now. */
static bool is_due(const struct watch *w, const struct watch_target *t, uint64_t now)
{
	return t->host.next <= now && (w->host_needs.parts || has_changed(t));
}

/* Starts the child that reads a process, without tables of free memory if no rule needs them. If
 * that fails, the next one comes after the interval. */
static void begin_reading(struct watch_host *h, struct watch_target *t, uint64_t now)
{
	const struct watch *w = h->w;
	struct job job = { t, &h->what, -1 };
	bool explains_rss = w->host_needs.explains && has_changed(t);

	h->what = (struct dump_host_opts){ .no_tensors = !w->host_needs.tensors };
	h->what.brief = !w->host_needs.free && !explains_rss;

	t->host.next = now + w->host_needs.every;
	h->out = job.out = memfd_create("host", MFD_CLOEXEC);
	if (h->out < 0)
		return;
	/* No lower priority: if the child waits for a processor while it holds the lock of the
	 * process's address space, the process's threads wait, too. */
	if (subprocess__start(&(struct subprocess_opts){ .main = read_in_child,
							 .ctx = &job,
							 .keep_all_fds = true,
							 .group = SUBPROCESS_OWN_GROUP,
							 .death_signal = SIGINT },
			      &h->process)) {
		close_output(h);
		return;
	}
	if (!h->what.brief)
		t->host.rss = t->rss;
	h->pid = t->pid;
	h->started = t->started;
	h->deadline = now + LONGEST;
	h->sigint_sent = false;
}

/* The process whose reading is due for the longest time; NULL: none is due. */
static struct watch_target *next_due(const struct watch *w, uint64_t now)
{
	struct watch_target *earliest = NULL;

	for (size_t i = 0; i < w->n_targets; i++) {
		struct watch_target *t = w->targets[i];

		if (is_due(w, t, now) && (!earliest || t->host.next < earliest->host.next))
			earliest = t;
	}
	return earliest;
}

/* The watched process that the child has read. NULL: it is not watched any more. */
static struct watch_target *find_target(const struct watch_host *h)
{
	for (size_t i = 0; i < h->w->n_targets; i++)
		if (h->w->targets[i]->pid == h->pid && h->w->targets[i]->started == h->started)
			return h->w->targets[i];
	return NULL;
}

/* Takes the result of the child, which ended well or not (ok), into the figures of its process. */
static void take_reading(struct watch_host *h, bool ok, uint64_t now)
{
	struct watch_target *t = find_target(h);
	struct reading r = { 0 };

	ok = ok && pread(h->out, &r, sizeof(r), 0) == sizeof(r);
	close_output(h);
	h->w->host_cpu += r.cpu;
	/* Without a result the time is not known: the longest that a reading may take. */
	h->next = now + (ok ? r.cpu : LONGEST / BUDGET) * BUDGET;
	if (!t)
		return;
	t->host.known = ok;
	t->host.failed = !ok;
	t->host.fresh = ok;
	if (!ok)
		return;
	t->host.sheet = r.sheet;
	if (h->what.brief)
		return;
	memcpy(t->host.why, r.why, sizeof(t->host.why));
	t->host.why[sizeof(t->host.why) - 1] = '\0';
	host_sheet__use(&r.sheet, &t->host.use);
	host_growth__add(&t->host.growth, now, &t->host.use, h->w->host_needs.window);
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
	t = now >= h->next ? next_due(h->w, now) : NULL;
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
	if (!w->host_needs.parts && !w->wants_cgroup)
		return;
	if (t->host.failed)
		why = "the host memory of the process cannot be read";
	host_figures__put(v, t->host.known ? &t->host.sheet : NULL, w->ram, why);
	v->host_repeats = !t->host.fresh;
	if (t->host.known && *t->host.why)
		v->why[COND_HOST_LIVE] = v->why[COND_MALLOC_FREE] = t->host.why;
	v->v[COND_HOST_CGROUP] = (struct cond_value){ 0 };
	v->why[COND_HOST_CGROUP] = "its memory control group is not visible here";
	if (w->wants_cgroup)
		put_group(t, v);
}

bool watch_host__explain(const struct watch_target *t, const struct cond *c, enum cond_figure f,
			 struct host_growth_verdict *v, char *buf, size_t size)
{
	uint64_t window = cond__window(c, f);

	if (cond__base_figure(f) != COND_RSS && !cond__reads_host(f))
		return false;
	/* The rule compares lows, of which the first is from before the window. */
	host_growth__judge(&t->host.growth, window ? window + window / 8 : EXPLAIN_WINDOW, v);
	host_growth__say(buf, size, v, t->host.why);
	return t->host.growth.n > 0;
}
