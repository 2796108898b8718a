/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The HTTP process: one libmicrohttpd daemon per address and the link to the broker, in one
 * event loop. Reads and checks the requests, and calls the handlers of their routes. */
#include "serve/web/web.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/web/validate.h"

/* Versions and algorithms, as GnuTLS names them. */
#define TLS "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"
/* Strict parsing: a bare line feed does not end a line, and chunk sizes contain no blanks.
 * libmicrohttpd 0.9.75 has this only as STRICT_FOR_CLIENT. */
#if MHD_VERSION >= 0x00097701
#define STRICT MHD_OPTION_CLIENT_DISCIPLINE_LVL, 2
#else
#define STRICT MHD_OPTION_STRICT_FOR_CLIENT, 1
#endif
#define TICK_NS 1000000000ull /* time between two checks for timeouts */
#define SPARE 64	      /* additional connections, because closed ones end only later */

/* ---- requests: reading and checking them ---- */

/* A header of the request; NULL: it lacks it. */
static const char *header(const struct request *r, const char *name)
{
	return MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);
}

/* Headers that must appear at most once: two servers might use different copies. */
static const char *const only_once[] = { "Host",	  "Origin",	    "Authorization",
					 "Content-Type",  "Content-Length", "Transfer-Encoding",
					 "Cookie",	  "Sec-Fetch-Site", "Sec-Fetch-Mode",
					 "Sec-Fetch-Dest" };
#define ONLY_ONCE (sizeof(only_once) / sizeof(*only_once))

struct header_checks {
	unsigned seen[ONLY_ONCE]; /* how often each header of only_once came */
	bool is_bad;		  /* a name is not valid, or a value contains a NUL */
};

/* True for a valid header name. Servers interpret invalid ones such as "Content-Length : 5"
 * differently. */
static bool is_header_name(const char *key, size_t size)
{
	return size && strnlen(key, size) == size &&
	       strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-"
			   ".^_`|~") >= size;
}

/* For MHD_get_connection_values_n(): checks a header. */
static enum MHD_Result on_header(void *ctx, enum MHD_ValueKind kind, const char *key,
				 size_t key_size, const char *value, size_t size)
{
	struct header_checks *h = ctx;

	(void)kind;
	for (size_t i = 0; i < ONLY_ONCE; i++)
		if (strlen(only_once[i]) == key_size && !strncasecmp(only_once[i], key, key_size))
			h->seen[i]++;
	h->is_bad |= !is_header_name(key, key_size) || (value && memchr(value, '\0', size));
	return MHD_YES;
}

/* Rejects requests whose end is ambiguous, so that a proxy and this server cannot disagree
 * (request smuggling). */
static bool check_headers(struct request *r)
{
	struct header_checks h = { .is_bad = false };
	bool ambiguous; /* the length of the body is */
	const char *length = header(r, "Content-Length");
	const char *coding = header(r, "Transfer-Encoding");

	MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, on_header, &h);
	for (size_t i = 0; i < ONLY_ONCE; i++) {
		if (h.seen[i] < 2)
			continue;
		request__header(r, "Connection", "close");
		request__error(r, 400, /*field=*/NULL, "the header %s came twice", only_once[i]);
		return false;
	}
	ambiguous = length && coding;
	if (length)
		ambiguous |= !*length || strspn(length, "0123456789") != strlen(length);
	if (coding)
		ambiguous |= strcasecmp(coding, "chunked") != 0;
	if (h.is_bad || ambiguous) {
		request__header(r, "Connection", "close");
		request__error(r, 400, NULL, "the headers do not give the length of the request");
		return false;
	}
	return true;
}

/* True if the client of an open route may see data that needs a token: checks the request again, as
 * if the route were not open. */
static bool shows_token(struct request *r)
{
	struct guard_request g = r->who;
	struct guard_verdict v = { .status = 0 };

	if (!auth__wants_token(r->web->guard))
		return true;
	if (!g.authorization && !g.cookie)
		return false;
	g.flags = 0;
	auth__check(r->web->guard, &g, &v);
	return !v.status;
}

