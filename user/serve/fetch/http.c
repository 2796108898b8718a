/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/fetch/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "serve/secret.h"
#include "serve/server/authorities.h"

#define MS UINT64_C(1000000)
#define FIRST_WAIT (250 * MS)	  /* before the second attempt; doubled with each attempt */
#define LONGEST_WAIT (4000 * MS)  /* between two attempts, unless the server asks for more */
#define RETRY_AFTER_MOST 600	  /* s; a server that asks for more is not obeyed */
#define TURN 200		  /* longest time between two calls of tick(), ms */
#define ERROR_TEXT (HTTP_WHY * 4) /* bytes kept of an error document that comes instead of a file */

struct call {
	struct http *http;
	struct http_call wanted;
	char *url, *body;
	unsigned attempts;
	CURL *easy; /* attempt in progress; NULL: none */
	struct curl_slist *headers;
	struct http_answer answer;
	char *data;
	size_t size, room;
	uint64_t deadline; /* end of this attempt to get a file, ns; 0: not set yet */
	bool too_long, failed_to_write, too_late;
	bool error_full; /* ERROR_TEXT bytes of an error document have come */
	struct call *next;
};

struct http {
	struct http_opts opts;
	CURLM *multi;
	struct call *calls, **last; /* in the order of http__call() */
	size_t busy;		    /* attempts in progress */
	char *token;		    /* header with the token; NULL: none */
	char ca[64];		    /* file of trusted authorities; "": libcurl's own */
	unsigned random;
};

struct http *http__new(const struct http_opts *o)
{
	struct http *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->opts = *o;
	h->last = &h->calls;
	h->random = (unsigned)clock__monotonic();
	h->multi = curl_multi_init();
	if (!o->ca)
		authorities__find(h->ca, sizeof(h->ca));
	if (o->token && asprintf(&h->token, "Authorization: Bearer %s", o->token) < 0)
		h->token = NULL;
	if (h->multi && (h->token || !o->token)) {
		curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)o->parallel);
		return h;
	}
	http__free(h);
	errno = ENOMEM;
	return NULL;
}

/* Ends the attempt that is in progress, if any. */
static void end_attempt(struct call *c)
{
	if (!c->easy)
		return;
	curl_multi_remove_handle(c->http->multi, c->easy);
	curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->headers);
	c->easy = NULL;
	c->headers = NULL;
	c->http->busy--;
	(*c->wanted.attempts)--;
}

/* Removes and frees a call, without an answer. */
static void drop_call(struct call *c)
{
	struct http *h = c->http;
	struct call **at = &h->calls;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	if (h->last == &c->next)
		h->last = at;
	end_attempt(c);
	free(c->url);
	free(c->body);
	free(c->data);
	free(c);
}

void http__free(struct http *h)
{
	if (!h)
		return;
	while (h->calls)
		drop_call(h->calls);
	curl_multi_cleanup(h->multi);
	if (h->token)
		explicit_bzero(h->token, strlen(h->token));
	free(h->token);
	free(h);
}

int http__call(struct http *h, const struct http_call *call)
{
	struct call *c = calloc(1, sizeof(*c));
	bool lacks_memory;

	if (!c)
		return -ENOMEM;
	c->http = h;
	c->wanted = *call;
	c->url = strdup(call->url);
	c->body = call->body ? strdup(call->body) : NULL;
	c->data = call->fd < 0 ? malloc(1) : NULL;
	*h->last = c;
	h->last = &c->next;
	lacks_memory = !c->url || (call->body && !c->body) || (call->fd < 0 && !c->data);
	if (!lacks_memory)
		return 0;
	drop_call(c);
	return -ENOMEM;
}

/* ---- one attempt ---- */

/* True if a file takes longer than the time for any answer and 1 s for each MiB. Without a known
 * size, the largest accepted one counts. */
static bool is_late(struct call *c)
{
	curl_off_t size = -1;

	if (!c->deadline) {
		curl_easy_getinfo(c->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &size);
		if (size < 0 || (uint64_t)size > c->wanted.most)
			size = (curl_off_t)c->wanted.most;
		c->deadline = clock__monotonic() + c->http->opts.patience +
			      ((uint64_t)size >> 20) * 1000 * MS;
	}
	return clock__monotonic() > c->deadline;
}

