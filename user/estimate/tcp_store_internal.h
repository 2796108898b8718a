/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_TCP_STORE_INTERNAL_H
#define MT_ESTIMATE_TCP_STORE_INTERNAL_H
/* What the store keeps (tcp_store_keys.c), for what is asked of it (tcp_store.c). */
#include <stdbool.h>

#include "estimate/tcp_store.h"
#include "lib/hash.h"

#define BUCKETS 4096u

struct slice {
	const char *data;
	size_t n;
};

struct value {
	struct value *next; /* in a queue */
	size_t n;
	char bytes[];
};

struct entry {
	struct entry *next;
	struct value *value; /* NULL: only a queue, or only waited for */
	struct value *queue, **queue_end;
	size_t n_queue, n;
	char key[]; /* n bytes, then a 0 */
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
	bool old; /* of before 2.2 */
	bool known;
	struct entry **waits; /* for these that are not there */
	size_t n_waits, cap_waits;
	uint64_t since_ms;
};

struct tcp_store {
	struct tcp_store_opts opts;
	struct hash_seed seed;
	struct entry *buckets[BUCKETS];
	size_t n_keys, n_entries, bytes;
	size_t buffered; /* bytes of all clients' buffers */
	struct tcp_store_client *clients;
};

/* NULL: there is none. */
struct entry *tcp_store__find(const struct tcp_store *s, struct slice key);
/* The entry of a key, made where there is none. NULL: out of memory, or of what may be kept. */
struct entry *tcp_store__entry(struct tcp_store *s, struct slice key);
/* a, then b. NULL: likewise. */
struct value *tcp_store__make_value(struct tcp_store *s, struct slice a, struct slice b);
void tcp_store__drop_value(struct tcp_store *s, struct value **v); /* of NULL: nothing */

#endif