/* Checks whether the client may make this request. False: the request has an error answer. */
static bool check_who(struct request *r)
{
	struct guard_request *g = &r->who;
	char seconds[16];

	g->peer = r->conn->peer;
	g->now = r->web->now;
	g->method = r->method;
	g->host = header(r, "Host");
	g->origin = header(r, "Origin");
	g->authorization = header(r, "Authorization");
	g->cookie = header(r, "Cookie");
	g->fetch_site = header(r, "Sec-Fetch-Site");
	g->fetch_mode = header(r, "Sec-Fetch-Mode");
	g->fetch_dest = header(r, "Sec-Fetch-Dest");
	g->flags = r->route ? r->route->flags : 0;
	snprintf(r->host, sizeof(r->host), "%s", g->host ? g->host : "localhost");
	auth__check(r->web->guard, g, &r->verdict);
	if (!r->verdict.status) {
		r->known = !(g->flags & ROUTE_OPEN) || shows_token(r);
		r->conn->known |= r->known && auth__wants_token(r->web->guard);
		return true;
	}
	if (r->verdict.status == 429) {
		snprintf(seconds, sizeof(seconds), "%u", r->verdict.retry_after);
		request__header(r, "Retry-After", seconds);
	}
	request__error(r, r->verdict.status, /*field=*/NULL, "%s", r->verdict.why);
	return false;
}

/* Changes "GET http://host/path" to "GET /path" (RFC 9112, 3.2.2). The host must equal the Host
 * header, since proxies may use either. */
static bool cut_authority(struct request *r)
{
	size_t scheme = !strncasecmp(r->url, "http://", 7) ? 7 : 0, len;
	const char *host = header(r, "Host");

	if (!strncasecmp(r->url, "https://", 8))
		scheme = 8;
	if (!scheme)
		return true;
	len = strcspn(r->url + scheme, "/");
	if (!host || strlen(host) != len || strncasecmp(host, r->url + scheme, len) != 0) {
		request__header(r, "Connection", "close");
		request__error(r, 400, NULL,
			       "the request line and the header Host name different hosts");
		return false;
	}
	memmove(r->url, r->url + scheme + len, strlen(r->url + scheme + len) + 1);
	if (!*r->url)
		memcpy(r->url, "/", 2); /* there is room: the scheme was longer */
	return true;
}

/* Finds the route and sets values to the *n decoded parameters of the path. False: the request has
 * an answer. */
static bool check_route(struct request *r, char *values[4], size_t *n)
{
	char allow[128];
	size_t size;

	r->route = routes__find(r->web->routes, r->method, r->url, values, n, allow, sizeof(allow));
	if (!check_who(r))
		return false;
	if (!r->route && *allow) {
		request__header(r, "Allow", allow);
		if (!strcmp(r->method, "OPTIONS"))
			request__respond(r, 204,
					 MHD_create_response_from_buffer(0, (void *)"",
									 MHD_RESPMEM_PERSISTENT),
					 /*type=*/NULL);
		else
			request__error(r, 405, NULL, "%s is not allowed for %s; use %s", r->method,
				       r->url, allow);
		return false;
	}
	if (!r->route) {
		request__error(r, 404, /*field=*/NULL, "no such path: %.200s", r->url);
		return false;
	}
	for (size_t i = 0; i < *n; i++) {
		size = strlen(values[i]);
		if (validate__unescape(values[i], &size) && !memchr(values[i], '\0', size))
			continue;
		request__error(r, 404, NULL, "no such path: its name is not text");
		return false;
	}
	return true;
}

/* Checks the parameters of the path and takes them. False: the request has an error answer. */
static bool check_path(struct request *r, char *values[4], size_t n)
{
	struct complaint c;

	for (size_t i = 0; i < n; i++) {
		const struct field *f = &r->route->in_path[i];

		/* Accept only one spelling of a number: "4e3" and "04" are errors. */
		if (f->type == FIELD_INTEGER &&
		    (values[i][0] == '0' || values[i][strspn(values[i], "0123456789")])) {
			request__error(r, 422, f->name,
				       "%s: must be a whole number in digits, not \"%.40s\"",
				       f->name, values[i]);
			return false;
		}
		if (validate__text(f, values[i], strlen(values[i]), &c)) {
			request__error(r, 422, c.field, "%s", c.detail);
			return false;
		}
		r->path[r->n_path++] = (struct param){ f, values[i] };
	}
	return true;
}

struct queries {
	struct request *r;
	struct complaint c;
	bool is_bad; /* a parameter is wrong, as c says */
};

