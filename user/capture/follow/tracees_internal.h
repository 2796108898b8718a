/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Shared by the files of tracees, of which each calls only those after it: the capture and its
 * search for processes (tracees.c), a process's way to its recording (tracees_attach.c), shares
 * (tracees_places.c), beginning and end (tracees_state.c), the table (tracees_table.c).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/capture_loop.h"
#include "capture/decode/queue.h"
#include "capture/pick.h"
#include "capture/probes/proc_group.h"

#define STRANGERS_MAX 1024
#define TRACEES_MAX (2 * MT_WATCHED) /* twice the processes: some have ended and are still listed */

enum state {
	FORKED,	 /* forked by a traced process, without an allocation so far */
	WATCHED, /* without PyTorch */
	WAITING, /* for PyTorch */
	TRACED,
	OVER, /* its bounds were reached */
};

struct tracee {
	struct tracees *all;
	pid_t pid, parent;
	struct owner *owner;
	uint64_t came;	 /* sequence number of its arrival */
	size_t slot;	 /* index in tracees.at */
	uint32_t number; /* number of capture/probes/proc_group.h; 0: only watched */
	enum state state;
	unsigned int times; /* number of its next output, for tracees_output.begin() */
	struct session *session;
	struct session *forked_by;
	void *output;
	struct scene *scene; /* memory when the process ends; NULL: none */
	struct sink *sink;
	/* CLOCK_MONOTONIC, ns. */
	uint64_t forked;   /* time of the fork */
	uint64_t diverged; /* time when the process of forked_by forked it or its ancestor */
	uint64_t next;	   /* time of the next look */
	uint64_t since;	   /* time when its session was opened, or attached */
	uint64_t exec;	   /* time of its last exec */
	uint64_t end;	   /* time of its end; valid with told_end */
	struct queue early;
	struct probes *early_from;
	bool picked;		  /* picked itself, not as a child of a picked process */
	bool given;		  /* see pick__is_given() */
	bool is_child;		  /* started by a process of the capture */
	bool lacks_number;	  /* forked by a recorded process when all numbers were taken */
	bool lacks_probes;	  /* see session__misses_forks() */
	bool has_events;	  /* has records in early, or lost some for lack of room */
	bool told_exec, told_end; /* reported by the kernel */
	bool execed, ended;	  /* reported, and all earlier records were drained */
};

/* A process of the last scan; it is not looked at again soon. */
struct seen {
	pid_t pid;
	uint64_t pages; /* pages of its address space; 0: it cannot have PyTorch */
};

struct tracees {
	struct tracees_opts opts;
	void (*read_records)(void *tracees); /* takes what the kernel reports of a group */
	struct tracee *only;		/* the process of opts.only; NULL: none, or it has left */
	int status;			/* exit code of the first failure, logged; 0: none */
	struct tracee *at[TRACEES_MAX]; /* below top, with gaps */
	size_t top;
	struct tracee *numbered[MT_MEMBERS]; /* processes with a number */
	uint32_t retired[MT_MEMBERS];	     /* numbers that are free once the rings are drained */
	size_t n_retired;
	struct tracee *heir[MT_MEMBERS]; /* gets a retired number; NULL: the number is freed */
	struct owners owners;
	uint64_t came;
	bool short_said; /* a warning about missing numbers was logged */
	int wake;
	size_t traced, ever;
	uint64_t begin; /* first attach, CLOCK_MONOTONIC in ns */
	uint64_t next_look, missed_said;
	uint64_t unplaced;   /* forked processes without a place, in all */
	uint64_t unprobed;   /* processes that ended before they had probes, not reported yet */
	uint64_t unrecorded; /* processes that ended without a number, not reported yet */
	/* For picked processes. */
	pid_t stranger[STRANGERS_MAX]; /* processes that called exec, to be looked at */
	size_t n_strangers;
	bool too_many_strangers;
	uint64_t untold;
	struct seen *seen;
	size_t n_seen;
	struct torch_scan *torch; /* NULL: not needed yet */
	uint64_t next_scan;
	unsigned int scans;
	int nice;	     /* our nice value before it was lowered */
	bool hurries;	     /* it is lowered */
	struct probes *kept; /* programs of the last traced process, for later ones */
};

