/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The heap state machine. It processes the events of a recording or capture in one pass, O(1) each.
 * It keeps the live blocks, the totals and peaks of each device, module and phase, and the steps.
 * It also keeps how far the allocator's own totals differ from the sum of the blocks. Its memory is
 * bounded by live blocks, dict entries and opts.sites. It does not depend on BPF or on files.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/trend.h"
#include "record/detail.h"
#include "record/host.h"
#include "record/stream.h"

struct dict;
struct model;

enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_OPTIMIZER, PHASE_DATA, PHASE_OTHER, PHASE_NR };
const char *phase__name(enum phase p);
const char *category__name(enum category c); /* "optimizer_state" */

/* AT_PEAK: each device's peak of allocated bytes, where it was first reached. AT_OOM: the first
 * out-of-memory event. AT_TIME: after the last event with time <= at_time. */
enum moment { AT_PEAK, AT_END, AT_OOM, AT_TIME };
extern const char *const moment_names[]; /* values of --at, and "time"; NULL at the end */

struct model_opts {
	enum moment at;	  /* moment whose live blocks are kept ("the mark") */
	uint64_t at_time; /* ns since the start, for AT_TIME */
	/* For AT_TIME, if not 0: the moment is after the event with this number, and reports print
	   at_time. */
	uint64_t at_event;
	/* Name or pattern of a mark (event__mark_is()); "": none. At the first such mark,
	 * model__event() sets at_time, for AT_TIME, and clears at_mark. */
	char at_mark[128];
	/* AT_PEAK is the default, not the user's choice. Then analysis__run() marks the end in a
	 * recording of a killed process's last moments (--on-kill). */
	bool at_default;
	/*
	 * Moment of a scope: analysis__open() finds it and sets at_time and at_event. at_scope: the
	 * scope's name, which model__new() adds to the scopes; "": none. at_run: number of its run,
	 * from 1 on; 0: the run with the highest peak. at_device: name of the device that the peak
	 * is of; NULL: the main device.
	 */
	char at_scope[STREAM_SCOPE];
	uint64_t at_run;
	const char *at_device;
	const char *const *scopes; /* names for model__add_scope(), borrowed */
	size_t nscopes;
	/*
	 * Maximum number of sites kept (distinct stack, size ...) that have no block that is live
	 * now or at the mark. 0: about 260,000. Beyond it ROWS_TOTAL adds up sites without their
	 * size and, with very many sites, without their stack.
	 */
	uint32_t sites;
};

/* d and f must outlive the model and may still grow. NULL on ENOMEM. */
struct model *model__new(const struct dict *d, const struct facts *f,
			 const struct model_opts *opts);
/* Replaces the facts, before the first event. f must outlive the model. */
void model__set_facts(struct model *m, const struct facts *f);
void model__free(struct model *m);
int model__event(struct model *m, const struct event *e); /* 0 or -ENOMEM */
/* Prefetches the state that the next n events need. Changes no state. */
void model__prefetch(const struct model *m, const struct event *e, size_t n);
/* After the last event. now: ns since the start. Closes the step and the layer under way. */
void model__finish(struct model *m, uint64_t now);

/* How much of a device's state before attach is known. */
enum state {
	STATE_NONE,   /* only the totals of the device's first event */
	STATE_PARTLY, /* blocks and segments, but their sum differs from the totals */
	STATE_FULL,   /* blocks and segments that match the totals to the byte */
};
const char *state__name(enum state s); /* "none", "approximate", "exact" */

/*
 * How exact a figure is, from the best to the worst. Without lost events it is exact. If memory
 * from before attach is not known (before_known), the figure leaves it out: it is exact since
 * attach. After events were lost, a peak is a lower bound: a higher one may lie between two
 * recorded events. Allocated bytes are exact again at the next event with totals. On a device
 * without totals, no figure is exact.
 */
enum figure { FIGURE_EXACT, FIGURE_SINCE_ATTACH, FIGURE_LOWER_BOUND, FIGURE_NOT_EXACT };
/* "exact", "since_attach", "lower_bound", "not_exact" */
const char *figure__name(enum figure f);

