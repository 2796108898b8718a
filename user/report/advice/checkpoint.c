/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Advice to recompute repeated modules in backward. Blocks that a module keeps for backward would
 * be absent from the end of its forward to the start of its backward. Its output stays, as the next
 * module's input. Backward then repeats the allocations of the forward.
 */
#include "report/advice/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

/* A call of a module instance in one forward. */
struct call {
	uint32_t leave;	    /* place of the last allocation in the call's forward */
	uint32_t back;	    /* place where the call's backward starts; NEVER: none */
	uint32_t output_no; /* number from 1 of the last block that the call's forward allocates */
	/* Bytes live among those that the call's forward allocated, and their peak so far. */
	uint64_t live, live_peak;
	uint64_t recompute_peak; /* peak of repeating the forward up to its last kept block */
	uint64_t kept;		 /* bytes kept for backward */
};

struct call_list {
	struct call *all;
	size_t n, cap;
	struct map64 *at; /* call_key() -> index in all */
};

/* Returns the number from 1 of the group's instance that contains a module; 0: none. */
static uint32_t instance_no(const struct instances *s, uint32_t group, uint32_t module)
{
	uint32_t no = 0;

	if (module < s->nmodules)
		no = s->no_of[(size_t)s->groups[group].level * s->nmodules + module];
	return no && s->all[no - 1].group == group ? no : 0;
}

static uint64_t call_key(uint32_t instance_no, uint32_t epoch)
{
	return (uint64_t)epoch << 32 | instance_no;
}

/* Returns the call that a block belongs to: a call of an instance of the group; NULL: none. */
static struct call *find_call(const struct call_list *calls, const struct instances *s,
			      uint32_t group, const struct ablock *b)
{
	uint32_t no = instance_no(s, group, b->module);
	uint64_t i;

	if (!no || !map64__get(calls->at, call_key(no, b->epoch), &i))
		return NULL;
	return &calls->all[i];
}

static bool is_from_forward(const struct ablock *b)
{
	return b->born && b->phase == PHASE_FORWARD;
}

/* Finds the calls in a window, the ends of their forwards, and their outputs. Returns 0 or -ENOMEM.
 */
static int find_calls(const struct window *w, const struct instances *s, uint32_t group,
		      struct call_list *calls)
{
	for (uint32_t place = 1; place <= w->n; place++) {
		const struct ablock *b = &w->blocks[window__block_no(w, place)];
		uint32_t no = is_from_forward(b) ? instance_no(s, group, b->module) : 0;
		struct call *call;

		if (!no)
			continue;
		call = find_call(calls, s, group, b);
		if (!call) {
			if (array__grow(&calls->all, &calls->cap, calls->n + 1,
					sizeof(*calls->all)) ||
			    map64__set(calls->at, call_key(no, b->epoch), calls->n))
				return -ENOMEM;
			call = &calls->all[calls->n++];
			*call = (struct call){ .back = NEVER }; /* no backward yet */
		}
		if (window__is_free(w, place)) /* at this place the block is freed */
			continue;
		/* the last allocation is the output, and the end of the forward */
		call->leave = place;
		call->output_no = window__block_no(w, place) + 1;
	}
	return 0;
}

/* Sets where the calls' backwards start: the first allocation of backward for the module, or the
 * first free of a block of the call's forward after an allocation of backward. */
static void find_backwards(const struct window *w, const struct instances *s, uint32_t group,
			   struct call_list *calls)
{
	uint32_t phase = PHASE_OTHER; /* phase of the last allocation */

	for (uint32_t place = 1; place <= w->n; place++) {
		const struct ablock *b = &w->blocks[window__block_no(w, place)];
		bool is_free = window__is_free(w, place);
		struct call *call;

		if (!is_free)
			phase = b->phase;
		if (phase != PHASE_BACKWARD || (is_free && !is_from_forward(b)))
			continue;
		call = find_call(calls, s, group, b);
		if (call && place > call->leave && place < call->back)
			call->back = place;
	}
}

/* True if a block is kept for backward and freed there. If the step ended out of memory before its
 * backward, all blocks live then count as kept. */
