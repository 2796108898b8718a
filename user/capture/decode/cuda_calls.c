/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/cuda_calls.h"
#include "capture/decode/autograd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "capture/decode/decode_ctx.h"
#include "capture/probes.h"
#include "capture/probes/session_opts.h"
#include "capture/target.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/map64.h"
#include "base/text.h"
#include "base/log.h"
#include "inspect/nvml.h"
#include "inspect/native_stacks.h"
#include "inspect/proc.h"
#include "inspect/seccomp.h"
#include "inspect/usdt.h"
#include "inspect/cuda.h"
#include "inspect/cudaalloc.h"
#include "inspect/torch.h"

#define LOOK_EVERY 20000000ULL	 /* ns between two checks whether more code is mapped */
#define SCAN_EVERY 100000000ULL	 /* ns between two scans of the mapped files */
#define USED_EVERY 1000000000ULL /* ns between two readings of the driver's figures */
#define USED_PAUSE 50000000ULL	 /* ns between two readings while memory is taken or given back */
#define USED_AGAIN                                                                                 \
	10000000ULL	   /* ns until the next reading if a figure changed during the last one */
#define USED_SHARE 20	   /* reading them takes at most one part in this many of the time */
#define THREADS_BETWEEN 64 /* threads that may be between the allocator's report and the probe */
#define FILES_MAX 65536	   /* about as many as a process can map */
#define RANGES_MAX 64
#define TAKEN_MAX (1u << 20)
#define NO_INDEX UINT32_MAX
#define CONTEXTS_MAX 64
#define POOLS_MAX 256
#define CONTEXT_UNKNOWN UINT64_MAX
#define BYPASS_CALLS                                                                               \
	10 /* calls of the runtime that took memory without a probed call of the driver, before we \
	      warn */
#define POOL_MANAGED 2 /* CU_MEM_ALLOCATION_TYPE_MANAGED */

/* CUmemLocationType */
enum location {
	LOCATION_DEVICE = 1,
	LOCATION_HOST,
	LOCATION_HOST_NUMA,
	LOCATION_HOST_NUMA_CURRENT
};

/* Kinds of addresses and handles. Values are unique within one kind. */
enum space { SPACE_MEMORY, SPACE_PHYSICAL, SPACE_MAPPED, SPACE_RESERVED, SPACE_NR };

/* Memory that was taken and not given back. */
struct taken {
	uint64_t addr, size;
	uint64_t time;	   /* when the call returned, CLOCK_MONOTONIC ns */
	uint32_t physical; /* MEM_MAPPED: index of the physical memory; in a free entry: index of
			      the next one */
	uint32_t mappings; /* MEM_PHYSICAL: number of mappings */
	uint32_t holders;  /* MEM_PHYSICAL: number of handles that are not released */
	struct device device;
	uint8_t how;
	bool block;  /* its event was an EVENT_ALLOC */
	bool owed;   /* the entry before this one was ended early; the record of its end is still to
			come */
	bool silent; /* no event: another process's memory, or a mapping of host memory that is
			counted already */
	bool in_context;  /* ends with the CUDA context it was taken in */
	uint8_t under;	  /* that context's device + 1, 0: unknown */
	uint64_t context; /* that context, as in struct thread */
};

struct context {
	uint64_t handle;
	uint8_t device; /* DEVICE_UNKNOWN: unknown */
	bool primary;
};

/* A memory pool of the program. */
struct pool {
	uint64_t handle;
	uint8_t how, device; /* enum mem_how and device of the memory that it gives */
};

enum file { NOTHING, HAS_CALLS, HAS_ALLOCATOR }; /* bits of a set */

struct range {
	uint64_t start, end;
};

struct cuda_calls {
	struct map64 *files;	      /* files looked into: file_key() -> bits of enum file */
	struct range own[RANGES_MAX]; /* code of the recorded PyTorch's CUDA allocator */
	size_t n_own;
	/* Code that called functions that take memory: NVIDIA's libraries (for themselves), and all
	 * other. */
	struct range library[RANGES_MAX], elsewhere[RANGES_MAX];
	size_t n_library, n_elsewhere;
	struct range runtime[RANGES_MAX]; /* code of the CUDA runtimes that are probed */
	size_t n_runtime;
	struct context context[CONTEXTS_MAX];
	size_t n_contexts;
	struct pool pool[POOLS_MAX];
	size_t n_pools;
	uint64_t driver_since; /* when the driver's functions were probed, CLOCK_MONOTONIC ns; 0:
				  not yet */
	uint64_t runtime_took; /* calls of the runtime that took memory since then */
	bool bypassed;	       /* the warning that the driver is bypassed was given */
	struct map64 *at[SPACE_NR]; /* by space: address or handle -> index in taken */
	struct taken *taken;
	uint32_t n_taken, first_free;
	size_t cap_taken;
	uint64_t *done, *failed; /* calls by function */
	uint64_t unreadable, forgotten, replaced;
	int status;	  /* /proc/PID/status, -1: unreadable */
	uint64_t lib_kib; /* mapped_code() at the last scan */
	uint64_t next_look, next_scan;
	struct nvml *smi; /* NULL: the process does not use CUDA so far */
	uint64_t dry_run; /* address of the dry-run library's table, 0: not a dry run */
	bool sites;	  /* a file with CUDA functions is mapped */
	bool by_pid;	  /* a file with calls could not be opened: see probes__calls_each() */
	/* The driver's figures; times are ns since start. */
	struct nvml_figures figures;
	uint64_t next_used, next_regular; /* earliest and latest time of the next reading */
	bool moved;	   /* memory was taken or given back since the last reading */
	bool asking;	   /* a dry run's figures were read before this drain */
	bool whole;	   /* the last drain emptied the ring */
	uint64_t asked_at; /* ticket of the question to NVML, for nvml__answered(); 0: none is open */
	bool asked_whole;		  /* the drain before the question emptied the ring */
	uint64_t changes, changes_at_ask; /* calls that change a device's memory: so far, and when
					     NVML got the question */
	uint64_t in_use;	    /* a bit for each device that the allocator has memory on */
	bool to_tell;		    /* figures are to be emitted */
	enum alloc_backend backend; /* backend of PyTorch's allocator */
	bool asked;		    /* the probe pytorch:malloc was looked for */
	bool warned_filtered;	    /* the warning that calls are not probed was given */
	bool backend_fixed;	    /* the allocator was used: its backend cannot change any more */
	unsigned devices;	    /* devices of the process, at most; 0: unknown */
};

/* ---- PyTorch's allocator ---- */

/* Updates the backend, which a program may choose until its first use. */
static void before_take(struct decoder *d, bool own)
{
	struct cuda_calls *c = d->calls;

	if (c->backend_fixed || !c->n_own)
		return;
	c->backend = target__backend(d->target, d->facts, decoder__now(d));
	c->backend_fixed = own || c->backend == ALLOC_PLUGGABLE;
}

