/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/smi.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/log.h"
#include "target/environ.h"
#include "target/proc.h"

/* ---- the dry-run library's table: tools/dryrun ---- */

#define DRYRUN_MAGIC 0x4d544452
#define DRYRUN_VERSION 2

struct dryrun_usage {
	uint32_t magic, version, n_devices, pad;
	struct {
		uint64_t total, used, context, pad;
	} device[SMI_DEVICES_MAX];
	uint64_t reports;
};

/* ---- NVML: types and numbers as in nvml.h ---- */

typedef struct nvml_device_handle *nvml_device;

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_process { /* nvmlProcessInfo_v2_t, which _v3 of the function has, too */
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};

#define NVML_NOT_AVAILABLE (~0ULL)
#define PROCESSES_MAX 4096
#define NAME_LEN 96
#define UUID_LEN 96

struct nvml {
	void *lib;
	int (*init)(void);
	int (*shutdown)(void);
	int (*count)(unsigned *n);
	int (*by_index)(unsigned i, nvml_device *ret);
	int (*name)(nvml_device d, char *buf, unsigned len);
	int (*uuid)(nvml_device d, char *buf, unsigned len);
	int (*memory)(nvml_device d, struct nvml_memory *ret);
	int (*processes)(nvml_device d, unsigned *n, struct nvml_process *v);
};

struct gpu {
	nvml_device handle;
	char name[NAME_LEN], uuid[UUID_LEN];
	uint64_t total;
};

struct smi {
	const struct proc *proc;
	uint64_t table; /* of a dry run */
	unsigned dry_devices;
	pthread_t loader;
	bool loading; /* the thread was started */
	bool ready;   /* and is done: what follows is known, as far as it can be */
	struct nvml nvml;
	bool have_nvml;
	struct gpu gpu[SMI_DEVICES_MAX]; /* in the machine's order; of a dry run, the process's */
	unsigned n_gpus;
	unsigned order[SMI_DEVICES_MAX]; /* the process's device -> gpu */
	int n_order;			 /* -1: cannot be told; 0: not asked for yet */
	struct nvml_process *processes;
	uint64_t said[SMI_DEVICES_MAX];
	bool has_said[SMI_DEVICES_MAX];
};

/* ---- which device is which ---- */

/* One item of CUDA_VISIBLE_DEVICES: a number, or the beginning of one UUID. -1: neither. */
static int item(const char *s, size_t len, const char *const *uuid, unsigned n)
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

int smi__order(const char *visible, const char *const *uuid, unsigned n, bool sorted, unsigned order[SMI_DEVICES_MAX])
{
	int found, count = 0, k;
	size_t len;

	if (n > SMI_DEVICES_MAX)
		return -1;
	if (!visible) {
		for (k = 0; k < (int)n; k++)
			order[k] = (unsigned)k;
		return sorted ? (int)n : -1;
	}
	/* CUDA takes the items up to the first that is none, and one twice is an error: then it sees no device. */
	for (;;) {
		visible += strspn(visible, " ");
		len = strcspn(visible, ", ");
		if (len > 4 && !strncmp(visible, "MIG-", 4))
			return -1;
		if (len && visible[0] >= '0' && visible[0] <= '9' && !sorted)
			return -1;
		found = item(visible, len, uuid, n);
		for (k = 0; k < count; k++)
			if (found >= 0 && order[k] == (unsigned)found)
				return -1;
		if (found < 0 || count == SMI_DEVICES_MAX)
			return count;
		order[count++] = (unsigned)found;
		visible += len + strspn(visible + len, " ");
		if (*visible++ != ',')
			return count;
	}
}

/* Where the process's own numbering cannot be told for sure, a figure is better not given than given to another device. */
static void find_order(struct smi *s)
{
	const char *uuid[SMI_DEVICES_MAX];
	char visible[2048], order[64];
	struct maps maps;
	bool sorted = true;
	unsigned i;
	int err;

	if (s->n_order || proc__maps(s->proc, &maps))
		return;
	s->n_order = -1;
	for (i = 0; i < s->n_gpus; i++) {
		uuid[i] = s->gpu[i].uuid;
		sorted = sorted && !strcmp(s->gpu[i].name, s->gpu[0].name);
	}
	/* Otherwise CUDA puts the fastest first. */
	if (environ__get(s->proc, &maps, "CUDA_DEVICE_ORDER", order, sizeof(order)) == 0 && !strcmp(order, "PCI_BUS_ID"))
		sorted = true;
	err = environ__get(s->proc, &maps, "CUDA_VISIBLE_DEVICES", visible, sizeof(visible));
	if (!err || err == -ENOENT)
		s->n_order = smi__order(err ? NULL : visible, uuid, s->n_gpus, sorted, s->order);
	else if (s->n_gpus == 1)
		s->n_order = smi__order(NULL, uuid, 1, true, s->order);
	if (s->n_order < 0)
		log_debug("which GPU is the process's first cannot be told: the driver's figures are left out");
	maps__free(&maps);
}

