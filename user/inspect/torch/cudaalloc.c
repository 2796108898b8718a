/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/cudaalloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/torch.h"
#include "inspect/torch/cudaalloc_internal.h"

/* The allocator's own statistics, without blocks, for frequent reading. */

/*
 * DeviceStats: nine arrays, then num_alloc_retries, num_ooms and two single Stats
 * (oversize_allocations, oversize_segments). The arrays are allocation, segment, active,
 * inactive_split, allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes and
 * requested_bytes. Newer versions have single Stats in between. The rest differs by version.
 */
#define ARRAYS 9
#define SINGLES 2
#define SINGLE 32u
#define COUNTS (ARRAYS * STAT_ARRAY)
#define COUNTS_LAST (COUNTS + 2 * SINGLE)
#define OOMS 8u /* offset of num_ooms from num_alloc_retries */
#define RETRIES_AND_OOMS 16u
#define COUNTS_SIZE (RETRIES_AND_OOMS + SINGLES * SINGLE)
#define STATS (COUNTS_LAST + COUNTS_SIZE)
#define COUNT_MAX (UINT64_C(1) << 40)

/* True if num_alloc_retries and num_ooms can be at p + at. They have no structure to check, so the
 * array before and the Stats after them must be plausible. */
static bool counts_like(const uint8_t *p, size_t at)
{
	struct stat_array s;

	stat_array__parse(p + at - STAT_ARRAY, &s);
	if (!stat_array__like(&s) || proc__word(p + at) > COUNT_MAX ||
	    proc__word(p + at + OOMS) > COUNT_MAX)
		return false;
	for (unsigned i = 0; i < SINGLES; i++) {
		const uint8_t *q = p + at + RETRIES_AND_OOMS + i * SINGLE;
		uint64_t current = proc__word(q);
		uint64_t peak = proc__word(q + 8);
		uint64_t plus = proc__word(q + 16);
		uint64_t minus = proc__word(q + 24);

		/* current is what was added less what was removed. */
		if (current > peak || plus < minus || plus - minus != current || peak > plus)
			return false;
	}
	return true;
}

/* Offset of num_alloc_retries and num_ooms in p, right after requested_bytes; all possible places
 * are tried if that offset is not known. 0: not found. */
static size_t find_counts(const struct cudaalloc *alloc, const uint8_t *p, size_t len)
{
	size_t at = COUNTS, last = COUNTS_LAST;

	if (alloc->requested_bytes >= 0)
		at = last = (size_t)(alloc->requested_bytes - alloc->layout.field[F_STATS]) +
			    STAT_ARRAY;
	for (; at <= last && at + COUNTS_SIZE <= len; at += SINGLE)
		if (at >= STAT_ARRAY && counts_like(p, at))
			return at;
	return 0;
}

/* Figures of a device, from its DeviceStats: len bytes at p. */
static void parse_stats(const struct cudaalloc *alloc, const uint8_t *p, size_t len,
			struct cuda_figures *ret)
{
	size_t counts = find_counts(alloc, p, len);
	struct stat_array blocks, allocated, reserved;

	stat_array__parse(p, &blocks);
	stat_array__parse(p + STATS_ALLOCATED * STAT_ARRAY, &allocated);
	stat_array__parse(p + STATS_RESERVED * STAT_ARRAY, &reserved);
	*ret = (struct cuda_figures){
		.allocated = allocated.current[0],
		.peak_allocated = allocated.peak[0],
		.reserved = reserved.current[0],
		.peak_reserved = reserved.peak[0],
		.blocks = blocks.current[0],
	};
	ret->counts_known = counts;
	if (!counts)
		return;
	ret->retries = proc__word(p + counts);
	ret->ooms = proc__word(p + counts + OOMS);
}

/* Finds the device allocators, which the object has in a std::vector of pointers. -ESTALE: the
 * object is another one, or changes now. 0 or -errno. */
