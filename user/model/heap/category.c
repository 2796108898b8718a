/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Category of a block whose role the program's own objects do not give. Rules use the phase of its
 * birth and the device's events until its death. Each rule needs evidence from both ends of the
 * life. A block that outlives its rule becomes unknown again, such as a library's workspace made in
 * forward. docs/reference/report.md lists the rules.
 */
#include "model/heap/category.h"

#include <errno.h>

#include "base/array.h"
#include "base/map64.h"
#include "model/heap/blocks.h"
#include "model/heap/device.h"
#include "model/heap/extents.h"
#include "model/heap/state.h"
#include "model/heap/steps.h"

/* A block that is live after this many steps is no activation, gradient or input. Programs with two
 * optimizers have two steps per iteration. */
#define OUTLIVED 3

/* Bits of the values in life.sizes. */
enum size_seen {
	SIZE_PARAMETER = 1,
	SIZE_BACKWARD = 2,
	SIZE_OPTIMIZER = 4,
};

const char *category__name(enum category c)
{
	static const char *const names[CATEGORY_NR] = {
		[CATEGORY_UNKNOWN] = "unknown",
		[CATEGORY_PARAMETER] = "parameter",
		[CATEGORY_BUFFER] = "buffer",
		[CATEGORY_GRADIENT] = "gradient",
		[CATEGORY_OPTIMIZER_STATE] = "optimizer_state",
		[CATEGORY_ACTIVATION] = "activation",
		[CATEGORY_INPUT] = "input",
		[CATEGORY_TEMPORARY] = "temporary",
		[CATEGORY_KV_CACHE] = "kv_cache",
		[CATEGORY_WORKSPACE] = "workspace",
		[CATEGORY_BUCKET] = "ddp_bucket",
		[CATEGORY_PRIVATE_POOL] = "private_pool",
	};

	return (unsigned)c < CATEGORY_NR ? names[c] : names[0];
}

void category__drop(struct life *l, uint32_t stamp)
{
	struct stamp *s = &l->stamps[stamp];

	if (--s->refs)
		return;
	s->steps = l->free_no; /* links the free stamps */
	l->free_no = stamp + 1;
}

/* Adds a stamp with one reference, which the caller owns. *ret: its index. Returns 0 or -ENOMEM. */
static int new_stamp(struct life *l, struct stamp s, uint32_t *ret)
{
	uint32_t i = l->free_no ? l->free_no - 1 : l->n;
	int err = array__grow_zero(&l->stamps, &l->cap, (size_t)i + 1, sizeof(*l->stamps));

	if (err)
		return err;
	if (l->free_no)
		l->free_no = l->stamps[i].steps; /* the next free one */
	else
		l->n++;
	l->stamps[i] = s;
	*ret = i;
	return 0;
}

static void end_stretch(struct life *l)
{
	if (l->stretch_no)
		category__drop(l, l->stretch_no - 1);
	l->stretch_no = 0;
}

/* Begins a stretch of this phase, with a stamp of its own. Returns 0 or -ENOMEM. */
static int begin_stretch(const struct model *m, struct life *l, enum phase phase)
{
	uint8_t after = l->after;
	uint32_t i;
	int err;

	end_stretch(l);
	l->forwards += phase == PHASE_FORWARD;
	l->backwards += phase == PHASE_BACKWARD;
	l->optimizers += phase == PHASE_OPTIMIZER;
	if (phase == PHASE_FORWARD || phase == PHASE_BACKWARD || phase == PHASE_OPTIMIZER)
		l->after = phase;
	err = new_stamp(l,
			(struct stamp){
				.refs = 1,
				.phase = phase,
				.after = after,
				.forwards = l->forwards,
				.backwards = l->backwards,
				.optimizers = l->optimizers,
				.steps = m->steps.n[STEP_OPT],
				.calls = m->steps.n[STEP_CALL],
			},
			&i);
	if (err)
		return err;
	l->stretch_no = i + 1;
	return 0;
}

int category__stamp_new_block(const struct model *m, struct dev *dev, enum phase phase,
			      uint32_t *ret)
{
	struct life *l = &dev->life;

	l->failed = false;
	if ((!l->stretch_no || l->stamps[l->stretch_no - 1].phase != phase) &&
	    begin_stretch(m, l, phase))
		return -ENOMEM;
	*ret = l->stretch_no - 1;
	l->stamps[*ret].refs++;
	return 0;
}

int category__stamp_known_block(struct dev *dev, int phase, uint32_t *ret)
{
	struct life *l = &dev->life;
	struct stamp s = { .refs = 1, .phase = phase, .after = LIFE_NONE };
	uint32_t i;

	if (!l->known_no[phase]) {
		if (new_stamp(l, s, &i))
			return -ENOMEM;
		l->known_no[phase] = i + 1;
	}
	*ret = l->known_no[phase] - 1;
	l->stamps[*ret].refs++;
	return 0;
}

