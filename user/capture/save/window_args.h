/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Options of `record` and `run` that choose which windows or parts of a capture are written. */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

struct window_args {
	bool given;	   /* some option was given */
	bool chosen;	   /* an option that chooses windows was given: any but --label */
	uint64_t skip;	   /* whole steps before the first window */
	const char *on;	   /* condition that begins a window; NULL: none */
	const char *until; /* condition that ends a window; NULL: none */
	const char *from_mark, *to_mark; /* marks that begin and end a window; NULL: none */
	bool wait;			 /* only signals and ctl begin windows */
	uint64_t every; /* ns between the beginnings of two windows; 0: one window */
	/* --at: the first window begins at this moment of the wall clock (ns since 1970), or at the
	 * next multiple of align (ns); 0: not given */
	uint64_t at, align;
	uint64_t before;    /* ns of earlier events in each window */
	unsigned int keep;  /* number of newest windows to keep; 0: all */
	unsigned int count; /* number of windows to write; 0: no limit */
	const char *label;  /* name of the windows */
	char *growth;	    /* text of `on` that --on-growth made, owned; NULL: none */
};

struct rolling_args {
	uint64_t size;	     /* bytes; 0: no --rolling */
	uint64_t part_bytes; /* size of a part with --rolling; 0: default */
};

/* Options of --on-oom and --on-kill, whose windows end with an out-of-memory error or with the
 * process. */
struct oom_args {
	bool on, kill;	    /* --on-oom, --on-kill */
	uint64_t window;    /* ns before the error or the end; 0: default */
	unsigned int files; /* files per process at most; 0: default */
};

extern const struct argp rolling_argp; /* its input is a struct rolling_args */
extern const struct argp oom_argp;     /* its input is a struct oom_args */
extern const struct argp window_argp;  /* its input is a struct window_args, all zero */

/* True if windows follow each other until the capture ends. */
static inline bool window_args__repeat(const struct window_args *args)
{
	return args->count != 1 && (args->every || args->on || args->from_mark || args->wait);
}
