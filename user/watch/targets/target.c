/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Figures of a process read from outside: allocator statistics, driver-reported use, resident
 * memory and steps. */
#include "watch/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/io.h"
#include "base/text.h"
#include "capture/session.h"
#include "inspect/gpu_holders.h"
#include "inspect/cuda.h"
#include "inspect/elf.h"
#include "inspect/proc.h"

#define LOOK_EVERY UINT64_C(2000000000) /* interval of searches for a missing allocator, in ns */
/* interval of requests to the driver that no rule needs, in ns */
#define USED_EVERY UINT64_C(5000000000)
#define STEPS_RING (256u << 10) /* ring size in bytes, enough for two records per step */

#define ENVIRON_MOST (1 << 18) /* bytes of a process's environment that are read */

/* The initial environment of a process: NUL-terminated strings. */
struct initial_env {
	char *text;
	size_t size; /* bytes of text */
};

/* For rank_env__find(): 0, or nonzero if the variable is not set or does not fit. */
static int get_variable(void *ctx, const char *name, char *buf, size_t size)
{
	const struct initial_env *env = ctx;
	size_t len = strlen(name);

	for (const char *at = env->text; at < env->text + env->size; at += strlen(at) + 1) {
		if (strncmp(at, name, len) != 0 || at[len] != '=')
			continue;
		return snprintf(buf, size, "%s", at + len + 1) >= (int)size;
	}
	return -ENOENT;
}

/* Sets the ID of the batch job that the process is of, by its control group or its environment.
 * Ray does not schedule the cluster, so its jobs do not count. */
static void set_hpc_job(struct watch_target *t, const struct initial_env *e)
{
	struct holder_process *p = calloc(1, sizeof(*p));
	const char *id;

	if (!p)
		return;
	holder_process__set_job(p, t->cgroup.path, e->text ? e->text : "", e->size);
	id = strchr(p->job, ' '); /* "slurm 123", or "slurm 123,..." */
	if (id && !text__starts(p->job, "ray "))
		snprintf(t->hpc_job, sizeof(t->hpc_job), "%.*s", (int)strcspn(id + 1, ","), id + 1);
	free(p);
}

/* Sets rank and job of the process, from its environment. */
static void read_environment(struct watch_target *t)
{
	struct initial_env e = { .text = calloc(1, ENVIRON_MOST) };
	struct rank_env r = { 0 };
	ssize_t got;

	got = e.text ? io__text_of_process(t->pid, "environ", e.text, ENVIRON_MOST) : 0;
	if (got > 0) {
		e.size = (size_t)got;
		rank_env__find(get_variable, &e, &r);
	}
	t->rank = r.has_rank ? (int64_t)r.rank : -1;
	set_hpc_job(t, &e);
	free(e.text);
}

struct watch_target *watch_target__new(const struct pick_process *p, bool files_only, int *err)
{
	struct watch_target *t = calloc(1, sizeof(*t));

	*err = -ENOMEM;
	if (!t)
		return NULL;
	t->image = t->statm = -1;
	t->pid = p->pid;
	t->started = p->started;
	t->cgroup = p->cgroup;
	pick_process__title(p, t->name, sizeof(t->name));
	text__clean(t->comm, sizeof(t->comm), p->comm, strlen(p->comm));
	t->proc = proc__open(p->pid);
	if (!t->proc) {
		*err = -errno;
		goto fail;
	}
	if (files_only)
		proc__set_files_only(t->proc);
	t->statm = proc__open_own(t->proc, "statm");
	if (t->statm < 0) {
		*err = t->statm;
		goto fail;
	}
	*err = 0;
	t->image = proc__image(t->proc);
	read_environment(t);
	return t;
fail:
	watch_target__free(t);
	return NULL;
}

void watch_target__free(struct watch_target *t)
{
	if (!t)
		return;
	if (t->attached)
		session__finish(t->session, NULL, "signal");
	session__free(t->session);
	nvml__free(t->smi);
	cudaalloc__free(t->alloc);
	if (t->image >= 0)
		close(t->image);
	if (t->statm >= 0)
		close(t->statm);
	proc__free(t->proc);
	free(t);
}