static inline struct proc_group *group_of(const struct tracees *r)
{
	return r->opts.session.group;
}

/* tracees_table.c */
/* Returns the running process with this PID, or NULL. */
struct tracee *tracees__find(const struct tracees *r, pid_t pid);
/* Takes over the number that the process's session may have got. */
void tracees__numbered(struct tracee *p);
/* Takes the process's number away; it is free again once the rings are drained. */
void tracees__retire(struct tracee *p);
/* Adds a process with this number, or 0. Takes over the owner, which may be NULL for lack of
 * memory. NULL: no room, and the number is free again. */
struct tracee *tracees__add(struct tracees *r, pid_t pid, pid_t parent, uint32_t number,
			    struct owner *owner);
/* Registers the sets of programs that sessions have added. */
void tracees__know_sets(struct tracees *r);
/* The process waits for no number any longer. */
void tracees__disinherit(struct tracee *p);
/* True if the capture wants the process. *later: not known yet. */
bool tracees__picks(struct tracees *r, const struct pick_process *q, bool *later);
/* True if a process stays in the capture: a child that the kernel has added, or one after an exec.
 * Without a group an exec ends the capture. */
bool tracees__keeps(struct tracees *r, pid_t pid);
/* Remembers a traced process for --follow. */
void tracee__remember(const struct tracee *p);
/* Finds the owner of a process again, which may have changed its user before an exec. */
void tracee__find_owner(struct tracee *p);
/* The owner of a process, with a reference. NULL: out of memory. */
struct owner *tracees__owner_of(struct tracees *r, pid_t pid);
/* Whether a process has PyTorch. */
enum torch_scan_is tracees__torch(struct tracees *r, const struct pick_process *q);

/* Tells pick that the process has left. */
static inline void tracee__tell_gone(const struct tracee *p)
{
	if (p->ended)
		pick__ended(p->all->opts.pick, p->pid, p->end);
}

/* tracees_state.c: beginning and end */
/* Queues a record of a forked process. */
int tracee__on_early(void *tracee, const void *rec, size_t len);
void tracee__open_forked(struct tracee *p);
/* Begins the output. Returns 0 or an exit code, logged. */
int tracee__begin_output(struct tracee *p);
/* Ends the session and the output; the process stays. reason and err: as in session__finish() and
 * end(). */
void tracee__finish(struct tracee *p, const char *reason, int err);
/* Ends, removes and frees the process. */
void tracee__remove(struct tracee *p, const char *reason);
/* Begins to trace an attached or forked process. False: its output failed. */
bool tracee__begin(struct tracee *p);

/* Keeps the exit code of the first failure. */
static inline void tracees__fail(struct tracees *r, int status)
{
	if (!r->status)
		r->status = status;
}

/* tracees_attach.c */
/* Begins to wait for PyTorch. Returns 0, or negative with *f. */
int tracee__await(struct tracee *p, struct failure *f);
/* Handles an exec. False: the process was removed and freed. */
bool tracee__after_exec(struct tracee *p);
/* Applies execs and ends, and drains the session. May free the process. */
void tracee__pump(struct tracee *p, uint64_t now);

/* tracees_places.c */
/* Makes room for a process of this owner if all places are taken. May remove and free another
 * process. 0, or -ENOSPC, with a warning: others have no more than their share. */
int tracees_places__make_room(struct tracees *r, struct owner *owner, const struct pick_process *q);
/* Removes forked processes above the number of places, of the owners with the most. */
void tracees_places__trim(struct tracees *r);
/* For a process that waits for a number: takes one from another, which it gets once the rings are
 * drained. */
void tracees_places__make_number(struct tracee *p);
/* Gives a number whose last records were read to the process that it was taken for. False: the
 * number can be freed. */
bool tracees_places__inherit(struct tracees *r, uint32_t number);

/* Takes what the kernel reports about ends, and reads the memory of processes that end now. */
void tracees__read_endings(struct tracees *r);
/* Lets the kernel report the end of a process. Call it before the process is looked at, so that one
 * that ends during the attach has its reason. */
void tracee__follow_ending(struct tracee *p);
/* Sets the fact about the processes that started this one. */
void tracee__set_ancestors(const struct tracee *p);
