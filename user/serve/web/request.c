/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Functions for handlers: the values of a request, its answer, questions to the broker. */
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

/* The value of a parameter; NULL: the request lacks it. */
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

/* True if the answer has the header already. */
static bool has_header(const struct request *r, const char *name)
{
	for (size_t i = 0; i < r->n_headers; i++)
		if (r->headers[i].name && !strcasecmp(r->headers[i].name, name))
			return true;
	return false;
}

/* Adds the headers of the answer to the response. type: of the content; NULL: none. */
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
		/* A second answer is dropped. Without memory for the first one (response NULL),
		 * web.c closes the connection. */
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

#define RANGE_UNIT "bytes="
#define RANGE_MOST 40 /* bytes of the two largest 64-bit numbers with a "-" */

/* Parses the header Range of a file of this size: "bytes=A-B", "bytes=A-" or "bytes=-N". *from,
 * *length: the bytes to send. False: send the whole file, also for other kinds of ranges. */
static bool parse_range(struct request *r, uint64_t size, uint64_t *from, uint64_t *length)
{
	const char *range = MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, "Range"), *p;
	unsigned long long first, last;
	char *end;

	if (!range || strncmp(range, RANGE_UNIT, strlen(RANGE_UNIT)) || strchr(range, ','))
		return false;
	if (!size || MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, "If-Range"))
		return false;
	p = range + strlen(RANGE_UNIT);
	if (strspn(p, "0123456789-") != strlen(p) || !strchr(p, '-') || strlen(p) > RANGE_MOST)
		return false;
	if (*p == '-') {
		/* "-N": the last N bytes */
		last = strtoull(p + 1, &end, 10);
		if (*end || end == p + 1 || !last)
			return false;
		*from = last < size ? size - last : 0;
		*length = size - *from;
		return true;
	}
	first = strtoull(p, &end, 10);
	if (*end != '-')
		return false;
	p = end + 1;
	last = *p ? strtoull(p, &end, 10) : size - 1;
	if ((*p && *end) || first > last || first >= size)
		return false;
	*from = first;
	*length = (last < size ? last + 1 : size) - first;
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
	if (parse_range(r, size, &from, &length)) {
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

/* take_answer() in web.c finds the request by the question's ID. */
void request__ask(struct request *r, json_t *msg,
		  void (*then)(struct request *r, json_t *answer, int fd))
{
	uint64_t id = ++r->web->last_id;
	int err;

	json_object_set_new(msg, "id", json_integer((json_int_t)id));
	r->asked = id;
	r->asked_at = r->web->now;
	r->then = then;
	err = link__send(r->web->link, msg, /*fd=*/-1);
	if (err == -E2BIG)
		request__error(r, 413, NULL, "the request is too large to forward");
	else if (err)
		request__error(r, 503, /*field=*/NULL,
			       "the capturing part of the server %s; try again",
			       err == -ENOBUFS ? "is overloaded" : "has ended");
}

void request__wait(struct request *r, void (*again)(struct request *r))
{
	r->again = again;
}

/* The library itself notices a disconnect while it reads or writes. */
bool request__client_gone(const struct request *r)
{
	struct pollfd p = { .fd = r->conn->fd, .events = POLLRDHUP };

	return r->suspended && poll(&p, 1, 0) > 0 && p.revents;
}
