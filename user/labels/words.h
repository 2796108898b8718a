/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LABELS_WORDS_H
#define MT_LABELS_WORDS_H
/* Words that the report formats share. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "record/dict.h"
#include "record/stream.h"

#define REPORT_TEXT                                                                                \
	16640 /* a string of DICT_MAX_STRING bytes with every byte escaped, and some words */

/* Cuts s, in place, to so many columns at a whole character; what was cut shows as "...". Returns
 * s. */
char *words__cut(char *s, size_t columns);
/* Like it, but keeps the end: "...ers.7.self_attn". */
char *words__cut_front(char *s, size_t columns);
/*
 * Where a row's memory comes from, in at most so many columns, cleaned: "net/model.py:336
 * (forward)", "before attach", "native (no Python thread)", "untraced". Paths are shown from the
 * target's folder (cwd) or the installed package on, and cut from the front as far as need be. buf
 * of REPORT_TEXT.
 */
char *words__location(char *buf, const struct row *r, const char *cwd, size_t columns);
/* Likewise in the middle: of names that begin alike the end says which it is. */
char *words__cut_middle(char *s, size_t columns);
/* "net/model.py:336": a place without a function, cleaned, its path as above. buf of REPORT_TEXT. */
char *words__place(char *buf, const char *file, uint32_t line, const char *cwd);
/* "function (file:line)", as it is: for machine formats. buf of REPORT_TEXT. */
char *words__frame(char *buf, const struct dict *d, struct dict_frame f);
/* The module of a row, cleaned: "encoder.layers.0", the class in angle brackets for a root, ""
 * outside. buf of REPORT_TEXT. */
char *words__module(char *buf, const struct row *r);

/* "python (4242)", "" where it is not known; without a number where that is 0. buf of REPORT_TEXT. */
char *words__thread(char *buf, const struct row *r);
/* What a row is of, when rows are made by that: location, module and class, phase ...; before
 * attach it is that. buf of REPORT_TEXT. */
char *words__where(char *buf, const struct row *r, enum group by, const char *cwd, size_t columns);
const char *words__where_title(enum group by); /* of the column with it */

/*
 * The command line of the target, from the fact cmdline: a NULL-terminated array that the caller
 * releases with words__free_cmdline(). NULL: the fact is missing, is empty or is no JSON array of
 * strings, or memory ran out.
 */
char **words__cmdline(const struct facts *f);
void words__free_cmdline(char **argv);

struct report_stacks {
	uint64_t all;
	uint64_t full;	    /* read to the root */
	uint64_t truncated; /* too deep: the outermost frames are missing */
	uint64_t none;	    /* no Python frame to read: native and autograd threads */
	uint64_t failed;    /* all others */
};
void words__stacks(const struct model *m, struct report_stacks *ret);
/* Is it one of those that words__stacks() counts as failed? */
bool words__walk_failed(unsigned walk);
/* Events lost: what the stream says, or the facts, whichever is more. */
uint64_t words__lost(const struct model *m, const struct facts *f);
const char *words__about(enum figure f); /* before a number of bytes: "", "at least ", "about " */
uint64_t words__fact_number(const struct facts *f, const char *key); /* 0: not there */

/* The fact device.<i>.<what> of a device; NULL: not known. */
const char *words__device_fact(const struct facts *f, const struct model_device *d,
			       const char *what);
/* How memory was taken, as people know the call: "cudaMalloc". */
const char *words__how(uint8_t how);
const char *words__segment_kind(const struct segment *s); /* "small", "large", "unknown" */
/* Of the figures at the moment, those that follow. */
struct report_below {
	bool any;	     /* anything is known below the blocks */
	bool segments_known; /* segments are: not only a total */
	int64_t missing;     /* what the allocator says is reserved, less the segments known */
	int64_t nameless;    /* what it says is allocated, less the blocks known */
	int64_t not_seen;    /* of what the driver says is used, at that time: neither reserved nor
				seen taken */
	bool adds_up;
};
struct report_below words__below(const struct model_segments *s);

double words__fragmentation(uint64_t allocated, uint64_t reserved);
/* What rows speak of, as bits 1 << BY_*; split as in struct row_opts. */
unsigned words__speaks_of(enum group by, unsigned split);
char *words__groups(char buf[64], enum group by, unsigned split); /* "module,category" */

#endif
