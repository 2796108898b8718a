/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Pairs files whose paths differ between the versions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "report/diff/match_internal.h"

/* Old files times new files of one name. Above this, they stay unpaired. */
#define MAX_GROUP (UINT64_C(1) << 16)

struct place { /* a function of a file */
	uint32_t file, func;
	uint8_t side;
};

struct file {
	uint32_t file;
	uint8_t side;
	bool taken;
	uint64_t base; /* hash of the file name */
	const struct place *funcs;
	size_t nfuncs;
};

static int cmp_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->side != y->side)
		return x->side < y->side ? -1 : 1;
	return x->func < y->func ? -1 : x->func > y->func;
}

static int cmp_file(const void *pa, const void *pb, void *ctx)
{
	const struct file *a = pa, *b = pb;
	const struct match *m = ctx;

	if (a->base != b->base)
		return a->base < b->base ? -1 : 1;
	if (a->side != b->side)
		return a->side < b->side ? -1 : 1;
	return strcmp(m->text[a->file], m->text[b->file]);
}

static int cmp_renamed(const void *a, const void *b)
{
	const struct match_files *x = a, *y = b;

	return strcmp(x->old, y->old);
}

static uint64_t base_of(const struct match *m, uint32_t file)
{
	const char *path = m->text[file], *slash = strrchr(path, '/');

	return match__hash(m, slash ? slash + 1 : path, 0);
}

/* Number of common path components at the end. */
static uint64_t alike(const char *a, const char *b)
{
	const char *x = a + strlen(a), *y = b + strlen(b);
	uint64_t n = 0;

	while (x > a && y > b && x[-1] == y[-1]) {
		x--;
		y--;
		n += *x == '/';
	}
	return n + ((x == a || x[-1] == '/') && (y == b || y[-1] == '/') && *x != '/');
}

static const char *below(const char *path, const char *cwd)
{
	size_t len = cwd ? strlen(cwd) : 0;

	while (len && cwd[len - 1] == '/')
		len--;
	return len && !strncmp(path, cwd, len) && path[len] == '/' ? path + len + 1 : NULL;
}

/* Weight of a pair: the same path below the programs' folders, then common path components, then
 * common functions. 0: no common function. */
static uint64_t score(const struct match *m, const struct file *old, const struct file *new)
{
	const char *a = m->text[old->file], *b = m->text[new->file];
	const char *in_a = below(a, m->cwd[MATCH_OLD]), *in_b = below(b, m->cwd[MATCH_NEW]);
	uint64_t funcs = 0;

	for (size_t i = 0, k = 0; i < old->nfuncs && k < new->nfuncs;) {
		uint32_t x = old->funcs[i].func, y = new->funcs[k].func;

		funcs += x == y;
		i += x <= y;
		k += y <= x;
	}
	if (!funcs)
		return 0;
	return (uint64_t)(in_a && in_b && !strcmp(in_a, in_b)) << 40 | alike(a, b) << 20 |
	       (funcs < 0xfffff ? funcs : 0xfffff);
}

static int add_pair(struct match *m, struct file *old, struct file *new)
{
	int err = array__grow(&m->renamed, &m->room_renamed, m->nrenamed + 1, sizeof(*m->renamed));

	if (err)
		return err;
	old->taken = new->taken = true;
	m->file_of[new->file] = old->file;
	m->renamed[m->nrenamed++] = (struct match_files){ m->text[old->file], m->text[new->file] };
	return 0;
}

/* Index of the best partner. SIZE_MAX: none, or two are equally good. */
static size_t best(const uint64_t *scores, size_t n, size_t step, const struct file *of)
{
	size_t found = SIZE_MAX;
	uint64_t most = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t s = of[i].taken ? 0 : scores[i * step];

		if (s && s == most)
			found = SIZE_MAX;
		if (s > most) {
			most = s;
			found = i;
		}
	}
	return found;
}

/* Pairs files of one name that are each other's best partner, then repeats with the rest. */
static int pair_group(struct match *m, struct file *old, size_t nold, struct file *new, size_t nnew)
{
	bool more = nold && nnew && (uint64_t)nold * nnew <= MAX_GROUP;
	uint64_t *scores = more ? malloc(nold * nnew * sizeof(*scores)) : NULL;
	int err = more && !scores ? -ENOMEM : 0;

	if (!scores)
		return err;
	for (size_t i = 0; i < nold * nnew; i++)
		scores[i] = score(m, &old[i / nnew], &new[i % nnew]);
	while (more && !err) {
		more = false;
		for (size_t i = 0; i < nold && !err; i++) {
			size_t k = old[i].taken ? SIZE_MAX : best(scores + i * nnew, nnew, 1, new);

			if (k == SIZE_MAX || best(scores + k, nold, nnew, old) != i)
				continue;
			err = add_pair(m, &old[i], &new[k]);
			more = true;
		}
	}
	free(scores);
	return err;
}

/* The files that only one side has. places must be sorted. */
static size_t unpaired_files(const struct match *m, const struct place *p, size_t n,
			     struct file *files)
{
	size_t nfiles = 0;

	for (size_t i = 0; i < n;) {
		size_t end = i + 1;

		while (end < n && p[end].file == p[i].file)
			end++;
		if (p[i].side == p[end - 1].side)
			files[nfiles++] = (struct file){ .file = p[i].file,
							 .side = p[i].side,
							 .base = base_of(m, p[i].file),
							 .funcs = p + i,
							 .nfuncs = end - i };
		i = end;
	}
	return nfiles;
}

static size_t unique_places(const struct match *m, struct place *p)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		p[i] = (struct place){ m->lines[i].file, m->lines[i].func, m->lines[i].side };
	if (m->n)
		qsort(p, m->n, sizeof(*p), cmp_place);
	for (size_t i = 0; i < m->n; i++)
		if (!n || cmp_place(&p[n - 1], &p[i]))
			p[n++] = p[i];
	return n;
}

int match__pair_files(struct match *m)
{
	struct place *places = malloc((m->n + 1) * sizeof(*places));
	struct file *files = malloc((m->n + 1) * sizeof(*files));
	int err = 0;
	size_t n;

	m->file_of = malloc((m->ntext + 1) * sizeof(*m->file_of));
	if (!places || !files || !m->file_of) {
		err = -ENOMEM;
		goto out;
	}
	for (size_t i = 0; i < m->ntext; i++)
		m->file_of[i] = (uint32_t)i;
	n = unpaired_files(m, places, unique_places(m, places), files);
	qsort_r(files, n, sizeof(*files), cmp_file, m);
	for (size_t i = 0; i < n && !err;) {
		size_t new = i, end;

		while (new < n && files[new].base == files[i].base &&files[new].side == MATCH_OLD)
			new ++;
		for (end = new; end < n &&files[end].base == files[i].base;)
			end++;
		err = pair_group(m, files + i, new - i, files + new, end - new);
		i = end;
	}
	if (m->nrenamed)
		qsort(m->renamed, m->nrenamed, sizeof(*m->renamed), cmp_renamed);
out:
	free(places);
	free(files);
	return err;
}
