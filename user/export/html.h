/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_HTML_H
#define MT_EXPORT_HTML_H
/*
 * What the files of export html share. A moment is what there was after an event of a device: every
 * event is one, until there are too many of them. Then moments are chosen: the last event of each
 * stretch of time, and those that somebody asks for (the peak, ends of steps, out of memory, --at).
 * What happens between two chosen ones is merged into the later. So memory is bound, however long
 * the recording is.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "export/export.h"
#include "model/model.h"

/* --- html_moments.c */
enum { KEEP_STEP = 1, KEEP_OOM = 2, KEEP_ASKED = 4 };

struct page_moment {
	uint64_t seq, time; /* of the last event in it; time: the latest of all events so far, ns */
	/*
	 * Less model_now.late at that time, unknown plus .told at that time: what later turned out
	 * to have been there all along is added when all is known.
	 */
	int64_t allocated, unknown;
	uint64_t reserved;
	uint32_t keep;
};

/* --- html_curve.c */
struct curve {
	struct curve_part {		/* of the stretches of time, those with an event in them */
		int64_t min, max, last; /* as allocated of a moment */
		uint64_t reserved_max, reserved;
		uint32_t number;
	} * parts;
	size_t n, cap;
	uint64_t width; /* ns */
};
/* After an event; time never goes back. 0 or -ENOMEM. */
int curve__add(struct curve *c, uint64_t time, int64_t allocated, uint64_t reserved);

#define GONE_NEVER 0
struct page_block {
	uint64_t addr;
	uint32_t kin;
	uint32_t born1, gone1; /* 1 + moment; born1 0: before the first; gone1 GONE_NEVER: there at
				  the end */
};

struct passed { /* blocks of a kin that came and went between two moments */
	uint32_t moment, kin;
	uint64_t n;
};

struct page_segment {
	struct model_extent x; /* there: at some moment */
	uint32_t born1, gone1; /* as in struct page_block */
};

struct stretch {
	uint64_t start, end; /* ns */
	int phase;
};

struct page_oom {
	uint64_t number;
	uint32_t moment1;
};

struct page_device {
	uint32_t number; /* the model's */
	struct page_moment *moments;
	size_t n, cap;
	bool open; /* now has what is not in a moment yet */
	struct page_moment now;
	struct page_block *blocks;
	size_t nblocks, capblocks;
	struct passed *passed;
	size_t npassed, cappassed;
	struct passed *open_passed; /* of the open one, by kin */
	size_t nopen, capopen;
	struct map64 *open_at; /* kin -> place in open_passed; NULL: none yet */
	struct page_segment *segments;
	size_t nsegments, capsegments;
	struct map64 *segment_at; /* address -> place in segments, of those that are there */
	struct curve curve;
	struct stretch *stretches;
	size_t nstretches, capstretches;
	struct model_now last;
	uint64_t ooms;
};

#define MOMENTS_CHOSEN 4096 /* stretches of time at most, and at least half of it */

struct limits {
	size_t moments, blocks,
		passed; /* over all devices: beyond them moments are chosen, and then fewer */
	size_t payload; /* bytes of gzip; the file is a third larger, and has to stay below 20 MB */
};

struct page_data {
	struct export_ctx *c;
	struct limits limits, next;  /* next: when to look for fewer */
	struct page_device *devices; /* by the model's number */
	size_t n;
	uint64_t time;	/* latest of all events */
	uint64_t steps; /* that had ended */
	bool chosen;
	uint64_t bucket;   /* ns: the stretches of time that moments are chosen by */
	size_t most_steps; /* whose ends are moments */
	bool asked_passed;
	bool no_addresses; /* they would make the page too large */
	struct event last; /* the model has seen it, we have not looked; kind 0: none */
};

int html_moments__init(struct page_data *p, struct export_ctx *c);
void html_moments__free(struct page_data *p);
/* Before the model sees e. 0 or -errno. */
int html_moments__event(struct page_data *p, const struct event *e);
/* The stream is over, the model finished. */
int html_moments__end(struct page_data *p);
/*
 * html_thin.c. Fewer moments: about half as many as are chosen, or, where each event is one,
 * MOMENTS_CHOSEN; and fewer still, until blocks and what passed are within the limits. -EFBIG:
 * there are no fewer.
 */
int html_thin__moments(struct page_data *p);
int passed__cmp(const void *a, const void *b); /* for qsort(): by moment, then by kin */
/* The moment of the event with number seq, -1: before the first. */
int64_t html_moments__of(const struct page_device *d, uint64_t seq);
/* What there was, with all that was learnt late. */
uint64_t html_moments__allocated(const struct page_device *d, int64_t value);

/* --- html_payload.c: bytes */
struct bytes {
	uint8_t *p;
	size_t n, cap;
	bool failed; /* no memory: what was put is lost */
};
void bytes__free(struct bytes *b);
void bytes__varint(struct bytes *b, uint64_t v);

/* The payload: gzip of a directory (JSON) and columns. *ret is the caller's to free. 0, -ENOMEM. */
int html_payload__make(struct page_data *p, struct bytes *ret);
void html_payload__base64(FILE *out, const struct bytes *b);

/* --- html_rows.c: what blocks are */
struct json;
struct page_rows;
int page_rows__make(const struct page_data *p, struct page_rows **ret);
void page_rows__free(struct page_rows *r);
/* Numbers of row and size of a kin. */
uint32_t page_rows__of_kin(const struct page_rows *r, uint32_t kin);
/* Strings and frames into the open object, and the columns. */
void page_rows__put_words(const struct page_rows *r, struct json *j);
struct page_columns;
void page_rows__put_columns(const struct page_rows *r, struct page_columns *c);

/* Columns of numbers, each with its name in the directory. */
struct page_columns {
	struct page_column {
		char name[24];
		struct bytes bytes;
		uint64_t n;
		bool zigzag;
	} * all;
	size_t n, cap;
	bool failed;
};
/* A new column, of a device of the page (-1: of none); put numbers into it before the next one is
 * added. */
struct page_column *page_columns__add(struct page_columns *c, const char *name, int device,
				      bool zigzag);
void html_payload__put(struct page_column *c, uint64_t v);

/* --- html_head.c: what the page needs at once */
int html_head__put(struct page_data *p);
/* Index in the page of the i-th device of the model, -1: left out. */
int html_head__put_device(const struct page_data *p, size_t i);

#endif
