/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/auth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text.h"
#include "serve/web/route.h"

#define SESSION_IDLE (12 * HOUR)	/* a session ends when it was not used for so long */
#define SESSION_LONGEST (7 * 24 * HOUR) /* longest session, in ns */
#define SECOND UINT64_C(1000000000)
#define COOKIE_VALUES 8 /* cookies of our name that are checked, per request */
#define HOST_MAX 253	/* bytes of the longest name in DNS */
#define BEARER "Bearer"
#define SETS 256	/* sets in the table of peers; a peer's hash chooses its set */
#define WAYS 8		/* entries of a set */
#define SESSIONS 64	/* most sessions */
#define SESSION_ID 32	/* hexadecimal digits, of 128 random bits */
#define WRONG_TOKENS 10 /* wrong tokens that a peer may send at once, and then per minute */
#define HOUR (3600 * UINT64_C(1000000000))

enum bucket_kind { BUCKET_ALL, BUCKET_COSTLY, BUCKET_FAILURES, BUCKETS };

/* A rate limit as a bucket of requests: its capacity (0: no limit) and its refill rate. */
struct rate {
	double capacity, per_second;
};

struct peer {
	struct auth_peer who;
	bool used;
	double spent[BUCKETS]; /* requests missing in each bucket, as of `time` */
	uint64_t time;	       /* ns */
	unsigned connections;
	unsigned costly; /* ROUTE_COSTLY requests that are being handled */
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

/* ---- peers ---- */

/* Request limits per peer, in a table of fixed size. */

struct auth_peer auth__peer(const struct sockaddr *addr, int fd)
{
	struct auth_peer p = { .key = { 0 } };
	struct sockaddr_in6 in6;
	struct sockaddr_in in;
	struct ucred u;
	socklen_t len = sizeof(u);

	if (addr && addr->sa_family == AF_INET) {
		memcpy(&in, addr, sizeof(in));
		p.key[0] = 4;
		memcpy(p.key + 4, &in.sin_addr, 4);
		p.is_local = ntohl(in.sin_addr.s_addr) >> 24 == 127;
	} else if (addr && addr->sa_family == AF_INET6) {
		memcpy(&in6, addr, sizeof(in6));
		p.key[0] = 6;
		/* An IPv6 customer usually has a whole /64 network. */
		memcpy(p.key + 4, &in6.sin6_addr, 8);
		p.is_local = IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
	} else if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &len)) {
		p.is_unix = true;
		p.key[0] = 1;
		memcpy(p.key + 4, &u.uid, sizeof(u.uid));
	}
	/* Any local user can use all of 127.0.0.0/8 and ::1, so all local users are one peer. */
	if (p.is_local) {
		memset(p.key, 0, sizeof(p.key));
		p.key[0] = 127;
	}
	return p;
}

/* A bucket for a quarter of a minute's requests, but at least `least` and at most all of them. */
static struct rate make_rate(double per_minute, double least)
{
	double capacity = per_minute / 4 < least ? least : per_minute / 4;

	return (struct rate){ capacity > per_minute ? per_minute : capacity, per_minute / 60 };
}

/* Sets the limits. per_minute: requests of a peer; 0: no limit. A tenth of them may be costly. */
static void set_rates(struct auth *g, unsigned per_minute)
{
	g->per_minute = per_minute;
	if (per_minute) {
		g->rates[BUCKET_ALL] = make_rate(per_minute, /*least=*/20);
		g->rates[BUCKET_COSTLY] = make_rate(per_minute < 10 ? 1 : per_minute / 10,
						    /*least=*/10);
	}
	g->rates[BUCKET_FAILURES] = (struct rate){ WRONG_TOKENS, WRONG_TOKENS / 60.0 };
}

/* ---- the table ---- */

/* Refills the peer's buckets for the time since the last refill. */
static void refill(const struct auth *g, struct peer *p, uint64_t now)
{
	double seconds = now > p->time ? (now - p->time) / 1e9 : 0;

	for (int i = 0; i < BUCKETS; i++) {
		p->spent[i] -= seconds * g->rates[i].per_second;
		if (p->spent[i] < 0 || !(g->rates[i].capacity > 0))
			p->spent[i] = 0;
	}
	if (now > p->time)
		p->time = now;
}

