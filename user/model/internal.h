/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_INTERNAL_H
#define MT_MODEL_INTERNAL_H
/*
 * What the files of the model share. One pass over the events, O(1) each (O(depth) in the modules):
 *
 *   block  an address that is live; the device's block map gives its record: site, birth, what was
 * asked for and what it is called, where that is known site   distinct (device, stack, node,
 * thread, walk, size): how many blocks are live, came in all stamp  a stretch of allocations in one
 * phase on a device: when a block was born, in the device's own terms. What a block was for comes
 * out of the stamp of its birth and the counters at its death, or now (category.c). label  distinct
 * (category, name, module) that the program's own objects gave a block mark   the moment asked for:
 * the number of the last event before it. Blocks born by then that are still live were live at the
 * mark; those that have gone since are on the device's list of them, each with what it turned out
 * to be. So a mark at each new peak costs nothing, and what a block is can be decided after it.
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

/* Hash index of numbers: the caller keeps the entries and compares them. No removal. */
struct hash_index {
	struct hidx_slot {
		uint32_t hash, id1; /* id + 1; 0: empty */
	} * slots;
	uint32_t mask, n;
};
/* Iterates over the ids under hash; *pos starts as hash. UINT32_MAX: no more. */
uint32_t hash_index__next(const struct hash_index *h, uint32_t hash, uint32_t *pos);
int hash_index__add(struct hash_index *h, uint32_t hash, uint32_t id);

/* --- words.c: what a stack means, cached by number */
struct stack_words {
	bool known;
	uint8_t phase[2]; /* enum phase; [1]: on an autograd thread */
	bool has_line;
	bool engine;	    /* the innermost frame is where the autograd engine is started */
	bool inside_node;   /* a module was called after the engine was started, or on its thread */
	uint32_t module;    /* innermost, 0: none */
	uint32_t outermost; /* outermost module, 0: none */
	uint32_t user_loc, inner_loc; /* dict locations, if has_line */
};

struct attribution {
	const struct dict *dict;
	const struct facts *facts;
	uint8_t *files; /* flags by string number */
	uint32_t nfiles;
	struct stack_words *stacks;
	uint32_t nstacks;
	uint8_t *threads; /* 0: not looked at yet, 1: no, 2: an autograd thread; by thread number */
	uint32_t nthreads;
	int old_torch; /* before 2.4 autograd threads had no name: 1, 0, -1: not looked at yet */
};
struct stack_words attribution__stack(struct attribution *w, uint32_t stack);
enum phase attribution__phase(struct attribution *w, uint32_t stack, uint32_t thread, uint8_t walk);
/*
 * An allocation, or what is like one, that was made while an autograd node ran: where no Python of
 * its own ran in it, the stack of the forward call that made the node takes the place of e's. Then
 * attribution__charged() of the two is true.
 */
void attribution__charge(struct attribution *w, struct event *e);
bool attribution__charged(const struct attribution *w, uint32_t stack, uint32_t node);
/* The module of an allocation, 0: none. */
uint32_t attribution__module(struct attribution *w, uint32_t stack, uint32_t node, uint8_t walk);
/* What runs while a node does is backward, whatever the stack, which may be that of forward by now.
 */
static inline enum phase attribution__node_phase(struct attribution *w, uint32_t stack,
						 uint32_t node, uint32_t thread, uint8_t walk)
{
	return node ? PHASE_BACKWARD : attribution__phase(w, stack, thread, walk);
}
bool attribution__stack_has(const struct attribution *w, uint32_t stack, uint32_t module);
void attribution__free(struct attribution *w);
/* Makes *array hold at least need zeroed entries of esize. */
int hash_index__reserve_array(void *array, uint32_t *n, size_t esize, uint64_t need);

/* --- blocks.c: the live blocks of a device, and those there were at the mark */
struct request_info {
	uint64_t requested, cuda_stream;
};

struct label {
	uint32_t name, module;
	uint8_t category;
};

struct rec {		 /* of a live block */
	uint64_t born;	 /* number of the event that brought it, 0: there before the first one */
	uint64_t time;	 /* of that event */
	uint32_t site;	 /* of a free record: the next one */
	uint32_t ask1;	 /* 1 + number of what was asked for in model.asks, 0: not known */
	uint32_t label1; /* 1 + number in model.labels, 0: nothing names it */
	uint32_t stamp;
};

struct block { /* for those who ask: what it is, as far as it is known by then */
	uint64_t addr;
	union {
		uint64_t size; /* of a pending one */
		struct {
			uint32_t site, ask1;
		};
	};
	uint32_t label1;
	uint8_t category;
};

