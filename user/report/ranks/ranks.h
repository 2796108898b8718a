/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* One report of several recordings: the bytes of each line, in total and by recording. Texts and
 * sums are copied, so that a recording can be freed after it was added. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/analysis.h"
#include "model/model.h"
#include "report/dump/process_tree.h"
#include "report/recording/row_set.h"
#include "report/recording/scope_set.h"
#include "report/text.h"

struct shared_gpus;
struct growth_summary;
struct json;
struct report_fail;

/* Returns whether the process ever allocated on the device. A recording lists all devices that the
 * process can use. */
static inline bool rank__uses(const struct model_device *d)
{
	return d->peak_allocated || d->peak_reserved || d->total_allocated;
}

struct folder_missing;

struct rank_clock {
	int64_t begin;	/* start of the recording on the clock of the machine that ran fetch, ns */
	int64_t offset; /* the recorded host's clock minus that clock, ns */
	uint64_t error; /* largest error of offset, ns */
	bool known;	/* the other members are valid */
};

struct rank_device { /* an accelerator that a recording uses */
	struct device device;
	char name[16];
	uint64_t bytes, peak; /* allocated at the device's moment, and at its peak */
	/* The device's largest row of --by line, with file, line and name only; struct ranks owns
	 * the strings. Set if the recording uses several devices. */
	struct row most;
};

/* Devices that have memory of several ranks: of a rank whose own device it is, and of guests. */
struct shared_devices {
	struct shared_device {
		uint32_t first, n; /* range of uses, sorted by recording */
		uint32_t guests;   /* number of uses by ranks whose own device is another one */
	} * all;
	size_t n;
	struct device_use {
		uint32_t recording;
		const struct rank_device *device, *own; /* used device; the recording's own one */
	} * uses;
	size_t n_uses;
};

/* Durations of a recording's steps, by their numbers in the job. n 0: none are known. */
struct job_spans {
	uint64_t first; /* number of the step ns[0] */
	uint64_t *ns;	/* owned; the steps that the model keeps, without an incomplete first one */
	size_t n;
};

struct rank {		/* one recording */
	uint32_t added; /* index in the order of adding */
	char *name;
	/* "rank 3" or "rank 3 worker 1"; without a job, the start of the name, cleaned */
	char label[48];
	char on[64];   /* " on HOST", cleaned, if the ranks of a job are on several hosts */
	char *host;    /* name of the host, hostile text; NULL: unknown */
	char *cwd;     /* working directory; NULL: unknown */
	char *detail;  /* sentence on the detail that --cost left out; "": nothing left out */
	char *command; /* command line, cleaned, without arguments that differ for each rank */
	char *sketch;  /* of a snapshot with a number in its name: the fact; otherwise NULL */
	bool again;    /* a snapshot of the same process as an earlier one */
	uint64_t number, local, world; /* rank, local rank, number of ranks */
	bool has_number, has_local, has_world;
	/* True for a helper process of another recording's process, such as a DataLoader worker.
	 * It has the parent's rank or, without ranks, PyTorch's name for workers. Sums include
	 * it; comparisons do not. */
	bool worker;
	bool data_worker; /* true if it has PyTorch's name for workers */
	uint32_t boss;	  /* a worker's parent, by index; valid before ranks__finish() */
	uint64_t pid, parent, events, lost, steps; /* parent 0: unknown */
	/* Median time of a step, ns; 0: not known. If steps are matched by number, ranks__finish()
	 * replaces it by the median of the steps in step_match. */
	uint64_t step_time;
	uint64_t first_job_step; /* valid if spans has steps */
	struct job_spans spans;
	char no_number[96]; /* why its steps have no numbers, cleaned; "" if they have */
	struct rank_clock clock;
	bool complete;
	bool older;		  /* made by a version that did not number steps */
	char devices[256];	  /* reported devices, such as "cuda:0 cuda:1" */
	uint32_t ndevices;	  /* number of reported devices */
	struct rank_device *each; /* all accelerators that it uses, reported or not */
	size_t neach, room_each;
	bool guest; /* its reported memory is on another rank's own device */
	/* Sums over the reported devices, each at its own moment, in bytes. */
	uint64_t allocated, reserved, peak, total_allocated, before_attach;
	uint64_t time;	 /* earliest moment of the devices, ns; with AT_PEAK: of their sum's peak */
	uint64_t drift;	 /* largest drift of the devices, bytes */
	bool has_totals; /* true if a device has the allocator's totals: drift is known */
	bool before_unknown; /* true if memory from before attach is unknown for a device */
	enum figure is;	     /* how exact allocated is */
	/* Bytes of shared memory that it mapped from other processes; each process counts them. */
	uint64_t shared;
	bool on_host;  /* figures are resident memory, whose pages several processes may share */
	bool has_pss;  /* pss is known */
	uint64_t pss;  /* proportional set size at the reading of the moment, bytes */
	uint64_t rows; /* sum of its rows, bytes */
	struct growth_summary **growth; /* copies, one for each reported device */
	size_t ngrowth, growth_room;
	const struct growth_summary *grows; /* the entry that grows most; NULL: none grows */
	bool steady; /* true if it is known of each device that it does not grow */
};