/* True if dropping the entry gives its peer no advantage: no connections, no costly requests,
 * full buckets. */
static bool is_forgettable(const struct auth *g, struct peer *p, uint64_t now)
{
	if (!p->used)
		return true;
	if (p->connections || p->costly)
		return false;
	refill(g, p, now);
	for (int i = 0; i < BUCKETS; i++) {
		if (p->spent[i] > 0)
			return false;
	}
	return true;
}

static bool is_same_peer(const struct auth_peer *a, const struct auth_peer *b)
{
	return a->is_unix == b->is_unix && !memcmp(a->key, b->key, sizeof(a->key));
}

/* The set of the table that a peer may have an entry in. */
static struct peer *find_set(struct auth *g, const struct auth_peer *p)
{
	return g->peers[hash__bytes(g->seed, p->key, sizeof(p->key)) % SETS];
}

/* The peer's own entry; NULL: it has none. */
static struct peer *find_own_entry(struct auth *g, const struct auth_peer *p)
{
	struct peer *set = find_set(g, p);

	for (int i = 0; i < WAYS; i++) {
		if (set[i].used && is_same_peer(&set[i].who, p))
			return &set[i];
	}
	return NULL;
}

/* The peer's entry, a new one in place of a forgettable entry, or the shared entry `others`. Never
 * NULL. */
static struct peer *find_peer(struct auth *g, const struct auth_peer *p, uint64_t now)
{
	struct peer *set = find_set(g, p);
	struct peer *found = find_own_entry(g, p);

	for (int i = 0; i < WAYS && !found; i++) {
		if (!is_forgettable(g, &set[i], now))
			continue;
		found = &set[i];
		*found = (struct peer){ .who = *p, .used = true, .time = now };
	}
	if (!found)
		found = &g->others;
	refill(g, found, now);
	return found;
}

/* ---- buckets ---- */

/* The seconds until the bucket has a request available; 0: now. */
static unsigned wait_seconds(const struct auth *g, const struct peer *p, enum bucket_kind kind)
{
	const struct rate *r = &g->rates[kind];
	double missing = p->spent[kind] + 1 - r->capacity;

	if (!(r->capacity > 0) || missing <= 0)
		return 0;
	return (unsigned)fmin(fmax(ceil(missing / r->per_second), 1), 3600);
}

/* Takes a request from the bucket and returns 0. If the bucket is empty, takes nothing and
 * returns the seconds until it refills. */
static unsigned take_request(struct auth *g, struct peer *p, enum bucket_kind kind, uint64_t now)
{
	unsigned wait;

	refill(g, p, now);
	wait = wait_seconds(g, p, kind);
	if (!wait && g->rates[kind].capacity > 0)
		p->spent[kind]++;
	return wait;
}

/* ---- connections and costly requests ---- */

/* The peer's count is in its own entry or, without one, in the shared entry. */
enum auth_room auth__connect(struct auth *g, const struct auth_peer *who, uint64_t now)
{
	struct peer *p = find_peer(g, who, now);

	if (p->connections >= AUTH_CONNECTIONS / 2)
		return AUTH_PEER_FULL;
	if (g->connections >= AUTH_CONNECTIONS)
		return AUTH_FULL;
	p->connections++;
	g->connections++;
	return AUTH_ROOM;
}

bool auth__same_peer(const struct auth *g, const struct auth_peer *a, const struct auth_peer *b)
{
	/* Two peers without an entry (NULL) share one. */
	return find_own_entry((struct auth *)g, a) == find_own_entry((struct auth *)g, b);
}

/* The counter to decrease for this peer: the member at offset `which` of its own entry or, if there
 * is no entry or the member is 0, of the shared entry. */
static unsigned *counter_of(struct auth *g, const struct auth_peer *who, size_t which)
{
	struct peer *p = find_own_entry(g, who);
	unsigned *n = p ? (unsigned *)((char *)p + which) : NULL;

	return n && *n ? n : (unsigned *)((char *)&g->others + which);
}

void auth__disconnect(struct auth *g, const struct auth_peer *who)
{
	unsigned *n = counter_of(g, who, offsetof(struct peer, connections));

	if (*n)
		--*n;
	if (g->connections)
		g->connections--;
}

