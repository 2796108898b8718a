/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The privileged process of `serve`: docs/internals/SERVE.md, "The processes". Its one loop never
 * blocks: slow work runs in other processes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "serve/broker/peers.h"
#include "serve/broker/processes.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"
#include "serve/server/listen.h"
#include "serve/serve.h"

#define BROKER_ABANDONED 16 /* most killed processes that have not ended yet */

struct job;
struct scan_guard;

struct broker {
	const struct serve_args *args;
	struct store store;
	struct listen_at listens[SERVE_LISTEN];
	size_t n_listens;
	struct peer peers[PEER_NR];
	struct scan_guard *guard;		       /* memory shared with PEER_LOOK */
	struct subprocess abandoned[BROKER_ABANDONED]; /* killed peers that have not ended */
	struct processes processes;
	struct traces traces;
	struct job *jobs; /* oldest first */
	struct {
		bool own;  /* each process without rights gets its own user and group ID */
		uid_t uid; /* for all processes without rights if not `own` */
		gid_t gid;
	} ids;
	char command_user[64]; /* user of commands; "": the server's own */
	bool can_trace;
	char why[256];	    /* reason if not can_trace */
	double start;	    /* s since 1970 */
	uint64_t next_tell; /* when to send facts of running captures again; monotonic, ns */
	int signals;	    /* signalfd */
	bool quit;
	int status; /* exit code */
};

/* Adds the recordings that exist when the server starts, in its folder and on the command line, to
 * the table of traces. Returns 0 or an exit code, logged. */
int broker_saved__take(struct broker *b);
