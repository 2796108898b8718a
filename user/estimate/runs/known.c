/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/runs/known.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"

#define ENTRIES_MAX 4096    /* most entries kept */
#define LINE_MAX_BYTES 4096 /* most bytes of a line */
#define LOG_MAX (4 << 20)   /* most bytes of a log */

/* True for equal texts, and for two NULLs. */
static bool equal(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

/* The entry for the same place; NULL: none. */
static struct known *find_entry(struct known_list *l, const struct known *k)
{
	for (size_t i = 0; i < l->n; i++) {
		struct known *x = &l->all[i];

		if (x->kind == k->kind && x->line == k->line && equal(x->name, k->name) &&
		    equal(x->file, k->file))
			return x;
	}
	return NULL;
}

/* Copies a text; NULL for NULL and "". Sets *err to -ENOMEM if memory is short. */
static char *copy(const char *s, int *err)
{
	char *ret = s && *s ? strdup(s) : NULL;

	if (s && *s && !ret)
		*err = -ENOMEM;
	return ret;
}

/* Adds an entry, or updates the one for the same place: counts only grow. Returns 0 or -ENOMEM. */
static int add_entry(struct known_list *l, const struct known *k)
{
	struct known *x = find_entry(l, k);
	int err = 0;

	if (x) {
		x->count = k->count > x->count ? k->count : x->count;
		return 0;
	}
	if (l->n == ENTRIES_MAX) {
		l->more = true;
		return 0;
	}
	if (array__grow(&l->all, &l->room, l->n + 1, sizeof(*l->all)))
		return -ENOMEM;
	x = &l->all[l->n++];
	*x = *k;
	x->name = copy(k->name, &err);
	x->file = copy(k->file, &err);
	x->func = copy(k->func, &err);
	x->value = copy(k->value, &err);
	l->kinds[k->kind]++;
	return err;
}

/* Takes the word at *at, which ends at one of `ends`, and moves *at behind it; NULL after the last.
 * NULL: there is no word. */
static char *next_word(char **at, const char *ends)
{
	char *s = *at;

	if (!s)
		return NULL;
	*at = s + strcspn(s, ends);
	if (**at)
		*(*at)++ = '\0';
	else
		*at = NULL;
	return s;
}

/* Parses a decimal number. False: s is NULL, or no number. */
static bool parse_number(const char *s, uint64_t *ret)
{
	char *end;

	if (!s || *s < '0' || *s > '9')
		return false;
	errno = 0;
	*ret = strtoull(s, &end, 10);
	return !errno && !*end;
}

/* Parses the rest of
 * "depends<TAB>shape|value<TAB>OPERATION<TAB>COUNT<TAB>FILE<TAB>LINE<TAB>FUNCTION". False: damaged.
 */
static bool parse_depends(char *at, struct known *k)
{
	char *kind = next_word(&at, "\t"), *count, *line;
	uint64_t n;

	k->name = next_word(&at, "\t");
	count = next_word(&at, "\t");
	k->file = next_word(&at, "\t");
	line = next_word(&at, "\t");
	k->func = next_word(&at, "\t");
	if (!kind || !k->name || !*k->name || !parse_number(count, &k->count))
		return false;
	k->kind = !strcmp(kind, "shape") ? KNOWN_DATA_DEPENDENT : KNOWN_VALUE;
	if (parse_number(line, &n) && n <= UINT32_MAX)
		k->line = (uint32_t)n;
	return k->kind == KNOWN_DATA_DEPENDENT || !strcmp(kind, "value");
}

/* Parses the rest of "assumed NAME NUMBER", or "assumed NAME FILE:LINE VALUE", where VALUE may be
 * missing. FILE may contain spaces. False: damaged. */
static bool parse_assumed(char *at, struct known *k)
{
	char *colon;
	uint64_t n;
	size_t digits;

	k->kind = KNOWN_ASSUMED;
	k->name = next_word(&at, " \t");
	if (!k->name || !*k->name || !at)
		return false;
	if (parse_number(at, &k->count))
		return true;
	colon = strrchr(at, ':');
	digits = colon ? strspn(colon + 1, "0123456789") : 0;
	if (!digits || colon == at || (colon[1 + digits] && colon[1 + digits] != ' '))
		return false;
	*colon = '\0';
	k->file = at;
	if (colon[1 + digits]) {
		colon[1 + digits] = '\0';
		k->value = colon + 2 + digits;
	}
	if (parse_number(colon + 1, &n) && n <= UINT32_MAX)
		k->line = (uint32_t)n;
	return true;
}

/* Adds the entry of a line. Lines of other kinds are skipped. Returns 0 or -ENOMEM. */
static int parse_line(struct known_list *l, char *text)
{
	struct known k = { 0 };
	char *at = text, *what = next_word(&at, " \t");
	bool good = false;

	if (!strcmp(what, "depends")) {
		good = parse_depends(at, &k);
	} else if (!strcmp(what, "unmodelled")) {
		k.kind = KNOWN_UNMODELLED;
		k.name = at;
		good = k.name && *k.name;
	} else if (!strcmp(what, "assumed")) {
		good = parse_assumed(at, &k);
	}
	return good ? add_entry(l, &k) : 0;
}

/* For qsort(): by kind; the largest counts first, where there are any; then by name. */
static int by_kind(const void *a, const void *b)
{
	const struct known *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->kind >= KNOWN_DATA_DEPENDENT && x->count != y->count)
		return x->count > y->count ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Reads all lines. Returns 0 or -ENOMEM. */
static int read_all(FILE *f, struct known_list *l)
{
	char text[LINE_MAX_BYTES];
	size_t bytes = 0;
	bool rest = false; /* in the rest of a line that is too long */
	int err = 0;

	while (!err && fgets(text, sizeof(text), f)) {
		size_t len = strlen(text);
		bool whole = len && text[len - 1] == '\n';

		bytes += len;
		if (bytes > LOG_MAX) {
			l->more = true;
			break;
		}
		if (whole)
			text[len - 1] = '\0';
		if (!rest && len)
			err = parse_line(l, text);
		rest = !whole;
	}
	return err;
}

int known__read(const char *path, struct known_list *ret)
{
	struct known_list l = { 0 };
	int fd = io__open_regular(AT_FDCWD, path, LINKS_NONE, NULL), err = 0;
	FILE *f;

	*ret = l;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	err = read_all(f, &l);
	fclose(f);
	if (err) {
		known__free(&l);
		return err;
	}
	if (l.n)
		qsort(l.all, l.n, sizeof(*l.all), by_kind);
	*ret = l;
	return 0;
}

void known__free(struct known_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->all[i].name);
		free(l->all[i].file);
		free(l->all[i].func);
		free(l->all[i].value);
	}
	free(l->all);
	*l = (struct known_list){ 0 };
}