struct model_device {
	struct device device;
	char name[16]; /* "cuda:0", "cpu" */
	/* The allocator reports totals. Without them drift, reserved and before_attach are not
	 * valid. */
	bool has_totals;
	/* No allocation or free was seen on the device, and the reading of the process's tensors
	 * found none on it. */
	bool empty;
	enum state state;
	uint64_t allocated, reserved; /* now; without totals, the bytes of known blocks */
	uint64_t live;		      /* bytes of known blocks, now */
	uint64_t live_blocks;
	uint64_t peak_allocated, peak_reserved;
	uint64_t peak_time; /* ns, of peak_allocated */
	/* Maximum of (reserved - allocated), and reserved at that moment. */
	uint64_t most_unused, most_unused_reserved;
	/* Mean of (reserved - allocated) / reserved after each allocation and free; 0 without
	 * totals. */
	double avg_fragmentation;
	uint64_t peak_step; /* step of the peak, 0-based */
	enum phase peak_phase;
	/* Without totals: bytes from before attach that were found after the device's first event.
	 * All sums include them. */
	uint64_t late;
	/* before_attach and before_attach_start are complete, because the allocator reports totals,
	 * or the capture began before the process's first allocation. */
	bool before_known;
	uint64_t before_attach;	      /* bytes from before attach, live now */
	uint64_t before_attach_start; /* bytes from before attach, live at the first event */
	uint64_t total_allocated;     /* sum of all allocations seen */
	uint64_t total_freed;	      /* part of total_allocated that was freed again */
	uint64_t allocs, frees, ooms;
	/* Calls that CUDA refused and that succeeded once the allocator had given back cached
	 * memory (MEM_RETRIED): their number, and bytes and stack of the last one. */
	uint64_t retries, retry_size;
	uint32_t retry_stack;
	/* The driver's last figures, from one reading: what it counts for this process, and what it
	 * has left for all. */
	bool driver_known;
	uint64_t driver_used, driver_left;
	/* Frees of blocks from before attach that the model did not know. */
	uint64_t frees_unknown;
	/* Allocations at an address that was still live: a free was missed. */
	uint64_t overwritten;
	/* Largest difference between the total that the allocator reports and the model's sum of
	 * blocks, in bytes; number of events at which they differ. */
	uint64_t drift, drift_events;
	/* The device reached the moment model_opts.at, which is called the mark. The mark_* fields
	 * below are valid only then. */
	bool marked;
	uint64_t mark_time, mark_allocated, mark_reserved, mark_before_attach;
	/* Number of the last event before the mark; 0: the mark comes before all events. Events are
	 * numbered from 1 in the order of model__event(). */
	uint64_t mark_event;
	/* Exactness of peak_allocated, allocated and mark_allocated. */
	enum figure peak_is, allocated_is, mark_is;
};
size_t model__devices(const struct model *m); /* accelerators by index, then the CPU */
void model__device(const struct model *m, size_t i, struct model_device *ret);
/* Index of the device that a report shows by default: the one with the largest peak other than the
 * CPU, or the CPU if no other is used. -1: no device. */
int model__main_device(const struct model *m);
/* True if the events are those of a PyTorch memory snapshot. */
bool model__is_snapshot(const struct model *m);
/* Whether the main device's allocator reports reserved bytes. */
bool model__reserves(const struct model *m);
/* One reading of the process's host memory from /proc. */
struct host_point {
	uint64_t time; /* ns since the start */
	struct host_sheet sheet;
};
struct model_host {
	uint64_t readings;
	struct host_point first, last, highest; /* highest: the first reading with the most RSS */
	/* The reading for model_opts.at. AT_PEAK: highest. AT_TIME: the last reading until at_time,
	 * or the first one if all are later. Otherwise: last. */
	struct host_point at_moment;
};
/* Returns NULL if there was no reading. m owns the result, which changes with the next event. */
const struct model_host *model__host(const struct model *m);
/* Figures of host memory that model__host_trend() judges over all readings. */
enum host_series {
	HOST_SERIES_RSS,
	HOST_SERIES_OWN, /* pages of this process alone (USS) */
	HOST_SERIES_PINNED,
	HOST_SERIES_NR,
};
struct host_trend {
	struct trend trend;
	double per_second;    /* bytes */
	uint64_t first, last; /* bytes at the first and the last reading */
};
/* min_growth: bytes; less growth is TREND_FLAT. Returns false if there are fewer than TREND_MIN
 * readings, or one of them lacks the figure. */
bool model__host_trend(const struct model *m, enum host_series series, uint64_t min_growth,
		       struct host_trend *ret);
/* Sums over all devices except the CPU. */
struct model_all {
	uint32_t devices;
	uint64_t allocated, reserved;		      /* now */
	uint64_t peak_allocated, peak_allocated_time; /* peak of the sum */
	uint64_t peak_reserved, peak_reserved_time;
};
void model__all(const struct model *m, struct model_all *ret);
/* name: "cuda:0", "cuda" (= cuda:0) or "cpu". -1: no such device. */
int model__find_device(const struct model *m, const char *name);

/*
 * How rows are grouped. A row describes its largest part in all fields that the grouping does not
 * cover. file, func, module and thread are NULL or "" unless the grouping covers them; BY_STACK
 * covers all. BY_MODULE uses the exact module; BY_LAYER a module and everything inside it, so its
 * rows overlap. BY_LINE also splits by phase, module and category, and memory from before attach by
 * name. BY_SCOPE: the innermost run that was open on the thread.
 */
enum group {
	BY_LINE,
	BY_STACK,
	BY_MODULE,
	BY_LAYER,
	BY_PHASE,
	BY_THREAD,
	BY_CATEGORY,
	BY_SCOPE,
	BY_NR
};
extern const char *const group_names[]; /* values of --by; NULL at the end */

struct row_frame {
	const char *func, *file; /* owned by the dict */
	uint32_t line;
};

