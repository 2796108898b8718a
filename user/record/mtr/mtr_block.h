/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Builds blocks from payloads: header, checksum, compression. The caller collects blocks in a
 * buffer and writes them together. */
#include <stddef.h>
#include <stdint.h>

#include "record/dict.h"
#include "record/mtr/mtr_encode.h"
#include "record/mtr_format.h"

struct buf {
	uint8_t *data;
	size_t len, room;
};

/* Return 0 or -ENOMEM. */
int buf__put(struct buf *b, const void *data, size_t len);
int buf__varint(struct buf *b, uint64_t v);
void buf__free(struct buf *b);

struct ZSTD_CCtx_s;

/* Appends one block to out. Its payload is the concatenation of the parts; each part is compressed
 * with its own statistics. Returns 0 or -ENOMEM. */
int mtr_block__append(struct buf *out, struct ZSTD_CCtx_s *zstd, enum mtr_block type,
		      const struct mtr_part *parts, size_t n);

/* Appends dictionary blocks for the entries [from, to). Entries refer only to earlier entries.
 * Returns 0 or -ENOMEM. */
int mtr_block__append_dict(struct buf *out, struct ZSTD_CCtx_s *zstd, const struct dict *d,
			   const struct dict_counts *from, const struct dict_counts *to);
