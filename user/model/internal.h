/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_INTERNAL_H
#define MT_MODEL_INTERNAL_H
/*
 * Shared by the files of the model. One pass over the events, O(1) each; O(depth) for modules.
 *
 * block  a live address. The device's block map leads to its record: site, birth, requested size
 *        and label if known.
 * site   a distinct (device, stack, node, thread, walk, size), with its live and total blocks.
 * stamp  a stretch of allocations in one phase on a device: when a block was born. The category
 *        of a block follows from its stamp and the device's counters at its death, or now.
 * label  a distinct (category, name, module) that the program's own objects gave a block.
 * mark   the moment in opts.at, kept as the number of the last event before it. Blocks born by
 *        then were live at the mark. The device lists those that were freed since, each with its
 *        category. So a mark at each new peak costs nothing.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/types.h>

#include "memtrace.h"
#include "lib/hash.h"
#include "lib/map64.h"
#include "model/extents.h"
#include "model/model.h"
#include "record/dict.h"

/* Hash index of numbers. The caller keeps the entries and compares them. Entries stay. */
struct hash_index {
	struct hidx_slot {
		uint32_t hash, id1; /* id + 1; 0: empty */
	} * slots;
	uint32_t mask, n;
};
/* Iterates over the ids under hash; *pos starts as hash. UINT32_MAX: no more. */
uint32_t hash_index__next(const struct hash_index *h, uint32_t hash, uint32_t *pos);
int hash_index__add(struct hash_index *h, uint32_t hash, uint32_t id);

/* --- attribution.c: phase, module and line of each stack, cached by stack number */
struct stack_words {
	bool known;
	uint8_t phase[2]; /* enum phase; [1]: on an autograd thread */
	bool has_line;
	bool engine;		      /* the innermost frame starts the autograd engine */
	bool inside_node;	      /* a module call inside the autograd node */
	uint32_t module;	      /* innermost, 0: none */
	uint32_t outermost;	      /* root module, 0: none */
	uint32_t user_loc, inner_loc; /* dict locations, if has_line */
};

struct attribution {
	const struct dict *dict;
	const struct facts *facts;
	uint8_t *files; /* flags by dict string */
	uint32_t nfiles;
	struct stack_words *stacks;
	uint32_t nstacks;
	uint8_t *threads; /* by thread number; 0: not checked yet, 1: no, 2: autograd thread */
	uint32_t nthreads;
	int old_torch; /* PyTorch before 2.4 did not name autograd threads; -1: not checked yet */
};
struct stack_words attribution__stack(struct attribution *w, uint32_t stack);
enum phase attribution__phase(struct attribution *w, uint32_t stack, uint32_t thread, uint8_t walk);
/*
 * Charges an allocation made in an autograd node. If no Python code ran in the node, the stack of
 * the forward call that made the node replaces e's stack. attribution__charged() is then true for
 * the stack and node.
 */
void attribution__charge(struct attribution *w, struct event *e);
bool attribution__charged(const struct attribution *w, uint32_t stack, uint32_t node);
/* Module of an allocation, 0: none. */
uint32_t attribution__module(struct attribution *w, uint32_t stack, uint32_t node, uint8_t walk);
/* Phase of an allocation. In an autograd node it is backward, even if the stack is the forward
 * call's. */
static inline enum phase attribution__node_phase(struct attribution *w, uint32_t stack,
						 uint32_t node, uint32_t thread, uint8_t walk)
{
	return node ? PHASE_BACKWARD : attribution__phase(w, stack, thread, walk);
}
bool attribution__stack_has(const struct attribution *w, uint32_t stack, uint32_t module);
void attribution__free(struct attribution *w);
/* Makes *array hold at least need zeroed entries of esize. */
int hash_index__reserve_array(void *array, uint32_t *n, size_t esize, uint64_t need);

/* --- blocks.c: the live blocks of a device, now and at the mark */
struct request_info {
	uint64_t requested, cuda_stream;
};

struct label {
	uint32_t name, module;
	uint8_t category;
};

