/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Access control for HTTP requests: which client may call which route, and how often.
 * Independent of the HTTP library. Memory use is bounded. The caller passes the time. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "serve/secret.h"

#define AUTH_CONNECTIONS 512 /* open connections; one peer may have half of them */
/* ROUTE_COSTLY requests handled at the same time; one peer may have a quarter of them */
#define AUTH_COSTLY 64

struct auth_opts {
	const char *token; /* required token; NULL: none */
	bool tls;	   /* Cookies are marked Secure, and only an https Origin is accepted. */
	const char *const *hosts; /* further accepted names in Host; NULL-terminated; NULL: none */
	/* All listening addresses are loopback. The machine's own name is then not accepted in
	 * Host. */
	bool local;
	/* part of the cookie's name, because browsers share cookies between ports */
	uint16_t port;
	/* Requests allowed for each peer per minute; 0: no limit. A tenth of them may be
	 * ROUTE_COSTLY. */
	unsigned per_minute;
};

struct auth;
/* NULL with errno: EINVAL if the token is too short or too long. */
struct auth *auth__new(const struct auth_opts *o);
void auth__free(struct auth *g); /* wipes the token; g may be NULL */

/* The client of a connection: an IPv4 address, the first half of an IPv6 address, this machine
 * (any loopback address), or the user of a Unix socket. */
struct auth_peer {
	unsigned char key[16]; /* first byte: kind of address; from the fifth on: address or UID */
	bool is_unix;
	bool is_local; /* address in 127.0.0.0/8, or ::1: any user of this machine */
};
/* addr: the client's address from accept() or the library. fd: the connection; for a Unix
 * socket, its peer's user ID is read. */
struct auth_peer auth__peer(const struct sockaddr *addr, int fd);

/*
 * Counts a new connection. Anything but AUTH_ROOM: the connection is not counted and must not be
 * passed to auth__disconnect(). AUTH_PEER_FULL: this peer has too many connections. AUTH_FULL: all
 * peers together have too many.
 */
enum auth_room { AUTH_ROOM, AUTH_PEER_FULL, AUTH_FULL };
enum auth_room auth__connect(struct auth *g, const struct auth_peer *p, uint64_t now);
void auth__disconnect(struct auth *g, const struct auth_peer *p);
/* True if the connections of both peers count against the same limit. */
bool auth__same_peer(const struct auth *g, const struct auth_peer *a, const struct auth_peer *b);

/* Header values as received, NULL if absent. The caller rejects repeated headers with 400
 * before. */
struct guard_request {
	struct auth_peer peer;
	uint64_t now; /* current time, ns, monotonic */
	const char *method;
	const char *host, *origin, *authorization, *cookie;
	const char *fetch_site, *fetch_mode, *fetch_dest; /* Sec-Fetch-... headers */
	unsigned flags; /* enum route_flags of the route; 0 if no route matches */
};

struct guard_verdict {
	int status;	      /* HTTP status; 0: allowed; otherwise 400, 401, 403 or 429 */
	unsigned retry_after; /* s, with 429 */
	char why[160];	      /* error detail for the response */
	bool costly; /* The request counts against AUTH_COSTLY. Call auth__done() after the answer. */
};

/*
 * Decides whether a request is allowed. Call once per request, before the body is read. With 401,
 * send the header WWW-Authenticate: Bearer. Accepted values: Host is one of our names or any
 * numeric address (any value over a Unix socket). Origin is absent or equal to Host. Sec-Fetch-Site
 * is absent, same-origin or none; other values are accepted only for a page that the user navigates
 * to.
 */
void auth__check(struct auth *g, const struct guard_request *r, struct guard_verdict *v);
/* Ends the count of a costly request; does nothing for others. */
void auth__done(struct auth *g, const struct auth_peer *p, const struct guard_verdict *v);

/* True if the server requires a token or session for routes without ROUTE_OPEN. */
bool auth__wants_token(const struct auth *g);
/* The name of the session cookie. */
const char *auth__cookie(const struct auth *g);
/*
 * Handles POST /api/session. Compares the token in constant time. On success returns 0 and writes
 * the Set-Cookie value to set_cookie (at least 200 bytes). Otherwise returns 401 or 429, with *v
 * filled as by auth__check(). The route's flags are ROUTE_OPEN | ROUTE_CHANGES.
 */
int auth__log_in(struct auth *g, const struct guard_request *r, const char *token, char *set_cookie,
		 struct guard_verdict *v);
/* Ends the session named by the request's cookie, if any. set_cookie (at least 200 bytes) gets
 * the Set-Cookie value that deletes the cookie. */
void auth__log_out(struct auth *g, const struct guard_request *r, char *set_cookie);
