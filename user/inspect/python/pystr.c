/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/python/pystr.h"

#include <errno.h>
#include <string.h>

#include "inspect/pyobj.h"
#include "inspect/python/pydict.h"

#define REPLACEMENT 0xfffdu
#define CHUNK 256 /* characters per read */

struct head {		 /* of a str object */
	uint64_t data;	 /* address */
	uint64_t length; /* characters */
	unsigned width;	 /* bytes a character */
};

/* Finds a str object's characters. -EBADMSG: not a str. */
static int read_head(struct pymem *mem, uint64_t obj, struct head *ret)
{
	uint64_t type, flags, data;
	uint8_t raw[64];
	uint32_t state;
	unsigned width;
	int err;

	if (!obj || obj % 8)
		return -EBADMSG;
	if (mem->layout->str_state + 4u > sizeof(raw) || mem->layout->str_length + 8u > sizeof(raw))
		return -EBADMSG;
	err = pymem__read_constant(mem, obj, raw, mem->layout->str_state + 4u);
	if (err)
		return err;
	memcpy(&type, raw + mem->layout->ob_type, 8);
	memcpy(&ret->length, raw + mem->layout->str_length, 8);
	memcpy(&state, raw + mem->layout->str_state, 4);
	if (!type || type % 8)
		return -EBADMSG;
	err = pymem__constant_u64(mem, type + mem->layout->tp_flags, &flags);
	if (err)
		return err;
	state >>= mem->layout->str_kind; /* bits 0 to 2: width, 3: compact, 4: ascii */
	width = state & 7;
	if (!(flags & PYTYPE_STR) || (int64_t)ret->length < 0 ||
	    (width != 1 && width != 2 && width != 4))
		return -EBADMSG;
	data = obj + (state & 1 << 4 ? mem->layout->str_ascii_size : mem->layout->str_compact_size);
	/* A str that is not compact, such as an instance of a subclass, points to its text. */
	if (!(state & 1 << 3)) {
		err = pymem__constant_u64(mem, obj + mem->layout->str_compact_size, &data);
		if (err)
			return err;
	}
	ret->data = data;
	ret->width = width;
	return 0;
}

int pystr__size(struct pymem *mem, uint64_t obj, uint64_t *ret)
{
	struct head head;
	int err = read_head(mem, obj, &head);

	if (err)
		return err;
	if (head.data - obj != mem->layout->str_ascii_size &&
	    head.data - obj != mem->layout->str_compact_size)
		return -ENOENT;
	if (__builtin_mul_overflow(head.length, head.width, ret) ||
	    __builtin_add_overflow(*ret, head.data - obj + head.width, ret))
		return -EBADMSG;
	return 0;
}

/* Writes a character as UTF-8 to buf[at..size). Returns the number of bytes; 0: no room. */
static size_t put_character(char *buf, size_t at, size_t size, uint32_t c)
{
	uint8_t out[4];
	size_t bytes;

	if (c < 0x80) {
		bytes = 1;
		out[0] = c;
	} else if (c < 0x800) {
		bytes = 2;
		out[0] = 0xc0 | c >> 6;
	} else if (c < 0x10000) {
		bytes = 3;
		out[0] = 0xe0 | c >> 12;
	} else {
		bytes = 4;
		out[0] = 0xf0 | c >> 18;
	}
	if (bytes > size - at)
		return 0;
	for (size_t i = 1; i < bytes; i++)
		out[i] = 0x80 | (c >> 6 * (bytes - 1 - i) & 0x3f);
	memcpy(buf + at, out, bytes);
	return bytes;
}

/* Character i of a text, `width` bytes each; U+FFFD for U+0000 and for values that are no
 * character. */
static uint32_t character_at(const uint8_t *raw, size_t i, unsigned width)
{
	uint32_t c = 0;

	memcpy(&c, raw + i * width, width);
	if (!c || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff)
		return REPLACEMENT;
	return c;
}

int pystr__read(struct pymem *mem, uint64_t obj, char *buf, size_t size, bool *cut)
{
	uint8_t raw[CHUNK * 4];
	size_t at = 0;
	struct head head;
	uint64_t done = 0;
	int err;

	if (!size)
		return -EINVAL;
	if (size > PYOBJ_MAX_STRING + 1)
		size = PYOBJ_MAX_STRING + 1;
	err = read_head(mem, obj, &head);
	if (err)
		return err;
	while (done < head.length && at < size - 1) {
		/* A character takes at least one byte, so read no more than room. */
		size_t room = size - 1 - at,
		       characters = head.length - done < CHUNK ? head.length - done : CHUNK;
		size_t i, put_n;

		characters = characters < room ? characters : room;
		err = pymem__read_constant(mem, head.data + done * head.width, raw,
					   characters * head.width);
		if (err)
			return err;
		for (i = 0; i < characters; i++) {
			put_n = put_character(buf, at, size - 1, character_at(raw, i, head.width));
			if (!put_n)
				break;
			at += put_n;
		}
		done += i;
		if (i < characters)
			break;
	}
	buf[at] = '\0';
	if (cut)
		*cut = done < head.length;
	return (int)at;
}

int pystr__equal(struct pymem *mem, uint64_t obj, const char *text)
{
	char buf[PYOBJ_MAX_STRING + 1];
	size_t len = strlen(text);
	struct head head;
	bool cut;
	int err;

	err = read_head(mem, obj, &head);
	if (err == -EBADMSG)
		return 0;
	if (err)
		return err;
	/* A character has 1 to 4 bytes of UTF-8. */
	if (head.length > len || head.length * 4 < len)
		return 0;
	err = pystr__read(mem, obj, buf, sizeof(buf), &cut);
	if (err < 0)
		return err == -EBADMSG ? 0 : err;
	return !cut && (size_t)err == len && !memcmp(buf, text, len);
}

/* Compares the keys' addresses with the known one first, then their texts. */
int pystr__find(struct pymem *mem, const struct pyitems *it, const char *key, uint64_t *known,
		uint64_t *value)
{
	int err;

	for (size_t i = 0; known && *known && i < it->n; i++) {
		if (it->v[i].key == *known) {
			*value = it->v[i].value;
			return 0;
		}
	}
	for (size_t i = 0; i < it->n; i++) {
		err = pystr__equal(mem, it->v[i].key, key);
		if (err < 0)
			return err;
		if (!err)
			continue;
		if (known)
			*known = it->v[i].key;
		*value = it->v[i].value;
		return 0;
	}
	return -ENOENT;
}
