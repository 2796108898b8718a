/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What handlers call: the values of a request, its answer, and questions to the broker. */
#include "serve/web/web.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "serve/web/validate.h"

#define TEXT_OF(x) #x
#define TEXT_OF_VALUE(x) TEXT_OF(x)
#define API_VERSION_TEXT TEXT_OF_VALUE(HTTP_API_VERSION)

/* ---- for handlers ---- */

struct state *request__state(struct request *r)
{
	return &r->web->state;
}

static const char *find_param(const struct param *params, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(params[i].field->name, name))
			return params[i].value;
	return NULL;
}

const char *request__path(struct request *r, const char *name)
{
	return find_param(r->path, r->n_path, name);
}

const char *request__query(struct request *r, const char *name)
{
	return find_param(r->query, r->n_query, name);
}

bool request__number(struct request *r, const char *name, double *ret)
{
	const char *text = request__query(r, name);

	return text && validate__as_number(text, ret);
}

json_t *request__body(struct request *r)
{
	return r->doc;
}

void request__keep(struct request *r, void *p, void (*release)(void *))
{
	if (r->release)
		r->release(r->kept);
	r->kept = p;
	r->release = release;
}

void *request__kept(struct request *r)
{
	return r->kept;
}

/* ---- answers ---- */

void request__header(struct request *r, const char *name, const char *value)
{
	if (r->n_headers == WEB_HEADERS)
		return;
	r->headers[r->n_headers].name = strdup(name);
	r->headers[r->n_headers].value = strdup(value);
	r->n_headers++;
}

static bool has_header(const struct request *r, const char *name)
{
	for (size_t i = 0; i < r->n_headers; i++)
		if (r->headers[i].name && !strcasecmp(r->headers[i].name, name))
			return true;
	return false;
}

static void add_headers(struct request *r, struct MHD_Response *response, const char *type)
{
	static const char *const usual[][2] = {
		{ "X-Content-Type-Options", "nosniff" },
		{ "Cache-Control", "no-store" },
		{ "Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'" },
		{ "Referrer-Policy", "no-referrer" },
		{ "Cross-Origin-Resource-Policy", "same-origin" },
		{ "Memtrace-Api-Version", API_VERSION_TEXT },
	};

	if (type)
		MHD_add_response_header(response, "Content-Type", type);
	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++)
		if (!has_header(r, usual[i][0]))
			MHD_add_response_header(response, usual[i][0], usual[i][1]);
	for (size_t i = 0; i < r->n_headers; i++)
		if (r->headers[i].name && r->headers[i].value)
			MHD_add_response_header(response, r->headers[i].name, r->headers[i].value);
}

void request__resume(struct request *r)
{
	if (!r->suspended)
		return;
	r->suspended = false;
	MHD_resume_connection(r->mhd);
}

void request__respond(struct request *r, int status, struct MHD_Response *response,
		      const char *type)
{
	if (r->answered || !response) {
		/* Without memory there is no answer. request__access() then closes the
		 * connection. */
		if (response)
			MHD_destroy_response(response);
		r->answered = true;
		request__resume(r);
		return;
	}
	r->asked = 0;
	r->again = NULL;
	r->answered = true;
	r->status = status;
	r->response = response;
	add_headers(r, response, type);
	request__resume(r);
}

void request__data(struct request *r, int status, const char *type, char *data, size_t size)
{
	struct MHD_Response *response = data ? MHD_create_response_from_buffer(
						       size, data, MHD_RESPMEM_MUST_FREE)
					     : NULL;

	if (!response)
		free(data);
	request__respond(r, status, response, type);
}

void request__json(struct request *r, int status, json_t *doc)
{
	char *text = doc ? json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(16)) : NULL;

	json_decref(doc);
	request__data(r, status, "application/json", text, text ? strlen(text) : 0);
}

