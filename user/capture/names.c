/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "capture/codes.h"
#include "lib/log.h"
#include "lib/map64.h"
#include "record/dict.h"
#include "target/nnmodule.h"
#include "target/pyline.h"
#include "target/python.h"

/* What a module on a stack is called, from its reading until the stack is handed on. */
struct module_read {
	uint64_t self;
	uint32_t number; /* in the dict, 0: cannot be named */
};

struct names {
	struct dict *dict;
	const struct python *py;
	struct nnmodules *modules;
	struct codes *codes;
	struct module_read *reads; /* of this round, in the order of the stacks */
	size_t n_reads, cap_reads, next_read;
	bool sure;		   /* they stand */
	struct map64 *modules_gone; /* address -> epoch of its last end that is not passed yet */
	uint64_t modules_floor;	    /* ends before this epoch may be lost */
	int minor;
	uint64_t next_recheck;
	struct names_stats stats;
};

struct names *names__new(struct dict *d, const struct python *py)
{
	struct names *n = calloc(1, sizeof(*n));
	int major, micro;

	if (!n)
		return NULL;
	n->dict = d;
	n->py = py;
	n->codes = codes__new(d, py);
	n->modules_gone = map64__new();
	if (py) {
		n->modules = nnmodules__new(py);
		python__version(py, &major, &n->minor, &micro);
	}
	if (!n->codes || !n->modules_gone || (py && !n->modules)) {
		names__free(n);
		errno = ENOMEM;
		return NULL;
	}
	return n;
}

void names__free(struct names *n)
{
	if (!n)
		return;
	codes__free(n->codes);
	map64__free(n->modules_gone);
	free(n->reads);
	nnmodules__free(n->modules);
	free(n);
}

void names__begin(struct names *n)
{
	n->n_reads = n->next_read = 0;
	n->sure = false;
}

void names__read_until(struct names *n, uint64_t epoch)
{
	codes__read_until(n->codes, epoch);
}

void names__settled(struct names *n, bool sure)
{
	n->sure = sure;
	if (sure)
		codes__confirm(n->codes);
	else
		codes__drop_new(n->codes);
}

int names__gone(struct names *n, bool module, uint64_t addr, uint64_t epoch)
{
	if (!module)
		return codes__gone(n->codes, addr, epoch);
	if (n->modules)
		nnmodules__forget(n->modules, addr);
	return map64__set(n->modules_gone, addr, epoch);
}

void names__passed(struct names *n, bool module, uint64_t addr, uint64_t epoch)
{
	uint64_t last;

	if (!module)
		codes__passed(n->codes, addr, epoch);
	else if (map64__get(n->modules_gone, addr, &last) && last <= epoch)
		map64__del(n->modules_gone, addr, NULL);
}

void names__lost(struct names *n, uint64_t sure, uint64_t now)
{
	names__settled(n, false);
	codes__lost(n->codes, sure, now);
	n->modules_floor = now;
	if (n->modules)
		nnmodules__forget_all(n->modules);
}

uint32_t names__number(struct names *n, uint32_t number)
{
	if (number != UINT32_MAX || errno != ENOSPC)
		return number;
	if (!n->stats.no_room++)
		log_warn("so many different stacks, names or threads that the recording has no room for more: what is new from "
			 "now on stays without a name");
	return 0;
}

static const struct mt_frame *frames_of(const struct mt_rec_stack *rec)
{
	return (const struct mt_frame *)(rec + 1);
}

static bool ends_with(const char *s, const char *end)
{
	size_t a = strlen(s), b = strlen(end);

	return a >= b && !strcmp(s + a - b, end);
}

/* record_function.__exit__ called by the wrapper around an optimizer's step. */
static bool is_optimizer_exit(const struct dict *d, const struct dict_frame *f, uint32_t n)
{
	struct dict_loc loc;

	if (n < 2)
		return false;
	loc = dict__get_loc(d, f[0].loc);
	if (!ends_with(dict__str(d, loc.func), "__exit__") ||
	    !ends_with(dict__str(d, loc.file), "/torch/autograd/profiler.py"))
		return false;
	loc = dict__get_loc(d, f[1].loc);
	return ends_with(dict__str(d, loc.func), "wrapper") &&
	       ends_with(dict__str(d, loc.file), "/torch/optim/optimizer.py");
}

static uint32_t module_number(struct names *n, uint64_t self, uint64_t root, uint64_t parent)
{
	struct dict_module m;
	struct nnmodule nn;

	if (nnmodules__name(n->modules, self, root, parent, &nn))
		return 0;
	m.name = names__number(n, dict__string(n->dict, nn.name, strlen(nn.name)));
	m.cls = names__number(n, dict__string(n->dict, nn.cls, strlen(nn.cls)));
	m.root = names__number(n, dict__string(n->dict, nn.root, strlen(nn.root)));
	if (m.name == UINT32_MAX || m.cls == UINT32_MAX || m.root == UINT32_MAX)
		return UINT32_MAX;
	return names__number(n, dict__module(n->dict, m));
}

