/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The payload, compressed with gzip: the length of the JSON directory (4 bytes, little-endian),
 * the directory, and columns of numbers as LEB128, partly as differences. page/data.js reads it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/array.h"
#include "base/json.h"
#include "base/map64.h"
#include "export/page/html.h"
#include "record/varint.h"
#include "report/doc.h"

void bytes__free(struct bytes *b)
{
	free(b->p);
	*b = (struct bytes){ 0 };
}

static bool room(struct bytes *b, size_t n)
{
	if (!b->failed && array__grow(&b->p, &b->cap, b->n + n, 1))
		b->failed = true;
	return !b->failed;
}

static void put_varint(struct bytes *b, uint64_t v)
{
	if (room(b, VARINT_MAX))
		b->n = varint__put(b->p + b->n, v) - b->p;
}

struct page_column *page_columns__add(struct page_columns *c, const char *name, int device,
				      bool zigzag)
{
	/* dummy result; nothing is written, because it is marked as failed */
	static struct page_column nowhere;
	struct page_column *col;

	nowhere.bytes.failed = true;
	if (c->failed || array__grow(&c->all, &c->cap, c->n + 1, sizeof(*c->all))) {
		c->failed = true;
		return &nowhere;
	}
	col = &c->all[c->n++];
	*col = (struct page_column){ .zigzag = zigzag };
	if (device < 0)
		snprintf(col->name, sizeof(col->name), "%s", name);
	else
		snprintf(col->name, sizeof(col->name), "%d.%s", device, name);
	return col;
}

void html_payload__put(struct page_column *c, uint64_t v)
{
	put_varint(&c->bytes, c->zigzag ? zigzag(v) : v);
	c->n++;
}

/* --- columns of a device */

/* A column of rarely changing values, stored as pairs: distance to the next change and the
 * difference. */
struct changes {
	struct bytes at, by;
	uint64_t n, since, last;
};

static void changes__put(struct changes *s, uint64_t v)
{
	if (v != s->last) {
		put_varint(&s->at, s->since);
		put_varint(&s->by, zigzag(v - s->last));
		s->n++;
		s->since = 0;
		s->last = v;
	}
	s->since++;
}

static void changes__end(struct changes *s, struct page_columns *c, const char *at, const char *by,
			 int device)
{
	struct page_column *col = page_columns__add(c, at, device, false);

	col->bytes = s->at;
	col->n = s->n;
	col = page_columns__add(c, by, device, true);
	col->bytes = s->by;
	col->n = s->n;
}

static void put_moments(struct page_columns *c, const struct page_data *p,
			const struct page_device *d, int i)
{
	struct page_column *col = page_columns__add(c, "time", i, false);
	struct changes reserved = { 0 };
	struct model_now first;
	uint64_t last = 0;

	for (size_t k = 0; k < d->n; k++) {
		html_payload__put(col, d->moments[k].time - last);
		last = d->moments[k].time;
	}
	model__first(p->c->model, d->number, &first);
	for (size_t k = 0; k <= d->n; k++)
		changes__put(&reserved, k ? d->moments[k - 1].reserved : first.reserved);
	changes__end(&reserved, c, "reserved.at", "reserved.by", i);
}

/* Not needed if every event is a moment. */
static void put_curve(struct page_columns *c, const struct page_device *d, int i)
{
	struct page_column *number = page_columns__add(c, "curve.number", i, false), *col;
	const struct curve *v = &d->curve;
	uint64_t last = 0;

	for (size_t k = 0; k < v->n; k++) {
		html_payload__put(number, v->parts[k].number - last);
		last = v->parts[k].number;
	}
	col = page_columns__add(c, "curve.last", i, true);
	last = 0;
	for (size_t k = 0; k < v->n; k++) {
		html_payload__put(col, html_moments__allocated(d, v->parts[k].last) - last);
		last = html_moments__allocated(d, v->parts[k].last);
	}
	/* distances below and above the last value */
	col = page_columns__add(c, "curve.min", i, false);
	for (size_t k = 0; k < v->n; k++)
		html_payload__put(col, html_moments__allocated(d, v->parts[k].last) -
					       html_moments__allocated(d, v->parts[k].min));
	col = page_columns__add(c, "curve.max", i, false);
	for (size_t k = 0; k < v->n; k++)
		html_payload__put(col, html_moments__allocated(d, v->parts[k].max) -
					       html_moments__allocated(d, v->parts[k].last));
	col = page_columns__add(c, "curve.reserved", i, false); /* highest value and last value */
	for (size_t k = 0; k < v->n; k++)
		html_payload__put(col, v->parts[k].reserved_max);
	col = page_columns__add(c, "curve.rlast", i, false);
	for (size_t k = 0; k < v->n; k++)
		html_payload__put(col, v->parts[k].reserved);
	col = page_columns__add(c, "curve.width", i, false);
	html_payload__put(col, v->width);
}