struct row {
	uint64_t bytes, count; /* count 0: not known (before attach) */
	/* Memory from before attach in no known block, bytes. `bytes` includes it, `count` does
	 * not. */
	uint64_t anonymous;
	/* Median block size, the larger of two in the middle; 0: not known. */
	uint64_t median;
	uint64_t cumulative;	 /* sum of bytes up to this row */
	uint64_t requested;	 /* 0: not known for all blocks of the row */
	const char *file, *func; /* line that the row is charged to; NULL: no Python line */
	uint32_t line;
	/* Dict stack of the row's largest part, for BY_STACK and for details. */
	uint32_t stack;
	/* module: dotted name, "" for the root; a pattern such as "blocks.*.mlp" for several
	 * modules (row_opts.any_module). */
	const char *module, *module_class;
	uint32_t modules; /* number of distinct modules in the row */
	/* Class of the root module; it separates models whose modules have the same names. */
	const char *module_root;
	enum phase phase;
	const char *category; /* "unknown": no role found; NULL: several */
	/* Name of the row's tensor in the program's objects; NULL: not known, or several. */
	const char *name;
	bool several_names; /* also if some blocks have none */
	/* Origin of the line: "frame" | "autograd" (line of the forward call that made the node) |
	 * "native" (no Python frame; file is NULL if compiled code has no names) | "untraced" |
	 * "hidden" | "census" (before attach) */
	const char *source;
	/* Class of the autograd node that ran, in the row's largest part; NULL: none. */
	const char *node_class;
	bool charged; /* source is "autograd", and stack is the stack of the forward call */
	const char *thread;
	uint32_t tid;
	/* The row's scope, after the scopes around it: "train > loss_of". NULL: outside of scopes. */
	const char *scope;
	/* The row's memory was allocated before the first event; file is NULL. All such memory that
	 * has no name is one row. */
	bool before_attach;
	bool history;  /* with before_attach: the recording is a snapshot, which calls that its
			  history */
	bool filtered; /* the caller's filter excludes the row */
	/* Only for row_opts.keep, with model__row_in_scope(): the row's model, and site.scope_no;
	 * NULL: the row has no stack. */
	const struct model *of;
	uint32_t scope_no;
	/* Estimates of bytes, if only a sample of stacks was read, or of small objects on the host
	 * (record/detail.h). All are equal to bytes where the row is exact. */
	struct sampled sampled;
};

/* Whether node_class is shown as the innermost frame of the stack. False if Python code ran inside
 * the node: then that code's frame is the innermost. */
static inline bool row__has_leaf(const struct row *r)
{
	return r->node_class && (r->charged || !r->stack);
}

/* For qsort(): filtered rows last, then by bytes, largest first. Ties are ordered by text, so that
 * two captures of a program give the same order. */
int row__compare(const void *a, const void *b);
/* Adds the figures of another row's blocks: bytes, count, and those that are the same in both or
 * not known for the sum. Modules and line stay. */
void row__add(struct row *to, const struct row *r);
/* Sorts rows with row__compare(), and sets cumulative. */
void row__sort(struct row *rows, size_t n);
/*
 * Generalizes pattern, a module's name or an earlier result, so that it also matches name.
 * Components that differ become "*". Names of different depth keep their common start. pattern
 * grows by at most two bytes.
 */
void pattern__cover(char *pattern, const char *name);
/* True for the names of two tensors that differ only in the middle: "layers.0.lora.a.A". */
bool pattern__alike(const char *a, const char *b);

enum row_when {
	/* Blocks that were live at a moment, with the categories known by now. model__note() sets
	 * the moments ROWS_AT_BASE and ROWS_AT_STEP. */
	ROWS_AT_MARK,
	ROWS_AT_BASE,
	ROWS_AT_STEP,
	ROWS_NOW,
	/* All blocks ever allocated, with category "unknown". median is 0 where sizes were not
	 * kept. */
	ROWS_TOTAL,
};
#define ROWS_MOMENTS ROWS_NOW /* number of moments in the past: the values before ROWS_NOW */

/* Which frame of its stack an allocation is charged to. Frames of compiled code count for
 * FRAMES_USER and FRAMES_ALL only if there are no Python frames. */
enum frame_choice {
	FRAMES_USER = 0, /* the innermost frame of user code, or the innermost one if it has none */
	FRAMES_ALL,	 /* the innermost frame */
	/* The innermost named function of compiled code; FRAMES_USER if there is none. */
	FRAMES_NATIVE,
};

struct row_opts {
	enum group by;
	enum row_when when;
	enum frame_choice which_line;
	/* With BY_LINE: do not split the rows of a line by module, phase, category. */
	bool any_module, any_phase, any_category;
	/* If not 0, replaces by: bits 1 << BY_* of all but layer.
	 * With line and without module, row.module is a pattern over all modules of the row. */
	unsigned split;
	/*
	 * Whether to hide a file, by path. A row is charged to the innermost line outside hidden
	 * files, in user code if possible. If all are hidden, file is NULL and source "hidden".
	 * NULL: hide no file.
	 */
	bool (*hide)(void *ctx, const char *file);
	/*
	 * Whether to keep blocks; NULL: keep all. r describes a set of equal blocks: bytes is their
	 * sum, median their size. Median and count are 0 where the size is not known. Blocks that
	 * are not kept go to separate rows with filtered set, after the others.
	 */
	bool (*keep)(void *ctx, const struct row *r);
	void *ctx;
};
/*
 * Makes the rows of a device, largest first. With the row before_attach, and except with BY_LAYER,
 * they add up to the device's live bytes at the moment opts->when. The caller frees *ret. Returns
 * 0, -ENOMEM, or -ENOENT if the moment never came.
 */
