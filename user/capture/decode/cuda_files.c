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
#include "capture/decode/usdt_probes.h"
#include "capture/probes.h"
#include "capture/target.h"
#include "inspect/container.h"
#include "inspect/cuda.h"
#include "inspect/elf.h"
#include "inspect/native_stacks.h"
#include "inspect/proc.h"
#include "inspect/torch.h"

#define LOOK_EVERY 20000000ULL	/* ns between two checks whether more code is mapped */
#define SURE_EVERY 200000000ULL /* ns between two checks that do not rely on the size of the map */
#define SCAN_EVERY 100000000ULL /* ns between two scans of the mapped files */
#define FILES_MAX 65536		/* about as many as a process can map */

/* KiB of library code that the process maps: it changes with libraries and not with the heap. 0:
 * unreadable. */
static uint64_t mapped_library_kib(const struct cuda_calls *calls)
{
	char buf[4096];
	const char *at;
	ssize_t n;

	n = calls->status < 0 ? -1 : pread(calls->status, buf, sizeof(buf) - 1, 0);
	if (n <= 0)
		return 0;
	buf[n] = '\0';
	at = strstr(buf, "\nVmLib:");
	return at ? strtoull(at + 7, NULL, 10) : 0;
}

/* Pages that the process maps: the first number of statm, which the kernel writes ten times as fast
 * as status. 0: unreadable. */
static uint64_t mapped_pages(const struct cuda_calls *calls)
{
	char buf[128];
	ssize_t n = calls->statm < 0 ? -1 : pread(calls->statm, buf, sizeof(buf) - 1, 0);

	if (n <= 0)
		return 0;
	buf[n] = '\0';
	return strtoull(buf, NULL, 10);
}

/* True if libraries may have been mapped since the last scan. */
static bool may_have_more(struct cuda_calls *calls, uint64_t now)
{
	uint64_t pages = mapped_pages(calls);

	/* As many pages may be unmapped as a library has, so look for certain now and then. */
	if (pages && pages == calls->pages && now < calls->next_sure)
		return false;
	calls->pages = pages;
	calls->next_sure = now + SURE_EVERY;
	return mapped_library_kib(calls) != calls->lib_kib;
}

/* A key for a mapped file, from its device and inode. */
static uint64_t file_key(const struct map *map)
{
	uint64_t h = (map->inode * 0x9e3779b97f4a7c15ULL ^
		      ((uint64_t)map->dev_major << 32 | map->dev_minor)) *
		     0xbf58476d1ce4e5b9ULL;

	return h ^ h >> 31;
}

/* True if the file was not looked into so far; from now on it was. False also without memory. */
static bool note_new_file(struct cuda_calls *calls, const struct map *map)
{
	uint64_t v;

	return !map64__get(calls->files, file_key(map), &v) &&
	       !map64__set(calls->files, file_key(map), NOTHING);
}

/* Forgets which files have no CUDA functions. Most of them are not mapped any more; the others are
 * looked into again. 0 or -ENOMEM. */
static int forget_files(struct cuda_calls *calls)
{
	struct map64 *kept = map64__new();
	uint64_t key, value;
	size_t pos = 0;
	int err = kept ? 0 : -ENOMEM;

	while (!err && map64__next(calls->files, &pos, &key, &value))
		err = value == NOTHING ? 0 : map64__set(kept, key, value);
	if (err) {
		map64__free(kept);
		return err;
	}
	map64__free(calls->files);
	calls->files = kept;
	return 0;
}

void cuda_files__add_ranges(struct range ranges[RANGES_MAX], size_t *n, const struct maps *maps,
			    const struct map *file)
{
	size_t i;

	for (i = 0; i < maps->n && *n < RANGES_MAX; i++)
		if (maps->v[i].x && maps->v[i].inode == file->inode &&
		    maps->v[i].dev_major == file->dev_major &&
		    maps->v[i].dev_minor == file->dev_minor)
			ranges[(*n)++] = (struct range){ maps->v[i].start, maps->v[i].end };
}

/* True for functions of the driver; those of the runtime are called cuda*. */
static bool is_driver(const struct cuda_function *fn)
{
	return !text__starts(fn->name, "cuda");
}

static bool has_driver(const struct cuda_file *file)
{
	size_t i;

	for (i = 0; i < file->n; i++)
		if (is_driver(cuda__function(file->site[i].fn)))
			return true;
	return false;
}