/* Sets the error of a query. Returns MHD_NO, so that on_query() ends the search. */
static enum MHD_Result refuse_query(struct queries *q, const char *field, const char *what)
{
	text__clean(q->c.field, sizeof(q->c.field), field, strlen(field));
	snprintf(q->c.detail, sizeof(q->c.detail), "%s: %s", *q->c.field ? q->c.field : "query",
		 what);
	q->is_bad = true;
	return MHD_NO;
}

/* Callback for each query parameter: checks it and adds it to the request. MHD_NO: it is refused. */
static enum MHD_Result on_query(void *ctx, enum MHD_ValueKind kind, const char *key,
				size_t key_size, const char *value, size_t size)
{
	struct queries *q = ctx;
	struct request *r = q->r;
	const struct field *f;
	char name[64], *text;

	(void)kind;
	if (key_size >= sizeof(name))
		return r->route->flags & ROUTE_ANY_QUERY
			       ? MHD_YES
			       : refuse_query(q, "", "a parameter's name is too long");
	memcpy(name, key, key_size);
	if (!validate__unescape(name, &key_size) || memchr(name, '\0', key_size))
		return r->route->flags & ROUTE_ANY_QUERY
			       ? MHD_YES
			       : refuse_query(q, "", "a parameter's name is not text");
	f = validate__field(r->route->in_query, name);
	if (!f)
		return r->route->flags & ROUTE_ANY_QUERY
			       ? MHD_YES
			       : refuse_query(q, name, "unknown parameter");
	if (request__query(r, name))
		return refuse_query(q, name, "is given twice");
	if (r->n_query == WEB_PARAMS)
		return refuse_query(q, name, "there are too many parameters");
	text = malloc(size + 1);
	if (!text)
		return refuse_query(q, name, "no memory");
	r->query_text[r->n_query_text++] = text;
	if (value)
		memcpy(text, value, size);
	size = value ? size : 0;
	text[size] = '\0';
	if (!validate__unescape(text, &size))
		return refuse_query(q, name, "is not percent-encoded UTF-8");
	if (validate__text(f, text, size, &q->c)) {
		q->is_bad = true;
		return MHD_NO;
	}
	r->query[r->n_query++] = (struct param){ f, text };
	return MHD_YES;
}

/* Checks the parameters of the query and takes them. False: the request has an error answer. */
static bool check_query(struct request *r)
{
	struct queries q = { .r = r };

	MHD_get_connection_values_n(r->mhd, MHD_GET_ARGUMENT_KIND, on_query, &q);
	for (const struct field *f = r->route->in_query; !q.is_bad && f && f->name; f++)
		if (f->required && !request__query(r, f->name))
			refuse_query(&q, f->name, "must be given");
	if (q.is_bad)
		request__error(r, 422, q.c.field, "%s", q.c.detail);
	return !q.is_bad;
}

/* Checks the type of the body, if there is one. False: the request has an error answer. */
static bool check_type(struct request *r)
{
	const char *type = header(r, "Content-Type");

	/* A page of another site cannot send this type without asking first. */
	if (r->route->flags & ROUTE_UPLOAD) {
		if (type && !strcasecmp(type, ROUTE_FILE_TYPE))
			return true;
		request__error(r, 415, NULL, "a file must have the Content-Type " ROUTE_FILE_TYPE);
		return false;
	}
	if (!r->route->in_body || !type || validate__is_json_type(type))
		return true;
	request__error(r, 415, /*field=*/NULL,
		       "the body must be application/json, but its Content-Type is \"%.80s\"",
		       type);
	return false;
}

/* Checks the length of a request's body. */
static bool check_length(struct request *r, const char *length, unsigned long long size)
{
	if (!(r->route->flags & ROUTE_UPLOAD)) {
		if (size <= WEB_BODY)
			return true;
		request__error(r, 413, NULL,
			       "the body must be at most %d bytes long, but it has %llu", WEB_BODY,
			       size);
	} else if (!length) {
		request__error(r, 411, NULL, "a file must come with its Content-Length");
	} else if (!size) {
		request__error(r, 422, NULL, "the file is empty");
	} else if (size > r->web->args->max_disk) {
		request__error(r, 413, NULL, "the file is larger than --max-disk allows");
	} else {
		return true;
	}
	return false;
}