void request__error(struct request *r, int status, const char *field, const char *fmt, ...)
{
	char raw[1024], clean[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	text__clean(clean, sizeof(clean), raw, strlen(raw));
	if ((status == 429 || status == 503) && !has_header(r, "Retry-After"))
		request__header(r, "Retry-After", status == 429 ? "2" : "5");
	if (status == 401 && !has_header(r, "WWW-Authenticate"))
		request__header(r, "WWW-Authenticate", "Bearer");
	request__json(r, status,
		      json_pack("{s:s, s:s*}", "detail", clean, "field",
				field && *field ? field : NULL));
}

/* Parses "bytes=A-B", "bytes=A-" or "bytes=-N". False: send the whole file, also for other kinds
 * of ranges. */
static bool wanted_range(struct request *r, uint64_t size, uint64_t *from, uint64_t *length)
{
	const char *range = MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, "Range"), *p;
	unsigned long long a, b;
	char *end;

	if (!range || strncmp(range, "bytes=", 6) || strchr(range, ',') ||
	    MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, "If-Range"))
		return false;
	p = range + 6;
	if (strspn(p, "0123456789-") != strlen(p) || !strchr(p, '-') || strlen(p) > 40 || !size)
		return false;
	if (*p == '-') {
		a = strtoull(p + 1, &end, 10);
		if (*end || end == p + 1 || !a)
			return false;
		*from = a < size ? size - a : 0;
		*length = size - *from;
		return true;
	}
	a = strtoull(p, &end, 10);
	if (*end != '-')
		return false;
	p = end + 1;
	b = *p ? strtoull(p, &end, 10) : size - 1;
	if ((*p && *end) || a > b || a >= size)
		return false;
	*from = a;
	*length = (b < size ? b + 1 : size) - a;
	return true;
}

/* Sends a file of size bytes from its beginning. Takes over fd. name: file name for saving;
 * NULL: the browser shows the file. */
static void send_file(struct request *r, const char *type, const char *name, int fd, uint64_t size)
{
	struct MHD_Response *response;
	uint64_t from = 0, length = size;
	char text[200];
	int status = 200;

	if (name) {
		char plain[128];
		size_t i;

		/* The broker chose the name. Replace characters that could break out of the
		 * header. */
		for (i = 0; name[i] && i < sizeof(plain) - 1; i++)
			plain[i] = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123"
					  "456789._-",
					  name[i])
					   ? name[i]
					   : '_';
		plain[i] = '\0';
		snprintf(text, sizeof(text), "attachment; filename=\"%s\"", plain);
		request__header(r, "Content-Disposition", text);
	}
	request__header(r, "Accept-Ranges", "bytes");
	if (wanted_range(r, size, &from, &length)) {
		status = 206;
		snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)from,
			 (unsigned long long)(from + length - 1), (unsigned long long)size);
		request__header(r, "Content-Range", text);
	}
	response = MHD_create_response_from_fd_at_offset64(length, fd, from);
	if (!response)
		close(fd);
	request__respond(r, status, response, type);
}

void request__whole(struct request *r, const char *type, const char *name, int fd)
{
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode)) {
		send_file(r, type, name, fd, (uint64_t)st.st_size);
		return;
	}
	if (fd >= 0)
		close(fd);
	request__error(r, 503, NULL, "the answer did not arrive");
}

/* ---- the broker ---- */

void request__ask(struct request *r, json_t *msg,
		  void (*then)(struct request *r, json_t *answer, int fd))
{
	uint64_t id = ++r->web->last_id;
	int err;

	json_object_set_new(msg, "id", json_integer((json_int_t)id));
	r->asked = id;
	r->asked_at = r->web->now;
	r->then = then;
	err = link__send(r->web->link, msg, -1);
	if (err == -E2BIG)
		request__error(r, 413, NULL, "the request is too large to forward");
	else if (err)
		request__error(r, 503, NULL, "the capturing part of the server %s; try again",
			       err == -ENOBUFS ? "is overloaded" : "has ended");
}

