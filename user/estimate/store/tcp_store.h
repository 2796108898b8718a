/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The store through which the ranks of a job meet: PyTorch's TCPStore in the protocol of 2.1 to
 * 2.15, with and without the opening of 2.2. Clients set and get keys over a connection; all
 * numbers are in host byte order. Only one rank runs. The store itself sets two kinds of keys of
 * the missing ranks as soon as a client waits for them:
 *
 * - PREFIX:last_worker, set by the last rank to reach a store-based barrier;
 * - the identity of an NCCL communicator, created by its rank 0.
 *
 * A barrier in one request succeeds at once. Any other wait ends after a while, and the store
 * reports its key. The store checks all input.
 *
 * A store in Python in the job cannot replace it: PyTorch's PrefixStore refuses queues and the list
 * of keys of such a store, and the rank's other processes would not reach it.
 */
#include <stddef.h>
#include <stdint.h>

struct tcp_store;
struct tcp_store_client;

#define STORE_KEY_MAX 8192u
#define STORE_VALUE_MAX (8u << 20)
#define STORE_KEYS_MAX (128u << 10)  /* keys per request, and in the store */
#define STORE_BYTES_MAX (256u << 20) /* sum of all keys and values */
/* Sum of the clients' unfinished requests and their answers. */
#define STORE_BUFFERS_MAX (256u << 20)

struct tcp_store_opts {
	uint64_t wait_limit_ms; /* longest wait for a key that no client sets */
	/* Sends bytes to a client's connection. Returns 0, or an error, for which the client is
	 * closed. */
	int (*send)(void *ctx, void *connection, const void *bytes, size_t n);
	/* Called when a client's wait for a key timed out. key is clean for a terminal. May be
	 * NULL. */
	void (*gave_up)(void *ctx, const char *key);
	void *ctx;
};

struct tcp_store *tcp_store__new(const struct tcp_store_opts *opts); /* NULL if memory is short */
void tcp_store__clear(struct tcp_store *s); /* removes all keys; call it without clients */
void tcp_store__free(struct tcp_store *s);  /* frees its clients, too; NULL is fine */

/* Adds a client. connection is passed to send(). Returns NULL if memory is short. */
struct tcp_store_client *tcp_store__connect(struct tcp_store *s, void *connection);
void tcp_store__disconnect(struct tcp_store *s, struct tcp_store_client *c);
/*
 * Takes bytes from a client: several requests, or a part of one. Returns 0; -EPROTO: an invalid
 * request or a bound; -ENOMEM; or the error of send(). After an error the caller must disconnect
 * the client.
 */
int tcp_store__feed(struct tcp_store *s, struct tcp_store_client *c, const void *bytes, size_t n,
		    uint64_t now_ms);
/* Ends overdue waits. Returns the ms until the next one is due, or -1 if no client waits. */
int tcp_store__tick(struct tcp_store *s, uint64_t now_ms);

/* ---- a process that serves a store on 127.0.0.1 as long as this process lives ---- */

struct user;
struct tcp_store_server;

/* Starts the process as this user (NULL: the present one). NULL with errno. */
struct tcp_store_server *tcp_store_server__start(const struct user *user);
uint16_t tcp_store_server__port(const struct tcp_store_server *s);
/* Ends the process. Returns the first key whose wait timed out, or NULL; s owns the text. */
const char *tcp_store_server__end(struct tcp_store_server *s);
void tcp_store_server__free(struct tcp_store_server *s); /* NULL is fine */