/* Is the module that was at the address when a stack of this epoch was walked there still, as far as has been told? */
static bool lives(const struct names *n, uint64_t addr, uint64_t epoch)
{
	uint64_t end;

	return epoch >= n->modules_floor && (!map64__get(n->modules_gone, addr, &end) || end <= epoch);
}

/* The outermost module of a stack, 0: none. */
static uint64_t root_of(const struct mt_rec_stack *rec)
{
	const struct mt_frame *f = frames_of(rec);
	uint32_t i;

	for (i = rec->n; i--;) {
		if (f[i].kind == MT_FRAME_MODULE)
			return f[i].addr;
	}
	return 0;
}

static int prefetch_module(struct names *n, const struct mt_rec_stack *rec, uint32_t i, uint64_t root)
{
	const struct mt_frame *f = frames_of(rec);
	struct module_read *r;
	uint64_t parent = 0;
	uint32_t j;

	if (n->n_reads == n->cap_reads) {
		size_t cap = n->cap_reads ? n->cap_reads * 2 : 64;

		r = realloc(n->reads, cap * sizeof(*r));
		if (!r)
			return -ENOMEM;
		n->reads = r;
		n->cap_reads = cap;
	}
	r = &n->reads[n->n_reads++];
	*r = (struct module_read){ .self = f[i].addr };
	if (f[i].at || !lives(n, f[i].addr, rec->epoch) || !lives(n, root, rec->epoch))
		return 0;
	for (j = i + 1; j < rec->n && !parent; j++)
		parent = f[j].kind == MT_FRAME_MODULE ? f[j].addr : 0;
	r->number = module_number(n, f[i].addr, root, parent);
	return r->number == UINT32_MAX ? -ENOMEM : 0;
}

int names__prefetch(struct names *n, const struct mt_rec_stack *rec)
{
	const struct mt_frame *f = frames_of(rec);
	uint64_t root = root_of(rec);
	uint32_t i;
	int err;

	for (i = 0; i < rec->n; i++) {
		if (f[i].kind == MT_FRAME_MODULE)
			err = prefetch_module(n, rec, i, root);
		else
			err = codes__need(n->codes, f[i].addr, rec->epoch);
		if (err)
			return err;
	}
	return 0;
}

/* What names__prefetch() read of a module on this stack, if it stands. */
static uint32_t next_module(struct names *n, const struct mt_rec_stack *rec, uint64_t self, uint64_t root)
{
	const struct module_read *r = n->next_read < n->n_reads ? &n->reads[n->next_read++] : NULL;

	n->stats.modules++;
	if (r && r->self == self && r->number && n->sure && lives(n, self, rec->epoch) && lives(n, root, rec->epoch))
		return r->number;
	n->stats.unnamed_modules++;
	return 0;
}

/* The location of one frame, 0: it cannot be told. */
static uint32_t location(struct names *n, const struct mt_frame *f, const struct code *c)
{
	struct dict_loc loc = { .file = c->file, .func = c->func };

	loc.line = pyline__find(n->minor, c->linetable, c->linetable_len, c->firstlineno, f->at);
	return names__number(n, dict__loc(n->dict, loc));
}

int names__stack(struct names *n, const struct mt_rec_stack *rec, struct named_stack *ret)
{
	const struct mt_frame *f = frames_of(rec);
	struct dict_frame out[MT_MAX_ENTRIES];
	struct named_stack s = { .root = root_of(rec) };
	uint32_t i, k = 0, module;

	for (i = 0; i < rec->n; i++) {
		if (f[i].kind == MT_FRAME_MODULE) {
			module = next_module(n, rec, f[i].addr, s.root);
			if (k)
				out[k - 1].module = module;
			s.root_module = module; /* the last one is the outermost */
			continue;
		}
		const struct code *c = codes__find(n->codes, f[i].addr, rec->epoch);

		out[k] = (struct dict_frame){ 0 };
		n->stats.frames++;
		if (!c)
			n->stats.gone++;
		else if (!c->file && !c->func)
			n->stats.unreadable++;
		else
			out[k].loc = location(n, &f[i], c);
		if (out[k].loc == UINT32_MAX)
			return -ENOMEM;
		k++;
	}
	s.optimizer_exit = is_optimizer_exit(n->dict, out, k);
	s.stack = names__number(n, dict__stack(n->dict, out, k, rec->h.walk));
	if (s.stack == UINT32_MAX)
		return -ENOMEM;
	*ret = s;
	return 0;
}

bool names__recheck(struct names *n, uint64_t now)
{
	uint64_t cost = 0;
	bool changed;

	if (!n->modules || now < n->next_recheck)
		return false;
	changed = nnmodules__recheck(n->modules, &cost);
	n->next_recheck = now + 1000000000ULL + cost * 100;
	return changed;
}

struct names_stats names__stats(const struct names *n)
{
	struct names_stats s = n->stats;

	s.codes = codes__reads(n->codes);
	return s;
}
