/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by auth.c, auth_peers.c and auth_token.c. */
#include "base/hash.h"
#include "serve/web/auth.h"

#define SETS 256
#define WAYS 8
#define SESSIONS 64
#define SESSION_ID 32 /* hexadecimal digits, of 128 random bits */
#define FAILURES 10   /* wrong tokens that a peer may send at once, and then per minute */
#define HOUR (3600 * UINT64_C(1000000000))

enum bucket_kind { BUCKET_ALL, BUCKET_COSTLY, BUCKET_FAILURES, BUCKETS };

/* Capacity and refill rate of a rate-limit bucket. most 0: no limit. */
struct rate {
	double most, per_second;
};

struct peer {
	struct auth_peer who;
	bool used;
	double spent[BUCKETS]; /* requests taken from each bucket, as of `time` */
	uint64_t time;
	unsigned connections, costly;
	/* Last time a local peer's correct token was accepted during its lock-out, in ns. */
	uint64_t override;
};

struct session {
	char id[SESSION_ID + 1]; /* ID in the cookie; "": unused entry */
	uint64_t begun, used;
};

struct auth {
	bool wants_token, tls;
	/* Padded with zeroes to a fixed length, so that comparing takes the same time for any
	 * input. */
	unsigned char token[SECRET_TOKEN_MAX];
	size_t token_len;
	char **hosts; /* further accepted names in Host, NULL-terminated */
	char machine[128];
	char cookie[64]; /* name of the session cookie */
	unsigned per_minute;
	struct rate rates[BUCKETS];
	struct hash_seed seed;
	struct peer peers[SETS][WAYS];
	/* Shared entry for peers that have none because their set is full. An entry with history
	 * is never evicted, so a flood of addresses cannot reset a peer's limits. */
	struct peer others;
	unsigned connections, costly;
	struct session sessions[SESSIONS];
};

/* ---- auth_peers.c ---- */
/* The peer's entry, or the shared entry `others`. Never NULL. */
struct peer *auth__find(struct auth *g, const struct auth_peer *p, uint64_t now);
/* Takes a request from the bucket and returns 0. If the bucket is empty, takes nothing and
 * returns the seconds until it refills. */
unsigned auth__take(struct auth *g, struct peer *p, enum bucket_kind kind, uint64_t now);
/* The seconds until the bucket has a request available; 0: now. */
unsigned auth__wait_seconds(const struct auth *g, const struct peer *p, enum bucket_kind kind);
void auth__set_rates(struct auth *g, unsigned per_minute);
/* Counts a costly request as in work. False: the limit is reached. */
bool auth__begin_costly(struct auth *g, struct peer *p);

/* ---- auth_token.c ---- */
/*
 * Returns 0 if the token is correct, 401 if it is wrong, or 429 with v->retry_after after too many
 * wrong tokens from this peer. All local users share one peer entry. So that one user's wrong
 * tokens do not lock out the others, a correct token from loopback is accepted once per second even
 * then.
 */
int auth__try_token(struct auth *g, struct peer *p, const struct guard_request *r,
		    const char *token, struct guard_verdict *v);
bool auth__has_session(struct auth *g, const struct guard_request *r);
int auth__set_token(struct auth *g, const char *token);