/* Counts a costly request that is about to be handled. False: the limit is reached. */
static bool begin_costly(struct auth *g, struct peer *p)
{
	if (g->costly >= AUTH_COSTLY || p->costly >= AUTH_COSTLY / 4)
		return false;
	g->costly++;
	p->costly++;
	return true;
}

void auth__done(struct auth *g, const struct auth_peer *who, const struct guard_verdict *v)
{
	unsigned *n;

	if (!v->costly)
		return;
	n = counter_of(g, who, offsetof(struct peer, costly));
	if (*n)
		--*n;
	if (g->costly)
		g->costly--;
}

/* ---- tokens and sessions ---- */

/* The token, and the browser sessions that replace it: a browser cannot send the token with
 * every request. */

/* Compares all bytes, so that the time does not depend on where the values differ. */
static bool is_equal(const unsigned char *a, const unsigned char *b, size_t len)
{
	volatile unsigned char differs = 0;

	for (size_t i = 0; i < len; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

/* Sets the token that requests need; NULL: none. Returns 0, or -EINVAL for one of a wrong length. */
static int set_token(struct auth *g, const char *token)
{
	size_t len = token ? strlen(token) : 0;

	if (!token)
		return 0;
	if (len < SECRET_TOKEN_MIN || len > SECRET_TOKEN_MAX)
		return -EINVAL;
	memcpy(g->token, token, len);
	g->token_len = len;
	g->wants_token = true;
	return 0;
}

/* True for the token. Takes the same time for any text. */
static bool is_token(const struct auth *g, const char *text, size_t len)
{
	unsigned char given[SECRET_TOKEN_MAX] = { 0 };
	bool is_long = len > sizeof(given);
	bool same;

	memcpy(given, text, is_long ? sizeof(given) : len);
	same = is_equal(given, g->token, sizeof(given));
	explicit_bzero(given, sizeof(given));
	return same & (len == g->token_len);
}

/*
 * Returns 0 if the token is correct, 401 if it is wrong or NULL, or 429 with v->retry_after after
 * too many wrong tokens from this peer. All local users share one peer entry. So that one user's
 * wrong tokens do not lock out the others, a correct token from loopback is accepted once per
 * second even then.
 */
static int try_token(struct auth *g, struct peer *p, const struct guard_request *r,
		     const char *token, struct guard_verdict *v)
{
	bool may_override = r->peer.is_local && r->now >= p->override + SECOND;
	bool is_right, locked_out;

	v->retry_after = wait_seconds(g, p, BUCKET_FAILURES);
	locked_out = v->retry_after != 0;
	is_right = (!locked_out || may_override) && token && is_token(g, token, strlen(token));
	if (locked_out && !is_right)
		return 429;
	if (is_right) {
		p->override = locked_out ? r->now : p->override;
		v->retry_after = 0;
		return 0;
	}
	take_request(g, p, BUCKET_FAILURES, r->now);
	return 401;
}

bool auth__wants_token(const struct auth *g)
{
	return g->wants_token;
}

/* ---- sessions ---- */

/* True for an unused entry, and for a session that has ended. */
static bool has_expired(const struct session *s, uint64_t now)
{
	return !*s->id || now > s->used + SESSION_IDLE || now > s->begun + SESSION_LONGEST;
}

/* The session with this ID; NULL: none. */
static struct session *find_session(struct auth *g, const char *id, uint64_t now)
{
	struct session *found = NULL;

	/* Check all sessions, so that the time does not depend on which session matches. */
	for (size_t i = 0; i < SESSIONS; i++) {
		struct session *s = &g->sessions[i];

		if (is_equal((const unsigned char *)s->id, (const unsigned char *)id, SESSION_ID) &&
		    !has_expired(s, now))
			found = s;
	}
	return found;
}

const char *auth__cookie(const struct auth *g)
{
	return g->cookie;
}

/* Copies the next value of our cookie to id, starting at *at in a Cookie header. False: no more
 * values. */
static bool next_cookie_value(const struct auth *g, const char **at, char id[SESSION_ID + 1])
{
	size_t name = strlen(g->cookie), len;
	const char *value;

	while (**at) {
		*at += strspn(*at, "; \t");
		len = strcspn(*at, ";");
		value = *at;
		*at += len;
		if (len != name + 1 + SESSION_ID || strncmp(value, g->cookie, name) ||
		    value[name] != '=')
			continue;
		memcpy(id, value + name + 1, SESSION_ID);
		id[SESSION_ID] = '\0';
		return true;
	}
	return false;
}

/* The session that a cookie of the request names; NULL: none. */
static struct session *session_of(struct auth *g, const struct guard_request *r)
{
	const char *at = r->cookie; /* a client may send several cookies of this name */
	struct session *s = NULL;
	char id[SESSION_ID + 1];

	for (int i = 0; at && i < COOKIE_VALUES && !s && next_cookie_value(g, &at, id); i++)
		s = find_session(g, id, r->now);
	return s;
}

/* True if the request has a session, whose idle time then starts again. */
static bool has_session(struct auth *g, const struct guard_request *r)
{
	struct session *s = session_of(g, r);

	if (s)
		s->used = r->now;
	return s;
}

#define COOKIE_TEXT 200 /* size of a Set-Cookie header's value, in bytes */

/* Writes the header Set-Cookie that sets our cookie to value, or deletes it (is_deleted). ret:
 * COOKIE_TEXT bytes. */
static void format_cookie(const struct auth *g, const char *value, bool is_deleted, char *ret)
{
	const char *secure = g->tls ? "; Secure" : "";

	snprintf(ret, COOKIE_TEXT, "%s=%s; Path=/; HttpOnly; SameSite=Strict%s%s", g->cookie, value,
		 secure, is_deleted ? "; Max-Age=0" : "");
}

/* The entry for a new session: a free one, otherwise the one whose last use is oldest. */
static struct session *choose_session(struct auth *g, uint64_t now)
{
	struct session *s = &g->sessions[0];

	for (size_t i = 0; i < SESSIONS; i++) {
		if (has_expired(&g->sessions[i], now))
			return &g->sessions[i];
		if (g->sessions[i].used < s->used)
			s = &g->sessions[i];
	}
	return s;
}

int auth__log_in(struct auth *g, const struct guard_request *r, const char *token, char *set_cookie,
		 struct guard_verdict *v)
{
	struct peer *p = find_peer(g, &r->peer, r->now);
	unsigned char random[SESSION_ID / 2];
	struct session *s;

	*v = (struct guard_verdict){ .status = 0 };
	*set_cookie = '\0';
	if (!g->wants_token)
		return 0;
	v->status = try_token(g, p, r, token, v);
	if (v->status == 429)
		snprintf(v->why, sizeof(v->why),
			 "too many wrong tokens from this address; try again in %u s",
			 v->retry_after);
	else if (v->status)
		snprintf(v->why, sizeof(v->why), "wrong token");
	if (v->status)
		return v->status;
	if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
		v->status = 503;
		snprintf(v->why, sizeof(v->why), "cannot get random bytes");
		return v->status;
	}
	s = choose_session(g, r->now);
	*s = (struct session){ .begun = r->now, .used = r->now };
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(s->id + 2 * i, 3, "%02x", random[i]);
	format_cookie(g, s->id, /*is_deleted=*/false, set_cookie);
	return 0;
}

void auth__log_out(struct auth *g, const struct guard_request *r, char *set_cookie)
{
	struct session *s = session_of(g, r);

	if (s)
		explicit_bzero(s, sizeof(*s));
	format_cookie(g, "", /*is_deleted=*/true, set_cookie);
}

/* ---- creation ---- */

/* Copies the accepted names; NULL: none. Returns 0 or -ENOMEM. */
static int copy_hosts(struct auth *g, const char *const *hosts)
{
	size_t n = 0;

	while (hosts && hosts[n])
		n++;
	g->hosts = calloc(n + 1, sizeof(*g->hosts));
	if (!g->hosts)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		g->hosts[i] = strdup(hosts[i]);
		if (!g->hosts[i])
			return -ENOMEM;
	}
	return 0;
}