/* ---- NVML ---- */

static bool load(struct nvml *n)
{
	static const struct {
		const char *name, *older;
		size_t at;
	} functions[] = {
		{ "nvmlInit_v2", NULL, offsetof(struct nvml, init) },
		{ "nvmlShutdown", NULL, offsetof(struct nvml, shutdown) },
		{ "nvmlDeviceGetCount_v2", NULL, offsetof(struct nvml, count) },
		{ "nvmlDeviceGetHandleByIndex_v2", NULL, offsetof(struct nvml, by_index) },
		{ "nvmlDeviceGetName", NULL, offsetof(struct nvml, name) },
		{ "nvmlDeviceGetUUID", NULL, offsetof(struct nvml, uuid) },
		{ "nvmlDeviceGetMemoryInfo", NULL, offsetof(struct nvml, memory) },
		{ "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
		  offsetof(struct nvml, processes) },
	};
	void *f;
	size_t i;

	/* By name alone: where it lies is this machine's business, never the target's. */
	n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!n->lib)
		return false;
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		f = dlsym(n->lib, functions[i].name);
		if (!f && functions[i].older)
			f = dlsym(n->lib, functions[i].older);
		if (!f) {
			log_debug("NVML lacks %s: the driver's figures are not asked for", functions[i].name);
			return false;
		}
		memcpy((char *)n + functions[i].at, &f, sizeof(f));
	}
	return n->init() == 0;
}

static void unload(struct smi *s)
{
	if (s->have_nvml)
		s->nvml.shutdown();
	s->have_nvml = false;
	if (s->nvml.lib)
		dlclose(s->nvml.lib);
	s->nvml.lib = NULL;
}

/* NVML names processes as the machine does: in a PID namespace of its own a number would be another process's. */
static bool pids_are_the_machines(void)
{
	return !proc__pid_namespace();
}

static void look_at_gpus(struct smi *s)
{
	struct nvml_memory memory;
	unsigned n = 0, i;

	if (s->nvml.count(&n) || n > SMI_DEVICES_MAX)
		return;
	for (i = 0; i < n; i++) {
		struct gpu *g = &s->gpu[i];

		if (s->nvml.by_index(i, &g->handle) || s->nvml.name(g->handle, g->name, sizeof(g->name)) ||
		    s->nvml.uuid(g->handle, g->uuid, sizeof(g->uuid)))
			return;
		g->name[sizeof(g->name) - 1] = g->uuid[sizeof(g->uuid) - 1] = '\0';
		memset(&memory, 0, sizeof(memory));
		g->total = s->nvml.memory(g->handle, &memory) ? 0 : memory.total;
	}
	s->n_gpus = n;
}

/* 0 and the process's bytes on a GPU; -ENOENT: it has nothing there; -EIO not known. */
static int ask_gpu(struct smi *s, const struct gpu *g, uint64_t *used)
{
	unsigned n = PROCESSES_MAX, i;
	uint64_t sum = 0;
	bool found = false;

	if (s->nvml.processes(g->handle, &n, s->processes) || n > PROCESSES_MAX)
		return -EIO;
	for (i = 0; i < n; i++) {
		if (s->processes[i].pid != (unsigned)proc__pid(s->proc))
			continue;
		if (s->processes[i].used == NVML_NOT_AVAILABLE || __builtin_add_overflow(sum, s->processes[i].used, &sum))
			return -EIO;
		found = true;
	}
	*used = sum;
	return found ? 0 : -ENOENT;
}

/* ---- dry run ---- */

static bool read_table(const struct smi *s, struct dryrun_usage *u)
{
	return s->table && proc__read(s->proc, s->table, u, sizeof(*u)) == 0 && u->magic == DRYRUN_MAGIC &&
	       u->version == DRYRUN_VERSION && u->n_devices <= SMI_DEVICES_MAX;
}

bool smi__is_dry_run(const struct smi *s)
{
	return s->table != 0;
}