void request__answered(struct web *web, json_t *msg, int fd)
{
	const json_t *id = json_object_get(msg, "id");
	const char *detail = json_string_value(json_object_get(msg, "detail"));
	const char *field = json_string_value(json_object_get(msg, "field"));
	int code = (int)json_integer_value(json_object_get(msg, "status"));
	struct request *r = web->requests;

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

void request__wait(struct request *r, void (*again)(struct request *r))
{
	r->again = again;
}

void request__run_waiting(struct web *web)
{
	for (struct request *r = web->requests; r; r = r->next)
		if (r->again && !r->answered)
			r->again(r);
}

bool request__client_gone(const struct request *r)
{
	struct pollfd p = { .fd = r->conn->fd, .events = POLLRDHUP };

	return r->suspended && poll(&p, 1, 0) > 0 && p.revents;
}

/* Ends the request without an answer: request__access() closes the connection. */
static void give_up(struct request *r)
{
	r->asked = 0;
	r->again = NULL;
	r->answered = true;
	request__resume(r);
}

/* Tells the broker to drop the pending question, so that it does not occupy a worker or a place
 * in the queue. */
static void cancel(struct request *r)
{
	struct web *web = r->web;

	if (r->asked)
		link__send(web->link,
			   json_pack("{s:I, s:s, s:I}", "id", (json_int_t)++web->last_id, "do",
				     "cancel", "asked", (json_int_t)r->asked),
			   -1);
	r->asked = 0;
}

void request__sweep(struct web *web)
{
	for (struct request *r = web->requests; r; r = r->next) {
		if (r->asked && web->now - r->asked_at > WEB_ASK_NS) {
			cancel(r);
			request__error(r, 503, NULL,
				       "the capturing part of the server did not answer");
		} else if (!r->stream && !r->held && request__client_gone(r)) {
			cancel(r);
			give_up(r);
		}
	}
}

void request__abandon(struct web *web)
{
	for (struct request *r = web->requests; r; r = r->next)
		give_up(r);
}

/* ---- the life of a request ---- */

/* The life of a request: reading and checking it, its handler, its end. */

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

struct heads {
	unsigned seen[ONLY_ONCE];
	bool bad;
};

/* True for a valid header name. Servers disagree about "Content-Length : 5". */
static bool is_name(const char *key, size_t size)
{
	return size && strnlen(key, size) == size &&
	       strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-"
			   ".^_`|~") >= size;
}

static enum MHD_Result on_header(void *ctx, enum MHD_ValueKind kind, const char *key,
				 size_t key_size, const char *value, size_t size)
{
	struct heads *h = ctx;

	(void)kind;
	for (size_t i = 0; i < ONLY_ONCE; i++)
		if (strlen(only_once[i]) == key_size && !strncasecmp(only_once[i], key, key_size))
			h->seen[i]++;
	h->bad |= !is_name(key, key_size) || (value && memchr(value, '\0', size));
	return MHD_YES;
}

/* Rejects requests whose end is ambiguous, so that a proxy and this server cannot disagree
 * (request smuggling). */
static bool check_headers(struct request *r)
{
	struct heads h = { .bad = false };
	const char *length = header(r, "Content-Length");
	const char *coding = header(r, "Transfer-Encoding");

	MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, on_header, &h);
	for (size_t i = 0; i < ONLY_ONCE; i++) {
		if (h.seen[i] < 2)
			continue;
		request__header(r, "Connection", "close");
		request__error(r, 400, NULL, "the header %s came twice", only_once[i]);
		return false;
	}
	if (h.bad || (length && coding) ||
	    (length && (!*length || strspn(length, "0123456789") != strlen(length))) ||
	    (coding && strcasecmp(coding, "chunked"))) {
		request__header(r, "Connection", "close");
		request__error(r, 400, NULL, "the headers do not give the length of the request");
		return false;
	}
	return true;
}

/* True if the client may see data that needs a token. The route is open, so check the request
 * again without ROUTE_OPEN. */
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
	request__error(r, r->verdict.status, NULL, "%s", r->verdict.why);
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
					 NULL);
		else
			request__error(r, 405, NULL, "%s is not allowed for %s; use %s", r->method,
				       r->url, allow);
		return false;
	}
	if (!r->route) {
		request__error(r, 404, NULL, "no such path: %.200s", r->url);
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
	bool bad;
};

