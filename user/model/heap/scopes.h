/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Scopes: named stretches of a thread's work, each with the memory of all devices while it was
 * open. There are two kinds:
 *
 * - Python functions that the user names (model__add_scope()), found on the stacks of allocations:
 *   a run begins with its thread's first allocation in the function, and ends before the thread's
 *   first allocation outside of it;
 * - named scopes, whose begin and end the program tells (EVENT_SCOPE).
 *
 * run  one time that a scope was open.
 * path the names of a run and of those around it on its thread; the runs of a path are one line of
 *      a report.
 */
#include <stdbool.h>
#include <stdint.h>

#include "model/heap/hash_index.h"
#include "model/heap/steps.h"
#include "model/model.h"

struct dev;
struct rec;
struct site;

#define SCOPE_OPEN 256 /* runs that are open at a time, over all threads */
#define SCOPE_PATHS 4096
#define SCOPE_NAMES 4096 /* names of named scopes */
#define SCOPE_RUNS 8192	 /* the first runs, kept for "#N" and medians */
#define SCOPE_LATE 512	 /* the last runs that ended, for a view of a running program */
#define SCOPE_DEVICES 16 /* further devices have no figures in scopes */

struct open_scope;

/* Bytes of one device in a run, less dev.late at that time. */
struct scope_level {
	bool known;
	bool earlier;	   /* the run began before the first event: start is not known */
	bool kept_unknown; /* also if it was suspended, or its thread is not known */
	uint64_t start, peak, peak_time, peak_event, reserved, end, kept;
	uint64_t run; /* number of the run in its scope, from 1 */
};

struct scopes {
	char *functions[STREAM_SCOPES];
	bool found[STREAM_SCOPES];     /* the function is on a stack */
	uint64_t begun[STREAM_SCOPES]; /* runs of the function, in all paths */
	uint32_t nfunctions;
	bool loaded;	/* the fact was read */
	uint16_t *locs; /* by dict location: a bit for each of its functions; 0: not known */
	size_t nlocs;
	uint64_t *chains; /* by stack: see scopes__chain(); 0: not known */
	size_t nchains;
	struct scope_name {
		struct scope_name_key {
			uint32_t string; /* dict string */
			uint32_t source; /* enum scope_source */
		} key;
		uint64_t begun; /* runs of the scope, in all paths */
	} * names;		/* the named scopes */
	uint32_t nnames;
	size_t capnames;
	struct hash_index name_index;
	struct scope_path {
		uint32_t parent_no; /* index of a path plus 1; 0: none */
		uint32_t scope;	    /* index in functions, or STREAM_SCOPES plus that in names */
		uint32_t depth;	    /* number of paths around it */
		uint64_t earlier;   /* runs that began before the first event */
		char *text;	    /* as row.scope */
		uint64_t begun, ended, time, longest;
		struct scope_level *highest; /* by device number: the run with the highest peak */
		/* For model__scope_recent(): by device number, and the number of runs. */
		struct scope_level *recent;
		uint64_t nrecent;
		uint64_t reserved[SCOPE_DEVICES];
		struct model_scope_host host;
	} * paths;
	uint32_t npaths;
	size_t cappaths;
	struct hash_index index;
	struct scope_run {
		uint32_t path, thread;
		uint64_t number; /* in its scope, from 1 */
		uint64_t begin, end;
		uint64_t steps[STEP_KINDS]; /* steps that ended before it began */
		uint64_t took;		    /* ns, without suspended time */
		bool ended, earlier;
		struct scope_level *levels; /* by device number; NULL before the end */
		uint32_t nlevels;
	} * runs;
	uint32_t nruns;
	size_t capruns;
	/* The last runs that ended: the i-th of all is at i % SCOPE_LATE. NULL before the first. */
	struct scope_late {
		uint32_t path, thread;
		uint64_t number, begin, end;
	} * late;
	uint64_t nlate;			     /* number of all */
	struct open_scope *open[SCOPE_OPEN]; /* in the order in which they began */
	uint32_t nopen;
	uint32_t nnamed;   /* runs of named scopes in open */
	uint64_t left_out; /* runs that a bound left out, or whose begin is not known */
	/* The current event allocates memory in this scope: index of a path plus 1; 0: none.
	 * launcher: ID of the thread that called backward, if one of autograd's threads allocates;
	 * otherwise 0. */
	uint32_t scope_no, launcher;
	uint32_t backward; /* ID of the last thread that allocated in backward; before, of any */
	bool in_backward;  /* its last allocation was in backward */
};

/* Call it before each event. stack, walk: as recorded, not charged to another stack. Begins and
 * ends the runs that the event's stack shows, or that an EVENT_SCOPE tells, and sets
 * m->scopes.scope_no. Returns 0 or -ENOMEM. */
int scopes__before(struct model *m, const struct event *e, uint32_t stack, uint8_t walk);
/* Call it after an event that changed dev, if m->scopes.nopen. */
void scopes__after(struct model *m, const struct dev *dev, const struct event *e);
/* Call it after a reading of the process's host memory, m->host.pub.last. */
void scopes__after_reading(struct model *m);
/* Call it when a block's bytes leave the sums, if m->scopes.nopen. */
void scopes__block_freed(struct model *m, const struct site *s, const struct rec *rec);
/* Ends the runs of functions that are open on a thread that has ended. Returns 0 or -ENOMEM. */
int scopes__end_thread(struct model *m, uint32_t thread);
/* Ends all open runs, after the last event. now: ns. Returns 0 or -ENOMEM. */
int scopes__finish(struct model *m, uint64_t now);
/* Returns the names of a path, as row.scope. */
static inline const char *scopes__text(const struct scopes *s, uint32_t scope_no)
{
	return scope_no ? s->paths[scope_no - 1].text : NULL;
}
void scopes__free(struct scopes *s);