enum step_match_by {
	STEPS_NOT_MATCHED,  /* fewer than two ranks have steps */
	STEPS_BY_OPTIMIZER, /* steps with the same number by the optimizer's own count */
	STEPS_BY_TIME,	    /* not matched by number: all steps of each recording */
};

struct step_match {
	enum step_match_by by;
	uint64_t first, last; /* with STEPS_BY_OPTIMIZER: numbers of the steps */
	char why[160];	      /* with STEPS_BY_TIME: why not by number */
	bool old_recording;   /* why: a recording is of a version that did not number steps */
};

/* ---- recordings that have more or less than the others ---- */

/* A recording differs if its distance from the others' median is above both limits. */
#define OUTLIER_PERCENT 10
#define OUTLIER_BYTES (UINT64_C(1) << 20)

struct outlier {
	uint32_t recording;
	uint32_t line_no;	/* index in ranks.lines + 1; 0: all allocated memory */
	uint64_t bytes, others; /* bytes in the recording, and the median of the others; of slow
				   ranks ns of a step */
};

static inline uint64_t outlier__distance(const struct outlier *o)
{
	return o->bytes > o->others ? o->bytes - o->others : o->others - o->bytes;
}

struct outliers {
	struct outlier *all; /* array, for free() */
	size_t n, room;
};

void outliers__sort(uint64_t *values, size_t n);
/* Returns the median of n sorted values: for an even n, the mean of the two middle ones; for n = 0,
 * 0. */
uint64_t outliers__median(const uint64_t *sorted, size_t n);
/* Returns the median of n values: n - zeros sorted values, and zeros times 0. */
uint64_t outliers__median_with_zeros(const uint64_t *sorted, size_t n, size_t zeros);
/* Adds a recording that has `bytes` where most others have nothing, if that is more than `least`.
 * Returns 0 or -ENOMEM. */
int outliers__add_to_zeros(struct outliers *o, uint32_t recording, uint64_t bytes, uint64_t least,
			   uint32_t line_no);
/* Adds the recordings that differ. values: bytes by recording; sorted: the same values sorted.
 * least: smallest difference, such as OUTLIER_BYTES. With two middle values among the others, the
 * nearer one counts. If there are only two recordings, the larger one is added. Returns 0 or
 * -ENOMEM. */
int outliers__add(struct outliers *o, const uint64_t *values, const uint64_t *sorted, size_t n,
		  uint64_t least, uint32_t line_no);
/* Sorts outliers: those of all memory first, then by distance, largest first. */
void outliers__order(struct outliers *o);

/* ---- groups ---- */

/*
 * Groups of recordings that allocate alike: the same bytes at the same lines, within limits, such
 * as the ranks of a pipeline's stage. A small group is compared with a large one that it resembles:
 * together they are a family, whose recordings should be equal. The other groups are families of
 * their own.
 */
/* Two recordings are alike if the lines that differ by more than OUTLIER_PERCENT and OUTLIER_BYTES
 * differ by at most this share of all their memory. */
#define RANK_GROUPS_PERCENT 2

/* A line in one recording. */
struct rank_cell {
	uint32_t recording, line; /* indices in struct ranks */
	uint64_t bytes, count;
};

struct rank_group {
	uint32_t first, n; /* range of its members, in the order of recordings */
	uint32_t family;   /* index of the group to compare with; its own index: none */
};

struct rank_groups {
	struct rank_group *all; /* sorted by first member */
	size_t n;
	uint32_t *members; /* recordings, group by group */
	uint32_t *of;	   /* [recording]: index of its group, or RANK_GROUPS_NONE */
};

#define RANK_GROUPS_NONE UINT32_MAX

/* Makes groups of n recordings. cells are sorted by line; out marks recordings without a group, and
 * out_lines lines that do not count. Returns 0 or -ENOMEM; *ret is for rank_groups__free() in both
 * cases. */
int rank_groups__make(const struct rank_cell *cells, size_t n_cells, const bool *out_lines,
		      const bool *out, size_t n, struct rank_groups *ret);
void rank_groups__free(struct rank_groups *g);

/* ---- all recordings ---- */

struct rank_line {	   /* equal rows of several recordings */
	struct row row;	   /* sums over all recordings; strings owned by the ranks */
	uint32_t first, n; /* range of its cells, sorted by recording */
	uint64_t min, median,
		max; /* bytes over recordings without workers; 0 in those without the line */
};

struct ranks_opts {
	enum group by;	/* any but BY_STACK */
	unsigned split; /* as in struct row_opts */
	bool words;	/* for text: rows by place only, for all modules, phases and categories */
	enum frame_choice which_line;
	enum moment at;
	const struct report_select *select;
	const struct report_fail *fail;	      /* source of "failed" in JSON; NULL: no --fail-if */
	const struct folder_missing *missing; /* recordings that fetch did not get */
	size_t n_missing;
	bool outliers; /* in JSON, only the lines that differ between recordings, without their
			  cells */
	const struct shared_gpus *gpus; /* finished ones, to print with the report; NULL: none */
};

