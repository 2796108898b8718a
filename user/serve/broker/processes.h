/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The processes that may be captured, as the process that looks reports them. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BROKER_PROCESSES 256
#define BROKER_WAITING 32 /* requests of each sort that may wait */

struct broker;
struct peer;
struct serve_target;

struct broker_process {
	pid_t pid;
	uint64_t boot_ns; /* start time, see proc__started() */
	char name[96];
	bool stale;  /* its reporter has ended; the next one may not know it */
	json_t *msg; /* the last report, for other peers */
};

struct processes {
	struct broker_process v[BROKER_PROCESSES];
	size_t n;
	json_t *targets; /* the last report of all targets; NULL: none yet */
	/* Requests about unknown processes. They wait for one search for processes. */
	struct held {
		struct peer *peer;
		json_t *msg;
		void (*handle)(struct peer *p, json_t *msg);
	} held[BROKER_WAITING];
	size_t n_held;
	bool scanning;	     /* a search is under way */
	uint64_t scan_until; /* its deadline, monotonic, ns */
};

/*
 * The process that a request means by its pid or model_name. NULL: refused, unless *target is set:
 * the request means this target, which is a command. Otherwise *target is the target of the
 * process; NULL: none.
 */
struct broker_process *processes__find(struct peer *p, json_int_t id, json_t *msg,
				       const struct serve_target **target);
/* Keeps a request about an unknown process until a search for processes has ended. Then handle()
 * gets it. False: the process is known, or too many requests wait. */
bool processes__hold(struct peer *p, json_t *msg, void (*handle)(struct peer *p, json_t *msg));
/* Handles the waiting requests: a search has ended, or takes too long. */
void processes__release(struct broker *b);
/* Drops the waiting requests of a peer. */
void processes__forget(struct broker *b, const struct peer *p);
/* A target of the message `targets`. Takes over pids, an array. */
json_t *processes__target(const struct serve_target *t, json_t *pids);
/* Handles a message of the process that looks. */
void processes__report(struct broker *b, json_t *msg);