int model__rows(const struct model *m, size_t device, const struct row_opts *opts, struct row **ret,
		size_t *n);

/*
 * Notes the state after the last event as a further moment, for comparisons. when: ROWS_AT_BASE or
 * ROWS_AT_STEP. time: ns since the start. Costs a few bytes for each block that is live now, also
 * after its free.
 */
void model__note(struct model *m, enum row_when when, uint64_t time);
void model__forget(struct model *m, enum row_when when); /* drops that moment; reverses the cost */
/* Returns false if that moment was not noted. time may be NULL. */
bool model__noted(const struct model *m, enum row_when when, uint64_t *time);
/* Bytes allocated on the device at a noted moment. They include memory from before attach that was
 * found later. */
uint64_t model__noted_allocated(const struct model *m, size_t device, enum row_when when);

/* Makes the row of --by stack for this stack, charged as in reports. Leaves bytes and count 0. */
void model__stack_row(const struct model *m, uint32_t stack, uint32_t node, uint32_t thread,
		      uint8_t walk, struct row *ret);

struct live_block {
	uint64_t addr, size;
	uint64_t requested; /* 0: not known */
	uint64_t time;	    /* time of the allocation, ns; 0 in a list for the mark */
	bool older;	    /* allocated before the first event; time is 0 */
	uint64_t cuda_stream;
	uint32_t stack, node, thread; /* origin that the block is charged to */
	uint8_t walk;
	bool before_attach; /* allocated before the first event, origin not known */
	enum category category;
	bool inferred;	   /* the category is not from the program's objects */
	const char *name;  /* from the program's objects; NULL: not known */
	const char *scope; /* as row.scope; the model owns it */
	uint32_t module;
};
/* Sets *ret to the live block at addr. Its category is the one that it would have if it were freed
 * now. Returns false if no live block is known there. */
bool model__live_block(const struct model *m, struct device device, uint64_t addr,
		       struct live_block *ret);
/* Lists the device's blocks with known addresses, in order of addresses. The caller frees *ret.
 * Returns 0, -ENOMEM, or -ENOENT if the moment never came. */
int model__live_blocks(const struct model *m, size_t device, enum row_when when,
		       struct live_block **ret, size_t *n);

/* Size of the blocks in a segment; SEGMENT_ANY: not known. */
enum segment_size { SEGMENT_ANY, SEGMENT_OF_SMALL, SEGMENT_OF_LARGE };
#define SEGMENT_PINS 8 /* lines listed that hold blocks of a segment */
/*
 * Segment: memory that the allocator took from CUDA and splits into blocks. Adjacent mappings in
 * one reserved address range form one segment. The allocator returns a segment without blocks as a
 * whole, and an expandable one mapping by mapping.
 */
struct segment {
	uint64_t addr, size;
	uint64_t allocated, blocks,
		median;	    /* bytes, number and median size of the segment's blocks */
	uint64_t requested; /* requested bytes of the blocks; 0: not known */
	/* Bytes freed before attach that still waited for a stream: neither allocated nor free. */
	uint64_t pending;
	uint64_t free, gaps, largest_gap; /* free bytes, number of free ranges, the largest one */
	/* Free bytes that the allocator can return to CUDA: a segment without blocks, or whole
	 * mappings. */
	uint64_t releasable;
	uint64_t stuck; /* free bytes that the allocator cannot return to CUDA */
	bool stream_known, pool_known;
	uint64_t cuda_stream, pool[2];
	enum segment_size kind;
	bool expandable;
	bool foreign; /* code other than the allocator took it, and the allocator has blocks in it */
	bool seen;    /* the capture saw its allocation: time and taken are valid */
	uint64_t time;	  /* ns since the start */
	struct row taken; /* line that took it, as with --by line, without bytes, count */
	struct row *pins; /* lines that hold its blocks, largest first */
	size_t npins;	  /* at most SEGMENT_PINS */
	uint64_t more_pins, more_pinned; /* number of further such lines, and their bytes */
};

/* Device or managed memory that code other than the allocator took from CUDA. */
struct taken {
	uint8_t how;	/* enum mem_how */
	struct row row; /* bytes, count and the origin as with --by line */
};

#define PINNED_SPANS 4
/* Pinned host memory that was taken from CUDA in the recording and not returned. */
struct model_pinned {
	uint64_t bytes, count;
	uint64_t spans[PINNED_SPANS]; /* bytes by the part of the time in which they were taken */
	struct row line; /* line that took most of it, without sums; count 0: there is none */
};
/* Counts what was taken after a time and until another one, ns. Returns 0 or -ENOMEM. */
int model__pinned(const struct model *m, uint64_t from, uint64_t until, struct model_pinned *ret);

/* Sets line, module and phase of the allocation that reached the device's peak, without sums.
 * Returns false if the peak was reached before the first event, or is 0. */
bool model__peak_line(const struct model *m, size_t device, enum frame_choice which_line,
		      struct row *ret);

/* Makers of a private pool of PyTorch's allocator; see docs/reference/report.md, "Segments". */
enum private_pool {
	PRIVATE_GRAPH,	 /* the capture of a CUDA graph */
	PRIVATE_MEMPOOL, /* the program, with torch.cuda.MemPool */
	PRIVATE_NR,
};