struct rec {		 /* record of a live block */
	uint64_t born;	 /* event that allocated it, 0: before the first one */
	uint64_t time;	 /* ns, of that event */
	uint32_t site;	 /* in a free record: the next free one */
	uint32_t ask1;	 /* 1 + index in model.asks, 0: not known */
	uint32_t label1; /* 1 + index in model.labels, 0: no label */
	uint32_t stamp;
};

struct block { /* result of a query: a block and its category as known now */
	uint64_t addr;
	union {
		uint64_t size; /* size of a pending block */
		struct {
			uint32_t site, ask1;
		};
	};
	uint32_t label1;
	uint8_t category;
};

struct blocks {
	struct map64 *at; /* address -> index of its record */
	struct rec *recs;
	uint32_t n, cap, free1; /* free1: 1 + the first free record */
	struct gone {		/* blocks live at a moment (enum row_when), freed since */
		struct block *all;
		uint32_t n, cap;
	} gone[ROWS_MOMENTS];
};

struct dev;
struct model;
int blocks__init(struct blocks *b);
void blocks__free(struct blocks *b);
/* NULL: no live block. Valid until the next blocks__put(). */
struct rec *blocks__at(const struct blocks *b, uint64_t addr);
/* Adds a block. replaced: addr held a live block, which is removed and copied to *old. 0 or
 * -ENOMEM. */
int blocks__put(const struct model *m, struct dev *dev, uint64_t addr, const struct rec *rec,
		bool *replaced, struct rec *old);
/* Removes the block at addr and copies it to *ret. 0, -ENOENT or -ENOMEM. */
int blocks__take(const struct model *m, struct dev *dev, uint64_t addr, struct rec *ret);
/* All blocks in order of addresses, now or at a moment. The caller frees *ret. 0 or -ENOMEM. */
int blocks__list(const struct model *m, const struct dev *dev, enum row_when when,
		 struct block **ret, size_t *n);
/* As blocks__list(), in any order. */
int blocks__all(const struct model *m, const struct dev *dev, enum row_when when,
		struct block **ret, size_t *n);
/* Bytes of the moment's total outside known blocks. */
uint64_t blocks__outside(const struct dev *dev, enum row_when when);
int blocks__ask(struct model *m, struct request_info ask, uint32_t *ret1);
int blocks__label(struct model *m, struct label label, uint32_t *ret1);
/* Rebuilds the indexes of asks and labels after they were renumbered. 0 or -ENOMEM. */
int blocks__index_words(struct model *m);

/* --- heap.c: sites */
struct site {
	uint64_t size;
	uint64_t live, total; /* number of blocks */
	uint32_t stack, thread;
	uint32_t node; /* autograd node that ran; 0: none */
	uint32_t module;
	uint16_t dev;
	uint8_t walk;
	uint8_t phase;
	/* Allocated outside forward, backward and optimizer, and after such a phase. */
	bool again;
	bool unused; /* free entry; stack is the next one */
	/* A sum over freed blocks whose sizes are not kept: size is their bytes, total their
	 * number. */
	bool varied;
};
/* Bytes of count blocks of the site. */
static inline uint64_t site__bytes(const struct site *s, uint64_t count)
{
	return s->varied ? s->size : s->size * count;
}
#define SITES_KEPT (UINT32_C(1) << 18) /* exceeded if more are in use; see gc.c */
#define THREADS_KEPT 1024

/* --- category.c: a block's category from its birth and death */
/* No phase: its allocation was not seen, or no forward, backward or optimizer came before it. */
#define LIFE_NONE PHASE_NR
struct stamp {
	uint32_t refs;
	/* after: last of forward, backward and optimizer before the stretch, or LIFE_NONE. */
	uint8_t phase, after;
	/* Stretches of each phase that had begun, with this one. */
	uint32_t forwards, backwards, optimizers;
	/* Steps and calls that had ended. In a free stamp, steps is 1 + the next free one. */
	uint32_t steps, calls;
};