/* True if the process has a shadow stack and this kernel's return probes do not keep it right. */
static bool breaks_shadow_stack(const struct proc *proc)
{
	struct utsname un;

	return proc__shadow_stack(proc) && (uname(&un) || !seccomp__keeps_shadow_stack(un.release));
}

/* True if return probes would end the process: on this kernel, a shadow stack or a seccomp filter
 * does not allow them. Warns once. */
static bool returns_would_kill(struct decoder *decoder)
{
	bool shadow = !decoder->opts->inside && breaks_shadow_stack(decoder->target->proc);

	if (!shadow && (decoder->opts->inside || seccomp__allows_returns(decoder->target->proc)))
		return false;
	if (!decoder->calls->warned_filtered && shadow)
		log_warn("PID %d: calls into CUDA are not recorded: the process has a shadow "
			 "stack, and before Linux 6.11 a return probe "
			 "would end it",
			 (int)proc__pid(decoder->target->proc));
	else if (!decoder->calls->warned_filtered)
		log_warn("PID %d: calls into CUDA are not recorded: the process has a seccomp "
			 "filter, and on this kernel (Linux 6.11 "
			 "to 6.13) the filter would end it at the first return probe. Linux "
			 "6.12.14, 6.13.3 and 6.14 have the fix",
			 (int)proc__pid(decoder->target->proc));
	decoder->calls->warned_filtered = true;
	return true;
}

