/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/unjson.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "record/snapshot/inflow.h"
#include "record/snapshot/nested.h"

#define TEXT_MOST (64u << 10) /* longer texts are cut: no name or path is so long */
#define EACH 16384	      /* values between two calls of each() */

struct unjson {
	struct inflow *in;
	struct nested *v;
	char text[TEXT_MOST];
	size_t len;
	bool is_dict[NESTED_DEPTH]; /* kinds of the open containers */
	size_t depth;
};

/* Sets why the file cannot be read. */
static int bad(struct unjson *u, const char *why)
{
	u->v->why = why;
	return -EBADMSG;
}

/* The next byte after spaces, which stays. -1: the end. */
static int peek(struct unjson *u)
{
	const struct inflow *in = u->in;

	for (;; u->in->at++) {
		if (in->at == in->end && !inflow__fill(u->in, 1))
			return -1;
		if (!strchr(" \t\r\n", *in->at) || !*in->at)
			return *in->at;
	}
}

/* The next byte, which is taken. -1: the end. */
static int take(struct unjson *u)
{
	const uint8_t *p = inflow__take(u->in, 1);

	return p ? *p : -1;
}

/* The input ended, or could not be read. */
static int ended(struct unjson *u)
{
	return u->in->err ? u->in->err : bad(u, "the file is cut off, or it is no JSON");
}

/* ---- texts ---- */

/* Adds a byte to the text. */
static void add_byte(struct unjson *u, int c)
{
	if (u->len < TEXT_MOST)
		u->text[u->len++] = (char)c;
}

/* Four hexadecimal digits. -1: they are not there. */
static int take_hex(struct unjson *u)
{
	const uint8_t *p = inflow__take(u->in, 4);
	int ret = 0;

	for (int i = 0; p && i < 4; i++) {
		int c = tolower(p[i]);

		if (!isxdigit(c))
			return -1;
		ret = ret * 16 + (isdigit(c) ? c - '0' : c - 'a' + 10);
	}
	return p ? ret : -1;
}

/* Adds a character to the text, as UTF-8. */
static void add_code_point(struct unjson *u, uint32_t c)
{
	if (c < 0x80) {
		add_byte(u, (int)c);
	} else if (c < 0x800) {
		add_byte(u, 0xc0 | (int)(c >> 6));
		add_byte(u, 0x80 | (int)(c & 0x3f));
	} else if (c < 0x10000) {
		add_byte(u, 0xe0 | (int)(c >> 12));
		add_byte(u, 0x80 | (int)(c >> 6 & 0x3f));
		add_byte(u, 0x80 | (int)(c & 0x3f));
	} else {
		add_byte(u, 0xf0 | (int)(c >> 18));
		add_byte(u, 0x80 | (int)(c >> 12 & 0x3f));
		add_byte(u, 0x80 | (int)(c >> 6 & 0x3f));
		add_byte(u, 0x80 | (int)(c & 0x3f));
	}
}

/* The four hex digits after \u. A code point above 0xffff takes two such groups. */
static int take_unicode(struct unjson *u)
{
	int high = take_hex(u), low;

	if (high < 0)
		return ended(u);
	if (high < 0xd800 || high >= 0xdc00) {
		add_code_point(u, (uint32_t)high);
		return 0;
	}
	if (take(u) != '\\' || take(u) != 'u')
		return bad(u, "a text has half a character");
	low = take_hex(u);
	if (low < 0xdc00 || low >= 0xe000)
		return bad(u, "a text has half a character");
	add_code_point(u, 0x10000u + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
	return 0;
}

/* Reads an escape after its backslash. Returns 0, or the error of bad() or ended(). */
static int take_escape(struct unjson *u)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	int c = take(u);
	const char *p = c > 0 ? strchr(from, c) : NULL;

	if (c == 'u')
		return take_unicode(u);
	if (!p)
		return c < 0 ? ended(u) : bad(u, "a text has an escape that JSON does not have");
	add_byte(u, to[p - from]);
	return 0;
}

/* Reads a text after its first quote into u->text. */
static int take_text(struct unjson *u)
{
	int err = 0;

	u->len = 0;
	while (!err) {
		int c = take(u);

		if (c < 0)
			return ended(u);
		if (c == '"')
			return 0;
		if (c == '\\')
			err = take_escape(u);
		else
			add_byte(u, c);
	}
	return err;
}