static bool is_kept(const struct window *w, const struct ablock *b, const struct call *call)
{
	if (call->back == NEVER)
		return is_from_forward(b) && w->oom >= call->leave && b->gone > w->oom;
	return is_from_forward(b) && b->gone != NEVER && b->gone > call->leave &&
	       b->gone >= call->back;
}

/* Computes the peak of recomputing each call: the most bytes of its forward that are live at a
 * time, up to the allocation of its last kept block. */
static void find_recompute_peaks(const struct window *w, const struct instances *s, uint32_t group,
				 struct call_list *calls)
{
	for (uint32_t place = 1; place <= w->n; place++) {
		const struct ablock *b = &w->blocks[window__block_no(w, place)];
		struct call *call = is_from_forward(b) ? find_call(calls, s, group, b) : NULL;

		if (!call)
			continue;
		if (window__is_free(w, place)) {
			call->live -= b->size;
			continue;
		}
		call->live += b->size;
		if (call->live > call->live_peak)
			call->live_peak = call->live;
		if (is_kept(w, b, call))
			call->recompute_peak = call->live_peak;
	}
}

/* The blocks that the calls of a group keep in a window. */
struct sum {
	uint32_t calls; /* number of calls that keep blocks */
	/* Bytes of their kept blocks, and of their outputs, which are inputs of the next call. */
	uint64_t kept, inputs;
	uint32_t stack; /* stack of a kept block */
	bool cut;	/* true if the step ended out of memory before its backward */
};

/* Adds the changes to a window if all calls of the group are checkpointed. *sum: what the calls
 * keep. Returns 0 or -ENOMEM. */
static int change_window(const struct window *w, const struct instances *s, uint32_t group,
			 struct changes *changes, struct sum *sum)
{
	struct call_list calls = { .at = map64__new() };
	int err = -ENOMEM;

	*sum = (struct sum){ 0 };
	if (!calls.at)
		goto out;
	err = find_calls(w, s, group, &calls);
	if (err)
		goto out;
	find_backwards(w, s, group, &calls);
	find_recompute_peaks(w, s, group, &calls);
	for (uint32_t i_block = 0; i_block < w->nblocks; i_block++) {
		const struct ablock *b = &w->blocks[i_block];
		struct call *call = is_from_forward(b) ? find_call(&calls, s, group, b) : NULL;

		/* Without a backward, checkpoints do nothing, unless memory ran out before it. */
		if (!call || (call->back == NEVER && !w->oom))
			continue;
		if (call->output_no == i_block + 1) {
			/* The remedy keeps the next call's input longer. */
			if (b->gone < call->back && call->back != NEVER) {
				changes__add(changes, b->gone, (int64_t)b->size, /*once=*/false);
				changes__add(changes, call->back, changes__less(b->size),
					     /*once=*/false);
			}
			sum->inputs += b->size;
			continue;
		}
		if (!is_kept(w, b, call))
			continue;
		call->kept += b->size;
		sum->kept += b->size;
		sum->stack = b->stack;
		changes__absent(changes, b, call->leave + 1, call->back);
	}
	for (size_t i = 0; i < calls.n; i++) {
		const struct call *call = &calls.all[i];

		if (!call->kept)
			continue;
		sum->calls++;
		sum->cut |= call->back == NEVER;
		if (call->back != NEVER && call->recompute_peak > call->kept)
			changes__add(changes, call->back,
				     (int64_t)(call->recompute_peak - call->kept), /*once=*/true);
	}
	err = changes->err;
out:
	free(calls.all);
	map64__free(calls.at);
	return err;
}

/* Returns the cost of one more forward, as a share of a step's time if that was measured: a dry run
 * has no useful times. NULL if memory is short. */
