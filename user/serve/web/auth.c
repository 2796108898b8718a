/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/auth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/text.h"
#include "serve/web/auth_internal.h"
#include "serve/web/route.h"

#define HOST_MAX 253
#define BEARER "Bearer"

/* ---- creation ---- */

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
	auth__set_rates(g, o->per_minute);
	err = auth__set_token(g, o->token);
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

/* Splits "name:port" or "[::1]:port". False: text is neither. */
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

/* A numeric address is safe: DNS rebinding needs a host name. The unspecified address (0.0.0.0,
 * ::) is not accepted. */
static bool is_address(const char *name, bool six)
{
	static const struct in6_addr none6;
	struct in6_addr in6;
	struct in_addr in;

	if (six)
		return inet_pton(AF_INET6, name, &in6) == 1 && memcmp(&in6, &none6, sizeof(in6));
	return inet_pton(AF_INET, name, &in) == 1 && in.s_addr;
}

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

	return reads && !(r->flags & (ROUTE_CHANGES | ROUTE_COSTLY)) && r->fetch_mode &&
	       !strcmp(r->fetch_mode, "navigate") && r->fetch_dest &&
	       !strcmp(r->fetch_dest, "document");
}

static bool comes_from_us(const struct auth *g, const struct guard_request *r,
			  struct guard_verdict *v)
{
	if (!origin_is_ours(g, r)) {
		refuse(v, 403, "Origin: requests from pages of other sites are refused");
		return false;
	}
	if (!r->fetch_site || !strcmp(r->fetch_site, "same-origin") ||
	    !strcmp(r->fetch_site, "none") || is_navigation(r))
		return true;
	refuse(v, 403, "Sec-Fetch-Site: requests from pages of other sites are refused");
	return false;
}

/* ---- limits and token ---- */

static void too_many(const struct auth *g, struct guard_verdict *v, unsigned wait, bool costly)
{
	v->retry_after = wait;
	refuse(v, 429, "too many requests: at most %u a minute%s; try again in %u s",
	       costly ? (g->per_minute < 10 ? 1 : g->per_minute / 10) : g->per_minute,
	       costly ? " of this kind" : "", wait);
}

/* The token of "Bearer TOKEN"; NULL: another scheme. */
static const char *bearer(const char *authorization)
{
	size_t len = strlen(BEARER);

	if (strncasecmp(authorization, BEARER, len) || authorization[len] != ' ')
		return NULL;
	authorization += len;
	return authorization + strspn(authorization, " ");
}

static bool is_allowed(struct auth *g, struct peer *p, const struct guard_request *r,
		       struct guard_verdict *v)
{
	const char *token;
	int status;

	if (!g->wants_token || r->flags & ROUTE_OPEN || auth__has_session(g, r))
		return true;
	if (!r->authorization) {
		refuse(v, 401, "send the token: Authorization: Bearer TOKEN");
		return false;
	}
	token = bearer(r->authorization);
	status = auth__try_token(g, p, r, token, v);
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

static void check_costly(struct auth *g, struct peer *p, const struct guard_request *r,
			 struct guard_verdict *v)
{
	unsigned wait;

	if (!auth__begin_costly(g, p)) {
		v->retry_after = 1;
		refuse(v, 429, "too many such requests are running; try again in 1 s");
		return;
	}
	v->costly = true;
	wait = auth__take(g, p, BUCKET_COSTLY, r->now);
	if (!wait)
		return;
	auth__done(g, &r->peer, v);
	v->costly = false;
	too_many(g, v, wait, true);
}

void auth__check(struct auth *g, const struct guard_request *r, struct guard_verdict *v)
{
	struct peer *p = auth__find(g, &r->peer, r->now);
	unsigned wait;

	*v = (struct guard_verdict){ .status = 0 };
	wait = auth__take(g, p, BUCKET_ALL, r->now);
	if (wait) {
		too_many(g, v, wait, false);
		return;
	}
	if (!host_is_ours(g, r, v) || !comes_from_us(g, r, v) || !is_allowed(g, p, r, v))
		return;
	if (r->flags & ROUTE_COSTLY)
		check_costly(g, p, r, v);
}