struct life {
	struct stamp *stamps;
	uint32_t n, cap, free1;
	uint32_t now1; /* 1 + stamp of the current stretch, 0: none */
	/* Stamps by phase of blocks from before the first event. */
	uint32_t known1[PHASE_NR + 1];
	uint8_t after; /* last of forward, backward and optimizer */
	uint32_t forwards, backwards, optimizers;
};
/* Stamp of a block that is allocated now in this phase; takes a reference. 0 or -ENOMEM. */
int category__born(const struct model *m, struct dev *dev, enum phase phase, uint32_t *ret);
/* Stamp of a block from before the first event; phase may be LIFE_NONE. 0 or -ENOMEM. */
int category__known(const struct model *m, struct dev *dev, int phase, uint32_t *ret);
void category__drop(struct dev *dev, uint32_t stamp);
/* A step ended: the next allocation begins a new stretch, whatever its phase. */
void category__step(struct model *m);
/* Category as known now. dead: the block is freed now. Pass the result to category__settled()
 * before use. */
#define LIFE_MAYBE_INPUT CATEGORY_NR
uint8_t category__category(const struct model *m, const struct dev *dev, const struct rec *rec,
			   bool dead);
/* Decides LIFE_MAYBE_INPUT, which depends on later blocks of the site. */
static inline uint8_t category__settled(const struct site *s, uint8_t category)
{
	return category != LIFE_MAYBE_INPUT ? category
	       : s->again		    ? CATEGORY_INPUT
					    : CATEGORY_UNKNOWN;
}

/* --- heap.c: devices */
/* Walk of a site whose blocks are from before attach, origin not known. */
#define WALK_CENSUS MT_WALK_NR
#define SITE_RECENT 4096 /* sets */
#define SITE_WAYS 4

enum step_kind { STEP_OPT, STEP_CALL, STEP_KINDS };

struct step_level {
	uint64_t peak, end_allocated; /* less dev.late at that time */
};

struct used { /* a driver-reported figure, and the model's sums at that moment */
	bool known;
	uint64_t time, bytes, below, others;
};

struct dev {
	struct model_device pub;
	struct blocks blocks;
	struct life life;
	/* Bytes of the reported total outside known blocks; negative as int64_t after losses. */
	uint64_t outside;
	bool any;    /* an event came */
	bool unsure; /* records were lost since the last event with totals */
	/* Records were lost at the mark, or before the first event with totals after it. */
	bool mark_unsure;
	bool mark_open; /* no event with totals since the mark */
	uint64_t peak_step[STEP_KINDS];
	uint32_t peak_site1; /* 1 + site of the allocation that made the peak; 0: none */
	/* Rings parallel to steps.ring; NULL for devices beyond STEP_DEVICES. */
	struct step_level *step[STEP_KINDS];
	uint64_t step_peak[STEP_KINDS]; /* peak of the current step */
	int phase;			/* phase of the current stretch, -1: none */
	uint64_t phase_total, phase_begin, phase_last;
	struct model_phase phases[PHASE_NR];
	/* memory taken from CUDA */
	struct extents extents;
	uint64_t mark_outside; /* outside at the mark, at least 0 */
	uint64_t mark_seq;     /* last event before the mark */
	struct noted {	       /* ROWS_AT_BASE, ROWS_AT_STEP */
		/* As mark_seq, pub.mark_allocated and mark_outside. */
		uint64_t seq, allocated, outside;
	} noted[2];
	uint64_t census; /* bytes of live blocks from before attach; part of pub.live */
	bool asked;	 /* some block's requested size is known */
	/* Without totals: bytes from before attach that were found after the first event. */
	uint64_t late;
	bool census_done; /* all events of the reading at attach have come */
	/* Addresses of blocks from before attach that were freed, kept until census_done; NULL:
	 * none. */
	struct map64 *freed;
	/* address -> size: freed before attach, waiting for a stream; NULL: none. */
	struct map64 *pending;
	/* Bytes of outside that became known blocks from before attach. */
	uint64_t told;
	/* Event that reached the peak. If the peak was there at the first event: the event before
	 * it. */
	uint64_t peak_seq;
	uint64_t first_allocated, first_reserved, first_outside; /* just before the first event */
	double frag_sum; /* sum of (reserved - allocated) / reserved at events with totals */
	uint64_t frag_n;
	uint32_t number;
	struct model *of;
	bool listing;	/* EVENT_SEGMENTs came, and not yet their EVENT_STATE */
	uint32_t round; /* current round of EVENT_SEGMENTs */
	uint64_t round_seq;
	struct used used, mark_used;
	struct used left;		  /* from EVENT_LEFT */
	uint64_t mark_below, mark_others; /* struct used's below and others at the mark */
	uint64_t mark_loose[SUM_NR];	  /* model.loose at the mark */
	struct model_oom *ooms;
	uint32_t nooms;
};

