/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Text for people, and text from others: cleans text of targets and files for terminals, formats
 * numbers, draws bars, and finds the known word that is closest to a misspelled one. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Copies at most len bytes of src to dst as valid UTF-8. Bytes of invalid UTF-8, control characters
 * (C0, C1, DEL) and bidirectional overrides become \xNN. dst is NUL-terminated and cut at a whole
 * character. Returns dst. */
char *text__clean(char *dst, size_t size, const char *src, size_t len);
/* True if text__clean() escapes this character. */
bool text__acts(uint32_t c);
/* Copies src as valid UTF-8: invalid bytes become U+FFFD, control characters stay. Returns the
 * bytes written; adds no NUL. */
size_t text__utf8(char *dst, size_t size, const char *src, size_t len);
/* Quotes a word for a shell, in single quotes if needed. Returns buf, or NULL if the word does not
 * fit or text__clean() would change it. */
char *text__shell(char *buf, size_t size, const char *word);
/* A separator for figures on a line: a middle dot between spaces, or " - " if the locale is not
 * UTF-8. */
const char *text__dot(void);
/* Number of terminal columns of a UTF-8 string. */
size_t text__width(const char *s);

/* Formats bytes as "13.54 GiB", "5.0 KiB" or "512 B": at most 10 characters. buf has 24 bytes.
 * Returns buf. */
char *text__bytes(char *buf, size_t size, uint64_t bytes);
/* Formats a number as "1,204,332". buf has 32 bytes. Returns buf. */
char *text__count(char *buf, size_t size, uint64_t n);
/* Formats a number and its noun, with "s" unless the number is 1: "1 event", "1,204,332 events".
 * Returns buf. */
char *text__counted(char *buf, size_t size, uint64_t n, const char *noun);
/* Formats a step, counted from 0, for people, who count from 1: "step 1,205". buf has 40 bytes.
 * Returns buf. */
char *text__step(char *buf, uint64_t step);
/* Formats a share as whole percents: "27", "<1", ">99", "100". buf has 8 bytes. Returns buf. */
char *text__percent(char *buf, uint64_t part, uint64_t whole);
/* Formats nanoseconds as "31.4 s", "0.18 s", "2.3 ms", "2m 01s" or "1h 02m". buf has 24 bytes.
 * Returns buf. */
char *text__time(char *buf, size_t size, uint64_t ns);

/* text__parse_size() parses "64K", "1.5G" or "7" to bytes; text__parse_time() parses "250ms", "5m"
 * or "10" (seconds) to ns. Both return 0, -EINVAL or -ERANGE. */
int text__parse_size(const char *s, uint64_t *ret);
int text__parse_time(const char *s, uint64_t *ret);
/* Parses "2026-01-02T03:04:05.678Z" (UTC only) to ns since 1970. Returns 0 or -EINVAL. */
int text__parse_date(const char *s, uint64_t *ret);
/* Formats ns since 1970 as text__parse_date() reads it, with milliseconds. buf has 40 bytes.
 * Returns buf. */
char *text__date(char *buf, size_t size, uint64_t ns);

/* True if text begins with another text. */
static inline bool text__starts(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

#define TEXT_NO_LIMIT 10000 /* width of an output that is no terminal, in columns */
#define TEXT_PROSE 120	    /* width of prose on such an output, in columns */
/* Width for a paragraph that stays on one line on an output without a limit, since programs search
 * for it, such as the line about growth. */
unsigned text__one_line(unsigned width);
/* The width for tables, in columns: COLUMNS of the environment, or the terminal's; TEXT_NO_LIMIT
 * if out is no terminal. At least 40. */
unsigned text__columns(FILE *out);
/* The width for prose, in columns, on an output whose tables have this width. */
unsigned text__prose(unsigned width);
/* Whether out is a terminal that shows colours, and NO_COLOR allows them. */
bool text__colour(FILE *out);

/* Whether the text matches an extended regular expression. */
bool text__matches(const char *s, const char *pattern);

#define TEXT_PARAGRAPH 33280 /* bytes of a paragraph; longer ones are cut */
/* Prints a paragraph, broken at spaces into lines of at most width columns (TEXT_PROSE on an
 * output without a limit). first is the prefix of the first line, rest that of the others; both
 * may have colours. A number and its unit stay on one line. */
void text__paragraph(FILE *out, size_t width, const char *first, const char *rest, const char *fmt,
		     ...) __attribute__((format(printf, 5, 6)));

/* Decodes the character at s, which has len > 0 bytes. Returns its length, or 0 for invalid UTF-8:
 * also overlong forms, surrogates, values over U+10FFFF and cut sequences. */
static inline size_t utf8__decode(const char *s, size_t len, uint32_t *cp)
{
	const unsigned char *p = (const unsigned char *)s;
	/* the least character that needs so many bytes */
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t c;
	size_t n;

	if (p[0] < 0x80) {
		*cp = p[0];
		return 1;
	}
	if (p[0] >= 0xc2 && p[0] <= 0xdf) {
		n = 2;
		c = p[0] & 0x1f;
	} else if ((p[0] & 0xf0) == 0xe0) {
		n = 3;
		c = p[0] & 0x0f;
	} else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		n = 4;
		c = p[0] & 0x07;
	} else {
		return 0;
	}
	if (n > len)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*cp = c;
	return n;
}

/* Bars made of characters: eighths of blocks in a UTF-8 locale, "#" in others. */

#define TEXT_BAR_MAX 120		/* columns; wider bars are cut */
#define TEXT_BAR (3 * TEXT_BAR_MAX + 1) /* size of a buffer for a bar */

/* True if the locale that setlocale() chose uses UTF-8. */
bool text__unicode(void);
/* Draws part/whole as a bar of this many columns in buf, which has TEXT_BAR bytes. fill: adds
 * spaces after a shorter bar, up to the number of columns. Only part 0 gives an empty bar, and
 * only part >= whole a full one. Returns buf. */
char *text__bar(char *buf, uint64_t part, uint64_t whole, unsigned columns, bool unicode,
		bool fill);

/* Finds the word that the user probably meant, for "did you mean report?". */

struct nearest {
	const char *word;  /* the typed word, set by the caller */
	const char *best;  /* nearest candidate; NULL: none is near enough */
	unsigned distance; /* nearest__distance() of .word and .best */
	unsigned begins; /* number of characters at the beginning of .word and .best that are equal */
};

/* Keeps the candidate if it is nearer than all before it and near enough. That means at most one
 * edit for each three characters and three edits in total, or that the typed word (three characters
 * or more) is its prefix. Of equally near ones, keeps the one that begins like the word. Borrows
 * both. */
void nearest__try(struct nearest *n, const char *candidate);
/* Number of edits between two words: a character is added, removed, changed, or swapped with the
 * next. UINT_MAX: a word has more than 63 bytes. */
unsigned nearest__distance(const char *a, const char *b);