/* Results are valid after ranks__finish(). */
struct ranks {
	const struct ranks_opts *opts;
	struct rank *all;	  /* the recordings, sorted by rank if all have one */
	size_t n, empty;	  /* empty: number of recordings without memory events */
	size_t workers;		  /* number of recordings of workers */
	struct rank_line *lines;  /* largest first; those that match --filter come first */
	size_t nlines, kept;	  /* kept: those that match --filter */
	struct rank_cell *cells;  /* in the order of lines */
	struct outliers outliers; /* sorted by outliers__order() */
	/* Recordings whose steps take OUTLIER_PERCENT longer or shorter than the median of the
	 * others, and by more than a millisecond; bytes and others are ns. Sorted by difference. */
	struct outliers slow;
	struct step_match match; /* which steps of the ranks are compared */
	struct rank_groups groups;
	struct process_tree tree; /* which process started which */
	struct shared_devices shared;
	/* Scopes of each recording, by rank.added, on one of its devices. */
	struct scope_set scopes;
	bool names_functions; /* the user or a recording named functions for scopes */
	/* Private. */
	size_t room, room_lines, ncells, room_cells;
	struct row_set set; /* the lines' identities, by their index */
};

struct ranks *ranks__new(const struct ranks_opts *o); /* returns NULL on ENOMEM; borrows o */
void ranks__free(struct ranks *r);
/* Adds a recording's rows at its moment. device: index in its model; -1: all used devices but the
 * CPU, or the CPU if no other is used. Returns 0, -ENOMEM, or -ENODATA for a recording without
 * memory events, which only ranks.empty counts. */
int ranks__add(struct ranks *r, const struct analysis *a, int device);
/* Ends adding: sorts recordings by rank, if all have one, and finds outliers. Returns 0 or
 * -ENOMEM. */
int ranks__finish(struct ranks *r);
/* Returns whether several of the recordings are snapshots of one process. */
bool ranks__of_one_process(const struct ranks *r);
/* Returns whether these are at least two ranks of one job: the same command and number of ranks,
 * different ranks, workers ignored. */
bool ranks__one_job(const struct ranks *r);

/* Returns whether these are at least two recordings of one process tree with one root, and no ranks
 * of one job. */
bool ranks__one_tree(const struct ranks *r);

/* The functions below are valid after ranks__finish(). */
/* Returns the bytes of a line in a recording. */
uint64_t ranks__bytes(const struct ranks *r, const struct rank_line *l, size_t recording);
/* Prints "4 recordings of one job, ranks 0-3 of 4: python train.py", and the number of recordings
 * without memory events. */
void ranks__print_title(FILE *out, size_t width, const struct ranks *r);
/* Prints for each recording that it is not complete, or what detail it lacks. */
void ranks__print_lacks(FILE *out, size_t width, const struct ranks *r);
/* Writes the names of the recordings i with in[i] (in NULL: all but workers): "rank 2", "ranks
 * 0-3, 7", "rank 0, worker 1". Without a job, writes some of their names. Returns their number. */
size_t ranks__list(const struct ranks *r, const bool *in, char *buf, size_t size);
/* Writes which ranks have memory on the i-th shared device: "rank 1 has 64.00 MiB on cuda:0 besides
 * its own cuda:1 ...". *ret (NULL: not wanted): the bytes. Returns buf, of REPORT_TEXT bytes. */
char *ranks__say_shared(const struct ranks *r, size_t i, char *buf, uint64_t *ret);
extern const char ranks_shared_remedy[]; /* text: how to keep ranks apart */
/* Writes "rank 2: 188.00 MiB (147 %) more at train.py:56 (step): ...", cleaned; for rows without
 * split. Returns buf, of REPORT_TEXT bytes. */
char *ranks__say_outlier(const struct ranks *r, const struct outlier *o, char *buf);
/* Prints one report of all recordings as text. side: a column for each recording. Returns 0 or
 * -ENOMEM. */
int ranks__text(FILE *out, const struct ranks *r, const struct report_text_opts *o, bool side);
/* Writes one report of all recordings as a JSON object. top: most rows; 0: all. Returns 0 or
 * -ENOMEM. */
int ranks__json(struct json *j, const struct ranks *r, size_t top);
/* Writes an HTML page that shows the document of ranks__json(), for opts with outliers. Returns 0
 * or -ENOMEM; the caller checks ferror(out). */
int ranks__html(FILE *out, const struct ranks *r);
/* Writes the members that identify a recording into the open object. */
void ranks_json__who(struct json *j, const struct rank *k);
/* Prints CSV: a header line and the rows, with a column for each recording. top: most rows; 0:
 * all. */
void ranks__csv(FILE *out, const struct ranks *r, size_t top);