/* Keeps the beginning of an error document that comes instead of a file. Returns len to go on, or
 * 0, which ends the attempt, when enough has come. */
static size_t keep_error(struct call *c, const char *data, size_t len)
{
	size_t room = ERROR_TEXT - c->size, kept = len < room ? len : room;

	if (!c->data && !(c->data = malloc(ERROR_TEXT + 1)))
		return 0;
	memcpy(c->data + c->size, data, kept);
	c->size += kept;
	c->error_full = c->size == ERROR_TEXT;
	return c->error_full ? 0 : len;
}

/* libcurl calls this with each part of the body, of one * n bytes. If the call wants a file, writes
 * the part to it, or keeps the beginning of an error document (status other than 200). Otherwise
 * adds the part to c->data. Returns the part's length, or 0 to end the attempt: too_long,
 * failed_to_write, too_late or error_full of c say why; if none is set, out of memory. */
static size_t take_body(char *data, size_t one, size_t n, void *ctx)
{
	struct call *c = ctx;
	size_t len = one * n, room;
	char *bigger;
	long status = 0;

	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	c->too_long = len > c->wanted.most - c->size;
	if (c->too_long)
		return 0;
	if (c->wanted.fd >= 0 && status == 200) {
		c->failed_to_write = io__write(c->wanted.fd, data, len);
		c->size += len;
		c->too_late = is_late(c);
		return c->failed_to_write || c->too_late ? 0 : len;
	}
	if (c->wanted.fd >= 0)
		return keep_error(c, data, len);
	if (c->size + len + 1 > c->room) {
		room = (c->size + len + 1) * 2;
		bigger = realloc(c->data, room);
		if (!bigger)
			return 0;
		c->data = bigger;
		c->room = room;
	}
	memcpy(c->data + c->size, data, len);
	c->size += len;
	return len;
}

/* libcurl calls this with each header: the first one is the beginning of the answer. */
static size_t take_header(char *data, size_t one, size_t n, void *ctx)
{
	struct call *c = ctx;

	(void)data;
	if (!c->answer.answered)
		c->answer.answered = clock__read(CLOCK_REALTIME);
	return one * n;
}

/* libcurl calls this when it is connected and about to send the request. */
static int before_request(void *ctx, char *ip, char *own_ip, int port, int own_port)
{
	struct call *c = ctx;

	(void)ip;
	(void)own_ip;
	(void)port;
	(void)own_port;
	c->answer.sent = true;
	c->answer.asked = clock__read(CLOCK_REALTIME);
	return CURL_PREREQFUNC_OK;
}

/* Adds a header to the attempt. False: no memory. */
static bool add_header(struct call *c, const char *text)
{
	struct curl_slist *more = curl_slist_append(c->headers, text);

	if (more)
		c->headers = more;
	return more;
}

/* Sets the options of libcurl and begins the attempt. False: no memory, or no valid URL. */
static bool set_up_attempt(struct call *c, CURL *e)
{
	const struct http *h = c->http;
	const char *ca = h->opts.ca;

	if (!ca && *h->ca)
		ca = h->ca;

	/* No "Expect" header: servers that do not support it cause a delay of 1 s. */
	if (!add_header(c, "Expect:") || !add_header(c, "Accept: application/json, */*"))
		return false;
	if (c->body && !add_header(c, "Content-Type: application/json"))
		return false;
	if (h->token && !add_header(c, h->token))
		return false;
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)(h->opts.patience / MS));
	curl_easy_setopt(e, CURLOPT_SERVER_RESPONSE_TIMEOUT,
			 (long)(h->opts.patience / (1000 * MS)) + 1);
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT,
			 (long)(c->wanted.fd < 0 ? 1 : HTTP_LEAST_SPEED));
	curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)(h->opts.patience / (1000 * MS)) + 1);
	/* The body of an error may come byte by byte. */
	curl_easy_setopt(e, CURLOPT_TIMEOUT_MS,
			 (long)(2 * h->opts.patience / MS +
				(c->wanted.fd < 0 ? 0 : (c->wanted.most >> 20) * 1000)));
	if (loopback__direct(c->url, h->token))
		curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(e, CURLOPT_USERAGENT, "memtrace-bpf/" MEMTRACE_VERSION);
	curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, c->wanted.method);
	if (c->body)
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, c->body);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
	curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, before_request);
	curl_easy_setopt(e, CURLOPT_PREREQDATA, c);
	curl_easy_setopt(e, CURLOPT_PRIVATE, c);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
	return !curl_easy_setopt(e, CURLOPT_URL, c->url) &&
	       (!ca || !curl_easy_setopt(e, CURLOPT_CAINFO, ca)) &&
	       !curl_multi_add_handle(c->http->multi, e);
}