/* Reads the sizes of address space and resident memory. 0, or -ESRCH: the process ended. */
static int read_statm(struct watch_target *t)
{
	static long page;
	char buf[128];
	ssize_t n = pread(t->statm, buf, sizeof(buf) - 1, 0);
	unsigned long long pages, resident;

	if (n <= 0)
		return -ESRCH;
	buf[n] = '\0';
	if (sscanf(buf, "%llu %llu", &pages, &resident) != 2 || !pages)
		return -ESRCH;
	page = page ? page : sysconf(_SC_PAGESIZE);
	t->pages = pages;
	t->rss = resident * (uint64_t)page;
	return 0;
}

/* ---- allocator and driver ---- */

/* Address, in the process, of the figures of the dry run's CUDA library; 0: it is not loaded. */
static uint64_t find_dry_run_usage(const struct watch_target *t, const struct maps *m)
{
	static const char name[] = "/libcuda.so";

	for (size_t i = 0; i < m->n; i++) {
		const char *base = strrchr(m->v[i].path, '/');
		struct cuda_file f;

		if (!m->v[i].x || !base || strncmp(base, name, strlen(name)) != 0 ||
		    cuda__look(t->proc, m, &m->v[i], &f))
			continue;
		elf__free(f.elf);
		if (f.usage)
			return f.usage;
	}
	return 0;
}

/* Searches for the allocator: it may be imported late, and can be read only after its first use. */
static void find_allocator(struct watch_target *t, uint64_t now)
{
	const char *why = "";
	struct maps m;
	int err;

	if (now < t->next_look || (t->alloc && cudaalloc__calibrated(t->alloc)))
		return;
	t->next_look = now + LOOK_EVERY;
	if (!t->alloc) {
		/* Without a new mapping, there is no new allocator. */
		if (t->looked_pages == t->pages || proc__maps(t->proc, &m))
			return;
		t->looked_pages = t->pages;
		t->alloc = cudaalloc__open(t->proc, &m, &why);
		if (t->alloc)
			t->smi = nvml__open(t->proc, find_dry_run_usage(t, &m));
		else
			snprintf(t->alloc_why, sizeof(t->alloc_why), "%s", why);
		maps__free(&m);
	}
	if (!t->alloc)
		return;
	cudaalloc__update_backend(t->alloc);
	err = cudaalloc__calibrate(t->alloc);
	t->alloc_why[0] = '\0';
	if (err)
		snprintf(t->alloc_why, sizeof(t->alloc_why), "%s",
			 err == -EAGAIN ? "the process has not used CUDA yet"
					: cudaalloc__why(t->alloc));
}

/* Reads the allocator's figures of each device. If that fails, alloc_why says why. */
static void read_allocator(struct watch_target *t)
{
	struct cuda_figures figures[WATCH_DEVICES];
	int n = cudaalloc__figures(t->alloc, figures, WATCH_DEVICES);

	if (n < 0) {
		snprintf(t->alloc_why, sizeof(t->alloc_why), "cannot read the allocator: %s",
			 strerror(-n));
		if (n == -ESTALE) /* the tables have moved: find them again */
			cudaalloc__calibrate(t->alloc);
		return;
	}
	t->alloc_why[0] = '\0';
	for (int i = 0; i < n && i < WATCH_DEVICES; i++) {
		struct watch_device *d = &t->devices[i];

		bool used = figures[i].peak_reserved || figures[i].reserved;

		if (used && (size_t)i >= t->n_devices)
			t->n_devices = (size_t)i + 1;

		d->now = figures[i];
		if (!figures[i].counts_known)
			continue;
		if (!d->counts_known && !t->reported) {
			/* First look: rules count errors from here on. */
			for (size_t k = 0; k < WATCH_RULES; k++) {
				d->state[k].ooms = figures[i].ooms;
				d->state[k].retries = figures[i].retries;
			}
		}
		d->counts_known = true;
		d->ooms = figures[i].ooms;
		d->retries = figures[i].retries;
	}
}

/* Takes the driver's figures of each device. A figure that is not in f is not known from now on. */
static void set_driver_figures(struct watch_target *t, const struct nvml_figures *f)
{
	const char *name;

	_Static_assert(WATCH_DEVICES <= NVML_DEVICES_MAX,
		       "each device has its place in the figures");
	for (size_t i = 0; i < t->n_devices && i < WATCH_DEVICES; i++) {
		struct watch_device *d = &t->devices[i];

		d->used_known = i < f->n && f->known[i];
		d->used = d->used_known ? f->used[i] : 0;
		d->left_known = i < f->n && f->has_free[i];
		d->left = d->left_known ? f->free[i] : 0;
		if (!d->total && !nvml__device(t->smi, (unsigned)i, &name, &d->total))
			d->total = 0;
	}
}