/* Returns the enum private_pool of a segment's pool; -1: it has none, or it is not known. */
int segment__private_pool(const struct segment *s);

struct model_segments {
	struct segment *all; /* by stuck, then by size, largest first */
	size_t n;
	bool has_totals;
	uint64_t reserved, allocated; /* as the allocator reports them */
	/* Sum of the segments' sizes; equals reserved if all segments are known. */
	uint64_t known;
	uint64_t inside;		  /* bytes of the blocks in known segments */
	uint64_t outside, outside_blocks; /* bytes and number of blocks in no known segment */
	/*
	 * Memory that other code unmapped below blocks that stay allocated, as vLLM's sleep mode
	 * does: its bytes; bytes and number of the blocks in it, which outside leaves out; time of
	 * the last unmapping, ns.
	 */
	uint64_t unmapped, unmapped_inside, unmapped_blocks, unmapped_time;
	uint64_t requested; /* requested bytes of all blocks; 0: not known */
	uint64_t pending;   /* sum of segment.pending */
	/* False: blocks freed since attach may also wait for a stream. They count as free. */
	bool pending_known;
	uint64_t empty, empties; /* bytes and number of segments without blocks */
	/* Free bytes that the allocator can return to CUDA, with those of empty segments. */
	uint64_t releasable;
	uint64_t stuck;	      /* free bytes that the allocator cannot return to CUDA */
	uint64_t largest_gap; /* largest free range in any segment */
	/* Free bytes in private pools. empty, empties, releasable and stuck leave them out: only
	 * the owner of a pool can use them, and the allocator keeps them until the pool is deleted.
	 * Within them: bytes and number of segments without blocks. */
	struct {
		uint64_t free, empty, empties;
	} private[PRIVATE_NR];
	struct taken *others; /* largest first */
	size_t nothers;
	/* Bytes that other code took: device memory; managed memory, which may be on the host. */
	uint64_t others_bytes, managed;
	uint64_t host, registered; /* pinned memory of the whole process: allocated; registered */
	/* Device memory of the whole process, taken while the current device was not known. */
	uint64_t unknown_device;
	/*
	 * Driver-reported use: the last figure before the moment, or the first figure after it if
	 * the model's sums did not change in between. used_below, used_others: reserved bytes and
	 * bytes of other code when the driver reported it, without unmapped memory and without
	 * memory that other code took for the allocator.
	 */
	bool used_known;
	uint64_t used, used_time, used_below, used_others;
	void *pool; /* private: owns pins */
};
/* Whether most of the cached memory is in private pools of CUDA graphs. */
bool model_segments__graphs_keep(const struct model_segments *s);
/* Sets *ret to the segments of a device other than the CPU. when: ROWS_AT_MARK or ROWS_NOW. Returns
 * 0, -ENOMEM, -EINVAL, or -ENOENT if the moment never came. Free ret with model__free_segments(). */
int model__segments(const struct model *m, size_t device, enum row_when when,
		    enum frame_choice which_line, struct model_segments *ret);
void model__free_segments(struct model_segments *s);

/* Memory of one pool of the allocator and one stream when an allocation failed. The allocator gives
 * free memory only to requests of the same pool and stream. */
struct model_oom_pool {
	bool rest; /* the sum of all further ones */
	bool stream_known;
	uint64_t cuda_stream;
	uint64_t pool[2]; /* as in struct segment */
	int private;	  /* enum private_pool; -1: none, or not known */
	bool small;	  /* only for blocks of at most 1 MiB */
	uint64_t segments, size, allocated;
	uint64_t pending; /* bytes that the program has freed, and that a stream still uses */
	uint64_t free, gaps, largest_gap; /* as in struct segment */
};
#define MODEL_OOM_POOLS 8

struct model_oom {
	uint64_t number; /* from 0, on this device */
	uint64_t time, size;
	bool has_totals;
	uint64_t allocated, reserved;
	bool gap_known; /* all segments are known, and largest_gap is their largest free piece */
	uint64_t largest_gap;
	/* By free bytes, largest first, if gap_known; otherwise none. */
	struct model_oom_pool pools[MODEL_OOM_POOLS];
	size_t npools;
	bool pending_known; /* otherwise free bytes may be pending */
	bool used_known;    /* used is the last driver-reported figure */
	uint64_t used;
	/* left: bytes that the driver had available for all processes. It is the driver's last
	 * figure, corrected by the memory that this process took and returned since. */
	bool left_known;
	uint64_t left;
	/* Bytes still live from the forward of earlier calls of the model that ran out of memory,
	 * too; time of the last such call, ns. 0: none. */
	uint64_t kept, kept_time;
	uint64_t seq;	       /* number of the event */
	uint64_t begun, ended; /* calls of the root module that began and ended before the event */
	uint32_t thread, stack, node;
	uint8_t walk;
	enum phase phase;
};
/* i counts the kept events: a device's first 8 and last 8. False: out of range. */
bool model__oom(const struct model *m, size_t device, size_t i, struct model_oom *ret);

/*
 * A step ends at an EVENT_STEP. In a recording without EVENT_STEP it ends with the call of a root
 * module. That end is the thread's last event seen inside the call. It is noticed at the thread's
 * next allocation outside the module, at the next EVENT_CALL, or at the end. A step begins where
 * the previous one ended, the first at the start of the capture or window, or first EVENT_CALL.
 */