static uint64_t unknown_of(const struct page_device *d, int64_t value)
{
	uint64_t sum = (uint64_t)value + d->last.late - d->last.told;

	return (int64_t)sum > 0 ? sum : 0;
}

/* Allocated bytes normally equal live blocks plus unknown bytes, so they are not stored. If
 * records were lost, the difference is stored as a column. */
static int put_rest(struct page_columns *c, const struct page_data *p, const struct page_device *d,
		    int i)
{
	uint64_t *sums = calloc(d->n + 2, sizeof(*sums)), live = 0;
	struct changes unknown = { 0 }, rest = { 0 };
	struct model_now first;

	if (!sums)
		return -ENOMEM;
	for (size_t k = 0; k < d->nblocks; k++) {
		const struct page_block *b = &d->blocks[k];
		struct row row;
		uint64_t size = model__block_class(p->c->model, b->block_class, &row);

		sums[b->born1] += size;
		if (b->gone1)
			sums[b->gone1] -= size;
	}
	model__first(p->c->model, d->number, &first);
	for (size_t k = 0; k <= d->n; k++) {
		uint64_t allocated = html_moments__allocated(d, k ? d->moments[k - 1].allocated
								  : (int64_t)first.allocated);
		uint64_t unknown_bytes = unknown_of(d, k ? d->moments[k - 1].unknown
							 : (int64_t)first.unknown);

		live += sums[k];
		changes__put(&unknown, unknown_bytes);
		changes__put(&rest, allocated - live - unknown_bytes);
	}
	changes__end(&unknown, c, "unknown.at", "unknown.by", i);
	changes__end(&rest, c, "rest.at", "rest.by", i);
	free(sums);
	return 0;
}