/* Checks the request line and headers, and sets an error answer if a check fails; the answer is
 * sent after the body. False: do not read the body. */
static bool begin_request(struct request *r, const char *url, const char *method)
{
	const char *length = header(r, "Content-Length");
	unsigned long long size = length ? strtoull(length, NULL, 10) : 0;
	char *values[4];
	size_t n;
	bool good;

	snprintf(r->method, sizeof(r->method), "%s", method);
	r->url = strdup(url);
	if (!r->url) {
		r->answered = true;
		return false;
	}
	good = check_headers(r) && cut_authority(r) && check_route(r, values, &n) &&
	       check_path(r, values, n) && check_query(r) && check_type(r) &&
	       check_length(r, length, size);
	if (good && r->route->flags & ROUTE_UPLOAD)
		receive__begin(r, size);
	/* Do not read the body if its end is ambiguous or it is too long. With Expect, the
	 * client waits for this answer before it sends the body. */
	return !(r->answered && (size > WEB_DRAIN || r->status == 400 || header(r, "Expect")));
}

/* Adds a piece of the body. False: the body is too long even to be discarded. */
static bool take_body(struct request *r, const char *data, size_t size)
{
	if (!r->answered && size > WEB_BODY - r->body_size)
		request__error(r, 413, /*field=*/NULL, "the body must be at most %d bytes long",
			       WEB_BODY);
	if (r->answered || !r->route->in_body) {
		r->drained += size;
		if (!r->answered && r->drained > WEB_BODY)
			request__error(
				r, 413, /*field=*/NULL,
				"the body must be at most %d bytes long, and this call takes none",
				WEB_BODY);
		return r->drained <= WEB_DRAIN;
	}
	if (array__grow(&r->body, &r->body_room, r->body_size + size, 1))
		return false;
	memcpy(r->body + r->body_size, data, size);
	r->body_size += size;
	return true;
}

/* ---- requests: from the first call to the end ---- */

/* Takes a request off the list and frees it. */
static void free_request(struct request *r)
{
	if (r->upload.state && r->upload.to >= 0)
		close(r->upload.to);
	if (r->release)
		r->release(r->kept);
	if (r->response)
		MHD_destroy_response(r->response);
	if (r->verdict.costly)
		auth__done(r->web->guard, &r->who.peer, &r->verdict);
	for (size_t i = 0; i < r->n_headers; i++) {
		free(r->headers[i].name);
		free(r->headers[i].value);
	}
	for (size_t i = 0; i < r->n_query_text; i++)
		free(r->query_text[i]);
	if (r->prev)
		r->prev->next = r->next;
	else
		r->web->requests = r->next;
	if (r->next)
		r->next->prev = r->prev;
	json_decref(r->doc);
	free(r->body);
	free(r->url);
	free(r);
}

/* Adds a request to the list. NULL: no memory. */
static struct request *new_request(struct web *web, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct request *r = info && info->socket_context ? calloc(1, sizeof(*r)) : NULL;

	if (!r)
		return NULL;
	r->web = web;
	r->mhd = mhd;
	r->conn = info->socket_context;
	r->conn->request = r;
	r->next = web->requests;
	if (r->next)
		r->next->prev = r;
	web->requests = r;
	return r;
}

/* Hands the answer to the library. Without an answer, MHD_NO closes the connection. */
static enum MHD_Result queue_answer(struct request *r)
{
	static const struct route none;
	const struct route *route = r->route ? r->route : &none;
	enum MHD_Result ret;

	if (!r->response)
		return MHD_NO;
	ret = MHD_queue_response(r->mhd, (unsigned)r->status, r->response);
	MHD_destroy_response(r->response);
	r->response = NULL;
	r->sent = r->web->now;
	metrics__count(&r->web->metrics, route->method, route->path, r->status);
	return ret;
}

/* Validates the body and calls the route's handler. */
static void handle_request(struct request *r)
{
	struct complaint c = { .field = "" };

	if (r->route->in_body) {
		r->doc = validate__body(r->route->in_body, r->body ? r->body : "", r->body_size,
					&c);
		if (!r->doc) {
			request__error(r, 422, c.field, "%s", c.detail);
			return;
		}
	}
	free(r->body);
	r->body = NULL;
	r->route->handle(r);
}