struct blocks {
	struct map64 *at; /* address -> number of its record */
	struct rec *recs;
	uint32_t n, cap, free1; /* free1: 1 + the first free record */
	struct gone {		/* were live at a moment (enum row_when), and are freed */
		struct block *all;
		uint32_t n, cap;
	} gone[ROWS_MOMENTS];
};

struct dev;
struct model;
int blocks__init(struct blocks *b);
void blocks__free(struct blocks *b);
/* NULL: no live block is there. Good until the next one is put. */
struct rec *blocks__at(const struct blocks *b, uint64_t addr);
/* *replaced: there was one at addr, which is gone by it; *old is what it was. 0 or -ENOMEM. */
int blocks__put(const struct model *m, struct dev *dev, uint64_t addr, const struct rec *rec,
		bool *replaced, struct rec *old);
/* Takes the block at addr away; *ret is what it was. 0, -ENOENT or -ENOMEM. */
int blocks__take(const struct model *m, struct dev *dev, uint64_t addr, struct rec *ret);
/* All blocks by address, for free(): now or at a moment. 0 or -ENOMEM. */
int blocks__list(const struct model *m, const struct dev *dev, enum row_when when,
		 struct block **ret, size_t *n);
/* The same in no order. */
int blocks__all(const struct model *m, const struct dev *dev, enum row_when when,
		struct block **ret, size_t *n);
/* Bytes of the moment's total in no block of ours. */
uint64_t blocks__outside(const struct dev *dev, enum row_when when);
int blocks__ask(struct model *m, struct request_info ask, uint32_t *ret1);
int blocks__label(struct model *m, struct label label, uint32_t *ret1);
/* What was asked for, and labels, have other numbers: their indexes anew. 0 or -ENOMEM. */
int blocks__index_words(struct model *m);

/* --- heap.c */
struct site {
	uint64_t size;
	uint64_t live, total; /* blocks */
	uint32_t stack, thread;
	uint32_t node; /* autograd's, that ran; 0: none */
	uint32_t module;
	uint16_t dev;
	uint8_t walk;
	uint8_t phase;
	bool again; /* brought a block outside of forward, backward and optimizer, after one of them
		     */
	bool unused; /* free; the next one is in stack */
	bool varied; /* of blocks that are gone, of sizes that are not kept: size is their bytes,
			total their number */
};
/* Bytes of so many blocks of it. */
static inline uint64_t site__bytes(const struct site *s, uint64_t count)
{
	return s->varied ? s->size : s->size * count;
}
#define SITES_KEPT (UINT32_C(1) << 18) /* unless more are in use; see gc.c */
#define THREADS_KEPT 1024

/* --- category.c: what a block is for, from when it came and went */
#define LIFE_NONE                                                                                  \
	PHASE_NR /* no phase: nobody saw it come; no forward, backward or optimizer came before */
struct stamp {
	uint32_t refs;
	uint8_t phase, after; /* after: the last of forward, backward, optimizer before it,
				 LIFE_NONE: none was seen */
	uint32_t forwards, backwards,
		optimizers;    /* stretches of them that had begun, this one included */
	uint32_t steps, calls; /* that had ended; steps of a free stamp: 1 + the next one */
};

struct life {
	struct stamp *stamps;
	uint32_t n, cap, free1;
	uint32_t now1; /* 1 + the stamp of the stretch under way, 0: none */
	uint32_t told1[PHASE_NR +
		       1]; /* stamps of blocks that were there before the first event, by phase */
	uint8_t after;	   /* forward, backward or optimizer, whichever came last */
	uint32_t forwards, backwards, optimizers;
};
/* The stamp of a block that comes in this phase now; one more block has it. 0 or -ENOMEM. */
int category__born(const struct model *m, struct dev *dev, enum phase phase, uint32_t *ret);
/* Of one that was there before the first event; phase may be LIFE_NONE. */
int category__known(const struct model *m, struct dev *dev, int phase, uint32_t *ret);
void category__drop(struct dev *dev, uint32_t stamp);
/* A step is over: what comes now is no part of the stretch under way, whatever its phase. */
void category__step(struct model *m);
/* As far as it is known now. dead: it is just going. What is kept of it is for category__settled().
 */
#define LIFE_MAYBE_INPUT CATEGORY_NR
uint8_t category__category(const struct model *m, const struct dev *dev, const struct rec *rec,
			   bool dead);
/* A category, when somebody asks. */
static inline uint8_t category__settled(const struct site *s, uint8_t category)
{
	return category != LIFE_MAYBE_INPUT ? category
	       : s->again		    ? CATEGORY_INPUT
					    : CATEGORY_UNKNOWN;
}

