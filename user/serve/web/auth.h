/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_WEB_AUTH_H
#define MT_SERVE_WEB_AUTH_H
/*
 * Who may ask what, and how often. Knows nothing of the HTTP library; memory is bounded whatever
 * comes, and time is handed in.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "serve/secret.h"

#define AUTH_CONNECTIONS 512 /* open at once, and half of them by one peer */
#define AUTH_COSTLY 64 /* requests with ROUTE_COSTLY in work, and a quarter of them of one peer */

struct auth_opts {
	const char *token; /* NULL: none is needed */
	bool tls;	   /* cookies say Secure, and only pages that came by https are ours */
	const char *const *
		hosts; /* names besides by which clients may call us; NULL-terminated; NULL: none */
	bool local; /* all that we listen on is: then "localhost" is our name, else this machine's
		       is, too */
	uint16_t port;	     /* for the cookie's name: cookies know no ports */
	unsigned per_minute; /* requests of a peer; 0: not bounded. A tenth of it with ROUTE_COSTLY */
};

struct auth;
/* NULL with errno: EINVAL where the token is too short or too long. */
struct auth *auth__new(const struct auth_opts *o);
void auth__free(struct auth *g); /* NULL is fine; the token is wiped */

/* Who is at the other end: an IPv4 address, the first half of an IPv6 one, this machine (loopback,
 * whichever address), or the user behind a Unix socket. */
struct auth_peer {
	unsigned char key[16];
	bool is_unix;
	bool is_local; /* 127.0.0.0/8 or ::1: any user of this machine */
};
/* addr as accept() or the library tells it; fd: the connection's, asked for its user where it is a
 * Unix socket. */
struct auth_peer auth__peer(const struct sockaddr *addr, int fd);

/*
 * A connection begins. If there is no room it is not counted, and auth__left() is not called for
 * it: another one of the same peer has to end first, or any.
 */
enum auth_room { AUTH_ROOM, AUTH_PEER_FULL, AUTH_FULL };
enum auth_room auth__came(struct auth *g, const struct auth_peer *p, uint64_t now);
void auth__left(struct auth *g, const struct auth_peer *p);
/* Do their connections count together? */
bool auth__same_peer(const struct auth *g, const struct auth_peer *a, const struct auth_peer *b);

/* Headers as they came, NULL where there is none. Where one came more than once the request is
 * refused with 400 before this. */
struct guard_request {
	struct auth_peer peer;
	uint64_t now; /* ns, monotonic */
	const char *method;
	const char *host, *origin, *authorization, *cookie;
	const char *fetch_site, *fetch_mode, *fetch_dest; /* Sec-Fetch-... */
	unsigned flags; /* enum route_flags of the route; 0 where there is none */
};

struct guard_verdict {
	int status;	      /* 0: may pass; 400, 401, 403, 429 */
	unsigned retry_after; /* s, with 429 */
	char why[160];	      /* the detail */
	bool costly; /* counts among those in work: auth__done() when it has been answered */
};

/*
 * To be asked once for each request, before its body is taken. With 401 goes the header
 * WWW-Authenticate: Bearer. Host: a name of ours, or any address in figures, which no other site's
 * name can stand for (over a Unix socket, anything). Origin: absent, or as Host. Sec-Fetch-Site:
 * absent, same-origin or none; else only what leads a person's browser to a page.
 */
void auth__check(struct auth *g, const struct guard_request *r, struct guard_verdict *v);
void auth__done(struct auth *g, const struct auth_peer *p, const struct guard_verdict *v);

/* Does this server want a token at all? */
bool auth__wants_token(const struct auth *g);
/* The name of the cookie that stands for it. */
const char *auth__cookie(const struct auth *g);
/*
 * For POST /api/session: with the right token, which is compared in constant time, set_cookie is
 * what to answer with as Set-Cookie (at least 200 bytes). 0; 401 or 429 in v, as auth__check() has
 * it. The route itself is ROUTE_OPEN | ROUTE_CHANGES.
 */
int auth__log_in(struct auth *g, const struct guard_request *r, const char *token, char *set_cookie,
		 struct guard_verdict *v);
/* Ends the session of this request's cookie, if there is one; set_cookie as above takes it away. */
void auth__log_out(struct auth *g, const struct guard_request *r, char *set_cookie);

#endif