/* ---- finding and probing ---- */

/* KiB of code mapped, which changes with libraries and not with the heap. 0: unreadable. */
static uint64_t mapped_code(const struct cuda_calls *c)
{
	char buf[4096];
	const char *at;
	ssize_t n;

	n = c->status < 0 ? -1 : pread(c->status, buf, sizeof(buf) - 1, 0);
	if (n <= 0)
		return 0;
	buf[n] = '\0';
	at = strstr(buf, "\nVmLib:");
	return at ? strtoull(at + 7, NULL, 10) : 0;
}

/* A hash of a file's identity. */
static uint64_t file_key(const struct map *m)
{
	uint64_t h = (m->inode * 0x9e3779b97f4a7c15ULL ^
		      ((uint64_t)m->dev_major << 32 | m->dev_minor)) *
		     0xbf58476d1ce4e5b9ULL;

	return h ^ h >> 31;
}

static bool is_new(struct cuda_calls *c, const struct map *m)
{
	uint64_t v;

	return map64__get(c->files, file_key(m), &v) ? false
						     : !map64__set(c->files, file_key(m), NOTHING);
}

/* Forgets the files without CUDA functions. Most of them are not mapped any more; the others are
 * looked into again. 0 or -ENOMEM. */
static int forget_files(struct cuda_calls *c)
{
	struct map64 *kept = map64__new();
	uint64_t key, value;
	size_t pos = 0;
	int err = kept ? 0 : -ENOMEM;

	while (!err && map64__next(c->files, &pos, &key, &value))
		err = value == NOTHING ? 0 : map64__set(kept, key, value);
	if (err) {
		map64__free(kept);
		return err;
	}
	map64__free(c->files);
	c->files = kept;
	return 0;
}

/* Adds the mapped code of a file. */
static void add_ranges(struct range v[RANGES_MAX], size_t *n, const struct maps *m,
		       const struct map *file)
{
	size_t i;

	for (i = 0; i < m->n && *n < RANGES_MAX; i++)
		if (m->v[i].x && m->v[i].inode == file->inode &&
		    m->v[i].dev_major == file->dev_major && m->v[i].dev_minor == file->dev_minor)
			v[(*n)++] = (struct range){ m->v[i].start, m->v[i].end };
}

static bool in_ranges(const struct range *v, size_t n, uint64_t addr)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (addr >= v[i].start && addr < v[i].end)
			return true;
	return false;
}

static bool is_driver(const struct cuda_function *fn)
{
	return strncmp(fn->name, "cuda", 4) != 0;
}

static bool has_driver(const struct cuda_file *f)
{
	size_t i;

	for (i = 0; i < f->n; i++)
		if (is_driver(cuda__function(f->site[i].fn)))
			return true;
	return false;
}

static bool lacks_shadow_stack(const struct proc *p)
{
	struct utsname un;

	return proc__shadow_stack(p) && (uname(&un) || !seccomp__keeps_shadow_stack(un.release));
}

/* True, with a warning, if return probes would end the process. */
static bool filtered(struct decoder *d)
{
	bool shadow = !d->opts->inside && lacks_shadow_stack(d->target->proc);

	if (!shadow && (d->opts->inside || seccomp__allows_returns(d->target->proc)))
		return false;
	if (!d->calls->warned_filtered && shadow)
		log_warn("PID %d: calls into CUDA are not recorded: the process has a shadow "
			 "stack, and before Linux 6.11 a return probe "
			 "would end it",
			 (int)proc__pid(d->target->proc));
	else if (!d->calls->warned_filtered)
		log_warn("PID %d: calls into CUDA are not recorded: the process has a seccomp "
			 "filter, and on this kernel (Linux 6.11 "
			 "to 6.13) the filter would end it at the first return probe. Linux "
			 "6.12.14, 6.13.3 and 6.14 have the fix",
			 (int)proc__pid(d->target->proc));
	d->calls->warned_filtered = true;
	return true;
}

static struct call_file call_file(const struct cuda_file *f, const struct map *map)
{
	return (struct call_file){ f->elf, map->inode, map->dev_major, map->dev_minor };
}

static int attach_file(struct decoder *d, const struct map *map, const struct cuda_file *f)
{
	struct call_file file = call_file(f, map);
	uint32_t runtime = has_driver(f) ? 0 : MT_CALL_RUNTIME;
	struct probe_site calls[CUDA_SITES_MAX], set[CUDA_SITES_MAX];
	pid_t pid = proc__pid(d->target->proc);
	size_t n = 0, n_set = 0, i;
	int err;

	if (filtered(d))
		return 0;
	for (i = 0; i < f->n; i++) {
		const struct cuda_function *fn = cuda__function(f->site[i].fn);
		struct probe_site site = { .offset = f->site[i].offset,
					   .second = f->site[i].site.second };

		site.cookie = MT_CALL_COOKIE(f->site[i].fn,
					     fn->flags | (!is_driver(fn)	? runtime
							  : fn->op == CUDA_TAKE ? MT_CALL_DRIVER
										: 0));
		if (fn->op != CUDA_SET_DEVICE)
			calls[n++] = site;
		else if (d->calls->devices != 1)
			set[n_set++] = site;
	}
	err = probes__attach_calls(d->probes, pid, CALL_SET_DEVICE, &file, set, n_set)
		      ?: probes__attach_calls(d->probes, pid, CALL_RETURN, &file, calls, n)
		      ?: probes__attach_calls(d->probes, pid, CALL_ENTER, &file, calls, n);
	if (probes__calls_each(d->probes, &file) && !proc__alive(d->target->proc))
		probes__leave(d->probes, pid); /* the PID may be another process's now */
	return err;
}

