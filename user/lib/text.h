/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_TEXT_H
#define MT_LIB_TEXT_H
/* Text that came from a target or a file, made fit for a terminal; numbers in people's words. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Copies at most len bytes of src into dst as valid UTF-8 with no control characters (C0, C1, DEL),
 * no bidirectional overrides: each offending byte becomes \xNN. Always NUL-terminated; cut at a
 * whole character. Returns dst.
 */
char *text__clean(char *dst, size_t size, const char *src, size_t len);
/* Is this one of those characters? */
bool text__acts(uint32_t c);
/* Writes valid UTF-8 only: invalid bytes become U+FFFD. Control characters stay. Returns bytes
 * written (no NUL added). */
size_t text__utf8(char *dst, size_t size, const char *src, size_t len);
/*
 * The word as a shell reads it back, in single quotes where it needs them. NULL: it does not fit,
 * or it has characters that act on a terminal or are not UTF-8, so that nobody should be told to
 * type it. Else buf.
 */
char *text__shell(char *buf, size_t size, const char *word);
/* What stands between figures on a line: a middle dot with a space on each side, " - " where the
 * locale has no UTF-8. */
const char *text__dot(void);
/* Columns a UTF-8 string takes on a terminal. */
size_t text__width(const char *s);

/* "13.54 GiB", "5.0 KiB", "512 B": at most 10 characters. buf of 24. Returns buf. */
char *text__bytes(char *buf, size_t size, uint64_t bytes);
/* "1,204,332". buf of 32. */
char *text__count(char *buf, size_t size, uint64_t n);
/* "31.4 s", "2.3 ms", "1 h 02 min". buf of 24. */
char *text__time(char *buf, size_t size, uint64_t ns);

/* "64K" "1.5G" "7" -> bytes; "250ms" "30s" "5m" "2h" "10" (seconds) -> ns. 0 or -EINVAL, -ERANGE. */
int text__parse_size(const char *s, uint64_t *ret);
int text__parse_time(const char *s, uint64_t *ret);
/* "2026-01-02T03:04:05.678Z" (UTC alone) -> ns since 1970. 0 or -EINVAL. */
int text__parse_date(const char *s, uint64_t *ret);
/* And back, with milliseconds. buf of 40. Returns buf. */
char *text__date(char *buf, size_t size, uint64_t ns);

#define TEXT_PARAGRAPH 33280 /* bytes of a paragraph at most */
/*
 * Prints sentences in lines of at most width columns, broken at spaces, and a line end. first
 * stands before the first line, rest before the others. A number stays on the line of its unit.
 */
void text__paragraph(FILE *out, size_t width, const char *first, const char *rest, const char *fmt,
		     ...) __attribute__((format(printf, 5, 6)));

#endif
