/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/store/tcp_store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "base/user.h"

/* validationMagicNumber of PyTorch's TCPStore, which a client of 2.2 and later sends first. */
#define MAGIC 0x3c85f7ceu
#define REQUEST_MAX (STORE_BYTES_MAX / 4) /* most bytes of an unfinished request */
#define LARGE (1u << 20)		  /* bytes; larger buffers are freed when they are empty */
#define NCCL_ID 128u			  /* bytes of ncclUniqueId */
#define RANDOM 32u			  /* of them random, to differ between communicators */
#define LAST_WORKER ":last_worker"
#define SHOWN_KEY 256u /* bytes of a key in a message */
#define BUCKETS 4096u

struct slice {
	const char *data;
	size_t n;
};

struct value {
	struct value *next; /* next value in a queue */
	size_t n;
	char bytes[];
};

struct entry {
	struct entry *next;
	struct value *value; /* value of the key; NULL: only a queue or waiting clients */
	struct value *queue, **queue_end;
	size_t n_queue, n;
	char key[]; /* n bytes and a NUL */
};

struct bytes {
	char *data;
	size_t n, cap;
};

struct tcp_store_client {
	struct tcp_store_client *next;
	struct tcp_store *store;
	void *connection;
	struct bytes in, out;
	bool old;	      /* true for the protocol before 2.2 */
	bool known;	      /* the protocol is known */
	struct entry **waits; /* absent keys that the client waits for */
	size_t n_waits, cap_waits;
	uint64_t since_ms; /* time of the last request */
};

struct tcp_store {
	struct tcp_store_opts opts;
	struct hash_seed seed;
	struct entry *buckets[BUCKETS];
	size_t n_keys, n_entries, bytes;
	size_t buffered; /* sum of all clients' buffers, bytes */
	struct tcp_store_client *clients;
};

/* ---- keys and values ---- */

/* Returns the entry of a key, or NULL. */
static struct entry *find_entry(const struct tcp_store *s, struct slice key)
{
	struct entry *e = s->buckets[hash__bytes(s->seed, key.data, key.n) % BUCKETS];

	while (e && (e->n != key.n || memcmp(e->key, key.data, key.n)))
		e = e->next;
	return e;
}

/* Returns the entry of a key; creates it if it is absent. NULL if memory is short or a bound is
 * reached. */
static struct entry *make_entry(struct tcp_store *s, struct slice key)
{
	struct entry *e = find_entry(s, key), **bucket;

	if (e)
		return e;
	if (s->n_entries >= STORE_KEYS_MAX || s->bytes + key.n > STORE_BYTES_MAX)
		return NULL;
	e = calloc(1, sizeof(*e) + key.n + 1);
	if (!e)
		return NULL;
	memcpy(e->key, key.data, key.n);
	e->n = key.n;
	e->queue_end = &e->queue;
	bucket = &s->buckets[hash__bytes(s->seed, key.data, key.n) % BUCKETS];
	e->next = *bucket;
	*bucket = e;
	s->n_entries++;
	s->bytes += key.n;
	return e;
}

/* Creates a value of a followed by b. NULL if memory is short or a bound is reached. */
static struct value *make_value(struct tcp_store *s, struct slice a, struct slice b)
{
	struct value *v;

	if (a.n + b.n > STORE_VALUE_MAX || s->bytes + a.n + b.n > STORE_BYTES_MAX)
		return NULL;
	v = malloc(sizeof(*v) + a.n + b.n);
	if (!v)
		return NULL;
	v->next = NULL;
	v->n = a.n + b.n;
	if (a.n)
		memcpy(v->bytes, a.data, a.n);
	if (b.n)
		memcpy(v->bytes + a.n, b.data, b.n);
	s->bytes += v->n;
	return v;
}

/* Creates a copy of a value. NULL if memory is short or a bound is reached. */
static struct value *copy_value(struct tcp_store *s, struct slice value)
{
	return make_value(s, value, /*b=*/(struct slice){ 0 });
}

/* Frees a value; NULL is fine. *v becomes NULL. */
static void drop_value(struct tcp_store *s, struct value **v)
{
	if (*v)
		s->bytes -= (*v)->n;
	free(*v);
	*v = NULL;
}

