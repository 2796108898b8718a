/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/nvml.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "inspect/proc.h"

/* ---- the dry-run library's table: tools/dryrun ---- */

#define DRYRUN_MAGIC 0x4d544452
#define DRYRUN_VERSION 3

struct dryrun_usage {
	uint32_t magic, version, n_devices, pad;
	struct { /* bytes */
		uint64_t total, used, context, pad, held;
	} device[NVML_DEVICES_MAX];
	uint64_t reports; /* see nvml__count_reports() */
};

#define NVIDIA_MAJOR 195	  /* major number of /dev/nvidia<minor> */
#define CHECK_EVERY 1000000000ULL /* ns between two checks of device nodes */
#define MISSING_MAX 3 /* answers in a row without a device in use that end all figures */

_Static_assert(NVML_DEVICES_MAX == GPUS_MAX, "a device of the process is a GPU of the machine");

struct nvml {
	const struct proc *proc;
	uint64_t table; /* address of the dry-run library's table; 0: no dry run */
	unsigned dry_devices;
	uint64_t dry_total[NVML_DEVICES_MAX];
	bool nvml;     /* figures come from NVML */
	uint64_t seen; /* bit i: the process can see the device node of GPU i */
	bool seen_known;
	uint64_t next_check;		  /* earliest time of the next find_nodes() */
	unsigned order[NVML_DEVICES_MAX]; /* the process's device -> GPU of the machine */
	int n_order;			  /* length of order; -1: uncertain; 0: not known yet */
	int own_devices; /* number of devices that CUDA shows the process; <= 0: not known */
	/* bit i: the process's allocator has memory on device i, now and at the last request */
	uint64_t in_use, in_use_at_ask;
	/* asked: time of the last request. judged: begin of the last answer that was counted in
	 * `missing`. */
	uint64_t asked, judged;
	unsigned missing; /* answers in a row that lack a device in use */
	/* Figures that nvml__report_used() and nvml__report_free() have passed on. */
	uint64_t reported[NVML_DEVICES_MAX], reported_free[NVML_DEVICES_MAX];
	bool has_reported[NVML_DEVICES_MAX], has_reported_free[NVML_DEVICES_MAX];
};

/* ---- order of devices ---- */

/* Returns the index of the GPU that an item of CUDA_VISIBLE_DEVICES names: a number, or a unique
 * prefix of a UUID. -1: neither. */
