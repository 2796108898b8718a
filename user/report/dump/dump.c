/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inspect/pytensor.h"

#define PASSES 5 /* most readings of tables that change meanwhile */
#define TYPE_CPU 0
#define TYPE_CUDA 1
#define NO_ROW UINT32_MAX
#define VIEW_LEAST (64U << 10) /* bytes; rounding enlarges smaller blocks */

/* Live blocks of all devices, by device and address. */
struct blocks {
	struct cuda_block *v;
	uint32_t *row; /* index of the block's row, or NO_ROW */
	size_t n;
	const struct cudaalloc_state *state; /* reading that the blocks are from */
};

static int cmp_address(const void *a, const void *b)
{
	const struct cuda_block *x = a, *y = b;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Copies the live blocks of a reading, sorted. */
static int take_blocks(struct blocks *b, const struct cudaalloc_state *s)
{
	b->state = s;
	b->v = calloc(s->nblocks ? s->nblocks : 1, sizeof(*b->v));
	b->row = calloc(s->nblocks ? s->nblocks : 1, sizeof(*b->row));
	if (!b->v || !b->row)
		return -ENOMEM;
	for (size_t i = 0; i < s->nblocks; i++)
		if (s->blocks[i].state == CUDA_BLOCK_LIVE)
			b->v[b->n++] = s->blocks[i];
	qsort(b->v, b->n, sizeof(*b->v), cmp_address);
	memset(b->row, 0xff, b->n * sizeof(*b->row));
	return 0;
}

static void free_blocks(struct blocks *b)
{
	free(b->v);
	free(b->row);
}

/* Returns the index of the block that contains the tensor's whole storage; SIZE_MAX: none. */
static size_t find_block(const struct blocks *b, const struct census_tensor *t)
{
	size_t lo = 0, hi = b->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct cuda_block *x = &b->v[mid];

		if (x->device < t->device_index ||
		    (x->device == t->device_index && x->addr <= t->addr))
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return SIZE_MAX;
	const struct cuda_block *x = &b->v[lo - 1];

	if (x->device != t->device_index || t->addr - x->addr >= x->size ||
	    t->size > x->size - (t->addr - x->addr))
		return SIZE_MAX;
	return lo - 1;
}

/* True if any byte of the tensor's storage is in a segment. */
static bool is_in_segment(const struct blocks *b, const struct census_tensor *t)
{
	const struct cuda_segment *all = b->state->segments;
	size_t lo = 0, hi = b->state->nsegments;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (all[mid].addr + all[mid].size <= t->addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < b->state->nsegments &&
	       (all[lo].addr <= t->addr || all[lo].addr - t->addr < t->size);
}

/* Reads the allocator's tables, several times if they change meanwhile. Returns 0 or a negative
 * errno. */
static int read_alloc(struct cudaalloc *a, struct cudaalloc_state *ret)
{
	for (int i = 0; i < PASSES; i++) {
		struct cudaalloc_state s;
		int err = cudaalloc__calibrated(a) ? 0 : cudaalloc__calibrate(a);

		if (err)
			return err;
		err = cudaalloc__read(a, &s);
		if (err)
			return err;
		cudaalloc_state__free(ret);
		*ret = s;
		if (s.consistent)
			break;
	}
	return 0;
}

/* Finds or adds a device. NULL if memory is short. */
static struct dump_device *find_device(struct dump *d, uint8_t type, uint8_t index)
{
	struct dump_device *v;

	for (size_t i = 0; i < d->ndevices; i++)
		if (d->devices[i].type == type && d->devices[i].index == index)
			return &d->devices[i];
	v = reallocarray(d->devices, d->ndevices + 1, sizeof(*v));
	if (!v)
		return NULL;
	d->devices = v;
	v += d->ndevices++;
	memset(v, 0, sizeof(*v));
	v->type = type;
	v->index = index;
	if (type == TYPE_CPU)
		snprintf(v->name, sizeof(v->name), "cpu");
	else if (type == TYPE_CUDA)
		snprintf(v->name, sizeof(v->name), "cuda:%u", index);
	else
		snprintf(v->name, sizeof(v->name), "device%u:%u", type, index);
	return v;
}

/* Adds the devices on which the allocator has memory, with its figures. */
static int add_cuda_devices(struct dump *d, const struct cudaalloc_state *s)
{
	for (size_t i = 0; i < s->ndevices; i++) {
		const struct cuda_device_state *from = &s->devices[i];
		struct dump_device *dev;

		if (!from->after.reserved)
			continue;
		dev = find_device(d, TYPE_CUDA, i);
		if (!dev)
			return -ENOMEM;
		dev->known = true;
		dev->consistent = from->consistent;
		dev->allocated = from->after.allocated;
		dev->reserved = from->after.reserved;
		dev->blocks = from->after.count;
	}
	return 0;
}

/* Adds a row to view_bytes and view_used if its only tensor uses at most half of the block. */
static void count_view(struct dump_device *dev, const struct dump_row *r)
{
	const struct census_about *x = r->tensor->about;
	uint64_t used = pytensor__dtype_bits(x->dtype);

	if (r->tensor->views != 1 || r->bytes < VIEW_LEAST || x->ndim > CENSUS_DIMS || !used)
		return;
	for (size_t i = 0; i < x->ndim; i++)
		if (x->shape[i] < 0 || __builtin_mul_overflow(used, (uint64_t)x->shape[i], &used))
			return;
	used /= 8;
	if (used > r->bytes / 2)
		return;
	dev->view_bytes += r->bytes;
	dev->view_used += used;
}

/*
 * Adds a tensor's row on a device with known blocks; its size is the block's. The block must be the
 * same before and after the tensors were read. If several tensors share a block, the best name
 * counts.
 */
static void add_tensor(struct dump *d, struct blocks *before, struct blocks *after,
		       const struct census_tensor *t, struct dump_device *dev)
{
	size_t old_block = find_block(before, t);
	size_t block = find_block(after, t);
	struct dump_row *r;

	if (old_block == SIZE_MAX || block == SIZE_MAX ||
	    before->v[old_block].addr != after->v[block].addr ||
	    before->v[old_block].size != after->v[block].size ||
	    before->v[old_block].requested != after->v[block].requested) {
		if (!dev->consistent || is_in_segment(before, t) || is_in_segment(after, t))
			dev->moved++;
		else
			dev->elsewhere++;
		return;
	}
	if (after->row[block] != NO_ROW) {
		r = &d->rows[after->row[block]];
		if (t->kind < r->kind ||
		    (t->kind == r->kind && *t->about->name && !*r->tensor->about->name)) {
			r->kind = t->kind;
			r->tensor = t;
		}
		return;
	}
	after->row[block] = d->nrows;
	d->rows[d->nrows++] = (struct dump_row){
		.tensor = t,
		.bytes = after->v[block].size,
		.count = 1,
		.device = dev - d->devices,
		.kind = t->kind,
	};
}

/* True if b has a block with the address and the size of x. */
static bool have_block(const struct blocks *b, const struct cuda_block *x)
{
	const struct cuda_block *f = NULL;

	if (b->n)
		f = bsearch(x, b->v, b->n, sizeof(*b->v), cmp_address);
	return f && f->size == x->size;
}

/* Counts the device's memory that no row has. b: the blocks after the census. */
static void count_unheld(struct dump_device *dev, const struct blocks *before,
			 const struct blocks *b)
{
	uint64_t held = 0;

	for (size_t k = 0; k < b->n; k++) {
		if (b->v[k].device != dev->index || b->row[k] != NO_ROW)
			continue;
		dev->unheld_blocks++;
		if (have_block(before, &b->v[k]))
			continue;
		dev->unheld_new += b->v[k].size;
		dev->unheld_new_blocks++;
	}
	for (size_t k = 0; k < CENSUS_KINDS; k++)
		held += dev->bytes[k];
	/* Use the total, because blocks missing from a torn reading also count as unheld. */
	dev->unheld = dev->allocated > held ? dev->allocated - held : 0;
	if (dev->unheld_new > dev->unheld)
		dev->unheld_new = dev->unheld;
}

/* Makes a row for each tensor, and the sums of each device. before, after: blocks before and after
 * the census. */
static int make_rows(struct dump *d, struct blocks *before, struct blocks *after)
{
	const struct census_state *s = &d->census;

	for (size_t i = 0; i < s->ntensors; i++)
		if (!find_device(d, s->tensors[i].device_type, s->tensors[i].device_index))
			return -ENOMEM;
	d->rows = calloc(s->ntensors ? s->ntensors : 1, sizeof(*d->rows));
	if (!d->rows)
		return -ENOMEM;
	for (size_t i = 0; i < s->ntensors; i++) {
		const struct census_tensor *t = &s->tensors[i];
		struct dump_device *dev = find_device(d, t->device_type, t->device_index);

		if (dev->known) {
			add_tensor(d, before, after, t, dev);
			continue;
		}
		d->rows[d->nrows++] = (struct dump_row){
			.tensor = t,
			.bytes = t->size,
			.count = 1,
			.device = dev - d->devices,
			.kind = t->kind,
		};
		dev->allocated += t->size;
		dev->blocks++;
	}
	for (size_t i = 0; i < d->nrows; i++) {
		struct dump_device *dev = &d->devices[d->rows[i].device];

		dev->bytes[d->rows[i].kind] += d->rows[i].bytes;
		dev->count[d->rows[i].kind]++;
		count_view(dev, &d->rows[i]);
	}
	for (size_t i = 0; i < d->ndevices; i++)
		if (d->devices[i].known)
			count_unheld(&d->devices[i], before, after);
	return 0;
}

static int cmp_size(const void *a, const void *b)
{
	const struct dump_row *x = a, *y = b;
	int c = 0;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	if (!x->tensor || !y->tensor || x->tensor == y->tensor)
		return !x->tensor - !y->tensor;
	/* Addresses differ from run to run, so kind and name come first. */
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->tensor->about != y->tensor->about)
		c = strverscmp(x->tensor->about->name, y->tensor->about->name);
	if (c)
		return c;
	return x->tensor->addr < y->tensor->addr ? -1 : 1;
}

int dump__read(struct census *c, struct cudaalloc *alloc, uint64_t limit_ns, struct dump *ret,
	       const char **why)
{
	struct census_opts o = { .limit_ns = limit_ns };
	struct cudaalloc_state before = { 0 }, after = { 0 };
	struct blocks old_blocks = { 0 }, blocks = { 0 };
	struct dump d = { 0 };
	int err, alloc_err = -ENOENT;

	if (alloc)
		alloc_err = read_alloc(alloc, &before);
	err = census__read(c, &o, &d.census, why);
	if (err)
		goto out;
	if (!alloc_err)
		alloc_err = read_alloc(alloc, &after);
	/* -EAGAIN means that the allocator is not in use yet, which is no failure. */
	if (alloc && alloc_err && alloc_err != -EAGAIN)
		snprintf(d.alloc_why, sizeof(d.alloc_why), "%s", cudaalloc__why(alloc));
	if (!alloc_err && (take_blocks(&old_blocks, &before) || take_blocks(&blocks, &after) ||
			   add_cuda_devices(&d, &after))) {
		err = -ENOMEM;
		goto out;
	}
	err = make_rows(&d, &old_blocks, &blocks);
	if (err)
		goto out;
	if (d.nrows)
		qsort(d.rows, d.nrows, sizeof(*d.rows), cmp_size);
	*ret = d;
out:
	if (err)
		dump__free(&d);
	free_blocks(&old_blocks);
	free_blocks(&blocks);
	cudaalloc_state__free(&before);
	cudaalloc_state__free(&after);
	return err;
}

static void free_holders(struct dump *d)
{
	for (size_t i = 0; d->holders && i < d->ndevices; i++)
		holders__free(&d->holders[i]);
	free(d->holders);
	free(d->details);
	d->holders = NULL;
	d->details = NULL;
}

void dump__free(struct dump *d)
{
	free_holders(d);
	census_state__free(&d->census);
	free(d->devices);
	free(d->rows);
	memset(d, 0, sizeof(*d));
}

/* ---- groups ---- */

static int compare_groups(const struct dump_row *x, const struct dump_row *y, enum dump_by by)
{
	int c;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (by == DUMP_BY_CATEGORY)
		return (int)x->kind - (int)y->kind;
	if (x->tensor->about == y->tensor->about)
		return 0;
	c = strcmp(x->tensor->about->root, y->tensor->about->root);
	if (!c)
		c = strcmp(x->tensor->about->module, y->tensor->about->module);
	return c ? c : strcmp(x->tensor->about->cls, y->tensor->about->cls);
}

static int cmp_module(const void *a, const void *b)
{
	return compare_groups(a, b, DUMP_BY_MODULE);
}

static int cmp_category(const void *a, const void *b)
{
	return compare_groups(a, b, DUMP_BY_CATEGORY);
}

/* Copies the rows to v and adds up those of a group. Returns the number of groups. */
static size_t merge_rows(const struct dump *d, enum dump_by by, struct dump_row *v)
{
	size_t k = 0;

	memcpy(v, d->rows, d->nrows * sizeof(*v));
	if (by != DUMP_BY_TENSOR && d->nrows)
		qsort(v, d->nrows, sizeof(*v), by == DUMP_BY_MODULE ? cmp_module : cmp_category);
	for (size_t i = 0; i < d->nrows; i++) {
		if (k && by != DUMP_BY_TENSOR && !compare_groups(&v[k - 1], &v[i], by)) {
			v[k - 1].bytes += v[i].bytes;
			v[k - 1].count += v[i].count;
		} else {
			v[k++] = v[i];
		}
	}
	return k;
}

#define DETAIL 128 /* size of an entry in dump.details */

static struct held held_of(const struct dump *d, const struct dump_row *r)
{
	const struct census_about *a = r->tensor->about;
	char *detail = d->details + (a - d->census.about) * DETAIL;

	if (!*detail)
		dump__shape(detail, DETAIL, a);
	return (struct held){ .name = a->name,
			      .category = census_kind__name(r->kind),
			      .module = a->module,
			      .module_class = a->cls,
			      .module_root = a->root,
			      .detail = detail,
			      .bytes = r->bytes,
			      .count = r->count,
			      .size = r->bytes };
}

/* Writes a row for each holder on a device to v. Its rows are n, from index first on. held: a
 * buffer with n entries. Returns the number of holders, or -ENOMEM. */
static int add_holders(struct dump *d, uint8_t device, size_t first, size_t n, struct held *held,
		       struct dump_row *v)
{
	struct holders *h = &d->holders[device];

	for (size_t i = 0; i < n; i++)
		held[i] = held_of(d, &d->rows[first + i]);
	if (holders__group(held, n, false, h))
		return -ENOMEM;
	for (size_t i = 0; i < h->n; i++)
		v[i] = (struct dump_row){ .holder = &h->all[i],
					  .bytes = h->all[i].bytes,
					  .count = h->all[i].count,
					  .device = device };
	for (size_t i = n; i-- > 0;) { /* the largest tensor stands for the holder */
		v[h->holder_of[i]].tensor = d->rows[first + i].tensor;
		v[h->holder_of[i]].kind = d->rows[first + i].kind;
	}
	return (int)h->n;
}

static int group_by_holder(struct dump *d, struct dump_row *v, size_t *ret)
{
	struct held *held = calloc(d->nrows + 1, sizeof(*held));
	int err = -ENOMEM;

	*ret = 0;
	free_holders(d);
	d->holders = calloc(d->ndevices + 1, sizeof(*d->holders));
	d->details = calloc(d->census.nabout + 1, DETAIL);
	if (!held || !d->holders || !d->details)
		goto out;
	/* Rows are in order of devices. */
	for (size_t i = 0, end; i < d->nrows; i = end) {
		int n;

		for (end = i; end < d->nrows && d->rows[end].device == d->rows[i].device; end++)
			;
		n = add_holders(d, d->rows[i].device, i, end - i, held, v + *ret);
		if (n < 0)
			goto out;
		*ret += (size_t)n;
	}
	err = 0;
out:
	free(held);
	return err;
}

int dump__group(struct dump *d, enum dump_by by, struct dump_row **ret, size_t *n)
{
	struct dump_row *v = calloc(d->nrows + d->ndevices + 1, sizeof(*v));
	size_t k = 0;

	if (!v)
		return -ENOMEM;
	if (by != DUMP_BY_HOLDER) {
		k = merge_rows(d, by, v);
	} else if (group_by_holder(d, v, &k)) {
		free(v);
		return -ENOMEM;
	}
	for (size_t i = 0; i < d->ndevices; i++)
		if (d->devices[i].unheld)
			v[k++] = (struct dump_row){
				.bytes = d->devices[i].unheld,
				.count = d->devices[i].unheld_blocks,
				.device = i,
				.kind = CENSUS_OTHER,
			};
	qsort(v, k, sizeof(*v), cmp_size);
	*ret = v;
	*n = k;
	return 0;
}

char *dump__shape(char *buf, size_t size, const struct census_about *a)
{
	char dtype[16];
	size_t at = 0;

	at += snprintf(buf, size, "[");
	for (size_t i = 0; i < a->ndim && at < size; i++) {
		if (i == CENSUS_DIMS) {
			at += snprintf(buf + at, size - at, ", ..");
			break;
		}
		at += snprintf(buf + at, size - at, "%s%" PRId64, i ? ", " : "", a->shape[i]);
	}
	if (at < size)
		snprintf(buf + at, size - at, "] %s",
			 pytensor__dtype(a->dtype, dtype, sizeof(dtype)));
	return buf;
}
