/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "capture/decode/code_cache.h"
#include "inspect/census.h"
#include "inspect/nnmodule.h"
#include "inspect/python.h"
#include "record/dict.h"

struct symbolizer {
	struct dict *dict;
	struct nnmodules *modules;
	struct code_cache *codes;
	int minor;	       /* 3.minor: the version of Python */
	uint64_t next_recheck; /* earliest time of the next reading of names, ns */
	struct names_stats stats;
};

struct symbolizer *symbolizer__new(struct dict *d, const struct python *py)
{
	struct symbolizer *n = calloc(1, sizeof(*n));
	int major, micro;

	if (!n)
		return NULL;
	n->dict = d;
	n->codes = code_cache__new(d, py);
	if (py) {
		n->modules = nnmodules__new(py);
		python__version(py, &major, &n->minor, &micro);
	}
	if (!n->codes || (py && !n->modules)) {
		symbolizer__free(n);
		errno = ENOMEM;
		return NULL;
	}
	return n;
}

void symbolizer__free(struct symbolizer *n)
{
	if (!n)
		return;
	code_cache__free(n->codes);
	nnmodules__free(n->modules);
	free(n);
}

int symbolizer__inherit(struct symbolizer *n, const struct symbolizer *parent, uint64_t forked)
{
	n->minor = parent->minor;
	return code_cache__inherit(n->codes, parent->codes, forked);
}

struct code_cache *symbolizer__codes(struct symbolizer *n)
{
	return n->codes;
}

uint32_t symbolizer__number(struct symbolizer *n, uint32_t number)
{
	if (number != UINT32_MAX || errno != ENOSPC)
		return number;
	if (!n->stats.no_room++)
		log_warn("the recording is full of different stacks, names or threads: new ones "
			 "stay without a name");
	return 0;
}

static const struct mt_frame *frames_of(const struct mt_rec_stack *rec)
{
	return (const struct mt_frame *)(rec + 1);
}

int symbolizer__prefetch(struct symbolizer *n, const struct mt_rec_stack *rec)
{
	const struct mt_frame *f = frames_of(rec);
	uint32_t i;
	int err;

	for (i = 0; i < rec->n; i++) {
		err = f[i].kind == MT_FRAME_CODE ? code_cache__need(n->codes, f[i].addr, rec->epoch)
						 : 0;
		if (err)
			return err;
	}
	return 0;
}

static bool ends_with(const char *s, const char *end)
{
	size_t len = strlen(s);
	size_t end_len = strlen(end);

	return len >= end_len && !strcmp(s + len - end_len, end);
}

/* True for record_function.__exit__, called by the wrapper around an optimizer's step. */
static bool is_optimizer_exit(const struct dict *d, const struct dict_frame *f, uint32_t n_frames)
{
	struct dict_loc loc;

	if (n_frames < 2)
		return false;
	loc = dict__get_loc(d, f[0].loc);
	if (!ends_with(dict__str(d, loc.func), "__exit__") ||
	    !ends_with(dict__str(d, loc.file), "/torch/autograd/profiler.py"))
		return false;
	loc = dict__get_loc(d, f[1].loc);
	return ends_with(dict__str(d, loc.func), "wrapper") &&
	       ends_with(dict__str(d, loc.file), "/torch/optim/optimizer.py");
}

uint32_t symbolizer__module(struct symbolizer *n, uint64_t self, uint64_t root, uint64_t parent)
{
	struct dict_module m;
	struct nnmodule nn;

	if (!n->modules ||
	    nnmodules__name(n->modules, self, nnmodules__model(n->modules, root), parent, &nn)) {
		n->stats.unnamed_modules++;
		return 0;
	}
	m.name = symbolizer__number(n, dict__string(n->dict, nn.name, strlen(nn.name)));
	m.cls = symbolizer__number(n, dict__string(n->dict, nn.cls, strlen(nn.cls)));
	m.root = symbolizer__number(n, dict__string(n->dict, nn.root, strlen(nn.root)));
	if (m.name == UINT32_MAX || m.cls == UINT32_MAX || m.root == UINT32_MAX)
		return UINT32_MAX;
	return symbolizer__number(n, dict__module(n->dict, m));
}

static struct dict_loc place(const struct symbolizer *n, const struct code *c, int32_t at)
{
	struct dict_loc loc = { .file = c->file, .func = c->func };