static enum MHD_Result refuse(struct queries *q, const char *field, const char *what)
{
	text__clean(q->c.field, sizeof(q->c.field), field, strlen(field));
	snprintf(q->c.detail, sizeof(q->c.detail), "%s: %s", *q->c.field ? q->c.field : "query",
		 what);
	q->bad = true;
	return MHD_NO;
}

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
			       : refuse(q, "", "a parameter's name is too long");
	memcpy(name, key, key_size);
	if (!validate__unescape(name, &key_size) || memchr(name, '\0', key_size))
		return r->route->flags & ROUTE_ANY_QUERY
			       ? MHD_YES
			       : refuse(q, "", "a parameter's name is not text");
	f = validate__field(r->route->in_query, name);
	if (!f)
		return r->route->flags & ROUTE_ANY_QUERY ? MHD_YES
							 : refuse(q, name, "unknown parameter");
	if (request__query(r, name))
		return refuse(q, name, "is given twice");
	if (r->n_query == WEB_PARAMS)
		return refuse(q, name, "there are too many parameters");
	text = malloc(size + 1);
	if (!text)
		return refuse(q, name, "no memory");
	r->query_text[r->n_query_text++] = text;
	if (value)
		memcpy(text, value, size);
	size = value ? size : 0;
	text[size] = '\0';
	if (!validate__unescape(text, &size))
		return refuse(q, name, "is not percent-encoded UTF-8");
	if (validate__text(f, text, size, &q->c)) {
		q->bad = true;
		return MHD_NO;
	}
	r->query[r->n_query++] = (struct param){ f, text };
	return MHD_YES;
}

static bool check_query(struct request *r)
{
	struct queries q = { .r = r };

	MHD_get_connection_values_n(r->mhd, MHD_GET_ARGUMENT_KIND, on_query, &q);
	for (const struct field *f = r->route->in_query; !q.bad && f && f->name; f++)
		if (f->required && !request__query(r, f->name))
			refuse(&q, f->name, "must be given");
	if (q.bad)
		request__error(r, 422, q.c.field, "%s", q.c.detail);
	return !q.bad;
}

static bool check_type(struct request *r)
{
	const char *type = header(r, "Content-Type");

	if (!r->route->in_body || !type || validate__is_json_type(type))
		return true;
	request__error(r, 415, NULL,
		       "the body must be application/json, but its Content-Type is \"%.80s\"",
		       type);
	return false;
}

/* Checks the request line and headers, and sets an error answer if a check fails; the answer is
 * sent after the body. False: do not read the body. */
static bool begin(struct request *r, const char *url, const char *method)
{
	const char *length = header(r, "Content-Length");
	unsigned long long size = length ? strtoull(length, NULL, 10) : 0;
	char *values[4];
	size_t n;

	snprintf(r->method, sizeof(r->method), "%s", method);
	r->url = strdup(url);
	if (!r->url) {
		r->answered = true;
		return false;
	}
	if (check_headers(r) && cut_authority(r) && check_route(r, values, &n) &&
	    check_path(r, values, n) && check_query(r) && check_type(r) && size > WEB_BODY)
		request__error(r, 413, NULL,
			       "the body must be at most %d bytes long, but it has %llu", WEB_BODY,
			       size);
	/* Do not read the body if its end is ambiguous or it is too long. With Expect, the
	 * client waits for this answer before it sends the body. */
	return !(r->answered && (size > WEB_DRAIN || r->status == 400 || header(r, "Expect")));
}

/* Adds a piece of the body. False: the body is too long even to be discarded. */
static bool take(struct request *r, const char *data, size_t size)
{
	if (!r->answered && size > WEB_BODY - r->body_size)
		request__error(r, 413, NULL, "the body must be at most %d bytes long", WEB_BODY);
	if (r->answered || !r->route->in_body) {
		r->drained += size;
		if (!r->answered && r->drained > WEB_BODY)
			request__error(
				r, 413, NULL,
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

/* ---- life of a request ---- */

void request__free(struct request *r)
{
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

static enum MHD_Result queue(struct request *r)
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
static void handle(struct request *r)
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

enum MHD_Result request__access(void *ctx, struct MHD_Connection *mhd, const char *url,
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
		return begin(r, url, method) ? MHD_YES : queue(r);
	}
	if (*size) {
		bool go_on = take(r, data, *size);

		*size = 0;
		return go_on ? MHD_YES : MHD_NO;
	}
	if (!r->read) {
		r->read = true;
		if (!r->answered)
			handle(r);
	}
	if (r->answered)
		return queue(r);
	r->suspended = true;
	MHD_suspend_connection(mhd);
	return MHD_YES;
}