int category__note_size(const struct model *m, struct life *l, const struct site *site)
{
	struct stack_origin origin = attribution__stack(m->attribution, site->stack);
	uint64_t seen = 0, now = 0;

	if (site->phase == PHASE_BACKWARD)
		now = SIZE_BACKWARD;
	else if (site->phase == PHASE_OPTIMIZER)
		now = SIZE_OPTIMIZER;
	else if (site->phase == PHASE_OTHER && origin.made_for == CATEGORY_PARAMETER)
		now = SIZE_PARAMETER;
	if (!l->infers || !now)
		return 0;
	if (!l->sizes)
		l->sizes = map64__new();
	if (!l->sizes)
		return -ENOMEM;
	map64__get(l->sizes, site->size, &seen);
	return map64__set(l->sizes, site->size, seen | now);
}

/* True if a site of this kind allocates blocks of the size. */
static bool has_size(const struct life *l, uint64_t size, enum size_seen kind)
{
	uint64_t seen;

	return l->sizes && map64__get(l->sizes, size, &seen) && seen & kind;
}

void category__step(struct model *m)
{
	for (uint32_t i = 0; i < m->ndevs; i++)
		end_stretch(&m->devs[i]->life);
}

/* Returns the category of a block allocated outside forward, backward and optimizer. steps: steps
 * since then. */
static uint8_t category_of_other(const struct model *m, const struct life *l, const struct stamp *s,
				 uint32_t steps, bool dead)
{
	uint32_t forwards = l->forwards - s->forwards, backwards = l->backwards - s->backwards;
	bool in_backward = l->stretch_no && l->stamps[l->stretch_no - 1].phase == PHASE_BACKWARD;

	/* Between a forward and its backward: the loss. A block freed in that backward was an
	 * activation. */
	if (s->after == PHASE_FORWARD && l->backwards)
		return dead && backwards == 1 && !steps && in_backward ? CATEGORY_ACTIVATION
								       : CATEGORY_UNKNOWN;
	/* Without an optimizer, steps are calls of the model. */
	if (!m->steps.n[STEP_OPT] && !l->optimizers)
		steps = (uint32_t)m->steps.n[STEP_CALL] - s->calls;
	if (!forwards || steps >= OUTLIVED)
		return CATEGORY_UNKNOWN;
	/* Models are built before the first forward, too. The block is an input if its site
	 * allocates again. */
	return s->after == LIFE_NONE ? LIFE_MAYBE_INPUT : CATEGORY_INPUT;
}

/* Returns the category from the phase of the allocation, and what happened on the device since. */
static uint8_t category_by_life(const struct model *m, const struct dev *dev, const struct rec *rec,
				bool dead)
{
	const struct life *life = &dev->life;
	const struct stamp *stamp = &life->stamps[rec->stamp];
	uint64_t opt_steps = m->steps.n[STEP_OPT];
	/* Steps and calls since the allocation. */
	uint32_t steps = opt_steps ? (uint32_t)opt_steps - stamp->steps
				   : life->optimizers - stamp->optimizers;
	uint32_t calls = (uint32_t)m->steps.n[STEP_CALL] - stamp->calls;
	const struct site *site = &m->sites.all[rec->site];
	bool freed_by_other_thread = site->node && life->freeing_thread_no &&
				     life->freeing_thread_no - 1 != site->thread;
	bool in_same_stretch = life->stretch_no == rec->stamp + 1;

	/* A block of the device "host" is the memory of many objects, and is found some time after
	 * they are made. One of "malloc" stands for others. */
	if (stamp->phase == LIFE_NONE || device__in_pieces(dev->pub.device))
		return CATEGORY_UNKNOWN;
	/* Without calls of modules, only the thread of backward is known. */
	if (site->between && stamp->phase != PHASE_BACKWARD)
		return CATEGORY_UNKNOWN;
	/* The engine's thread frees the temporaries of its nodes, and the program frees gradients. */
	if (in_same_stretch && stamp->phase == PHASE_BACKWARD && dead && freed_by_other_thread)
		return CATEGORY_GRADIENT;
	if (in_same_stretch)
		return dead ? CATEGORY_TEMPORARY : CATEGORY_UNKNOWN;
	switch (stamp->phase) {
	case PHASE_FORWARD:
		return life->backwards != stamp->backwards && steps < OUTLIVED ? CATEGORY_ACTIVATION
									       : CATEGORY_UNKNOWN;
	case PHASE_BACKWARD:
		if (!opt_steps && !life->optimizers)
			return calls < OUTLIVED ? CATEGORY_GRADIENT : CATEGORY_UNKNOWN;
		return steps && steps < OUTLIVED ? CATEGORY_GRADIENT : CATEGORY_UNKNOWN;
	case PHASE_OPTIMIZER:
		return steps > 1 ? CATEGORY_OPTIMIZER_STATE : CATEGORY_UNKNOWN;
	}
	return category_of_other(m, life, stamp, steps, dead);
}