	loc.line = pyline__find(n->minor, c->linetable, c->linetable_len, c->firstlineno, at);
	return loc;
}

/* The dictionary's location of a frame, 0: unknown. */
static uint32_t location(struct symbolizer *n, const struct mt_frame *f, const struct code *c)
{
	return symbolizer__number(n, dict__loc(n->dict, place(n, c, f->at)));
}

bool symbolizer__place(const struct symbolizer *n, uint64_t code, uint64_t epoch, int32_t at,
		       struct dict_loc *ret, uint32_t *firstlineno)
{
	const struct code *c = code_cache__find(n->codes, code, epoch);

	if (!c || (!c->file && !c->func))
		return false;
	*ret = place(n, c, at);
	*firstlineno = c->firstlineno;
	return true;
}

int symbolizer__stack(struct symbolizer *n, const struct mt_rec_stack *rec, struct named_stack *ret)
{
	const struct mt_frame *f = frames_of(rec);
	struct dict_frame out[MT_MAX_ENTRIES];
	struct named_stack s = { .whole = true };
	uint64_t parent;
	uint32_t i, j, n_out = 0;

	for (i = 0; i < rec->n; i++) {
		if (f[i].kind != MT_FRAME_MODULE)
			continue;
		s.root = f[i].addr; /* the outermost one remains */
		s.root_at = i - s.modules++;
	}
	for (i = 0; i < rec->n; i++) {
		if (f[i].kind == MT_FRAME_MODULE) {
			/* it comes after the frame that calls the module, out[n_out - 1] */
			for (parent = 0, j = i + 1; j < rec->n && !parent; j++)
				parent = f[j].kind == MT_FRAME_MODULE ? f[j].addr : 0;
			if (n_out)
				out[n_out - 1].module = symbolizer__module(n, f[i].addr, s.root,
									   parent);
			if (n_out && out[n_out - 1].module == UINT32_MAX)
				return -ENOMEM;
			s.whole = s.whole && n_out && out[n_out - 1].module;
			continue;
		}
		const struct code *code = code_cache__find(n->codes, f[i].addr, rec->epoch);

		out[n_out] = (struct dict_frame){ 0 };
		n->stats.frames++;
		if (!code)
			n->stats.gone++;
		else if (!code->file && !code->func)
			n->stats.unreadable++;
		else
			out[n_out].loc = location(n, &f[i], code);
		if (out[n_out].loc == UINT32_MAX)
			return -ENOMEM;
		s.whole = s.whole && out[n_out].loc;
		n_out++;
	}
	s.optimizer_exit = is_optimizer_exit(n->dict, out, n_out);
	s.stack = symbolizer__number(n, dict__stack(n->dict, out, n_out, rec->h.walk));
	if (s.stack == UINT32_MAX)
		return -ENOMEM;
	*ret = s;
	return 0;
}

uint32_t symbolizer__root(struct symbolizer *n, uint64_t self)
{
	uint32_t m = n->modules ? symbolizer__module(n, self, self, 0) : 0;

	return m == UINT32_MAX ? 0 : m;
}

int symbolizer__has_tensors(struct symbolizer *n, uint64_t root)
{
	return n->modules ? nnmodules__has_tensors(n->modules, root) : -EAGAIN;
}

bool symbolizer__is_part(struct symbolizer *n, uint64_t self)
{
	return n->modules && nnmodules__model(n->modules, self) != self;
}

int symbolizer__take_models(struct symbolizer *n, struct census_state *st)
{
	int err = 0;

	if (!n->modules)
		return 0;
	for (size_t i = 0; !err && i < st->nfronts; i++)
		err = nnmodules__set_prefix(n->modules, st->fronts[i].root, st->fronts[i].type,
					    st->fronts[i].text);
	nnmodules__set_models(n->modules, st->module_roots);
	st->module_roots = NULL;
	return err;
}

bool symbolizer__recheck(struct symbolizer *n, uint64_t now)
{
	uint64_t cost = 0;
	bool changed;

	if (!n->modules || (now < n->next_recheck && !nnmodules__is_urgent(n->modules)))
		return false;
	changed = nnmodules__recheck(n->modules, &cost);
	n->next_recheck = now + 1000000000ULL + cost * 100;
	return changed;
}

struct names_stats symbolizer__stats(const struct symbolizer *n)
{
	struct names_stats s = n->stats;

	s.codes = code_cache__reads(n->codes);
	return s;
}
