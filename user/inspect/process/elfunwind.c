/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sizes of functions from .eh_frame, through the sorted table of .eh_frame_hdr. Only the encodings
 * that 64-bit linkers and compilers write are supported; others mean "not known". */
#include <errno.h>
#include <string.h>

#include "inspect/process/elf_file.h"

#define PE_FORMAT 0x0f
#define PE_ABSPTR 0x00
#define PE_UDATA4 0x03
#define PE_UDATA8 0x04
#define PE_SDATA4 0x0b
#define PE_SDATA8 0x0c
#define PE_PCREL 0x10
#define PE_TABLE 0x3b /* relative to the header, signed 32 bits: the searchable form */
#define ENTRIES_MAX (64u << 20)
#define CIE_MAX 64 /* bytes of a CIE read, which contain its augmentation */

struct hdr {
	uint8_t version, frame_enc, count_enc, table_enc;
	int32_t frame;
	uint32_t count;
};

struct entry {
	int32_t start, fde; /* relative to the header */
};

static int find_table(const struct elf *e, uint64_t *vaddr, struct hdr *h)
{
	uint32_t i;

	for (i = 0; i < e->ph_n; i++) {
		if (e->ph[i].p_type != PT_GNU_EH_FRAME)
			continue;
		*vaddr = e->ph[i].p_vaddr;
		if (elf__read(e, *vaddr, h, sizeof(*h)) || h->version != 1)
			return -ENOENT;
		if (h->count_enc != PE_UDATA4 || h->table_enc != PE_TABLE ||
		    h->count > ENTRIES_MAX ||
		    ((h->frame_enc & PE_FORMAT) != PE_SDATA4 &&
		     (h->frame_enc & PE_FORMAT) != PE_UDATA4))
			return -ENOENT;
		return h->count ? 0 : -ENOENT;
	}
	return -ENOENT;
}

/* The last entry with start <= vaddr. */
static int search(const struct elf *e, uint64_t table, uint32_t count, uint64_t base,
		  uint64_t vaddr, struct entry *ret)
{
	uint32_t lo = 0, hi = count, mid;
	struct entry en;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (elf__read(e, table + 8ull * mid, &en, sizeof(en)))
			return -ENOENT;
		if (base + (uint64_t)(int64_t)en.start <= vaddr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || elf__read(e, table + 8ull * (lo - 1), ret, sizeof(*ret)))
		return -ENOENT;
	return 0;
}

static size_t encoded_size(uint8_t enc)
{
	switch (enc & PE_FORMAT) {
	case PE_UDATA4:
	case PE_SDATA4:
		return 4;
	case PE_ABSPTR:
	case PE_UDATA8:
	case PE_SDATA8:
		return 8;
	default:
		return 0;
	}
}

static size_t skip_leb(const uint8_t *b, size_t pos, size_t len)
{
	while (pos < len && b[pos] & 0x80)
		pos++;
	return pos + 1;
}

/* Encoding of addresses in a CIE's entries ('R' of its augmentation). */
static int pointer_encoding(const struct elf *e, uint64_t cie, uint8_t *ret)
{
	uint8_t b[CIE_MAX];
	size_t pos = 9, aug, n;
	uint32_t id;

	if (elf__read(e, cie, b, sizeof(b)))
		return -ENOENT;
	memcpy(&id, b + 4, sizeof(id));
	if (id || (b[8] != 1 && b[8] != 3))
		return -ENOENT;
	aug = pos;
	n = strnlen((const char *)b + aug, 8);
	if (n == 8 || b[aug] != 'z')
		return -ENOENT;
	pos = skip_leb(b, aug + n + 1, sizeof(b));		 /* code alignment */
	pos = skip_leb(b, pos, sizeof(b));			 /* data alignment */
	pos = b[8] == 1 ? pos + 1 : skip_leb(b, pos, sizeof(b)); /* return address register */
	pos = skip_leb(b, pos, sizeof(b)); /* length of the augmentation data */
	for (aug++; b[aug] && pos < sizeof(b); aug++) {
		if (b[aug] == 'R') {
			*ret = b[pos];
			return 0;
		}
		if (b[aug] == 'P') {
			if (!encoded_size(b[pos]))
				return -ENOENT;
			pos += 1 + encoded_size(b[pos]);
		} else if (b[aug] == 'L') {
			pos++;
		} else if (b[aug] != 'S' && b[aug] != 'B') {
			return -ENOENT;
		}
	}
	return -ENOENT;
}

static uint64_t decode(const uint8_t *b, uint8_t enc, uint64_t at)
{
	uint64_t v = 0;
	int32_t v32;

	if (encoded_size(enc) == 4) {
		memcpy(&v32, b, sizeof(v32));
		v = (enc & PE_FORMAT) == PE_SDATA4 ? (uint64_t)(int64_t)v32 : (uint32_t)v32;
	} else {
		memcpy(&v, b, sizeof(v));
	}
	return enc & PE_PCREL ? v + at : v;
}

static int read_fde(const struct elf *e, uint64_t fde, uint64_t *start, uint64_t *size)
{
	uint32_t head[2];
	uint8_t enc, b[16];
	size_t width;

	if (elf__read(e, fde, head, sizeof(head)) || !head[0] || head[0] == UINT32_MAX || !head[1])
		return -ENOENT;
	if (pointer_encoding(e, fde + 4 - head[1], &enc) || (enc & 0xf0 & ~PE_PCREL))
		return -ENOENT;
	width = encoded_size(enc);
	if (!width || head[0] < 4 + 2 * width || elf__read(e, fde + 8, b, 2 * width))
		return -ENOENT;
	*start = decode(b, enc, fde + 8);
	*size = decode(b + width, enc & PE_FORMAT & ~0x08, 0); /* lengths are unsigned */
	return *size ? 0 : -ENOENT;
}

int elf__function(const struct elf *e, uint64_t vaddr, uint64_t *start, uint64_t *size)
{
	uint64_t base, from, len;
	struct entry en;
	struct hdr h;

	if (find_table(e, &base, &h) || search(e, base + sizeof(h), h.count, base, vaddr, &en))
		return -ENOENT;
	if (read_fde(e, base + (uint64_t)(int64_t)en.fde, &from, &len))
		return -ENOENT;
	/* table and entry must agree, and the function must contain the address */
	if (from != base + (uint64_t)(int64_t)en.start || vaddr < from || vaddr - from >= len)
		return -ENOENT;
	*start = from;
	*size = len;
	return 0;
}