static int find_devices(struct cudaalloc *alloc)
{
	uint64_t object, vector[2], addrs[MAX_DEVICES]; /* vector: begin and end */
	size_t n;
	int err = proc__read_u64(alloc->proc, alloc->slot, &object);

	alloc->figures_n = 0;
	if (!err && object != alloc->object)
		return -ESTALE;
	err = err
		      ?: proc__read(alloc->proc,
				    alloc->object + (uint64_t)alloc->layout.field[F_DEVICES],
				    vector, sizeof(vector));
	if (err)
		return err == -EFAULT ? -ESTALE : err;
	if (!pointer_like(vector[0]) || vector[1] <= vector[0] || (vector[1] - vector[0]) % 8 ||
	    vector[1] - vector[0] > sizeof(addrs))
		return -ESTALE;
	n = (vector[1] - vector[0]) / 8;
	err = proc__read(alloc->proc, vector[0], addrs, n * sizeof(*addrs));
	if (err)
		return err == -EFAULT ? -ESTALE : err;
	for (size_t i = 0; i < n; i++)
		if (!pointer_like(addrs[i]))
			return -ESTALE;
	memcpy(alloc->figures_vector, vector, sizeof(vector));
	memcpy(alloc->figures_at, addrs, n * sizeof(*addrs));
	alloc->figures_n = n;
	return 0;
}

/* Reads the statistics and checks that the devices have not moved. -EAGAIN: they moved; or
 * -errno. */
static int read_stats(struct cudaalloc *alloc, uint8_t stats[][STATS], size_t len, size_t shown)
{
	const int *field = alloc->layout.field;
	uint64_t object, vector[2], addrs[MAX_DEVICES];
	size_t n = alloc->figures_n, addrs_bytes = n * sizeof(*addrs);
	struct proc_piece pieces[MAX_DEVICES + 3] = {
		{ .addr = alloc->slot, .buf = &object, .len = sizeof(object) },
		{ .addr = alloc->object + (uint64_t)field[F_DEVICES],
		  .buf = vector,
		  .len = sizeof(vector) },
		{ .addr = alloc->figures_vector[0], .buf = addrs, .len = addrs_bytes },
	};
	int err;

	for (size_t i = 0; i < shown; i++)
		pieces[3 + i] = (struct proc_piece){ .addr = alloc->figures_at[i] +
							     (uint64_t)field[F_STATS],
						     .buf = stats[i],
						     .len = len };
	err = proc__readv(alloc->proc, pieces, 3 + shown);
	if (err)
		return err;
	for (size_t i = 0; i < 3 + shown; i++)
		if (pieces[i].err)
			return -EAGAIN;
	return object != alloc->object || memcmp(vector, alloc->figures_vector, sizeof(vector)) ||
			       memcmp(addrs, alloc->figures_at, addrs_bytes)
		       ? -EAGAIN
		       : 0;
}

int cudaalloc__figures(struct cudaalloc *alloc, struct cuda_figures *figures, size_t max)
{
	const int *field = alloc->layout.field;
	uint8_t stats[MAX_DEVICES][STATS];
	size_t shown = 0, len;
	int err = -EAGAIN;

	if (!alloc->calibrated)
		return -EINVAL;
	/* The pools begin after the statistics. */
	len = (size_t)(field[F_LARGE] - field[F_STATS]);
	len = len < STATS ? len : STATS;
	if (len < STATS_NR * STAT_ARRAY)
		return -ESTALE;
	/* If the devices have moved since the last reading, finds them and reads again. */
	for (int i = 0; i < 2 && err == -EAGAIN; i++) {
		err = alloc->figures_n ? 0 : find_devices(alloc);
		shown = alloc->figures_n < max ? alloc->figures_n : max;
		if (!err)
			err = read_stats(alloc, stats, len, shown);
		if (err)
			alloc->figures_n = 0;
	}
	if (err)
		return err == -EAGAIN ? -ESTALE : err;
	for (size_t i = 0; i < shown; i++)
		parse_stats(alloc, stats[i], len, &figures[i]);
	return (int)alloc->figures_n;
}

/* std::atomic<c10::cuda::CUDACachingAllocator::CUDAAllocator *>, exported since PyTorch 2.0 */
#define SYMBOL "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
/* Attempts to find the layout; the majority decides. In tests the majority was always right, and
 * one attempt in ten was wrong. */
#define ATTEMPTS 7

/* ---- the allocator object ---- */

