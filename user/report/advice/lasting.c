/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Advice about memory that lasts from step to step: optimizer state, buffers, the buckets of
 * DistributedDataParallel. */
#include "report/advice/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

#define ROUND 512	 /* the CUDA allocator rounds sizes up to multiples of this, bytes */
#define SMALL_STATE 4096 /* elements; 8-bit optimizers leave smaller states unchanged */
#define STATE_BLOCK 256	 /* elements per 4-byte scale in an 8-bit state */

/* Adds changes that make a lasting block smaller by `less` bytes in all kept windows that have
 * it. */
static void shrink(const struct track *t, struct remedy *r, const struct ablock *b, uint64_t less)
{
	for (uint32_t i = 0; i < t->nkept; i++)
		if (b->window < t->kept[i].number)
			changes__add(&r->c[i], START_OF_STEP, changes__less(less), /*once=*/false);
		else if (b->window == t->kept[i].number)
			changes__add(&r->c[i], b->place, changes__less(less), /*once=*/false);
}

/* Returns the size of a block for these bytes. */
static uint64_t rounded(uint64_t bytes)
{
	return (bytes + ROUND - 1) / ROUND * ROUND;
}

/* ---- optimizer state ---- */

/* True for the name of one of Adam's moments, such as "AdamW exp_avg of layers.3.weight".
 * *optimizer: length of its first word, the optimizer's name. */
static bool is_moment_by_name(const char *name, size_t *optimizer)
{
	const char *space = strchr(name, ' ');

	if (!space ||
	    (!text__starts(space, " exp_avg of ") && !text__starts(space, " exp_avg_sq of ")))
		return false;
	*optimizer = (size_t)(space - name);
	return true;
}

/* True for a block that is one of Adam's moments by its stack: Adam allocates both moments of a
 * parameter in its first step. */
static bool is_moment_by_line(const struct dict *d, const struct ablock *b)
{
	return b->window && b->phase == PHASE_OPTIMIZER && !b->name && b->size > ROUND &&
	       (advice_lasting__stack_is_in(d, b->stack, "torch/optim/adam.py", "_init_group") ||
		advice_lasting__stack_is_in(d, b->stack, "torch/optim/adamw.py", "_init_group"));
}

struct moments {
	uint64_t n, bytes;	/* number of moments, and their size */
	uint64_t less8, less16; /* bytes saved if they are kept in 8 or in 16 bits */
	uint32_t of_parameters; /* bytes per element of all parameters; 0: different or unknown */
	bool guessed;		/* true if some element sizes are unknown */
	bool by_line;		/* true if some moments have no name */
	const char *optimizer;	/* text that starts with the optimizer's name */
	size_t len;		/* length of that name */
};

/* Returns the bytes of a moment of Adam in 8 bit: one for each element, and the scales, which are a
 * tensor of their own. */
static uint64_t bytes_in_8bit(uint64_t elements)
{
	return rounded(elements) + rounded((elements + STATE_BLOCK - 1) / STATE_BLOCK * 4);
}

/* Adds a moment to the sums, and its saving in 8 bit to the remedy. */
static void add_moment(const struct track *t, const struct ablock *b, struct moments *moments,
		       struct remedy *remedy)
{
	uint32_t known_item = b->item ? b->item : moments->of_parameters;
	uint32_t item_size = known_item ? known_item : 4;
	uint64_t elements = (b->tensor_size ? b->tensor_size : b->size) / item_size, size_8bit;

	moments->n++;
	moments->bytes += b->size;
	moments->guessed |= !b->item && !moments->of_parameters;
	if (item_size < 2 || !elements)
		return;
	if (item_size > 2 && rounded(elements * 2) < b->size)
		moments->less16 += b->size - rounded(elements * 2);
	size_8bit = bytes_in_8bit(elements);
	if (elements < SMALL_STATE || size_8bit >= b->size)
		return;
	moments->less8 += b->size - size_8bit;
	shrink(t, remedy, b, b->size - size_8bit);
}

/* Returns the bytes per element of all parameters; 0 if they differ or some are unknown. */
static uint32_t item_of_parameters(const struct track *t)
{
	const struct ablock *b;
	uint32_t item = 0;

	for (uint32_t i = 0; (b = track__lasting(t, &i));) {
		if (b->category != CATEGORY_PARAMETER)
			continue;
		if (!b->item || (item && b->item != item))
			return 0;
		item = b->item;
	}
	return item;
}

