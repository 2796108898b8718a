/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Data of the store (tcp_store_keys.c), shared with its requests (tcp_store.c). */
#include <stdbool.h>

#include "base/hash.h"
#include "estimate/store/tcp_store.h"

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
	bool old; /* true for the protocol before 2.2 */
	bool known;
	struct entry **waits; /* absent keys that the client waits for */
	size_t n_waits, cap_waits;
	uint64_t since_ms;
};

struct tcp_store {
	struct tcp_store_opts opts;
	struct hash_seed seed;
	struct entry *buckets[BUCKETS];
	size_t n_keys, n_entries, bytes;
	size_t buffered; /* sum of all clients' buffers, bytes */
	struct tcp_store_client *clients;
};

/* Returns the entry of a key, or NULL. */
struct entry *tcp_store__find(const struct tcp_store *s, struct slice key);
/* Returns the entry of a key; creates it if it is absent. NULL if memory is short or a bound is
 * reached. */
struct entry *tcp_store__entry(struct tcp_store *s, struct slice key);
/* Creates a value of a followed by b. NULL if memory is short or a bound is reached. */
struct value *tcp_store__make_value(struct tcp_store *s, struct slice a, struct slice b);
void tcp_store__drop_value(struct tcp_store *s, struct value **v); /* NULL is fine */
