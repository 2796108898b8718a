/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Advice about memory that comes and goes within a step: the optimizer's temporaries, logits, and
 * outputs held by a variable. */
#include "report/advice/internal.h"

#include <string.h>

#include "base/text.h"

/* ---- foreach ---- */

/* Returns the optimizer's name, such as "adamw", for a stack in "_multi_tensor_adamw", which
 * handles all parameters at once; otherwise NULL. */
static const char *multi_tensor_optimizer(const struct dict *d, uint32_t stack)
{
	static const char prefix[] = "_multi_tensor_";
	struct dict_stack frames = dict__get_stack(d, stack);

	for (uint32_t i = 0; i < frames.n; i++) {
		struct dict_loc loc = dict__get_loc(d, frames.frames[i].loc);
		const char *name = dict__str(d, loc.func);

		if (text__starts(name, prefix) && strstr(dict__str(d, loc.file), "torch/optim/"))
			return name + strlen(prefix);
	}
	return NULL;
}

/* True if PyTorch's optimizer of that name accepts fused=True. */
static bool has_fused(const char *optimizer)
{
	static const char *const all[] = { "adam", "adamw", "sgd", "adagrad" };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(optimizer, all[i]))
			return true;
	return false;
}

/* Advises about the temporaries of an optimizer that handles all parameters at once. Returns 0 or
 * -ENOMEM. */
static int advise_foreach(struct advising *a)
{
	const char *optimizer = NULL, *name;
	struct remedy remedy = { 0 };
	uint64_t blocks_at_peak = 0, largest = 0;
	uint32_t stack = 0;
	int err = 0;

	for (uint32_t i = 0; i < a->t->nkept; i++) {
		const struct window *w = &a->t->kept[i];

		for (uint32_t i_block = 0; i_block < w->nblocks; i_block++) {
			const struct ablock *b = &w->blocks[i_block];

			/* Blocks that stay are state. */
			if (!b->born || b->gone == NEVER || b->phase != PHASE_OPTIMIZER ||
			    !(name = multi_tensor_optimizer(a->d, b->stack)))
				continue;
			changes__absent(&remedy.c[i], b, b->born, NEVER);
			optimizer = name;
			stack = b->stack;
			blocks_at_peak += w == a->highest;
			largest = b->size > largest ? b->size : largest;
		}
	}
	if (blocks_at_peak && optimizer) {
		bool fused = has_fused(optimizer);
		struct advice entry = { .kind = ADVICE_OPTIMIZER_FOREACH,
					.figure = fused ? ADVICE_EXACT : ADVICE_UP_TO };
		char bytes[24];

		entry.text =
			fused ? advice__format(
					"use one kernel for the optimizer's step: fused=True (or "
					"foreach=False, slower)")
			      : advice__format("run the optimizer's step parameter by parameter: "
					       "foreach=False");
		entry.where = advice__line(a, stack);
		entry.basis = advice__format(
			"%llu temporary block%s of %s in the step of the peak, up to %s each",
			(unsigned long long)blocks_at_peak, blocks_at_peak == 1 ? "" : "s",
			optimizer, text__bytes(bytes, 24, largest));
		if (!fused)
			entry.costs = advice__format("a slower step of the optimizer");
		err = remedy__advise(a, &remedy, &entry);
	}
	remedy__free(&remedy);
	return err;
}

/* ---- logits ---- */

#define LEAST_PARTS 4 /* similar blocks that show a loss that is computed in parts */

static bool is_from_cross_entropy(const struct advising *a, const struct ablock *b)
{
	return b->born && b->phase != PHASE_BACKWARD &&
	       advice_lasting__stack_is_in(a->d, b->stack, "torch/nn/functional.py",
					   "cross_entropy");
}

/*
 * Returns the size of the largest block that a cross entropy allocates in forward. Its
 * log-probabilities have the size of the logits. Returns 0 if there is no such block, or if several
 * similar ones show that the loss is already computed in parts.
 */
