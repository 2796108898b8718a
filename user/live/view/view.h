/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The live view of a running capture; shared by view.c and view_do.c. */
#include <stdbool.h>
#include <stdint.h>

#include "capture/capture_loop.h"
#include "live/rows/state.h"
#include "live/view/save.h"

struct control;
struct tty;
struct live_args;
struct screen;
struct session;

struct view {
	const struct live_args *args;
	struct tty *tty;
	struct screen *screen;
	struct live_state state;
	struct capture_loop loop;
	int clock, signals;
	uint64_t begun;	   /* start of the view, ns, monotonic */
	uint64_t rows_due; /* earliest next refresh of the rows, ns, monotonic */
	unsigned refreshes;
	bool gone;		     /* the terminal is gone */
	bool quit;		     /* the user asked to quit */
	bool failed;		     /* a refresh ran out of memory */
	int err;		     /* negative error that ended the capture of a process */
	struct subprocess exporting; /* a running export */
	struct control *control;     /* control socket; NULL: none */
};

struct source {			 /* capture of a process: owner of its struct live_proc */
	struct session *session; /* running capture; NULL: it is over */
	struct live_save *save;
	bool first;  /* the process of -p */
	bool listed; /* in the list of processes */
};

/* The process's capture; NULL if p is NULL. */
struct source *view__source(const struct live_proc *p);
void view__add_source(struct view *v, int fd, void (*ready)(void *ctx));
void view__drop_source(struct view *v, int fd);
void view__take_errors(struct view *v); /* shows errors written to standard error by others */

/* Save or mark, and show a message. True on success. */
bool view__save(struct view *v, struct live_proc *p);
bool view__mark(struct view *v, struct live_proc *p, const char *name);
/* Shows a message for each new mark, whoever set it. */
void view__say_marks(struct view *v);
/* Exports the process's last file. Saves a file first if necessary. */
void view__export(struct view *v, const char *format);
/* Opens the socket for `memtrace-bpf ctl`, if possible. */
void view__open_control(struct view *v);
