/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the file of the interpreter, its address and its exported symbols. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/arch.h"
#include "inspect/pyobj.h"
#include "inspect/python/pyinternal.h"

#define MAX_FILES 4096 /* mapped files examined; torch brings a few hundred */

static bool same_file(const struct map *a, const struct map *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major &&
	       a->dev_minor == b->dev_minor && !strcmp(a->path, b->path);
}

/* Order of examination: the executable, files named like an interpreter, other libraries. */
static int rank_of(const struct map *m, const char *exe)
{
	const char *base = strrchr(m->path, '/');

	if (*exe && !strcmp(m->path, exe))
		return 0;
	if (base && (!strncmp(base, "/libpython", 10) || !strncmp(base, "/python", 7)))
		return 1;
	return 2;
}

struct candidate {
	const struct map *map;
	int rank;
	size_t at; /* order of the maps, within a rank */
};

static int by_rank(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->rank != y->rank ? x->rank - y->rank : (x->at > y->at) - (x->at < y->at);
}

/* Lists one executable mapping of each file. Data files have none. */
static size_t list_candidates(const struct proc *p, const struct maps *m, struct candidate *list)
{
	const struct map *last = NULL;
	char exe[PATH_MAX];
	size_t n = 0;

	proc__exe(p, exe, sizeof(exe));
	for (size_t i = 0; i < m->n && n < MAX_FILES; i++) {
		const struct map *map = &m->v[i];

		if (!map->x || !map->inode || map->path[0] != '/' || (last && same_file(last, map)))
			continue;
		last = map;
		list[n].map = map;
		list[n].rank = rank_of(map, exe);
		list[n].at = n;
		n++;
	}
	qsort(list, n, sizeof(*list), by_rank);
	return n;
}

/* Opens a file that defines the symbol. 0: the caller owns *ret. */
static int open_file(const struct proc *p, const struct map *map, const char *symbol,
		     struct pyfile *ret)
{
	struct elf_sym sym;
	struct pyfile f;
	int err;

	f.elf = elf__open_map(p, map);
	if (!f.elf)
		return -errno;
	err = elf__dynsym(f.elf, symbol, &sym);
	if (!err)
		err = elf__bias(f.elf, map->start, map->offset, &f.bias);
	if (!err) {
		f.path = strdup(map->path);
		if (!f.path)
			err = -ENOMEM;
	}
	if (err) {
		elf__free(f.elf);
		return err;
	}
	*ret = f;
	return 0;
}

/* Finds the first file that defines the symbol. -ENOENT, or the error of opening the most likely
 * file. */
static int find_file(const struct proc *p, const struct candidate *list, size_t n,
		     const char *symbol, struct pyfile *ret)
{
	int err, worst = -ENOENT;

	for (size_t i = 0; i < n; i++) {
		err = open_file(p, list[i].map, symbol, ret);
		if (!err || err == -ENOMEM || err == -ESRCH)
			return err;
		if (list[i].rank < 2 && err != -ENOENT && err != -ENOEXEC)
			worst = err;
	}
	return worst;
}

static int find_files(struct python *py, const struct maps *m, const char **why)
{
	struct candidate *list = calloc(MAX_FILES, sizeof(*list));
	struct elf_sym sym;
	size_t n;
	int err;

	if (!list)
		return python__refuse(why, -ENOMEM, "out of memory");
	n = list_candidates(py->proc, m, list);
	err = find_file(py->proc, list, n, "_PyRuntime", &py->file[0]);
	if (err == -ENOENT) {
		python__refuse(why, err,
			       "no Python in the process: none of its %zu mapped programs and "
			       "libraries defines _PyRuntime",
			       n);
		goto out;
	}
	if (err) {
		python__refuse(why, err, "the process's files cannot be read: %s", strerror(-err));
		goto out;
	}
	py->nr_files = 1;
	if (elf__dynsym(py->file[0].elf, "PyCode_Type", &sym)) {
		err = find_file(py->proc, list, n, "PyCode_Type", &py->file[1]);
		if (err) {
			python__refuse(why, err == -ENOENT ? -ENOTSUP : err,
				       "%s has _PyRuntime, but no mapped file exports PyCode_Type",
				       py->file[0].path);
			err = err == -ENOENT ? -ENOTSUP : err;
			goto out;
		}
		py->nr_files = 2;
	}
	py->runtime = python__symbol(py, "_PyRuntime");
out:
	free(list);
	return err;
}

/* Offsets and thread blocks are known for this machine only. */
static int check_machine(const struct python *py, const char **why)
{
	uint16_t machine = elf__machine(py->file[0].elf);

	if (machine == ARCH_MACHINE)
		return 0;
	return python__refuse(why, -ENOTSUP,
			      "Python for another machine (ELF machine %u); known: " ARCH_NAME,
			      machine);
}

struct python *python__open(const struct proc *p, const struct maps *m, const char **why)
{
	struct python *py = calloc(1, sizeof(*py));
	const char *text = "out of memory";
	int err = -ENOMEM;

	if (py) {
		py->proc = p;
		py->micro = -1;
		err = find_files(py, m, &text);
	}
	if (!err)
		err = check_machine(py, &text);
	if (!err)
		err = python__identify(py, &text);
	if (!err)
		err = python__cross_check(py, &text);
	if (!err)
		return py;
	python__free(py);
	if (why)
		*why = text;
	errno = -err;
	return NULL;
}

struct python *python__forked(const struct python *parent, const struct proc *p)
{
	struct python *py = malloc(sizeof(*py));

	if (!py)
		return NULL;
	*py = *parent;
	py->proc = p;
	for (size_t i = 0; i < py->nr_files; i++) {
		py->file[i].elf = elf__share(py->file[i].elf);
		py->file[i].path = strdup(parent->file[i].path);
		if (!py->file[i].path) {
			py->nr_files = i + 1;
			memset(&py->file[i + 1], 0, (1 - i) * sizeof(py->file[0]));
			python__free(py);
			return NULL;
		}
	}
	return py;
}

void python__free(struct python *py)
{
	if (!py)
		return;
	for (size_t i = 0; i < 2; i++) {
		elf__free(py->file[i].elf);
		free(py->file[i].path);
	}
	free(py);
}

int python__stdlib(const struct python *py, char *buf, size_t size)
{
	char path[PYOBJ_MAX_STRING];
	uint64_t module, file;
	char *slash;

	if (pyobj__module(py, "os", &module) || pyobj__module_attr(py, module, "__file__", &file) ||
	    pyobj__str(py, file, path, sizeof(path)))
		return -ENOENT;
	slash = strrchr(path, '/');
	if (!slash || slash == path || path[0] != '/')
		return -ENOENT;
	*slash = '\0';
	if ((size_t)(slash - path) >= size)
		return -ENAMETOOLONG;
	memcpy(buf, path, (size_t)(slash - path) + 1);
	return 0;
}