/* --- heap.c */
#define WALK_CENSUS                                                                                \
	MT_WALK_NR /* of a site: its blocks were there when we came, and nobody knows where from */
#define SITE_RECENT 4096 /* sets */
#define SITE_WAYS 4

enum step_kind { STEP_OPT, STEP_CALL, STEP_KINDS };

struct step_level {
	uint64_t peak, end_allocated; /* less dev.late at that time */
};

struct used { /* the driver's figure, and what was known of at that moment */
	bool known;
	uint64_t time, bytes, below, others;
};

struct dev {
	struct model_device pub;
	struct blocks blocks;
	struct life life;
	uint64_t outside; /* bytes of the carried total that are not blocks of ours; as int64_t, < 0
			     after losses */
	bool any;	  /* an event came */
	bool unsure;	  /* records were lost since the last event with totals */
	bool mark_unsure; /* at the mark, or before the first event with totals after it */
	bool mark_open;	  /* no event with totals has come since the mark */
	uint64_t peak_step[STEP_KINDS];
	uint32_t peak_site1; /* 1 + that of the allocation that made the peak; 0: none did */
	struct step_level
		*step[STEP_KINDS]; /* rings beside steps.ring; NULL for devices over STEP_DEVICES */
	uint64_t step_peak[STEP_KINDS]; /* of the step under way */
	int phase;			/* of the stretch under way, -1: none */
	uint64_t phase_total, phase_begin, phase_last;
	struct model_phase phases[PHASE_NR];
	/* below the blocks */
	struct extents extents;
	uint64_t mark_outside; /* of outside, not below 0 */
	uint64_t mark_seq;     /* the last event before the mark */
	struct noted {	       /* ROWS_AT_BASE, ROWS_AT_STEP */
		uint64_t seq, allocated,
			outside; /* as mark_seq, pub.mark_allocated, mark_outside */
	} noted[2];
	uint64_t census; /* bytes in live blocks that were there when we came, part of pub.live */
	bool asked;	 /* what was asked for is known of some block */
	uint64_t late; /* without totals: bytes that were there all along and were told of after the
			  first event */
	bool census_done;      /* the reading at attach has all been told */
	struct map64 *freed;   /* until then: addresses of blocks that were there before and went;
				  NULL: none */
	struct map64 *pending; /* address -> size: freed before we came, waiting for a stream; NULL:
				  none */
	uint64_t told; /* bytes of outside that turned out to be blocks of ours that were there all
			  along */
	uint64_t peak_seq; /* the event that the peak came with; of one that was there at the first
			      event, that before it */
	uint64_t first_allocated, first_reserved, first_outside; /* just before the first event */
	double frag_sum; /* of (reserved - allocated) / reserved at events with totals */
	uint64_t frag_n;
	uint32_t number;
	struct model *of;
	bool telling;	/* EVENT_SEGMENTs came, their EVENT_STATE not yet */
	uint32_t round; /* of telling */
	uint64_t round_seq;
	struct used used, mark_used;
	struct used left;		  /* of EVENT_LEFT */
	uint64_t mark_below, mark_others; /* as in struct used, at the mark */
	uint64_t mark_loose[SUM_NR];	  /* of model.loose at the mark */
	struct model_oom *ooms;
	uint32_t nooms;
};

int heap__device(struct model *m, struct device d, struct dev **ret);
struct dev *model__known_device(const struct model *m,
				struct device d); /* NULL: no event of it came */
/* *site: that of the block, in model.sites. */
int heap__alloc(struct model *m, struct dev *dev, const struct event *e, uint32_t *site);
int heap__free_block(struct model *m, struct dev *dev, const struct event *e);
void heap__mark(struct model *m, struct dev *dev, uint64_t time);
/* Records were lost, at some moment since what was told of before this. */
void heap__lost(struct dev *dev);
/* What that leaves of its figures: for those who ask. */
void heap__figures(const struct model *m, const struct dev *dev, struct model_device *ret);
/* The first event of a device, or the first with totals. */
void heap__begin(struct model *m, struct dev *dev, const struct event *e);
static inline bool heap__is_new(const struct dev *dev, const struct event *e)
{
	return !dev->any || (e->totals && !dev->pub.has_totals);
}
/* The totals that e carries become the device's; drift, peaks. phase: of an allocation, else -1. */
void heap__settle(struct model *m, struct dev *dev, const struct event *e, int phase);
/* What was reserved has changed between two events that say it. */
void heap__set_reserved(struct model *m, struct dev *dev, uint64_t reserved, uint64_t time);
/* As the index of sites has it; of its size nothing where that varied. */
uint32_t heap__site_hash(const struct model *m, const struct site *s);
/* The site of e's block. 0 or -ENOMEM. */
int heap__site(struct model *m, const struct dev *dev, const struct event *e, uint8_t walk,
	       uint32_t *ret);
