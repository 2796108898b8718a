/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Request limits per peer, in a table of fixed size. */
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "serve/web/auth_internal.h"

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

static struct rate rate(double per_minute, double least)
{
	double most = per_minute / 4 < least ? least : per_minute / 4;

	return (struct rate){ most > per_minute ? per_minute : most, per_minute / 60 };
}

void auth__set_rates(struct auth *g, unsigned per_minute)
{
	g->per_minute = per_minute;
	if (per_minute) {
		g->rates[BUCKET_ALL] = rate(per_minute, 20);
		g->rates[BUCKET_COSTLY] = rate(per_minute < 10 ? 1 : per_minute / 10, 10);
	}
	g->rates[BUCKET_FAILURES] = (struct rate){ FAILURES, FAILURES / 60.0 };
}

/* ---- the table ---- */

static void refill(const struct auth *g, struct peer *p, uint64_t now)
{
	double seconds = now > p->time ? (now - p->time) / 1e9 : 0;

	for (int i = 0; i < BUCKETS; i++) {
		p->spent[i] -= seconds * g->rates[i].per_second;
		if (p->spent[i] < 0 || !(g->rates[i].most > 0))
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

static bool is_same(const struct auth_peer *a, const struct auth_peer *b)
{
	return a->is_unix == b->is_unix && !memcmp(a->key, b->key, sizeof(a->key));
}

static struct peer *set_of(struct auth *g, const struct auth_peer *p)
{
	return g->peers[hash__bytes(g->seed, p->key, sizeof(p->key)) % SETS];
}

static struct peer *find_own(struct auth *g, const struct auth_peer *p)
{
	struct peer *set = set_of(g, p);

	for (int i = 0; i < WAYS; i++) {
		if (set[i].used && is_same(&set[i].who, p))
			return &set[i];
	}
	return NULL;
}

struct peer *auth__find(struct auth *g, const struct auth_peer *p, uint64_t now)
{
	struct peer *set = set_of(g, p), *found = find_own(g, p);

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

unsigned auth__wait_seconds(const struct auth *g, const struct peer *p, enum bucket_kind kind)
{
	const struct rate *r = &g->rates[kind];
	double over = p->spent[kind] + 1 - r->most;

	if (!(r->most > 0) || over <= 0)
		return 0;
	over = ceil(over / r->per_second);
	return over < 1 ? 1 : over > 3600 ? 3600 : (unsigned)over;
}

unsigned auth__take(struct auth *g, struct peer *p, enum bucket_kind kind, uint64_t now)
{
	unsigned wait;

	refill(g, p, now);
	wait = auth__wait_seconds(g, p, kind);
	if (!wait && g->rates[kind].most > 0)
		p->spent[kind]++;
	return wait;
}

/* ---- connections and costly requests ---- */

enum auth_room auth__connect(struct auth *g, const struct auth_peer *who, uint64_t now)
{
	struct peer *p = auth__find(g, who, now);

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
	const struct peer *p = find_own((struct auth *)g, a), *q = find_own((struct auth *)g, b);

	return p == q; /* peers without their own entry share one */
}

/* The counter at offset `which` that includes this peer: in its own entry or, if that is 0, in
 * the shared entry. */
static unsigned *counter_of(struct auth *g, const struct auth_peer *who, size_t which)
{
	struct peer *p = find_own(g, who);
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

bool auth__begin_costly(struct auth *g, struct peer *p)
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
