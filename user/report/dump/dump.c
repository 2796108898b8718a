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

/* Copies the live blocks of a reading, sorted. Returns 0 or -ENOMEM; the caller frees b in any
 * case. */
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
	size_t low = 0, high = b->n;
	const struct cuda_block *block; /* the last one that begins at or below the tensor */

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		block = &b->v[mid];
		if (block->device < t->device_index ||
		    (block->device == t->device_index && block->addr <= t->addr))
			low = mid + 1;
		else
			high = mid;
	}
	if (!low)
		return SIZE_MAX;
	block = &b->v[low - 1];
	if (block->device != t->device_index || t->addr - block->addr >= block->size ||
	    t->size > block->size - (t->addr - block->addr))
		return SIZE_MAX;
	return low - 1;
}

/* True if any byte of the tensor's storage is in a segment. */
static bool is_in_segment(const struct blocks *b, const struct census_tensor *t)
{
	const struct cuda_segment *segments = b->state->segments;
	size_t low = 0, high = b->state->nsegments;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (segments[mid].addr + segments[mid].size <= t->addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low < b->state->nsegments &&
	       (segments[low].addr <= t->addr || segments[low].addr - t->addr < t->size);
}

/* Reads the allocator's tables, several times if they change meanwhile. Returns 0 or a negative
 * errno. */
static int read_alloc(struct cudaalloc *a, struct cudaalloc_state *ret)
{
	for (int i = 0; i < PASSES; i++) {
		struct cudaalloc_state reading;
		int err = cudaalloc__calibrated(a) ? 0 : cudaalloc__calibrate(a);

		if (err)
			return err;
		err = cudaalloc__read(a, &reading);
		if (err)
			return err;
		cudaalloc_state__free(ret);
		*ret = reading;
		if (reading.consistent)
			break;
	}
	return 0;
}

/* Finds or adds a device. NULL if memory is short. */
static struct dump_device *find_device(struct dump *d, uint8_t type, uint8_t index)
{
	struct dump_device *device;

	for (size_t i = 0; i < d->ndevices; i++)
		if (d->devices[i].type == type && d->devices[i].index == index)
			return &d->devices[i];
	device = reallocarray(d->devices, d->ndevices + 1, sizeof(*device));
	if (!device)
		return NULL;
	d->devices = device;
	device += d->ndevices++;
	memset(device, 0, sizeof(*device));
	device->type = type;
	device->index = index;
	if (type == TYPE_CPU)
		snprintf(device->name, sizeof(device->name), "cpu");
	else if (type == TYPE_CUDA)
		snprintf(device->name, sizeof(device->name), "cuda:%u", index);
	else
		snprintf(device->name, sizeof(device->name), "device%u:%u", type, index);
	return device;
}

/* Adds the devices on which the allocator has memory, with its figures. Returns 0 or -ENOMEM. */
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

/* Adds a row to view_bytes and view_used if its only tensor uses at most half of the block. Tensors
 * whose bytes are not known do not count. */
static void count_view(struct dump_device *dev, const struct dump_row *r)
{
	const struct census_about *about = r->tensor->about;
	uint64_t used = pytensor__dtype_bits(about->dtype);

	if (r->tensor->views != 1 || r->bytes < VIEW_LEAST || about->ndim > CENSUS_DIMS || !used)
		return;
	for (size_t i = 0; i < about->ndim; i++)
		if (about->shape[i] < 0 ||
		    __builtin_mul_overflow(used, (uint64_t)about->shape[i], &used))
			return;
	used /= 8;
	if (used > r->bytes / 2)
		return;
	dev->view_bytes += r->bytes;
	dev->view_used += used;
}

static bool is_same_block(const struct cuda_block *a, const struct cuda_block *b)
{
	return a->addr == b->addr && a->size == b->size && a->requested == b->requested;
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
	struct dump_row *row;

	if (old_block == SIZE_MAX || block == SIZE_MAX ||
	    !is_same_block(&before->v[old_block], &after->v[block])) {
		if (!dev->consistent || is_in_segment(before, t) || is_in_segment(after, t))
			dev->moved++;
		else
			dev->elsewhere++;
		return;
	}
	if (after->row[block] != NO_ROW) {
		row = &d->rows[after->row[block]];
		if (t->kind < row->kind ||
		    (t->kind == row->kind && *t->about->name && !*row->tensor->about->name)) {
			row->kind = t->kind;
			row->tensor = t;
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

/* True if b has a block with this address and size. */
static bool have_block(const struct blocks *b, const struct cuda_block *wanted)
{
	const struct cuda_block *found = NULL;

	if (b->n)
		found = bsearch(wanted, b->v, b->n, sizeof(*b->v), cmp_address);
	return found && found->size == wanted->size;
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
 * the census. Returns 0 or -ENOMEM. */
static int make_rows(struct dump *d, struct blocks *before, struct blocks *after)
{
	const struct census_state *census = &d->census;

	for (size_t i = 0; i < census->ntensors; i++)
		if (!find_device(d, census->tensors[i].device_type,
				 census->tensors[i].device_index))
			return -ENOMEM;
	d->rows = calloc(census->ntensors ? census->ntensors : 1, sizeof(*d->rows));
	if (!d->rows)
		return -ENOMEM;
	for (size_t i = 0; i < census->ntensors; i++) {
		const struct census_tensor *tensor = &census->tensors[i];
		struct dump_device *dev = find_device(d, tensor->device_type, tensor->device_index);

		if (dev->known) {
			add_tensor(d, before, after, tensor, dev);
			continue;
		}
		d->rows[d->nrows++] = (struct dump_row){
			.tensor = tensor,
			.bytes = tensor->size,
			.count = 1,
			.device = dev - d->devices,
			.kind = tensor->kind,
		};
		dev->allocated += tensor->size;
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

/* Orders by device, largest first, memory without a tensor last; then so that the order is the same
 * in each run. */
static int cmp_size(const void *a, const void *b)
{
	const struct dump_row *x = a, *y = b;
	int order = 0;

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
		order = strverscmp(x->tensor->about->name, y->tensor->about->name);
	if (order)
		return order;
	return x->tensor->addr < y->tensor->addr ? -1 : 1;
}

static int cmp_order(const void *a, const void *b, void *rows)
{
	const struct dump_row *v = rows;

	return cmp_size(&v[*(const uint32_t *)a], &v[*(const uint32_t *)b]);
}

/* Sorts rows with cmp_size(). Sorts their indices, then moves each row to its place, because sorting
 * a million rows themselves takes the memory of half of them again. Returns 0 or -ENOMEM. */
static int sort_rows(struct dump_row *rows, size_t n)
{
	uint32_t *order = malloc((n + 1) * sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	if (n)
		qsort_r(order, n, sizeof(*order), cmp_order, rows);
	/* order[i]: the row that belongs at i. Rows change places in cycles. */
	for (size_t i = 0; i < n; i++) {
		struct dump_row first = rows[i];
		size_t at = i;

		while (order[at] != i) {
			size_t from = order[at];

			rows[at] = rows[from];
			order[at] = (uint32_t)at;
			at = from;
		}
		rows[at] = first;
		order[at] = (uint32_t)at;
	}
	free(order);
	return 0;
}

int dump__read(struct census *c, struct cudaalloc *alloc, uint64_t limit_ns, struct dump *ret,
	       const char **why)
{
	struct census_opts o = { .limit_ns = limit_ns };
	struct cudaalloc_state before = { 0 }, after = { 0 };
	struct blocks old_blocks = { 0 }, blocks = { 0 };
	struct dump dump = { 0 };
	int err, alloc_err = -ENOENT;

	if (alloc)
		alloc_err = read_alloc(alloc, &before);
	err = census__read(c, &o, &dump.census, why);
	if (err)
		goto out;
	if (!alloc_err)
		alloc_err = read_alloc(alloc, &after);
	/* -EAGAIN means that the allocator is not in use yet, which is no failure. */
	if (alloc && alloc_err && alloc_err != -EAGAIN)
		snprintf(dump.alloc_why, sizeof(dump.alloc_why), "%s", cudaalloc__why(alloc));
	if (!alloc_err && (take_blocks(&old_blocks, &before) || take_blocks(&blocks, &after) ||
			   add_cuda_devices(&dump, &after))) {
		err = -ENOMEM;
		goto out;
	}
	err = make_rows(&dump, &old_blocks, &blocks);
	if (err)
		goto out;
	err = sort_rows(dump.rows, dump.nrows);
	if (err)
		goto out;
	*ret = dump;
out:
	if (err)
		dump__free(&dump);
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

/* Orders rows by device and group; 0: they are of one group. */
static int compare_groups(const struct dump_row *x, const struct dump_row *y, enum dump_by by)
{
	int order;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (by == DUMP_BY_CATEGORY)
		return (int)x->kind - (int)y->kind;
	if (x->tensor->about == y->tensor->about)
		return 0;
	order = strcmp(x->tensor->about->root, y->tensor->about->root);
	if (!order)
		order = strcmp(x->tensor->about->module, y->tensor->about->module);
	return order ? order : strcmp(x->tensor->about->cls, y->tensor->about->cls);
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
	size_t groups = 0;

	memcpy(v, d->rows, d->nrows * sizeof(*v));
	if (by == DUMP_BY_TENSOR)
		return d->nrows;
	if (d->nrows)
		qsort(v, d->nrows, sizeof(*v), by == DUMP_BY_MODULE ? cmp_module : cmp_category);
	for (size_t i = 0; i < d->nrows; i++) {
		if (groups && !compare_groups(&v[groups - 1], &v[i], by)) {
			v[groups - 1].bytes += v[i].bytes;
			v[groups - 1].count += v[i].count;
		} else {
			v[groups++] = v[i];
		}
	}
	return groups;
}

#define DETAIL 128 /* size of an entry in dump.details */

/* Returns a row for holders__group(). It borrows its texts from d. */
static struct held held_of(const struct dump *d, const struct dump_row *r)
{
	const struct census_about *about = r->tensor->about;
	char *detail = d->details + (about - d->census.about) * DETAIL;

	if (!*detail)
		dump__shape(detail, DETAIL, about);
	return (struct held){ .name = about->name,
			      .category = census_kind__name(r->kind),
			      .module = about->module,
			      .module_class = about->cls,
			      .module_root = about->root,
			      .detail = detail,
			      .bytes = r->bytes,
			      .count = r->count,
			      .size = r->bytes };
}

static bool is_alike(const struct dump_row *a, const struct dump_row *b)
{
	return a->tensor->about == b->tensor->about && a->kind == b->kind && a->bytes == b->bytes;
}

/* Makes one entry of `held` for rows one after another that are alike: a list may hold a million
 * tensors. run: index of the first row of each entry. Returns the number of entries. */
static size_t hold_runs(struct dump *d, size_t first, size_t n, struct held *held, uint32_t *run)
{
	size_t n_held = 0;

	for (size_t i = first; i < first + n; i++) {
		if (i > first && is_alike(&d->rows[i - 1], &d->rows[i])) {
			held[n_held - 1].bytes += d->rows[i].bytes;
			held[n_held - 1].count += d->rows[i].count;
			continue;
		}
		run[n_held] = (uint32_t)i;
		held[n_held++] = held_of(d, &d->rows[i]);
	}
	return n_held;
}

/* Writes a row for each holder on a device to v. Its rows are n, from index first on. held, run:
 * buffers with n entries. Returns the number of holders, or -ENOMEM. */
static int add_holders(struct dump *d, uint8_t device, size_t first, size_t n, struct held *held,
		       uint32_t *run, struct dump_row *v)
{
	struct holders *holders = &d->holders[device];
	size_t n_held = hold_runs(d, first, n, held, run);

	if (holders__group(held, n_held, /*by_role=*/false, holders))
		return -ENOMEM;
	for (size_t i = 0; i < holders->n; i++)
		v[i] = (struct dump_row){ .holder = &holders->all[i],
					  .bytes = holders->all[i].bytes,
					  .count = holders->all[i].count,
					  .device = device };
	for (size_t i = n_held; i-- > 0;) { /* the largest tensor stands for the holder */
		v[holders->holder_of[i]].tensor = d->rows[run[i]].tensor;
		v[holders->holder_of[i]].kind = d->rows[run[i]].kind;
	}
	return (int)holders->n;
}

/* Writes a row for each holder to v, and sets d->holders. *ret: number of rows. Returns 0 or
 * -ENOMEM. */
static int group_by_holder(struct dump *d, struct dump_row *v, size_t *ret)
{
	struct held *held = calloc(d->nrows + 1, sizeof(*held));
	uint32_t *run = calloc(d->nrows + 1, sizeof(*run));
	int err = -ENOMEM;

	*ret = 0;
	free_holders(d);
	d->holders = calloc(d->ndevices + 1, sizeof(*d->holders));
	d->details = calloc(d->census.nabout + 1, DETAIL);
	if (!held || !run || !d->holders || !d->details)
		goto out;
	/* Rows are in order of devices. */
	for (size_t first = 0, end; first < d->nrows; first = end) {
		uint8_t device = d->rows[first].device;
		int n;

		for (end = first; end < d->nrows && d->rows[end].device == device; end++)
			;
		n = add_holders(d, device, first, end - first, held, run, v + *ret);
		if (n < 0)
			goto out;
		*ret += (size_t)n;
	}
	err = 0;
out:
	free(held);
	free(run);
	return err;
}

int dump__group(struct dump *d, enum dump_by by, struct dump_row **ret, size_t *n)
{
	struct dump_row *rows = calloc(d->nrows + d->ndevices + 1, sizeof(*rows));
	size_t n_rows = 0;

	if (!rows)
		return -ENOMEM;
	if (by != DUMP_BY_HOLDER) {
		n_rows = merge_rows(d, by, rows);
	} else if (group_by_holder(d, rows, &n_rows)) {
		free(rows);
		return -ENOMEM;
	}
	for (size_t i = 0; i < d->ndevices; i++)
		if (d->devices[i].unheld)
			rows[n_rows++] = (struct dump_row){
				.bytes = d->devices[i].unheld,
				.count = d->devices[i].unheld_blocks,
				.device = i,
				.kind = CENSUS_OTHER,
			};
	if (sort_rows(rows, n_rows)) {
		free(rows);
		return -ENOMEM;
	}
	*ret = rows;
	*n = n_rows;
	return 0;
}

char *dump__shape(char *buf, size_t size, const struct census_about *a)
{
	char dtype[16];
	size_t len = 0;

	len += snprintf(buf, size, "[");
	for (size_t i = 0; i < a->ndim && len < size; i++) {
		if (i == CENSUS_DIMS) {
			len += snprintf(buf + len, size - len, ", ..");
			break;
		}
		len += snprintf(buf + len, size - len, "%s%" PRId64, i ? ", " : "", a->shape[i]);
	}
	if (len < size)
		snprintf(buf + len, size - len, "] %s",
			 pytensor__dtype(a->dtype, dtype, sizeof(dtype)));
	return buf;
}