struct model_step {
	uint64_t start, end;	/* ns */
	uint64_t peak;		/* maximum of allocated bytes on the main device in the step */
	uint64_t end_allocated; /* allocated bytes when the end was noticed */
};
size_t model__steps(const struct model *m); /* steps that ended */
/* The number of marks (EVENT_MARK). The model keeps the first MODEL_MARKS of them. */
#define MODEL_MARKS 100
size_t model__marks(const struct model *m);
/* Returns the name of the i-th mark, owned by the dict, and sets *time, ns since the start.
 * i < MODEL_MARKS and i < model__marks(). */
const char *model__mark(const struct model *m, size_t i, uint64_t *time);
/* Steps that the recording has from beginning to end. The first step counts only if the capture
 * began with it. */
size_t model__whole_steps(const struct model *m);
/* True if steps are calls of root modules, because no optimizer step was seen. */
bool model__steps_are_calls(const struct model *m);
/* i counts the kept steps, the last 4096. False: out of range. */
bool model__step(const struct model *m, size_t i, struct model_step *ret);
/* Sets *ret to the last step, with this device's bytes. Returns false if no step ended, or the
 * device had no memory in that step. */
bool model__last_step(const struct model *m, size_t device, struct model_step *ret);
/* Sets *ret to the number that the optimizer itself gives to the first step that ended in the
 * recording, from 1; later steps have the next numbers. Returns false if it is not known. */
bool model__job_step(const struct model *m, uint64_t *ret);
/* True if the recording begins later than its capture, as a window does. Sets *ret to its
 * beginning, ns since the capture's start; otherwise to 0. */
bool model__window(const struct model *m, uint64_t *ret);
/* Length in ns of a recording that ends at this time. It counts from the recording's beginning,
 * which in a window is later than the capture's start. */
uint64_t model__length(const struct model *m, uint64_t end);
/* True if the recording is a window that begins with a step, so that its first step is whole. */
bool model__first_step_whole(const struct model *m);
/* Median duration of the kept steps, ns, without an incomplete first step. 0: no such step. */
uint64_t model__step_time(const struct model *m);

/*
 * Scopes: named scopes, whose begin and end the program tells (EVENT_SCOPE), and Python functions
 * that the user names. A run of a function begins with the first allocation of a thread inside it,
 * and ends before the thread's first allocation outside of it. So calls without an allocation
 * between them are one run, and a recursive call is part of the outer one. A path is a scope inside
 * the scopes around it.
 */
/*
 * Adds a function before the first event. One that the model has already is not added again. A
 * recording's fact "scopes" adds others. Returns 0, -ENOMEM, -EINVAL (not facts__is_scope()) or
 * -E2BIG (more than STREAM_SCOPES).
 */
int model__add_scope(struct model *m, const char *function);
/* The i-th function's name as it was given; NULL: there are no more. Sets *found to whether the
 * function was on a stack. The model owns the name. */
const char *model__scope_function(const struct model *m, size_t i, bool *found);

/* Which code locations a function has, for model__row_in_scope(). Starts with zeros; free locs. */
struct scope_cache {
	const struct model *of; /* the model that locs is of */
	uint8_t *locs;
	size_t n;
};
/* True if the row's memory was allocated in a scope of this name: a frame of the function is on the
 * stack, or a named scope was open. row: as row_opts.keep gets it. */
bool model__row_in_scope(const struct row *row, const char *name, struct scope_cache *cache);

struct model_scope {
	const char *name; /* for a function as in model__scope_function() */
	const char *path; /* as row.scope */
	uint8_t source;	  /* enum scope_source; 0: a function */
	size_t parent;	  /* index of the scope around it; SIZE_MAX: none. It is below this index */
	unsigned depth;	  /* number of scopes around it */
	uint64_t runs;	  /* runs that began */
	uint64_t earlier; /* runs among them that began before the first event */
	uint64_t open;	  /* runs that had no known end when the recording ended */
	/* Time of the runs, ns: the sum, and the longest. Functions: from the first to the last
	 * allocation. Named scopes: from begin to end, without suspended time. */
	uint64_t time, longest;
};
size_t model__scopes(const struct model *m); /* number of paths */
void model__scope(const struct model *m, size_t i, struct model_scope *ret);
/* True if the name stands for this scope. A named scope hides a function of the same name. */
bool model__scope_is(const struct model *m, const struct model_scope *scope, const char *name);
/* Sets *runs and *time, ns, to the path's means for each whole step (model__whole_steps()). Returns
 * false without a whole step whose runs are all kept. */
bool model__scope_per_step(const struct model *m, size_t i, double *runs, double *time);
/* The median of that time over the path's kept runs, ns; 0: there is none, or no memory. */
uint64_t model__scope_median_time(const struct model *m, size_t i);
/* Runs that are missing because too many were open at a time, there were too many paths, or only
 * the end of the run is known. */
uint64_t model__scopes_left_out(const struct model *m);

