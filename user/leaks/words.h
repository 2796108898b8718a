/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LEAKS_WORDS_H
#define MT_LEAKS_WORDS_H
/* Words for what grows, of one recording and of several. All that comes from the target is cleaned.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/growth.h"

/* Broken at spaces; "first" in front, and "rest" in front of the lines after it. */
void leaks__paragraph(FILE *out, size_t width, const char *first, const char *rest, const char *fmt,
		      ...) __attribute__((format(printf, 5, 6)));
const char *leaks__unit(const struct growth *g); /* "step", "call", "second" */
/* "60 steps", "12 calls of the model", "3.1 s in 155 equal slices"; duration in ns. Returns buf, as
 * those below do. */
const char *leaks__span(const struct growth *g, uint64_t duration, char *buf, size_t size);
/* "58 of 60 steps", "120 of 130 stretches of 4 steps" */
const char *leaks__rises(const struct growth *g, const struct trend *t, char *buf, size_t size);
/* The same for a table: "58/60" */
const char *leaks__rose_in(const struct growth *g, const struct trend *t, char *buf, size_t size);
const char *leaks__signed(char *buf, size_t size, double bytes); /* "+4.00 MiB" */
/* Where a row of --by comes from, in so many columns; buf of REPORT_TEXT. */
const char *leaks__where(enum group by, const struct row *r, const char *cwd, char *buf,
			 size_t columns);
unsigned leaks__percent(double share);
/* Of all that a line allocates, the share that stays, for as long as it was followed. */
double leaks__stays(const struct growth_line *l);
void leaks__say_stays(const struct growth *g, const struct growth_line *l, char *buf, size_t size);
/* What the program's objects say of what is there; census: they were read. */
void leaks__say_held(const struct growth_line *l, bool census, char *buf, size_t size);
bool leaks__of_graph(const struct growth_name *n); /* autograd's graph keeps it */
/* Each value, with a bar as long as it is large. */
void leaks__figures(FILE *out, const struct growth *g, const char *title, const uint64_t *v,
		    const struct trend *t);

#endif