/* True if a file is named like the libraries that export the allocator. */
static bool may_export_allocator(const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	return text__starts(base, "libc10_cuda.") || text__starts(base, "libc10_cuda-") ||
	       text__starts(base, "libtorch_cuda.") || text__starts(base, "libtorch.");
}

/* Address of the symbol, from the file's lowest mapping. 0, -ENOENT, -errno. */
static int symbol_address(const struct proc *proc, const struct map *map, uint64_t *ret)
{
	struct elf_sym sym;
	struct elf *elf;
	uint64_t bias;
	int err;

	elf = elf__open_map(proc, map);
	if (!elf)
		return -errno;
	err = elf__dynsym(elf, SYMBOL, &sym) ?: elf__bias(elf, map->start, map->offset, &bias);
	if (!err)
		*ret = bias + sym.value;
	elf__free(elf);
	return err;
}

/* Finds the allocator pointer in the libraries with this torch__rank(). *any: there is such a
 * library. 0, -ENOENT or -errno. */
static int find_slot_of_rank(const struct proc *proc, const struct maps *maps, int rank, bool *any,
			     uint64_t *ret)
{
	const char *last = ""; /* a file has several mappings */
	int err = -ENOENT;

	*any = false;
	for (size_t i = 0; i < maps->n; i++) {
		const struct map *map = &maps->v[i];
		int symbol_err;

		if (map->path[0] != '/' || !strcmp(map->path, last) ||
		    !may_export_allocator(map->path) || torch__rank(maps, map->path) != rank)
			continue;
		last = map->path;
		*any = true;
		symbol_err = symbol_address(proc, map, ret);
		if (!symbol_err)
			return 0;
		/* Keep the first error that says more than "not in this file". */
		if (err == -ENOENT)
			err = symbol_err;
	}
	return err;
}

/* Finds the allocator pointer. Among several PyTorchs, uses the one whose functions are probed:
 * that of rank 0, or of rank 1 if there is no other. 0, or -errno and *why. */
static int find_slot(const struct proc *proc, const struct maps *maps, uint64_t *ret,
		     const char **why)
{
	bool any;
	int err = find_slot_of_rank(proc, maps, /*rank=*/0, &any, ret);

	if (!any)
		err = find_slot_of_rank(proc, maps, /*rank=*/1, &any, ret);
	if (!any)
		*why = "no libc10_cuda is mapped";
	else if (err == -ENOENT)
		*why = "libc10_cuda does not export its allocator (torch before 2.0)";
	else if (err)
		*why = "libc10_cuda cannot be read";
	return err;
}

/* Reads a word that must be a pointer. -EFAULT also if it is not. */
static int read_pointer(const struct proc *proc, uint64_t addr, uint64_t *ret)
{
	int err = proc__read_u64(proc, addr, ret);

	if (err)
		return err;
	return pointer_like(*ret) ? 0 : -EFAULT;
}

/* Mangled type name of an object, from its vtable's type information. */
static int read_type_name(const struct proc *proc, uint64_t object, char *buf, size_t size)
{
	uint64_t vtable, info, name;
	int err;

	err = read_pointer(proc, object, &vtable) ?: read_pointer(proc, vtable - 8, &info);
	err = err ?: proc__read_u64(proc, info + 8, &name);
	if (err)
		return err;
	memset(buf, 0, size);
	if (name < UINT64_MAX - size &&
	    cudaalloc_mem__read_window(proc, name, (uint8_t *)buf, size - 1) <= 0)
		return -EFAULT;
	return 0;
}

static const struct {
	const char *part, *name;
} backends[] = {
	[ALLOC_NONE] = { NULL, "none" },
	[ALLOC_NATIVE] = { "NativeCachingAllocator", "native" },
	[ALLOC_CUDA_ASYNC] = { "CudaMallocAsyncAllocator", "cudaMallocAsync" },
	[ALLOC_PLUGGABLE] = { "CUDAPluggableAllocator", "pluggable" },
	[ALLOC_UNKNOWN] = { NULL, "unknown" },
};

const char *alloc_backend__name(enum alloc_backend b)
{
	return (unsigned)b <= ALLOC_UNKNOWN ? backends[b].name : "unknown";
}

