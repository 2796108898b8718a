/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_WINDOW_ARGS_H
#define MT_SAVE_WINDOW_ARGS_H
/* Which parts of a capture are to be written: the options of `record` and `run` that say it. */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

struct window_args {
	bool given;	   /* any of them */
	uint64_t skip;	   /* whole steps before the first one */
	const char *on;	   /* condition with which one begins; NULL: none */
	const char *until; /* with which it ends */
	const char *from_mark, *to_mark;
	bool wait;	    /* nothing begins but by a signal or by ctl */
	uint64_t every;	    /* ns from one's beginning to the next one's, 0: once */
	uint64_t before;    /* ns to look back */
	unsigned int keep;  /* the newest so many stay, 0: all */
	unsigned int count; /* that many are written and no more, 0: no bound */
	const char *label;  /* what they are called */
	char *growth;	    /* what on points to, where it was made */
};

/* --on-oom: windows of its own kind, each of the time before an out of memory. */
struct oom_args {
	bool on;
	uint64_t window;    /* ns before it; 0: default */
	unsigned int files; /* at most, of each process; 0: default */
};

extern const struct argp oom_argp;    /* its input is a struct oom_args */
extern const struct argp window_argp; /* its input is a struct window_args, all zero */

/* Does one come after the other, until the capture ends? */
bool window_args__repeat(const struct window_args *a);

#endif