/* Drops the call and gives its answer to done(), which may make further calls. */
static void give_answer(struct call *c)
{
	void (*done)(void *ctx, const struct http_answer *a) = c->wanted.done;
	struct http_answer a = c->answer;
	char *data = c->data;

	/* With a file, the size is the file's, and the data is the text of an earlier error. */
	if (c->wanted.fd < 0)
		data[c->size] = '\0';
	a.data = c->wanted.fd < 0 ? data : "";
	a.size = c->size;
	c->data = NULL;
	void *ctx = c->wanted.ctx;

	drop_call(c);
	done(ctx, &a);
	free(data);
}

/* Starts an attempt, or answers with an error. */
static void start_attempt(struct call *c)
{
	c->attempts++;
	c->size = 0;
	c->deadline = 0;
	c->too_long = c->failed_to_write = c->too_late = c->error_full = false;
	c->answer = (struct http_answer){ 0 };
	if (c->wanted.fd >= 0 && (ftruncate(c->wanted.fd, 0) || lseek(c->wanted.fd, 0, SEEK_SET))) {
		snprintf(c->answer.why, HTTP_WHY, "cannot write: %s", strerror(errno));
		give_answer(c);
		return;
	}
	c->easy = curl_easy_init();
	if (c->easy) {
		c->http->busy++;
		(*c->wanted.attempts)++;
		if (set_up_attempt(c, c->easy))
			return;
		end_attempt(c);
	}
	snprintf(c->answer.why, HTTP_WHY, "out of memory, or not an address");
	give_answer(c);
}

/* ---- the end of an attempt ---- */

/* Sets why to the status and "detail" of an error document or, if it is not JSON, its beginning. */
static void explain_status(struct call *c, long status)
{
	json_t *o = c->data ? json_loadb(c->data, c->size, 0, NULL) : NULL;
	const char *detail = json_string_value(json_object_get(o, "detail"));
	char text[HTTP_WHY - 64];

	if (!detail && c->data) {
		c->data[c->size] = '\0';
		detail = c->data;
	}
	detail = detail ? detail : "";
	text__clean(text, sizeof(text), detail, strnlen(detail, HTTP_WHY));
	snprintf(c->answer.why, HTTP_WHY, "the server answers %ld%s%s", status, *text ? ": " : "",
		 text);
	json_decref(o);
}

/* True if an error document came instead of a file. It counts even if the attempt was ended before
 * the document's end. */
static bool is_refusal(const struct call *c, CURLcode code, long status)
{
	return c->wanted.fd >= 0 && status >= 300 &&
	       (c->error_full || code == CURLE_OPERATION_TIMEDOUT);
}

/* True for an error that another attempt cannot mend. attempts: their number so far. */
static bool is_final(CURLcode code, unsigned attempts)
{
	switch (code) {
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
		return true;
	case CURLE_SSL_CONNECT_ERROR: /* a server without TLS, if it comes again */
		return attempts > 1;
	default:
		return false;
	}
}