static char *costs_of(const struct advising *a, const struct instances *s, uint32_t group)
{
	uint64_t forward = 0, step = model__step_time(a->m);

	if (facts__get(a->f, "dry_run") || !step || !model__sees_calls(a->m))
		return advice__format("one more forward pass of them in each backward");
	for (size_t i = 0; i < model__layers(a->m); i++) {
		struct model_layer layer;

		model__layer(a->m, i, &layer);
		for (uint32_t k = 0; k < s->n; k++) {
			struct dict_module module = dict__get_module(a->d, s->all[k].module);

			if (s->all[k].group == group &&
			    !strcmp(dict__str(a->d, module.name), layer.name) &&
			    !strcmp(dict__str(a->d, module.root), layer.root))
				forward += layer.forward.duration;
		}
	}
	if (model__steps(a->m))
		forward /= model__steps(a->m);
	return advice__format("one more forward pass of them in each backward: %.0f %% of a step's "
			      "time, measured on the host",
			      100.0 * (double)forward / (double)step);
}

/* True for a stack in a model of Hugging Face's transformers, which has its own checkpointing. */
static bool is_of_transformers(const struct dict *d, uint32_t stack)
{
	struct dict_stack frames = dict__get_stack(d, stack);

	for (uint32_t i = 0; i < frames.n; i++)
		if (strstr(dict__str(d, dict__get_loc(d, frames.frames[i].loc).file),
			   "/transformers/models/"))
			return true;
	return false;
}

/* Adds the advice to checkpoint a group. sum: what its calls keep in the step of the peak. Returns
 * 0 or -ENOMEM. */
static int add_advice(struct advising *a, const struct instances *s, uint32_t group,
		      struct remedy *r, const struct sum *sum)
{
	const struct instance_group *g = &s->groups[group];
	const char *what = strchr(g->pattern, ',') ? "these modules" : g->pattern;
	const char *how = "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)";
	struct advice entry = { .kind = ADVICE_CHECKPOINT, .figure = ADVICE_ESTIMATE };
	const char *note = "";
	char kept[24], inputs[24];

	if (is_of_transformers(a->d, sum->stack))
		how = "model.gradient_checkpointing_enable()";
	if (sum->cut) {
		entry.figure = ADVICE_UP_TO;
		note = "; the step ran out of memory, so the need of its rest is unknown";
	}
	entry.text = advice__format("checkpoint %s: %s", what, how);
	entry.where = advice__format("%s (%s)", g->pattern, *g->cls ? g->cls : "class not known");
	entry.basis = advice__format(
		"%u calls in the step of the peak keep %s for backward; with checkpointing, %s of "
		"inputs stay, and one call's memory at a time%s",
		sum->calls, text__bytes(kept, 24, sum->kept), text__bytes(inputs, 24, sum->inputs),
		note);
	entry.costs = costs_of(a, s, group);
	return remedy__advise(a, r, &entry);
}

/* Adds the changes for a group to all kept windows. *after: the new peak, or the old one if the
 * step of the peak has fewer than two calls of the group. *sum: that step's calls. Returns 0 or
 * -ENOMEM. */
static int try_group(struct advising *a, const struct instances *s, uint32_t group,
		     struct remedy *r, struct sum *sum, uint64_t *after)
{
	bool sure;

	*after = a->peak;
	for (uint32_t i = 0; i < a->t->nkept; i++) {
		struct sum window_sum;
		int err = change_window(&a->t->kept[i], s, group, &r->c[i], &window_sum);

		if (err)
			return err;
		if (&a->t->kept[i] == a->highest)
			*sum = window_sum;
	}
	return sum->calls > 1 ? remedy__peak(a, r, after, &sure) : 0;
}

int advice_checkpoint(struct advising *a)
{
	struct instances instances;
	int err = instances__find(a->d, &instances);
	struct remedy best = { 0 };
	struct sum best_sum = { 0 };
	uint64_t best_after = a->peak;
	uint32_t best_group = 0;

	for (uint32_t group = 0; group < instances.ngroups && !err; group++) {
		struct remedy r = { 0 };
		struct sum sum = { 0 };
		uint64_t after;

		if (instances.groups[group].n < 2)
			continue;
		err = try_group(a, &instances, group, &r, &sum, &after);
		if (!err && after < best_after) {
			struct remedy worse = best;

			best = r;
			r = worse;
			best_sum = sum;
			best_after = after;
			best_group = group;
		}
		remedy__free(&r);
	}
	if (!err && best_after < a->peak)
		err = add_advice(a, &instances, best_group, &best, &best_sum);
	remedy__free(&best);
	instances__free(&instances);
	return err;
}