void tcp_store__clear(struct tcp_store *s)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		while (s->buckets[i]) {
			struct entry *e = s->buckets[i];

			s->buckets[i] = e->next;
			drop_value(s, &e->value);
			while (e->queue) {
				struct value *v = e->queue;

				e->queue = v->next;
				drop_value(s, &v);
			}
			free(e);
		}
	}
	s->n_keys = s->n_entries = s->bytes = 0;
}

/* ---- parsing ---- */

/* Requests as of 2.2, where a client begins with VALIDATE and MAGIC. Before 2.2 VALIDATE is
 * missing, so all numbers are one less. */
enum query {
	VALIDATE,
	SET,
	COMPARE_SET,
	GET,
	ADD,
	CHECK,
	WAIT,
	GET_NUM_KEYS,
	DELETE_KEY,
	APPEND,
	MULTI_GET,
	MULTI_SET,
	CANCEL_WAIT,
	PING,
	QUEUE_PUSH,
	QUEUE_POP,
	QUEUE_LEN,
	LIST_KEYS,
	BARRIER,
	N_QUERIES,
};
enum { READY, NOT_READY };	      /* answers to CHECK */
enum { STOP_WAITING, WAIT_CANCELED }; /* answers to WAIT */

/* A request being parsed; is_short is set if bytes are missing. */
struct reader {
	const char *at, *end;
	bool is_short, bad;
};

/* Takes n bytes of the request. NULL: they are missing, or something before was wrong. */
static const void *take(struct reader *r, size_t n)
{
	const char *at = r->at;

	if (r->is_short || r->bad || (size_t)(r->end - r->at) < n) {
		r->is_short = true;
		return NULL;
	}
	r->at += n;
	return at;
}

static uint64_t take_u64(struct reader *r)
{
	uint64_t n = 0;
	const void *at = take(r, sizeof(n));

	if (at)
		memcpy(&n, at, sizeof(n));
	return n;
}

/* Takes a length and its bytes. Use the slice only if is_complete(r): it may be too long or cut
 * off. */
static struct slice take_slice(struct reader *r, size_t max)
{
	uint64_t n = take_u64(r);

	if (n > max)
		r->bad = true;
	return (struct slice){ .data = take(r, n > max ? 0 : (size_t)n), .n = (size_t)n };
}

static struct slice take_key(struct reader *r)
{
	return take_slice(r, STORE_KEY_MAX);
}

static struct slice take_value(struct reader *r)
{
	return take_slice(r, STORE_VALUE_MAX);
}

static bool is_complete(const struct reader *r)
{
	return !r->is_short && !r->bad;
}

/* Adds bytes to a buffer of the client. Returns 0, or -ENOMEM, also at a bound. */
static int append(struct tcp_store_client *c, struct bytes *b, const void *data, size_t n)
{
	size_t *held = &c->store->buffered, had = b->cap;
	int err = 0;

	if (b->n + n > had) {
		/* array__grow() may double the size. */
		err = *held - had + 2 * (b->n + n) > STORE_BUFFERS_MAX
			      ? -ENOMEM
			      : array__grow(&b->data, &b->cap, b->n + n, 1);
		*held += b->cap - had;
	}
	if (err)
		return err;
	if (n)
		memcpy(b->data + b->n, data, n);
	b->n += n;
	return 0;
}

static int put_u8(struct tcp_store_client *c, uint8_t n)
{
	return append(c, &c->out, &n, sizeof(n));
}

static int put_u64(struct tcp_store_client *c, uint64_t n)
{
	return append(c, &c->out, &n, sizeof(n));
}

/* Answers with a length and bytes. Returns 0 or -errno. */
static int put_slice(struct tcp_store_client *c, const void *data, size_t n)
{
	int err = c->out.n + n > STORE_BYTES_MAX ? -EPROTO : put_u64(c, n);

	return err ? err : append(c, &c->out, data, n);
}

/* Frees a buffer of the client. */
static void drop(struct tcp_store_client *c, struct bytes *b)
{
	c->store->buffered -= b->cap;
	free(b->data);
	*b = (struct bytes){ 0 };
}

/* Sends the answers so far. Returns 0 or -errno. */
static int flush(struct tcp_store *s, struct tcp_store_client *c)
{
	int err = c->out.n ? s->opts.send(s->opts.ctx, c->connection, c->out.data, c->out.n) : 0;

	c->out.n = 0;
	if (c->out.cap > LARGE)
		drop(c, &c->out);
	return err;
}