static enum MHD_Result suspend(struct request *r)
{
	r->suspended = true;
	MHD_suspend_connection(r->mhd);
	return MHD_YES;
}

/* The library calls this for the headers of a request (*kept NULL), for each piece of the body
 * (*size > 0), for the end of the body, and after the request was resumed. */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *mhd, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *size, void **kept)
{
	struct request *r = *kept;

	(void)version;
	if (!r) {
		r = new_request(ctx, mhd);
		*kept = r;
		if (!r)
			return MHD_NO;
		/* If the body is far too long, answer now and close the connection without
		 * reading it. */
		if (!begin_request(r, url, method))
			return queue_answer(r);
		if (!r->upload.state)
			return MHD_YES;
		return r->answered ? queue_answer(r) : suspend(r);
	}
	if (r->upload.state == UPLOAD_ASKED) {
		/* The broker has answered, and no part of the body has been read. */
		r->upload.state = UPLOAD_OPEN;
		if (r->answered)
			return queue_answer(r);
		return MHD_YES;
	}
	if (*size && r->upload.state == UPLOAD_OPEN && !r->answered) {
		size_t left = receive__take(r, data, *size);

		if (!r->answered) {
			*size = left;
			return MHD_YES;
		}
	}
	if (*size) {
		bool accepted = take_body(r, data, *size);

		*size = 0;
		return accepted ? MHD_YES : MHD_NO;
	}
	if (!r->read) {
		r->read = true;
		if (!r->answered)
			handle_request(r);
	}
	return r->answered ? queue_answer(r) : suspend(r);
}

/* ---- connections ---- */

/* Counts the bytes received on the connection; 0 for a Unix socket, whose count is not known. */
static uint64_t count_received(const struct conn *c)
{
	struct tcp_info info = { .tcpi_bytes_received = 0 };
	socklen_t size = sizeof(info);

	return getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &size) ? 0
								      : info.tcpi_bytes_received;
}

/* The request has ended: starts the idle time of its connection. */
static void on_completed(void *ctx, struct MHD_Connection *mhd, void **kept,
			 enum MHD_RequestTerminationCode why)
{
	struct request *r = *kept;
	struct conn *c = r ? r->conn : NULL;

	(void)ctx;
	(void)mhd;
	(void)why;
	*kept = NULL;
	if (!r)
		return;
	c->request = NULL;
	c->began = 0;
	c->since = c->web->now;
	c->received = count_received(c);
	free_request(r);
}

/* Closes a connection. The library ends it later; it is no longer counted. */
static void refuse_connection(struct conn *c)
{
	c->refused = true;
	shutdown(c->fd, SHUT_RDWR);
}

/* When the connection became idle, in ns; 0: it is busy. It is also idle if its client has not read
 * the answer for WEB_READ_NS. */
static uint64_t idle_since(const struct conn *c)
{
	const struct request *r = c->request;

	if (!r || !r->read)
		return c->since;
	return r->sent && !r->stream && c->web->now - r->sent > WEB_READ_NS ? r->sent : 0;
}

/* True if idle connection c is to be closed rather than `other`: one without a valid token,
 * otherwise the one that has been idle for longer. */
static bool goes_first(const struct conn *c, const struct conn *other)
{
	if (c->known != other->known)
		return !c->known;
	return idle_since(c) < idle_since(other);
}

/* Closes the connection that has been idle for the longest time, but first one without a valid
 * token. If `full` is AUTH_PEER_FULL, only connections of the newcomer's peer count. False: none is
 * idle. */
static bool make_room(struct web *web, const struct conn *newcomer, enum auth_room full)
{
	struct conn *idle = NULL;

	for (struct conn *c = web->conns; c; c = c->next) {
		if (c == newcomer || c->refused || !idle_since(c))
			continue;
		if (full == AUTH_PEER_FULL &&
		    !auth__same_peer(web->guard, &c->peer, &newcomer->peer))
			continue;
		if (!idle || goes_first(c, idle))
			idle = c;
	}
	if (!idle)
		return false;
	auth__disconnect(web->guard, &idle->peer);
	refuse_connection(idle);
	return true;
}

/* Adds a new connection, and refuses it if no other one makes room. *kept: the connection; NULL:
 * out of memory, and it is shut down. */
