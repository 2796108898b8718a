/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sends posts, a few at a time, and repeats failed ones. The queue has a fixed limit. */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "serve/secret.h"
#include "serve/push/push.h"
#include "serve/server/authorities.h"

#define QUEUE 64		 /* queued posts, at most */
#define QUEUE_BYTES (64UL << 20) /* total size of queued posts, at most */
#define AT_ONCE 4		 /* most posts being sent at the same time */
/* longest delay between two attempts, in s, also if the server asks for more */
#define LONGEST_WAIT 300
#define DOUBLINGS 10 /* the delay is doubled so often; more would exceed LONGEST_WAIT anyway */
#define ANSWER 160   /* bytes of a server's answer kept for messages */

struct post {
	enum push_to to;
	char *url, *body;
	const char *type;
	size_t size;
	unsigned attempts;
	uint64_t not_before; /* earliest next attempt, ns, monotonic */
	CURL *easy;	     /* transfer in progress; NULL: none */
	struct curl_slist *headers;
	char answer[ANSWER];
	size_t answer_len;
	struct post *next;
};

struct sender {
	struct sender_opts opts;
	CURLM *multi;
	struct post *posts; /* list of posts, oldest first */
	size_t n, bytes;    /* number of posts, and size of their bodies */
	size_t busy;	    /* transfers in progress */
	struct push_counts counts[PUSH_NR];
	bool failing[PUSH_NR]; /* a failure was logged, and no recovery since */
	char *token_header;
	char ca[64]; /* path of the certificates; "": none */
	int ca_fd;
	unsigned random;
};

static const char *const names[PUSH_NR] = {
	[PUSH_PYROSCOPE] = "profiles", [PUSH_OTLP] = "metrics", [PUSH_OTLP_PROFILES] = "OTLP profiles"
};

/* Writes certificates to a file in memory: libcurl reads them only from a file, and the sandbox
 * does not allow to open the user's. */
static int store_ca(struct sender *s, const char *pem)
{
	int err;

	s->ca_fd = memfd_create("memtrace-bpf-ca", MFD_CLOEXEC);
	if (s->ca_fd < 0)
		return -errno;
	err = io__write(s->ca_fd, pem, strlen(pem));
	snprintf(s->ca, sizeof(s->ca), "/proc/self/fd/%d", s->ca_fd);
	return err;
}

struct sender *sender__new(const struct sender_opts *o)
{
	struct sender *s = calloc(1, sizeof(*s));
	int err = -ENOMEM;

	if (!s)
		return NULL;
	s->opts = *o;
	s->ca_fd = -1;
	s->random = (unsigned)clock__monotonic();
	s->multi = curl_multi_init();
	if (o->token && asprintf(&s->token_header, "Authorization: Bearer %s", o->token) < 0)
		s->token_header = NULL;
	if (!o->ca)
		authorities__find(s->ca, sizeof(s->ca));
	if (s->multi && (!o->token || s->token_header))
		err = o->ca ? store_ca(s, o->ca) : 0;
	if (!err)
		return s;
	sender__free(s);
	errno = -err;
	return NULL;
}

/* Ends the transfer of a post, if one is in progress. */
static void end_transfer(struct sender *s, struct post *p)
{
	if (!p->easy)
		return;
	curl_multi_remove_handle(s->multi, p->easy);
	curl_easy_cleanup(p->easy);
	curl_slist_free_all(p->headers);
	p->easy = NULL;
	p->headers = NULL;
	s->busy--;
}

/* Takes a post off the queue and frees it. */
static void drop_post(struct sender *s, struct post *p)
{
	struct post **at = &s->posts;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	end_transfer(s, p);
	s->n--;
	s->bytes -= p->size;
	free(p->url);
	free(p->body);
	free(p);
}

void sender__free(struct sender *s)
{
	if (!s)
		return;
	while (s->posts)
		drop_post(s, s->posts);
	curl_multi_cleanup(s->multi);
	if (s->token_header)
		explicit_bzero(s->token_header, strlen(s->token_header));
	free(s->token_header);
	if (s->ca_fd >= 0)
		close(s->ca_fd);
	free(s);
}

