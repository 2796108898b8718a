/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_LINK_H
#define MT_SERVE_LINK_H
/*
 * The wire between the processes of `serve`: a pair of sockets (SOCK_SEQPACKET) on which each
 * message is a JSON object, with a descriptor beside it or without. Neither side trusts the other,
 * and neither waits for it: what cannot be sent at once is queued, up to a bound. What is said is
 * in docs/SERVE.md, "The processes".
 */
#include <jansson.h>
#include <stdbool.h>

#define LINK_MESSAGE 65536 /* bytes of a message at most */
#define LINK_ID 80	   /* bytes of a trace's id, with the NUL */
#define LINK_QUEUE 4096	   /* messages that wait to be sent, at most */
#define LINK_FDS 64	   /* descriptors that may wait in it: link__crowded() */

struct link;

/* Both ends, close-on-exec and non-blocking. 0 or -errno. */
int link__pair(int fds[2]);
/* Takes fd over. NULL: no memory, and fd is closed. */
struct link *link__new(int fd);
void link__free(struct link *l); /* what waits is dropped; NULL is fine */
int link__fd(const struct link *l);
/* What to poll() for: POLLIN, and POLLOUT where something waits. */
short link__events(const struct link *l);
/*
 * Sends msg with fd (-1: none). Takes both, whatever comes of it: msg's reference, and fd is closed
 * once it is sent. 0; -E2BIG: longer than LINK_MESSAGE; -ENOBUFS: too many wait; -EPIPE: there is
 * no other end.
 */
int link__send(struct link *l, json_t *msg, int fd);
/* So many messages with descriptors wait for the other end that no more should be opened for it. */
bool link__crowded(const struct link *l);
/* As above, but dropped without a word (-ENOBUFS) where anything waits: for what is told again in a
 * moment. */
int link__offer(struct link *l, json_t *msg);
/*
 * Sends what waits, and calls fn for each message that is there; msg is borrowed, fd (-1: none) is
 * fn's to close. 0; -EPIPE: the other end is gone; -EPROTO: it does not speak so (no object, too
 * long, several descriptors).
 */
int link__pump(struct link *l, void (*fn)(void *ctx, json_t *msg, int fd), void *ctx);

#endif