static int parse_item(const char *s, size_t len, const char *const *uuid, unsigned n)
{
	int found = -1;
	unsigned long v;
	char *end;
	unsigned i;

	if (len && s[0] >= '0' && s[0] <= '9') {
		v = strtoul(s, &end, 10);
		return end == s + len && v < n ? (int)v : -1;
	}
	for (i = 0; len > 4 && i < n; i++) {
		if (strncmp(uuid[i], s, len))
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

int nvml__order(const char *visible, const char *const *uuid, unsigned n, bool sorted,
		unsigned order[NVML_DEVICES_MAX])
{
	int found, count = 0, k;
	size_t len;

	if (n > NVML_DEVICES_MAX)
		return -1;
	if (!visible) {
		for (k = 0; k < (int)n; k++)
			order[k] = (unsigned)k;
		return sorted ? (int)n : -1;
	}
	/* CUDA uses the items before the first invalid one. If a GPU appears twice, CUDA shows no
	 * device. */
	for (;;) {
		visible += strspn(visible, " ");
		len = strcspn(visible, ", ");
		if (len > 4 && text__starts(visible, "MIG-"))
			return -1;
		if (len && visible[0] >= '0' && visible[0] <= '9' && !sorted)
			return -1;
		found = parse_item(visible, len, uuid, n);
		for (k = 0; k < count; k++)
			if (found >= 0 && order[k] == (unsigned)found)
				return -1;
		if (found < 0 || count == NVML_DEVICES_MAX)
			return count;
		order[count++] = (unsigned)found;
		visible += len + strspn(visible + len, " ");
		if (*visible++ != ',')
			return count;
	}
}

static uint64_t bit(unsigned i)
{
	return UINT64_C(1) << i;
}

/* Finds the GPUs whose device nodes the process can see: a container may have only some of them,
 * and CUDA numbers only these. If a node cannot be checked, seen_known becomes false. */
static void find_nodes(struct nvml *s)
{
	unsigned n = gpus__count();
	char path[32];

	if (clock__monotonic() < s->next_check || s->n_order)
		return;
	s->next_check = clock__monotonic() + CHECK_EVERY;
	s->seen = 0;
	s->seen_known = n > 0;
	for (unsigned i = 0; i < n; i++) {
		const struct gpu *g = gpus__get(i);
		uint32_t dev_major, dev_minor;
		int err;

		snprintf(path, sizeof(path), "/dev/nvidia%d", g->minor);
		err = g->minor < 0 ? -ENOTSUP
				   : proc__char_device(s->proc, path, &dev_major, &dev_minor);
		if (!err && dev_major == NVIDIA_MAJOR && (int)dev_minor == g->minor)
			s->seen |= bit(i);
		else if (err && err != -ENOENT && err != -ENODEV && err != -ENOTDIR)
			s->seen_known = false;
	}
}

/* Finds the process's order of GPUs. If the order is uncertain, there are no figures, because they
 * might be of another device. */
static void find_order(struct nvml *s)
{
	unsigned gpu[NVML_DEVICES_MAX], order[NVML_DEVICES_MAX], n = 0;
	const char *uuid[NVML_DEVICES_MAX];
	char visible[2048], sort[64];
	struct maps maps;
	bool sorted = true, mig = false;
	int err;

	if (proc__maps(s->proc, &maps))
		return;
	s->n_order = -1;
	for (unsigned i = 0; i < gpus__count(); i++) {
		if (!(s->seen & bit(i)))
			continue;
		gpu[n] = i;
		uuid[n++] = gpus__get(i)->uuid;
		mig = mig || gpus__get(i)->mig;
		sorted = sorted && !strcmp(gpus__get(i)->name, gpus__get(gpu[0])->name);
	}
	/* By default CUDA lists the fastest GPU first. */
	if (environ__get(s->proc, &maps, "CUDA_DEVICE_ORDER", sort, sizeof(sort)) == 0 &&
	    !strcmp(sort, "PCI_BUS_ID"))
		sorted = true;
	err = environ__get(s->proc, &maps, "CUDA_VISIBLE_DEVICES", visible, sizeof(visible));
	if (!s->seen_known || (mig && n > 1))
		s->n_order = -1;
	else if (!err || err == -ENOENT)
		s->n_order = nvml__order(err ? NULL : visible, uuid, n, sorted, order);
	else if (n == 1)
		s->n_order = nvml__order(/*visible=*/NULL, uuid, 1, /*sorted=*/true, order);
	for (int i = 0; i < s->n_order; i++)
		s->order[i] = gpu[order[i]];
	maps__free(&maps);
}

/* Returns the bits of the GPUs on which NVML lists the process. */
static uint64_t find_listed(const struct nvml *s, const struct gpus_answer *a)
{
	uint64_t found = 0;

	for (unsigned i = 0; i < a->n; i++)
		if (a->process[i].pid == (unsigned)proc__pid(s->proc) &&
		    a->process[i].gpu < GPUS_MAX)
			found |= bit(a->process[i].gpu);
	return found;
}

/* Returns the bits of the GPUs in the process's order. */
static uint64_t ordered_gpus(const struct nvml *s)
{
	uint64_t mask = 0;

	for (int i = 0; i < s->n_order; i++)
		mask |= bit(s->order[i]);
	return mask;
}

/* Whether the order is uncertain, or NVML or the process contradicts it. found: as find_listed(). */
static bool is_refuted(const struct nvml *s, uint64_t found)
{
	return s->n_order < 0 || found & ~ordered_gpus(s) ||
	       (s->own_devices > 0 && s->own_devices != s->n_order);
}

/* Finds the order once NVML lists the process, and drops an order that is contradicted. */
static void check_order(struct nvml *s, uint64_t found)
{
	if (!s->n_order && found)
		find_order(s); /* the process uses CUDA now, so its devices are final */
	if (!found || s->n_order == 0 || !is_refuted(s, found))
		return;
	/* A device control group, as of Slurm, is not visible from outside. With one device, the
	 * order is certain anyway. */
	if (s->own_devices == 1 && !(found & (found - 1))) {
		s->order[0] = (unsigned)__builtin_ctzll(found);
		s->n_order = 1;
		return;
	}
	s->n_order = -1;
	log_debug("cannot tell which GPU is the process's first: driver figures are left out");
}

/* ---- NVML ---- */

/* Returns the bits of the GPUs to ask NVML about. 0: none. */
static uint64_t gpus_to_ask(struct nvml *s)
{
	find_nodes(s);
	if (s->n_order > 0)
		return ordered_gpus(s);
	return !s->n_order && s->seen_known ? s->seen : 0;
}

/* Sets *used to the bytes of the process on a GPU. 0; -ENOENT: NVML does not list the process
 * there; -EIO: not known. */
static int sum_used(const struct nvml *s, const struct gpus_answer *a, unsigned gpu, uint64_t *used)
{
	bool found = false;

	*used = 0;
	if (!(a->known & bit(gpu)))
		return -EIO;
	for (unsigned i = 0; i < a->n; i++) {
		const struct gpus_process *p = &a->process[i];

		if (p->gpu != gpu || p->pid != (unsigned)proc__pid(s->proc))
			continue;
		if (p->used == UINT64_MAX || __builtin_add_overflow(*used, p->used, used))
			return -EIO;
		found = true;
	}
	return found ? 0 : -ENOENT;
}

/* Whether NVML does not list the process on a device where its allocator had memory at the request.
 * That happens while the process ends, or if the order is wrong. got: result of sum_used(). */
static bool is_missing(struct nvml *s, const struct gpus_answer *a, unsigned device, int got)
{
	return got == -ENOENT && a->begin >= s->asked && s->in_use_at_ask & bit(device);
}

/* Sets the figures of an answer in the process's order. Leaves *ret empty if there are none. */
static void read_answer(struct nvml *s, const struct gpus_answer *a, struct nvml_figures *ret)
{
	bool missing = false;
	uint64_t used;

	check_order(s, find_listed(s, a));
	if (!proc__alive(s->proc) || s->n_order < 0)
		return; /* an ended process has not freed its memory */
	ret->n = (unsigned)s->n_order;
	for (unsigned i = 0; i < ret->n; i++) {
		unsigned gpu = s->order[i];
		int got = sum_used(s, a, gpu, &used);

		ret->used[i] = got ? 0 : used;
		ret->known[i] = got != -EIO && !is_missing(s, a, i, got);
		missing = missing || is_missing(s, a, i, got);
		ret->free[i] = a->free[gpu];
		ret->has_free[i] = a->has_free & bit(gpu);
	}
	if (a->begin == s->judged)
		return;
	s->judged = a->begin;
	s->missing = missing ? s->missing + 1 : 0;
	if (s->missing < MISSING_MAX)
		return;
	log_debug("NVML does not list the process on a GPU that it uses: driver figures are left "
		  "out");
	s->n_order = -1;
	ret->n = 0;
}

/* ---- dry run ---- */

static bool read_table(const struct nvml *s, struct dryrun_usage *u)
{
	return s->table && proc__read(s->proc, s->table, u, sizeof(*u)) == 0 &&
	       u->magic == DRYRUN_MAGIC && u->version == DRYRUN_VERSION &&
	       u->n_devices <= NVML_DEVICES_MAX;
}

bool nvml__is_dry_run(const struct nvml *s)
{
	return s->table != 0;
}

bool nvml__count_reports(const struct nvml *s, uint64_t *ret)
{
	struct dryrun_usage u;

	if (!read_table(s, &u))
		return false;
	*ret = u.reports;
	return true;
}

void nvml__refresh(struct nvml *s)
{
	struct dryrun_usage u;
	unsigned i;

	if (s->dry_devices || !read_table(s, &u))
		return;
	s->dry_devices = u.n_devices;
	for (i = 0; i < u.n_devices; i++)
		s->dry_total[i] = u.device[i].total;
}

/* ---- both ---- */

struct nvml *nvml__open(const struct proc *p, uint64_t dry_run)
{
	struct nvml *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->proc = p;
	s->table = dry_run;
	/* NVML uses the machine's PIDs. */
	s->nvml = !dry_run && !proc__pid_namespace();
	if (dry_run)
		nvml__refresh(s);
	else if (s->nvml)
		gpus__open();
	else
		log_debug("memtrace-bpf runs in its own PID namespace: driver figures, which use "
			  "the host's PIDs, are left out");
	return s;
}

void nvml__free(struct nvml *s)
{
	if (s && s->nvml)
		gpus__close();
	free(s);
}

void nvml__set_process(struct nvml *s, int devices, uint64_t in_use)
{
	s->own_devices = devices;
	s->in_use = in_use;
}

static bool sees_mig(const struct nvml *s)
{
	for (unsigned i = 0; i < gpus__count(); i++)
		if (s->seen & bit(i) && gpus__get(i)->mig)
			return true;
	return false;
}

unsigned nvml__devices(struct nvml *s)
{
	if (s->table)
		return s->dry_devices;
	if (!s->nvml || s->n_order)
		return s->n_order > 0 ? (unsigned)s->n_order : 0;
	find_nodes(s);
	return s->seen_known && !sees_mig(s) ? (unsigned)__builtin_popcountll(s->seen) : 0;
}

bool nvml__device(const struct nvml *s, unsigned device, const char **name, uint64_t *total)
{
	const struct gpu *g;

	*name = "";
	if (s->table) {
		*total = device < s->dry_devices ? s->dry_total[device] : 0;
		return device < s->dry_devices;
	}
	if ((int)device >= s->n_order || s->order[device] >= gpus__count())
		return false;
	g = gpus__get(s->order[device]);
	*name = g->mig ? "" : g->name;
	*total = g->mig ? 0 : g->total;
	return true;
}

/* Writes the UUID that props__uuid() of the dry run gives a device. */
static void write_dry_uuid(unsigned device, char buf[NVML_UUID])
{
	unsigned char u[16] = "dry run device";
	size_t n = (size_t)snprintf(buf, NVML_UUID, "GPU-");

	u[15] = (unsigned char)device;
	for (int i = 0; i < 16; i++)
		n += (size_t)snprintf(buf + n, NVML_UUID - n, "%s%02x",
				      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

char *nvml__uuid(const struct nvml *s, unsigned device, char buf[NVML_UUID])
{
	int gpu = nvml__gpu(s, device);

	*buf = '\0';
	if (gpu >= 0 && s->table)
		write_dry_uuid(device, buf);
	else if (gpu >= 0 && (unsigned)gpu < gpus__count() && !gpus__get((unsigned)gpu)->mig)
		snprintf(buf, NVML_UUID, "%s", gpus__get((unsigned)gpu)->uuid);
	return buf;
}

int nvml__gpu(const struct nvml *s, unsigned device)
{
	if (s->table)
		return device < s->dry_devices ? (int)device : -1;
	return (int)device < s->n_order ? (int)s->order[device] : -1;
}

/* Calls fn if the figure changed. A device without use is not reported until it has some. */
static int report_used(struct nvml *s, unsigned device, uint64_t used,
		       int (*fn)(void *ctx, unsigned device, uint64_t used), void *ctx)
{
	if (s->has_reported[device] ? s->reported[device] == used : !used)
		return 0;
	s->has_reported[device] = true;
	s->reported[device] = used;
	return fn(ctx, device, used);
}

int nvml__report_used(struct nvml *s, const struct nvml_figures *f,
		      int (*fn)(void *ctx, unsigned device, uint64_t used), void *ctx)
{
	unsigned i;
	int err = 0;

	for (i = 0; i < f->n && i < NVML_DEVICES_MAX && !err; i++)
		if (f->known[i])
			err = report_used(s, i, f->used[i], fn, ctx);
	return err;
}

int nvml__report_free(struct nvml *s, const struct nvml_figures *f,
		      int (*fn)(void *ctx, unsigned device, uint64_t left), void *ctx)
{
	int err = 0;

	for (unsigned i = 0; i < f->n && i < NVML_DEVICES_MAX && !err; i++) {
		if (!s->has_reported[i] || !f->has_free[i] ||
		    (s->has_reported_free[i] && s->reported_free[i] == f->free[i]))
			continue;
		s->has_reported_free[i] = true;
		s->reported_free[i] = f->free[i];
		err = fn(ctx, i, f->free[i]);
	}
	return err;
}

static void read_dry_run(struct nvml *s, struct nvml_figures *ret)
{
	struct dryrun_usage u;
	unsigned i;

	nvml__refresh(s);
	if (!read_table(s, &u))
		return;
	ret->n = s->dry_devices;
	for (i = 0; i < ret->n; i++) {
		ret->used[i] = u.device[i].used;
		ret->known[i] = true;
		ret->has_free[i] = u.device[i].used <= s->dry_total[i];
		ret->free[i] = s->dry_total[i] - u.device[i].used;
		ret->free[i] -= u.device[i].held < ret->free[i] ? u.device[i].held : ret->free[i];
	}
}

uint64_t nvml__ask(struct nvml *s)
{
	uint64_t now = clock__monotonic();
	uint64_t mask = s->nvml ? gpus_to_ask(s) : 0;

	/* NVML must list the memory in use now in any later answer. */
	s->in_use_at_ask = s->in_use;
	s->asked = now;
	if (mask)
		gpus__ask(mask, now);
	return now;
}

bool nvml__answered(struct nvml *s, uint64_t asked, struct nvml_figures *ret)
{
	uint64_t mask = s->nvml ? gpus_to_ask(s) : 0;

	*ret = (struct nvml_figures){ .n = 0 };
	if (s->table) {
		read_dry_run(s, ret);
		return true;
	}
	if (!mask || !gpus__answered(mask, asked))
		return false;
	read_answer(s, gpus__answer(), ret);
	return true;
}

void nvml__read(struct nvml *s, struct nvml_figures *ret)
{
	const struct gpus_answer *a = s->nvml ? gpus__answer() : NULL;

	*ret = (struct nvml_figures){ .n = 0 };
	if (s->table)
		read_dry_run(s, ret);
	else if (a && s->n_order >= 0)
		read_answer(s, a, ret);
}

void nvml__read_last(struct nvml *s, struct nvml_figures *ret)
{
	uint64_t mask = s->nvml && proc__alive(s->proc) ? gpus_to_ask(s) : 0, asked;

	*ret = (struct nvml_figures){ .n = 0 };
	if (s->table) {
		read_dry_run(s, ret);
	} else if (mask) {
		asked = nvml__ask(s);
		if (gpus__wait(mask, asked))
			read_answer(s, gpus__answer(), ret);
	}
}

/* ---- other processes ---- */

uint64_t nvml__ask_others(struct nvml *s)
{
	if (s->nvml)
		gpus__ask_all();
	return nvml__ask(s);
}

/* The slice that the process is in on a GPU, or GPUS_NO_SLICE. */
static uint32_t own_slice(const struct nvml *s, const struct gpus_answer *a, unsigned gpu)
{
	for (unsigned i = 0; i < a->n; i++)
		if (a->process[i].gpu == gpu && a->process[i].pid == (unsigned)proc__pid(s->proc))
			return a->process[i].slice;
	return GPUS_NO_SLICE;
}

/* Adds a process to v, which is sorted; the smallest has to go if there is no room. */
static size_t insert(struct nvml_other *v, size_t n, size_t max, struct nvml_other x)
{
	uint64_t bytes = x.used == UINT64_MAX ? 0 : x.used;
	size_t at = n;

	while (at && (v[at - 1].used == UINT64_MAX || v[at - 1].used < bytes))
		at--;
	if (at == max)
		return n;
	n += n < max;
	memmove(&v[at + 1], &v[at], (n - 1 - at) * sizeof(*v));
	v[at] = x;
	return n;
}

int nvml__others(struct nvml *s, unsigned device, uint64_t asked, struct nvml_other *v, size_t max,
		 size_t *all, uint64_t *began)
{
	const struct gpus_answer *a = s->nvml ? gpus__answer() : NULL;
	uint32_t slice;
	size_t n = 0;
	int gpu;

	*all = 0;
	if (!s->nvml)
		return -ENOENT;
	if (!a || a->begin < asked)
		return -EAGAIN;
	check_order(s, find_listed(s, a));
	gpu = nvml__gpu(s, device);
	if (gpu < 0 || !(a->known & bit((unsigned)gpu)))
		return -ENOENT;
	*began = a->begin;
	slice = own_slice(s, a, (unsigned)gpu);
	for (unsigned i = 0; i < a->n; i++) {
		const struct gpus_process *p = &a->process[i];

		if (p->gpu != (unsigned)gpu || p->pid == (unsigned)proc__pid(s->proc) ||
		    p->pid > INT_MAX || (slice != GPUS_NO_SLICE && p->slice != slice))
			continue;
		++*all;
		n = insert(v, n, max, (struct nvml_other){ (pid_t)p->pid, p->used });
	}
	return (int)n;
}