/* Drops the oldest posts until the queue has room for one of this size. */
static void make_room(struct sender *s, size_t size)
{
	while (s->posts && (s->n == QUEUE || s->bytes + size > QUEUE_BYTES)) {
		s->counts[s->posts->to].dropped++;
		drop_post(s, s->posts);
	}
}

void sender__post(struct sender *s, enum push_to to, const char *url, const char *type, char *body,
		  size_t size)
{
	struct post *p, **at = &s->posts;

	make_room(s, size);
	p = size <= QUEUE_BYTES ? calloc(1, sizeof(*p)) : NULL;
	if (p)
		p->url = strdup(url);
	if (!p || !p->url) {
		s->counts[to].dropped++;
		free(p);
		free(body);
		return;
	}
	p->to = to;
	p->type = type;
	p->body = body;
	p->size = size;
	while (*at)
		at = &(*at)->next;
	*at = p;
	s->n++;
	s->bytes += size;
}

/* Keeps the beginning of the answer and discards the rest. */
static size_t take_answer(char *data, size_t one, size_t n, void *ctx)
{
	struct post *p = ctx;
	size_t len = one * n, room = sizeof(p->answer) - p->answer_len,
	       take = len < room ? len : room;

	memcpy(p->answer + p->answer_len, data, take);
	p->answer_len += take;
	return len;
}

/* Adds a header to the post. False: no memory. */
static bool add_header(struct post *p, const char *text)
{
	struct curl_slist *more = curl_slist_append(p->headers, text);

	if (more)
		p->headers = more;
	return more;
}

/* Sets the options of libcurl and begins the transfer. False: no memory, or no valid URL. */
static bool set_up_transfer(struct sender *s, struct post *p, CURL *e)
{
	char type[160];

	snprintf(type, sizeof(type), "Content-Type: %s", p->type);
	/* No "Expect" header: servers that do not support it cause a delay of 1 s. */
	if (!add_header(p, type) || !add_header(p, "Expect:") ||
	    (s->token_header && !add_header(p, s->token_header)))
		return false;
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, 10L);
	curl_easy_setopt(e, CURLOPT_TIMEOUT, (long)s->opts.timeout);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "memtrace-bpf/" MEMTRACE_VERSION);
	curl_easy_setopt(e, CURLOPT_POST, 1L);
	curl_easy_setopt(e, CURLOPT_POSTFIELDS, p->body);
	curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)p->size);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, p->headers);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_answer);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, p);
	curl_easy_setopt(e, CURLOPT_PRIVATE, p);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
	if (loopback__direct(p->url, s->token_header))
		curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
	return !curl_easy_setopt(e, CURLOPT_URL, p->url) &&
	       (!*s->ca || !curl_easy_setopt(e, CURLOPT_CAINFO, s->ca)) &&
	       !curl_multi_add_handle(s->multi, e);
}

/* Counts a post as failed and drops it. */
static void give_up(struct sender *s, struct post *p)
{
	s->counts[p->to].failed++;
	drop_post(s, p);
}

/* Starts a transfer. Without memory, tries again in 1 s. */
static void start_post(struct sender *s, struct post *p, uint64_t now)
{
	p->attempts++;
	p->answer_len = 0;
	p->not_before = now + 1000000000;
	p->easy = curl_easy_init();
	if (p->easy) {
		s->busy++;
		if (set_up_transfer(s, p, p->easy))
			return;
		end_transfer(s, p);
	}
	if (p->attempts >= s->opts.attempts)
		give_up(s, p);
}

/* Starts the posts that are due, oldest first. */
static void start_due(struct sender *s, uint64_t now)
{
	for (struct post *p = s->posts, *next; p && s->busy < AT_ONCE; p = next) {
		next = p->next;
		if (!p->easy && p->not_before <= now)
			start_post(s, p, now);
	}
}

/* True if another attempt may succeed. */
static bool is_retryable(CURLcode code, long status)
{
	switch (code) {
	case CURLE_OK:
		return status == 408 || status == 429 || status >= 500;
	/* Repeating the post cannot fix these errors. */
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
		return false;
	default:
		return true;
	}
}

/* Sets the next attempt: twice the last delay plus a random part, so that clients do not all
 * return at once. */
