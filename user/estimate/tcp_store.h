/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_TCP_STORE_H
#define MT_ESTIMATE_TCP_STORE_H
/*
 * The store through which the ranks of a job meet, PyTorch's TCPStore, in its protocol as of 2.1
 *to 2.15 (with and without the opening that came in 2.2): keys and values over a connection, all
 *numbers in the host's order. One rank is alive. What the others would have set, where it is known
 *what that is, is there as soon as somebody waits for it:
 *
 *	PREFIX:last_worker	the last of a store-based barrier to come; likewise where a barrier
 *is one request the identity of a communicator of NCCL, which its rank 0 makes
 *
 * A wait for any other key that nobody sets is ended after a while, and the key is told. What comes
 *in is not trusted.
 */
#include <stddef.h>
#include <stdint.h>

struct tcp_store;
struct tcp_store_client;

#define STORE_KEY_MAX 8192u
#define STORE_VALUE_MAX (8u << 20)
#define STORE_KEYS_MAX (128u << 10)  /* of one request; and of the store */
#define STORE_BYTES_MAX (256u << 20) /* of all keys and values */
#define STORE_BUFFERS_MAX                                                                          \
	(256u << 20) /* of what clients have sent and not finished, and of answers to them */

struct tcp_store_opts {
	uint64_t patience_ms; /* how long a wait for what nobody sets may last */
	/* Bytes for a client's connection. 0, or an error with which the client will be closed. */
	int (*send)(void *ctx, void *connection, const void *bytes, size_t n);
	/* A wait was given up: key, cleaned for a terminal. NULL: nobody is told. */
	void (*gave_up)(void *ctx, const char *key);
	void *ctx;
};

struct tcp_store *tcp_store__new(const struct tcp_store_opts *opts); /* NULL: out of memory */
void tcp_store__clear(struct tcp_store *s); /* of all keys; for when there are no clients */
void tcp_store__free(struct tcp_store *s);  /* with its clients; NULL is fine */

/* A connection. NULL: out of memory. */
struct tcp_store_client *tcp_store__connect(struct tcp_store *s, void *connection);
void tcp_store__disconnect(struct tcp_store *s, struct tcp_store_client *c);
/*
 * Bytes from a client, of any number of requests or of a part of one. 0; -EPROTO: no request of
 * this protocol, or beyond a bound; -ENOMEM; what send() returned. After any of these the client is
 * to be disconnected.
 */
int tcp_store__feed(struct tcp_store *s, struct tcp_store_client *c, const void *bytes, size_t n,
		    uint64_t now_ms);
/* Ends the waits that are overdue. When the next one will be, in ms from now, or -1: nobody waits. */
int tcp_store__tick(struct tcp_store *s, uint64_t now_ms);

#endif
