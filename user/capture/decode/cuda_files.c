/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The files with calls into CUDA that the process maps: finds and probes them. */
#include "capture/decode/cuda_calls_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map64.h"
#include "base/text.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "inspect/container.h"
#include "inspect/cuda.h"
#include "inspect/elf.h"
#include "inspect/native_stacks.h"
#include "inspect/proc.h"
#include "inspect/torch.h"

#define LOOK_EVERY 20000000ULL	/* ns between two checks whether more code is mapped */
#define SCAN_EVERY 100000000ULL /* ns between two scans of the mapped files */
#define FILES_MAX 65536		/* about as many as a process can map */

/* KiB of library code that the process maps: it changes with libraries and not with the heap. 0:
 * unreadable. */
static uint64_t mapped_library_kib(const struct cuda_calls *c)
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

/* A key for a mapped file, from its device and inode. */
static uint64_t file_key(const struct map *m)
{
	uint64_t h = (m->inode * 0x9e3779b97f4a7c15ULL ^
		      ((uint64_t)m->dev_major << 32 | m->dev_minor)) *
		     0xbf58476d1ce4e5b9ULL;

	return h ^ h >> 31;
}

/* True if the file was not looked into so far; from now on it was. False also without memory. */
static bool note_new_file(struct cuda_calls *c, const struct map *m)
{
	uint64_t v;

	return !map64__get(c->files, file_key(m), &v) &&
	       !map64__set(c->files, file_key(m), NOTHING);
}

/* Forgets which files have no CUDA functions. Most of them are not mapped any more; the others are
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

void cuda_files__add_ranges(struct range v[RANGES_MAX], size_t *n, const struct maps *m,
			    const struct map *file)
{
	size_t i;

	for (i = 0; i < m->n && *n < RANGES_MAX; i++)
		if (m->v[i].x && m->v[i].inode == file->inode &&
		    m->v[i].dev_major == file->dev_major && m->v[i].dev_minor == file->dev_minor)
			v[(*n)++] = (struct range){ m->v[i].start, m->v[i].end };
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

/* True if the process has a shadow stack and this kernel's return probes do not keep it right. */
static bool breaks_shadow_stack(const struct proc *p)
{
	struct utsname un;

	return proc__shadow_stack(p) && (uname(&un) || !seccomp__keeps_shadow_stack(un.release));
}

/* True if return probes would end the process: on this kernel, a shadow stack or a seccomp filter
 * does not allow them. Warns once. */