/* True if the key has a value or a queue with values. */
static bool is_there(const struct entry *e)
{
	return e && (e->value || e->queue);
}

/* Answers the clients that waited only for this entry. one: only the first, which waited longest.
 * Returns 0. */
static int wake(struct tcp_store *s, struct entry *e, bool one)
{
	for (struct tcp_store_client *c = s->clients; c; c = c->next) {
		size_t left = 0;
		int err;

		if (!c->n_waits)
			continue;
		for (size_t i = 0; i < c->n_waits; i++) {
			if (c->waits[i] != e)
				c->waits[left++] = c->waits[i];
		}
		if (left == c->n_waits)
			continue;
		c->n_waits = left;
		if (left)
			continue;
		err = put_u8(c, STOP_WAITING);
		/* Reading from a broken connection will report the error. */
		if (!err)
			flush(s, c);
		if (one)
			break;
	}
	return 0;
}

/* Sets the value of a key and wakes who waits for it. Returns 0 or -ENOMEM. */
static int set_key(struct tcp_store *s, struct slice key, struct slice value)
{
	struct entry *e = make_entry(s, key);
	struct value *v;

	if (!e)
		return -ENOMEM;
	v = copy_value(s, value);
	if (!v)
		return -ENOMEM;
	s->n_keys += !e->value;
	drop_value(s, &e->value);
	e->value = v;
	return wake(s, e, /*one=*/false);
}

/* ---- keys of the missing ranks ---- */

/* True if the key ends with this text. */
static bool ends_with(struct slice key, const char *text)
{
	size_t n = strlen(text);

	return key.n >= n && !memcmp(key.data + key.n - n, text, n);
}

/* True for the key of an NCCL communicator's identity: ".../cuda//0", ".../cuda//0:1" for a pair,
 * ".../cuda//0_1" for one of several roots, ".../nccl_storekey_0" from 2.15 on. */
static bool is_nccl_id(struct slice key)
{
	size_t i = key.n;

	while (i && strchr("0123456789:_,", key.data[i - 1]) && key.data[i - 1])
		i--;
	return i < key.n && (ends_with((struct slice){ key.data, i }, "cuda//") ||
			     ends_with((struct slice){ key.data, i }, "nccl_storekey"));
}

/* Sets a key that another rank would have set, if its value is known. Returns 0 or -errno. */
static int set_for_missing_rank(struct tcp_store *s, struct slice key)
{
	char id[NCCL_ID];

	if (ends_with(key, LAST_WORKER))
		return set_key(s, key, (struct slice){ "1", 1 });
	if (!is_nccl_id(key))
		return 0;
	/* Any identity works, because the dry run's NCCL ignores it. */
	memset(id, 0, sizeof(id));
	if (getrandom(id, RANDOM, 0) < 0)
		return -errno;
	return set_key(s, key, (struct slice){ id, sizeof(id) });
}

/* ---- requests ---- */

/*
 * The do_ functions handle one request each: parse it completely, act, and answer into c->out. They
 * return 0 or -errno. 0 also if the request is incomplete (r->is_short): it is run again with more
 * data.
 */

static int do_set(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct slice key = take_key(r);
	struct slice value = take_value(r);

	(void)c;
	return is_complete(r) ? set_key(s, key, value) : 0;
}

static int do_compare_set(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct slice key = take_key(r);
	struct slice expected = take_value(r);
	struct slice wanted = take_value(r);
	struct slice now;
	const struct entry *e;
	int err;

	if (!is_complete(r))
		return 0;
	e = find_entry(s, key);
	if (!e || !e->value) {
		/* TCPStore answers with the expected value if the key is absent. */
		if (expected.n)
			return put_slice(c, expected.data, expected.n);
		now = wanted;
	} else {
		now = (struct slice){ e->value->bytes, e->value->n };
		if (now.n != expected.n || memcmp(now.data, expected.data, now.n))
			return put_slice(c, now.data, now.n);
	}
	err = set_key(s, key, wanted);
	return err ? err : put_slice(c, wanted.data, wanted.n);
}

/* Answers with the value of a key; an absent one has length 0. Returns 0 or -errno. */
static int put_value(struct tcp_store *s, struct tcp_store_client *c, struct slice key)
{
	const struct entry *e = find_entry(s, key);

	return e && e->value ? put_slice(c, e->value->bytes, e->value->n) : put_u64(c, 0);
}