static void add_connection(struct web *web, struct MHD_Connection *mhd, void **kept)
{
	enum auth_room room;
	const union MHD_ConnectionInfo *fd = MHD_get_connection_info(
		mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	const union MHD_ConnectionInfo *addr = MHD_get_connection_info(
		mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct conn *c = fd ? calloc(1, sizeof(*c)) : NULL;

	*kept = c;
	if (!c) {
		if (fd)
			shutdown(fd->connect_fd, SHUT_RDWR);
		return;
	}
	c->web = web;
	c->since = web->now;
	c->fd = fd->connect_fd;
	c->peer = auth__peer(addr ? addr->client_addr : NULL, c->fd);
	c->next = web->conns;
	if (c->next)
		c->next->prev = c;
	web->conns = c;
	room = auth__connect(web->guard, &c->peer, web->now);
	if (room != AUTH_ROOM && make_room(web, c, room))
		room = auth__connect(web->guard, &c->peer, web->now);
	if (room != AUTH_ROOM)
		refuse_connection(c);
}

/* Takes a connection off the list and frees it. */
static void remove_connection(struct web *web, struct conn *c)
{
	if (!c->refused)
		auth__disconnect(web->guard, &c->peer);
	if (c->prev)
		c->prev->next = c->next;
	else
		web->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	free(c);
}

/* The library calls this when a connection begins and when it ends. */
static void on_connection(void *ctx, struct MHD_Connection *mhd, void **kept,
			  enum MHD_ConnectionNotificationCode what)
{
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		add_connection(ctx, mhd, kept);
	else if (*kept)
		remove_connection(ctx, *kept);
}

/* Closes connections whose request arrives too slowly. The library's own timeout restarts with
 * every byte. */
static void close_slow(struct web *web)
{
	for (struct conn *c = web->conns; c; c = c->next) {
		bool is_slow, is_idle;

		if (c->request && (c->request->read || c->request->suspended))
			continue;
		if (!c->began && (c->request || count_received(c) > c->received))
			c->began = web->now;
		/* For a Unix socket, `began` stays 0 between requests, so only WEB_IDLE_S
		 * applies. */
		is_slow = c->began && web->now - c->began > WEB_READ_NS;
		is_idle = !c->request && web->now - c->since > WEB_IDLE_S * 1000000000ull;
		if (is_slow || is_idle) {
			log_debug("serve: a request took too long to arrive");
			shutdown(c->fd, SHUT_RDWR);
		}
	}
}

/* ---- the broker ---- */

/* Gives the broker's answer to the request that asked, or drops it if that request has ended. */
static void take_answer(struct web *web, json_t *msg, int fd)
{
	const json_t *id = json_object_get(msg, "id");
	const char *detail = json_string_value(json_object_get(msg, "detail"));
	const char *field = json_string_value(json_object_get(msg, "field"));
	int code = (int)json_integer_value(json_object_get(msg, "status"));
	struct request *r = web->requests;

	if (web_devices__take(web, msg, fd))
		return;
	while (r && (!r->asked || !json_is_integer(id) ||
		     (json_int_t)r->asked != json_integer_value(id)))
		r = r->next;
	if (!r) {
		if (fd >= 0)
			close(fd);
		return;
	}
	r->asked = 0;
	if (json_is_true(json_object_get(msg, "ok"))) {
		r->then(r, msg, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (code != 404 && code != 409 && code != 422 && code != 429)
		code = 503;
	request__error(r, code, field, "%s",
		       detail ? detail : "the request failed for an unknown reason");
}

/* Runs the again() callbacks of waiting requests, after each event of the broker. */
static void run_waiting(struct web *web)
{
	for (struct request *r = web->requests; r; r = r->next)
		if (r->again && !r->answered)
			r->again(r);
}

/* Ends the request without an answer: on_request() closes the connection. */
static void end_unanswered(struct request *r)
{
	r->asked = 0;
	r->again = NULL;
	r->answered = true;
	request__resume(r);
}

/* Makes the broker drop the request's pending question, which would occupy a worker or a place in
 * the queue. */
static void cancel_question(struct request *r)
{
	struct web *web = r->web;

	if (r->asked)
		link__send(web->link,
			   json_pack("{s:I, s:s, s:I}", "id", (json_int_t)++web->last_id, "do",
				     "cancel", "asked", (json_int_t)r->asked),
			   /*fd=*/-1);
	r->asked = 0;
}

/* Ends requests that wait too long for the broker, and waiting requests whose client has
 * disconnected. The library does not notice a disconnect while a request is suspended. */
static void end_waiting(struct web *web)
{
	for (struct request *r = web->requests; r; r = r->next) {
		if (r->asked && web->now - r->asked_at > WEB_ASK_NS) {
			cancel_question(r);
			request__error(r, 503, NULL,
				       "the capturing part of the server did not answer");
		} else if (!r->stream && !r->held && request__client_gone(r)) {
			cancel_question(r);
			end_unanswered(r);
		}
	}
}

/* Resumes all suspended requests and ends them, before the process exits. */
static void end_requests(struct web *web)
{
	for (struct request *r = web->requests; r; r = r->next)
		end_unanswered(r);
}

/* Takes a message from the broker: an answer, or an event, which the streams get. Owns fd. */
static void on_message(void *ctx, json_t *msg, int fd)
{
	struct web *web = ctx;
	struct state_trace *trace;
	const char *event;

	if (json_object_get(msg, "id")) {
		take_answer(web, msg, fd);
		return;
	}
	if (serve_state__take(&web->state, msg, fd, &trace)) {
		log_debug("serve: received an invalid message");
		return;
	}
	event = json_string_value(json_object_get(msg, "event")); /* valid messages have one */
	if (!strcmp(event, "hello")) {
		/* The document has the limits of "hello", so the next request makes it again. */
		free(web->openapi);
		web->openapi = NULL;
	}
	if (strcmp(event, "scan") != 0)
		sse__publish(web, msg, trace);
	run_waiting(web);
}

/* ---- the loop ---- */

/* Waits for events and handles them. fds: n descriptors, with room for those of uploads. Returns 0,
 * -EINTR (a signal ends the process), -EPIPE (the broker has ended) or another -errno. */
static int run_once(struct web *web, struct pollfd *fds, size_t n)
{
	uint64_t timeout = 1000;
	size_t n_uploads = receive__poll(web, fds + n);
	MHD_UNSIGNED_LONG_LONG t;
	int err;

	for (size_t i = 0; i < web->n_daemons; i++)
		if (MHD_get_timeout(web->daemons[i], &t) == MHD_YES && t < timeout)
			timeout = t;
	/* fds: signals, the link, the daemons */
	fds[1].events = link__events(web->link);
	if (poll(fds, n + n_uploads, (int)timeout) < 0 && errno != EINTR)
		return -errno;
	web->now = clock__monotonic();
	if (fds[0].revents)
		return -EINTR;
	err = link__pump(web->link, on_message, web);
	if (err)
		return err;
	receive__resume(web, fds + n, n_uploads);
	for (size_t i = 0; i < web->n_daemons; i++)
		if (MHD_run(web->daemons[i]) != MHD_YES)
			return -EIO;
	return 0;
}

/* Runs until an error or an end as in run_once(), which it returns. Every TICK_NS it looks for
 * requests and connections that take too long. */
static int run_loop(struct web *web, int signals)
{
	struct pollfd fds[2 + SERVE_LISTEN + WEB_UPLOADS] = { { .fd = signals, .events = POLLIN },
							      { .fd = link__fd(web->link) } };
	uint64_t swept = clock__monotonic();
	int err = 0;

	for (size_t i = 0; i < web->n_daemons; i++)
		fds[2 + i] = (struct pollfd){
			MHD_get_daemon_info(web->daemons[i], MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
			POLLIN, 0
		};
	web->now = swept;
	while (!err) {
		err = run_once(web, fds, 2 + web->n_daemons);
		if (err || web->now - swept < TICK_NS)
			continue;
		swept = web->now;
		close_slow(web);
		end_waiting(web);
		sse__sweep(web);
	}
	return err;
}

/* ---- start and end ---- */

/* For the library: logs its messages. */
__attribute__((format(printf, 2, 0))) static void on_log(void *ctx, const char *fmt, va_list ap)
{
	char raw[512], clean[512];

	(void)ctx;
	vsnprintf(raw, sizeof(raw), fmt, ap);
	raw[strcspn(raw, "\n")] = '\0';
	text__clean(clean, sizeof(clean), raw, strlen(raw));
	log_debug("serve: %s", clean);
}

/* For the library: leaves a text as it is. check_route() and on_query() decode, after the path is
 * split: "%2F" is not a separator. */
static size_t leave_escaped(void *ctx, struct MHD_Connection *mhd, char *text)
{
	(void)ctx;
	(void)mhd;
	return strlen(text);
}

/* Starts to serve the listening socket fd, which it takes over. Returns 0 or -EIO. */
static int start_daemon(struct web *web, int fd)
{
	const struct serve_secrets *s = &web->args->secrets;
	bool tls = s->cert && s->key;
	struct MHD_OptionItem with_tls[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, s->cert },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, s->key },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, TLS },
		{ MHD_OPTION_END, 0, NULL },
	};
	unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
			 (tls ? MHD_USE_TLS : 0);
	/* with_tls + 3 is the empty list */
	struct MHD_Daemon *d = MHD_start_daemon(
		flags, 0, NULL, NULL, on_request, web, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, web, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, web, MHD_OPTION_CONNECTION_LIMIT, (unsigned)AUTH_CONNECTIONS + SPARE,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)WEB_IDLE_S, STRICT,
		MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY,
		tls ? with_tls : with_tls + 3, MHD_OPTION_END);

	if (!d) {
		close(fd);
		return -EIO;
	}
	web->daemons[web->n_daemons++] = d;
	return 0;
}

/* Creates the access control. It is local if all listening addresses are. NULL with errno on
 * failure. */
static struct auth *make_guard(const struct serve_args *args, const int *fds, size_t n)
{
	const char *hosts[SERVE_HOSTS + 1] = { NULL };
	struct auth_opts o = { .token = args->secrets.token,
			       .tls = args->secrets.cert,
			       .hosts = hosts,
			       .local = true,
			       .per_minute = args->requests_per_minute };

	memcpy(hosts, args->hosts, args->n_hosts * sizeof(*hosts));
	for (size_t i = 0; i < n; i++) {
		struct sockaddr_storage a = { 0 };
		socklen_t size = sizeof(a);
		const struct sockaddr_in *in = (const struct sockaddr_in *)&a;
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a;

		if (getsockname(fds[i], (struct sockaddr *)&a, &size))
			continue;
		if (a.ss_family == AF_INET)
			o.local &= ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
		else if (a.ss_family == AF_INET6)
			o.local &= IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
		if (!o.port && a.ss_family != AF_UNIX)
			o.port = ntohs(a.ss_family == AF_INET ? in->sin_port : in6->sin6_port);
	}
	return auth__new(&o);
}

/* Ends the requests and frees what web has. */
static void release_web(struct web *web)
{
	end_requests(web);
	for (size_t i = 0; i < web->n_daemons; i++)
		MHD_stop_daemon(web->daemons[i]);
	auth__free(web->guard);
	serve_state__release(&web->state);
	link__free(web->link);
	free(web->openapi);
}

/* Blocks the signals that end the process. Returns a descriptor that becomes readable with one. */
static int open_signals(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

const struct route *const route_tables[] = { trace_routes, server_routes, page_routes, fleet_routes,
					     NULL };

int web__run(const struct serve_args *args, int link_fd, const int *listen_fds, size_t n)
{
	struct web web = { .args = args, .routes = route_tables, .now = clock__monotonic() };
	int signals = open_signals(), err = signals < 0 ? -errno : 0;
	size_t started = 0;

	serve_state__init(&web.state);
	web.link = link__new(link_fd);
	web.guard = make_guard(args, listen_fds, n);
	if (!web.link || !web.guard)
		err = err ? err : -ENOMEM;
	while (!err && started < n && started < SERVE_LISTEN)
		err = start_daemon(&web, listen_fds[started++]);
	while (started < n)
		close(listen_fds[started++]);
	if (err)
		log_err("serve: cannot start the HTTP process: %s", strerror(-err));
	else
		err = run_loop(&web, signals);
	release_web(&web);
	if (signals >= 0)
		close(signals);
	if (err != -EINTR && err != -EPIPE)
		log_err("serve: the HTTP process ended: %s", strerror(-err));
	return err == -EINTR || err == -EPIPE ? 0 : 1;
}