/* Reads the allocator pointer and the type of its object. */
static int read_object(struct cudaalloc *alloc)
{
	uint64_t object;
	int err;

	err = proc__read_u64(alloc->proc, alloc->slot, &object);
	if (err)
		return err;
	alloc->object = object;
	alloc->type[0] = '\0';
	alloc->backend = object ? ALLOC_UNKNOWN : ALLOC_NONE;
	if (!object)
		return 0;
	err = read_type_name(alloc->proc, object, alloc->type, sizeof(alloc->type));
	if (err)
		return err == -EFAULT ? 0 : err;
	for (enum alloc_backend b = ALLOC_NATIVE; b < ALLOC_UNKNOWN; b++) {
		if (strstr(alloc->type, backends[b].part))
			alloc->backend = b;
	}
	return 0;
}

struct cudaalloc *cudaalloc__open(const struct proc *proc, const struct maps *maps,
				  const char **why)
{
	struct cudaalloc *alloc = calloc(1, sizeof(*alloc));
	int err;

	*why = "out of memory";
	if (!alloc)
		return NULL;
	alloc->proc = proc;
	alloc->active_bytes = alloc->requested_bytes = -1;
	err = find_slot(proc, maps, &alloc->slot, why);
	if (!err) {
		*why = "the allocator cannot be read";
		err = read_object(alloc);
	}
	if (err) {
		free(alloc);
		errno = -err;
		return NULL;
	}
	*why = "";
	return alloc;
}

void cudaalloc__free(struct cudaalloc *alloc)
{
	free(alloc);
}

enum alloc_backend cudaalloc__backend(const struct cudaalloc *alloc)
{
	return alloc->backend;
}

int cudaalloc__update_backend(struct cudaalloc *alloc)
{
	struct cudaalloc before;
	uint64_t object;
	int err = proc__read_u64(alloc->proc, alloc->slot, &object);

	if (err || (object == alloc->object && alloc->backend != ALLOC_UNKNOWN))
		return err;
	before = *alloc;
	err = read_object(alloc);
	if (err)
		*alloc = before;
	return err;
}

const char *cudaalloc__type(const struct cudaalloc *alloc)
{
	return alloc->type;
}

bool cudaalloc__calibrated(const struct cudaalloc *alloc)
{
	return alloc->calibrated;
}

const char *cudaalloc__why(const struct cudaalloc *alloc)
{
	return alloc->why;
}

/* ---- calibration ---- */

static const char *const field_names[F_NR] = {
	[F_DEVICES] = "devices",	   [F_MAPS] = "maps",
	[F_NMAPS] = "number of maps",	   [F_LARGE] = "large pool",
	[F_SMALL] = "small pool",	   [F_SETS] = "sets of a pool",
	[F_ACTIVE] = "active blocks",	   [F_STATS] = "statistics",
	[F_DEVICE] = "Block.device",	   [F_STREAM] = "Block.stream",
	[F_SIZE] = "Block.size",	   [F_REQUESTED] = "Block.requested_size",
	[F_POOL] = "Block.pool",	   [F_PTR] = "Block.ptr",
	[F_ALLOCATED] = "Block.allocated", [F_PREV] = "Block.prev",
	[F_NEXT] = "Block.next",
};

/* First field that is not known; F_NR: all are known. */
static int missing_field(const struct layout *layout)
{
	int i = 0;

	while (i < F_NR && layout->field[i] >= 0)
		i++;
	return i;
}

/* Takes for each field the value that most attempts found. */
static void take_majority(const struct layout *attempts, unsigned n, struct layout *ret)
{
	for (int f = 0; f < F_NR; f++) {
		unsigned best = 0;

		ret->field[f] = -1;
		for (unsigned i = 0; i < n; i++) {
			unsigned votes = 0;

			for (unsigned k = 0; k < n; k++)
				votes += attempts[k].field[f] == attempts[i].field[f];
			if (attempts[i].field[f] >= 0 && votes > best) {
				best = votes;
				ret->field[f] = attempts[i].field[f];
			}
		}
	}
}

/* True if a pass with this layout matches the allocator's own totals, which proves the layout. */
static bool is_proved(struct cudaalloc *alloc, const struct layout *layout)
{
	struct cudaalloc copy = *alloc;
	struct cudaalloc_state st;
	bool ok;

	copy.active_bytes = copy.requested_bytes = -1;
	if (cudaalloc_state__read(&copy, layout, &st))
		return false;
	ok = st.consistent;
	cudaalloc_state__free(&st);
	if (ok) {
		alloc->active_bytes = copy.active_bytes;
		alloc->requested_bytes = copy.requested_bytes;
	}
	return ok;
}

