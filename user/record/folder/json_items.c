/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/json_items.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/array.h"

#define MEMBER_MOST 256 /* bytes of the longest key or other member that is kept */
#define DEPTH 64	/* most brackets open at once */

struct reader {
	gzFile in;
	int c;	     /* the next byte; -1: end of the file */
	char *buf;   /* text of the present value; not terminated */
	size_t n;    /* length of the value so far, bytes that were not kept included */
	size_t cap;  /* size of buf */
	size_t most; /* bytes of a value that are kept */
	bool skip;   /* true: ignore the bytes after `most`; false: they are the error -EMSGSIZE */
	int err;
};

/* Reads the next byte into r->c. */
static void next_byte(struct reader *r)
{
	r->c = gzgetc(r->in);
}

static void skip_space(struct reader *r)
{
	while (r->c == ' ' || r->c == '\n' || r->c == '\r' || r->c == '\t')
		next_byte(r);
}

/* Appends the next byte to the value's text and reads the one after it. */
static void keep_byte(struct reader *r)
{
	if (r->n < r->most) {
		if (r->n + 1 >= r->cap && array__grow(&r->buf, &r->cap, r->n + 2, 1)) {
			r->err = -ENOMEM;
			return;
		}
		r->buf[r->n] = (char)r->c;
	} else if (!r->skip) {
		r->err = -EMSGSIZE;
		return;
	}
	r->n++;
	next_byte(r);
}

/* Reads a JSON text with its quotes. */
static void read_text(struct reader *r)
{
	keep_byte(r); /* the quote */
	while (!r->err && r->c >= 0 && r->c != '"') {
		if (r->c == '\\')
			keep_byte(r);
		if (!r->err)
			keep_byte(r);
	}
	if (r->c != '"')
		r->err = r->err ?: -EBADMSG;
	else if (!r->err)
		keep_byte(r);
}

/* True for a byte that ends a number, true, false or null. */
static bool ends_value(int c)
{
	return c < 0 || (c && strchr(",]} \n\r\t", c));
}

/* Reads the text of one JSON value, up to the bracket that ends it. json_loadb() checks the text
 * later. */
static void read_value(struct reader *r)
{
	int depth = 0;

	r->n = 0;
	do {
		if (r->c < 0)
			r->err = -EBADMSG;
		else if (r->c == '"')
			read_text(r);
		else if (r->c == '{' || r->c == '[') {
			r->err = ++depth > DEPTH ? -EBADMSG : 0;
			if (!r->err)
				keep_byte(r);
		} else if (r->c == '}' || r->c == ']') {
			depth--;
			keep_byte(r);
		} else if (depth)
			keep_byte(r);
		else /* a number, true, false or null */
			while (!r->err && !ends_value(r->c))
				keep_byte(r);
	} while (!r->err && depth > 0);
	if (!r->err && !r->n)
		r->err = -EBADMSG;
}

/* Skips white space and then the byte c. Returns false if the next byte is another one. */
static bool take_byte(struct reader *r, int c)
{
	skip_space(r);
	if (r->c != c)
		return false;
	next_byte(r);
	return true;
}

/* Reads an array from its opening bracket to its closing one. */
static void read_elements(struct reader *r, const struct json_items *items, const char *array)
{
	size_t flags = JSON_DECODE_ANY | (items->strict ? JSON_REJECT_DUPLICATES : 0);

	next_byte(r);
	if (items->item)
		r->err = items->item(items->ctx, array, NULL);
	if (r->err || take_byte(r, ']'))
		return;
	do {
		json_t *v = NULL;

		skip_space(r);
		r->most = JSON_ITEMS_MOST;
		r->skip = false;
		read_value(r);
		if (!r->err)
			v = json_loadb(r->buf, r->n, flags, NULL);
		if (!v)
			r->err = r->err ?: -EBADMSG;
		else if (items->item)
			r->err = items->item(items->ctx, array, v);
		json_decref(v);
	} while (!r->err && take_byte(r, ','));
	if (!r->err && !take_byte(r, ']'))
		r->err = -EBADMSG;
}

/* Returns the entry of items->arrays that is equal to key, or NULL. */
static const char *array_of(const struct json_items *items, const char *key)
{
	const char *const *name = items->arrays;

	while (*name && strcmp(*name, key))
		name++;
	return *name;
}

/* Reads a key and its value. */
static void read_member(struct reader *r, const struct json_items *items)
{
	const char *array;
	char key[MEMBER_MOST + 1] = "";
	json_t *v;

	skip_space(r);
	r->most = MEMBER_MOST;
	r->skip = true;
	r->n = 0;
	if (r->c != '"')
		r->err = -EBADMSG;
	else
		read_text(r);
	if (!r->err && r->n >= 2 && r->n <= MEMBER_MOST)
		memcpy(key, r->buf + 1, r->n - 2);
	if (!r->err && !take_byte(r, ':'))
		r->err = -EBADMSG;
	skip_space(r);
	array = array_of(items, key);
	if (array && r->c != '[' && items->strict)
		r->err = -EBADMSG;
	if (!r->err && array && r->c == '[') {
		read_elements(r, items, array);
		return;
	}
	if (!r->err)
		read_value(r);
	if (r->err || r->n > MEMBER_MOST || !items->member)
		return;
	v = json_loadb(r->buf, r->n, JSON_DECODE_ANY, NULL);
	if (json_is_number(v) || json_is_string(v))
		r->err = items->member(items->ctx, key, v);
	json_decref(v);
}

/* Reads the file and closes it. Returns 0 or -errno. */
static int read_all(gzFile in, const struct json_items *items)
{
	struct reader r = { .in = in };

	gzbuffer(r.in, 1 << 16);
	next_byte(&r);
	if (items->strict && !gzdirect(r.in)) /* it is compressed */
		r.err = -EBADMSG;
	if (!r.err && !take_byte(&r, '{'))
		r.err = -EBADMSG;
	if (!r.err && !take_byte(&r, '}')) {
		do
			read_member(&r, items);
		while (!r.err && take_byte(&r, ','));
		if (!r.err && !take_byte(&r, '}'))
			r.err = -EBADMSG;
	}
	skip_space(&r);
	if (!r.err && items->strict && r.c >= 0)
		r.err = -EBADMSG;
	gzclose(r.in);
	free(r.buf);
	return r.err;
}

int json_items__read(const char *path, const struct json_items *items)
{
	gzFile in = gzopen(path, "re");

	if (!in)
		return errno ? -errno : -ENOMEM;
	return read_all(in, items);
}

int json_items__read_fd(int fd, const struct json_items *items)
{
	gzFile in = gzdopen(fd, "r");

	if (!in) {
		close(fd);
		return -ENOMEM;
	}
	return read_all(in, items);
}