/* ---- values ---- */

static bool is_of_word(int c)
{
	return c > 0 && (isalnum(c) || strchr("+-.", c));
}

/* The next byte, which stays. -1: the end. */
static int next_byte(struct unjson *u)
{
	return u->in->at < u->in->end || inflow__fill(u->in, 1) ? *u->in->at : -1;
}

/* A number, or true, false, null, NaN, Infinity. */
static int push_word(struct unjson *u)
{
	char word[64], *end;
	size_t n = 0;
	uint64_t x;
	int c;

	for (c = peek(u); is_of_word(c) && n < sizeof(word) - 1; c = next_byte(u)) {
		word[n++] = (char)c;
		u->in->at++;
	}
	word[n] = '\0';
	if (!n)
		return c < 0 ? ended(u) : bad(u, "it is no JSON");
	if (!strcmp(word, "true") || !strcmp(word, "false"))
		return nested__push(u->v, value__of(VALUE_BOOL, word[0] == 't'));
	if (!strcmp(word, "null"))
		return nested__push(u->v, value__of(VALUE_NONE, 0));
	errno = 0;
	x = *word == '-' ? (uint64_t)strtoll(word, &end, 10) : strtoull(word, &end, 10);
	if (errno || *end || !isdigit((unsigned char)word[n - 1]))
		return nested__push(u->v, value__of(VALUE_OTHER, 0));
	return nested__push(u->v, records__unsigned(u->v->records, x));
}

/* Adds the value that was just pushed to the container that it is in. */
static int add_to_container(struct unjson *u)
{
	if (!u->depth)
		return 0;
	return u->is_dict[u->depth - 1] ? nested__set_items(u->v, /*last=*/true)
					: nested__append(u->v, /*last=*/true);
}

/* Opens a list or a dict. Returns 0, -ENOMEM, or the error of bad(). */
static int open_container(struct unjson *u, bool dict)
{
	if (u->depth == NESTED_DEPTH)
		return bad(u, "it nests too deep");
	u->is_dict[u->depth++] = dict;
	return dict ? nested__open_dict(u->v) : nested__open_list(u->v);
}

/* Reads the key of a dict's next item, and the colon. */
static int push_key(struct unjson *u)
{
	int err;

	if (peek(u) != '"')
		return bad(u, "a dict has a key that is no text");
	u->in->at++;
	err = take_text(u);
	if (err)
		return err;
	if (peek(u) != ':')
		return ended(u);
	u->in->at++;
	return nested__push_text(u->v, u->text, u->len);
}

/* Reads the end of the innermost container. JSON has no tuples, and a pool's id is one: records.c
 * makes it of the list. */
static int end_container(struct unjson *u)
{
	u->in->at++;
	u->depth--;
	return add_to_container(u);
}

/* Reads one value, or the begin of a container. */
static int begin_value(struct unjson *u)
{
	int c = peek(u), err;

	if (c == '{' || c == '[') {
		u->in->at++;
		return open_container(u, c == '{');
	}
	if (c != '"')
		return push_word(u) ?: add_to_container(u);
	u->in->at++;
	err = take_text(u);
	if (err)
		return err;
	return nested__push_text(u->v, u->text, u->len) ?: add_to_container(u);
}

/* Reads the next item of the innermost container, or its end. *first: it has no item yet. */
static int next_item(struct unjson *u, bool *first)
{
	bool dict = u->is_dict[u->depth - 1];
	size_t depth = u->depth;
	int c = peek(u), err = 0;

	if (c == (dict ? '}' : ']')) {
		*first = false;
		return end_container(u);
	}
	if (!*first && c != ',')
		return c < 0 ? ended(u) : bad(u, "it is no JSON");
	if (!*first)
		u->in->at++;
	if (dict)
		err = push_key(u);
	if (!err)
		err = begin_value(u);
	*first = u->depth > depth;
	return err;
}

int unjson__run(struct inflow *in, struct nested *v, int (*each)(void *ctx), void *ctx)
{
	struct unjson *u = calloc(1, sizeof(*u));
	bool first = true;
	uint64_t n = 0;
	int err;

	if (!u)
		return -ENOMEM;
	u->in = in;
	u->v = v;
	err = begin_value(u);
	while (!err && u->depth) {
		err = next_item(u, &first);
		if (!err && !(++n % EACH))
			err = each(ctx);
	}
	free(u);
	return err;
}