static int do_get(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct slice key = take_key(r);

	return is_complete(r) ? put_value(s, c, key) : 0;
}

/* Adds a number to a key's value, which is a decimal number as text; an absent one is 0. Answers
 * with the sum. */
static int do_add(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct slice key = take_key(r);
	uint64_t sum = take_u64(r);
	const struct entry *e;
	char text[32]; /* the old value, then the new one */
	int err, len;

	if (!is_complete(r))
		return 0;
	e = find_entry(s, key);
	if (e && e->value) {
		size_t n = e->value->n < sizeof(text) - 1 ? e->value->n : sizeof(text) - 1;

		memcpy(text, e->value->bytes, n);
		text[n] = '\0';
		sum += (uint64_t)strtoll(text, NULL, 10);
	}
	len = snprintf(text, sizeof(text), "%" PRId64, (int64_t)sum);
	err = set_key(s, key, (struct slice){ text, (size_t)len });
	return err ? err : put_u64(c, sum);
}

/* Calls one() for each key of a list, if the list is complete; stops at its first nonzero result,
 * which is returned. */
static int each_key(struct tcp_store *s, struct tcp_store_client *c, struct reader *r,
		    int (*one)(struct tcp_store *s, struct tcp_store_client *c, struct slice key))
{
	uint64_t n = take_u64(r);
	struct reader ahead = *r;
	int err = 0;

	if (n > STORE_KEYS_MAX)
		r->bad = true;
	for (uint64_t i = 0; i < n && is_complete(&ahead); i++)
		take_key(&ahead);
	if (!is_complete(r) || !is_complete(&ahead)) {
		r->is_short |= ahead.is_short;
		r->bad |= ahead.bad;
		return 0;
	}
	for (uint64_t i = 0; i < n && !err; i++)
		err = one(s, c, take_key(r));
	r->at = ahead.at;
	return err;
}

/* Returns 1 if the key is missing, 0 if it is there, also because it was set for a missing rank, or
 * -errno. */
static int check_missing(struct tcp_store *s, struct tcp_store_client *c, struct slice key)
{
	int err = is_there(find_entry(s, key)) ? 0 : set_for_missing_rank(s, key);

	(void)c;
	return err ? err : !is_there(find_entry(s, key)); /* 1: still missing */
}

static int do_check(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	int ret = each_key(s, c, r, check_missing);

	if (ret < 0 || !is_complete(r))
		return ret;
	return put_u8(c, ret ? NOT_READY : READY);
}

/* Makes the client wait for a key if that is missing. Returns 0 or -errno. */
static int wait_for(struct tcp_store *s, struct tcp_store_client *c, struct slice key)
{
	struct entry *e;
	int ret = check_missing(s, c, key);

	if (ret <= 0)
		return ret;
	e = make_entry(s, key);
	if (!e || array__grow(&c->waits, &c->cap_waits, c->n_waits + 1, sizeof(*c->waits)))
		return -ENOMEM;
	c->waits[c->n_waits++] = e;
	return 0;
}

/* Answers at once if no key is missing; otherwise once all are set. */
static int do_wait(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	int err;

	c->n_waits = 0;
	err = each_key(s, c, r, wait_for);
	if (err || !is_complete(r))
		return err;
	return c->n_waits ? 0 : put_u8(c, STOP_WAITING);
}

static int do_get_num_keys(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	(void)r;
	return put_u64(c, s->n_keys);
}

static int do_delete_key(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct slice key = take_key(r);
	struct entry *e;
	bool was;

	if (!is_complete(r))
		return 0;
	e = find_entry(s, key);
	was = e && e->value;
	if (was) {
		/* Keep the entry, because clients may wait for it. */
		drop_value(s, &e->value);
		s->n_keys--;
	}
	return put_u64(c, was);
}

static int do_append(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct slice key = take_key(r);
	struct slice value = take_value(r);
	struct entry *e;
	struct value *v;

	(void)c;
	if (!is_complete(r))
		return 0;
	e = make_entry(s, key);
	if (!e || !e->value)
		return e ? set_key(s, key, value) : -ENOMEM;
	v = make_value(s, (struct slice){ e->value->bytes, e->value->n }, value);
	if (!v)
		return -ENOMEM;
	drop_value(s, &e->value);
	e->value = v;
	return wake(s, e, /*one=*/false);
}