int heap__device(struct model *m, struct device d, struct dev **ret);
/* NULL: the device had no event. */
struct dev *model__known_device(const struct model *m, struct device d);
/* site: set to the block's site, an index in model.sites. */
int heap__alloc(struct model *m, struct dev *dev, const struct event *e, uint32_t *site);
int heap__free_block(struct model *m, struct dev *dev, const struct event *e);
void heap__mark(struct model *m, struct dev *dev, uint64_t time);
/* Records were lost at some moment since the previous event. */
void heap__lost(struct dev *dev);
/* Sets how exact the device's figures are after losses, in a copy for callers. */
void heap__figures(const struct model *m, const struct dev *dev, struct model_device *ret);
/* Handles the device's first event, or its first event with totals. */
void heap__begin(struct model *m, struct dev *dev, const struct event *e);
static inline bool heap__is_new(const struct dev *dev, const struct event *e)
{
	return !dev->any || (e->totals && !dev->pub.has_totals);
}
/* Sets the device's totals from e; updates drift and peaks. phase: of an allocation, or -1. */
void heap__settle(struct model *m, struct dev *dev, const struct event *e, int phase);
/* Sets reserved bytes that changed between two events with totals. */
void heap__set_reserved(struct model *m, struct dev *dev, uint64_t reserved, uint64_t time);
/* Hash in the index of sites. It leaves out the size of a varied site. */
uint32_t heap__site_hash(const struct model *m, const struct site *s);
/* Site of e's block. 0 or -ENOMEM. */
int heap__site(struct model *m, const struct dev *dev, const struct event *e, uint8_t walk,
	       uint32_t *ret);
/* Adds a block of rec's site at e's address, and rec's reference to the stamp. The caller updates
 * the site's other counters. 0 or -ENOMEM. */
int heap__add(struct model *m, struct dev *dev, const struct event *e, struct rec *rec,
	      bool *replaced);
uint64_t heap__before_attach(const struct dev *dev);

static inline struct noted *dev__noted(struct dev *dev, enum row_when when)
{
	return &dev->noted[when - ROWS_AT_BASE];
}

/* --- known_at_attach.c: blocks from before attach. 0 or -ENOMEM */
int known_at_attach__add_block(struct model *m, struct dev *dev, const struct event *e);
int known_at_attach__asked(struct model *m, struct dev *dev, const struct event *e);
/* For EVENT_TENSOR and EVENT_CENSUS. */
int known_at_attach__tensor(struct model *m, struct dev *dev, const struct event *e);
void known_at_attach__census(struct dev *dev, const struct event *e);
/* Notes that a block the model did not know was freed. */
int known_at_attach__note_freed(struct dev *dev, uint64_t addr);

/* --- cuda_memory.c: memory taken from and returned to CUDA, and the allocator's tables */
/* Handles EVENT_CUDA_ALLOC, _CUDA_FREE, _SEGMENT, _STATE, _USED and _LEFT; ignores others. 0 or
 * -ENOMEM. */
int cuda_memory__event(struct model *m, const struct event *e);
/* A block of dev is at addr: memory of an unknown device that holds addr becomes dev's. */
/* Bytes that PyTorch's allocator reserves, as far as known. */
uint64_t cuda_memory__reserved(const struct dev *dev);
/* Bytes that the driver has available now: its last figure, less the bytes taken since.
 * False: no figure came. */
bool cuda_memory__left(const struct dev *dev, uint64_t *ret);
int cuda_memory__found(struct model *m, struct dev *dev, uint64_t addr);

/* --- oom.c */
int oom__event(struct model *m, struct dev *dev, const struct event *e);