/* Sets the status and error of the answer. Returns whether another attempt may succeed. */
static bool should_repeat(struct call *c, CURLcode code, long status)
{
	char bytes[24];

	code = is_refusal(c, code, status) ? CURLE_OK : code;

	if (c->too_long)
		snprintf(c->answer.why, HTTP_WHY, "its answer is longer than %s",
			 text__bytes(bytes, sizeof(bytes), c->wanted.most));
	else if (c->failed_to_write)
		snprintf(c->answer.why, HTTP_WHY, "cannot write its answer: the disk is full?");
	else if (c->too_late)
		snprintf(c->answer.why, HTTP_WHY,
			 "its file comes at less than 1 MiB/s; a longer --timeout gives it more "
			 "time");
	else if (code == CURLE_OPERATION_TIMEDOUT && c->wanted.fd >= 0 && status == 200)
		snprintf(c->answer.why, HTTP_WHY, "its file comes at less than %s/s",
			 text__bytes(bytes, sizeof(bytes), HTTP_LEAST_SPEED));
	else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
		snprintf(c->answer.why, HTTP_WHY, "%s: trust its authority with --ca",
			 curl_easy_strerror(code));
	else if (code == CURLE_SSL_CONNECT_ERROR)
		snprintf(c->answer.why, HTTP_WHY,
			 "%s: if it has no certificate, write http://HOST:PORT or give --http",
			 curl_easy_strerror(code));
	else if (code)
		snprintf(c->answer.why, HTTP_WHY, "%s", curl_easy_strerror(code));
	else if (status >= 200 && status < 300) {
		c->answer.status = (int)status;
		return false;
	} else {
		c->answer.status = (int)status;
		explain_status(c, status);
	}
	if (c->too_long || c->failed_to_write || c->too_late || is_final(code, c->attempts))
		return false;
	if (!code)
		return status == 408 || status == 429 || status >= 500;
	return !c->wanted.once || !c->answer.sent;
}

/* An attempt has ended: plans the next one, or gives the answer. */
static void finish_attempt(struct call *c, CURLcode code)
{
	uint64_t now = clock__monotonic(),
		 wait = FIRST_WAIT
			<< (c->attempts < 6 ? c->attempts - 1 : 5); /* doubles each time */
	curl_off_t retry_after = 0;
	struct http *h = c->http;
	long status = 0;
	bool again;

	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(c->easy, CURLINFO_RETRY_AFTER, &retry_after);
	again = should_repeat(c, code, status);
	end_attempt(c);
	if (wait > LONGEST_WAIT)
		wait = LONGEST_WAIT;
	/* A random part, up to a quarter, so that calls do not all come back at once. The generator
	 * is that of C's rand(). */
	h->random = h->random * 1103515245u + 12345u;
	wait += wait * (h->random >> 16 & 0xff) / 1024;
	if (retry_after > 0 && retry_after < RETRY_AFTER_MOST &&
	    (uint64_t)retry_after * 1000 * MS > wait)
		wait = (uint64_t)retry_after * 1000 * MS;
	if (again && now + wait < c->wanted.until)
		c->wanted.after = now + wait;
	else
		give_answer(c);
}

/* ---- all calls ---- */

void http__wake(struct http *h)
{
	curl_multi_wakeup(h->multi);
}

/* Starts the calls that are due, with the limits of all calls and of each server. */
static void start_due(struct http *h)
{
	uint64_t now = clock__monotonic();

	for (struct call *c = h->calls, *next; c && h->busy < h->opts.parallel; c = next) {
		next = c->next;
		if (!c->easy && c->wanted.after <= now && *c->wanted.attempts < HTTP_OF_HOST)
			start_attempt(c);
	}
}

/* How long http__run() may wait for the next start of an attempt, in ms. */
static int next_wait(const struct http *h)
{
	uint64_t now = clock__monotonic();
	int least = TURN;

	if (h->busy >= h->opts.parallel)
		return least;
	for (const struct call *c = h->calls; c; c = c->next) {
		uint64_t left = c->wanted.after > now ? (c->wanted.after - now) / MS + 1 : 0;

		bool may_start = !c->easy && *c->wanted.attempts < HTTP_OF_HOST;

		if (may_start && left < (uint64_t)least)
			least = (int)left;
	}
	return least;
}

void http__run(struct http *h, int (*tick)(void *ctx), void *ctx)
{
	CURLMsg *m;
	int left, more;

	for (;;) {
		more = tick ? tick(ctx) : 0;
		while (more < 0 && h->calls)
			drop_call(h->calls);
		if (more < 0 || (!more && !h->calls))
			return;
		start_due(h);
		curl_multi_perform(h->multi, &left);
		while ((m = curl_multi_info_read(h->multi, &left))) {
			CURLcode code = m->data.result;
			struct call *c;

			if (m->msg == CURLMSG_DONE &&
			    !curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c))
				finish_attempt(c, code);
		}
		if (h->calls || more)
			curl_multi_poll(h->multi, NULL, 0, next_wait(h), NULL);
	}
}
