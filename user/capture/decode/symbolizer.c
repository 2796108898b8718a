/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "capture/decode/code_cache.h"
#include "inspect/census.h"
#include "inspect/torch.h"
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

struct symbolizer *symbolizer__new(struct dict *dict, const struct python *py)
{
	struct symbolizer *symbolizer = calloc(1, sizeof(*symbolizer));
	int major, micro;

	if (!symbolizer)
		return NULL;
	symbolizer->dict = dict;
	symbolizer->codes = code_cache__new(dict, py);
	if (py) {
		symbolizer->modules = nnmodules__new(py);
		python__version(py, &major, &symbolizer->minor, &micro);
	}
	if (!symbolizer->codes || (py && !symbolizer->modules)) {
		symbolizer__free(symbolizer);
		errno = ENOMEM;
		return NULL;
	}
	return symbolizer;
}

void symbolizer__free(struct symbolizer *symbolizer)
{
	if (!symbolizer)
		return;
	code_cache__free(symbolizer->codes);
	nnmodules__free(symbolizer->modules);
	free(symbolizer);
}

int symbolizer__inherit(struct symbolizer *symbolizer, const struct symbolizer *parent,
			uint64_t forked)
{
	symbolizer->minor = parent->minor;
	return code_cache__inherit(symbolizer->codes, parent->codes, forked);
}

struct code_cache *symbolizer__codes(struct symbolizer *symbolizer)
{
	return symbolizer->codes;
}

uint32_t symbolizer__number(struct symbolizer *symbolizer, uint32_t number)
{
	if (number != UINT32_MAX || errno != ENOSPC)
		return number;
	if (!symbolizer->stats.no_room++)
		log_warn("the recording is full of different stacks, names or threads: new ones "
			 "stay without a name");
	return 0;
}

static const struct mt_frame *frames_of(const struct mt_rec_stack *rec)
{
	return (const struct mt_frame *)(rec + 1);
}

