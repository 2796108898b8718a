/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The model's state, shared by its files. Each event costs O(1), and O(depth) for nested modules.
 *
 * block  a live address. The device's block map leads to its record: site, birth, requested size
 *        and label if known.
 * site   a distinct (device, stack, node, thread, scope, walk, size), with its live and total
 *        blocks.
 * stamp  a stretch of allocations in one phase on a device, in which a block was allocated. The
 *        category of a block follows from its stamp and the device's counters when it is freed, or
 *        now.
 * label  a distinct (category, name, module) that the program's own objects gave a block.
 * NAME_no  an index + 1; 0: none.
 * mark   the moment in opts.at, kept as the number of the last event before it. Blocks born by
 *        then were live at the mark. The device lists those that were freed since, each with its
 *        category. So a mark at each new peak costs nothing.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "memtrace.h"
#include "model/heap/attribution.h"
#include "model/heap/device.h"
#include "model/heap/extents.h"
#include "model/heap/heap.h"
#include "model/heap/layers.h"
#include "model/heap/hash_index.h"
#include "model/heap/scopes.h"
#include "model/heap/steps.h"
#include "model/model.h"
#include "record/detail.h"
#include "record/dict.h"

/* Callbacks of model__watch() for blocks and segments. */
struct observers {
	int (*on_block)(void *ctx, const struct model_block *b); /* NULL: no observer */
	int (*on_segment)(void *ctx, const struct model_extent *e);
	void *ctx;
	int err;
	struct watch_class { /* hash_index compares it as bytes, so it has no padding */
		uint32_t site, label_no, category;
	} * classes;
	uint32_t nclasses;
	size_t capclasses;
	struct hash_index index;
};

struct growth_watch;

#define SITE_RECENT 4096 /* number of sets in the cache of recent sites */
#define SITE_WAYS 4	 /* entries of a set */

#define KEPT_CLASSES 8 /* devices and moments whose classes a finished model keeps */

struct model {
	struct model_opts opts;
	const struct dict *dict;
	/* A pointer, because look-ups on a const model fill the caches in it. */
	struct attribution *attribution;
	struct hash_seed seed;
	struct dev **devs; /* by number */
	uint32_t ndevs;
	uint32_t *order;	/* device numbers in the order of model__devices() */
	uint32_t *by_type[256]; /* [type][index]: number of the device plus 1, 0: none */
	struct dev *last_dev;
	struct {
		struct site *all;
		uint32_t n;
		size_t cap;
		struct hash_index index;
		/* Cache of recent sites by a fast hash, most recent first: steps repeat the same
		 * sites. */
		struct recent_site {
			uint32_t tag, site_no;
		} recent[SITE_RECENT][SITE_WAYS];
		/* First free site; its field stack leads to the next one. 0: none. */
		uint32_t free_no;
		/* varied: number of sites that are sums. max: limit of sites not in use. sweep_at:
		 * number of sites that starts gc__all(). */
		uint32_t varied, max, sweep_at;
	} sites;
	struct layers layers;
	struct steps steps;
	struct scopes scopes;
	struct growth_watch *growth; /* NULL: growth__watch() was not called */
	struct {
		struct thread_state **all; /* by the dict's number; NULL: no state */
		size_t n;
		/* states: number of threads with a state. sweep_at: number that starts
		 * gc__threads(). */
		uint32_t states, sweep_at;
		uint64_t swept; /* number of the event of the last sweep */
	} threads;
	struct {
		bool set;
		uint64_t time;
	} noted[2];	  /* the moments ROWS_AT_BASE and ROWS_AT_STEP */
	bool time_passed; /* AT_TIME: the mark was set */
	bool finished;
	uint64_t walks[MT_WALK_NR];
	struct sampling sampling;
	struct { /* the program's marks (EVENT_MARK) */
		size_t n;
		struct {
			uint64_t time;
			uint32_t name;
		} first[MODEL_MARKS];
	} marks;
	uint64_t events, lost;
	bool losing;	      /* a loss began, and its end is not known yet */
	uint64_t seq;	      /* number of the current event, from 1 */
	struct extents loose; /* host memory, and device memory on an unknown device */
	struct {
		struct request_info *all;
		uint32_t n;
		size_t cap;
		struct hash_index index;
	} requests;
	struct {
		struct label *all;
		uint32_t n;
		size_t cap;
		struct hash_index index;
	} labels;
	struct model_all all;
	uint64_t oom_work; /* blocks walked so far for the gaps at out-of-memory events */
	struct observers watch;
	struct {
		struct host_sheet reading; /* the reading whose events are still coming */
		struct model_host pub;
		/* Every stride-th value; the stride doubles when there is no more room. */
		struct host_values {
			uint64_t values[TREND_MAX], time[TREND_MAX], number;
			bool unknown;
			uint32_t n, stride;
		} series[HOST_SERIES_NR];
	} host;
	struct {
		uint32_t stacks, threads, modules, nodes;
	} seen; /* sizes of the dict when last read */
	/* Classes of the blocks of a finished model, by device and moment. A report makes rows of
	 * them ten times. */
	struct kept_classes {
		struct {
			uint32_t dev, n;
			enum row_when when;
			struct block_class *all;
		} set[KEPT_CLASSES];
		uint32_t n;
	} kept;
};