static struct call_file call_file(const struct cuda_file *file, const struct map *map)
{
	return (struct call_file){ file->elf, map->inode, map->dev_major, map->dev_minor };
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
static int attach_sites(struct decoder *decoder, const struct call_file *file,
			const struct probe_site *calls, size_t n, const struct probe_site *set,
			size_t n_set)
{
	pid_t pid = proc__pid(decoder->target->proc);
	int err = probes__attach_calls(decoder->probes, pid, CALL_SET_DEVICE, file, set, n_set);

	if (err)
		return err;
	err = probes__attach_calls(decoder->probes, pid, CALL_RETURN, file, calls, n);
	return err ? err : probes__attach_calls(decoder->probes, pid, CALL_ENTER, file, calls, n);
}

/* Attaches the probes on the CUDA functions of a mapped file, unless return probes would end the
 * process. 0 or -errno. */
static int attach_file(struct decoder *decoder, const struct map *map,
		       const struct cuda_file *functions)
{
	struct call_file file = call_file(functions, map);
	bool runtime = !has_driver(functions);
	struct probe_site calls[CUDA_SITES_MAX], set[CUDA_SITES_MAX];
	size_t n = 0, n_set = 0, i;
	int err;

	if (returns_would_kill(decoder))
		return 0;
	for (i = 0; i < functions->n; i++) {
		const struct cuda_function *fn = cuda__function(functions->site[i].fn);
		struct probe_site site = { .offset = functions->site[i].offset,
					   .second = functions->site[i].site.second };

		site.cookie = MT_CALL_COOKIE(functions->site[i].fn,
					     fn->flags | origin_flags(fn, runtime));
		if (fn->op != CUDA_SET_DEVICE)
			calls[n++] = site;
		else if (decoder->calls->devices != 1)
			set[n_set++] = site;
	}
	err = attach_sites(decoder, &file, calls, n, set, n_set);
	if (probes__calls_each(decoder->probes, &file) && !proc__alive(decoder->target->proc))
		/* the PID may be another process's now */
		probes__leave(decoder->probes, proc__pid(decoder->target->proc));
	return err;
}

/* Says why requested sizes cannot be recorded; as a warning only if the user wants them. */
__attribute__((format(printf, 2, 3))) static void say_no_requested(const struct decoder *decoder,
								   const char *fmt, ...)
{
	char why[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (decoder->opts->requested)
		log_warn("--requested: %s", why);
	else
		log_debug("requested sizes are not recorded: %s", why);
}

static void say_not_available(const struct decoder *decoder, int err)
{
	const char *why = strerror(-err);

	if (err == -ENOENT)
		why = "it was built without the probe pytorch:malloc";
	else if (err == -EINVAL)
		why = "the format of its probe pytorch:malloc is unknown";
	else if (err == -ENOTSUP)
		why = "its probe pytorch:malloc is on a long nop, where this kernel's probes end "
		      "forked children";
	say_no_requested(decoder, "not available with this PyTorch: %s", why);
}

/* Attaches to PyTorch's own probe of requested sizes: pytorch:malloc(ptr, device, size, stream).
 * new_file: no other process of the group has probed this file. */
static void attach_requested(struct decoder *decoder, const struct map *map,
			     const struct cuda_file *functions, bool new_file)
{
	struct call_file file = call_file(functions, map);
	struct probe_site sites[USDT_SITES_MAX];
	struct usdt_sites usdt;
	int err;

	if (decoder->calls->asked)
		return; /* only one allocator is in use */
	decoder->calls->asked = true;
	if (!new_file)
		return;
	/* PyTorch 2.1 hits the probe before the allocation, without the block's address. */
	if (text__starts(decoder->target->torch.version, "2.1.")) {
		say_no_requested(
			decoder,
			"PyTorch 2.1 does not report the requested size with the block's address");
		return;
	}
	err = usdt__find(functions->elf, "pytorch", "malloc", MT_ASKED_ARGS, &usdt);
	if (!err && usdt.n > MT_ASKED_SITES)
		err = -EINVAL;
	err = err ?: usdt_probes__choose(decoder, &usdt, sites);
	if (err) {
		say_not_available(decoder, err);
		return;
	}
	if (decoder->opts->requested && decoder->opts->group)
		log_info("--requested: PyTorch's probe is on in every process that maps %s, also "
			 "in those that are not recorded",
			 map->path);
	for (size_t i = 0; i < usdt.n; i++)
		sites[i].cookie = i;
	probes__set_asked(decoder->probes, usdt.args, usdt.n);
	err = probes__attach_calls(decoder->probes, proc__pid(decoder->target->proc), CALL_ASKED,
				   &file, sites, usdt.n);
	if (err)
		say_not_available(decoder, err);
}

/* Notes since when the driver is probed. */
static void note_driver(struct cuda_calls *calls, bool probed)
{
	if (probed && !calls->driver_since)
		calls->driver_since = clock__kernel();
}

/* Says why the probes on a file's functions were refused. */
static const char *why_refused(const struct decoder *decoder, int err)
{
	if (err == -EBUSY)
		return "others' are there";
	if (err != -EXDEV)
		return strerror(-err);
	return decoder->opts->group
		       ? "root may not open the file (FUSE or NFS of another user), and "
			 "this kernel's probes by PID miss threads; record the process by "
			 "itself, with -p PID"
		       : "the file cannot be opened, and this kernel's probes by PID miss "
			 "threads; run memtrace-bpf as root";
}

/* Probes the CUDA functions of a file that no other process of a group has probed yet. Warns if
 * that is not possible. */
static void probe_functions(struct decoder *decoder, const struct map *map,
			    const struct cuda_file *f, const char *file)
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
	err = attach_file(decoder, map, f);
	if (err) {
		const char *what = err == -EXDEV ? "no" : "the kernel refused";

		if (decoder->opts->inside)
			what = "no breakpoints for";
		log_warn("%s probes on calls into %s: %s; memory allocated there is not recorded",
			 what, file, why_refused(decoder, err));
		return;
	}
	note_driver(decoder->calls, has_driver(f));
	log_debug("%zu CUDA functions probed in %s%s", f->n, file,
		  f->refused ? ", some refused" : "");
}

/* Probes a file as far as that is useful. Returns what it has: bits of enum file. */
static int use_file(struct decoder *decoder, const struct maps *maps, const struct map *map,
		    const struct cuda_file *functions)
{
	struct cuda_calls *calls = decoder->calls;
	const struct call_file id = call_file(functions, map);
	char file[256];
	int bits = NOTHING;
	/* no other process of the group has probed the file */
	bool new_file = (!functions->allocator && !functions->n) ||
			probes__new_file(decoder->probes, &id, /*scopes=*/false);

	calls->by_pid |= (functions->allocator || functions->n) && elf__is_memory(functions->elf);
	if (functions->allocator && !torch__is_other(maps, map->path) &&
	    (decoder->opts->requested || decoder->opts->requested_if_there))
		attach_requested(decoder, map, functions, new_file);
	if (functions->usage)
		calls->dry_run = functions->usage;
	text__clean(file, sizeof(file), map->path, strlen(map->path));
	if (functions->throws)
		log_debug("%s: not probed: C++ exceptions may leave its CUDA functions; CUDA's own "
			  "library below it is probed",
			  file);
	if (functions->n) {
		calls->sites = true;
		if (!has_driver(functions))
			cuda_files__add_ranges(calls->runtime, &calls->n_runtime, maps, map);
		if (new_file)
			probe_functions(decoder, map, functions, file);
		else
			note_driver(calls, has_driver(functions));
	}
	if (functions->allocator)
		bits |= HAS_ALLOCATOR;
	if (functions->n || functions->usage)
		bits |= HAS_CALLS;
	return bits;
}

/*
 * Looks into a mapped file and probes its functions. Returns bits of enum file, or -errno if it
 * cannot be read now.
 */
static int look_into(struct decoder *decoder, const struct maps *maps, const struct map *map)
{
	struct cuda_file functions;
	char file[256];
	int err = cuda__look(decoder->target->proc, maps, map, &functions), found;

	if (err) {
		text__clean(file, sizeof(file), map->path, strlen(map->path));
		log_debug("cannot read %s: %s", file, strerror(-err));
		return err;
	}
	found = use_file(decoder, maps, map, &functions);
	decoder->calls->usdt_found |= usdt_probes__attach(decoder, map);
	elf__free(functions.elf);
	return found;
}

/*
 * Finds the code of the recorded PyTorch's allocator. With two libtorch mapped, only
 * libtorch_python tells which one is in use, and it is mapped last. An ending process maps
 * nothing, but the ring may still have its calls: then the old ranges stay.
 */
static void find_own(struct decoder *decoder, const struct maps *maps)
{
	struct cuda_calls *calls = decoder->calls;
	struct range own[RANGES_MAX];
	size_t n = 0, i;
	uint64_t known;

	for (i = 0; i < maps->n && n < RANGES_MAX; i++) {
		const struct map *map = &maps->v[i];

		if (map->x && map->inode && map64__get(calls->files, file_key(map), &known) &&
		    known & HAS_ALLOCATOR && !torch__is_other(maps, map->path))
			own[n++] = (struct range){ map->start, map->end };
	}
	if (!n)
		return;
	memcpy(calls->own, own, n * sizeof(*own));
	calls->n_own_ranges = n;
	if (decoder->native)
		probes__copy_no_stacks_of(decoder->probes, own[0].start, own[0].end);
}

void cuda_files__scan(struct decoder *decoder)
{
	struct cuda_calls *calls = decoder->calls;
	struct maps maps;
	size_t i;
	int found;

	calls->lib_kib = mapped_library_kib(calls);
	if (decoder->native)
		native_stacks__refresh(decoder->native);
	if (proc__maps(decoder->target->proc, &maps))
		return;
	for (i = 0; i < maps.n; i++) {
		const struct map *map = &maps.v[i];

		if (!map->x || !map->inode || map->path[0] != '/' || !note_new_file(calls, map))
			continue;
		found = look_into(decoder, &maps, map);
		if (found < 0)
			/* try again at the next scan */
			map64__del(calls->files, file_key(map), /*old=*/NULL);
		else
			map64__set(calls->files, file_key(map),
				   found); /* an existing key: needs no memory */
	}
	find_own(decoder, &maps);
	if (map64__count(calls->files) > FILES_MAX)
		forget_files(calls);
	maps__free(&maps);
	if (calls->dry_run)
		cuda_figures__open(decoder);
	if (!calls->backend_fixed && calls->n_own_ranges)
		calls->backend = target__backend(decoder->target, decoder->facts,
						 decoder__now(decoder));
}

void cuda_calls__look(struct decoder *decoder, uint64_t now)
{
	struct cuda_calls *calls = decoder->calls;

	if (!calls || now < calls->next_look)
		return;
	calls->next_look = now + LOOK_EVERY;
	cuda_figures__open(decoder);
	if (now < calls->next_scan || !may_have_more(calls, now))
		return;
	calls->next_scan = now + SCAN_EVERY;
	cuda_files__scan(decoder);
}

void cuda_calls__warn_missing(const struct decoder *decoder)
{
	if (decoder->calls)
		usdt_probes__warn_missing(decoder, decoder->calls->usdt_found);
}