/* Bytes of a device in a run. All threads count, except in kept. */
struct model_scope_level {
	bool start_known;	/* false: the run began before the first event */
	bool kept_known;	/* also false if it was suspended, or its thread is not known */
	uint64_t start;		/* allocated just before the run began */
	uint64_t peak;		/* maximum of allocated while it ran */
	uint64_t peak_time;	/* ns */
	uint64_t peak_event;	/* number of the event at the peak, as model_opts.at_event */
	uint64_t peak_reserved; /* 0 without totals */
	/* Allocated at the end; of a function after the thread's last event before its first
	 * allocation outside. */
	uint64_t end;
	/* Part of end that the run's own thread allocated in the run, or autograd's threads in
	 * backward that it called. */
	uint64_t kept;
	uint64_t run; /* number of the run in its scope, from 1 */
};
/* Sets *ret to the run of path i with the highest peak on the device, and peak_reserved to the
 * maximum of all its runs. False: no run has figures of this device. */
bool model__scope_highest(const struct model *m, size_t i, size_t device,
			  struct model_scope_level *ret);
/* Runs of path i that ended since model__scope_forget_recent() of it, for figures step by step:
 * their number, and of a device the highest of their peaks with the other figures of the last one.
 * False: none of them has figures of this device. */
uint64_t model__scope_recent_runs(const struct model *m, size_t i);
bool model__scope_recent(const struct model *m, size_t i, size_t device,
			 struct model_scope_level *ret);
void model__scope_forget_recent(struct model *m, size_t i);
/* For a device that had no event during path i: sets start, peak, peak_reserved and end to its
 * bytes before its first event. False: it had an event then, or it is one of too many devices. */
bool model__scope_idle(const struct model *m, size_t i, size_t device,
		       struct model_scope_level *ret);
/* Medians over the path's kept runs that ended, and whose figures of the device are known. */
struct model_scope_medians {
	bool change_known, kept_known; /* false: there is no such run */
	int64_t change;		       /* end - start */
	uint64_t kept;
};
void model__scope_medians(const struct model *m, size_t i, size_t device,
			  struct model_scope_medians *ret);

/* Resident memory of the process in the run of path i whose readings (struct model_host) have the
 * highest one. start, end: of the last reading before it began, and before it ended. */
struct model_reading {
	bool known;
	uint64_t time, rss; /* ns since the start; bytes */
};
struct model_scope_host {
	uint64_t readings; /* in all runs; 0: the rest is not known */
	uint64_t run;	   /* number of the run, from 1 */
	struct model_reading start, peak, end;
};
/* Returns false if the recording has no reading. */
bool model__scope_host(const struct model *m, size_t i, struct model_scope_host *ret);

struct model_scope_run {
	size_t scope;	     /* index of its path */
	uint64_t number;     /* in its scope, from 1 */
	uint32_t thread;     /* number in the dict; of a named scope the one that began it */
	bool ended;	     /* false: it had no known end when the recording ended */
	bool earlier;	     /* it began before the first event, and `begin` is that event */
	uint64_t begin, end; /* ns; of a function its first and its last allocation */
	uint64_t step;	     /* number of steps that ended before it began */
};
size_t model__scope_runs(const struct model *m); /* kept runs, in the order in which they began */
void model__scope_run(const struct model *m, size_t run, struct model_scope_run *ret);
/*
 * The i-th of the runs that are open or ended last, for a view of a running program: first those
 * that are open, whose end is UINT64_MAX, then the last ones that ended, from the newest on. Sets
 * *known_from at the last one if earlier ones are forgotten. Returns false if there are no more.
 */
bool model__scope_late(const struct model *m, size_t i, struct model_scope_run *ret,
		       uint64_t *known_from);
/* Returns false if the run has no figures of this device. */
bool model__scope_run_level(const struct model *m, size_t run, size_t device,
			    struct model_scope_level *ret);

struct model_layer_sums {
	uint64_t peak_allocated; /* maximum of live bytes that were allocated in the layer */
	/* Maximum of the device's reserved total while the layer runs; 0 without totals. */
	uint64_t peak_reserved;
	uint64_t allocs, frees; /* frees: frees of blocks that were allocated in the layer */
	/* Mean of (reserved - allocated) / reserved over the layer's allocations. */
	double avg_fragmentation;
	/*
	 * Time in the layer, ns, summed over threads. With model__sees_calls() it is the duration
	 * of the calls of its modules; in backward, as far as allocations show it. Otherwise it is
	 * the time from the first to the last allocation of each call.
	 */
	uint64_t duration;
	/* Calls of the layer's own module. A wrapper and the module that it wraps count as one
	 * call. 0 without model__sees_calls(). */
	uint64_t calls;
};

struct model_layer { /* a module and everything inside it, on all devices */
	const char *name, *cls;
	const char *root; /* class of the root module */
	struct model_layer_sums all;
	struct model_layer_sums forward, backward; /* allocations in that phase */
	bool calls_known;			   /* model__sees_calls() */
};
size_t model__layers(const struct model *m);
/* True if the recording has EVENT_ENTER events, which say when modules are entered and left. */
bool model__sees_calls(const struct model *m);
void model__layer(const struct model *m, size_t i, struct model_layer *ret);

/* Sums over the stretches of a phase. A stretch is a run of allocations in one phase. It lasts
 * until the last event before an allocation in another phase. */