bool smi__reports(const struct smi *s, uint64_t *ret)
{
	struct dryrun_usage u;

	if (!read_table(s, &u))
		return false;
	*ret = u.reports;
	return true;
}

void smi__refresh(struct smi *s)
{
	struct dryrun_usage u;
	unsigned i;

	if (s->dry_devices || !read_table(s, &u))
		return;
	s->dry_devices = u.n_devices;
	for (i = 0; i < u.n_devices; i++)
		s->gpu[i] = (struct gpu){ .total = u.device[i].total };
}

/* ---- both ---- */

static void *load_nvml(void *arg)
{
	struct smi *s = arg;

	s->have_nvml = load(&s->nvml);
	if (s->have_nvml)
		look_at_gpus(s);
	else
		unload(s);
	__atomic_store_n(&s->ready, true, __ATOMIC_RELEASE);
	return NULL;
}

/* What the loading thread writes may be looked at. */
static bool ready(const struct smi *s)
{
	return __atomic_load_n(&s->ready, __ATOMIC_ACQUIRE);
}

struct smi *smi__open(const struct proc *p, uint64_t dry_run)
{
	struct smi *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->proc = p;
	s->table = dry_run;
	s->processes = calloc(PROCESSES_MAX, sizeof(*s->processes));
	if (!s->processes) {
		free(s);
		return NULL;
	}
	if (dry_run)
		smi__refresh(s);
	else if (!pids_are_the_machines())
		log_debug("in a PID namespace of our own: the driver's figures, which are by the machine's PIDs, are not "
			  "asked for");
	else
		s->loading = pthread_create(&s->loader, NULL, load_nvml, s) == 0;
	return s;
}

void smi__free(struct smi *s)
{
	if (!s)
		return;
	if (s->loading)
		pthread_join(s->loader, NULL);
	unload(s);
	free(s->processes);
	free(s);
}

unsigned smi__devices(const struct smi *s)
{
	return s->table ? s->dry_devices : ready(s) ? s->n_gpus : 0;
}

bool smi__device(const struct smi *s, unsigned device, const char **name, uint64_t *total)
{
	const struct gpu *g;

	if (s->table ? device >= s->dry_devices : !ready(s) || (int)device >= s->n_order)
		return false;
	g = &s->gpu[s->table ? device : s->order[device]];
	*name = g->name;
	*total = g->total;
	return true;
}

static int say(struct smi *s, unsigned device, uint64_t used,
	       int (*fn)(void *ctx, unsigned device, uint64_t used), void *ctx)
{
	if (s->has_said[device] ? s->said[device] == used : !used)
		return 0;
	s->has_said[device] = true;
	s->said[device] = used;
	return fn(ctx, device, used);
}

int smi__tell(struct smi *s, const struct smi_figures *f, int (*fn)(void *ctx, unsigned device, uint64_t used), void *ctx)
{
	unsigned i;
	int err = 0;

	for (i = 0; i < f->n && i < SMI_DEVICES_MAX && !err; i++)
		if (f->known[i])
			err = say(s, i, f->used[i], fn, ctx);
	return err;
}

static void read_dry_run(struct smi *s, struct smi_figures *ret)
{
	struct dryrun_usage u;
	unsigned i;

	smi__refresh(s);
	if (!read_table(s, &u))
		return;
	ret->n = s->dry_devices;
	for (i = 0; i < ret->n; i++) {
		ret->used[i] = u.device[i].used;
		ret->known[i] = true;
	}
}

void smi__read(struct smi *s, struct smi_figures *ret)
{
	uint64_t used[SMI_DEVICES_MAX];
	int got[SMI_DEVICES_MAX];
	unsigned i;

	*ret = (struct smi_figures){ .n = 0 };
	if (s->table) {
		read_dry_run(s, ret);
		return;
	}
	if (!ready(s))
		return;
	for (i = 0; i < s->n_gpus; i++) {
		got[i] = ask_gpu(s, &s->gpu[i], &used[i]);
		/* It uses CUDA by now, so what it sees is settled. */
		if (!got[i])
			find_order(s);
	}
	if (!proc__alive(s->proc) || s->n_order < 0)
		return; /* what is missing now has not been given back, it ended with the process */
	ret->n = (unsigned)s->n_order;
	for (i = 0; i < ret->n; i++) {
		unsigned k = s->order[i];

		ret->used[i] = got[k] ? 0 : used[k];
		ret->known[i] = got[k] != -EIO;
	}
}
