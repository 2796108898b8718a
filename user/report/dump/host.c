/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/dump_host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map64.h"
#include "inspect/census.h"
#include "inspect/descendants.h"
#include "inspect/proc.h"
#include "inspect/python.h"
#include "record/stream.h"

#define LIMIT_NS 10000000000ull
#define MAX_CHILDREN 256

/* The CPU storages of the program's tensors. 0, or -errno with *why. */
static int read_tensors(const struct python *py, struct host_storage **ret, size_t *n,
			const char **why)
{
	struct census_opts o = { .limit_ns = LIMIT_NS };
	struct census_state s;
	struct census *c;
	int err;

	*why = "no Python";
	c = py ? census__open(py, CENSUS_WITHIN_NS, why) : NULL;
	if (!c)
		return py ? -errno : -ENOENT;
	err = census__read(c, &o, &s, why);
	census__free(c);
	if (err)
		return err;
	*ret = calloc(s.ntensors + 1, sizeof(**ret));
	for (size_t i = 0; *ret && i < s.ntensors; i++)
		if (s.tensors[i].device_type == DEVICE_CPU)
			(*ret)[(*n)++] = (struct host_storage){ s.tensors[i].addr,
								s.tensors[i].size };
	census_state__free(&s);
	return *ret ? 0 : -ENOMEM;
}

/* Shared memory as in the ledger, if it has a file. */
static bool is_shared_file(const struct map *m)
{
	return m->shared && m->inode &&
	       (!strncmp(m->path, "/dev/shm/", 9) || !strncmp(m->path, "/memfd:", 7) ||
		!strncmp(m->path, "/SYSV", 5) || !strcmp(m->path, "/dev/zero"));
}

int dump_shared__add(struct dump_shared *s, const struct maps *m)
{
	uint64_t key, bytes, old;
	bool had;

	if (!s->seen)
		s->seen = map64__new();
	for (size_t i = 0; s->seen && i < m->n; i++) {
		const struct map *x = &m->v[i];

		if (!is_shared_file(x))
			continue;
		key = x->inode ^ ((uint64_t)x->dev_major << 52 | (uint64_t)x->dev_minor << 32);
		bytes = x->end - x->start;
		if (map64__get(s->seen, key, &old) && old >= bytes)
			continue;
		if (map64__swap(s->seen, key, bytes, &had, &old))
			return -ENOMEM;
		s->files += !had;
		s->bytes += bytes - (had ? old : 0);
	}
	return s->seen ? 0 : -ENOMEM;
}

int dump_host__read(const struct proc *p, const struct python *py, bool proportional,
		    struct dump_host_process *ret)
{
	struct host_opts o = { .proportional = proportional };
	struct hostmem *h = hostmem__new(p, py);
	struct host_storage *storages = NULL;
	const char *why = "";
	int err = h ? 0 : -ENOMEM;

	memset(ret, 0, sizeof(*ret));
	ret->pid = proc__pid(p);
	snprintf(ret->comm, sizeof(ret->comm), "%s", proc__comm(p));
	if (!err) {
		/* A process without tensors has nothing that the other parts could hide. */
		err = read_tensors(py, &storages, &o.n, &why);
		o.storages_known = !err || err == -ENOENT || err == -EAGAIN;
		if (!o.storages_known)
			snprintf(ret->why, sizeof(ret->why), "%s", why);
		err = err == -ENOMEM || err == -ESRCH ? err : 0;
	}
	o.storages = storages;
	for (size_t i = 0; i < o.n; i++)
		ret->tensors += storages[i].size;
	if (!err)
		err = hostmem__read(h, &o, &ret->ledger);
	hostmem__free(h);
	free(storages);
	return err;
}

static int read_child(pid_t pid, struct dump_host_process *ret, struct dump_shared *shared)
{
	struct proc *p = proc__open(pid);
	struct python *py = NULL;
	struct maps m = { 0 };
	const char *why;
	int err = p ? proc__maps(p, &m) : -errno;

	if (!err) {
		py = python__open(p, &m, &why);
		err = dump_host__read(p, py, true, ret) ?: dump_shared__add(shared, &m);
	}
	python__free(py);
	maps__free(&m);
	proc__free(p);
	return err;
}

int dump_host__read_all(const struct proc *p, const struct python *py, bool tree,
			struct dump_host *ret)
{
	pid_t pids[MAX_CHILDREN], parents[MAX_CHILDREN];
	size_t n = tree ? descendants__descendants(proc__pid(p), pids, parents, MAX_CHILDREN) : 0;
	struct dump_host d = { .tree = tree };
	struct maps m = { 0 };
	int err;

	d.v = calloc(n + 1, sizeof(*d.v));
	if (!d.v)
		return -ENOMEM;
	err = dump_host__read(p, py, tree, &d.v[0]);
	if (!err && !proc__maps(p, &m))
		err = dump_shared__add(&d.shared, &m);
	maps__free(&m);
	d.n = 1;
	for (size_t i = 0; i < n && !err; i++) {
		err = read_child(pids[i], &d.v[d.n], &d.shared);
		d.n += !err;
		d.skipped += err && err != -ENOMEM;
		err = err == -ENOMEM ? err : 0;
	}
	for (size_t i = 0; i < d.n && !err && tree; i++)
		host_ledger__add(&d.sum, &d.v[i].ledger);
	if (!tree)
		d.sum = d.v[0].ledger;
	if (err)
		dump_host__free(&d);
	else
		*ret = d;
	return err;
}

void dump_host__free(struct dump_host *d)
{
	free(d->v);
	map64__free(d->shared.seen);
	*d = (struct dump_host){ 0 };
}