static int do_multi_get(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	return each_key(s, c, r, put_value);
}

/* Sets several keys, all or none: looks first whether the whole request has come, since an
 * incomplete one is run again. */
static int do_multi_set(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	uint64_t n = take_u64(r);
	struct reader ahead = *r;
	int err = 0;

	(void)c;
	if (n > STORE_KEYS_MAX)
		r->bad = true;
	for (uint64_t i = 0; i < n && is_complete(&ahead); i++) {
		take_key(&ahead);
		take_value(&ahead);
	}
	r->is_short |= ahead.is_short;
	r->bad |= ahead.bad;
	for (uint64_t i = 0; i < n && is_complete(r) && !err; i++) {
		struct slice key = take_key(r);
		struct slice value = take_value(r);

		err = set_key(s, key, value);
	}
	return err;
}

static int do_cancel_wait(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	(void)s;
	(void)r;
	c->n_waits = 0;
	return put_u8(c, WAIT_CANCELED);
}

static int do_ping(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	const void *nonce = take(r, sizeof(uint32_t));

	(void)s;
	return nonce ? append(c, &c->out, nonce, sizeof(uint32_t)) : 0;
}

/* Adds a value at the end of a key's queue. One of those that wait for the key gets it. */
static int do_queue_push(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct slice key = take_key(r);
	struct slice value = take_value(r);
	struct value *v;
	struct entry *e;

	(void)c;
	if (!is_complete(r))
		return 0;
	e = make_entry(s, key);
	if (!e || e->n_queue >= STORE_KEYS_MAX)
		return -ENOMEM;
	v = copy_value(s, value);
	if (!v)
		return -ENOMEM;
	*e->queue_end = v;
	e->queue_end = &v->next;
	e->n_queue++;
	return wake(s, e, /*one=*/true);
}

static int do_queue_pop(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct slice key = take_key(r);
	struct value *v;
	struct entry *e;
	int err;

	if (!is_complete(r))
		return 0;
	e = find_entry(s, key);
	err = put_u64(c, e ? e->n_queue : 0);
	if (err || !e || !e->queue)
		return err;
	v = e->queue;
	e->queue = v->next;
	if (!e->queue)
		e->queue_end = &e->queue;
	e->n_queue--;
	err = put_slice(c, v->bytes, v->n);
	drop_value(s, &v);
	return err;
}

static int do_queue_len(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct slice key = take_key(r);
	const struct entry *e;

	if (!is_complete(r))
		return 0;
	e = find_entry(s, key);
	return put_u64(c, e ? e->n_queue : 0);
}

static int do_list_keys(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	int err = put_u64(c, s->n_keys);

	(void)r;
	for (size_t i = 0; i < BUCKETS; i++) {
		for (const struct entry *e = s->buckets[i]; e && !err; e = e->next) {
			if (e->value)
				err = put_slice(c, e->key, e->n);
		}
	}
	return err;
}

/* Answers at once, as if all other ranks had arrived. */
static int do_barrier(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	(void)s;
	take_key(r);
	take_u64(r);
	return is_complete(r) ? put_u8(c, STOP_WAITING) : 0;
}

typedef int request_t(struct tcp_store *s, struct tcp_store_client *c, struct reader *r);

static request_t *const requests[N_QUERIES] = {
	[SET] = do_set,
	[COMPARE_SET] = do_compare_set,
	[GET] = do_get,
	[ADD] = do_add,
	[CHECK] = do_check,
	[WAIT] = do_wait,
	[GET_NUM_KEYS] = do_get_num_keys,
	[DELETE_KEY] = do_delete_key,
	[APPEND] = do_append,
	[MULTI_GET] = do_multi_get,
	[MULTI_SET] = do_multi_set,
	[CANCEL_WAIT] = do_cancel_wait,
	[PING] = do_ping,
	[QUEUE_PUSH] = do_queue_push,
	[QUEUE_POP] = do_queue_pop,
	[QUEUE_LEN] = do_queue_len,
	[LIST_KEYS] = do_list_keys,
	[BARRIER] = do_barrier,
};