static void schedule_retry(struct sender *s, struct post *p, curl_off_t retry_after, uint64_t now)
{
	uint64_t ms = (uint64_t)s->opts.backoff
		      << (p->attempts - 1 < DOUBLINGS ? p->attempts - 1 : DOUBLINGS);

	s->random = s->random * 1103515245u + 12345u; /* the generator of C's rand() */
	ms += ms * (s->random >> 16 & 0xff) / 1024;
	if (retry_after > 0 && (uint64_t)retry_after * 1000 > ms)
		ms = (uint64_t)retry_after * 1000;
	if (ms > LONGEST_WAIT * 1000UL)
		ms = LONGEST_WAIT * 1000UL;
	p->not_before = now + ms * 1000000;
}

/* Logs the first failure after a success. Omits the URL, which may contain a password. */
static void log_failure(struct sender *s, struct post *p, CURLcode code, long status, bool again)
{
	const char *next = again ? "tried again" : "given up";
	char answer[ANSWER * 4 + 1];

	if (s->failing[p->to])
		return;
	s->failing[p->to] = true;
	text__clean(answer, sizeof(answer), p->answer, p->answer_len);
	if (code)
		log_warn("%s could not be pushed: %s; %s", names[p->to], curl_easy_strerror(code),
			 next);
	else
		log_warn("%s could not be pushed: the server answers %ld%s%s; %s", names[p->to],
			 status, *answer ? ": " : "", answer, next);
}

/* A transfer has ended: drops the post, or plans the next attempt. */
static void finish_post(struct sender *s, struct post *p, CURLcode code, uint64_t now)
{
	curl_off_t retry_after = 0;
	long status = 0;
	bool again;

	curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(p->easy, CURLINFO_RETRY_AFTER, &retry_after);
	end_transfer(s, p);
	if (!code && status >= 200 && status < 300) {
		if (s->failing[p->to])
			log_info("%s are taken again", names[p->to]);
		s->failing[p->to] = false;
		s->counts[p->to].sent++;
		drop_post(s, p);
		return;
	}
	again = is_retryable(code, status) && p->attempts < s->opts.attempts;
	log_failure(s, p, code, status, again);
	if (again) {
		schedule_retry(s, p, retry_after, now);
		return;
	}
	give_up(s, p);
}

/* With AT_ONCE transfers in progress, no further post can start: only libcurl's timeout counts. */
int sender__sleep(struct sender *s, uint64_t now)
{
	long least = 60000, timeout = -1;

	for (const struct post *p = s->posts; p && s->busy < AT_ONCE; p = p->next) {
		uint64_t left = p->not_before > now ? (p->not_before - now) / 1000000 + 1 : 0;

		if (!p->easy && (long)left < least)
			least = (long)left;
	}
	if (!curl_multi_timeout(s->multi, &timeout) && timeout >= 0 && timeout < least)
		least = timeout;
	return (int)least;
}

void sender__turn(struct sender *s, struct pollfd *fds, size_t n, int ms)
{
	struct curl_waitfd waits[4];
	CURLMsg *m;
	int left;

	if (n > sizeof(waits) / sizeof(waits[0]))
		n = sizeof(waits) / sizeof(waits[0]);
	for (size_t i = 0; i < n; i++) {
		waits[i] = (struct curl_waitfd){ .fd = fds[i].fd };
		if (fds[i].events & POLLIN)
			waits[i].events |= CURL_WAIT_POLLIN;
		if (fds[i].events & POLLOUT)
			waits[i].events |= CURL_WAIT_POLLOUT;
	}
	start_due(s, clock__monotonic());
	curl_multi_perform(s->multi, &left);
	curl_multi_poll(s->multi, waits, (unsigned)n, ms, NULL);
	curl_multi_perform(s->multi, &left);
	while ((m = curl_multi_info_read(s->multi, &left))) {
		struct post *p;

		if (m->msg != CURLMSG_DONE ||
		    curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &p))
			continue;
		finish_post(s, p, m->data.result, clock__monotonic());
	}
}

struct push_counts sender__counts(const struct sender *s, enum push_to to)
{
	return s->counts[to];
}

size_t sender__waiting(const struct sender *s)
{
	return s->n;
}