/* A block of rec's site comes to e's address; the site's other numbers are the caller's, who gives
 * the stamp away. 0 or -ENOMEM. */
int heap__add(struct model *m, struct dev *dev, const struct event *e, struct rec *rec,
	      bool *replaced);
uint64_t heap__before_attach(const struct dev *dev);

static inline struct noted *dev__noted(struct dev *dev, enum row_when when)
{
	return &dev->noted[when - ROWS_AT_BASE];
}

/* --- known_at_attach.c: 0 or -ENOMEM */
int known_at_attach__add_block(struct model *m, struct dev *dev, const struct event *e);
int known_at_attach__asked(struct model *m, struct dev *dev, const struct event *e);
/* EVENT_TENSOR, EVENT_CENSUS */
int known_at_attach__tensor(struct model *m, struct dev *dev, const struct event *e);
void known_at_attach__census(struct dev *dev, const struct event *e);
/* A block that nobody knew of went. */
int known_at_attach__note_freed(struct dev *dev, uint64_t addr);

/* --- cuda_memory.c: what is taken and given back below the blocks, and what the allocator's tables
 * say */
/* TAKE, GIVE, SEGMENT, STATE, USED; anything else is passed over. 0 or -ENOMEM. */
int cuda_memory__event(struct model *m, const struct event *e);
/* A block of dev lies at addr: memory taken on a device not known that holds it is dev's. */
/* What PyTorch's allocator has taken, as far as that is known. */
uint64_t cuda_memory__reserved(const struct dev *dev);
/* What the driver has left on the device now, by its last figure and what was taken since. False:
 * it said none. */
bool cuda_memory__left(const struct dev *dev, uint64_t *ret);
int cuda_memory__found(struct model *m, struct dev *dev, uint64_t addr);

/* --- oom.c */
int oom__event(struct model *m, struct dev *dev, const struct event *e);

/* --- segments.c */
bool segments__is_expandable(const struct extent *e);
enum segment_size segments__kind(const struct extent *e);

/* --- watch.c: who wants to know of every block */
struct observers {
	int (*went)(void *ctx, const struct model_block *b); /* NULL: nobody */
	int (*segment)(void *ctx, const struct model_extent *e);
	void *ctx;
	int err;
	struct watch_kin {
		uint32_t site, label1;
		uint8_t category;
	} * kin;
	uint32_t nkin, capkin;
	struct hash_index index;
};
/* A device came. */
void observers__device(struct model *m, struct dev *dev);
/* dead: it is just going; else it is there at the end. 0 or what the watcher said. */
int observers__went(struct model *m, const struct dev *dev, uint64_t addr, const struct rec *rec,
		    bool dead);
int observers__finish(struct model *m);

/* --- gc.c: makes room among sites, what was asked for and labels; among threads. 0 or -ENOMEM */
int gc__all(struct model *m);
int gc__threads(struct model *m);

/* --- rows.c */
/* What --by line says of memory of this stack: file, func, line, module, phase, source. */
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
/* The call that the thread is in is over. 0 or -ENOMEM. */
int steps__close_call(struct model *m, struct thread_state *t);

/* --- layers.c */
#define LAYER_DEPTH                                                                                \
	32 /* parts of a dotted name that count as layers of their own, from the root; and the     \
	      whole name */
#define LAYER_CHAIN (LAYER_DEPTH + 2)

/* What forward, backward and the rest have of a layer. */
enum layer_part { PART_OTHER, PART_FORWARD, PART_BACKWARD, PART_NR };

