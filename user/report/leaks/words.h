/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Texts about growth for one or several recordings. All text from the target is cleaned. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/growth.h"

struct facts;
struct leaks_opts;

#define LEAKS_SPAN 160 /* a text of leaks__span() */
#define LEAKS_HINT                                                                                 \
	"Rate by request: --per FILE:LINE, a line that allocates one block in each request."

/* Writes the observed length: "60 steps", "12 calls of the model", "60 requests", "3.1 s".
 * duration: ns. Returns buf, as the functions below do. */
const char *leaks__span(const struct growth *g, uint64_t duration, char *buf, size_t size);
/* Writes the length and its kind, for a heading: "60 requests, each a block of serve.py:41 on cpu",
 * "3.1 s in 155 equal slices (no steps)". */
const char *leaks__heading(const struct growth *g, uint64_t duration, char *buf, size_t size);
/* Says that there are too few values: "Too short to judge: 4 steps. Record at least 20, better 60."
 */
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
/* Writes the title of the column with rates: "A step". */
const char *leaks__rate_title(const struct growth *g, char *buf, size_t size);
/* Writes the share of rises: "58 of 60 steps", "120 of 130 intervals of 4 steps". */
const char *leaks__rises(const struct growth *g, const struct trend *t, char *buf, size_t size);
/* Writes the share of rises for a table: "58/60". */
const char *leaks__rose_in(const struct trend *t, char *buf, size_t size);
/* Writes the location of a row of --by, at most this wide; buf: REPORT_TEXT bytes. */
const char *leaks__where(enum group by, const struct row *r, const char *cwd, char *buf,
			 size_t columns);
unsigned leaks__percent(double share);
/* Share of a line's allocations that stay, as long as they were followed. */
double leaks__stays(const struct growth_line *l);
/* The same in percent. *less: "<" if it is 1 for a share below it, otherwise "". */
unsigned leaks__stays_percent(const struct growth_line *l, const char **less);
void leaks__say_stays(const struct growth *g, const struct growth_line *l, char *buf, size_t size);
/* Why memory may have no known holder in a recording: " (the program's objects were not read)"; ""
 * if there is no reason. A static text. */
const char *leaks__no_holder(const struct facts *f);
/* Writes which of the program's objects hold the memory. why: of leaks__no_holder(). */
void leaks__say_held(const struct growth_line *l, const char *why, char *buf, size_t size);
/* Prints each value with a proportional bar. */
void leaks__figures(FILE *out, const struct growth *g, const char *title, const uint64_t *v,
		    const struct trend *t);
