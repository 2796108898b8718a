/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/unpickle.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "record/snapshot/inflow.h"
#include "record/snapshot/nested.h"

#define LINE_MOST 4096u	      /* bytes of a line in protocol 0 */
#define TEXT_MOST (64u << 10) /* longer texts are left out: no name or path is so long */
#define LONG_MOST 4096u	      /* bytes of an integer */
#define EACH 16384	      /* operations between two calls of each() */

struct unpickle {
	struct inflow *in;
	struct nested *v;
	bool stopped;
};

/* Sets why the file cannot be read. */
static int bad(struct unpickle *u, const char *why)
{
	u->v->why = why;
	return -EBADMSG;
}

/* The input ended, or could not be read. */
static int ended(struct unpickle *u)
{
	return u->in->err ? u->in->err : bad(u, "the file is cut off");
}

/* The number of n bytes, lowest first. */
static uint64_t little_endian(const uint8_t *p, size_t n)
{
	uint64_t ret = 0;

	for (size_t i = n; i > 0; i--)
		ret = ret << 8 | p[i - 1];
	return ret;
}

/* Reads a number of n bytes. */
static int get_number(struct unpickle *u, size_t n, uint64_t *ret)
{
	const uint8_t *p = inflow__take(u->in, n);

	if (!p)
		return ended(u);
	*ret = little_endian(p, n);
	return 0;
}

/* Reads a line without its end. The text stays until the next reading. */
static int get_line(struct unpickle *u, const char **line, size_t *len)
{
	const uint8_t *end = NULL;

	for (size_t n = 64; !end; n *= 2) {
		bool more = inflow__fill(u->in, n);
		size_t there = (size_t)(u->in->end - u->in->at);

		end = memchr(u->in->at, '\n', there < LINE_MOST ? there : LINE_MOST);
		if (!end && there >= LINE_MOST)
			return bad(u, "a line is too long");
		if (!end && !more)
			return ended(u);
	}
	*line = (const char *)u->in->at;
	*len = (size_t)(end - u->in->at);
	u->in->at = end + 1;
	return 0;
}

/* ---- numbers ---- */

/* An integer of n bytes, two's complement. More than 64 bits have no use in a snapshot. */
static int push_long(struct unpickle *u, size_t n)
{
	const uint8_t *p = inflow__take(u->in, n);
	uint64_t x;

	if (!p)
		return ended(u);
	if (n > 9 || (n == 9 && p[8])) /* the ninth byte has the sign of a large unsigned number */
		return nested__push(u->v, value__of(VALUE_OTHER, 0));
	x = little_endian(p, n < 8 ? n : 8);
	if (n && n < 8 && p[n - 1] & 0x80)
		x |= UINT64_MAX << (8 * n);
	return nested__push(u->v, records__unsigned(u->v->records, x));
}

/* LONG1, LONG4: the length has `size` bytes. */
static int push_sized_long(struct unpickle *u, size_t size)
{
	uint64_t n;
	int err = get_number(u, size, &n);

	if (err)
		return err;
	return n > LONG_MOST ? bad(u, "a number is too long") : push_long(u, (size_t)n);
}

/* BININT, BININT1 and BININT2: n bytes, of which four are signed. */
static int push_int(struct unpickle *u, size_t n)
{
	uint64_t x;
	int err = get_number(u, n, &x);

	if (err)
		return err;
	if (n == 4)
		x = (uint64_t)(int64_t)(int32_t)x;
	return nested__push(u->v, records__unsigned(u->v->records, x));
}

/* INT and LONG of protocol 0: "12", "12L", and "00" and "01" for the two bools. */
static int push_decimal(struct unpickle *u)
{
	char buf[32], *end;
	const char *line;
	uint64_t x;
	size_t len;
	int err = get_line(u, &line, &len);

	if (err)
		return err;
	if (len && line[len - 1] == 'L')
		len--;
	if (!len || len >= sizeof(buf))
		return bad(u, "a number is not one");
	memcpy(buf, line, len);
	buf[len] = '\0';
	if (!strcmp(buf, "00") || !strcmp(buf, "01"))
		return nested__push(u->v, value__of(VALUE_BOOL, buf[1] == '1'));
	errno = 0;
	x = *buf == '-' ? (uint64_t)strtoll(buf, &end, 10) : strtoull(buf, &end, 10);
	if (errno || *end || isspace((unsigned char)*buf))
		return bad(u, "a number is not one");
	return nested__push(u->v, records__unsigned(u->v->records, x));
}