static uint64_t logits_size(const struct advising *a, const struct window *w, uint32_t *stack)
{
	const struct ablock *largest = NULL;
	uint32_t parts = 0;

	for (uint32_t i = 0; i < w->nblocks; i++) {
		const struct ablock *b = &w->blocks[i];

		if ((!largest || b->size > largest->size) && is_from_cross_entropy(a, b))
			largest = b;
	}
	for (uint32_t i = 0; largest && i < w->nblocks; i++) {
		const struct ablock *b = &w->blocks[i];

		parts += b->epoch == largest->epoch && b->size >= largest->size / 2 &&
			 is_from_cross_entropy(a, b);
	}
	if (!largest || parts >= LEAST_PARTS)
		return 0;
	*stack = largest->stack;
	return largest->size;
}

/* True for about the logits' size, or that of a type of half or double width. */
static bool is_near_logits_size(uint64_t size, uint64_t logits)
{
	for (uint64_t times = 1; times <= 4; times *= 2) {
		uint64_t wanted = logits / 2 * times; /* half, once and twice the size */

		if (size >= wanted - wanted / 16 && size <= wanted + wanted / 16)
			return true;
	}
	return false;
}

/* True for a temporary of about the logits' size from the model's last layer or the loss, that is,
 * from outside of repeated modules. */
static bool is_logits_temporary(const struct ablock *b, const struct instances *s, uint64_t logits)
{
	bool in_repeated = b->module < s->nmodules && s->no_of[b->module];

	return b->born && b->gone != NEVER && !in_repeated && b->phase != PHASE_OPTIMIZER &&
	       is_near_logits_size(b->size, logits);
}

#define CHUNKS 8 /* the estimate assumes that the loss is computed in so many parts */

/* Advises to compute logits and loss in parts. Returns 0 or -ENOMEM. */
static int advise_logits(struct advising *a)
{
	struct instances instances;
	struct remedy remedy = { 0 };
	uint32_t stack = 0, blocks_at_peak = 0;
	uint64_t largest_logits = 0;
	int err = instances__find(a->d, &instances);

	for (uint32_t i = 0; i < a->t->nkept && !err; i++) {
		const struct window *w = &a->t->kept[i];
		uint64_t size = logits_size(a, w, &stack);

		for (uint32_t i_block = 0; i_block < w->nblocks && size; i_block++) {
			const struct ablock *b = &w->blocks[i_block];

			if (!is_logits_temporary(b, &instances, size))
				continue;
			changes__add(&remedy.c[i], b->born,
				     changes__less(b->size - b->size / CHUNKS), /*once=*/false);
			changes__add(&remedy.c[i], b->gone + 1,
				     (int64_t)(b->size - b->size / CHUNKS), /*once=*/false);
			blocks_at_peak += w == a->highest;
		}
		largest_logits = size > largest_logits ? size : largest_logits;
	}
	if (!err && blocks_at_peak) {
		char bytes[24];
		struct advice entry = { .kind = ADVICE_LOGITS, .figure = ADVICE_UP_TO };

		entry.text = advice__format(
			"compute cross entropy in parts: head and loss together, "
			"for a part of the positions at a time (a fused linear "
			"cross entropy, or torch.utils.checkpoint around both)");
		entry.where = advice__line(a, stack);
		entry.basis = advice__format(
			"%u block%s of about %s in the step of the peak; estimated with %d parts",
			blocks_at_peak, blocks_at_peak == 1 ? "" : "s",
			text__bytes(bytes, 24, largest_logits), CHUNKS);
		entry.costs = advice__format(
			"logits are computed twice if the parts are not fused");
		err = remedy__advise(a, &remedy, &entry);
	}
	remedy__free(&remedy);
	instances__free(&instances);
	return err;
}

/* ---- held outputs ---- */

/* Finds the first backward at or after a place. Returns its start, or NEVER. *end: place of the
 * first allocation after backward, or the end of the step: autograd may free its blocks until then.
 */
static uint32_t find_backward(const struct window *w, uint32_t place, uint32_t *end)
{
	uint32_t begin = NEVER;

	*end = w->end;
	for (uint32_t move = place; move <= w->n; move++) {
		const struct ablock *b = &w->blocks[window__block_no(w, move)];

		if (window__is_free(w, move))
			continue;
		if (b->phase == PHASE_BACKWARD && begin == NEVER)
			begin = move;
		else if (b->phase != PHASE_BACKWARD && begin != NEVER) {
			*end = move;
			break;
		}
	}
	return begin;
}

