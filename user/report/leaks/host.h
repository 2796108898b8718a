/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Growth of host memory that no line of the program has: private copies of shared pages, and
 * PyTorch's cache of pinned memory. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json;
struct leaks_opts;
struct model;

struct leaks_host {
	bool copies;	    /* private memory grows, and resident memory does not */
	bool copied_before; /* private memory grew likewise, and does not go on growing */
	double copied;	    /* bytes a second */
	uint64_t from, to;  /* private memory at the first reading and at the last */
	bool pinned;	    /* pinned memory grows, and most of the growth is cached */
	bool pinned_before; /* it grew likewise, in too few readings to say whether it goes on */
	double pinned_rate; /* bytes a second */
	uint64_t pinned_first, readings;
	uint64_t pinned_all, cached;
};

/* Judges the readings of a recording. */
void leaks_host__judge(const struct model *m, const struct leaks_opts *o, struct leaks_host *ret);
/* Writes the members "private_grows" and "pinned_cache_grows" of the open object. */
void leaks_host__json(struct json *j, const struct leaks_host *h);
/* Prints a sentence for each. who: " of rank 1", or "". */
void leaks_host__say_copies(FILE *out, size_t width, const struct leaks_host *h, const char *who);
void leaks_host__say_pinned(FILE *out, size_t width, const struct leaks_host *h, const char *who);
