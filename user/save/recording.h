/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_RECORDING_H
#define MT_SAVE_RECORDING_H
/*
 * A capture into files: its options, and an output (output.h) for each process. `record` and `run`
 * share it. Logs to standard error.
 */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "follow/capture_loop.h"
#include "record/mtr.h"
#include "record/stream.h"
#include "save/output.h"
#include "save/output_rolling.h"
#include "save/window_args.h"
#include "save/windows.h"

struct control;
struct folder;

struct recording_args {
	const char *output; /* NULL: memtrace-PID-TIME.mtr */
	bool force;
	struct mtr_writer_opts bounds;
	struct oom_args oom;
	struct rolling_args rolling;
	struct window_args windows;
	int tell; /* a descriptor, status_pipe.h; 0: nobody asked */
};

extern const struct argp recording_argp; /* its input is a struct recording_args */

struct recording {
	struct recording_args args;
	struct capture_loop loop; /* loop.args are the caller's; recording__init() sets the rest */
	/* Does this event of the first process go into its file? NULL: all do. May be set once
	 * recording__init() was called. */
	bool (*keep)(void *ctx, const struct event *e);
	void *keep_ctx;
	enum output_kind kind;
	struct output *outputs; /* of the processes that are captured now, oldest first */
	struct output *first;	/* of loop.session; NULL if there is none, and after its end */
	bool failed;		/* the output of another process */
	unsigned int written;	/* windows and rolling folders */
	char path[64];		/* the default name; "" until needed */
	struct folder *folder;	/* of all outputs; NULL: none */
	bool made_folder;	/* it was not there before */
	struct windows_opts window_opts; /* of each process, with OUTPUT_WINDOWS */
	char until[320];		 /* when the capture ends, with windows */
	uint64_t told;			 /* status_pipe.h, ns since the start */
	struct control *control;
	int signals; /* descriptor, -1: none */
};

/* Sets the loop's calls that write files. The caller fills args and loop.args, before or after. */
void recording__init(struct recording *r);
/*
 * Opens the process, then its output (so that a full disk or a file that is there costs nothing),
 * captures to the end and prints a summary. A file that nothing was recorded into is removed. An
 * exit code, logged; the session is still there afterwards.
 */
int recording__run(struct recording *r);
/* Are more processes than one recorded, by --children or by the choice of processes? */
bool recording__of_several(const struct recording *r);

#endif