/* True for a block that forward allocated, or other code right after forward, such as the loss. */
static bool from_forward(const struct ablock *b)
{
	return b->phase == PHASE_FORWARD || (b->phase == PHASE_OTHER && b->after == PHASE_FORWARD);
}

/* True for a block of the previous step's forward that this window frees: a variable held it until
 * the variable got a new value. */
static bool is_held_over(const struct window *w, const struct ablock *b)
{
	return !b->born && b->window && b->window + 1 == w->number && w->stepped &&
	       b->gone != NEVER && from_forward(b) && b->category != CATEGORY_PARAMETER &&
	       b->category != CATEGORY_BUFFER && b->category != CATEGORY_OPTIMIZER_STATE;
}

/* Blocks of forward that outlive their backward. */
struct held {
	uint64_t bytes, largest, n; /* largest: size of the largest block; n: number of blocks */
	uint32_t stack;		    /* stack of the largest block */
};

/* True if the window began with a similar block that was held over, so the later block will be held
 * over into the next window. */
static bool has_precursor(const struct window *w, const struct ablock *later)
{
	for (uint32_t i = 0; i < w->nblocks; i++) {
		const struct ablock *earlier = &w->blocks[i];

		if (earlier->stack == later->stack &&
		    block__same_size(earlier->size, later->size) && is_held_over(w, earlier))
			return true;
	}
	return false;
}

/* Adds changes for the blocks of forward that outlive their backward, because a variable holds
 * them: the remedy frees them at the start of backward. Adds these blocks to *held. */
static void change_held(const struct track *t, const struct window *w, struct changes *changes,
			struct held *held)
{
	uint32_t backward = NEVER, backward_end = 0;

	for (uint32_t i = 0; i < w->nblocks; i++) {
		const struct ablock *b = &w->blocks[i];

		if (is_held_over(w, b)) {
			changes__absent(changes, b, START_OF_STEP, b->gone);
			continue;
		}
		/* Blocks below a thousandth of the peak do not matter. */
		if (!b->born || !from_forward(b) || b->size < w->peak / 1000)
			continue;
		if (b->born > backward_end)
			backward = find_backward(w, b->born, &backward_end);
		if (backward == NEVER || b->gone <= backward_end)
			continue;
		/* A block that stays for good has another cause, unless a similar one shows the
		 * pattern. */
		if (b->gone == NEVER && track__lasts(t, b) && !has_precursor(w, b))
			continue;
		changes__absent(changes, b, backward, b->gone);
		held->bytes += b->size;
		held->n++;
		if (b->size <= held->largest)
			continue;
		held->largest = b->size;
		held->stack = b->stack;
	}
}

/* Advises about outputs that a variable holds during backward. Returns 0 or -ENOMEM. */
static int advise_held(struct advising *a)
{
	struct remedy remedy = { 0 };
	struct held most = { 0 };
	int err = 0;

	for (uint32_t i = 0; i < a->t->nkept; i++) {
		struct held held = { 0 };

		change_held(a->t, &a->t->kept[i], &remedy.c[i], &held);
		if (held.bytes > most.bytes)
			most = held;
	}
	if (most.n) {
		char bytes[24];
		struct advice entry = { .kind = ADVICE_OUTPUTS_HELD, .figure = ADVICE_UP_TO };

		entry.text = advice__format(
			"free the output once the loss is computed: `del` it before backward");
		entry.where = advice__line(a, most.stack);
		entry.basis = advice__format(
			most.n == 1 ? "%llu block of forward with %s is %s"
				    : "%llu blocks of forward with %s are %s",
			(unsigned long long)most.n, text__bytes(bytes, 24, most.bytes),
			"still there when the optimizer's step begins: held by a variable, not by "
			"autograd");
		err = remedy__advise(a, &remedy, &entry);
	}
	remedy__free(&remedy);
	return err;
}

int advice_step(struct advising *a)
{
	int err = advise_foreach(a);

	if (err)
		return err;
	err = advise_logits(a);
	if (err)
		return err;
	return advise_held(a);
}
