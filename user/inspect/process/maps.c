/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Parses /proc/PID/maps; paths in it are hostile. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#include "inspect/proc.h"

#define MAPS_TEXT_MAX (256u << 20)

/* The scan functions return the text after the item that they parse; NULL: the item is not there. */
static const char *scan_hex(const char *s, const char *end, uint64_t *ret)
{
	const char *p = s;
	uint64_t v = 0;
	int d;

	for (; p < end && p - s < 16; p++) {
		if (*p >= '0' && *p <= '9')
			d = *p - '0';
		else if (*p >= 'a' && *p <= 'f')
			d = *p - 'a' + 10;
		else
			break;
		v = v << 4 | (uint64_t)d;
	}
	*ret = v;
	return p == s ? NULL : p;
}

static const char *scan_dec(const char *s, const char *end, uint64_t *ret)
{
	const char *p = s;
	uint64_t v = 0;

	for (; p < end && *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return NULL;
	*ret = v;
	return p == s ? NULL : p;
}

static const char *scan_char(const char *s, const char *end, char c)
{
	return s && s < end && *s == c ? s + 1 : NULL;
}

static const char *scan_perms(const char *s, const char *end, struct map *m)
{
	if (end - s < 4)
		return NULL;
	if ((s[0] != 'r' && s[0] != '-') || (s[1] != 'w' && s[1] != '-') ||
	    (s[2] != 'x' && s[2] != '-') || (s[3] != 'p' && s[3] != 's'))
		return NULL;
	m->r = s[0] == 'r';
	m->w = s[1] == 'w';
	m->x = s[2] == 'x';
	m->shared = s[3] == 's';
	return s + 4;
}

/* Parses "start-end perms offset major:minor inode". Returns the text after it; NULL: bad line. */
static const char *scan_fields(const char *s, const char *end, struct map *m)
{
	uint64_t major_nr, minor_nr;

	s = scan_hex(s, end, &m->start);
	if (!(s = scan_char(s, end, '-')) || !(s = scan_hex(s, end, &m->end)))
		return NULL;
	if (!(s = scan_char(s, end, ' ')) || !(s = scan_perms(s, end, m)))
		return NULL;
	if (!(s = scan_char(s, end, ' ')) || !(s = scan_hex(s, end, &m->offset)))
		return NULL;
	if (!(s = scan_char(s, end, ' ')) || !(s = scan_hex(s, end, &major_nr)))
		return NULL;
	if (!(s = scan_char(s, end, ':')) || !(s = scan_hex(s, end, &minor_nr)))
		return NULL;
	if (!(s = scan_char(s, end, ' ')) || !(s = scan_dec(s, end, &m->inode)))
		return NULL;
	if (m->start >= m->end || major_nr > UINT32_MAX || minor_nr > UINT32_MAX)
		return NULL;
	m->dev_major = (uint32_t)major_nr;
	m->dev_minor = (uint32_t)minor_nr;
	return s;
}

/* Parses the line [s, end), whose newline is already a NUL. The path stays in the text. */
static int parse_line(char *s, char *end, struct map *m)
{
	static const char suffix[] = " (deleted)";
	const size_t suffix_len = sizeof(suffix) - 1;
	const char *rest;
	char *path;

	rest = scan_fields(s, end, m);
	if (!rest || (rest < end && *rest != ' '))
		return -EINVAL;
	path = s + (rest - s);
	while (path < end && *path == ' ')
		path++;
	if ((size_t)(end - path) > suffix_len && !memcmp(end - suffix_len, suffix, suffix_len)) {
		end[-(ptrdiff_t)suffix_len] = '\0';
		m->deleted = true;
	}
	m->path = path;
	return 0;
}

ARRAY_COMPARE(map_cmp, struct map, start)

static size_t count_lines(const char *text, size_t len)
{
	const char *p = text, *end = text + len;
	size_t n = 0;

	while (p < end) {
		p = memchr(p, '\n', (size_t)(end - p));
		n++;
		if (!p)
			break;
		p++;
	}
	return n;
}

/* Parses all lines of text, a copy that is cut in place and then holds the paths. */
static int parse_lines(char *text, size_t len, struct map *v, size_t n)
{
	char *p = text, *end = text + len, *eol;
	bool sorted = true;
	size_t i;

	for (i = 0; i < n; i++, p = eol + 1) {
		eol = memchr(p, '\n', (size_t)(end - p));
		if (!eol)
			eol = end;
		*eol = '\0';
		if (parse_line(p, eol, &v[i]))
			return -EINVAL;
		if (i && v[i].start < v[i - 1].start)
			sorted = false;
	}
	if (!sorted)
		qsort(v, n, sizeof(*v), map_cmp);
	return 0;
}

int maps__parse(const char *text, size_t len, struct maps *ret)
{
	struct maps m = { 0 };
	int err = -ENOMEM;

	if (len > MAPS_TEXT_MAX)
		return -EFBIG;
	if (len && memchr(text, '\0', len))
		return -EINVAL; /* a NUL would truncate a path unnoticed */
	m.n = count_lines(text, len);
	m.v = calloc(m.n ? m.n : 1, sizeof(*m.v));
	m.text = malloc(len + 1);
	if (m.v && m.text) {
		if (len)
			memcpy(m.text, text, len);
		m.text[len] = '\0';
		err = parse_lines(m.text, len, m.v, m.n);
	}
	if (err) {
		maps__free(&m);
		return err;
	}
	*ret = m;
	return 0;
}

int maps__copy(struct maps *to, const struct maps *from)
{
	struct maps m = { .n = from->n };
	size_t i, len = 1;
	char *at;

	for (i = 0; i < from->n; i++)
		len += strlen(from->v[i].path) + 1;
	m.v = calloc(from->n + 1, sizeof(*m.v));
	m.text = at = malloc(len);
	if (!m.v || !m.text) {
		maps__free(&m);
		return -ENOMEM;
	}
	for (i = 0; i < from->n; i++) {
		m.v[i] = from->v[i];
		m.v[i].path = strcpy(at, from->v[i].path);
		at += strlen(at) + 1;
	}
	*to = m;
	return 0;
}

void maps__free(struct maps *m)
{
	if (!m)
		return;
	free(m->v);
	free(m->text);
	*m = (struct maps){ 0 };
}

const struct map *maps__find_code(const struct maps *m, const struct map *file, uint64_t offset)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct map *map = &m->v[i];

		if (map->x && map__same_file(map, file) && offset >= map->offset &&
		    offset - map->offset < map->end - map->start)
			return map;
	}
	return NULL;
}

const struct map *maps__find(const struct maps *m, uint64_t addr)
{
	size_t lo = 0, hi = m->n, mid; /* mappings below lo start at or before addr */

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (m->v[mid].start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && addr < m->v[lo - 1].end ? &m->v[lo - 1] : NULL;
}
