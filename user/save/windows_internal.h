/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_WINDOWS_INTERNAL_H
#define MT_SAVE_WINDOWS_INTERNAL_H
/* What windows.c (when) and windows_file.c (what becomes of them) share. */
#include "archive/folder.h"
#include "record/flight.h"
#include "save/windows.h"
#include "save/windows_values.h"

struct windows {
	struct sink sink; /* first: the sink is this */
	struct windows_opts opts;
	struct dict *dict;
	const struct facts *facts;
	struct flight *flight;
	struct cond *on, *until;
	struct values *values; /* NULL: there are no conditions */
	bool held; /* what they begin with held when it was judged last: it has to come to hold */
	uint64_t steps; /* ends of steps so far */
	bool at_step;	/* one begins with the next whole step */
	uint64_t skip;	/* ends of steps before that */
	bool planned;	/* which is known by now */
	uint64_t due;	/* ns, the next one of --every */
	uint64_t now;	/* of the last tick */
	/* The one that is open. */
	uint64_t begun;	      /* ns */
	uint64_t begun_steps; /* steps by then */
	bool whole;	      /* it began with a step */
	/* What was written. */
	struct outfile *file;
	char *last; /* path */
	struct window_kept {
		char *name;	       /* in the folder */
		struct folder_gap gap; /* that it leaves */
	} * kept;		       /* oldest first */
	unsigned int n_kept;
	char reason[32]; /* why the last one ended */
	unsigned int written;
	int err;
	bool said;
};

/* windows_file.c: for the recorder's open and done. */
int windows__open_file(void *ctx, unsigned int number);
int windows__file_done(void *ctx, const struct flight_report *r, int err);

#endif