/* --- segments.c */
bool segments__is_expandable(const struct extent *e);
enum segment_size segments__kind(const struct extent *e);

/* --- observers.c: the caller of model__watch() */
struct observers {
	int (*went)(void *ctx, const struct model_block *b); /* NULL: no observer */
	int (*segment)(void *ctx, const struct model_extent *e);
	void *ctx;
	int err;
	struct watch_class {
		uint32_t site, label1;
		uint8_t category;
	} * classes;
	uint32_t nclasses, capclasses;
	struct hash_index index;
};
/* A new device. */
void observers__device(struct model *m, struct dev *dev);
/* dead: the block is freed now; false at the end. 0 or the observer's error. */
int observers__went(struct model *m, const struct dev *dev, uint64_t addr, const struct rec *rec,
		    bool dead);
int observers__finish(struct model *m);

/* --- gc.c: removes sites, asks and labels that are not in use; and ended threads. 0 or -ENOMEM */
int gc__all(struct model *m);
int gc__threads(struct model *m);

/* --- rows.c */
/* Sets what --by line shows for this stack: file, func, line, module, phase, source. */
void rows__line(const struct model *m, bool innermost, uint32_t stack, uint32_t node,
		uint32_t thread, uint8_t walk, struct row *r);

/* --- steps.c */
#define STEPS_KEPT 4096
#define STEP_DEVICES 64

struct steps {
	struct step_span {
		uint64_t start, end;
	} * ring[STEP_KINDS];
	uint32_t cap[STEP_KINDS];
	uint64_t n[STEP_KINDS];
	uint64_t last_end[STEP_KINDS];
	bool called; /* an EVENT_CALL came */
};
struct thread_state;
int steps__end(struct model *m, enum step_kind kind, uint64_t time);
int steps__call(struct model *m, const struct event *e);
int steps__alloc(struct model *m, struct thread_state *t, uint64_t time, uint32_t stack,
		 uint8_t walk);
int steps__new_device(struct model *m, struct dev *dev);
int steps__finish(struct model *m);
/* Ends the thread's current call. 0 or -ENOMEM. */
int steps__close_call(struct model *m, struct thread_state *t);

/* --- layers.c */
/* Components of a dotted name that are layers of their own, from the root. The whole name is always
 * a layer. */
#define LAYER_DEPTH 32
#define LAYER_CHAIN (LAYER_DEPTH + 2)

/* Sums of a layer are kept for each part. */
enum layer_part { PART_OTHER, PART_FORWARD, PART_BACKWARD, PART_NR };

struct layer {
	char *name;
	uint32_t root, cls; /* dict strings */
	/* Values of all parts together that no sum or maximum over the parts gives. */
	uint64_t live, peak, duration;
	struct layer_sums {
		uint64_t live, peak, peak_reserved;
		uint64_t allocs, frees;
		double frag_sum;
		uint64_t frag_n;
		uint64_t duration; /* as allocations show it */
		/* From EVENT_ENTER: number of entries; ns in the layer or in a module below it. */
		uint64_t calls, inside;
	} part[PART_NR];
};

struct chain {
	bool known;
	uint32_t off, n; /* in layers.pool, root first */
};

struct layers {
	struct layer *all;
	uint32_t n, cap;
	struct hash_index index;
	struct chain *chains; /* by module number */
	uint32_t nchains;
	uint32_t *pool;
	uint32_t npool, cappool;
	/* Thread and layer -> entry time, while the thread is in the layer; NULL: none yet. */
	struct map64 *open;
	bool entered; /* the recording has EVENT_ENTER */
};

/* A module call on a thread's call stack. */
struct entered {
	uint32_t module;
	uint8_t part; /* enum layer_part */
	struct chain chain;
	uint64_t begun; /* bit i: the call began the time of the chain's layer i */
};
_Static_assert(LAYER_CHAIN <= 64, "a bit for each layer of a chain");

