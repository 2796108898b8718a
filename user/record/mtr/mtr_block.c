/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr/mtr_block.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/array.h"
#include "record/crc32c.h"
#include "record/varint.h"

#define ZSTD_LEVEL 3
#define WORTH_COMPRESSING 64
#define PART_OVERHEAD 64 /* upper bound of a zstd block boundary, bytes */

static int reserve(struct buf *b, size_t len)
{
	size_t need;

	if (__builtin_add_overflow(b->len, len, &need) || need > SIZE_MAX / 2)
		return -ENOMEM;
	return array__grow(&b->data, &b->room, need, 1);
}

int buf__put(struct buf *b, const void *data, size_t len)
{
	if (reserve(b, len))
		return -ENOMEM;
	memcpy(b->data + b->len, data, len);
	b->len += len;
	return 0;
}

int buf__varint(struct buf *b, uint64_t v)
{
	if (reserve(b, VARINT_MAX))
		return -ENOMEM;
	b->len = (size_t)(varint__put(b->data + b->len, v) - b->data);
	return 0;
}

void buf__free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}

/*
 * Compresses all parts into one zstd frame at dst. Each part ends its own zstd block and so gets
 * its own Huffman table, because the noise of the times would spoil the other columns. Returns the
 * length, or 0 on failure.
 */
static size_t compress(ZSTD_CCtx *zstd, uint8_t *dst, size_t room, const struct mtr_part *parts,
		       size_t n, size_t raw)
{
	ZSTD_outBuffer out = { dst, room, 0 };

	if (ZSTD_isError(ZSTD_CCtx_reset(zstd, ZSTD_reset_session_and_parameters)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL)) ||
	    ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(zstd, raw)))
		return 0;
	for (size_t i = 0; i < n; i++) {
		ZSTD_inBuffer in = { parts[i].data, parts[i].len, 0 };

		/* A remainder means that dst is too short. */
		if (ZSTD_compressStream2(zstd, &out, &in, i + 1 < n ? ZSTD_e_flush : ZSTD_e_end))
			return 0;
	}
	return out.pos;
}

int mtr_block__append(struct buf *out, ZSTD_CCtx *zstd, enum mtr_block type,
		      const struct mtr_part *parts, size_t n)
{
	size_t raw = 0, stored = 0, start = out->len;
	uint8_t *header, *payload;

	for (size_t i = 0; i < n; i++)
		raw += parts[i].len;
	if (reserve(out, MTR_BLOCK_HEADER + ZSTD_compressBound(raw) + n * PART_OVERHEAD))
		return -ENOMEM;
	header = out->data + start;
	payload = header + MTR_BLOCK_HEADER;
	if (raw >= WORTH_COMPRESSING)
		stored = compress(zstd, payload, out->room - start - MTR_BLOCK_HEADER, parts, n,
				  raw);
	put_le32(header, type);
	put_le32(header + 4, stored && stored < raw ? MTR_ZSTD : 0);
	if (!stored || stored >= raw) {
		stored = 0;
		for (size_t i = 0; i < n; i++) {
			if (parts[i].len)
				memcpy(payload + stored, parts[i].data, parts[i].len);
			stored += parts[i].len;
		}
	}
	put_le32(header + 8, (uint32_t)stored);
	put_le32(header + 12, (uint32_t)raw);
	put_le32(header + 16, crc32c(payload, stored));
	put_le32(header + 20, crc32c(header, 20));
	out->len = start + MTR_BLOCK_HEADER + stored;
	return 0;
}

/* ---- dictionary ---- */

/* Far below MTR_MAX_BLOCK, even with the largest entry added. */
#define DICT_BLOCK_BYTES (1u << 20)

static int put_string(struct buf *b, const struct dict *d, uint32_t id)
{
	const char *s = dict__str(d, id);
	size_t len = strlen(s);

	return buf__varint(b, len) ?: buf__put(b, s, len);
}

static int put_loc(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_loc l = dict__get_loc(d, id);

	return buf__varint(b, l.file) ?: buf__varint(b, l.func) ?: buf__varint(b, l.line | (uint32_t)dict__is_native(d, id) << 31);
}

static int put_module(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_module m = dict__get_module(d, id);

	return buf__varint(b, m.name) ?: buf__varint(b, m.cls) ?: buf__varint(b, m.root);
}

static int put_stack(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_stack s = dict__get_stack(d, id);
	int err = buf__varint(b, s.walk) ?: buf__varint(b, s.n);

	for (uint32_t i = 0; i < s.n && !err; i++)
		err = buf__varint(b, s.frames[i].loc) ?: buf__varint(b, s.frames[i].module);
	return err;
}

static int put_thread(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_thread t = dict__get_thread(d, id);

	return buf__varint(b, t.tid) ?: buf__varint(b, t.name);
}

static int put_node(struct buf *b, const struct dict *d, uint32_t id)
{
	struct dict_node n = dict__get_node(d, id);

	return buf__varint(b, n.cls) ?: buf__varint(b, n.stack) ?: buf__varint(b, n.name) ?: buf__varint(b, n.module);
}

/* Appends one section with as many entries from *from on as fit a block. */
static int put_section(struct buf *b, const struct dict *d, enum mtr_section kind, uint32_t *from,
		       uint32_t to)
{
	static int (*const put[])(struct buf *, const struct dict *, uint32_t) = {
		[MTR_STRINGS] = put_string, [MTR_LOCS] = put_loc,	[MTR_MODULES] = put_module,
		[MTR_STACKS] = put_stack,   [MTR_THREADS] = put_thread, [MTR_NODES] = put_node,
	};
	uint32_t first = *from, id = first;
	struct buf entries = { 0 };
	int err = 0;

	for (; id < to && b->len + entries.len < DICT_BLOCK_BYTES && !err; id++)
		err = put[kind](&entries, d, id);
	if (!err)
		err = buf__varint(b, kind) ?: buf__varint(b, first) ?: buf__varint(b, id - first);
	if (!err)
		err = buf__put(b, entries.data, entries.len);
	buf__free(&entries);
	if (!err)
		*from = id;
	return err;
}

int mtr_block__append_dict(struct buf *out, ZSTD_CCtx *zstd, const struct dict *d,
			   const struct dict_counts *from, const struct dict_counts *to)
{
	const struct {
		enum mtr_section kind;
		uint32_t from, to;
	} sections[] = {
		{ MTR_STRINGS, from->strings, to->strings },
		{ MTR_LOCS, from->locs, to->locs },
		{ MTR_MODULES, from->modules, to->modules },
		{ MTR_STACKS, from->stacks, to->stacks },
		{ MTR_THREADS, from->threads, to->threads },
		{ MTR_NODES, from->nodes, to->nodes },
	};
	struct buf b = { 0 };
	int err = 0;

	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]) && !err; i++) {
		uint32_t next = sections[i].from;

		while (next < sections[i].to && !err) {
			err = put_section(&b, d, sections[i].kind, &next, sections[i].to);
			if (!err && b.len >= DICT_BLOCK_BYTES) {
				struct mtr_part part = { b.data, b.len };

				err = mtr_block__append(out, zstd, MTR_DICT, &part, 1);
				b.len = 0;
			}
		}
	}
	if (!err && b.len) {
		struct mtr_part part = { b.data, b.len };

		err = mtr_block__append(out, zstd, MTR_DICT, &part, 1);
	}
	buf__free(&b);
	return err;
}