/* Recognizes the client's protocol by its first bytes. False: more bytes are needed. */
static bool detect_protocol(struct tcp_store_client *c, struct reader *r)
{
	static const uint8_t opening[] = { VALIDATE, MAGIC & 0xff, MAGIC >> 8 & 0xff,
					   MAGIC >> 16 & 0xff, MAGIC >> 24 };
	size_t n = (size_t)(r->end - r->at);
	bool same = !memcmp(r->at, opening, n < sizeof(opening) ? n : sizeof(opening));

	if (same && n < sizeof(opening))
		return false;
	c->known = true;
	c->old = !same;
	if (same)
		r->at += sizeof(opening);
	return true;
}

/* Handles one request, of which r has at least one byte. Leaves r unchanged if the request is
 * incomplete. Returns 0 or -errno. */
static int one_request(struct tcp_store *s, struct tcp_store_client *c, struct reader *r)
{
	struct reader begin;
	unsigned query;
	int err;

	if (!c->known && (!detect_protocol(c, r) || r->at == r->end))
		return 0;
	begin = *r;
	query = (uint8_t)*r->at++ + (unsigned)c->old; /* old numbers are one less: enum query */
	if (query >= N_QUERIES || !requests[query]) {
		r->bad = true;
		return 0;
	}
	err = requests[query](s, c, r);
	if (r->is_short && !r->bad)
		*r = begin;
	return err;
}

int tcp_store__feed(struct tcp_store *s, struct tcp_store_client *c, const void *bytes, size_t n,
		    uint64_t now_ms)
{
	struct reader r;
	int err;

	if (!n)
		return 0;
	if (c->in.n + n > REQUEST_MAX)
		return -EPROTO;
	err = append(c, &c->in, bytes, n);
	if (err)
		return err;
	r = (struct reader){ .at = c->in.data, .end = c->in.data + c->in.n };
	while (r.at < r.end && !err) {
		const char *before = r.at;

		r.is_short = false;
		c->since_ms = now_ms;
		err = one_request(s, c, &r);
		if (r.bad)
			err = -EPROTO;
		if (r.at == before)
			break;
	}
	c->in.n = (size_t)(r.end - r.at);
	memmove(c->in.data, r.at, c->in.n);
	if (!c->in.n && c->in.cap > LARGE)
		drop(c, &c->in);
	return err ? err : flush(s, c);
}

/* ---- clients ---- */

int tcp_store__tick(struct tcp_store *s, uint64_t now_ms)
{
	uint64_t next = UINT64_MAX;

	for (struct tcp_store_client *c = s->clients; c; c = c->next) {
		uint64_t until = c->since_ms + s->opts.wait_limit_ms;
		char shown[SHOWN_KEY];

		if (!c->n_waits)
			continue;
		if (until > now_ms) {
			next = until - now_ms < next ? until - now_ms : next;
			continue;
		}
		text__clean(shown, sizeof(shown), c->waits[0]->key, c->waits[0]->n);
		c->n_waits = 0;
		if (s->opts.gave_up)
			s->opts.gave_up(s->opts.ctx, shown);
		if (!put_u8(c, WAIT_CANCELED))
			flush(s, c);
	}
	if (next == UINT64_MAX)
		return -1;
	return next > INT_MAX ? INT_MAX : (int)next;
}

struct tcp_store_client *tcp_store__connect(struct tcp_store *s, void *connection)
{
	struct tcp_store_client *c = calloc(1, sizeof(*c)), **last = &s->clients;

	if (!c)
		return NULL;
	c->store = s;
	c->connection = connection;
	while (*last)
		last = &(*last)->next;
	*last = c;
	return c;
}

void tcp_store__disconnect(struct tcp_store *s, struct tcp_store_client *c)
{
	struct tcp_store_client **at = &s->clients;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	drop(c, &c->in);
	drop(c, &c->out);
	free(c->waits);
	free(c);
}

struct tcp_store *tcp_store__new(const struct tcp_store_opts *opts)
{
	struct tcp_store *s = calloc(1, sizeof(*s));

	if (s) {
		s->opts = *opts;
		s->seed = hash__seed();
	}
	return s;
}

void tcp_store__free(struct tcp_store *s)
{
	if (!s)
		return;
	while (s->clients)
		tcp_store__disconnect(s, s->clients);
	tcp_store__clear(s);
	free(s);
}

/* ---- the process that serves a store ---- */

#define CONNECTIONS_MAX 256u /* clients at a time */
#define WAIT_LIMIT_MS 30000u
#define SEND_SECONDS 10
#define KEY_TEXT 256u