/* Asks the driver every USED_EVERY, or at each look if a rule needs the figures (wanted), and takes
 * its answer when it has come. */
static void read_driver(struct watch_target *t, uint64_t now, bool wanted)
{
	struct nvml_figures f;
	uint64_t in_use = 0;

	if (!t->smi)
		return;
	if (now >= t->next_used || (wanted && !t->used_asked)) {
		t->next_used = now + USED_EVERY;
		nvml__refresh(t->smi);
		for (size_t i = 0; i < t->n_devices; i++)
			in_use |= t->devices[i].now.reserved ? UINT64_C(1) << i : 0;
		nvml__set_process(t->smi, cudaalloc__devices(t->alloc), in_use);
		/* The last request was not answered, so its figures are too old. */
		if (t->used_asked)
			set_driver_figures(t, &(struct nvml_figures){ .n = 0 });
		t->used_asked = nvml__ask(t->smi);
	}
	if (!t->used_asked || !nvml__answered(t->smi, t->used_asked, &f))
		return;
	t->used_asked = 0;
	set_driver_figures(t, &f);
}

/* ---- steps ---- */

struct step_sink {
	struct sink sink; /* must be the first member: callbacks cast it to struct step_sink */
	struct watch_target *t;
};

/* Sink of a session that records only steps. */
static int count_step(struct sink *s, const struct event *e)
{
	struct watch_target *t = ((struct step_sink *)s)->t;

	if (e->kind != EVENT_STEP)
		return 0;
	if (t->steps && e->time > t->last_step)
		t->step_time = e->time - t->last_step;
	t->steps++;
	t->last_step = e->time;
	return 0;
}

/* Ends the counting of steps for good. */
static void give_up_steps(struct watch_target *t, const char *why)
{
	snprintf(t->steps_why, sizeof(t->steps_why), "%.255s", why);
	session__free(t->session);
	t->session = NULL;
	t->attached = false;
	t->steps_failed = true;
}

/* Attaches the probe of steps if that is not done yet, and counts the steps since the last tick. */
static void read_steps(struct watch_target *t)
{
	struct session_opts opts = { .steps_only = true, .ring_bytes = STEPS_RING };
	struct step_sink sink = { .sink = { .event = count_step }, .t = t };
	uint64_t steps_before, last_before;
	struct failure f;
	int err;

	if (t->steps_failed)
		return;
	if (!t->session) {
		t->session = session__new(t->pid, &opts, &f);
		if (!t->session) {
			give_up_steps(t, f.text);
			return;
		}
	}
	if (!t->attached) {
		err = session__attach(t->session, &f);
		if (err == -EAGAIN)
			return;
		if (err) {
			give_up_steps(t, f.text);
			return;
		}
		t->attached = true;
	}
	steps_before = t->steps;
	last_before = t->last_step;
	err = session__pump(t->session, &sink.sink);
	t->steps_at_once = t->steps - steps_before;
	t->pace = steps_before && t->steps_at_once ? (t->last_step - last_before) / t->steps_at_once
						   : 0;
	if (err)
		give_up_steps(t, strerror(-err));
}

/* ---- reading and values ---- */

int watch_target__look(struct watch_target *t, uint64_t now, bool steps, bool used)
{
	if (!proc__alive(t->proc) || read_statm(t))
		return -ESRCH;
	if (t->image >= 0 && proc__image_gone(t->image))
		return -ESTALE;
	find_allocator(t, now);
	/* First, because attaching takes time and the figures must belong to the current step. */
	if (steps)
		read_steps(t);
	if (t->alloc && cudaalloc__calibrated(t->alloc)) {
		read_allocator(t);
		read_driver(t, now, used);
	}
	return 0;
}

bool watch_target__read_growth(struct watch_target *t, bool rss)
{
	if (rss && read_statm(t))
		return false;
	if (t->alloc && cudaalloc__calibrated(t->alloc))
		read_allocator(t);
	return true;
}

/* Sets a figure. full: the value of 100 %; 0: not known. why: the reason if it is not known. */
static void put_value(struct cond_values *v, enum cond_figure figure, bool known, uint64_t value,
		      uint64_t full, const char *why)
{
	v->v[figure] = (struct cond_value){ known, value, full };
	v->why[figure] = why;
}

