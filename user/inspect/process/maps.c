/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Parses /proc/PID/maps; paths in it are hostile. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#include "inspect/proc.h"

#define MAPS_TEXT_MAX (256u << 20)

/* The scan functions return the text after the item that they parse; NULL: the item is not there. */
static const char *scan_hex(const char *text, const char *end, uint64_t *ret)
{
	const char *at = text;
	uint64_t value = 0;
	int digit;

	for (; at < end && at - text < 16; at++) {
		if (*at >= '0' && *at <= '9')
			digit = *at - '0';
		else if (*at >= 'a' && *at <= 'f')
			digit = *at - 'a' + 10;
		else
			break;
		value = value << 4 | (uint64_t)digit;
	}
	*ret = value;
	return at == text ? NULL : at;
}

static const char *scan_dec(const char *text, const char *end, uint64_t *ret)
{
	const char *at = text;
	uint64_t value = 0;

	for (; at < end && *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return NULL;
	*ret = value;
	return at == text ? NULL : at;
}

static const char *scan_char(const char *s, const char *end, char c)
{
	return s && s < end && *s == c ? s + 1 : NULL;
}

static const char *scan_perms(const char *text, const char *end, struct map *map)
{
	if (end - text < 4)
		return NULL;
	if ((text[0] != 'r' && text[0] != '-') || (text[1] != 'w' && text[1] != '-') ||
	    (text[2] != 'x' && text[2] != '-') || (text[3] != 'p' && text[3] != 's'))
		return NULL;
	map->r = text[0] == 'r';
	map->w = text[1] == 'w';
	map->x = text[2] == 'x';
	map->shared = text[3] == 's';
	return text + 4;
}

/* Parses "start-end perms offset major:minor inode". Returns the text after it; NULL: bad line. */
static const char *scan_fields(const char *s, const char *end, struct map *map)
{
	uint64_t major_nr, minor_nr;

	s = scan_hex(s, end, &map->start);
	if (!(s = scan_char(s, end, '-')) || !(s = scan_hex(s, end, &map->end)))
		return NULL;
	if (!(s = scan_char(s, end, ' ')) || !(s = scan_perms(s, end, map)))
		return NULL;
	if (!(s = scan_char(s, end, ' ')) || !(s = scan_hex(s, end, &map->offset)))
		return NULL;
	if (!(s = scan_char(s, end, ' ')) || !(s = scan_hex(s, end, &major_nr)))
		return NULL;
	if (!(s = scan_char(s, end, ':')) || !(s = scan_hex(s, end, &minor_nr)))
		return NULL;
	if (!(s = scan_char(s, end, ' ')) || !(s = scan_dec(s, end, &map->inode)))
		return NULL;
	if (map->start >= map->end || major_nr > UINT32_MAX || minor_nr > UINT32_MAX)
		return NULL;
	map->dev_major = (uint32_t)major_nr;
	map->dev_minor = (uint32_t)minor_nr;
	return s;
}

/* Parses the line [s, end), whose newline is already a NUL. The path stays in the text. */
static int parse_line(char *s, char *end, struct map *map)
{
	static const char suffix[] = " (deleted)";
	const size_t suffix_len = sizeof(suffix) - 1;
	const char *rest;
	char *path;

	rest = scan_fields(s, end, map);
	if (!rest || (rest < end && *rest != ' '))
		return -EINVAL;
	path = s + (rest - s);
	while (path < end && *path == ' ')
		path++;
	if ((size_t)(end - path) > suffix_len && !memcmp(end - suffix_len, suffix, suffix_len)) {
		end[-(ptrdiff_t)suffix_len] = '\0';
		map->deleted = true;
	}
	map->path = path;
	return 0;
}

ARRAY_COMPARE(map_cmp, struct map, start)

/* The last line may lack its newline. */
static size_t count_lines(const char *text, size_t len)
{
	const char *line = text, *end = text + len;
	size_t lines = 0;

	while (line < end) {
		line = memchr(line, '\n', (size_t)(end - line));
		lines++;
		if (!line)
			break;
		line++;
	}
	return lines;
}

/* Parses all lines of text, a copy that is cut in place and then holds the paths. */
static int parse_lines(char *text, size_t len, struct map *maps, size_t lines)
{
	char *line = text, *end = text + len, *eol;
	bool sorted = true;
	size_t i;

	for (i = 0; i < lines; i++, line = eol + 1) {
		eol = memchr(line, '\n', (size_t)(end - line));
		if (!eol)
			eol = end;
		*eol = '\0';
		if (parse_line(line, eol, &maps[i]))
			return -EINVAL;
		if (i && maps[i].start < maps[i - 1].start)
			sorted = false;
	}
	if (!sorted)
		qsort(maps, lines, sizeof(*maps), map_cmp);
	return 0;
}

int maps__parse(const char *text, size_t len, struct maps *ret)
{
	struct maps maps = { 0 };
	int err = -ENOMEM;

	if (len > MAPS_TEXT_MAX)
		return -EFBIG;
	if (len && memchr(text, '\0', len))
		return -EINVAL; /* a NUL would truncate a path unnoticed */
	maps.n = count_lines(text, len);
	maps.v = calloc(maps.n ? maps.n : 1, sizeof(*maps.v));
	maps.text = malloc(len + 1);
	if (maps.v && maps.text) {
		if (len)
			memcpy(maps.text, text, len);
		maps.text[len] = '\0';
		err = parse_lines(maps.text, len, maps.v, maps.n);
	}
	if (err) {
		maps__free(&maps);
		return err;
	}
	*ret = maps;
	return 0;
}

int maps__copy(struct maps *to, const struct maps *from)
{
	struct maps copy = { .n = from->n };
	size_t i, len = 1;
	char *at;

	for (i = 0; i < from->n; i++)
		len += strlen(from->v[i].path) + 1;
	copy.v = calloc(from->n + 1, sizeof(*copy.v));
	copy.text = at = malloc(len);
	if (!copy.v || !copy.text) {
		maps__free(&copy);
		return -ENOMEM;
	}
	for (i = 0; i < from->n; i++) {
		copy.v[i] = from->v[i];
		copy.v[i].path = strcpy(at, from->v[i].path);
		at += strlen(at) + 1;
	}
	*to = copy;
	return 0;
}

void maps__free(struct maps *maps)
{
	if (!maps)
		return;
	free(maps->v);
	free(maps->text);
	*maps = (struct maps){ 0 };
}

const struct map *maps__find_code(const struct maps *maps, const struct map *file, uint64_t offset)
{
	for (size_t i = 0; i < maps->n; i++) {
		const struct map *map = &maps->v[i];

		if (map->x && map__same_file(map, file) && offset >= map->offset &&
		    offset - map->offset < map->end - map->start)
			return map;
	}
	return NULL;
}

const struct map *maps__find(const struct maps *maps, uint64_t addr)
{
	size_t lo = 0, hi = maps->n, mid; /* mappings below lo start at or before addr */

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (maps->v[mid].start <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && addr < maps->v[lo - 1].end ? &maps->v[lo - 1] : NULL;
}