/* Finds the device's state, or adds it at the device's first event. Returns 0 or -ENOMEM. */
static inline int dev__get(struct model *m, struct device d, struct dev **ret)
{
	struct dev *dev = m->last_dev;

	if (d.type == DEVICE_CPU)
		d.index = 0;
	if (!dev || dev->pub.device.type != d.type || dev->pub.device.index != d.index)
		return dev__find(m, d, ret);
	*ret = dev;
	return 0;
}

/* The layers that contain a module. 0 or -ENOMEM. */
static inline int layers__chain(struct model *m, uint32_t module, struct chain *ret)
{
	if (module >= m->layers.nchains || !m->layers.chains[module].known)
		return layers__new_chain(m, module, ret);
	*ret = m->layers.chains[module];
	return 0;
}

/* The i-th layer of a chain. Valid until a layer is added. */
static inline struct layer *layer_at(struct model *m, const struct chain *c, uint32_t i)
{
	return &m->layers.all[m->layers.pool[c->off + i]];
}

/* Frees the classes that a finished model has kept. Call it before the model changes. */
void rows__forget(struct model *m);
/* Sets what --by line shows for this stack: file, func, line, module, phase, source. */
void rows__line(const struct model *m, enum frame_choice which_line, uint32_t stack, uint32_t node,
		uint32_t thread, uint8_t walk, struct row *r);

/* ---- gc.c: removes sites, requests and labels that are not in use, and ended threads ---- */

#define THREADS_KEPT 1024 /* exceeded if more are running */

/* These functions return 0 or -ENOMEM. */
int gc__all(struct model *m);
int gc__threads(struct model *m);

/* ---- observers.c ---- */

/* Connects a new device to the callbacks. */
void observers__device(struct model *m, struct dev *dev);
/* Passes a block to the callback on_block. dead: it is freed now; false: it is live at the end.
 * Returns 0 or the callback's error. */
int observers__report_block(struct model *m, const struct dev *dev, uint64_t addr,
			    const struct rec *rec, bool dead);
int observers__finish(struct model *m);

/* ---- cuda_memory.c: memory taken from and returned to CUDA, and the allocator's tables ---- */

/* Handles EVENT_CUDA_ALLOC, _CUDA_FREE, _SEGMENT, _STATE, _USED and _LEFT; ignores others. 0 or
 * -ENOMEM. */
int cuda_memory__event(struct model *m, const struct event *e);
/* Sets *ret to the bytes that the driver has available now: its last figure, corrected by the bytes
 * that the process took and returned since. Returns false if no figure came. */
bool cuda_memory__available(const struct dev *dev, uint64_t *ret);
/* Call it when a block of dev is at addr. If memory there was taken while the device was not known,
 * moves it to dev. Returns 0 or -ENOMEM. */
int cuda_memory__note_block(struct model *m, struct dev *dev, uint64_t addr);