static int accept_layout(struct cudaalloc *alloc, const struct layout *layout)
{
	alloc->layout = *layout;
	alloc->calibrated = true;
	alloc->why[0] = '\0';
	return 0;
}

static int set_why(struct cudaalloc *alloc, int err, const char *why)
{
	snprintf(alloc->why, sizeof(alloc->why), "%s", why);
	return err;
}

/* Accepts the first complete layout whose pass matches the allocator's totals; without one, what
 * most attempts found. */
int cudaalloc__calibrate(struct cudaalloc *alloc)
{
	struct layout attempts[ATTEMPTS], majority;
	unsigned n = 0, empty_attempts = 0;
	int err;

	err = read_object(alloc);
	if (err)
		return set_why(alloc, err, "the allocator cannot be read");
	if (alloc->backend == ALLOC_NONE)
		return set_why(alloc, -EAGAIN, "the allocator does not exist yet");
	if (alloc->backend != ALLOC_NATIVE)
		return set_why(alloc, -ENOTSUP, "not PyTorch's own caching allocator");
	for (int i = 0; i < ATTEMPTS; i++) {
		err = layout__find_fields(alloc, &attempts[n]);
		if (err == -ESRCH || err == -EPERM || err == -ENOMEM)
			return err;
		if (err == -EAGAIN && ++empty_attempts == 2 && !n)
			return err; /* two attempts found nothing */
		if (err)
			continue;
		if (missing_field(&attempts[n]) == F_NR && is_proved(alloc, &attempts[n]))
			return accept_layout(alloc, &attempts[n]);
		n++;
	}
	if (!n)
		return err;
	take_majority(attempts, n, &majority);
	if (missing_field(&majority) < F_NR) {
		snprintf(alloc->why, sizeof(alloc->why), "not found in the allocator's memory: %s",
			 field_names[missing_field(&majority)]);
		return -ENOTSUP;
	}
	alloc->active_bytes = alloc->requested_bytes = -1;
	return accept_layout(alloc, &majority);
}

/* ---- reading ---- */

int cudaalloc__read(struct cudaalloc *alloc, struct cudaalloc_state *ret)
{
	uint64_t object;
	int err;

	if (!alloc->calibrated)
		return set_why(alloc, -EINVAL, "the allocator's layout is unknown");
	err = proc__read_u64(alloc->proc, alloc->slot, &object);
	if (!err && object != alloc->object)
		err = -ESTALE;
	if (err)
		return set_why(alloc, err,
			       err == -ESTALE ? "the program now uses another allocator"
					      : "the allocator cannot be read");
	err = cudaalloc_state__read(alloc, &alloc->layout, ret);
	if (err)
		return set_why(alloc, err,
			       err == -ESTALE ? "the allocator's structures have moved"
					      : "the allocator cannot be read");
	return 0;
}

/* Needs F_DEVICES only, so it also works before calibration. */
int cudaalloc__devices(struct cudaalloc *alloc)
{
	struct layout layout;
	struct devices devices;
	uint8_t *object;
	long len;
	int err;

	if (alloc->backend != ALLOC_NATIVE) {
		err = read_object(alloc);
		if (err || alloc->backend != ALLOC_NATIVE)
			return err;
	}
	layout = alloc->layout;
	if (!alloc->calibrated) {
		memset(&layout, 0xff, sizeof(layout)); /* all -1 */
		object = malloc(OBJECT_WINDOW);
		if (!object)
			return -ENOMEM;
		len = cudaalloc_mem__read_window(alloc->proc, alloc->object, object, OBJECT_WINDOW);
		err = len < 0 ? (int)len
			      : layout__find_devices(alloc, object, (size_t)len, &layout);
		free(object);
		if (err)
			return err == -EAGAIN ? 0 : err;
	}
	err = devices__read(alloc, &layout, &devices);
	if (err)
		return err;
	err = (int)devices.n;
	devices__free(&devices);
	return err;
}
