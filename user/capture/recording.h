/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A capture into files, for `record` and `run`: its options, and an output (output.h) for each
 * process. Logs to standard error.
 */
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "capture/capture_loop.h"
#include "capture/control.h"
#include "capture/save/output.h"
#include "capture/save/window_args.h"
#include "capture/save/windows.h"
#include "record/host.h"
#include "record/mtr.h"
#include "record/stream.h"

struct folder;
struct reserve;

struct recording_args {
	const char *output; /* -o; NULL: memtrace-PID-TIME.mtr */
	bool force;
	struct mtr_writer_opts bounds;
	struct oom_args oom;
	struct rolling_args rolling;
	struct window_args windows;
	bool figures; /* --figures: recording.figures makes step figures for the processes' users */
	int tell;     /* socket to which the capture writes its status and figures; 0: none */
};

extern const struct argp recording_argp; /* its input is a struct recording_args */

/* Callbacks about the process loop.args.pid. Each may be NULL. */
struct recording_calls {
	/* The process is attached to, and its facts are known. */
	void (*attached)(void *ctx, struct session *session);
	/* Chooses the events that go into its recording. */
	bool (*keep)(void *ctx, const struct event *event);
	/* Called after each drain. Returns a static reason to end its recording, or NULL. */
	const char *(*over)(void *ctx);
	void *ctx;
};

/* Makes messages about the captured processes while they run, for programs of their users
 * (--figures). The callbacks get what begin() returned. */
struct recording_figures {
	/* A process is about to be captured. NULL: no memory. */
	void *(*begin)(void *ctx, struct session *session, pid_t pid);
	/* Gets each event, also those that the recording leaves out. Returns 0 or -errno. */
	int (*event)(void *process, const struct event *event);
	/* Called when time passed; now: ns since the start. Returns 0 or -errno. */
	int (*tick)(void *process, uint64_t now);
	/* The session is over, after duration ns; frees process. reason: the fact stop_reason. */
	void (*end)(void *process, const char *reason, uint64_t duration);
	struct control_feed feed; /* hands out the messages */
	void *ctx;		  /* of begin() */
};

struct recording {
	struct recording_args args;
	struct capture_loop loop; /* The caller fills loop.args and loop.command. */
	struct recording_calls calls;
	const struct recording_figures *figures; /* with args.figures; borrowed */
	enum output_kind kind;
	struct output *outputs; /* outputs of the processes that are captured now, oldest first */
	unsigned int written;	/* number of windows and rolling folders */
	char path[64];		/* default name; "" until needed */
	struct folder *folder;	/* folder of all outputs; NULL: none */
	bool made_folder;	/* the folder is new */
	struct windows_opts window_opts; /* options of each process's windows */
	char until[320];		 /* condition that ends the capture, with windows */
	uint64_t last_status;		 /* time of the last status, ns since the start */
	uint64_t told;			 /* number of the last message of figures in args.tell */
	struct host_sheet reading;	 /* host memory, from a reading that is not yet complete */
	struct host_sheet ledger;	 /* host memory, from the last complete reading */
	bool has_ledger;		 /* there was a complete reading of host memory */
	struct reserve *reserve;	 /* room for the last files, with --on-kill; NULL: none */
	struct control *control;	 /* socket for `ctl`; NULL: none */
	struct control *figures_feed;	 /* socket for figures; NULL: none */
	int signals;			 /* signalfd; -1: none */
};

/*
 * Opens the process, then its output (so that a full disk or an existing file is known before
 * attaching), captures to the end and prints a summary. Removes files without events. Returns an
 * exit code, logged.
 */
int recording__run(struct recording *recording);

/* Handles a signal to this program: SIGUSR1 and SIGUSR2, as actions of `ctl`. False: it does not
 * concern the recording. */
bool recording__signal(struct recording *recording, int number);
