/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPORT_RANKS_H
#define MT_REPORT_RANKS_H
/*
 * Several recordings as one report: a line's bytes in all of them, and in each. A recording is taken
 * in when it was read and can be freed then; what is kept are the words and the sums of its rows.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "archive/analysis.h"
#include "model/model.h"
#include "report/outliers.h"
#include "report/text.h"

struct json;
struct ranks;
struct report_fail;

/* Was there ever anything on it? A process that could have used a device is told of with it from
 * the beginning. */
static inline bool rank__uses(const struct model_device *d)
{
	return d->peak_allocated || d->peak_reserved || d->total_allocated;
}

struct rank {		/* a recording */
	uint32_t added; /* place in the order in which they were taken in */
	char *name;
	char label[48]; /* "rank 3", "rank 3 worker 1"; where they are no job as much of the name as
			   there is room for, cleaned */
	char *cwd;	/* NULL: not known */
	char *command;	/* the words of its command line, cleaned; without what is another for each
			   rank */
	uint64_t number, local, world; /* rank, local rank, ranks of the job */
	bool has_number, has_local, has_world;
	/*
	 * A process that one of the others has started to help it, as a DataLoader does: of the
	 * same rank, or, without ranks, by the name that PyTorch gives it. It is a part of the job
	 * and in all sums, but not compared with the others.
	 */
	bool worker;
	bool data_worker; /* has that name */
	uint32_t boss;	  /* of a worker, until ranks__finish(): its place */
	uint64_t pid, parent, events, lost, steps; /* parent 0: not known */
	bool complete;
	char devices[64]; /* "cuda:1", "cuda:0 cuda:1" */
	uint32_t ndevices;
	/* Sums over those devices, each at its own moment. */
	uint64_t allocated, reserved, peak, total_allocated, before_attach;
	uint64_t time;	     /* of the first of them */
	uint64_t drift;	     /* the largest */
	bool has_totals;     /* one of them carries totals, and drift means something */
	bool before_unknown; /* of one of them what was there before attach is not known */
	enum figure is;
	uint64_t rows; /* what its rows add up to */
};

struct rank_line { /* rows of several recordings that say the same */
	struct row
		row; /* bytes, count and cumulative over all recordings; words owned by the ranks */
	uint32_t first, n; /* of its cells, by recording */
	uint64_t min, median,
		max; /* bytes in a recording, 0 in those that do not have it; workers aside */
};

struct rank_cell {
	uint32_t recording, line;
	uint64_t bytes, count;
};

struct ranks_opts {
	enum group by; /* not BY_STACK */
	unsigned split;
	bool words; /* of text: lines by place alone, not by module, phase and category too */
	bool innermost;
	enum moment at;
	uint64_t at_time;
	const struct report_select *select;
	const struct report_fail *fail; /* "failed" in JSON; NULL: nothing was asked for */
};

struct ranks *ranks__new(const struct ranks_opts *o); /* NULL: ENOMEM; *o must outlive it */
void ranks__free(struct ranks *r);
/*
 * Takes in what a recording had at its moment, on one device (its index) or, with -1, on all that
 * it uses but the CPU, or the CPU if it uses nothing else. 0, -ENOMEM; -ENODATA: no memory event in
 * it, and it is only counted.
 */
int ranks__add(struct ranks *r, const struct analysis *a, int device);
/* No more of them: sorts, by rank if they have one, and finds what differs. 0 or -ENOMEM. */
int ranks__finish(struct ranks *r);
/* At least two, of the same command, each with another rank, workers aside, and of as many ranks,
 * as far as they say. */
bool ranks__one_job(const struct ranks *r);

/* After ranks__finish(). */
size_t ranks__count(const struct ranks *r);
const struct rank *ranks__at(const struct ranks *r, size_t i);
size_t ranks__empty(const struct ranks *r); /* recordings without a memory event */
size_t ranks__workers(const struct ranks *r);
size_t ranks__lines(const struct ranks *r,
		    size_t *kept); /* largest first; those that --filter refused behind the kept */
const struct rank_line *ranks__line(const struct ranks *r, size_t i);
/* Bytes of a line in a recording. */
uint64_t ranks__bytes(const struct ranks *r, const struct rank_line *l, size_t recording);
const struct ranks_opts *ranks__opts(const struct ranks *r);
/* Those of all that was allocated first, then by how much they differ. */
size_t ranks__outliers(const struct ranks *r, const struct outlier **ret);
/* Is that one of them? */
bool ranks__differs(const struct ranks *r, const struct rank_line *l, size_t recording);

/* "4 recordings of one job, ranks 0-3 of 4: python train.py" */
void ranks__title(const struct ranks *r, char *buf, size_t size);
/*
 * Names those for which in is true, NULL: all but workers: "rank 2", "ranks 0-3 7", "rank 0 worker
 * 1", where they are no job some of their names. Returns how many there are.
 */
size_t ranks__list(const struct ranks *r, const bool *in, char *buf, size_t size);
/* As one text; side: a column for each recording. 0 or -ENOMEM. */
int ranks__text(FILE *out, const struct ranks *r, const struct report_text_opts *o, bool side);
/* One document, at the place where j stands. top: 0: all rows. */
int ranks__json(struct json *j, const struct ranks *r, size_t top);
/* Its part that says which recording it is, into the open object. */
void ranks_json__who(struct json *j, const struct rank *k);
/* A header line, then the rows, with a column for each recording. */
void ranks__csv(FILE *out, const struct ranks *r, size_t top);

#endif
