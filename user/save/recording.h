/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_RECORDING_H
#define MT_SAVE_RECORDING_H
/*
 * A capture into a .mtr file: its options, its output file, what is said of it at the end. What
 * `record` and `run` have in common. Speaks to the person on standard error.
 */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "follow/capture_loop.h"
#include "record/mtr.h"
#include "record/stream.h"
#include "save/recording_oom.h"
#include "save/recording_rolling.h"
#include "save/window_args.h"
#include "save/windows.h"

struct control;
struct folder;
struct folder_entry;
struct outfile;

struct recording_args {
	const char *output; /* NULL: memtrace-PID-TIME.mtr */
	bool force;
	struct mtr_writer_opts bounds;
	struct oom_args oom;
	struct ring_args ring;
	struct window_args windows;
	int tell; /* a descriptor, status_pipe.h; 0: nobody asked */
};

extern const struct argp recording_argp; /* its input is a struct recording_args */

struct recording {
	struct sink sink; /* first: the sink is the recording */
	struct recording_args args;
	struct capture_loop loop; /* the caller's: args, and what only it wants to be called for */
	/* Of the only process: does this event go into the file? NULL: they all do. May be set once
	 * recording__init() was called. */
	bool (*keep)(void *ctx, const struct event *e);
	void *keep_ctx;
	struct outfile *file;
	struct mtr_writer *writer;
	uint64_t last_flush; /* ns since the start */
	uint64_t told;	     /* likewise; status_pipe.h */
	int write_err;	     /* of the file, negative */
	char path[64];
	char *child_path;      /* of another process's than the first */
	struct recording *of;  /* of such a one: the first, or that of all */
	bool some_failed;      /* of those */
	struct folder *folder; /* of windows, or that the files of all processes lie in; NULL: there
				  is none */
	bool made_folder;      /* it was not there before */
	struct folder_entry *entry;  /* this process's */
	int said;		     /* why there is no file, logged */
	struct ring_recording *ring; /* with --rolling, likewise */
	struct oom_recording *oom;   /* with --on-oom: writes instead of the above */
	/* Where only windows are written: instead of the above, too. */
	bool window_mode;
	struct windows *windows;
	struct windows_opts window_opts; /* of each process */
	char until[320]; /* when the windows' capture ends, for what is said at its beginning */
	/* What tells it what to do while it runs. */
	struct control *control;
	int signals;			  /* descriptor, -1: none */
	struct recording *members, *next; /* the other processes that are captured now, of the
					     first; the next of them */
};

/* Sets the sink and the loop's calls that write the file; the caller fills args and loop.args. */
void recording__init(struct recording *r);
/*
 * Opens the process, then the file (so that a full disk or a file that is there costs nothing),
 * captures to the end and says what was written. A file that nothing was recorded into is removed.
 * Exit code, logged; the session is still there afterwards. Of several processes
 * (capture_loop__many()): a file each, once there is something to be written.
 */
int recording__run(struct recording *r);
/* The file's name: as given, or made from the process and the time. Owned by r. */
const char *recording__path(struct recording *r);

#endif