struct tcp_store_server {
	struct subprocess process;
	uint16_t port;
	int alive;  /* pipe that keeps the process running while it is open */
	int report; /* pipe from the process: key whose wait timed out */
	char key[KEY_TEXT];
};

struct connection {
	int fd;
	struct tcp_store_client *client;
};

struct serving {
	struct tcp_store *store;
	int alive, report, listening;
	size_t n;
	struct connection *connections[CONNECTIONS_MAX];
	struct pollfd fds[CONNECTIONS_MAX + 2];
};

static uint64_t now_ms(void)
{
	return clock__monotonic() / 1000000;
}

/* Sends all of it. A client that reads nothing for SEND_SECONDS, the socket's SO_SNDTIMEO, is an
 * error, so that it cannot block the store. Returns 0 or -errno. */
static int send_all(void *ctx, void *connection, const void *bytes, size_t n)
{
	const struct connection *c = connection;
	const char *at = bytes;

	(void)ctx;
	while (n) {
		ssize_t sent = send(c->fd, at, n, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return sent ? -errno : -EPIPE;
		at += sent;
		n -= (size_t)sent;
	}
	return 0;
}

/* For tcp_store_opts.gave_up: logs the key, and reports it to the parent process. */
static void gave_up(void *ctx, const char *key)
{
	const struct serving *s = ctx;

	log_warn("gave up after %u s: the script waits for '%s' in the job's key-value store, "
		 "which only another rank sets",
		 WAIT_LIMIT_MS / 1000, key);
	if (write(s->report, key, strlen(key) + 1) < 0)
		log_debug("cannot tell: %s", strerror(errno));
}

/* True if a process of the same user holds the other end, because every user can connect to
 * loopback. The kernel's table has the user of each socket. Without a table the answer is true. */
static bool is_ours(int fd)
{
	static const char *const tables[][2] = { { "/proc/net/tcp", "" },
						 { "/proc/net/tcp6", "0000000000000000FFFF0000" } };
	struct sockaddr_in us, them;
	socklen_t n = sizeof(us), m = sizeof(them);
	char ends[80], line[512];
	bool none = true, found = false;

	if (getsockname(fd, (struct sockaddr *)&us, &n) ||
	    getpeername(fd, (struct sockaddr *)&them, &m))
		return false;
	for (size_t i = 0; i < 2 && !found; i++) {
		FILE *f = fopen(tables[i][0], "re");

		none = none && !f;
		/* The other end's row: local address, remote address, state 1. */
		snprintf(ends, sizeof(ends), ": %s%08X:%04X %s%08X:%04X 01 ", tables[i][1],
			 them.sin_addr.s_addr, ntohs(them.sin_port), tables[i][1],
			 us.sin_addr.s_addr, ntohs(us.sin_port));
		while (f && !found && fgets(line, sizeof(line), f)) {
			const char *at = strstr(line, ends);
			unsigned uid;

			found = at && sscanf(at + strlen(ends), "%*s %*s %*s %u", &uid) == 1 &&
				uid == geteuid();
		}
		if (f)
			fclose(f);
	}
	return found || none;
}

/* Takes a new connection, unless it is of another user or one too many. */
static void accept_client(struct serving *s)
{
	const struct timeval limit = { .tv_sec = SEND_SECONDS };
	int fd = accept4(s->listening, NULL, NULL, SOCK_CLOEXEC), on = 1;
	struct connection *c;

	if (fd < 0)
		return;
	if (!is_ours(fd)) {
		log_debug("refused a connection of another user to the job's key-value store");
		close(fd);
		return;
	}
	c = s->n < CONNECTIONS_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (c) {
		c->fd = fd;
		c->client = tcp_store__connect(s->store, c);
	}
	if (!c || !c->client) {
		free(c);
		close(fd);
		return;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	s->connections[s->n++] = c;
}

/* Ends connection i. */
static void close_client(struct serving *s, size_t i)
{
	struct connection *c = s->connections[i];

	tcp_store__disconnect(s->store, c->client);
	close(c->fd);
	free(c);
	s->connections[i] = s->connections[--s->n];
	/* The run is over; its keys must not reach the next run. */
	if (!s->n)
		tcp_store__clear(s->store);
}

/* Handles what a client has sent. False: the connection is to be closed. */
static bool read_client(struct serving *s, const struct connection *c)
{
	static char buf[64 << 10];
	ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	return n && !tcp_store__feed(s->store, c->client, buf, (size_t)n, now_ms());
}

/* Serves until the parent process closes its pipe. */
static void serve(struct serving *s)
{
	for (;;) {
		size_t n = s->n;

		s->fds[0] = (struct pollfd){ .fd = s->alive };
		s->fds[1] = (struct pollfd){ .fd = s->listening, .events = POLLIN };
		for (size_t i = 0; i < n; i++)
			s->fds[i + 2] = (struct pollfd){ .fd = s->connections[i]->fd,
							 .events = POLLIN };
		if (poll(s->fds, n + 2, tcp_store__tick(s->store, now_ms())) < 0 && errno != EINTR)
			return;
		if (s->fds[0].revents)
			return;
		/* Backwards, because the last connection moves into the place of a closed one. */
		for (size_t i = n; i-- > 0;) {
			if (s->fds[i + 2].revents && !read_client(s, s->connections[i]))
				close_client(s, i);
		}
		if (s->fds[1].revents)
			accept_client(s);
	}
}

/* Descriptors of the server process, which has no others of its parent. */
enum { LISTENING = 3, ALIVE, REPORT };

/* For subprocess_opts.prepare: changes to the user of the job; NULL: stays. Returns 0 or an exit
 * code. */
static int become_server(void *user)
{
	return user && user__become(user) ? 1 : 0;
}

/* For subprocess_opts.main: serves a store. Returns the exit code. */
static int be_server(void *user)
{
	static struct serving s = { .listening = LISTENING, .alive = ALIVE, .report = REPORT };
	const struct tcp_store_opts opts = {
		.wait_limit_ms = WAIT_LIMIT_MS, .send = send_all, .gave_up = gave_up, .ctx = &s
	};

	(void)user;
	/* The terminal's signals are for the job; the server ends with its parent. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	s.store = tcp_store__new(&opts);
	if (s.store)
		serve(&s);
	return 0;
}

/* Listens on 127.0.0.1. Returns the descriptor and *port, or -1. */
static int listen_here(uint16_t *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof(at);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 128) ||
	    getsockname(fd, (struct sockaddr *)&at, &size)) {
		close(fd);
		return -1;
	}
	*port = ntohs(at.sin_port);
	return fd;
}

struct tcp_store_server *tcp_store_server__start(const struct user *user)
{
	struct tcp_store_server *s = calloc(1, sizeof(*s));
	int listening, alive[2] = { -1, -1 }, report[2] = { -1, -1 };

	if (!s)
		return NULL;
	listening = listen_here(&s->port);
	if (listening >= 0 && !pipe2(alive, O_CLOEXEC) && !pipe2(report, O_CLOEXEC | O_NONBLOCK)) {
		const struct subprocess_fd fds[] = { { listening, LISTENING },
						     { alive[0], ALIVE },
						     { report[1], REPORT } };

		subprocess__start(&(struct subprocess_opts){ .main = be_server,
							     .prepare = become_server,
							     .ctx = (void *)user,
							     .in = SUBPROCESS_INHERIT,
							     .out = SUBPROCESS_INHERIT,
							     .err = SUBPROCESS_INHERIT,
							     .fds = fds,
							     .n_fds = 3,
							     .death_signal = SIGKILL },
				  &s->process);
	}
	if (listening >= 0)
		close(listening);
	if (alive[0] >= 0)
		close(alive[0]);
	if (report[1] >= 0)
		close(report[1]);
	s->alive = alive[1];
	s->report = report[0];
	if (s->process.pid)
		return s;
	tcp_store_server__free(s);
	return NULL;
}

uint16_t tcp_store_server__port(const struct tcp_store_server *s)
{
	return s->port;
}

const char *tcp_store_server__end(struct tcp_store_server *s)
{
	int status;

	if (s->alive >= 0)
		close(s->alive);
	s->alive = -1;
	subprocess__wait(&s->process, /*ms=*/-1, &status);
	if (s->report >= 0) {
		ssize_t n = read(s->report, s->key, sizeof(s->key) - 1);

		s->key[n > 0 ? n : 0] = '\0';
		close(s->report);
		s->report = -1;
	}
	return s->key[0] ? s->key : NULL;
}

void tcp_store_server__free(struct tcp_store_server *s)
{
	if (s)
		tcp_store_server__end(s);
	free(s);
}