/* FLOAT of protocol 0. No use is made of floats. */
static int push_float_line(struct unpickle *u)
{
	const char *line;
	size_t len;
	int err = get_line(u, &line, &len);

	return err ? err : nested__push(u->v, value__of(VALUE_OTHER, 0));
}

/* ---- texts ---- */

/* Skips n bytes and pushes a value that nothing uses. */
static int push_other(struct unpickle *u, uint64_t n)
{
	if (!inflow__skip(u->in, n))
		return ended(u);
	return nested__push(u->v, value__of(VALUE_OTHER, 0));
}

/* A text or bytes, with a length of `size` bytes. */
static int push_sized(struct unpickle *u, size_t size, bool text)
{
	const uint8_t *p;
	uint64_t n;
	int err = get_number(u, size, &n);

	if (err)
		return err;
	if (!text || n > TEXT_MOST)
		return push_other(u, n);
	p = inflow__take(u->in, (size_t)n);
	return p ? nested__push_text(u->v, p, (size_t)n) : ended(u);
}

/* UNICODE of protocol 0: "raw-unicode-escape". Its escapes stay as they are. */
static int push_unicode_line(struct unpickle *u)
{
	const char *line;
	size_t len;
	int err = get_line(u, &line, &len);

	return err ? err : nested__push_text(u->v, line, len);
}

/* STRING of protocol 0: 'text' or "text". */
static int push_quoted_line(struct unpickle *u)
{
	const char *line;
	size_t len;
	int err = get_line(u, &line, &len);

	if (err)
		return err;
	if (len < 2 || line[0] != line[len - 1] || (line[0] != '\'' && line[0] != '"'))
		return bad(u, "a text has no quotes");
	return nested__push_text(u->v, line + 1, len - 2);
}

/* ---- memo ---- */

/* Stores the top value in the memo (put), or pushes one of the memo. The index has `size` bytes. */
static int memo_index(struct unpickle *u, size_t size, bool put)
{
	uint64_t i;
	int err = get_number(u, size, &i);

	if (err)
		return err;
	return put ? nested__put(u->v, i) : nested__get(u->v, i);
}

/* PUT and GET of protocol 0: as memo_index(), with the index as text. */
static int memo_line(struct unpickle *u, bool put)
{
	char buf[16], *end;
	const char *line;
	uint64_t i;
	size_t len;
	int err = get_line(u, &line, &len);

	if (err)
		return err;
	if (!len || len >= sizeof(buf) || !isdigit((unsigned char)*line))
		return bad(u, "an index of the memo is not a number");
	memcpy(buf, line, len);
	buf[len] = '\0';
	i = strtoull(buf, &end, 10);
	if (*end)
		return bad(u, "an index of the memo is not a number");
	return put ? nested__put(u->v, i) : nested__get(u->v, i);
}

/* ---- operations ---- */

/* Operations that make objects: they run code of the file. */
static const char *why_refused(uint8_t op)
{
	switch (op) {
	case 'c':
		return "it would import code (GLOBAL)";
	case 0x93:
		return "it would import code (STACK_GLOBAL)";
	case 'R':
		return "it would call code (REDUCE)";
	case 'i':
		return "it would call code (INST)";
	case 'o':
		return "it would call code (OBJ)";
	case 'b':
		return "it would set an object's state (BUILD)";
	case 0x81:
		return "it would make an object (NEWOBJ)";
	case 0x92:
		return "it would make an object (NEWOBJ_EX)";
	case 0x82:
	case 0x83:
	case 0x84:
		return "it would import code (EXT)";
	case 'P':
	case 'Q':
		return "it refers to objects outside of the file (PERSID)";
	case 0x97:
	case 0x98:
		return "it refers to buffers outside of the file (NEXT_BUFFER)";
	}
	return "it has an operation that no snapshot has";
}

/* PROTO: checks the version. */
static int protocol(struct unpickle *u)
{
	uint64_t n;
	int err = get_number(u, /*n=*/1, &n);

	if (err)
		return err;
	return n > 5 ? bad(u, "a pickle of a protocol above 5") : 0;
}

/* Protocol 4 frames its operations. They say nothing that the operations do not say. */
static int frame(struct unpickle *u)
{
	uint64_t n;

	return get_number(u, /*n=*/8, &n);
}

