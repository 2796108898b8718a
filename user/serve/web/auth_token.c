/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The token, and the browser sessions that replace it: a browser cannot send the token with
 * every request. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "serve/web/auth_internal.h"

#define IDLE (12 * HOUR)
#define LONGEST (7 * 24 * HOUR)
#define SECOND UINT64_C(1000000000)
#define COOKIE_VALUES 8 /* cookies of our name that are checked, per request */

/* Compares all bytes, so that the time does not depend on where the values differ. */
static bool is_equal(const unsigned char *a, const unsigned char *b, size_t len)
{
	volatile unsigned char differs = 0;

	for (size_t i = 0; i < len; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

int auth__set_token(struct auth *g, const char *token)
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

int auth__try_token(struct auth *g, struct peer *p, const struct guard_request *r,
		    const char *token, struct guard_verdict *v)
{
	bool may_look = r->peer.is_local && r->now >= p->override + SECOND, right;

	v->retry_after = auth__wait_seconds(g, p, BUCKET_FAILURES);
	if (v->retry_after && !may_look)
		return 429;
	right = token && is_token(g, token, strlen(token));
	if (right) {
		p->override = v->retry_after ? r->now : p->override;
		v->retry_after = 0;
		return 0;
	}
	if (v->retry_after)
		return 429;
	auth__take(g, p, BUCKET_FAILURES, r->now);
	return 401;
}

bool auth__wants_token(const struct auth *g)
{
	return g->wants_token;
}

/* ---- sessions ---- */

static bool is_over(const struct session *s, uint64_t now)
{
	return !*s->id || now > s->used + IDLE || now > s->begun + LONGEST;
}

static struct session *find(struct auth *g, const char *id, uint64_t now)
{
	struct session *found = NULL;

	/* Check all sessions, so that the time does not depend on which session matches. */
	for (size_t i = 0; i < SESSIONS; i++) {
		struct session *s = &g->sessions[i];

		if (is_equal((const unsigned char *)s->id, (const unsigned char *)id, SESSION_ID) &&
		    !is_over(s, now))
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
static bool next_value(const struct auth *g, const char **at, char id[SESSION_ID + 1])
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

static struct session *session_of(struct auth *g, const struct guard_request *r)
{
	const char *at = r->cookie;
	struct session *s = NULL;
	char id[SESSION_ID + 1];

	for (int i = 0; at && i < COOKIE_VALUES && !s && next_value(g, &at, id); i++)
		s = find(g, id, r->now);
	return s;
}

bool auth__has_session(struct auth *g, const struct guard_request *r)
{
	struct session *s = session_of(g, r);

	if (s)
		s->used = r->now;
	return s;
}

static void format_cookie(const struct auth *g, const char *value, bool gone, char *ret)
{
	snprintf(ret, 200, "%s=%s; Path=/; HttpOnly; SameSite=Strict%s%s", g->cookie, value,
		 g->tls ? "; Secure" : "", gone ? "; Max-Age=0" : "");
}

/* A free entry, or the one not used for the longest time. */
static struct session *free_session(struct auth *g, uint64_t now)
{
	struct session *s = &g->sessions[0];

	for (size_t i = 0; i < SESSIONS; i++) {
		if (is_over(&g->sessions[i], now))
			return &g->sessions[i];
		if (g->sessions[i].used < s->used)
			s = &g->sessions[i];
	}
	return s;
}

int auth__log_in(struct auth *g, const struct guard_request *r, const char *token, char *set_cookie,
		 struct guard_verdict *v)
{
	struct peer *p = auth__find(g, &r->peer, r->now);
	unsigned char random[SESSION_ID / 2];
	struct session *s;

	*v = (struct guard_verdict){ .status = 0 };
	*set_cookie = '\0';
	if (!g->wants_token)
		return 0;
	v->status = auth__try_token(g, p, r, token, v);
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
	s = free_session(g, r->now);
	*s = (struct session){ .begun = r->now, .used = r->now };
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(s->id + 2 * i, 3, "%02x", random[i]);
	format_cookie(g, s->id, false, set_cookie);
	return 0;
}

void auth__log_out(struct auth *g, const struct guard_request *r, char *set_cookie)
{
	struct session *s = session_of(g, r);

	if (s)
		explicit_bzero(s, sizeof(*s));
	format_cookie(g, "", true, set_cookie);
}
