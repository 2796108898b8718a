/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Growth in texts and JSON, for one or several recordings. All text from the target is cleaned. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/growth.h"
#include "report/leaks.h"
#include "report/ranks/ranks.h"
#include "report/recording/row_set.h"

/* True if the device is requested. */
static inline bool leaks__wants(const struct leaks_opts *o, const struct model *m, size_t device)
{
	return !o->device || model__find_device(m, o->device) == (int)device;
}

/* ---- words ---- */

#define LEAKS_SPAN 160 /* size of a text of leaks__span() or leaks__heading() */
#define LEAKS_HINT                                                                                 \
	"Rate by request: --per FILE:LINE, a line that allocates one block in each request."

/* Writes the observed length: "60 steps", "12 calls of the model", "60 requests", "3.1 s".
 * duration: ns. Returns buf, as the functions below do. */
const char *leaks__span(const struct growth *g, uint64_t duration, char *buf, size_t size);
/* Writes the length and its kind, for a heading: "60 requests, each a block of serve.py:41 on cpu",
 * "3.1 s in 155 equal slices (no steps)". */
const char *leaks__heading(const struct growth *g, uint64_t duration, char *buf, size_t size);
/* Says that there are too few values: "growth not known in 4 steps: record 100", the words of
 * growth_summary__say(), for several recordings or rows other than lines. */
void leaks__say_short(FILE *out, size_t width, const struct growth *g, const char *span);
/* Writes "no growth from step to step", or what does not: "nothing grew by 1.00 GiB
 * (--min-growth)". */
#define LEAKS_NOTHING 120
const char *leaks__nothing(const struct leaks_opts *o, enum growth_clock clock, char *buf,
			   size_t size);
/* Writes " (+64.0 KiB for each block allocated there)" for a line of a server that leaves a block
 * behind less often than in each call of its model, or without calls; otherwise
 * "". If the line runs once in each request, this is its rate by request. */
const char *leaks__by_block(const struct growth *g, const struct growth_line *l, char *buf,
			    size_t size);
/* Writes the share of rises: "58 of 60 steps", "120 of 130 intervals of 4 steps". */
const char *leaks__rises(const struct growth *g, const struct trend *t, char *buf, size_t size);
/* Writes the location of a row of --by, at most this wide; buf: REPORT_TEXT bytes. */
const char *leaks__where(enum group by, const struct row *r, const char *cwd, char *buf,
			 size_t columns);
/* Share of a line's allocations that stay, as long as they were followed, in percent. *less: "<" if
 * it is 1 for a share below it, otherwise "". */
unsigned leaks__stays_percent(const struct growth_line *l, const char **less);
void leaks__say_stays(const struct growth *g, const struct growth_line *l, char *buf, size_t size);
/* Why memory may have no known holder in a recording: " (the program's objects were not read)"; ""
 * if there is no reason. A static text. */
const char *leaks__no_holder(const struct facts *f);
/* Writes which of the program's objects hold the memory. why: result of leaks__no_holder(). */
void leaks__say_held(const struct growth_line *l, const char *why, char *buf, size_t size);
/* Prints each value with a proportional bar. */
void leaks__figures(FILE *out, const struct growth *g, const char *title, const uint64_t *v,
		    const struct trend *t);

/* ---- growth of host memory that no line of the program has ---- */

/* Private copies of shared pages, and PyTorch's cache of pinned memory. */
struct leaks_host {
	bool copies;	    /* private memory grows, and resident memory (RSS) does not */
	bool copied_before; /* private memory grew and RSS did not, but that growth has ended */
	double copied;	    /* growth of private memory, bytes a second */
	uint64_t from, to;  /* private memory at the first reading and at the last */
	bool pinned;	    /* pinned memory grows, and most of the growth is cached */
	bool pinned_before; /* the same, in too few readings to say whether the growth goes on */
	double pinned_rate; /* growth of pinned memory, bytes a second */
	/* Pinned memory that was taken all the time; count 0: it was not, or was returned. Then
	 * `pinned` follows from it and not from the readings. */
	struct model_pinned taken;
	uint64_t pinned_first, readings; /* pinned bytes at the first reading; number of readings */
	uint64_t pinned_all, cached;	 /* pinned bytes at the last reading; cached part of them */
};

/* Judges the readings of a recording. */
void leaks_host__judge(const struct model *m, const struct leaks_opts *o, struct leaks_host *ret);
/* Writes the members "private_grows" and "pinned_cache_grows" of the open object. */
void leaks_host__json(struct json *j, const struct leaks_host *h);
/* Prints a sentence for each. who: " of rank 1", or "". */
void leaks_host__say_copies(FILE *out, size_t width, const struct leaks_host *h, const char *who);
void leaks_host__say_pinned(FILE *out, size_t width, const struct leaks_host *h, const char *who);

/* ---- several recordings ---- */

/* A device of a recording. */
struct leaks_device {
	uint32_t recording;   /* index of the recording in ranks */
	char name[32];	      /* device name, such as "cuda:2" */
	char kind[32];	      /* kind of device, such as "cuda"; lines are compared within a kind */
	struct growth growth; /* growth on the device, without lines and values */
	uint64_t duration;    /* duration of the recording, ns */
	const char *no_holder;	/* result of leaks__no_holder() */
	struct leaks_host host; /* if the device is "host"; otherwise zero */
	bool pool, others;	/* results of growth__pool_grows() and growth__others_grow() */
	size_t counted;		/* number of lines that grow with the requested confidence */
};

/* A line's growth on one device. */
struct leaks_cell {
	uint32_t device, line; /* indices in leaks_ranks */
	bool counts;	       /* it grows with the requested confidence */
	/* leaks_ranks.set owns its texts. Values are copied for --steps, otherwise NULL. */
	struct growth_line at;
};

/* A line in any of the recordings. */
struct leaks_line {
	const char *kind;
	const char **stack; /* for --by stack: root first, NULL-terminated; otherwise NULL */
	uint32_t first, n;  /* first cell of the line and number of cells, by recording */
	/* Index of the cell that grows most. If there are cells with leaks_cell.counts, one of
	 * those. */
	uint32_t most;
	uint32_t counted; /* number of cells with leaks_cell.counts */
};

struct leaks_ranks {
	const struct leaks_opts *opts;
	struct ranks_opts rank_opts;
	struct ranks *ranks; /* the recordings */
	struct row_set set;  /* the lines' identities, by their index */
	/* Sorted by leaks_ranks__finish(). */
	struct leaks_line *lines;     /* by kind of device, lines that count first, by growth */
	struct leaks_cell *cells;     /* by line */
	struct leaks_device *devices; /* by kind, by recording */
	size_t nlines, room_lines, ncells, room_cells, ndevices, room_devices;
	uint32_t taken; /* recordings with events so far */
};