static int cmp_block(const void *a, const void *b)
{
	const struct page_block *x = a, *y = b;

	if (x->born1 != y->born1)
		return x->born1 < y->born1 ? -1 : 1;
	if (x->block_class != y->block_class)
		return x->block_class < y->block_class ? -1 : 1;
	if (x->gone1 != y->gone1)
		return x->gone1 < y->gone1 ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Addresses as numbers in order of first use, because allocators reuse addresses often. */
static int put_addresses(struct page_columns *c, const struct page_device *d, int i)
{
	struct map64 *numbers = map64__new();
	struct page_column *col = page_columns__add(c, "addr", i, false);
	uint64_t *all = malloc((d->nblocks + 1) * sizeof(*all)), n = 0, number;
	int err = numbers && all ? 0 : -ENOMEM;

	for (size_t k = 0; k < d->nblocks && !err; k++) {
		if (!map64__get(numbers, d->blocks[k].addr, &number)) {
			err = map64__set(numbers, d->blocks[k].addr, n);
			all[n] = d->blocks[k].addr;
			number = n++;
		}
		html_payload__put(col, number);
	}
	col = page_columns__add(c, "addr.of", i, true);
	for (size_t k = 0; k < n; k++)
		html_payload__put(col, all[k] - (k ? all[k - 1] : 0));
	map64__free(numbers);
	free(all);
	return err;
}

static void put_blocks(struct page_columns *c, struct page_device *d, int i)
{
	struct page_column *col = page_columns__add(c, "born", i, false);
	uint64_t last = 0;

	if (d->nblocks)
		qsort(d->blocks, d->nblocks, sizeof(*d->blocks), cmp_block);
	for (size_t k = 0; k < d->nblocks; k++) {
		html_payload__put(col, d->blocks[k].born1 - last);
		last = d->blocks[k].born1;
	}
	col = page_columns__add(c, "kin", i, false);
	for (size_t k = 0; k < d->nblocks; k++)
		html_payload__put(col, d->blocks[k].block_class);
	col = page_columns__add(c, "life", i,
				false); /* moments until the free; 0: live until the end */
	for (size_t k = 0; k < d->nblocks; k++)
		html_payload__put(col,
				  d->blocks[k].gone1 ? d->blocks[k].gone1 - d->blocks[k].born1 : 0);
}

static void put_passed(struct page_columns *c, const struct page_device *d, int i)
{
	struct page_column *col = page_columns__add(c, "pmoment", i, false);
	uint64_t last = 0;

	for (size_t k = 0; k < d->npassed; k++) {
		html_payload__put(col, d->passed[k].moment - last);
		last = d->passed[k].moment;
	}
	col = page_columns__add(c, "pkin", i, false);
	for (size_t k = 0; k < d->npassed; k++)
		html_payload__put(col, d->passed[k].block_class);
	col = page_columns__add(c, "pn", i, false);
	for (size_t k = 0; k < d->npassed; k++)
		html_payload__put(col, d->passed[k].n);
}

/* addr, size, born1, gone1, range, flags (1: told, 2: expandable, 4: small, 8: large), stream
 * and pool of each segment. */
static void put_segments(struct page_columns *c, const struct page_device *d, int i)
{
	struct page_column *col = page_columns__add(c, "segments", i, false);

	for (size_t k = 0; k < d->nsegments; k++) {
		const struct page_segment *s = &d->segments[k];

		if (!s->x.there)
			continue;
		html_payload__put(col, s->x.addr);
		html_payload__put(col, s->x.size);
		html_payload__put(col, s->born1);
		html_payload__put(col, s->gone1);
		html_payload__put(col, s->x.range);
		html_payload__put(col, s->x.told | s->x.expandable << 1 |
					       (s->x.kind == SEGMENT_OF_SMALL) << 2 |
					       (s->x.kind == SEGMENT_OF_LARGE) << 3);
		html_payload__put(col, s->x.cuda_stream);
		html_payload__put(col, s->x.pool[0]);
		html_payload__put(col, s->x.pool[1]);
	}
}

static void put_block_classes(struct page_columns *c, const struct page_data *p,
			      const struct page_rows *r)
{
	struct page_column *row = page_columns__add(c, "kin.row", -1, false), *size;
	uint32_t n = model__block_classes(p->c->model);
	struct row words;

	for (uint32_t k = 0; k < n; k++)
		html_payload__put(row, page_rows__of_class(r, k));
	size = page_columns__add(c, "kin.size", -1, false);
	for (uint32_t k = 0; k < n; k++)
		html_payload__put(size, model__block_class(p->c->model, k, &words));
}

/* --- complete payload */

static int put_columns(struct page_columns *c, struct page_data *p, const struct page_rows *r)
{
	int err = 0;

	for (size_t i = 0; i < model__devices(p->c->model) && !err; i++) {
		uint32_t number = model__number(p->c->model, i);
		int k = html_head__put_device(p, i);

		if (k < 0 || number >= p->n)
			continue;
		put_moments(c, p, &p->devices[number], k);
		if (p->chosen)
			put_curve(c, &p->devices[number], k);
		err = put_rest(c, p, &p->devices[number], k);
		put_blocks(c, &p->devices[number], k);
		if (!err && p->devices[number].nsegments && !p->no_addresses)
			err = put_addresses(c, &p->devices[number], k);
		put_passed(c, &p->devices[number], k);
		put_segments(c, &p->devices[number], k);
	}
	put_block_classes(c, p, r);
	page_rows__put_columns(r, c);
	for (size_t i = 0; i < c->n; i++)
		c->failed |= c->all[i].bytes.failed;
	return err ? err : c->failed ? -ENOMEM : 0;
}

static void put_layers(struct json *j, const struct model *m)
{
	json__open_array(j, "layers");
	for (size_t i = 0; i < model__layers(m); i++) {
		struct model_layer l;

		model__layer(m, i, &l);
		json__open_object(j, NULL);
		json__string(j, "name", l.name);
		json__string(j, "class", l.cls);
		json__string(j, "root", l.root);
		report_json__layer(j, &l, true);
		json__close_object(j);
	}
	json__close_array(j);
}

static int put_directory(FILE *out, const struct page_data *p, const struct page_rows *r,
			 const struct page_columns *c)
{
	struct json *j = json__new(out, false);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_array(j, "columns"); /* name, bytes, count of numbers, zigzag */
	for (size_t i = 0; i < c->n; i++) {
		json__open_array(j, NULL);
		json__string(j, NULL, c->all[i].name);
		json__uint(j, NULL, c->all[i].bytes.n);
		json__uint(j, NULL, c->all[i].n);
		json__uint(j, NULL, c->all[i].zigzag);
		json__close_array(j);
	}
	json__close_array(j);
	page_rows__put_words(r, j);
	put_layers(j, p->c->model);
	json__close_object(j);
	json__free(j);
	return 0;
}

static int zip(z_stream *z, const void *data, size_t n, bool last, struct bytes *ret)
{
	const uint8_t *p = data;
	int status = Z_OK;

	do {
		size_t part = n < 1 << 30 ? n : 1 << 30;
		bool end = last && part == n;

		z->next_in = (uint8_t *)(uintptr_t)p;
		z->avail_in = part;
		do {
			if (!room(ret, 1 << 16))
				return -ENOMEM;
			z->next_out = ret->p + ret->n;
			z->avail_out = 1 << 16;
			status = deflate(z, end ? Z_FINISH : Z_NO_FLUSH);
			ret->n = z->next_out - ret->p;
		} while (!z->avail_out || (end && status != Z_STREAM_END));
		p += part;
		n -= part;
	} while (n);
	return 0;
}

static int compress_all(const char *directory, size_t n, const struct page_columns *c,
			struct bytes *ret)
{
	uint8_t length[4] = { n, n >> 8, n >> 16, n >> 24 };
	z_stream z = { 0 };
	int err;

	if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	err = zip(&z, length, sizeof(length), false, ret);
	if (!err)
		err = zip(&z, directory, n, false, ret);
	for (size_t i = 0; i < c->n && !err; i++)
		if (c->all[i].bytes.n)
			err = zip(&z, c->all[i].bytes.p, c->all[i].bytes.n, false, ret);
	if (!err)
		err = zip(&z, "", 0, true, ret);
	deflateEnd(&z);
	return err;
}

int html_payload__make(struct page_data *p, struct bytes *ret)
{
	struct page_rows *r = NULL;
	struct page_columns c = { 0 };
	char *directory = NULL;
	size_t n = 0;
	FILE *f;
	int err = page_rows__make(p, &r);

	if (!err)
		err = put_columns(&c, p, r);
	f = err ? NULL : open_memstream(&directory, &n);
	if (!err && !f)
		err = -ENOMEM;
	if (!err)
		err = put_directory(f, p, r, &c);
	if (f && fclose(f) && !err)
		err = -ENOMEM;
	if (!err && n > UINT32_MAX)
		err = -EFBIG;
	if (!err)
		err = compress_all(directory, n, &c, ret);
	for (size_t i = 0; i < c.n; i++)
		bytes__free(&c.all[i].bytes);
	free(c.all);
	free(directory);
	page_rows__free(r);
	return err;
}

void html_payload__base64(FILE *out, const struct bytes *b)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char text[4096];
	size_t n = 0;

	for (size_t i = 0; i < b->n; i += 3) {
		size_t left = b->n - i;
		uint32_t v = (uint32_t)b->p[i] << 16 | (left > 1 ? b->p[i + 1] << 8 : 0) |
			     (left > 2 ? b->p[i + 2] : 0);

		text[n++] = digits[v >> 18];
		text[n++] = digits[v >> 12 & 63];
		text[n++] = left > 1 ? digits[v >> 6 & 63] : '=';
		text[n++] = left > 2 ? digits[v & 63] : '=';
		if (n == sizeof(text) || left <= 3) {
			fwrite(text, 1, n, out);
			n = 0;
		}
	}
}