/* Says that requested sizes cannot be recorded. */
__attribute__((format(printf, 2, 3))) static void no_requested(const struct decoder *d,
							       const char *fmt, ...)
{
	char why[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (d->opts->requested)
		log_warn("--requested: %s", why);
	else
		log_debug("requested sizes are not recorded: %s", why);
}

/* Attaches to PyTorch's own probe of requested sizes: pytorch:malloc(ptr, device, size, stream). */
static void attach_requested(struct decoder *d, const struct map *map, const struct cuda_file *f,
			     bool new_file)
{
	struct call_file file = call_file(f, map);
	struct probe_site sites[MT_ASKED_SITES];
	struct usdt_sites u;
	size_t i;
	int err;

	if (d->calls->asked)
		return; /* only one allocator is in use */
	d->calls->asked = true;
	if (!new_file)
		return;
	/* PyTorch 2.1 hits the probe before the allocation, without the block's address. */
	if (!strncmp(d->target->torch.version, "2.1.", 4)) {
		no_requested(
			d,
			"PyTorch 2.1 does not report the requested size with the block's address");
		return;
	}
	err = usdt__find(f->elf, "pytorch", "malloc", MT_ASKED_ARGS, &u);
	for (i = 0; !err && i < u.n; i++)
		sites[i] = (struct probe_site){ .offset = u.site[i].offset,
						.cookie = i,
						.ref_ctr = u.site[i].semaphore };
	if (!err && d->opts->requested && d->opts->group)
		log_info("--requested: PyTorch's probe is on in every process that maps %s, also "
			 "in those that are not recorded",
			 map->path);
	if (!err) {
		probes__set_asked(d->probes, u.args, u.n);
		err = probes__attach_calls(d->probes, proc__pid(d->target->proc), CALL_ASKED, &file,
					   sites, u.n);
	}
	if (err)
		no_requested(d, "not available with this PyTorch: %s",
			     err == -ENOENT   ? "it was built without the probe pytorch:malloc"
			     : err == -EINVAL ? "the format of its probe pytorch:malloc is unknown"
					      : strerror(-err));
}

static void note_driver(struct cuda_calls *c, bool probed)
{
	if (probed && !c->driver_since)
		c->driver_since = clock__kernel();
}

static const char *why_refused(const struct decoder *d, int err)
{
	if (err == -EBUSY)
		return "others' are there";
	if (err != -EXDEV)
		return strerror(-err);
	return d->opts->group ? "root may not open the file (FUSE or NFS of another user), and "
				"this kernel's probes by PID miss threads; record the process by "
				"itself, with -p PID"
			      : "the file cannot be opened, and this kernel's probes by PID miss "
				"threads; run memtrace-bpf as root";
}

/* Probes the functions of a file, which no other process of a group has probed yet. */
static void probe_functions(struct decoder *d, const struct map *map, const struct cuda_file *f,
			    const char *file)
{
	int err;

	if (f->refused_take)
		log_warn("%s: no probe is possible on %s: memory allocated through it is not "
			 "recorded",
			 file, f->refused_take);
	if (f->newer[0])
		log_warn("%s: %s is newer than this memtrace-bpf: memory allocated through it is "
			 "not recorded",
			 file, f->newer);
	err = attach_file(d, map, f);
	if (err) {
		log_warn("%s probes on calls into %s: %s; memory allocated there is not recorded",
			 d->opts->inside ? "no breakpoints for"
			 : err == -EXDEV ? "no"
					 : "the kernel refused",
			 file, why_refused(d, err));
		return;
	}
	note_driver(d->calls, has_driver(f));
	log_debug("%zu CUDA functions probed in %s%s", f->n, file,
		  f->refused ? ", some refused" : "");
}

/* What a file has, and its probes. Bits of enum file. */
static int use_file(struct decoder *d, const struct maps *m, const struct map *map,
		    const struct cuda_file *f)
{
	struct cuda_calls *c = d->calls;
	const struct call_file id = call_file(f, map);
	char file[256];
	/* not probed by a group's other process */
	bool new_file = (!f->allocator && !f->n) || probes__new_file(d->probes, &id);

	c->by_pid |= (f->allocator || f->n) && elf__is_memory(f->elf);
	if (f->allocator && !torch__is_other(m, map->path) &&
	    (d->opts->requested || d->opts->requested_if_there))
		attach_requested(d, map, f, new_file);
	if (f->usage)
		c->dry_run = f->usage;
	text__clean(file, sizeof(file), map->path, strlen(map->path));
	if (f->throws)
		log_debug("%s: not probed: C++ exceptions may leave its CUDA functions; CUDA's own "
			  "library below it is probed",
			  file);
	if (f->n) {
		c->sites = true;
		if (!has_driver(f))
			add_ranges(c->runtime, &c->n_runtime, m, map);
		if (new_file)
			probe_functions(d, map, f, file);
		else
			note_driver(c, has_driver(f));
	}
	return (f->allocator ? HAS_ALLOCATOR : NOTHING) | (f->n || f->usage ? HAS_CALLS : NOTHING);
}

/*
 * Looks into a mapped file and probes its functions. Bits of enum file, or -errno: unreadable now.
 */
static int look_into(struct decoder *d, const struct maps *m, const struct map *map)
{
	struct cuda_file f;
	char file[256];
	int err = cuda__look(d->target->proc, m, map, &f), found;

	if (err) {
		text__clean(file, sizeof(file), map->path, strlen(map->path));
		log_debug("cannot read %s: %s", file, strerror(-err));
		return err;
	}
	found = use_file(d, m, map, &f);
	elf__free(f.elf);
	return found;
}

static void count_devices(struct cuda_calls *c)
{
	if (c->devices || !c->smi)
		return;
	nvml__refresh(c->smi);
	c->devices = nvml__devices(c->smi);
}

/*
 * Finds the code of the recorded PyTorch's allocator. With two libtorch mapped, only
 * libtorch_python tells which is in use, and it is mapped last. An ending process maps nothing, but
 * the ring may still have its calls: keep the old ranges then.
 */
static void find_own(struct decoder *d, const struct maps *m)
{
	struct cuda_calls *c = d->calls;
	struct range own[RANGES_MAX];
	size_t n = 0, i;
	uint64_t v;

	for (i = 0; i < m->n && n < RANGES_MAX; i++) {
		const struct map *map = &m->v[i];

		if (map->x && map->inode && map64__get(c->files, file_key(map), &v) &&
		    v & HAS_ALLOCATOR && !torch__is_other(m, map->path))
			own[n++] = (struct range){ map->start, map->end };
	}
	if (!n)
		return;
	memcpy(c->own, own, n * sizeof(*own));
	c->n_own = n;
	if (d->native)
		probes__copy_no_stacks_of(d->probes, own[0].start, own[0].end);
}

/* Starts the helper process for the figures of GPUs. A start takes up to 0.1 s on a busy machine,
 * so it comes after the attach. */
static void open_figures(struct decoder *d)
{
	struct cuda_calls *c = d->calls;

	if (!c->smi && c->sites)
		c->smi = nvml__open(d->target->proc, c->dry_run);
	count_devices(c);
}

static void scan(struct decoder *d)
{
	struct cuda_calls *c = d->calls;
	struct maps maps;
	size_t i;
	int found;

	c->lib_kib = mapped_code(c);
	if (d->native)
		native_stacks__refresh(d->native);
	if (proc__maps(d->target->proc, &maps))
		return;
	for (i = 0; i < maps.n; i++) {
		const struct map *m = &maps.v[i];

		if (!m->x || !m->inode || m->path[0] != '/' || !is_new(c, m))
			continue;
		found = look_into(d, &maps, m);
		if (found < 0)
			/* try again at the next scan */
			map64__del(c->files, file_key(m), NULL);
		else
			map64__set(c->files, file_key(m),
				   found); /* an existing key: needs no memory */
	}
	find_own(d, &maps);
	if (map64__count(c->files) > FILES_MAX)
		forget_files(c);
	maps__free(&maps);
	if (c->dry_run)
		open_figures(d);
	if (!c->backend_fixed && c->n_own)
		c->backend = target__backend(d->target, d->facts, decoder__now(d));
}

static int open_calls(struct decoder *d)
{
	struct cuda_calls *c = calloc(1, sizeof(*c));
	int i;

	if (!c)
		return -ENOMEM;
	d->calls = c;
	c->first_free = NO_INDEX;
	c->status = proc__open_own(d->target->proc, "status");
	c->done = calloc(cuda__functions(), sizeof(*c->done));
	c->failed = calloc(cuda__functions(), sizeof(*c->failed));
	for (i = 0; i < SPACE_NR; i++)
		c->at[i] = map64__new();
	c->files = map64__new();
	for (i = 0; i < SPACE_NR; i++)
		if (!c->at[i])
			return -ENOMEM;
	return c->files && c->done && c->failed ? 0 : -ENOMEM;
}

int cuda_calls__attach(struct decoder *d)
{
	int err = open_calls(d);

	if (!err)
		scan(d);
	return err;
}

bool cuda_calls__by_pid(const struct cuda_calls *c)
{
	return c->by_pid;
}

int cuda_calls__fork(struct decoder *d, const struct cuda_calls *parent)
{
	int err = open_calls(d);
	struct cuda_calls *c = d->calls;
	uint64_t key, value;
	size_t pos = 0;

	if (err || !parent)
		return err;
	c->backend = parent->backend;
	c->backend_fixed = parent->backend_fixed;
	c->devices = parent->devices;
	c->by_pid = parent->by_pid;
	if (probes__calls_each(d->probes, NULL) || c->by_pid)
		return 0; /* the parent's probes do not hit here: scan as in a new process */
	memcpy(c->own, parent->own, parent->n_own * sizeof(*c->own));
	memcpy(c->runtime, parent->runtime, parent->n_runtime * sizeof(*c->runtime));
	while (map64__next(parent->files, &pos, &key, &value))
		if (map64__set(c->files, key, value))
			return -ENOMEM;
	c->n_own = parent->n_own;
	c->n_runtime = parent->n_runtime;
	c->driver_since = parent->driver_since;
	c->lib_kib = parent->lib_kib;
	c->dry_run = parent->dry_run;
	c->sites = parent->sites;
	c->asked = parent->asked;
	return 0;
}

void cuda_calls__free(struct cuda_calls *c)
{
	int i;

	if (!c)
		return;
	for (i = 0; i < SPACE_NR; i++)
		map64__free(c->at[i]);
	map64__free(c->files);
	nvml__free(c->smi);
	if (c->status >= 0)
		close(c->status);
	free(c->taken);
	free(c->done);
	free(c->failed);
	free(c);
}

void cuda_calls__look(struct decoder *d, uint64_t now)
{
	struct cuda_calls *c = d->calls;

	if (!c || now < c->next_look)
		return;
	c->next_look = now + LOOK_EVERY;
	open_figures(d);
	if (now < c->next_scan || mapped_code(c) == c->lib_kib)
		return;
	c->next_scan = now + SCAN_EVERY;
	scan(d);
}

/* ---- the driver's figure ---- */

static int say_used(void *ctx, unsigned device, uint64_t used)
{
	struct decoder *d = ctx;
	struct event e = { .kind = EVENT_USED, .device = { DEVICE_CUDA, device }, .size = used };

	e.time = decoder__now(d);
	return decoder__emit(d, &e);
}

static int say_left(void *ctx, unsigned device, uint64_t left)
{
	struct decoder *d = ctx;
	struct event e = { .kind = EVENT_LEFT, .device = { DEVICE_CUDA, device }, .size = left };

	e.time = decoder__now(d);
	return decoder__emit(d, &e);
}

static void set_device_facts(struct decoder *d)
{
	const char *name;
	char key[64];
	uint64_t total;
	unsigned i;

	for (i = 0; i < NVML_DEVICES_MAX && nvml__device(d->calls->smi, i, &name, &total); i++) {
		snprintf(key, sizeof(key), "device.%u.name", i);
		if (*name)
			facts__set(d->facts, key, name);
		snprintf(key, sizeof(key), "device.%u.total", i);
		if (total)
			facts__setf(d->facts, key, "%" PRIu64, total);
	}
}

/* Are the figures the same before and after the drain? Then they belong to this place in the
 * stream. Otherwise they are read again soon; when overdue, the newer figures count. */
static bool compare(struct cuda_calls *c, const struct nvml_figures *after, bool whole,
		    bool overdue)
{
	bool steady = whole && after->n == c->figures.n;
	unsigned i;

	for (i = 0; i < after->n; i++)
		steady = steady && after->known[i] == c->figures.known[i] &&
			 after->used[i] == c->figures.used[i];
	c->figures = *after;
	c->to_tell = steady || overdue;
	return steady;
}

void cuda_calls__before_drain(struct decoder *d)
{
	struct cuda_calls *c = d->calls;
	uint64_t now = decoder__now(d);

	if (!c || !c->smi)
		return;
	c->asking = nvml__is_dry_run(c->smi) && now >= c->next_used &&
		    (c->moved || now >= c->next_regular);
	if (c->asking)
		nvml__read(c->smi, &c->figures);
}

void cuda_calls__after_drain(struct decoder *d, bool whole)
{
	struct cuda_calls *c = d->calls;
	struct nvml_figures after;
	uint64_t begin, now, pause;

	if (c)
		c->whole = whole;
	if (!c || !c->asking)
		return;
	c->asking = false;
	begin = decoder__now(d);
	nvml__read(c->smi, &after);
	now = decoder__now(d);
	pause = USED_AGAIN;
	if (compare(c, &after, whole, now >= c->next_regular + USED_EVERY)) {
		c->moved = false;
		pause = USED_PAUSE;
	}
	if (c->to_tell)
		c->next_regular = now + USED_EVERY;
	c->next_used = now +
		       (pause > (now - begin) * USED_SHARE ? pause : (now - begin) * USED_SHARE);
}

/* Asks NVML, or takes its answer. All records drained before are decoded; calls that come before
 * the answer may change the figure. */
static void ask_driver(struct decoder *d)
{
	struct cuda_calls *c = d->calls;
	uint64_t now = decoder__now(d);
	struct nvml_figures after;
	bool steady;

	if (c->asked_at && nvml__answered(c->smi, c->asked_at, &after)) {
		steady = compare(c, &after, c->asked_whole && c->changes == c->changes_at_ask,
				 now >= c->next_regular + USED_EVERY);
		c->moved = c->moved && !steady;
		c->next_used = now + (steady ? USED_PAUSE : USED_AGAIN);
		if (c->to_tell)
			c->next_regular = now + USED_EVERY;
		c->asked_at = 0;
	}
	/* Repeat an unanswered question: NVML may not have known the GPUs then. */
	if (now < c->next_used || !(c->moved || now >= c->next_regular))
		return;
	c->next_used = now + USED_EVERY;
	c->asked_whole = c->whole;
	c->changes_at_ask = c->changes;
	nvml__process_has(c->smi, target__cuda_devices(d->target), c->in_use);
	c->asked_at = nvml__ask(c->smi);
}

void cuda_calls__in_use(struct decoder *d, unsigned device)
{
	if (d->calls && device < NVML_DEVICES_MAX)
		d->calls->in_use |= UINT64_C(1) << device;
}

int cuda_calls__used(struct decoder *d, bool last)
{
	int err;

	struct cuda_calls *c = d->calls;

	if (c && last && d->opts->requested && !c->asked)
		log_warn("--requested: the process has no PyTorch with CUDA");
	if (!c || !c->smi)
		return 0;
	if (!last && !nvml__is_dry_run(c->smi))
		ask_driver(d);
	if (last) {
		nvml__read_last(c->smi, &c->figures);
		c->next_used = UINT64_MAX;
	} else if (!c->to_tell) {
		return 0;
	}
	c->to_tell = false;
	set_device_facts(d);
	err = nvml__tell(c->smi, &c->figures, say_used, d);
	return err ? err : nvml__tell_free(c->smi, &c->figures, say_left, d);
}

uint64_t cuda_calls__unseen(const struct decoder *d)
{
	uint64_t c[MT_CNT_NR], told, hits;

	/* Read the library's count first: each later report hit a probe already or is on its way,
	 * at most one per thread. */
	if (!d->calls || !d->calls->smi || !d->from_start || d->opts->group ||
	    d->opts->steps_only || !nvml__reports(d->calls->smi, &told) ||
	    probes__counters(d->probes, d->opts->number, c))
		return 0;
	hits = c[MT_CNT_HIT + MT_REC_REPORT];
	return told > hits + THREADS_BETWEEN ? told - hits : 0;
}

void cuda_calls__used_soon(struct decoder *d)
{
	struct cuda_calls *c = d->calls;

	if (!c || !c->smi || c->next_used == UINT64_MAX)
		return;
	c->moved = true;
	if (nvml__is_dry_run(c->smi))
		c->next_used = 0;
}

/* ---- what is taken ---- */

static enum space space_of(uint8_t how)
{
	switch (how) {
	case MEM_PHYSICAL:
		return SPACE_PHYSICAL;
	case MEM_MAPPED:
		return SPACE_MAPPED;
	case MEM_RESERVED:
		return SPACE_RESERVED;
	default:
		return SPACE_MEMORY;
	}
}

/* NULL: unknown, or taken before attach. */
static struct taken *find(struct cuda_calls *c, enum space space, uint64_t addr)
{
	uint64_t i;

	return map64__get(c->at[space], addr, &i) ? &c->taken[i] : NULL;
}

static uint32_t new_index(struct cuda_calls *c)
{
	uint32_t i = c->first_free;

	if (i != NO_INDEX) {
		c->first_free = c->taken[i].physical;
		return i;
	}
	if (c->n_taken == TAKEN_MAX ||
	    array__grow(&c->taken, &c->cap_taken, c->n_taken + 1, sizeof(*c->taken)))
		return NO_INDEX;
	return c->n_taken++;
}

static void free_index(struct cuda_calls *c, uint32_t i)
{
	c->taken[i] = (struct taken){ .physical = c->first_free };
	c->first_free = i;
}

/* Keeps an entry. Without room for it, the event of its end has no size and no device. */
static void remember(struct cuda_calls *c, enum space space, const struct taken *t)
{
	uint32_t i = new_index(c);

	if (i == NO_INDEX) {
		c->forgotten++;
		return;
	}
	c->taken[i] = *t;
	if (map64__set(c->at[space], t->addr, i)) {
		free_index(c, i);
		c->forgotten++;
	} else if (t->how == MEM_MAPPED && t->physical != NO_INDEX) {
		c->taken[t->physical].mappings++;
	}
}

static bool is_library(const char *path)
{
	static const char *const names[] = { "libnccl",	    "libcublas",   "libcudnn",	"libcufft",
					     "libcusolver", "libcusparse", "libcurand", "libcupti",
					     "libcutensor", "libnvshmem",  "libnvjpeg" };
	const char *base = strrchr(path, '/');
	size_t i;

	for (i = 0; base && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(base + 1, names[i], strlen(names[i])))
			return true;
	return false;
}

/* True for calls of NVIDIA's libraries for themselves. A pluggable allocator's blocks are all other
 * calls. */
static bool by_library(struct decoder *d, uint64_t caller)
{
	struct cuda_calls *c = d->calls;
	const struct map *map;
	struct maps maps;
	bool library;

	if (in_ranges(c->library, c->n_library, caller))
		return true;
	if (in_ranges(c->elsewhere, c->n_elsewhere, caller) || c->n_library == RANGES_MAX ||
	    c->n_elsewhere == RANGES_MAX || proc__maps(d->target->proc, &maps))
		return false;
	map = maps__find(&maps, caller);
	library = map && is_library(map->path);
	if (library)
		add_ranges(c->library, &c->n_library, &maps, map);
	else if (map)
		add_ranges(c->elsewhere, &c->n_elsewhere, &maps, map);
	maps__free(&maps);
	return library;
}

/* True if this memory is a block: PyTorch's allocator does not cache, and this is its call, or
 * there is no PyTorch. */
static bool is_block(struct decoder *d, uint8_t how, bool own, uint64_t caller)
{
	const struct cuda_calls *c = d->calls;

	if (d->cuda_only)
		return how == MEM_DEVICE || how == MEM_ASYNC || how == MEM_MANAGED ||
		       how == MEM_PHYSICAL;
	if (c->backend == ALLOC_CUDA_ASYNC)
		return own && how == MEM_ASYNC;
	return c->backend == ALLOC_PLUGGABLE && (how == MEM_DEVICE || how == MEM_ASYNC) &&
	       !by_library(d, caller);
}

/* True for device memory on any device. */
static bool on_device(uint8_t how)
{
	return how != MEM_HOST && how != MEM_REGISTERED && how != MEM_RESERVED;
}

static struct device device_of(struct cuda_calls *c, const struct cuda_function *fn,
			       const struct thread *t, const struct mt_rec_call *r,
			       const struct taken *physical, const struct pool *pool)
{
	struct device d = { DEVICE_CUDA, DEVICE_UNKNOWN };

	switch (fn->device) {
	case CUDA_DEVICE_CURRENT:
		if (t->cuda_device)
			d.index = t->cuda_device - 1;
		else if (c->devices == 1)
			d.index = 0;
		break;
	case CUDA_DEVICE_NONE:
		if (on_device(fn->how) && c->devices == 1)
			d.index = 0;
		break;
	case CUDA_DEVICE_POOL:
		if (pool)
			d.index = pool->device;
		else if (c->devices == 1)
			d.index = 0;
		break;
	case CUDA_DEVICE_PROP:
		if ((uint32_t)r->arg[2] == LOCATION_DEVICE && r->arg[2] >> 32 < DEVICE_UNKNOWN)
			d.index = r->arg[2] >> 32;
		break;
	case CUDA_DEVICE_HANDLE:
		if (physical)
			d = physical->device;
		break;
	}
	return d;
}

static const struct pool *find_pool(const struct cuda_calls *c, uint64_t handle)
{
	size_t i;

	for (i = 0; i < c->n_pools; i++)
		if (c->pool[i].handle == handle)
			return &c->pool[i];
	return NULL;
}

static bool on_host(uint32_t location)
{
	return location >= LOCATION_HOST && location <= LOCATION_HOST_NUMA_CURRENT;
}

/* enum mem_how of a call: some functions depend on their arguments. */
static uint8_t how_of(const struct cuda_function *fn, const struct mt_rec_call *r,
		      const struct pool *pool)
{
	if (pool)
		return pool->how;
	return fn->device == CUDA_DEVICE_PROP && on_host((uint32_t)r->arg[2]) ? MEM_HOST : fn->how;
}

/* False: unreadable, or too large to be true. */
static bool size_of(const struct cuda_function *fn, const struct mt_rec_call *r, uint64_t *size)
{
	uint64_t n = r->arg[1];

	if (fn->size == CUDA_SIZE_PITCH && __builtin_mul_overflow(n, r->arg[3], &n))
		return false;
	if (fn->size == CUDA_SIZE_EXTENT &&
	    (__builtin_mul_overflow(n, r->arg[2], &n) || __builtin_mul_overflow(n, r->arg[3], &n)))
		return false;
	*size = n;
	return n <= INT64_MAX;
}

/* ---- records ---- */

/* Emits the end of an entry. e: thread, time and flags. */
static int give(struct decoder *d, const struct taken *t, struct event e)
{
	if (t->silent)
		return 0;
	e.kind = t->block ? EVENT_FREE : EVENT_CUDA_FREE;
	e.how = t->how;
	e.addr = t->addr;
	e.size = t->size;
	e.device = t->device;
	return decoder__emit(d, &e);
}

/* Ends physical memory once no handle and no mapping holds it. */
static int drop_physical(struct decoder *d, uint32_t i, struct event e)
{
	struct cuda_calls *c = d->calls;
	struct taken t = c->taken[i];

	if (t.holders || t.mappings)
		return 0;
	free_index(c, i);
	return give(d, &t, e);
}

/* Removes an entry and emits its end. */
static int end(struct decoder *d, enum space space, uint64_t addr, struct event e)
{
	struct cuda_calls *c = d->calls;
	struct taken t;
	uint64_t i;
	int err;

	if (!map64__del(c->at[space], addr, &i))
		return 0;
	t = c->taken[i];
	if (space == SPACE_PHYSICAL) {
		c->taken[i].holders = 0;
		return drop_physical(d, i, e);
	}
	free_index(c, i);
	err = give(d, &t, e);
	if (err || t.how != MEM_MAPPED || t.physical == NO_INDEX)
		return err;
	c->taken[t.physical].mappings--;
	return drop_physical(d, t.physical, e);
}

/* Adds the native frames of a call, unless PyTorch's allocator made it. 0 or -ENOMEM. */
static int set_native_stack(struct decoder *d, const struct mt_rec_call *r, struct event *e)
{
	if (!(e->flags & MEM_BY_ALLOCATOR))
		return decoder__join_native(d, r->h.tid, r->entered, &e->stack, &e->walk);
	if (d->native)
		native_stacks__drop(d->native, r->h.tid);
	return 0;
}

static int on_take(struct decoder *d, const struct cuda_function *fn, const struct mt_rec_call *r,
		   struct thread *thread, struct event e)
{
	struct cuda_calls *c = d->calls;
	struct taken *physical = fn->device == CUDA_DEVICE_HANDLE
					 ? find(c, SPACE_PHYSICAL, r->arg[3])
					 : NULL;
	const struct pool *pool = fn->device == CUDA_DEVICE_POOL ? find_pool(c, r->arg[2]) : NULL;
	struct taken t = { .how = how_of(fn, r, pool),
			   .time = r->h.time,
			   .physical = NO_INDEX,
			   .context = thread->cuda_context };
	struct taken *there;
	struct event ended = e;
	int err;

	t.addr = fn->flags & MT_CALL_OUT ? r->out : r->arg[0];
	if (!size_of(fn, r, &t.size) || t.addr == UINT64_MAX) {
		c->unreadable++;
		return 0;
	}
	if (!t.addr || !t.size)
		return 0; /* a call that asked for 0 bytes */
	t.holders = fn->how == MEM_PHYSICAL;
	if (physical) {
		t.physical = physical - c->taken;
		t.silent = physical->silent || physical->how == MEM_HOST;
	}
	if (on_device(t.how))
		t.device = device_of(c, fn, thread, r, physical, pool);
	else
		t.device = (struct device){ DEVICE_CUDA, DEVICE_UNKNOWN };
	t.in_context = fn->how == MEM_DEVICE || fn->how == MEM_MANAGED || fn->how == MEM_HOST;
	t.under = thread->cuda_device ?: c->devices == 1;
	t.block = is_block(d, t.how, e.flags & MEM_BY_ALLOCATOR, r->caller);
	there = find(c, space_of(fn->how), t.addr);
	if (there) {
		/* Freed by another thread's call that has not returned: its record comes later. */
		c->replaced++;
		t.owed = true;
		ended.flags = 0;
		err = end(d, space_of(fn->how), t.addr, ended);
		if (err)
			return err;
	}
	remember(c, space_of(fn->how), &t);
	if (t.silent)
		return 0;
	e.kind = t.block ? EVENT_ALLOC : EVENT_CUDA_ALLOC;
	e.how = t.how;
	e.addr = t.addr;
	e.size = t.size;
	e.device = t.device;
	e.walk = r->h.walk;
	e.stack = decoder__stack(d, r->stack, &e.walk);
	err = set_native_stack(d, r, &e);
	if (err)
		return err;
	if (t.block && autograd__node(d, thread, &r->h, &e.node))
		return -ENOMEM;
	return decoder__emit(d, &e);
}

/* Ends all mappings in a range: one call may unmap several. */
static int on_unmap(struct decoder *d, uint64_t addr, uint64_t size, struct event e)
{
	struct map64 *m = d->calls->at[SPACE_MAPPED];
	uint64_t at, i, *v;
	size_t pos = 0, n = 0, k;
	int err = 0;

	if (map64__get(m, addr, &i) && d->calls->taken[i].size >= size)
		return end(d, SPACE_MAPPED, addr, e);
	v = malloc((map64__count(m) + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	while (map64__next(m, &pos, &at, &i))
		if (at >= addr && at - addr < size)
			v[n++] = at;
	qsort(v, n, sizeof(*v), array__compare_u64);
	for (k = 0; k < n && !err; k++)
		err = end(d, SPACE_MAPPED, v[k], e);
	free(v);
	return err;
}

static int on_give(struct decoder *d, const struct cuda_function *fn, const struct mt_rec_call *r,
		   struct event e)
{
	struct cuda_calls *c = d->calls;
	enum space space = space_of(fn->how);
	struct taken *t;

	if (!r->arg[0])
		return 0;
	t = find(c, space, r->arg[0]);
	if (t && t->owed && r->entered < t->time) {
		t->owed = false;
		return 0;
	}
	if (!t) {
		/* Taken before attach, or by a function that is not probed. */
		e.kind = is_block(d, fn->how, e.flags & MEM_BY_ALLOCATOR, r->caller)
				 ? EVENT_FREE
				 : EVENT_CUDA_FREE;
		e.how = fn->how;
		e.addr = r->arg[0];
		e.size = fn->size == CUDA_SIZE_ARG1 ? r->arg[1] : 0;
		e.device = (struct device){ DEVICE_CUDA, on_device(fn->how) && c->devices == 1
								 ? 0
								 : DEVICE_UNKNOWN };
		return decoder__emit(d, &e);
	}
	if (fn->how == MEM_MAPPED)
		return on_unmap(d, r->arg[0], r->arg[1], e);
	if (fn->how == MEM_PHYSICAL && t->holders > 1) {
		t->holders--;
		return 0;
	}
	return end(d, space, r->arg[0], e);
}

/* Keeps memory of another process, which counts there. */
static void on_import(struct cuda_calls *c, const struct mt_rec_call *r)
{
	struct taken t = { .addr = r->out,
			   .how = MEM_PHYSICAL,
			   .physical = NO_INDEX,
			   .holders = 1,
			   .silent = true };
	struct taken *there = find(c, SPACE_PHYSICAL, r->out);

	if (there)
		there->holders++;
	else if (r->out != UINT64_MAX)
		remember(c, SPACE_PHYSICAL, &t);
}

static void on_pool(struct cuda_calls *c, const struct mt_rec_call *r)
{
	struct pool p = { .handle = r->out, .how = MEM_ASYNC, .device = DEVICE_UNKNOWN };
	struct pool *there = (struct pool *)find_pool(c, r->out);

	if (on_host((uint32_t)r->arg[1]))
		p.how = MEM_HOST;
	else if ((uint32_t)r->arg[2] == POOL_MANAGED)
		p.how = MEM_MANAGED;
	if ((uint32_t)r->arg[1] == LOCATION_DEVICE && r->arg[1] >> 32 < DEVICE_UNKNOWN)
		p.device = r->arg[1] >> 32;
	if (there)
		*there = p;
	else if (c->n_pools < POOLS_MAX)
		c->pool[c->n_pools++] = p;
}

/* ---- contexts: which device a thread uses, and what ends with one ---- */

static void know_context(struct cuda_calls *c, uint64_t handle, uint64_t device, bool primary)
{
	size_t i;

	for (i = 0; i < c->n_contexts && c->context[i].handle != handle; i++)
		;
	if (i == CONTEXTS_MAX)
		return;
	c->n_contexts += i == c->n_contexts;
	c->context[i] = (struct context){ handle, device < DEVICE_UNKNOWN ? device : DEVICE_UNKNOWN,
					  primary };
}

static void use_context(const struct cuda_calls *c, struct thread *t, uint64_t handle)
{
	size_t i;

	t->cuda_context = CONTEXT_UNKNOWN;
	t->cuda_device = 0;
	for (i = 0; i < c->n_contexts; i++) {
		if (c->context[i].handle != handle)
			continue;
		t->cuda_context = c->context[i].primary ? 0 : handle;
		t->cuda_device = c->context[i].device == DEVICE_UNKNOWN ? 0
									: c->context[i].device + 1;
	}
}

static void push_context(struct thread *t)
{
	size_t i;

	if (t->n_pushed == CUDA_PUSHED) { /* drop the lowest one */
		for (i = 1; i < CUDA_PUSHED; i++)
			t->pushed[i - 1] = t->pushed[i];
		t->n_pushed--;
	}
	t->pushed[t->n_pushed].context = t->cuda_context;
	t->pushed[t->n_pushed++].device = t->cuda_device;
}

static void pop_context(struct thread *t)
{
	t->cuda_context = CONTEXT_UNKNOWN;
	t->cuda_device = 0;
	if (!t->n_pushed)
		return;
	t->cuda_context = t->pushed[--t->n_pushed].context;
	t->cuda_device = t->pushed[t->n_pushed].device;
}

/* Ends all memory that cudaMalloc, cudaMallocHost and cudaMallocManaged took in a context. Pools,
 * and memory of cuMemCreate, outlive it. context: 0: the primary context of device. */
static int end_context(struct decoder *d, uint64_t context, unsigned device, struct event e)
{
	struct cuda_calls *c = d->calls;
	uint32_t i;
	int err = 0;

	c->moved = true;
	for (i = 0; i < c->n_taken && !err; i++) {
		const struct taken *t = &c->taken[i];

		if (t->in_context && t->context == context && (context || t->under == device + 1))
			err = end(d, SPACE_MEMORY, t->addr, e);
	}
	return err;
}

static int on_context(struct decoder *d, const struct cuda_function *fn,
		      const struct mt_rec_call *r, struct thread *t, struct event e)
{
	struct cuda_calls *c = d->calls;
	unsigned n = c->n_contexts;

	/* The runtime's own call: the program's call that caused it is recorded, too. */
	if (in_ranges(c->runtime, c->n_runtime, r->caller))
		return 0;
	switch (fn->op) {
	case CUDA_RESET:
		if (fn->device == CUDA_DEVICE_ARG0)
			return end_context(d, 0, (uint32_t)r->arg[0], e);
		if (t->cuda_context) /* resets only the runtime's state of that context */
			return 0;
		return t->cuda_device || c->devices == 1
			       ? end_context(d, 0, t->cuda_device ? t->cuda_device - 1u : 0, e)
			       : 0;
	case CUDA_CTX_RETAIN:
		know_context(c, r->out, (uint32_t)r->arg[1], true);
		break;
	case CUDA_CTX_CREATE:
		know_context(c, r->out,
			     fn->device == CUDA_DEVICE_NONE
				     ? DEVICE_UNKNOWN
				     : (uint32_t)r->arg[fn->device - CUDA_DEVICE_ARG0],
			     false);
		push_context(t);
		use_context(c, t, r->out);
		break;
	case CUDA_CTX_DESTROY:
		if (t->cuda_context == r->arg[0])
			pop_context(t);
		while (n-- > 0)
			if (c->context[n].handle == r->arg[0])
				c->context[n] = c->context[--c->n_contexts];
		return end_context(d, r->arg[0], 0, e);
	case CUDA_CTX_PUSH:
		push_context(t);
		use_context(c, t, r->arg[0]);
		break;
	case CUDA_CTX_SET:
		use_context(c, t, r->arg[0]);
		break;
	case CUDA_CTX_POP:
		pop_context(t);
		break;
	}
	return 0;
}

int cuda_calls__record(struct decoder *d, const struct mt_rec_call *r)
{
	const struct cuda_function *fn = cuda__function(r->fn);
	struct thread *t = decoder__thread(d, r->h.tid);
	struct cuda_calls *c = d->calls;
	struct event e = { 0 };
	struct taken *held;

	if (!fn || !c)
		return -EBADMSG;
	if (!t)
		return -ENOMEM;
	if (r->result) {
		c->failed[r->fn]++;
		return 0;
	}
	c->done[r->fn]++;
	if (!c->smi) /* the first use of CUDA in a forked process */
		c->smi = nvml__open(d->target->proc, c->dry_run);
	c->moved = c->moved || (fn->how && on_device(fn->how));
	c->changes += !fn->how || on_device(fn->how);
	count_devices(c);
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	e.flags = in_ranges(c->own, c->n_own, r->caller) ? MEM_BY_ALLOCATOR : 0;
	if (fn->op == CUDA_TAKE && r->flags & MT_CALL_RUNTIME && c->driver_since &&
	    r->entered > c->driver_since)
		c->runtime_took++;
	switch (fn->op) {
	case CUDA_TAKE:
		before_take(d, e.flags & MEM_BY_ALLOCATOR);
		return on_take(d, fn, r, t, e);
	case CUDA_GIVE:
		return on_give(d, fn, r, e);
	case CUDA_RETAIN:
		held = find(c, SPACE_PHYSICAL, r->out);
		if (held)
			held->holders++;
		return 0;
	case CUDA_IMPORT:
		on_import(c, r);
		return 0;
	case CUDA_POOL:
		on_pool(c, r);
		return 0;
	}
	return on_context(d, fn, r, t, e);
}

void cuda_calls__tensors(struct decoder *d, unsigned device, uint64_t bytes)
{
	const struct cuda_calls *c = d->calls;
	uint64_t largest = 0;
	uint32_t i;

	if (!c || c->backend != ALLOC_PLUGGABLE || !bytes ||
	    facts__get(d->facts, "allocator_block"))
		return;
	for (i = 0; i < c->n_taken; i++)
		if (c->taken[i].block && c->taken[i].device.index == device &&
		    c->taken[i].size > largest)
			largest = c->taken[i].size;
	if (largest <= bytes)
		return;
	facts__setf(d->facts, "allocator_block", "%" PRIu64, largest);
	facts__setf(d->facts, "allocator_tensors", "%" PRIu64, bytes);
}

int cuda_calls__set_device(struct decoder *d, const struct mt_rec_call *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	uint32_t device = (uint32_t)r->arg[0]; /* an int: the register's upper half is undefined */

	if (!t)
		return -ENOMEM;
	/* The runtime refuses a device that the process does not have. */
	if (device >= DEVICE_UNKNOWN ||
	    (d->calls && d->calls->devices && device >= d->calls->devices))
		return 0;
	t->cuda_device = (uint8_t)device + 1;
	t->cuda_context = 0;
	return 0;
}

int cuda_calls__asked(struct decoder *d, const struct mt_rec_asked *r)
{
	struct thread *t = decoder__thread(d, r->h.tid);
	struct event e = { .kind = EVENT_REQUESTED, .device = { DEVICE_CUDA, DEVICE_UNKNOWN } };

	if (!t)
		return -ENOMEM;
	if (!r->addr)
		return 0;
	if (r->device < DEVICE_UNKNOWN)
		e.device.index = r->device;
	e.thread = t->number;
	e.time = decoder__since(d, r->h.time);
	e.addr = r->addr;
	e.requested = r->requested;
	e.cuda_stream = r->stream;
	return decoder__emit(d, &e);
}

static void set_counter(struct decoder *d, const char *what, const char *of, uint64_t n)
{
	char key[96];

	if (!n)
		return;
	snprintf(key, sizeof(key), "counter.%s%s", what, of);
	facts__setf(d->facts, key, "%" PRIu64, n);
}

/* Warns if the runtime takes memory without a call of a probed driver function. Then the driver
 * gave it functions that it does not export. */
static void look_for_bypass(struct cuda_calls *calls, const uint64_t c[MT_CNT_NR])
{
	if (calls->bypassed || calls->runtime_took < BYPASS_CALLS || c[MT_CNT_CALL_DRIVER])
		return;
	calls->bypassed = true;
	log_warn("calls into CUDA's driver bypass the probes: memory of libraries (cuBLAS, NCCL) "
		 "and expandable segments is not recorded. PyTorch's tensors are. Please report "
		 "the driver's version");
}

void cuda_calls__set_facts(struct decoder *d, const uint64_t c[MT_CNT_NR])
{
	struct cuda_calls *calls = d->calls;
	uint32_t i;

	if (!calls)
		return;
	look_for_bypass(calls, c);
	for (i = 0; i < cuda__functions(); i++) {
		set_counter(d, "calls.", cuda__function(i)->name, calls->done[i]);
		set_counter(d, "calls_failed.", cuda__function(i)->name, calls->failed[i]);
	}
	if (calls->bypassed)
		facts__set(d->facts, "driver_bypassed", "1");
	set_counter(d, "calls_", "inner", c[MT_CNT_CALL_INNER]);
	set_counter(d, "calls_", "stale", c[MT_CNT_CALL_STALE]);
	set_counter(d, "calls_", "faults", c[MT_CNT_CALL_FAULT]);
	set_counter(d, "calls_", "unreadable", calls->unreadable);
	set_counter(d, "calls_", "forgotten", calls->forgotten);
	set_counter(d, "calls_", "replaced", calls->replaced);
	set_counter(d, "asked_", "faults", c[MT_CNT_ASKED_FAULT]);
}