static bool returns_would_kill(struct decoder *d)
{
	bool shadow = !d->opts->inside && breaks_shadow_stack(d->target->proc);

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

/* The bits of enum mt_call_flag that tell where a function is. runtime: its file is a CUDA
 * runtime. */
static uint32_t origin_flags(const struct cuda_function *fn, bool runtime)
{
	if (!is_driver(fn))
		return runtime ? MT_CALL_RUNTIME : 0;
	return fn->op == CUDA_TAKE ? MT_CALL_DRIVER : 0;
}

/* Attaches n sites of calls, and n_set sites of cudaSetDevice. 0 or -errno. CALL_RETURN comes
 * before CALL_ENTER, so that each recorded entry has a return. */
static int attach_sites(struct decoder *d, const struct call_file *file,
			const struct probe_site *calls, size_t n, const struct probe_site *set,
			size_t n_set)
{
	pid_t pid = proc__pid(d->target->proc);
	int err = probes__attach_calls(d->probes, pid, CALL_SET_DEVICE, file, set, n_set);

	if (err)
		return err;
	err = probes__attach_calls(d->probes, pid, CALL_RETURN, file, calls, n);
	return err ? err : probes__attach_calls(d->probes, pid, CALL_ENTER, file, calls, n);
}

/* Attaches the probes on the CUDA functions of a mapped file, unless return probes would end the
 * process. 0 or -errno. */
static int attach_file(struct decoder *d, const struct map *map, const struct cuda_file *f)
{
	struct call_file file = call_file(f, map);
	bool runtime = !has_driver(f);
	struct probe_site calls[CUDA_SITES_MAX], set[CUDA_SITES_MAX];
	size_t n = 0, n_set = 0, i;
	int err;

	if (returns_would_kill(d))
		return 0;
	for (i = 0; i < f->n; i++) {
		const struct cuda_function *fn = cuda__function(f->site[i].fn);
		struct probe_site site = { .offset = f->site[i].offset,
					   .second = f->site[i].site.second };

		site.cookie = MT_CALL_COOKIE(f->site[i].fn, fn->flags | origin_flags(fn, runtime));
		if (fn->op != CUDA_SET_DEVICE)
			calls[n++] = site;
		else if (d->calls->devices != 1)
			set[n_set++] = site;
	}
	err = attach_sites(d, &file, calls, n, set, n_set);
	if (probes__calls_each(d->probes, &file) && !proc__alive(d->target->proc))
		/* the PID may be another process's now */
		probes__leave(d->probes, proc__pid(d->target->proc));
	return err;
}

/* Says why requested sizes cannot be recorded; as a warning only if the user wants them. */
__attribute__((format(printf, 2, 3))) static void say_no_requested(const struct decoder *d,
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

static void say_not_available(const struct decoder *d, int err)
{
	const char *why = strerror(-err);

	if (err == -ENOENT)
		why = "it was built without the probe pytorch:malloc";
	else if (err == -EINVAL)
		why = "the format of its probe pytorch:malloc is unknown";
	say_no_requested(d, "not available with this PyTorch: %s", why);
}

/* Attaches to PyTorch's own probe of requested sizes: pytorch:malloc(ptr, device, size, stream).
 * new_file: no other process of the group has probed this file. */
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
		say_no_requested(
			d,
			"PyTorch 2.1 does not report the requested size with the block's address");
		return;
	}
	err = usdt__find(f->elf, "pytorch", "malloc", MT_ASKED_ARGS, &u);
	if (err) {
		say_not_available(d, err);
		return;
	}
	for (i = 0; i < u.n; i++)
		sites[i] = (struct probe_site){ .offset = u.site[i].offset,
						.cookie = i,
						.ref_ctr = u.site[i].semaphore };
	if (d->opts->requested && d->opts->group)
		log_info("--requested: PyTorch's probe is on in every process that maps %s, also "
			 "in those that are not recorded",
			 map->path);
	probes__set_asked(d->probes, u.args, u.n);
	err = probes__attach_calls(d->probes, proc__pid(d->target->proc), CALL_ASKED, &file, sites,
				   u.n);
	if (err)
		say_not_available(d, err);
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

/* Probes the CUDA functions of a file that no other process of a group has probed yet. Warns if
 * that is not possible. */
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
		const char *what = err == -EXDEV ? "no" : "the kernel refused";

		if (d->opts->inside)
			what = "no breakpoints for";
		log_warn("%s probes on calls into %s: %s; memory allocated there is not recorded",
			 what, file, why_refused(d, err));
		return;
	}
	note_driver(d->calls, has_driver(f));
	log_debug("%zu CUDA functions probed in %s%s", f->n, file,
		  f->refused ? ", some refused" : "");
}

/* Probes a file as far as that is useful. Returns what it has: bits of enum file. */
static int use_file(struct decoder *d, const struct maps *m, const struct map *map,
		    const struct cuda_file *f)
{
	struct cuda_calls *c = d->calls;
	const struct call_file id = call_file(f, map);
	char file[256];
	int bits = NOTHING;
	/* no other process of the group has probed the file */
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
			cuda_files__add_ranges(c->runtime, &c->n_runtime, m, map);
		if (new_file)
			probe_functions(d, map, f, file);
		else
			note_driver(c, has_driver(f));
	}
	if (f->allocator)
		bits |= HAS_ALLOCATOR;
	if (f->n || f->usage)
		bits |= HAS_CALLS;
	return bits;
}

/*
 * Looks into a mapped file and probes its functions. Returns bits of enum file, or -errno if it
 * cannot be read now.
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

/*
 * Finds the code of the recorded PyTorch's allocator. With two libtorch mapped, only
 * libtorch_python tells which one is in use, and it is mapped last. An ending process maps
 * nothing, but the ring may still have its calls: then the old ranges stay.
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

void cuda_files__scan(struct decoder *d)
{
	struct cuda_calls *c = d->calls;
	struct maps maps;
	size_t i;
	int found;

	c->lib_kib = mapped_library_kib(c);
	if (d->native)
		native_stacks__refresh(d->native);
	if (proc__maps(d->target->proc, &maps))
		return;
	for (i = 0; i < maps.n; i++) {
		const struct map *m = &maps.v[i];

		if (!m->x || !m->inode || m->path[0] != '/' || !note_new_file(c, m))
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
		cuda_figures__open(d);
	if (!c->backend_fixed && c->n_own)
		c->backend = target__backend(d->target, d->facts, decoder__now(d));
}

void cuda_calls__look(struct decoder *d, uint64_t now)
{
	struct cuda_calls *c = d->calls;

	if (!c || now < c->next_look)
		return;
	c->next_look = now + LOOK_EVERY;
	cuda_figures__open(d);
	if (now < c->next_scan || mapped_library_kib(c) == c->lib_kib)
		return;
	c->next_scan = now + SCAN_EVERY;
	cuda_files__scan(d);
}
