/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The fact cmdline, a JSON array of strings, back into strings; all of JSON would be a library for one array. */
#include <stdlib.h>
#include <string.h>

#include "report_words.h"

static const char *skip_space(const char *p)
{
	return p + strspn(p, " \t\r\n");
}

/* Four hexadecimal digits. */
static const char *take_unit(const char *p, uint32_t *ret)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++, p++) {
		static const char digits[] = "0123456789abcdefABCDEF";
		const char *d = *p ? strchr(digits, *p) : NULL;

		if (!d)
			return NULL;
		v = v << 4 | (uint32_t)(d - digits < 16 ? d - digits : d - digits - 6);
	}
	*ret = v;
	return p;
}

/* What follows "\u"; a surrogate without its other half is U+FFFD, and so is NUL, which no C string has. */
static const char *take_unicode(const char *p, uint32_t *ret)
{
	uint32_t low;
	const char *q;

	p = take_unit(p, ret);
	if (!p)
		return NULL;
	if (*ret >= 0xd800 && *ret < 0xdc00 && p[0] == '\\' && p[1] == 'u') {
		q = take_unit(p + 2, &low);
		if (q && low >= 0xdc00 && low < 0xe000) {
			*ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
			return q;
		}
	}
	if (!*ret || (*ret >= 0xd800 && *ret < 0xe000))
		*ret = 0xfffd;
	return p;
}

static char *put_utf8(char *out, uint32_t c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xc0 | c >> 6);
		*out++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*out++ = (char)(0xe0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	} else {
		*out++ = (char)(0xf0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 0x3f));
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	}
	return out;
}

/* p is after the backslash. */
static const char *take_escape(const char *p, char **out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *e = *p ? strchr(from, *p) : NULL;
	uint32_t c;

	if (e) {
		*(*out)++ = to[e - from];
		return p + 1;
	}
	if (*p != 'u')
		return NULL;
	p = take_unicode(p + 1, &c);
	if (p)
		*out = put_utf8(*out, c);
	return p;
}

/* A string; an escape is never shorter than what it stands for, so what is there bounds what is needed. */
static const char *take_string(const char *p, char **ret)
{
	char *s, *out;

	if (*p++ != '"')
		return NULL;
	s = out = malloc(strlen(p) + 1);
	if (!s)
		return NULL;
	while (p && *p != '"') {
		if (!*p)
			p = NULL;
		else if (*p == '\\')
			p = take_escape(p + 1, &out);
		else
			*out++ = *p++;
	}
	*out = '\0';
	if (!p) {
		free(s);
		return NULL;
	}
	*ret = realloc(s, out - s + 1);
	if (!*ret)
		*ret = s;
	return p + 1;
}

#define MAX_ARGS 4096

char **report__cmdline(const struct facts *f)
{
	const char *p = facts__get(f, "cmdline");
	char **argv = NULL;
	size_t n = 0;

	if (!p || *(p = skip_space(p)) != '[')
		return NULL;
	argv = calloc(MAX_ARGS + 1, sizeof(*argv));
	for (p++; argv && n < MAX_ARGS; p++) {
		p = take_string(skip_space(p), &argv[n]);
		if (!p)
			break;
		n++;
		p = skip_space(p);
		if (*p == ']' && !*skip_space(p + 1))
			return argv;
		if (*p != ',')
			break;
	}
	/* More arguments than anybody reads are cut; anything else here is no array of strings. */
	if (n == MAX_ARGS)
		return argv;
	report__free_cmdline(argv);
	return NULL;
}

void report__free_cmdline(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}