/* Advises to keep Adam's moments in 8 bit. Returns 0 or -ENOMEM. */
static int advise_state(struct advising *a)
{
	struct moments moments = { .of_parameters = item_of_parameters(a->t),
				   .optimizer = "Adam",
				   .len = 4 };
	struct remedy remedy = { 0 };
	const struct ablock *block;
	int err = 0;

	for (uint32_t i = 0; (block = track__lasting(a->t, &i));) {
		const char *name = dict__str(a->d, block->name);
		bool by_line = is_moment_by_line(a->d, block);

		if (!by_line && (block->category != CATEGORY_OPTIMIZER_STATE ||
				 !is_moment_by_name(name, &moments.len)))
			continue;
		moments.by_line |= by_line;
		moments.optimizer = by_line ? moments.optimizer : name;
		add_moment(a->t, block, &moments, &remedy);
	}
	if (moments.n > 1 && moments.less8) {
		char bytes[24], less[24], less16[24], in_16_bit[48] = "";
		struct advice entry = { .kind = ADVICE_OPTIMIZER_8BIT, .figure = ADVICE_ESTIMATE };
		const char *guess = "";

		if (moments.guessed) {
			entry.figure = ADVICE_UP_TO;
			guess = ", if they are float32, which the recording does not say";
		}
		if (moments.less16)
			snprintf(in_16_bit, sizeof(in_16_bit), "; in bfloat16 %s",
				 text__bytes(less16, 24, moments.less16));

		entry.text = advice__format(
			"optimizer state in 8 bit: bitsandbytes.optim.AdamW8bit or "
			"torchao.optim.AdamW8bit instead of %.*s",
			(int)moments.len, moments.optimizer);
		entry.where = advice__format("%s", "");
		entry.basis = advice__format(
			"%llu moments%s use %s; one byte an element and a scale for each %d "
			"elements use %s less%s%s",
			(unsigned long long)moments.n,
			moments.by_line ? ", by the line that made them," : "",
			text__bytes(bytes, 24, moments.bytes), STATE_BLOCK,
			text__bytes(less, 24, moments.less8), guess, in_16_bit);
		entry.costs = advice__format("a less exact state");
		err = remedy__advise(a, &remedy, &entry);
	}
	remedy__free(&remedy);
	return err;
}

/* ---- buffers ---- */

/* Returns "weight" for "layers.3.weight". */
static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

/* True for a buffer with statistics of one module, which modules cannot share. */
static bool is_statistic(const char *name)
{
	return text__starts(name, "running_") || text__starts(name, "num_batches");
}

struct buffers {
	struct sorted {
		const struct ablock *block;
		const char *name; /* last part of the buffer's name */
		const char *cls;  /* class of its module */
	} * all;
	size_t n, cap;
};

/* Puts alike buffers next to each other, in the order of their addresses. */
static int cmp_likeness(const void *x, const void *y)
{
	const struct sorted *a = x, *b = y;
	int order = strcmp(a->name, b->name);

	if (order)
		return order;
	order = strcmp(a->cls, b->cls);
	if (order)
		return order;
	if (a->block->size != b->block->size)
		return a->block->size < b->block->size ? -1 : 1;
	return (a->block->addr > b->block->addr) - (a->block->addr < b->block->addr);
}

static bool are_alike(const struct sorted *a, const struct sorted *b)
{
	return !strcmp(a->name, b->name) && !strcmp(a->cls, b->cls) &&
	       a->block->size == b->block->size;
}

/* Advises to share one buffer instead of the alike buffers from index from to index to - 1. Returns
 * 0 or -ENOMEM. */
static int advise_alike(struct advising *a, const struct buffers *buffers, size_t from, size_t to)
{
	struct remedy remedy = { 0 };
	char each[24];
	struct dict_module module = dict__get_module(a->d, buffers->all[from].block->owner);
	struct advice entry = { .kind = ADVICE_BUFFERS, .figure = ADVICE_UP_TO };
	int err;

	for (size_t i = from + 1; i < to; i++)
		shrink(a->t, &remedy, buffers->all[i].block, buffers->all[i].block->size);
	entry.text = advice__format(
		"share one buffer if all hold the same values: make %s once and pass it to each %s",
		buffers->all[from].name,
		*buffers->all[from].cls ? buffers->all[from].cls : "module");
	entry.where = advice__format("%s in %s and %zu more (%s)", buffers->all[from].name,
				     dict__str(a->d, module.name), to - from - 1,
				     *buffers->all[from].cls ? buffers->all[from].cls
							     : "class not known");
	entry.basis = advice__format(
		"%zu buffers of %s, each in its own memory; the recording does "
		"not show whether they hold the same values",
		to - from, text__bytes(each, 24, buffers->all[from].block->size));
	err = remedy__advise(a, &remedy, &entry);
	remedy__free(&remedy);
	return err;
}

/* Advises about buffers that have the same name, class and size. Returns 0 or -ENOMEM. */
static int advise_buffers(struct advising *a)
{
	struct buffers buffers = { 0 };
	const struct ablock *block;
	int err = 0;

	for (uint32_t i = 0; !err && (block = track__lasting(a->t, &i));) {
		const char *name = last_part(dict__str(a->d, block->name));

		if (block->category != CATEGORY_BUFFER || !*name || is_statistic(name) ||
		    strstr(name, " and "))
			continue;
		err = array__grow(&buffers.all, &buffers.cap, buffers.n + 1, sizeof(*buffers.all));
		if (!err)
			buffers.all[buffers.n++] = (struct sorted){
				block, name,
				dict__str(a->d, dict__get_module(a->d, block->owner).cls)
			};
	}
	if (buffers.n)
		qsort(buffers.all, buffers.n, sizeof(*buffers.all), cmp_likeness);
	for (size_t i = 0, next; i < buffers.n && !err; i = next) {
		for (next = i + 1;
		     next < buffers.n && are_alike(&buffers.all[i], &buffers.all[next]); next++)
			;
		if (next - i > 1)
			err = advise_alike(a, &buffers, i, next);
	}
	free(buffers.all);
	return err;
}

