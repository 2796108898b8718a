/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Saved memory of a process: pieces of address (8 bytes), length (2 bytes) and bytes,
 * little-endian; length 0 ends the list. Loaded as whole pages with zeros elsewhere. For inclusion
 * in one file.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_PAGE 4096u
#define IMAGE_PAGES 1024
#define IMAGE_SLOTS 4096 /* hash slots for the pages: a power of two */
#define IMAGE_PIECES 8192

struct image_piece {
	uint64_t addr;
	size_t len;
};

static struct {
	uint8_t pages[IMAGE_PAGES][IMAGE_PAGE];
	uint64_t addr[IMAGE_PAGES];
	uint16_t slot[IMAGE_SLOTS]; /* 1 + page number, by address */
	size_t n;
	struct image_piece piece[IMAGE_PIECES];
	size_t n_pieces;
} image;

static inline void image_clear(void)
{
	memset(image.slot, 0, sizeof(image.slot));
	image.n = image.n_pieces = 0;
}

/* The page of an address; make: add it if missing. NULL: missing, or no room. */
static uint8_t *image_page(uint64_t addr, bool make)
{
	uint64_t base = addr & ~(uint64_t)(IMAGE_PAGE - 1);
	size_t i = (base >> 12) * 0x9e3779b97f4a7c15ULL >> 52;

	for (; image.slot[i]; i = (i + 1) % IMAGE_SLOTS) {
		if (image.addr[image.slot[i] - 1] == base)
			return image.pages[image.slot[i] - 1];
	}
	if (!make || image.n == IMAGE_PAGES || base > UINT64_MAX - IMAGE_PAGE)
		return NULL;
	memset(image.pages[image.n], 0, IMAGE_PAGE);
	image.addr[image.n] = base;
	image.slot[i] = (uint16_t)(image.n + 1);
	return image.pages[image.n++];
}

/* Reads at most `size` bytes from addr on. Returns the bytes that were readable. */
static inline size_t image_read(void *dst, size_t size, uint64_t addr)
{
	uint8_t *to = dst;
	size_t done = 0, part;

	while (done < size && addr + done >= addr) {
		const uint8_t *page = image_page(addr + done, false);

		if (!page)
			break;
		part = IMAGE_PAGE - (addr + done) % IMAGE_PAGE;
		if (part > size - done)
			part = size - done;
		memcpy(to + done, page + (addr + done) % IMAGE_PAGE, part);
		done += part;
	}
	return done;
}

static void image_put(uint64_t addr, const uint8_t *data, size_t len)
{
	uint8_t *page;
	size_t part;

	if (image.n_pieces < IMAGE_PIECES && len)
		image.piece[image.n_pieces++] = (struct image_piece){ addr, len };
	for (; len; addr += part, data += part, len -= part) {
		part = IMAGE_PAGE - addr % IMAGE_PAGE;
		if (part > len)
			part = len;
		page = image_page(addr, true);
		if (page)
			memcpy(page + addr % IMAGE_PAGE, data, part);
	}
}

/* Loads the pieces at the start of data. Returns their length in bytes. */
static inline size_t image_parse(const uint8_t *data, size_t size)
{
	size_t at = 0, len;
	uint64_t addr;

	while (size - at >= 10) {
		memcpy(&addr, data + at, 8);
		len = (size_t)data[at + 8] | (size_t)data[at + 9] << 8;
		at += 10;
		if (!len)
			break;
		if (len > size - at)
			len = size - at;
		image_put(addr, data + at, len);
		at += len;
	}
	return at;
}

/* Marks a piece for image_save(). */
static inline void image_touch(uint64_t addr, size_t len)
{
	if (len && image.n_pieces < IMAGE_PIECES)
		image.piece[image.n_pieces++] = (struct image_piece){ addr, len };
}

static int image_by_addr(const void *a, const void *b)
{
	const struct image_piece *p = a, *q = b;

	return p->addr < q->addr ? -1 : p->addr > q->addr;
}

#define IMAGE_NEAR 32 /* largest gap in bytes that joins two pieces */

/* Saves the marked pieces with their bytes from read(). False: a write failed. */
static inline bool image_save(FILE *f, bool (*read)(void *dst, size_t size, uint64_t addr))
{
	static uint8_t buf[1 << 16];
	uint8_t head[10] = { 0 };
	size_t i, k;

	qsort(image.piece, image.n_pieces, sizeof(image.piece[0]), image_by_addr);
	for (i = 0; i < image.n_pieces; i = k) {
		uint64_t from = image.piece[i].addr, len = image.piece[i].len;

		for (k = i + 1;
		     k < image.n_pieces && image.piece[k].addr <= from + len + IMAGE_NEAR; k++) {
			if (image.piece[k].addr + image.piece[k].len > from + len)
				len = image.piece[k].addr + image.piece[k].len - from;
		}
		if (len >= sizeof(buf) || !read(buf, len, from))
			continue;
		memcpy(head, &from, 8);
		head[8] = len & 0xff;
		head[9] = (uint8_t)(len >> 8);
		fwrite(head, sizeof(head), 1, f);
		fwrite(buf, len, 1, f);
	}
	memset(head, 0, sizeof(head));
	fwrite(head, sizeof(head), 1, f);
	return !ferror(f);
}