/* The operations with texts, and those of protocol 0. */
static int text_operation(struct unpickle *u, uint8_t op)
{
	switch (op) {
	case 'X': /* BINUNICODE */
	case 'T': /* BINSTRING */
		return push_sized(u, /*size=*/4, /*text=*/true);
	case 0x8c: /* SHORT_BINUNICODE */
	case 'U':  /* SHORT_BINSTRING */
		return push_sized(u, /*size=*/1, /*text=*/true);
	case 0x8d: /* BINUNICODE8 */
		return push_sized(u, /*size=*/8, /*text=*/true);
	case 'B': /* BINBYTES */
		return push_sized(u, /*size=*/4, /*text=*/false);
	case 'C': /* SHORT_BINBYTES */
		return push_sized(u, /*size=*/1, /*text=*/false);
	case 0x8e: /* BINBYTES8 */
	case 0x96: /* BYTEARRAY8 */
		return push_sized(u, /*size=*/8, /*text=*/false);
	case 'V': /* UNICODE */
		return push_unicode_line(u);
	case 'S': /* STRING */
		return push_quoted_line(u);
	case 'F': /* FLOAT */
		return push_float_line(u);
	case 'I': /* INT */
	case 'L': /* LONG */
		return push_decimal(u);
	case 'p': /* PUT */
	case 'g': /* GET */
		return memo_line(u, op == 'p');
	}
	return bad(u, why_refused(op));
}

/* Runs an operation. Returns 0, -errno, or -EBADMSG with v->why. */
static int operation(struct unpickle *u, uint8_t op)
{
	struct nested *v = u->v;

	switch (op) {
	case 'h': /* BINGET */
		return memo_index(u, /*size=*/1, /*put=*/false);
	case 'j': /* LONG_BINGET */
		return memo_index(u, /*size=*/4, /*put=*/false);
	case 'q': /* BINPUT */
		return memo_index(u, /*size=*/1, /*put=*/true);
	case 'r': /* LONG_BINPUT */
		return memo_index(u, /*size=*/4, /*put=*/true);
	case 0x94: /* MEMOIZE */
		return nested__memoize(v);
	case 'J': /* BININT */
		return push_int(u, /*n=*/4);
	case 'K': /* BININT1 */
		return push_int(u, /*n=*/1);
	case 'M': /* BININT2 */
		return push_int(u, /*n=*/2);
	case 0x8a: /* LONG1 */
		return push_sized_long(u, /*size=*/1);
	case 0x8b: /* LONG4 */
		return push_sized_long(u, /*size=*/4);
	case 'G': /* BINFLOAT */
		return push_other(u, 8);
	case 'N': /* NONE */
		return nested__push(v, value__of(VALUE_NONE, 0));
	case 0x88: /* NEWTRUE */
	case 0x89: /* NEWFALSE */
		return nested__push(v, value__of(VALUE_BOOL, op == 0x88));
	case '(': /* MARK */
		return nested__mark(v);
	case ']': /* EMPTY_LIST */
		return nested__open_list(v);
	case '}': /* EMPTY_DICT */
		return nested__open_dict(v);
	case 'a': /* APPEND */
	case 'e': /* APPENDS */
		return nested__append(v, op == 'a');
	case 's': /* SETITEM */
	case 'u': /* SETITEMS */
		return nested__set_items(v, op == 's');
	case ')': /* EMPTY_TUPLE */
		return nested__tuple(v, 0);
	case 0x85: /* TUPLE1 */
	case 0x86: /* TUPLE2 */
	case 0x87: /* TUPLE3 */
		return nested__tuple(v, op - 0x84u);
	case 't': /* TUPLE */
		return nested__close_tuple(v);
	case 'l': /* LIST */
		return nested__close_list(v);
	case 'd': /* DICT */
		return nested__close_dict(v);
	case 0x80: /* PROTO */
		return protocol(u);
	case 0x95: /* FRAME */
		return frame(u);
	case '.': /* STOP */
		u->stopped = true;
		return 0;
	}
	return text_operation(u, op);
}

int unpickle__run(struct inflow *in, struct nested *v, int (*each)(void *ctx), void *ctx)
{
	struct unpickle u = { .in = in, .v = v };
	uint64_t n = 0;
	int err = 0;

	while (!u.stopped && !err) {
		const uint8_t *op = inflow__take(in, 1);

		err = op ? operation(&u, *op) : ended(&u);
		if (!err && !(++n % EACH))
			err = each(ctx);
	}
	return err;
}
