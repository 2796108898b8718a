/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "kineto/json_items.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "lib/array.h"

#define MEMBER_MOST 256 /* bytes of a member that is not the array */
#define DEPTH 64

struct reader {
	gzFile in;
	int c;	   /* the next byte; -1: the end */
	char *buf; /* a value's text, NULL terminated */
	size_t n, cap;
	size_t most; /* bytes to keep of a value; it may be longer only if `skip` */
	bool skip;
	int err;
};

static void next(struct reader *r)
{
	r->c = gzgetc(r->in);
}

static void space(struct reader *r)
{
	while (r->c == ' ' || r->c == '\n' || r->c == '\r' || r->c == '\t')
		next(r);
}

static void keep(struct reader *r)
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
	next(r);
}

static void text(struct reader *r)
{
	keep(r); /* the quote */
	while (!r->err && r->c >= 0 && r->c != '"') {
		if (r->c == '\\')
			keep(r);
		if (!r->err)
			keep(r);
	}
	if (r->c != '"')
		r->err = r->err ?: -EBADMSG;
	else if (!r->err)
		keep(r);
}

static bool ends_value(int c)
{
	return c < 0 || c == ',' || c == ']' || c == '}' || c == ' ' || c == '\n' || c == '\r' ||
	       c == '\t';
}

/* Reads a value's text without judging it: brackets match in number. */
static void value(struct reader *r)
{
	int depth = 0;

	r->n = 0;
	do {
		if (r->c < 0)
			r->err = -EBADMSG;
		else if (r->c == '"')
			text(r);
		else if (r->c == '{' || r->c == '[') {
			r->err = ++depth > DEPTH ? -EBADMSG : 0;
			if (!r->err)
				keep(r);
		} else if (r->c == '}' || r->c == ']') {
			depth--;
			keep(r);
		} else if (depth)
			keep(r);
		else
			while (!r->err && !ends_value(r->c))
				keep(r);
	} while (!r->err && depth > 0);
	if (!r->err && !r->n)
		r->err = -EBADMSG;
}

static json_t *parsed(struct reader *r)
{
	json_t *v = json_loadb(r->buf, r->n, JSON_DECODE_ANY, NULL);

	if (!v)
		r->err = -EBADMSG;
	return v;
}

static bool take(struct reader *r, int c)
{
	space(r);
	if (r->c != c)
		return false;
	next(r);
	return true;
}

static void elements(struct reader *r, const struct json_items *items)
{
	next(r);
	if (take(r, ']'))
		return;
	do {
		json_t *v;

		space(r);
		r->most = JSON_ITEMS_MOST;
		r->skip = false;
		value(r);
		v = r->err ? NULL : parsed(r);
		if (v && items->item)
			r->err = items->item(items->ctx, v);
		json_decref(v);
	} while (!r->err && take(r, ','));
	if (!r->err && !take(r, ']'))
		r->err = -EBADMSG;
}

static void member(struct reader *r, const struct json_items *items)
{
	char key[MEMBER_MOST + 1] = "";
	json_t *v;

	space(r);
	r->most = MEMBER_MOST;
	r->skip = true;
	r->n = 0;
	if (r->c != '"')
		r->err = -EBADMSG;
	else
		text(r);
	if (!r->err && r->n >= 2 && r->n <= MEMBER_MOST)
		memcpy(key, r->buf + 1, r->n - 2);
	if (!r->err && !take(r, ':'))
		r->err = -EBADMSG;
	space(r);
	if (!r->err && r->c == '[' && !strcmp(key, items->array)) {
		elements(r, items);
		return;
	}
	if (!r->err)
		value(r);
	if (r->err || r->n > MEMBER_MOST || !items->member)
		return;
	v = json_loadb(r->buf, r->n, JSON_DECODE_ANY, NULL);
	if (json_is_number(v) || json_is_string(v))
		r->err = items->member(items->ctx, key, v);
	json_decref(v);
}

int json_items__read(const char *path, const struct json_items *items)
{
	struct reader r = { .in = gzopen(path, "re") };

	if (!r.in)
		return errno ? -errno : -ENOMEM;
	gzbuffer(r.in, 1 << 16);
	next(&r);
	if (!take(&r, '{'))
		r.err = -EBADMSG;
	if (!r.err && !take(&r, '}')) {
		do
			member(&r, items);
		while (!r.err && take(&r, ','));
		if (!r.err && !take(&r, '}'))
			r.err = -EBADMSG;
	}
	gzclose(r.in);
	free(r.buf);
	return r.err;
}
