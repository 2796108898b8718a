/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ADVICE_INTERNAL_H
#define MT_ADVICE_INTERNAL_H
/*
 * What the files of advice share. A window is what a device's allocator did from the end of one
 * step to the end of the next. Those with the largest peaks are kept, one of those that are alike.
 * A remedy is a list of changes to a window: so many bytes less from here on, so many more from
 * there; going through the window with them gives the peak that there would be.
 */
#include "advice/advice.h"
#include "lib/map64.h"
#include "record/dict.h"

#define WINDOWS_KEPT 4
#define WINDOW_MOVES                                                                               \
	(UINT32_C(1) << 21) /* allocations and frees; a longer one is not gone through */
#define NEVER UINT32_MAX

struct ablock {
	uint64_t addr, size;
	uint64_t window; /* number of the one that it was born in; 0: it was there before the first
			    event */
	uint64_t tensor_size; /* bytes, as the program's objects have it; 0: they say nothing of it */
	uint32_t place;	      /* in that window */
	uint32_t born,
		gone; /* place in this window; born 0: before; gone NEVER: it is there at the end */
	uint32_t stack, node, module, thread; /* module: of the stack, or of the node */
	uint32_t name, owner; /* of the tensor: string, and the module that it belongs to */
	uint32_t epoch;	      /* of forward, in which it came or after which */
	uint8_t phase, walk;
	uint8_t after; /* forward, backward or optimizer, which came last before it; PHASE_NR: none */
	uint8_t category, item; /* enum category; bytes of an element, 0: not known */
};

/* Of one size, as far as can be told: a large block may have what was not worth splitting off
 * beyond what was asked for. */
#define UNSPLIT (UINT64_C(1) << 20)
static inline bool block__as_large(uint64_t a, uint64_t b)
{
	return a == b || (a > UNSPLIT && b > UNSPLIT && (a > b ? a - b : b - a) <= UNSPLIT);
}

struct window {
	uint64_t number; /* from 1 */
	uint64_t base;	 /* allocated when it begins */
	uint64_t peak;
	uint64_t signature;
	uint32_t *moves; /* by place, from 1: 2 * the block's number, + 1 where it goes */
	struct ablock *blocks;
	uint32_t n, nblocks;
	size_t capmoves, capblocks;
	uint32_t end; /* place behind the last one, where a step ended; NEVER: none did */
	uint32_t oom; /* place of the last move before the first out of memory in it; 0: there was
			 none */
	bool known;   /* base and peak are */
	bool part;    /* of a step that is too long */
	bool stepped; /* a step ended where it begins */
};

struct track { /* of a device */
	struct device device;
	struct map64 *at; /* address -> 2 * number, + 1 where it was born in the window under way;
			     else among the old */
	struct ablock *old;
	uint32_t nold, free1; /* free1: 1 + the first free one; the next is in its place */
	size_t capold;
	struct window now, kept[WINDOWS_KEPT];
	uint32_t nkept;
	uint64_t number;	/* of the window under way */
	uint64_t total;		/* allocated */
	uint64_t others;	/* the largest peak of a window that is not kept */
	uint64_t unlike;	/* windows that are not kept, and unlike those that are */
	struct ablock *lasting; /* what was live when the last step ended, and what of the rest the
				   program's objects named */
	uint32_t nlasting;
	struct map64 *lasting_at; /* window and place -> number */
	uint8_t after;
	uint32_t epoch;
	bool any, too_long;
};

struct advisor {
	const struct analysis *a;
	struct track **tracks;
	uint32_t ntracks;
};

/* --- window.c. Each returns 0 or -ENOMEM. */
int track__new(struct device d, struct track **ret);
void track__free(struct track *t);
int track__event(struct track *t, const struct model *m, const struct event *e);
int track__step(struct track *t); /* a step ended, or all did */
/*
 * All events came. What was there when the last step ended is to be had from here on: a program
 * that ends gives back what it had, and that is no part of any step.
 */
int track__end(struct track *t);
/* Of that: i from 0, in no order. NULL: no more. */
const struct ablock *track__lasting(const struct track *t, uint32_t *i);
/* Is this block of a window part of it? */
bool track__lasts(const struct track *t, const struct ablock *b);

struct change {
	uint32_t at; /* before the move at this place; 0: from the beginning */
	bool once;   /* for a moment */
	int64_t bytes;
};

struct changes {
	struct change *all;
	size_t n, cap;
	int err; /* -ENOMEM: some are missing */
};
void changes__add(struct changes *c, uint32_t at, int64_t bytes, bool once);
/* So many bytes fewer. Of any number, as recordings may have any. */
static inline int64_t changes__less(uint64_t bytes)
{
	return (int64_t)(0 - bytes);
}
/* A block would not be there from one place on; at the other it would be there again, or it goes
 * there in any case. */
void changes__absent(struct changes *c, const struct ablock *b, uint32_t from, uint32_t to);
/* The peak of a window with them; sorts them. */
uint64_t window__peak(const struct window *w, struct changes *c);

/* --- modules.c: which module is an instance of what is repeated */
struct instances {
	uint32_t *of; /* by level and module: 1 + its instance */
	uint32_t nmodules, levels;
	struct instance {
		uint32_t module; /* dict number; 0: the recording does not have it itself */
		uint32_t group;
	} * all;
	uint32_t n;
	struct instance_group {
		char *pattern;	 /* "blocks.*" */
		const char *cls; /* "" where it is not known */
		uint32_t n, level;
	} * groups;
	uint32_t ngroups;
};
int instances__find(const struct dict *d,
		    struct instances *ret); /* 0 or -ENOMEM; ret is to be freed in any case */
void instances__free(struct instances *s);

/* --- what each kind of advice is made of: into list. 0 or -ENOMEM. */
struct advising {
	const struct advisor *v;
	struct track *t;
	const struct model *m;
	const struct dict *d;
	const struct facts *f;
	struct advice_list *list;
	size_t cap;
	uint64_t peak; /* the largest of all windows */
};
int advice_checkpoint(struct advising *a);
int advice_lasting(struct advising *a); /* optimizer's state, buffers, buckets */
int advice_gradients(struct advising *a);
int advice_step(struct advising *a); /* what lives within a step: optimizer's temporaries, logits,
					outputs held */
int advice_lasting__cached(struct advising *a, const struct model_device *d);

/*
 * A remedy, as changes to each kept window, by its place among those: what the peak would be. Where
 * a window that is not kept had a larger one, *sure is false.
 */
struct remedy {
	struct changes c[WINDOWS_KEPT];
};
int remedy__peak(const struct advising *a, struct remedy *r, uint64_t *after, bool *sure);
void remedy__free(struct remedy *r);
/*
 * The same, and where it saves enough into the list. *of: kind, figure and the texts, which it
 * takes; an exact figure becomes an upper bound where it is not sure. 0 or -ENOMEM.
 */
int remedy__advise(struct advising *a, struct remedy *r, struct advice *of);
int advising__add(struct advising *a,
		  const struct advice *of); /* the texts are the list's then, also on -ENOMEM */

/* Is one of the frames of a file whose path ends so, in a function whose name, without its class,
 * begins so (NULL: any)? */
bool advice_lasting__stack_is_in(const struct dict *d, uint32_t stack, const char *file,
				 const char *func);

/* Texts: NULL on ENOMEM. Names of the target's in them are cleaned. */
char *advice__say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *advice__line(const struct advising *a,
		   uint32_t stack); /* "train.py:41 (step)"; "" where there is none */
const char *advice__bytes(char buf[24], uint64_t bytes);

#endif