int symbolizer__prefetch(struct symbolizer *symbolizer, const struct mt_rec_stack *rec)
{
	const struct mt_frame *frames = frames_of(rec);
	uint32_t i;
	int err;

	for (i = 0; i < rec->n; i++) {
		err = frames[i].kind == MT_FRAME_CODE
			      ? code_cache__need(symbolizer->codes, frames[i].addr, rec->epoch)
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

static bool is_function(const struct dict *dict, const struct dict_frame *f, const char *function,
			const char *file)
{
	struct dict_loc loc = dict__get_loc(dict, f->loc);

	return ends_with(dict__str(dict, loc.func), function) &&
	       ends_with(dict__str(dict, loc.file), file);
}

/* The classes of this file, of which only record_function calls what HOOK_SCOPE_END probes. */
#define PROFILER "/torch/autograd/profiler.py"

static bool is_scope_exit(const struct dict *dict, const struct dict_frame *f, uint32_t n_frames)
{
	return n_frames && (is_function(dict, &f[0], "__exit__", PROFILER) ||
			    is_function(dict, &f[0], "_call_end_callbacks_on_future", PROFILER));
}

/* True for record_function.__exit__, called by the wrapper around an optimizer's step. */
static bool is_optimizer_exit(const struct dict *dict, const struct dict_frame *f,
			      uint32_t n_frames)
{
	return n_frames >= 2 && is_function(dict, &f[0], "__exit__", PROFILER) &&
	       is_function(dict, &f[1], "wrapper", "/torch/optim/optimizer.py");
}

uint32_t symbolizer__module(struct symbolizer *symbolizer, uint64_t self, uint64_t root,
			    uint64_t parent)
{
	struct dict_module module;
	struct nnmodule nn;

	if (!symbolizer->modules ||
	    nnmodules__name(symbolizer->modules, self, nnmodules__model(symbolizer->modules, root),
			    parent, &nn)) {
		symbolizer->stats.unnamed_modules++;
		return 0;
	}
	module.name = symbolizer__number(symbolizer,
					 dict__string(symbolizer->dict, nn.name, strlen(nn.name)));
	module.cls = symbolizer__number(symbolizer,
					dict__string(symbolizer->dict, nn.cls, strlen(nn.cls)));
	module.root = symbolizer__number(symbolizer,
					 dict__string(symbolizer->dict, nn.root, strlen(nn.root)));
	if (module.name == UINT32_MAX || module.cls == UINT32_MAX || module.root == UINT32_MAX)
		return UINT32_MAX;
	return symbolizer__number(symbolizer, dict__module(symbolizer->dict, module));
}

/* File, function and line of an instruction. at: its byte offset. */
static struct dict_loc place(const struct symbolizer *symbolizer, const struct code *code,
			     int32_t at)
{
	struct dict_loc loc = { .file = code->file, .func = code->func };

	loc.line = pyline__find(symbolizer->minor, code->linetable, code->linetable_len,
				code->firstlineno, at);
	return loc;
}

/* The dictionary's location of a frame, 0: unknown. */
static uint32_t location(struct symbolizer *symbolizer, const struct mt_frame *f,
			 const struct code *c)
{
	return symbolizer__number(symbolizer,
				  dict__loc(symbolizer->dict, place(symbolizer, c, f->at)));
}

bool symbolizer__place(const struct symbolizer *symbolizer, uint64_t code, uint64_t epoch,
		       int32_t at, struct dict_loc *ret, uint32_t *firstlineno)
{
	const struct code *c = code_cache__find(symbolizer->codes, code, epoch);

	if (!c || (!c->file && !c->func))
		return false;
	*ret = place(symbolizer, c, at);
	*firstlineno = c->firstlineno;
	return true;
}

int symbolizer__stack(struct symbolizer *symbolizer, const struct mt_rec_stack *rec,
		      struct named_stack *ret)
{
	const struct mt_frame *frames = frames_of(rec);
	struct dict_frame out[MT_MAX_ENTRIES];
	struct named_stack named = { .whole = true };
	uint64_t parent;
	uint32_t i, outer, n_out = 0;

	for (i = 0; i < rec->n; i++) {
		if (frames[i].kind != MT_FRAME_MODULE)
			continue;
		named.root = frames[i].addr; /* the outermost one remains */
		named.root_at = i - named.modules++;
	}
	for (i = 0; i < rec->n; i++) {
		if (frames[i].kind == MT_FRAME_MODULE) {
			/* it comes after the frame that calls the module, out[n_out - 1] */
			for (parent = 0, outer = i + 1; outer < rec->n && !parent; outer++)
				parent = frames[outer].kind == MT_FRAME_MODULE ? frames[outer].addr
									       : 0;
			if (n_out)
				out[n_out - 1].module = symbolizer__module(
					symbolizer, frames[i].addr, named.root, parent);
			if (n_out && out[n_out - 1].module == UINT32_MAX)
				return -ENOMEM;
			named.whole = named.whole && n_out && out[n_out - 1].module;
			continue;
		}
		const struct code *code = code_cache__find(symbolizer->codes, frames[i].addr,
							   rec->epoch);

		out[n_out] = (struct dict_frame){ 0 };
		symbolizer->stats.frames++;
		if (!code)
			symbolizer->stats.gone++;
		else if (!code->file && !code->func)
			symbolizer->stats.unreadable++;
		else
			out[n_out].loc = location(symbolizer, &frames[i], code);
		if (out[n_out].loc == UINT32_MAX)
			return -ENOMEM;
		named.whole = named.whole && out[n_out].loc;
		n_out++;
	}
	named.scope_exit = is_scope_exit(symbolizer->dict, out, n_out);
	named.optimizer_exit = is_optimizer_exit(symbolizer->dict, out, n_out);
	named.stack = symbolizer__number(symbolizer,
					 dict__stack(symbolizer->dict, out, n_out, rec->h.walk));
	if (named.stack == UINT32_MAX)
		return -ENOMEM;
	*ret = named;
	return 0;
}

uint32_t symbolizer__root(struct symbolizer *symbolizer, uint64_t self)
{
	uint32_t m = symbolizer->modules ? symbolizer__module(symbolizer, self, self, 0) : 0;

	return m == UINT32_MAX ? 0 : m;
}

int symbolizer__has_tensors(struct symbolizer *symbolizer, uint64_t root)
{
	return symbolizer->modules ? nnmodules__has_tensors(symbolizer->modules, root) : -EAGAIN;
}

bool symbolizer__is_part(struct symbolizer *symbolizer, uint64_t self)
{
	return symbolizer->modules && nnmodules__model(symbolizer->modules, self) != self;
}

int symbolizer__take_models(struct symbolizer *symbolizer, struct census_state *st)
{
	int err = 0;

	if (!symbolizer->modules)
		return 0;
	for (size_t i = 0; !err && i < st->nfronts; i++)
		err = nnmodules__set_prefix(symbolizer->modules, st->fronts[i].root,
					    st->fronts[i].type, st->fronts[i].text);
	nnmodules__set_models(symbolizer->modules, st->module_roots);
	st->module_roots = NULL;
	return err;
}

bool symbolizer__recheck(struct symbolizer *symbolizer, uint64_t now)
{
	uint64_t cost = 0;
	bool changed;

	if (!symbolizer->modules ||
	    (now < symbolizer->next_recheck && !nnmodules__is_urgent(symbolizer->modules)))
		return false;
	changed = nnmodules__recheck(symbolizer->modules, &cost);
	symbolizer->next_recheck = now + 1000000000ULL + cost * 100;
	return changed;
}

struct names_stats symbolizer__stats(const struct symbolizer *symbolizer)
{
	struct names_stats s = symbolizer->stats;

	s.codes = code_cache__reads(symbolizer->codes);
	return s;
}
