/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_VIEW_H
#define MT_LIVE_VIEW_H
/* The live view of a capture under way, for view.c and view_do.c alone. */
#include <stdbool.h>
#include <stdint.h>

#include "follow/capture_loop.h"
#include "live/save.h"
#include "live/state.h"

struct control;
struct tty_restore;
struct live_args;
struct screen;
struct session;

struct view {
	const struct live_args *args;
	struct tty_restore *guard;
	struct screen *screen;
	struct live_state state;
	struct capture_loop loop;
	struct live_proc *first; /* the process that was asked for ... */
	bool listed;		 /* ... and there is something of it to be shown */
	int clock, signals;
	uint64_t begun;	   /* of the view: ns, monotonic */
	uint64_t rows_due; /* when rows may be taken again */
	unsigned refreshes;
	bool gone;   /* the terminal is */
	bool quit;   /* the person has asked for it */
	bool failed; /* out of memory while it refreshed */
	struct live_export exporting;
	struct control *control; /* NULL: there is no socket */
};

struct source {			 /* of a process: owner of its struct live_proc */
	struct session *session; /* NULL: it is over */
	struct live_save *save;
};

struct source *view__source(const struct live_proc *p); /* NULL: p is */
void view__add_source(struct view *v, int fd, void (*ready)(void *ctx));
void view__drop_source(struct view *v, int fd);
void view__take_errors(struct view *v); /* what others than log.h had to say */

/* What came of it is said on the line of events. True: there is a file, a mark. */
bool view__save(struct view *v, struct live_proc *p);
bool view__mark(struct view *v, struct live_proc *p, const char *name);
/* Of the last file of the process that is shown, which is made if there is none. */
void view__export(struct view *v, const char *format);
/* The socket for `memtrace-bpf ctl`, where there can be one. */
void view__open_control(struct view *v);

#endif
