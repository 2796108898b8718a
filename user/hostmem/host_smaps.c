/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "hostmem/host_smaps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMAPS_MAX (256u << 20)	       /* text of 350,000 mappings */
#define BRIEF_FROM (UINT64_C(1) << 30) /* bytes of RSS */

static const struct {
	const char *name;
	size_t at;
} fields[] = {
	{ "Rss:", offsetof(struct smaps_figures, rss) },
	{ "Pss:", offsetof(struct smaps_figures, pss) },
	{ "Private_Clean:", offsetof(struct smaps_figures, private_clean) },
	{ "Private_Dirty:", offsetof(struct smaps_figures, private_dirty) },
	{ "Anonymous:", offsetof(struct smaps_figures, anonymous) },
	{ "Swap:", offsetof(struct smaps_figures, swap) },
	{ "Shared_Hugetlb:", offsetof(struct smaps_figures, hugetlb) },
	{ "Private_Hugetlb:", offsetof(struct smaps_figures, hugetlb) },
};

/* Adds a line "Rss:   12 kB" to the figures. Other lines are ignored. 0 or -EIO. */
static int add_field(const char *line, struct smaps_figures *f)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		size_t len = strlen(fields[i].name);
		uint64_t kb, *to = (uint64_t *)((char *)f + fields[i].at);

		if (strncmp(line, fields[i].name, len))
			continue;
		if (sscanf(line + len, "%" SCNu64, &kb) != 1 || kb > UINT64_MAX >> 12)
			return -EIO;
		*to += kb * 1024;
	}
	return 0;
}

/* A mapping's first line begins with its address, in lower case; lines of figures with a name. */
static bool is_header(const char *line)
{
	return (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f');
}

/* Moves the mappings' first lines to the front of the text. Returns their length. */
static size_t gather_headers(char *text, size_t len, struct smaps_figures *v, size_t n, int *err)
{
	char *end = text + len, *eol, *to = text;
	size_t i = 0;

	for (char *p = text; p < end && !*err; p = eol + 1) {
		eol = memchr(p, '\n', (size_t)(end - p));
		if (!eol)
			eol = end;
		if (!is_header(p)) {
			*eol = '\0'; /* text[len] is a NUL already */
			*err = i ? add_field(p, &v[i - 1]) : -EIO;
			continue;
		}
		if (i++ == n) {
			*err = -EIO;
			break;
		}
		memmove(to, p, (size_t)(eol - p));
		to += eol - p;
		*to++ = '\n';
	}
	return (size_t)(to - text);
}

static size_t count_headers(const char *text, size_t len)
{
	const char *end = text + len;
	size_t n = 0;

	for (const char *p = text; p && p < end; p = memchr(p, '\n', (size_t)(end - p))) {
		p += p > text;
		n += p < end && is_header(p);
	}
	return n;
}

int host_smaps__parse(char *text, size_t len, struct host_smaps *ret)
{
	struct host_smaps s = { 0 };
	size_t n = count_headers(text, len);
	int err = 0;

	if (memchr(text, '\0', len))
		return -EIO;
	s.v = calloc(n + 1, sizeof(*s.v));
	if (!s.v)
		return -ENOMEM;
	len = gather_headers(text, len, s.v, n, &err);
	if (!err && maps__parse(text, len, &s.maps))
		err = -EIO;
	if (!err && s.maps.n != n)
		err = -EIO;
	for (size_t i = 1; i < n && !err; i++)
		if (s.maps.v[i].start < s.maps.v[i - 1].end)
			err = -EIO;
	if (err) {
		host_smaps__free(&s);
		return err;
	}
	*ret = s;
	return 0;
}

static int read_text(const struct proc *p, struct host_smaps *ret)
{
	size_t len;
	char *text;
	int err = proc__text(p, "smaps", SMAPS_MAX, &text, &len);

	if (err)
		return err;
	err = host_smaps__parse(text, len, ret);
	free(text);
	return err;
}

/* -ENOTTY: the kernel lacks PAGEMAP_SCAN. */
static int read_pages(const struct proc *p, struct host_resident *r, struct host_smaps *ret)
{
	struct host_smaps s = { .brief = true };
	int err = proc__maps(p, &s.maps);
	uint64_t rss;

	if (err)
		return err;
	s.v = calloc(s.maps.n + 1, sizeof(*s.v));
	if (!s.v)
		err = -ENOMEM;
	for (size_t i = 0; i < s.maps.n && !err; i++) {
		const struct map *m = &s.maps.v[i];

		/* [vsyscall] is the kernel's. Pages of devices do not belong to the process. */
		if (m->start >> 63 || !strncmp(m->path, "[vvar", 5) ||
		    !strncmp(m->path, "/dev/nvidia", 11))
			continue;
		err = host_resident__count(r, m->start, m->end, &s.v[i].rss);
		if (!err && host_resident__is_old(r))
			err = -ENOTTY;
	}
	/* Pages that the process releases at its end do not count any longer. */
	if (!err && (proc__resident(p, &rss) || !rss))
		err = -ESRCH;
	if (err) {
		host_smaps__free(&s);
		return err;
	}
	*ret = s;
	return 0;
}

int host_smaps__read(const struct proc *p, struct host_resident *r, struct host_smaps *ret)
{
	uint64_t rss;
	int err = -ENOTTY;

	if (r && !proc__resident(p, &rss) && rss >= BRIEF_FROM)
		err = read_pages(p, r, ret);
	return err == -ENOTTY ? read_text(p, ret) : err;
}

void host_smaps__free(struct host_smaps *s)
{
	maps__free(&s->maps);
	free(s->v);
	*s = (struct host_smaps){ 0 };
}