/* Returns the category of a live block that was allocated before the first forward: a parameter, a
 * buffer or unknown. A parameter was allocated by a function that is known to make, load or move a
 * model; or there are gradients or optimizer state of its size. steps: steps since the allocation.
 */
static uint8_t category_of_first(const struct model *m, const struct life *l, const struct stamp *s,
				 const struct site *site, uint32_t steps)
{
	struct stack_origin origin = attribution__stack(m->attribution, site->stack);

	if (attribution__moves_buffer(m->attribution, &origin))
		return CATEGORY_BUFFER;
	if (origin.made_for == CATEGORY_PARAMETER)
		return origin.made_for;
	if (s->after != LIFE_NONE || site->again || !l->backwards)
		return CATEGORY_UNKNOWN;
	/* Inputs have the sizes of gradients of activations, but are gone after some steps. */
	if (steps >= OUTLIVED && has_size(l, site->size, SIZE_BACKWARD))
		return CATEGORY_PARAMETER;
	return has_size(l, site->size, SIZE_OPTIMIZER) ? CATEGORY_PARAMETER : CATEGORY_UNKNOWN;
}

/* Returns the category of a block that is live at the end, or when an allocation failed. Use it in
 * a recording without the program's objects, if the rules above give none: they need the block's
 * end. */
static uint8_t category_of_live(const struct model *m, const struct life *l, const struct rec *rec)
{
	const struct stamp *stamp = &l->stamps[rec->stamp];
	const struct site *site = &m->sites.all[rec->site];
	struct stack_origin origin = attribution__stack(m->attribution, site->stack);
	uint64_t opt_steps = m->steps.n[STEP_OPT];
	uint32_t steps = opt_steps ? (uint32_t)opt_steps - stamp->steps
				   : l->optimizers - stamp->optimizers;
	bool this_pass = !steps && l->backwards == stamp->backwards;
	/* In a server, memory that a forward leaves is a cache, too. */
	bool trains = l->backwards || l->optimizers || l->failed;

	switch (stamp->phase) {
	case PHASE_FORWARD:
		return this_pass && trains ? CATEGORY_ACTIVATION : CATEGORY_UNKNOWN;
	case PHASE_BACKWARD:
		/* Gradients that are set to zero stay, as a library's workspace does. */
		if (steps)
			return has_size(l, site->size, SIZE_PARAMETER) ? CATEGORY_GRADIENT
								       : CATEGORY_UNKNOWN;
		/* Checkpointing calls modules again. The frames of the forward call that made an
		 * autograd node say nothing about what the node allocates. */
		return origin.module && !attribution__charged(m->attribution, site->stack,
							      site->node)
			       ? CATEGORY_ACTIVATION
			       : CATEGORY_GRADIENT;
	case PHASE_OPTIMIZER:
		return steps ? CATEGORY_OPTIMIZER_STATE : origin.made_for;
	}
	/* After the model's forward: the loss. */
	if (stamp->after == PHASE_FORWARD && this_pass && trains)
		return CATEGORY_ACTIVATION;
	return category_of_first(m, l, stamp, site, steps);
}

/* Returns the category in a recording without the program's objects. dead: the block is freed now. */
static uint8_t category_without_objects(const struct model *m, const struct dev *dev,
					const struct rec *rec, bool dead)
{
	const struct life *l = &dev->life;
	bool live = !dead || l->failed;
	uint8_t phase = l->stamps[rec->stamp].phase, category;

	if (!live || phase == LIFE_NONE || device__in_pieces(dev->pub.device))
		return category_by_life(m, dev, rec, dead);
	/* A parameter may also be an input by its life. */
	category = category_by_life(m, dev, rec, /*dead=*/false);
	if (category == CATEGORY_UNKNOWN || category == LIFE_MAYBE_INPUT)
		category = category_of_live(m, l, rec) ?: category;
	return category ? category : category_by_life(m, dev, rec, dead);
}

uint8_t category__of_record(const struct model *m, const struct dev *dev, const struct rec *rec,
			    bool dead)
{
	uint8_t category = rec->label_no ? m->labels.all[rec->label_no - 1].category
					 : CATEGORY_UNKNOWN;

	if (!category)
		category = m->sites.all[rec->site].role;
	if (category)
		return category;
	return dev->life.infers ? category_without_objects(m, dev, rec, dead)
				: category_by_life(m, dev, rec, dead);
}

uint8_t category__of_block(const struct model *m, const struct dev *dev, uint64_t addr,
			   const struct rec *rec, bool dead)
{
	uint8_t category = category__of_record(m, dev, rec, dead);
	const struct extent *extent;

	if (category != CATEGORY_UNKNOWN || !dev->extents.pools)
		return category;
	extent = extents__over(&dev->extents, EXTENT_MEMORY, addr);
	return extent && (extent->pool[0] || extent->pool[1]) ? CATEGORY_PRIVATE_POOL : category;
}
