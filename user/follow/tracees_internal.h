/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_FOLLOW_TRACEES_INTERNAL_H
#define MT_FOLLOW_TRACEES_INTERNAL_H
/* What the parts of tracees.h share: what is told of and pumped (tracees.c), a process's states
 * (tracees_state.c), who is in (tracees_find.c). */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/proc_group.h"
#include "capture/queue.h"
#include "follow/tracees.h"

#define STRANGERS_MAX 1024
#define RELATIVES_MAX (2 * MT_WATCHED) /* some have ended, and that has not been dealt with */

enum state {
	FORKED,	 /* by one that is traced, and has not done anything of interest */
	WATCHED, /* has nothing to be traced */
	WAITING, /* for PyTorch */
	TRACED,
	OVER, /* its bounds were met */
};

struct tracee {
	struct tracees *all;
	pid_t pid, parent;
	size_t slot;	 /* in tracees.at */
	uint32_t number; /* of capture/proc_group.h; 0: it is only watched */
	enum state state;
	unsigned int times; /* it was traced */
	struct session *session;
	struct session *forked_by;
	void *output;
	struct sink *sink;
	uint64_t forked;   /* CLOCK_MONOTONIC, ns */
	uint64_t diverged; /* from the process of forked_by, the same */
	uint64_t next;	   /* when to look at it */
	uint64_t since;	   /* CLOCK_MONOTONIC, ns: in, or its exec */
	uint64_t end;	   /* the same, of the process; known once told_end */
	struct queue early;
	struct probes *early_from;
	bool picked;		  /* it is meant itself, and not one that such a one has started */
	bool is_child;		  /* started by one that is in, as far as is known */
	bool lacks_number;	  /* forked by one that is recorded when no number was left */
	bool has_events;	  /* in early, or some that found no room there */
	bool told_exec, told_end; /* by the kernel side */
	bool execed, ended;	  /* and all that was recorded before has come in */
};

/* Who was there when we looked last, in order: those are not looked at again soon. */
struct seen {
	pid_t pid;
	uint64_t pages; /* of its address space, where it could come to have PyTorch; 0: it was not
			   looked at for that */
};

struct tracees {
	struct tracees_opts opts;
	pid_t first_pid; /* 0: there is no first one */
	uint32_t first_number;
	struct session *first;
	struct tracee *at[RELATIVES_MAX]; /* below top, with gaps */
	size_t top;
	struct tracee *numbered[MT_MEMBERS]; /* those that have a number */
	uint32_t retired[MT_MEMBERS]; /* numbers that are nobody's any more, and may be in the rings
				       */
	size_t n_retired;
	bool short_said; /* that no number was left */
	int wake;
	size_t traced, ever;
	uint64_t begin; /* CLOCK_MONOTONIC, ns: of the first attach */
	uint64_t next_look, missed_said;
	uint64_t unrecorded; /* processes that ended while they lacked a number; not reported yet */
	bool scanned;
	/* Where some are picked: */
	pid_t stranger[STRANGERS_MAX]; /* that run another program, and are to be looked at */
	size_t n_strangers;
	bool too_many_strangers;
	uint64_t untold;
	struct seen *seen;
	size_t n_seen;
	uint64_t next_scan;
	unsigned int scans;
	bool full_said;
	struct probes *kept; /* programs that whoever comes next shares, also where nobody has them
				any more */
};

uint64_t tracees__clock(void); /* CLOCK_MONOTONIC, ns */
/* Who is in under this PID and has not ended; NULL: nobody. */
struct tracee *tracees__find(const struct tracees *r, pid_t pid);
/* Its session may have taken a number. */
void tracees__numbered(struct tracee *p);
/* It has no number any more, which is free again when what is in the rings has come in. */
void tracees__retire(struct tracee *p);
/* One more, which has this number already, or 0. NULL: no room, and the number is free again. */
struct tracee *tracees__add(struct tracees *r, pid_t pid, pid_t parent, uint32_t number);
/* Sets of programs come with sessions. */
void tracees__know_sets(struct tracees *r);

/* tracees_state.c */
/* Of one that was forked: its records go into its queue from now on. */
int tracee__on_early(void *tracee, const void *rec, size_t len);
void tracee__open_forked(struct tracee *p);
void tracee__open_all_forked_by(struct tracees *r, const struct session *s);
/* From now on it is looked at whether PyTorch comes. */
void tracee__await(struct tracee *p);
/* False: it is gone, as it is none of them any more. */
bool tracee__after_exec(struct tracee *p);
/* What has happened to it, and what it has recorded. It may be gone after that. */
void tracee__pump(struct tracee *p, uint64_t now);
/* Traced no more; it stays what it is. reason and err: as session__finish() and the output's end
 * have them. */
void tracee__finish(struct tracee *p, const char *reason, int err);
/* Not one of them any more. */
void tracee__remove(struct tracee *p, const char *reason);

/* tracees_find.c */
/* Is this process one of them, that one of them has forked? Asked when the kernel side has put it
 * in. */
bool tracees_find__keeps_forked(struct tracees *r, pid_t pid);
/* One that was in, and runs another program: is it still? */
bool tracees_find__keeps_execed(struct tracee *p);
/* One that is traced from now on. */
void tracees_find__traced(const struct tracee *p);
/* Those that one has started already, unless children are none of our business. */
void tracees_find__descendants(struct tracees *r, pid_t pid);
/* Who is to be in and is not yet. Now and then. */
void tracees_find__others(struct tracees *r, uint64_t now);
/* It is in no more. */
void tracees_find__gone(const struct tracee *p);

#endif