/* ---- buckets ---- */

bool advice_lasting__stack_is_in(const struct dict *d, uint32_t stack, const char *file,
				 const char *func)
{
	struct dict_stack frames = dict__get_stack(d, stack);

	for (uint32_t i = 0; i < frames.n; i++) {
		struct dict_loc loc = dict__get_loc(d, frames.frames[i].loc);
		const char *name = dict__str(d, loc.func);
		const char *path = dict__str(d, loc.file);
		size_t path_len = strlen(path);
		size_t file_len = strlen(file);

		if (path_len < file_len || strcmp(path + path_len - file_len, file) != 0)
			continue;
		if (!func || !strncmp(last_part(name), func, strlen(func)))
			return true;
	}
	return false;
}

/* True for a bucket of DistributedDataParallel, by the functions that allocate buckets. */
static bool is_bucket(const struct advising *a, const struct ablock *b)
{
	return b->window && (b->category == CATEGORY_UNKNOWN || b->category == CATEGORY_GRADIENT) &&
	       advice_lasting__stack_is_in(a->d, b->stack, "torch/nn/parallel/distributed.py",
					   /*func=*/NULL) &&
	       (advice_lasting__stack_is_in(a->d, b->stack, "torch/nn/parallel/distributed.py",
					    "_ddp_init_helper") ||
		advice_lasting__stack_is_in(a->d, b->stack, "torch/nn/parallel/distributed.py",
					    "_pre_forward"));
}

/* Adds the changes of gradient_as_bucket_view to a window: gradients lie in the buckets, which
 * exist all the time. Backward copies each result into its bucket and frees it at once. */
static void drop_gradients(const struct window *w, const struct track *t, struct changes *changes)
{
	for (uint32_t i = 0; i < w->nblocks; i++) {
		const struct ablock *b = &w->blocks[i];
		bool from_last_step = !b->born && b->window && w->stepped;
		bool for_next_step = b->born && b->gone == NEVER && w->end != NEVER;

		if (b->phase != PHASE_BACKWARD || b->size <= ROUND || !b->module)
			continue;   /* not a gradient */
		if (from_last_step) /* the bucket has it when the step begins */
			changes__absent(changes, b, START_OF_STEP, b->gone);
		else if (for_next_step && !track__lasts(t, b)) /* copied as soon as it is there */
			changes__absent(changes, b, b->born + 1, NEVER);
	}
}

/* Advises to store gradients in DDP's buckets only. Gradients that are views of buckets already
 * have names such as "grad of a and 12 more". Returns 0 or -ENOMEM. */
static int advise_buckets(struct advising *a)
{
	uint64_t buckets = 0, parameters = 0, viewed = 0, nbuckets = 0;
	const struct ablock *block;
	struct remedy remedy = { 0 };
	int err = 0;

	for (uint32_t i = 0; (block = track__lasting(a->t, &i));) {
		if (is_bucket(a, block)) {
			buckets += block->size;
			viewed += block->category == CATEGORY_GRADIENT ? block->size : 0;
			nbuckets++;
		}
		parameters += block->category == CATEGORY_PARAMETER ? block->size : 0;
	}
	/* The buckets cover the parameters that take part, not necessarily all. */
	if (nbuckets && !viewed && buckets <= parameters + parameters / 8 &&
	    buckets >= parameters / 8) {
		char bytes[24];
		struct advice entry = { .kind = ADVICE_DDP_BUCKETS, .figure = ADVICE_ESTIMATE };

		for (uint32_t i = 0; i < a->t->nkept; i++)
			drop_gradients(&a->t->kept[i], a->t, &remedy.c[i]);
		entry.text = advice__format(
			"gradients as views of DDP's buckets: "
			"DistributedDataParallel(..., gradient_as_bucket_view=True)");
		entry.where = advice__format("%s", "");
		entry.basis = advice__format(
			"%llu buckets hold %s, and the gradients use as much again",
			(unsigned long long)nbuckets, text__bytes(bytes, 24, buckets));
		entry.costs = advice__format("gradients cannot be detached in place");
		err = remedy__advise(a, &remedy, &entry);
	}
	remedy__free(&remedy);
	return err;
}

int advice_lasting(struct advising *a)
{
	int err = advise_state(a);

	if (err)
		return err;
	err = advise_buffers(a);
	if (err)
		return err;
	return advise_buckets(a);
}
