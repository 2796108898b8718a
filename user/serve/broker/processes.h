/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The processes that may be captured, as PEER_LOOK (scanner.h) reports them. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BROKER_PROCESSES 256
#define BROKER_WAITING 32 /* most requests that wait for a search, and that wait for a worker */

struct broker;
struct peer;
struct serve_target;

struct broker_process {
	pid_t pid;
	uint64_t boot_ns; /* start time, see proc__started() */
	char name[96];
	bool stale;  /* reported by a PEER_LOOK that has ended, and not yet by the next one */
	json_t *msg; /* the last message about the process, for web and push */
};

struct processes {
	struct broker_process v[BROKER_PROCESSES];
	size_t n;
	json_t *targets; /* the last message `targets`; NULL: none yet */
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
 * The process that a request names by its pid or model_name; *target: its target, or NULL. Returns
 * NULL with *target set if the request names a command's target, which has no process yet. Returns
 * NULL with *target NULL if the request is wrong; it has been refused then.
 */
struct broker_process *processes__find(struct peer *p, json_int_t id, json_t *msg,
				       const struct serve_target **target);
/* Keeps a request about an unknown process until a search for processes has ended, and then calls
 * handle() with it. False: not kept, because the process is known or too many requests wait. */
bool processes__hold(struct peer *p, json_t *msg, void (*handle)(struct peer *p, json_t *msg));
/* Handles the waiting requests. Call when a search has ended, or takes too long. */
void processes__release(struct broker *b);
/* Drops the waiting requests of a peer. */
void processes__forget(struct broker *b, const struct peer *p);
/* A member of the array in the message `targets`. Takes over pids, an array. */
json_t *processes__target(const struct serve_target *t, json_t *pids);
/* Handles a message of PEER_LOOK. */
void processes__report(struct broker *b, json_t *msg);