struct auth *auth__new(const struct auth_opts *o)
{
	struct auth *g = calloc(1, sizeof(*g));
	int err;

	if (!g)
		return NULL;
	g->tls = o->tls;
	g->seed = hash__seed();
	if (!o->local && gethostname(g->machine, sizeof(g->machine) - 1))
		g->machine[0] = '\0';
	/* Browsers accept the prefix __Host- only for cookies set by this host over https. */
	snprintf(g->cookie, sizeof(g->cookie), "%smemtrace_session_%u", o->tls ? "__Host-" : "",
		 o->port);
	set_rates(g, o->per_minute);
	err = set_token(g, o->token);
	if (!err)
		err = copy_hosts(g, o->hosts);
	if (err) {
		auth__free(g);
		errno = -err;
		return NULL;
	}
	return g;
}

void auth__free(struct auth *g)
{
	if (!g)
		return;
	for (char **h = g->hosts; h && *h; h++)
		free(*h);
	free(g->hosts);
	explicit_bzero(g, sizeof(*g));
	free(g);
}

static void refuse(struct guard_verdict *v, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void refuse(struct guard_verdict *v, int status, const char *fmt, ...)
{
	va_list ap;

	v->status = status;
	va_start(ap, fmt);
	vsnprintf(v->why, sizeof(v->why), fmt, ap);
	va_end(ap);
}

/* ---- Host ---- */

/* Splits "name:port" or "[::1]:port"; *six: the name was in brackets. False: text is neither. */
static bool split_host(const char *text, char name[HOST_MAX + 1], bool *six)
{
	const char *end, *rest;
	size_t len;

	*six = *text == '[';
	if (*six) {
		text++;
		end = strchr(text, ']');
		if (!end || strspn(text, "0123456789abcdefABCDEF:.") != (size_t)(end - text))
			return false;
		rest = end + 1;
	} else {
		len = strspn(text,
			     "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_");
		end = rest = text + len;
	}
	len = end - text;
	if (!len || len > HOST_MAX)
		return false;
	memcpy(name, text, len);
	name[len] = '\0';
	if (!*rest)
		return true;
	len = strlen(++rest);
	return rest[-1] == ':' && len <= 5 && strspn(rest, "0123456789") == len;
}

/* True for a numeric address: IPv6 if `six`, otherwise IPv4. It is safe, since DNS rebinding needs
 * a host name. The unspecified address (0.0.0.0, ::) is not accepted. */
static bool is_address(const char *name, bool six)
{
	static const struct in6_addr none6;
	struct in6_addr in6;
	struct in_addr in;

	if (six)
		return inet_pton(AF_INET6, name, &in6) == 1 && memcmp(&in6, &none6, sizeof(in6));
	return inet_pton(AF_INET, name, &in) == 1 && in.s_addr;
}

/* True for localhost, the machine's name and names of --allow-host. Cuts a final dot off name. */
static bool is_our_name(const struct auth *g, char *name)
{
	size_t len = strlen(name);

	if (len > 1 && name[len - 1] == '.')
		name[len - 1] = '\0';
	if (!strcasecmp(name, "localhost") || (*g->machine && !strcasecmp(name, g->machine)))
		return true;
	for (char **h = g->hosts; *h; h++) {
		if (!strcasecmp(name, *h))
			return true;
	}
	return false;
}

/* Rejects foreign host names, because a web page of another site may have pointed its own name
 * at this server (DNS rebinding). */
static bool host_is_ours(struct auth *g, const struct guard_request *r, struct guard_verdict *v)
{
	char name[HOST_MAX + 1], shown[64];
	bool six;

	if (r->peer.is_unix)
		return true;
	if (!r->host || !split_host(r->host, name, &six)) {
		refuse(v, 400, "Host: missing or not a valid name");
		return false;
	}
	if (is_address(name, six) || (!six && is_our_name(g, name)))
		return true;
	text__clean(shown, sizeof(shown), name, strlen(name));
	refuse(v, 403, "Host: '%s' is not a name of this server; allow it with --allow-host",
	       shown);
	return false;
}

/* ---- Origin, Sec-Fetch-Site ---- */

/* True for a request without an Origin header, or with that of this server. */
static bool origin_is_ours(const struct auth *g, const struct guard_request *r)
{
	const char *at = r->origin;

	if (!at)
		return true;
	/* Without our own TLS, both schemes are accepted: a proxy may provide TLS. */
	if (!strncasecmp(at, "https://", 8))
		at += 8;
	else if (!g->tls && !strncasecmp(at, "http://", 7))
		at += 7;
	else
		return false;
	return r->host && !strcasecmp(at, r->host);
}

/* True if the user navigates to the page, by a link or the address bar. The page that contains
 * the link cannot read the answer. */
static bool is_navigation(const struct guard_request *r)
{
	bool reads = !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD");

	if (!reads || r->flags & (ROUTE_CHANGES | ROUTE_COSTLY))
		return false;
	if (!r->fetch_mode || strcmp(r->fetch_mode, "navigate") != 0)
		return false;
	return r->fetch_dest && !strcmp(r->fetch_dest, "document");
}

/* Rejects requests that a page of another site made in the user's browser. */
static bool comes_from_us(const struct auth *g, const struct guard_request *r,
			  struct guard_verdict *v)
{
	if (!origin_is_ours(g, r)) {
		refuse(v, 403, "Origin: requests from pages of other sites are refused");
		return false;
	}
	/* "none": the user asked, not a page. Missing: no browser, or an old one. */
	if (!r->fetch_site || !strcmp(r->fetch_site, "same-origin"))
		return true;
	if (!strcmp(r->fetch_site, "none") || is_navigation(r))
		return true;
	refuse(v, 403, "Sec-Fetch-Site: requests from pages of other sites are refused");
	return false;
}

/* ---- limits and token ---- */

/* Refuses a request because of a limit. wait: seconds until the next one is accepted. costly: the
 * limit of costly requests. */
static void refuse_too_many(const struct auth *g, struct guard_verdict *v, unsigned wait,
			    bool costly)
{
	unsigned most = g->per_minute;

	if (costly)
		most = most < 10 ? 1 : most / 10;
	v->retry_after = wait;
	refuse(v, 429, "too many requests: at most %u a minute%s; try again in %u s", most,
	       costly ? " of this kind" : "", wait);
}

/* The token of "Bearer TOKEN"; NULL: another scheme. */
static const char *bearer_token(const char *authorization)
{
	size_t len = strlen(BEARER);

	if (strncasecmp(authorization, BEARER, len) || authorization[len] != ' ')
		return NULL;
	authorization += len;
	return authorization + strspn(authorization, " ");
}

/* Checks the token or session. False: v has the error. */
static bool is_allowed(struct auth *g, struct peer *p, const struct guard_request *r,
		       struct guard_verdict *v)
{
	const char *token;
	int status;

	if (!g->wants_token || r->flags & ROUTE_OPEN || has_session(g, r))
		return true;
	if (!r->authorization) {
		refuse(v, 401, "send the token: Authorization: Bearer TOKEN");
		return false;
	}
	token = bearer_token(r->authorization);
	status = try_token(g, p, r, token, v);
	if (!status)
		return true;
	if (status == 429) {
		refuse(v, 429, "too many wrong tokens from this address; try again in %u s",
		       v->retry_after);
		return false;
	}
	refuse(v, 401, token ? "wrong token" : "send the token: Authorization: Bearer TOKEN");
	return false;
}

/* Counts a costly request, or sets *v to status 429 if there are too many at once or per minute. */
static void check_costly(struct auth *g, struct peer *p, const struct guard_request *r,
			 struct guard_verdict *v)
{
	unsigned wait;

	if (!begin_costly(g, p)) {
		v->retry_after = 1;
		refuse(v, 429, "too many such requests are running; try again in 1 s");
		return;
	}
	v->costly = true;
	wait = take_request(g, p, BUCKET_COSTLY, r->now);
	if (!wait)
		return;
	auth__done(g, &r->peer, v);
	v->costly = false;
	refuse_too_many(g, v, wait, /*costly=*/true);
}

/* The limit comes first, so that refused requests count, too. */
void auth__check(struct auth *g, const struct guard_request *r, struct guard_verdict *v)
{
	struct peer *p = find_peer(g, &r->peer, r->now);
	unsigned wait;

	*v = (struct guard_verdict){ .status = 0 };
	wait = take_request(g, p, BUCKET_ALL, r->now);
	if (wait) {
		refuse_too_many(g, v, wait, /*costly=*/false);
		return;
	}
	if (!host_is_ours(g, r, v) || !comes_from_us(g, r, v) || !is_allowed(g, p, r, v))
		return;
	if (r->flags & ROUTE_COSTLY)
		check_costly(g, p, r, v);
}