struct layer {
	char *name;
	uint32_t root, cls; /* strings */
	uint64_t live, peak,
		duration; /* of all parts; what is a sum or a maximum of theirs is not kept */
	struct layer_sums {
		uint64_t live, peak, peak_reserved;
		uint64_t allocs, frees;
		double frag_sum;
		uint64_t frag_n;
		uint64_t duration;	/* as allocations show it */
		uint64_t calls, inside; /* of it: entries; ns in it or in a module below it */
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
	struct map64 *open; /* thread and layer -> since when, while it is in it; NULL: none yet */
	bool entered;	    /* the recording says when modules are entered */
};

/* A call of a module under way. */
struct entered {
	uint32_t module;
	uint8_t part; /* enum layer_part */
	struct chain chain;
	uint64_t begun; /* bits: of the chain's layers, those whose time it began */
};
_Static_assert(LAYER_CHAIN <= 64, "a bit for each layer of a chain");

struct thread_state {
	uint64_t seen; /* number of its last event that was looked at */
	bool in_call;
	uint32_t call_module;
	uint64_t call_last; /* the last event seen inside the call */
	uint64_t last;	    /* the last allocation */
	struct chain open;  /* layers that the last allocation was in */
	uint64_t begin[LAYER_CHAIN];
	enum layer_part part; /* and of which part of them it was */
	uint64_t begin_part[LAYER_CHAIN];
	struct entered *entered; /* outermost first */
	uint32_t nentered, capentered;
};
/* The layers an allocation within module lies in. 0 or -ENOMEM. */
int layers__chain(struct model *m, uint32_t module, struct chain *ret);
int layers__alloc(struct model *m, struct thread_state *t, const struct dev *dev,
		  const struct event *e, const struct site *s);
void layers__free_block(struct model *m, const struct site *s, bool gone);
/* A block that was there when we came. 0 or -ENOMEM. */
int layers__add_known_block(struct model *m, const struct site *s);
void layers__close(struct model *m, struct thread_state *t);
/* module_spans.c: EVENT_ENTER, EVENT_LEAVE; the end of the recording. 0 or -ENOMEM. */
int layers__enter(struct model *m, struct thread_state *t, const struct event *e);
void layers__leave(struct model *m, struct thread_state *t, const struct event *e);
void layers__leave_all(struct model *m, struct thread_state *t, uint32_t thread, uint64_t time);
void layers__free(struct layers *l);

struct model {
	struct model_opts opts;
	const struct dict *dict;
	struct attribution *words; /* behind a pointer: filled by look-ups on a const model */
	struct hash_seed seed;
	struct dev **devs; /* by number */
	uint32_t ndevs;
	uint32_t *order;	/* numbers as model__devices() has them */
	uint32_t *by_type[256]; /* number + 1 by index */
	struct dev *last_dev;
	struct site *sites;
	uint32_t nsites, capsites;
	struct hash_index site_index;
	/* By what is quickly worked out of the key, the youngest first: a step is like the one
	 * before. */
	struct recent_site {
		uint32_t tag, id1; /* id1: 1 + number */
	} recent_sites[SITE_RECENT][SITE_WAYS];
	struct layers layers;
	struct steps steps;
	struct growth_watch *growth; /* NULL: nobody asked for what grows */
	uint32_t free_site1; /* 1 + the first free one, which has the next in stack; 0: none */
	uint32_t nvaried, max_sites, sweep_at, sweeps;
	struct thread_state **threads;
	uint32_t nthreads;
	uint32_t nstates, threads_at; /* of them that are there; so many are swept */
	uint64_t threads_swept;	      /* number of the event it was last done at */
	struct {
		bool set;
		uint64_t time;
	} noted[2];	  /* ROWS_AT_BASE, ROWS_AT_STEP */
	bool time_passed; /* AT_TIME: at_time lies behind */
	bool finished;
	uint64_t walks[MT_WALK_NR];
	uint64_t events, lost;
	bool losing;	      /* what comes may be from before or after a loss */
	uint64_t seq;	      /* of the event at hand, from 1 */
	struct extents loose; /* host memory, and device memory of which the device is not known */
	struct request_info *asks;
	uint32_t nasks, capasks;
	struct hash_index ask_index;
	struct label *labels;
	uint32_t nlabels, caplabels;
	struct hash_index label_index;
	struct model_all all;
	uint64_t oom_work; /* blocks looked at for the gaps at out-of-memory events */
	struct observers watch;
	uint32_t max_stack, max_thread, max_module, max_node; /* of the dict, as last asked */
};

/* The i-th layer of a chain. Until the next is made. */
static inline struct layer *layer_at(struct model *m, const struct chain *c, uint32_t i)
{
	return &m->layers.all[m->layers.pool[c->off + i]];
}

/* --- hide.c: what a row is charged to, where the caller has hidden files */
struct hide {
	struct model *m;
	const struct row_opts *opts;
	uint8_t *files; /* by string id */
	uint32_t nfiles;
	uint32_t *locs; /* by stack id: 1 + location, 0: not looked at yet */
	uint32_t nlocs;
};
/* The dict location that a stack is charged to; 0: it has none, or all are hidden. */
uint32_t hide__loc(struct hide *s, uint32_t stack);
void hide__free(struct hide *s);

#endif
