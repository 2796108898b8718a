/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Declarations shared by the files of advice. A window has a device's moves (allocations and frees)
 * from the end of one step to the end of the next. A place is the number of a move, from 1. From
 * similar windows only the one with the largest peak is kept, and only a few of these. A remedy is
 * a list of changes to a window: bytes added or removed at a place. Replaying the window with its
 * changes gives the new peak.
 */
#include "base/map64.h"
#include "record/dict.h"
#include "report/advice.h"

#define WINDOWS_KEPT 4
/* Most allocations and frees of a window by default; a longer one is not replayed. */
#define WINDOW_MOVES (UINT32_C(1) << 21)
#define NEVER UINT32_MAX

struct ablock {
	uint64_t addr, size;
	uint64_t window; /* window that allocated the block; 0: before the first event */
	/* Bytes of the block's tensor according to the program's objects; 0: unknown. */
	uint64_t tensor_size;
	uint32_t place; /* place of the block's allocation in its window */
	/* Places in the current window. born 0: allocated before; gone NEVER: live at the end. */
	uint32_t born, gone;
	/* Numbers in the dictionary. module: innermost module of the stack or of the node. name and
	 * owner: the tensor's name and the module that owns it, 0: unknown. */
	uint32_t stack, module, name, owner;
	uint32_t epoch; /* number of forward passes begun until the allocation */
	/* Number of the model's call whose forward allocated the block; 0: none. */
	uint64_t call;
	uint8_t phase;
	uint8_t after;		/* latest phase before the allocation; PHASE_NR: none */
	uint8_t category, item; /* category: enum category; item: bytes of an element, 0: unknown */
};

/* True if two blocks have the same size, as far as it is known. The allocator may leave a remainder
 * of up to 1 MiB in a large block. */
#define UNSPLIT (UINT64_C(1) << 20)
static inline bool block__same_size(uint64_t a, uint64_t b)
{
	return a == b || (a > UNSPLIT && b > UNSPLIT && (a > b ? a - b : b - a) <= UNSPLIT);
}

struct window {
	uint64_t number; /* number, from 1 */
	uint64_t base;	 /* allocated bytes when the window starts */
	uint64_t peak;
	uint64_t signature; /* sum of hashes of the allocations; 0: none */
	/* moves[place]: 2 * index in blocks, + 1 if the move frees the block. moves[0] is
	 * unused. */
	uint32_t *moves;
	struct ablock *blocks; /* blocks that the moves allocate or free */
	uint32_t n, nblocks;   /* number of moves and of blocks */
	size_t capmoves, capblocks;
	uint32_t end; /* place after the last move; NEVER: no step ended the window */
	uint32_t oom; /* place of the last move before the first out-of-memory error; 0: none */
	bool known;   /* true if base and peak are known */
	bool part;    /* true for a part of a step that is too long */
	bool stepped; /* true if the window starts at the end of a step */
};

static inline uint32_t window__block_no(const struct window *w, uint32_t place)
{
	return w->moves[place] >> 1;
}
static inline bool window__is_free(const struct window *w, uint32_t place)
{
	return w->moves[place] & 1;
}

/* A call of the model, and what its forward allocated on a device. */
struct model_call {
	uint64_t number;     /* from 1; 0: none */
	uint64_t allocated;  /* bytes in all */
	uint64_t live, most; /* bytes that are live now, and the most so far */
	uint64_t largest;    /* size of the largest block */
	uint32_t stack;	     /* stack of that block */
	bool thrown; /* most of them were freed, and no backward had run since the call began */
};
#define CALLS_KEPT 4

/* The allocations of one device. */
struct track {
	struct device device;
	/* Address of a live block -> 2 * index in now.blocks, + 1, if the current window allocated
	 * it; otherwise 2 * index in old. */
	struct map64 *at;
	struct ablock *old; /* live blocks from before the current window */
	uint32_t nold;
	/* Number from 1 of an unused entry of old, 0: none. The entry's `place` has the number of
	 * the next one. */
	uint32_t free_no;
	size_t capold;
	struct window now, kept[WINDOWS_KEPT]; /* now: the current window */
	uint32_t nkept;
	uint64_t number;     /* number of the current window */
	uint64_t total;	     /* allocated bytes */
	uint64_t other_peak; /* largest peak of a window that is not kept */
	/* In a copy by track__end(): blocks that were live at the end of the last step, and later
	 * ones that the program's objects name. */
	struct ablock *lasting;
	uint32_t nlasting;
	struct map64 *lasting_at; /* window and place -> index in lasting */
	uint8_t after;		  /* latest phase so far, as in struct ablock */
	uint32_t epoch;		  /* number of forward passes begun so far */
	/* The last calls, by number modulo CALLS_KEPT. */
	struct model_call calls[CALLS_KEPT];
	uint64_t call;		/* number of calls that began so far */
	uint64_t backward_call; /* value of `call` when backward allocated last */
	struct thrown_graphs thrown;
	bool too_long;	 /* a step too long to replay had the largest peak of those not kept */
	bool totals;	 /* the allocator reports totals */
	bool began_late; /* blocks are older than the first event: the first window may be part of a
			    step */
};

