/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* PyTorch's viewer reads only some opcodes of the format. It puts all items of one APPENDS onto
 * JavaScript's stack, so long lists are written as several APPENDS of some hundred items.
 */
#include "export/formats/pickle.h"

#include <stdlib.h>
#include <string.h>

#define PROTOCOL 2   /* version of the format; the lowest that has all opcodes below */
#define DEPTH 32     /* most lists and dicts open at once */
#define TOGETHER 512 /* most items of one APPENDS */
#define KEYS 64	     /* most keys that are written once and referred to */

/* Opcodes, by the names of Python's pickletools. */
enum {
	PROTO = 0x80,
	STOP = '.',
	MARK = '(',
	EMPTY_DICT = '}',
	SETITEMS = 'u',
	EMPTY_LIST = ']',
	APPENDS = 'e',
	BINUNICODE = 'X',
	BININT = 'J',
	BININT1 = 'K',
	BININT2 = 'M',
	LONG1 = 0x8a,
	NEWTRUE = 0x88,
	NEWFALSE = 0x89,
	TUPLE2 = 0x86,
	BINPUT = 'q',
	LONG_BINPUT = 'r',
	BINGET = 'h',
	LONG_BINGET = 'j',
};

struct level {
	bool list;  /* true: a list; false: a dict */
	uint32_t n; /* items since the last MARK; only in a list */
};

struct pickle {
	FILE *out;
	uint32_t kept, depth, nkeys;
	struct level levels[DEPTH];
	struct {
		const char *key;
		uint32_t kept;
	} keys[KEYS];
};

struct pickle *pickle__new(FILE *out)
{
	struct pickle *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->out = out;
	fputc(PROTO, out);
	fputc(PROTOCOL, out);
	return p;
}

void pickle__end(struct pickle *p)
{
	if (!p)
		return;
	fputc(STOP, p->out);
	free(p);
}

/* Writes the low bytes of v, lowest first. */
static void put_le(struct pickle *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		fputc((int)(v >> (8 * i) & 0xff), p->out);
}

/* Called before each value: in a list, ends one APPENDS and begins the next after TOGETHER items. */
static void begin_value(struct pickle *p)
{
	struct level *l = p->depth ? &p->levels[p->depth - 1] : NULL;

	if (!l || !l->list)
		return;
	if (l->n++ < TOGETHER)
		return;
	fputc(APPENDS, p->out);
	fputc(MARK, p->out);
	l->n = 1;
}

/* Opens a list or a dict. */
static void open_level(struct pickle *p, bool list)
{
	begin_value(p);
	if (p->depth == DEPTH)
		abort();
	p->levels[p->depth++] = (struct level){ .list = list };
	fputc(list ? EMPTY_LIST : EMPTY_DICT, p->out);
	fputc(MARK, p->out);
}

/* Closes a list or a dict. list: what the caller takes it for, which must be true. */
static void close_level(struct pickle *p, bool list)
{
	if (!p->depth || p->levels[--p->depth].list != list)
		abort();
	fputc(list ? APPENDS : SETITEMS, p->out);
}

void pickle__open_dict(struct pickle *p)
{
	open_level(p, /*list=*/false);
}

void pickle__close_dict(struct pickle *p)
{
	close_level(p, /*list=*/false);
}

void pickle__open_list(struct pickle *p)
{
	open_level(p, /*list=*/true);
}

void pickle__close_list(struct pickle *p)
{
	close_level(p, /*list=*/true);
}

/* Writes a string, without begin_value(). */
static void put_string(struct pickle *p, const char *s)
{
	size_t len = strlen(s);

	len = len < UINT32_MAX ? len : UINT32_MAX;
	fputc(BINUNICODE, p->out);
	put_le(p, len, /*bytes=*/4);
	fwrite(s, 1, len, p->out);
}

void pickle__string(struct pickle *p, const char *s)
{
	begin_value(p);
	put_string(p, s);
}

/* Writes an opcode with the number of a kept value: the short one with a byte, or the long one
 * with 4. */
static void put_kept(struct pickle *p, uint32_t i, int short_op, int long_op)
{
	bool is_short = i <= UINT8_MAX;

	fputc(is_short ? short_op : long_op, p->out);
	put_le(p, i, is_short ? 1 : 4);
}

uint32_t pickle__keep(struct pickle *p)
{
	uint32_t i = p->kept++;

	put_kept(p, i, BINPUT, LONG_BINPUT);
	return i;
}

/* Writes the kept value with this number again. */
static void put_again(struct pickle *p, uint32_t i)
{
	put_kept(p, i, BINGET, LONG_BINGET);
}

void pickle__again(struct pickle *p, uint32_t kept)
{
	begin_value(p);
	put_again(p, kept);
}

void pickle__key(struct pickle *p, const char *key)
{
	for (uint32_t i = 0; i < p->nkeys; i++) {
		if (p->keys[i].key == key) {
			put_again(p, p->keys[i].kept);
			return;
		}
	}
	put_string(p, key);
	if (p->nkeys == KEYS)
		return;
	p->keys[p->nkeys].key = key;
	p->keys[p->nkeys++].kept = pickle__keep(p);
}

/* Writes a number with the shortest opcode that has room for it, without begin_value(). */
static void put_uint(struct pickle *p, uint64_t v)
{
	int n = 5; /* bytes of a LONG1: BININT has 4 */

	if (v <= 0xff) {
		fputc(BININT1, p->out);
		put_le(p, v, /*bytes=*/1);
	} else if (v <= 0xffff) {
		fputc(BININT2, p->out);
		put_le(p, v, /*bytes=*/2);
	} else if (v <= INT32_MAX) {
		fputc(BININT, p->out);
		put_le(p, v, /*bytes=*/4);
	} else { /* signed: the top bit of the last byte is 0 */
		while (n < 8 && v >> (8 * n - 1))
			n++;
		fputc(LONG1, p->out);
		fputc(v >> 63 ? 9 : n, p->out);
		put_le(p, v, n);
		if (v >> 63)
			fputc(0, p->out);
	}
}

void pickle__uint(struct pickle *p, uint64_t v)
{
	begin_value(p);
	put_uint(p, v);
}

void pickle__int(struct pickle *p, int64_t v)
{
	if (v >= 0) {
		pickle__uint(p, (uint64_t)v);
		return;
	}
	begin_value(p);
	if (v >= INT32_MIN) {
		fputc(BININT, p->out);
		put_le(p, (uint64_t)v, /*bytes=*/4);
	} else {
		fputc(LONG1, p->out);
		fputc(8, p->out);
		put_le(p, (uint64_t)v, /*bytes=*/8);
	}
}

void pickle__bool(struct pickle *p, bool v)
{
	begin_value(p);
	fputc(v ? NEWTRUE : NEWFALSE, p->out);
}

void pickle__pair(struct pickle *p, uint64_t a, uint64_t b)
{
	begin_value(p);
	put_uint(p, a);
	put_uint(p, b);
	fputc(TUPLE2, p->out);
}
