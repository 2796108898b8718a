// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Parses MEMTRACE_DRYRUN_VALUES: FILE:LINE=VALUE, VALUE@READ from that read on, or VALUE@N* at
 * every Nth read; separated by commas or semicolons. */
#include "truth.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parses true, false or a number, and the numbers of the reads. */
static bool read_value(char *text, struct said *said)
{
	char *at = strchr(text, '@'), *rest = NULL;

	said->from = 1;
	said->every = 0;
	if (at) {
		said->from = strtoull(at + 1, &rest, 10);
		if (!isdigit((unsigned char)at[1]) || !said->from || (*rest && strcmp(rest, "*")))
			return false;
		said->every = *rest ? said->from : 0;
		*at = '\0';
	}
	said->is_float = false;
	said->number = !strcmp(text, "true");
	if (said->number > 0 || !strcmp(text, "false"))
		return true;
	said->is_float = strpbrk(text, ".eE") != NULL;
	said->number = strtod(text, &rest);
	return rest != text && !*rest && isfinite(said->number) && fabs(said->number) < 9e15 &&
	       !isspace((unsigned char)*text);
}

/* Parses the first entry. Returns the start of the next; NULL: invalid. */
static const char *read_one(const char *text, struct said *said)
{
	const char *end = text + strcspn(text, ",;"),
		   *equal = memchr(text, '=', (size_t)(end - text)), *colon = equal;
	char value[64], *rest;
	size_t size;

	while (colon && colon > text && *colon != ':')
		colon--;
	if (!equal || colon == text || equal - colon < 2)
		return NULL;
	said->file = text;
	said->file_size = (size_t)(colon - text);
	said->line = strtol(colon + 1, &rest, 10);
	size = (size_t)(end - equal - 1);
	if (rest != equal || said->line < 1 || !isdigit((unsigned char)colon[1]) ||
	    size >= sizeof(value))
		return NULL;
	memcpy(value, equal + 1, size);
	value[size] = '\0';
	if (!read_value(value, said))
		return NULL;
	return *end ? end + 1 : end;
}

bool values__valid(const char *text)
{
	struct said said;

	while (*text) {
		text = read_one(text, &said);
		if (!text)
			return false;
	}
	return true;
}

/* True if `end` is the whole path or its last components. */
static bool ends_with(const char *path, const char *end, size_t size)
{
	size_t n = strlen(path);

	return n >= size && !memcmp(path + n - size, end, size) &&
	       (n == size || path[n - size - 1] == '/' || *end == '/');
}

bool values__find(const char *text, const struct place *place, struct said *said)
{
	while (text && *text) {
		text = read_one(text, said);
		if (text && said->line == place->line &&
		    ends_with(place->file, said->file, said->file_size))
			return true;
	}
	return false;
}

/* A 2-byte number with a decimal point may be float16 or bfloat16: not encoded. */
bool values__encode(struct truth *truth, const struct said *said, size_t size)
{
	int64_t whole = (int64_t)said->number;
	float single = (float)said->number;

	if (said->is_float && size == 8)
		memcpy(truth->bytes, &said->number, 8);
	else if (said->is_float && size == 4)
		memcpy(truth->bytes, &single, 4);
	else if (!said->is_float && (size == 1 || size == 2 || size == 4 || size == 8))
		/* all hosts of CUDA are little-endian */
		memcpy(truth->bytes, &whole, size);
	else
		return false;
	truth->size = (unsigned char)size;
	truth->from = said->from;
	truth->every = said->every;
	return true;
}