/* Sets the values of conditions that are figures of a device. */
static void put_device(const struct watch_target *t, const struct watch_device *d,
		       struct cond_values *ret)
{
	const struct cuda_figures *figures = &d->now;
	uint64_t unused = figures->reserved > figures->allocated
				  ? figures->reserved - figures->allocated
				  : 0;
	const char *why_allocator = t->alloc_why, *why_driver = "the driver does not report it";
	bool known = !t->alloc_why[0];

	put_value(ret, COND_ALLOCATED, known, figures->allocated, d->total, why_allocator);
	put_value(ret, COND_RESERVED, known, figures->reserved, d->total, why_allocator);
	put_value(ret, COND_PEAK, known, figures->peak_allocated, d->total, why_allocator);
	put_value(ret, COND_PEAK_RESERVED, known, figures->peak_reserved, d->total, why_allocator);
	put_value(ret, COND_UNUSED, known, unused, d->total, why_allocator);
	put_value(ret, COND_FRAGMENTATION, known, unused, figures->reserved ? figures->reserved : 1,
		  why_allocator);
	put_value(ret, COND_USED, d->used_known, d->used, d->total, why_driver);
	put_value(ret, COND_FREE, d->left_known, d->left, d->total, why_driver);
	put_value(ret, COND_OTHER, d->used_known && known,
		  d->used > figures->reserved ? d->used - figures->reserved : 0, d->total,
		  why_driver);
	put_value(ret, COND_OOMS, d->counts_known, d->ooms, 0,
		  "this version of PyTorch does not count them");
	put_value(ret, COND_RETRIES, d->counts_known, d->retries, 0,
		  "this version of PyTorch does not count them");
}

/* Number of steps now, if steps since the last tick take as long as steps before it. */
static uint64_t estimate_step(const struct watch_target *t)
{
	uint64_t added;

	if (!t->attached || !t->pace)
		return t->steps;
	added = (session__now(t->session) - t->last_step) / t->pace;
	return t->steps + (added < t->steps_at_once ? added : t->steps_at_once);
}

void watch_target__values(const struct watch_target *t, const struct watch_device *d, uint64_t now,
			  struct cond_values *ret)
{
	static const enum cond_figure of_device[] = {
		COND_ALLOCATED,	    COND_RESERVED, COND_PEAK,	COND_PEAK_RESERVED,
		COND_UNUSED,	    COND_USED,	   COND_OTHER,	COND_FREE,
		COND_FRAGMENTATION, COND_OOMS,	   COND_RETRIES
	};
	const char *why = t->alloc_why[0] ? t->alloc_why
					  : "PyTorch's CUDA allocator is not in the process";

	*ret = (struct cond_values){ .time = now,
				     .sampled = true,
				     .series = d ? d->series : t->self.series };
	ret->has_steps = t->attached;
	ret->step = estimate_step(t);
	put_value(ret, COND_RSS, /*known=*/true, t->rss, 0, "");
	put_value(ret, COND_STEP_TIME, t->step_time, t->step_time, 0,
		  t->steps_why[0] ? t->steps_why : "no complete step yet");
	put_value(ret, COND_LOST, /*known=*/false, 0, 0, "it needs a recording");
	put_value(ret, COND_LEAKS, /*known=*/false, 0, 0, "it needs a recording");
	if (d) {
		put_device(t, d, ret);
		return;
	}
	for (size_t i = 0; i < sizeof(of_device) / sizeof(*of_device); i++)
		put_value(ret, of_device[i], /*known=*/false, 0, 0, why);
}

bool watch_device__figure(const struct watch_target *t, const struct watch_device *d,
			  enum device_figure which, uint64_t *ret)
{
	bool known = !t->alloc_why[0];

	switch (which) {
	case FIG_ALLOCATED:
		*ret = d->now.allocated;
		return known;
	case FIG_RESERVED:
		*ret = d->now.reserved;
		return known;
	case FIG_PEAK_ALLOCATED:
		*ret = d->now.peak_allocated;
		return known;
	case FIG_TOTAL:
		*ret = d->total;
		return d->total;
	case FIG_USED:
		*ret = d->used;
		return d->used_known;
	case FIG_FREE:
		*ret = d->left;
		return d->left_known;
	case FIG_OOMS:
		*ret = d->ooms;
		return d->counts_known;
	case FIG_RETRIES:
		*ret = d->retries;
		return d->counts_known;
	case FIG_NR:
		break;
	}
	return false;
}
