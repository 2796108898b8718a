/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The child processes that the broker exchanges messages with. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/subprocess.h"
#include "serve/server/link.h"

struct broker;

enum peer_kind { PEER_WEB, PEER_PUSH, PEER_LOOK, PEER_NR };

struct peer {
	struct broker *b;
	enum peer_kind kind;
	struct link *link; /* NULL: the process does not run */
	struct subprocess process;
	uid_t uid; /* user and group of the process; PEER_LOOK has the broker's instead */
	gid_t gid;
	bool met;    /* the process was sent the state that existed when it started */
	bool broken; /* the process does not read or violates the protocol: the broker kills it */
	uint64_t begun, again; /* times of the last and of the next start; monotonic, ns */
	unsigned failures;     /* how often in a row the process ended soon after its start */
};

/* Reads and handles the messages of the process; broker.c. */
void peer__pump(struct peer *p);
/* ask.c */
const char *peer__name(enum peer_kind kind);
/* Sends a message. Takes over msg and fd; -1: no descriptor. */
void peer__send(struct peer *p, json_t *msg, int fd);
/* Sends a message to web and push. Takes over msg; the caller keeps fd. soft: sends no descriptor,
 * and may drop the message, because the next one replaces it. */
void peers__tell(struct broker *b, json_t *msg, int fd, bool soft);
