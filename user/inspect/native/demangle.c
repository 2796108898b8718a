/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/native/demangle.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYMBOL_MAX 4096 /* bytes; the demangler's work grows with them */

/* A function of the C++ library's ABI. The caller frees the result. */
char *__cxa_demangle(const char *mangled, char *buf, size_t *size, int *status);

/* The length of a name without what compilers append: ".isra.0", ".cold", ".llvm.123", " [clone
 * .part.0]". */
static size_t without_suffix(const char *s)
{
	const char *dot = *s == '.' || *s == '_' ? strchr(s + 1, '.') : strchr(s, '.');
	const char *clone = strstr(s, " [clone "), *version = strchr(s, '@');

	if (version)
		return (size_t)(version - s);

	if (clone)
		return (size_t)(clone - s);
	return dot && !strchr(s, '(') ? (size_t)(dot - s) : strlen(s);
}

/* Start of the bracket that ends before `end`. NULL: it has no begin. */
static char *begin_of_group(char *s, char *end)
{
	int depth = 0;

	while (end-- > s) {
		depth += *end == ')' ? 1 : *end == '(' ? -1 : 0;
		if (!depth)
			return end;
	}
	return NULL;
}

/* Cuts "(int) const" off. */
static void cut_parameters(char *s)
{
	static const char *const after[] = { " const", " volatile", " &&", " &", "&&", "&" };
	size_t len = strlen(s), i = 0, n;
	char *begin;

	while (i < sizeof(after) / sizeof(*after)) {
		n = strlen(after[i]);
		if (len > n && !strcmp(s + len - n, after[i])) {
			len -= n;
			i = 0;
			continue;
		}
		i++;
	}
	if (!len || s[len - 1] != ')')
		return;
	begin = begin_of_group(s, s + len);
	/* "(anonymous namespace)" has no parameters after it; "f()::operator()" neither. */
	if (begin && begin > s && begin[-1] != ':' && strncmp(begin, "(anonymous", 10) != 0 &&
	    !(begin - s >= 8 && !strncmp(begin - 8, "operator", 8)))
		*begin = '\0';
}

/* Cuts the type before the name off, which only templates have. */
static void cut_return_type(char *s)
{
	char *name = s;
	int depth = 0;

	if (strstr(s, "operator"))
		return;
	for (char *p = s; *p; p++) {
		depth += *p == '<' || *p == '(' || *p == '{'   ? 1
			 : *p == '>' || *p == ')' || *p == '}' ? -1
							       : 0;
		if (*p == ' ' && !depth)
			name = p + 1;
	}
	memmove(s, name, strlen(name) + 1);
}

/* Rust's names for C++ demanglers end in a hash: "::h" and 16 digits. */
static void cut_rust_hash(char *s)
{
	size_t len = strlen(s);

	if (len <= 19 || strncmp(s + len - 19, "::h", 3) != 0)
		return;
	for (size_t i = len - 16; i < len; i++)
		if (!isxdigit((unsigned char)s[i]))
			return;
	s[len - 19] = '\0';
}

/* "$LT$" and the like in Rust's older names. */
static void undo_rust_escapes(char *s)
{
	static const struct {
		const char *from;
		char to;
	} escapes[] = { { "$LT$", '<' },  { "$GT$", '>' },  { "$RF$", '&' },   { "$LP$", '(' },
			{ "$RP$", ')' },  { "$BP$", '*' },  { "$C$", ',' },    { "$u20$", ' ' },
			{ "$u7b$", '{' }, { "$u7d$", '}' }, { "$u27$", '\'' }, { "$u5b$", '[' },
			{ "$u5d$", ']' } };
	char *to = s;

	for (const char *p = s; *p;) {
		size_t i, n = sizeof(escapes) / sizeof(*escapes);

		for (i = 0; i < n && strncmp(p, escapes[i].from, strlen(escapes[i].from)); i++)
			;
		if (i < n) {
			*to++ = escapes[i].to;
			p += strlen(escapes[i].from);
		} else if (p[0] == '.' && p[1] == '.') {
			*to++ = ':';
			*to++ = ':';
			p += 2;
		} else {
			*to++ = *p++;
		}
	}
	*to = '\0';
}

char *demangle__name(const char *symbol, char *buf, size_t size)
{
	char *plain = NULL;
	int status;

	snprintf(buf, size, "%.*s", (int)(size < INT32_MAX ? size - 1 : 0), symbol);
	if (!strncmp(symbol, "_Z", 2) && strlen(symbol) < SYMBOL_MAX)
		plain = __cxa_demangle(symbol, NULL, NULL, &status);
	if (!plain) {
		buf[without_suffix(buf)] = '\0';
		return buf;
	}
	snprintf(buf, size, "%s", plain);
	free(plain);
	buf[without_suffix(buf)] = '\0';
	if (strstr(symbol, "17h")) {
		cut_rust_hash(buf);
		undo_rust_escapes(buf);
		return buf;
	}
	cut_parameters(buf);
	cut_return_type(buf);
	return buf;
}