struct model_phase {
	uint64_t peak_allocated;  /* maximum of allocated bytes on the main device */
	uint64_t peak_time;	  /* time of that maximum */
	uint64_t peak_reserved;	  /* 0 without totals */
	int64_t allocated_delta;  /* sum of (end - begin) over its stretches */
	uint64_t duration, count; /* ns; number of stretches */
};
void model__phase(const struct model *m, enum phase p, struct model_phase *ret);

/*
 * Charges an event to its origin. If an autograd node allocated and no Python code ran in it, the
 * stack becomes that of the forward call that made the node. Its phase is backward if node is not
 * 0.
 */
void model__charge(const struct model *m, struct event *e);
/* Phase of an allocation with this stack. */
enum phase model__stack_phase(const struct model *m, uint32_t stack, uint32_t thread, uint8_t walk);
/* Innermost module on the stack; 0: none. */
uint32_t model__stack_module(const struct model *m, uint32_t stack);
/* Module of an allocation made in an autograd node: the stack's, or the node's if it has none. */
uint32_t model__module(const struct model *m, uint32_t stack, uint32_t node, uint8_t walk);
/* Line that an allocation is charged to. False: no Python line. */
bool model__stack_line(const struct model *m, uint32_t stack, enum frame_choice which_line,
		       struct row_frame *ret);
/* Whether a frame with this place is on the stack, from the innermost one to that of
 * model__stack_line(). */
bool model__stack_leads(const struct model *m, uint32_t stack, enum frame_choice which_line,
			const struct row_frame *place);
/* Sets the line that reports charge the event's allocation to: if only library code ran in its
 * autograd node, the line of the forward call that made the node. False: no Python line. */
bool model__event_line(const struct model *m, const struct event *e, struct row_frame *ret);

/* ---- for an export of the whole history: each block, and the state after each event ---- */

/* A block that was freed, or is live at the end. device: as from model__number(). */
struct model_block {
	uint32_t device, class; /* class: number of the block class, for model__block_class() */
	uint64_t addr, size;
	/* Number of the event that allocated it, from 1; 0: before the first event. */
	uint64_t born;
	uint64_t gone; /* event that freed it; 0: live at the end */
};
struct model_extent { /* a segment, or one mapping of an expandable segment */
	uint32_t device;
	uint64_t addr, size;
	uint64_t range; /* start of its reserved address range, 0: not known */
	uint64_t cuda_stream, pool[2];
	/* The allocator's tables list it: stream and pool are known. */
	bool listed;
	bool expandable;
	enum segment_size kind;
	bool there; /* true: it was added; false: it was removed */
};
/* Callbacks. Each returns 0, or an error, which ends the run: model__event() and
 * model__watch_error() return it. */
struct model_watch {
	/* Gets each block when it is freed. model__finish() passes all live blocks to it. */
	int (*on_block)(void *ctx, const struct model_block *b);
	int (*on_segment)(void *ctx, const struct model_extent *e); /* NULL: not needed */
	void *ctx;
};
/* Call this before the first event. */
void model__watch(struct model *m, const struct model_watch *w);
/* The first error of a callback, or 0. Needed after model__finish(), which returns none. */
int model__watch_error(const struct model *m);
/* Number of block classes. All blocks of a class have the same size, stack, module, category and
 * name. Classes are numbered in order of appearance. */
uint32_t model__block_classes(const struct model *m);
/*
 * Sets *ret to the row of a block class, with line, stack, thread, scope, category and name, charged
 * to user code. The category may change until model__finish(). Returns the size of each block.
 */
uint64_t model__block_class(const struct model *m, uint32_t class, struct row *ret);

/* State of a device after an event. */
struct model_now {
	uint64_t seq; /* number of the event, from 1 */
	uint64_t allocated, reserved;
	uint64_t unknown; /* bytes of allocated outside known blocks; 0 without totals */
	/*
	 * Bytes from before attach that were found late, summed so far. They correct the values of
	 * earlier events. late: add them to allocated and unknown. known: subtract them from
	 * unknown, since they became known blocks.
	 */
	uint64_t late, known;
	uint64_t peak, peak_seq; /* peak_seq: event of the peak, 0: before the first */
	int phase;		 /* phase of the current stretch, -1: none */
};
/* Number of the i-th of model__devices(). Unlike i, a device's number does not change when events
 * add other devices. */
uint32_t model__number(const struct model *m, size_t i);
/* Number of a device; UINT32_MAX: no such device. */
uint32_t model__number_of(const struct model *m, struct device d);
/* Sets *ret to the state after the last event. Returns false if the device had no event yet; then
 * only seq is valid. */
bool model__now(const struct model *m, uint32_t number, struct model_now *ret);
/* The state just before the device's first event: allocated, reserved, unknown. */
void model__first(const struct model *m, uint32_t number, struct model_now *ret);
struct model_opts model__opts(const struct model *m);
/* True if e, the model's next event, comes after the moment of AT_TIME. */
bool model__is_past(const struct model *m, const struct event *e);
/* Sets the moment of the mark to the end, whatever the options say. Call it before the first event.
 */
void model__mark_end(struct model *m);

/* Number of allocations whose stack walk had this outcome (enum mt_walk). */
uint64_t model__walks(const struct model *m, unsigned walk);
uint64_t model__events(const struct model *m);
uint64_t model__lost(const struct model *m);
