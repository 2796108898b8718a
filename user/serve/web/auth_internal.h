/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_AUTH_INTERNAL_H
#define MT_SERVE_WEB_AUTH_INTERNAL_H
/* What the files of the guard share: its peers, its sessions, its names. */
#include "lib/hash.h"
#include "serve/web/auth.h"

#define SETS 256
#define WAYS 8
#define SESSIONS 64
#define SESSION_ID 32 /* hexadecimal digits, of 128 random bits */
#define FAILURES 10   /* wrong tokens that a peer may try at once, and then each minute */
#define HOUR (3600 * UINT64_C(1000000000))

enum bucket_kind { BUCKET_ALL, BUCKET_COSTLY, BUCKET_FAILURES, BUCKETS };

/* What a bucket holds, and how fast it fills; most 0: without bound. */
struct rate {
	double most, per_second;
};

struct peer {
	struct auth_peer who;
	bool used;
	double spent[BUCKETS]; /* of the bucket's most, at `time` */
	uint64_t time;
	unsigned connections, costly;
	uint64_t heard; /* of this machine: when the right token was heard after too many wrong ones
			 */
};

struct session {
	char id[SESSION_ID + 1]; /* "": none */
	uint64_t begun, used;
};

struct auth {
	bool wants_token, tls, local;
	/* Padded to one length, so that a comparison takes the same time whatever differs. */
	unsigned char token[SECRET_TOKEN_MAX];
	size_t token_len;
	char **hosts; /* NULL-terminated */
	char machine[128];
	char cookie[64]; /* its name */
	unsigned per_minute;
	struct rate rates[BUCKETS];
	struct hash_seed seed;
	struct peer peers[SETS][WAYS];
	/* All those for whom there is no place: nobody loses one by being pushed out, so nobody has
	 * their past forgotten by coming from many addresses. */
	struct peer others;
	unsigned connections, costly;
	struct session sessions[SESSIONS];
};

/* ---- auth_peers.c ---- */
/* The place of a peer, or that of all others; never NULL. */
struct peer *auth__find(struct auth *g, const struct auth_peer *p, uint64_t now);
/* Takes one; 0, or the seconds until there is one again, and nothing is taken. */
unsigned auth__take(struct auth *g, struct peer *p, enum bucket_kind kind, uint64_t now);
/* The seconds until there is one; 0: there is. */
unsigned auth__ask(const struct auth *g, const struct peer *p, enum bucket_kind kind);
void auth__set_rates(struct auth *g, unsigned per_minute);
/* One more costly request in work; false: too many are. */
bool auth__begin_costly(struct auth *g, struct peer *p);

/* ---- auth_token.c ---- */
bool auth__is_token(const struct auth *g, const char *text, size_t len);
/*
 * 0: the token is right (and is taken); else 401, or 429 with v->retry_after: too many wrong ones
 * came from there. On loopback, where one user's wrong tokens would shut all others out, the right
 * one is heard once a second whatever came before.
 */
int auth__try_token(struct auth *g, struct peer *p, const struct guard_request *r,
		    const char *token, struct guard_verdict *v);
bool auth__has_session(struct auth *g, const struct guard_request *r);
int auth__set_token(struct auth *g, const char *token);

#endif
