/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Messages between the processes of `serve` over a socket pair (SOCK_SEQPACKET). Each message is a
 * JSON object, with or without a file descriptor. Neither side trusts the other. Sending never
 * blocks: messages are queued, up to a limit. For the messages see docs/internals/SERVE.md, "The
 * processes".
 */
#include <jansson.h>
#include <stdbool.h>

#define LINK_MESSAGE 65536 /* largest message, in bytes */
#define LINK_ID 80	   /* size of a trace's ID, in bytes, with the NUL */
#define LINK_QUEUE 4096	   /* messages waiting to be sent, at most */
#define LINK_FDS 64	   /* waiting descriptors at which link__crowded() is true */

struct link;

/* Creates both ends, close-on-exec and non-blocking. Returns 0 or -errno. */
int link__pair(int fds[2]);
/* Takes over fd. NULL: no memory; fd is then closed. */
struct link *link__new(int fd);
void link__free(struct link *l); /* drops waiting messages; NULL is fine */
int link__fd(const struct link *l);
/* Events for poll(): POLLIN, and POLLOUT if messages are waiting. */
short link__events(const struct link *l);
/*
 * Sends msg with fd (-1: none), now or later. Always takes over both: the reference to msg, and fd,
 * which is closed after sending. Returns 0, -E2BIG (longer than LINK_MESSAGE), -ENOBUFS (queue
 * full) or -EPIPE (the other end is closed).
 */
int link__send(struct link *l, json_t *msg, int fd);
/* True if so many messages with descriptors are waiting that the caller should not open more
 * files for this link. */
bool link__crowded(const struct link *l);
/* Like link__send() without a descriptor, but drops msg with -ENOBUFS if any message is waiting.
 * For messages that are soon repeated. */
int link__offer(struct link *l, json_t *msg);
/*
 * Sends waiting messages and calls fn for each received one. fn borrows msg and must close fd (-1:
 * none). Returns 0, -EPIPE (the other end is closed) or -EPROTO (the message is not an object, too
 * long, or has several descriptors).
 */
int link__pump(struct link *l, void (*fn)(void *ctx, json_t *msg, int fd), void *ctx);