struct advisor {
	const struct model *model;
	const struct dict *dict;
	const struct facts *facts;
	struct track **tracks;
	uint32_t ntracks;
	uint32_t window_moves; /* most moves of a window */
	uint64_t calls;	       /* calls of the model that began so far */
};

/* ---- window.c: all functions return 0 or -ENOMEM ---- */
/* Makes *ret a copy of the track with its last window ended, and fills ret->lasting with the blocks
 * that were live when the last step ended. Frees at the end of the program belong to no step. The
 * copy shares the track's memory: use it before the next event, then call
 * track__release_end(). */
int track__end(const struct track *t, struct track *ret);
void track__release_end(struct track *t);
/* Returns the next lasting block and advances *i, which starts at 0. NULL: no more. The order is
 * undefined. */
const struct ablock *track__lasting(const struct track *t, uint32_t *i);
/* True if a block of a window is among the lasting blocks. */
bool track__lasts(const struct track *t, const struct ablock *b);

/* ---- thrown_graphs.c ---- */
/* Call them for each block that is allocated and freed. */
void thrown_graphs__took(struct track *t, struct ablock *b);
void thrown_graphs__freed(struct track *t, const struct ablock *b);

#define START_OF_STEP 0
struct change {
	uint32_t at; /* place of the move that the change precedes, or START_OF_STEP */
	bool once;   /* true: the bytes exist only at this place, not after it */
	int64_t bytes;
};

struct changes {
	struct change *all;
	size_t n, cap;
	int err; /* -ENOMEM: changes are missing */
};
void changes__add(struct changes *c, uint32_t at, int64_t bytes, bool once);
/* Returns -bytes, modulo 2^64: a recording may contain any size. */
static inline int64_t changes__less(uint64_t bytes)
{
	return (int64_t)(0 - bytes);
}
/* Adds changes that remove b at place `from` and restore it at place `to`. NEVER, or a free of b
 * before `to`: b stays absent to the end of the window. */
void changes__absent(struct changes *c, const struct ablock *b, uint32_t from, uint32_t to);

/* ---- modules.c: groups of repeated modules ---- */
struct instances {
	/* [level * nmodules + module]: number from 1 of the instance that contains the module; 0:
	 * none. */
	uint32_t *no_of;
	uint32_t nmodules, levels;
	struct instance {
		uint32_t module; /* number in the dictionary */
		uint32_t group;	 /* index in groups */
	} * all;
	uint32_t n;
	struct instance_group {
		char *pattern;	 /* name pattern, such as "blocks.*" */
		const char *cls; /* class; "": unknown */
		uint32_t n;	 /* number of instances */
		uint32_t level;	 /* number of numeric parts in their names, minus 1 */
	} * groups;
	uint32_t ngroups;
};
/* Returns 0 or -ENOMEM. Free ret in both cases. */
int instances__find(const struct dict *d, struct instances *ret);
void instances__free(struct instances *s);

/* ---- the kinds of advice; each adds to list and returns 0 or -ENOMEM ---- */
struct advising {
	const struct advisor *v;
	struct track *t; /* the device's allocations, by track__end(); NULL: none */
	const struct model *m;
	const struct dict *d;
	const struct facts *f;
	uint64_t duration; /* length of the recording, ns */
	struct advice_list *list;
	size_t cap;
	const struct window *highest; /* kept window with the largest peak */
	uint64_t peak;		      /* its peak */
};
/* device: index in the model. */
int advice_growth(struct advising *a, size_t device, const struct model_device *d);
int advice_checkpoint(struct advising *a);
int advice_lasting(struct advising *a); /* optimizer state, buffers, buckets */
int advice_gradients(struct advising *a);
/* Blocks that live within a step: the optimizer's temporaries, logits, held outputs. */
int advice_step(struct advising *a);
int advice_casts(struct advising *a); /* casts that autocast repeats */
int advice_host(struct advising *a);  /* host memory of the process */

/* A remedy: c[i] are its changes to track.kept[i]. */
struct remedy {
	struct changes c[WINDOWS_KEPT];
};
/* Replays the kept windows with the remedy. *after: the largest peak, bytes. *sure: false if a
 * window that is not kept had a larger one. Returns 0 or -ENOMEM. */
int remedy__peak(const struct advising *a, struct remedy *r, uint64_t *after, bool *sure);
void remedy__free(struct remedy *r);
/*
 * Adds the remedy to the list if it saves enough. *entry has kind, figure and texts; the function
 * takes over the texts. An exact figure that is not sure becomes an upper bound. Returns 0 or
 * -ENOMEM.
 */
int remedy__advise(struct advising *a, struct remedy *r, struct advice *entry);
/* Adds an entry to the list, which takes over the texts, also on -ENOMEM. */
int advising__add(struct advising *a, const struct advice *entry);

/* True if a frame's file path ends with `file` and its function's name, without the class, starts
 * with `func` (NULL: any). */
bool advice_lasting__stack_is_in(const struct dict *d, uint32_t stack, const char *file,
				 const char *func);

void advice__free_texts(const struct advice *a);
/* Texts, allocated; NULL if memory is short. The target's names in them are cleaned. */
char *advice__format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Return a place such as "train.py:41 (step)", for free(); "" if it is not known. NULL if memory is
 * short. */
char *advice__line(const struct advising *a, uint32_t stack);
char *advice__location(const struct advising *a, const struct row *r);