struct thread_state {
	uint64_t seen; /* number of the thread's last event */
	bool in_call;
	uint32_t call_module;
	uint64_t call_last; /* time of the last event inside the call */
	uint64_t last;	    /* time of the last allocation */
	struct chain open;  /* layers of the last allocation */
	uint64_t begin[LAYER_CHAIN];
	enum layer_part part; /* part of the last allocation */
	uint64_t begin_part[LAYER_CHAIN];
	struct entered *entered; /* outermost first */
	uint32_t nentered, capentered;
};
/* The layers that contain a module. 0 or -ENOMEM. */
int layers__chain(struct model *m, uint32_t module, struct chain *ret);
int layers__alloc(struct model *m, struct thread_state *t, const struct dev *dev,
		  const struct event *e, const struct site *s);
void layers__free_block(struct model *m, const struct site *s, bool gone);
/* Adds a block from before attach. 0 or -ENOMEM. */
int layers__add_known_block(struct model *m, const struct site *s);
void layers__close(struct model *m, struct thread_state *t);
/* module_spans.c: EVENT_ENTER, EVENT_LEAVE, and the end of the recording. 0 or -ENOMEM. */
int layers__enter(struct model *m, struct thread_state *t, const struct event *e);
void layers__leave(struct model *m, struct thread_state *t, const struct event *e);
void layers__leave_all(struct model *m, struct thread_state *t, uint32_t thread, uint64_t time);
void layers__free(struct layers *l);

struct model {
	struct model_opts opts;
	const struct dict *dict;
	struct attribution *words; /* a pointer, because look-ups on a const model fill its caches */
	struct hash_seed seed;
	struct dev **devs; /* by number */
	uint32_t ndevs;
	uint32_t *order;	/* numbers in the order of model__devices() */
	uint32_t *by_type[256]; /* number + 1 by index */
	struct dev *last_dev;
	struct site *sites;
	uint32_t nsites, capsites;
	struct hash_index site_index;
	/* Cache of recent sites by a fast hash, most recent first: steps repeat the same sites. */
	struct recent_site {
		uint32_t tag, id1; /* id1: 1 + site */
	} recent_sites[SITE_RECENT][SITE_WAYS];
	struct layers layers;
	struct steps steps;
	struct growth_watch *growth; /* NULL: growth__watch() was not called */
	uint32_t free_site1; /* 1 + the first free site, whose stack is the next one; 0: none */
	uint32_t nvaried, max_sites, sweep_at, sweeps;
	struct thread_state **threads;
	uint32_t nthreads;
	/* nstates: threads with a state. threads_at: number of them that starts a sweep. */
	uint32_t nstates, threads_at;
	uint64_t threads_swept; /* number of the event of the last sweep */
	struct {
		bool set;
		uint64_t time;
	} noted[2];	  /* ROWS_AT_BASE, ROWS_AT_STEP */
	bool time_passed; /* AT_TIME: the mark was set */
	bool finished;
	uint64_t walks[MT_WALK_NR];
	uint64_t events, lost;
	bool losing;	      /* a loss began, and its end is not known yet */
	uint64_t seq;	      /* number of the current event, from 1 */
	struct extents loose; /* host memory, and device memory on an unknown device */
	struct request_info *asks;
	uint32_t nasks, capasks;
	struct hash_index ask_index;
	struct label *labels;
	uint32_t nlabels, caplabels;
	struct hash_index label_index;
	struct model_all all;
	uint64_t oom_work; /* blocks walked so far for the gaps at out-of-memory events */
	struct observers watch;
	/* Sizes of the dict when last read. */
	uint32_t max_stack, max_thread, max_module, max_node;
};

/* The i-th layer of a chain. Valid until a layer is added. */
static inline struct layer *layer_at(struct model *m, const struct chain *c, uint32_t i)
{
	return &m->layers.all[m->layers.pool[c->off + i]];
}

/* --- hide.c: the line that a row is charged to when row_opts.hide is set */
struct hide {
	struct model *m;
	const struct row_opts *opts;
	uint8_t *files; /* flags by dict string */
	uint32_t nfiles;
	uint32_t *locs; /* 1 + location by stack, 0: not looked up yet */
	uint32_t nlocs;
};
/* Dict location that a stack is charged to; 0: no line, or all are hidden. */
uint32_t hide__loc(struct hide *s, uint32_t stack);
void hide__free(struct hide *s);

#endif
