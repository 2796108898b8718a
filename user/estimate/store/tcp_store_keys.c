/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "estimate/store/tcp_store_internal.h"

struct entry *tcp_store__find(const struct tcp_store *s, struct slice key)
{
	struct entry *e = s->buckets[hash__bytes(s->seed, key.data, key.n) % BUCKETS];

	while (e && (e->n != key.n || memcmp(e->key, key.data, key.n)))
		e = e->next;
	return e;
}

struct entry *tcp_store__entry(struct tcp_store *s, struct slice key)
{
	struct entry *e = tcp_store__find(s, key), **bucket;

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

struct value *tcp_store__make_value(struct tcp_store *s, struct slice a, struct slice b)
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

void tcp_store__drop_value(struct tcp_store *s, struct value **v)
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
			tcp_store__drop_value(s, &e->value);
			while (e->queue) {
				struct value *v = e->queue;

				e->queue = v->next;
				tcp_store__drop_value(s, &v);
			}
			free(e);
		}
	}
	s->n_keys = s->n_entries = s->bytes = 0;
}
