/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/server/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER (1 << 20) /* send buffer requested from the kernel, in bytes */
#define AT_ONCE 256	 /* messages handled in one call of link__pump() */
#define DEPTH 32	 /* nesting limit of arrays and objects */

/* A message to send: JSON text and a descriptor (-1: none), both owned. */
struct waiting {
	char *text;
	size_t len;
	int fd;
};

struct link {
	int fd;
	bool gone;		/* the other end is closed */
	struct waiting *queue;	/* ring buffer of waiting messages */
	size_t first, n, n_fds; /* n_fds: waiting messages with a descriptor */
	char *in;		/* receive buffer, LINK_MESSAGE + 1 bytes */
};

int link__pair(int fds[2])
{
	int size = BUFFER;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds))
		return -errno;
	/* The kernel may grant less; the rest waits in the queue. */
	for (int i = 0; i < 2; i++)
		setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	return 0;
}

struct link *link__new(int fd)
{
	struct link *l = calloc(1, sizeof(*l));

	if (l) {
		l->queue = calloc(LINK_QUEUE, sizeof(*l->queue));
		l->in = malloc(LINK_MESSAGE + 1);
	}
	if (!l || !l->queue || !l->in) {
		if (l) {
			free(l->queue);
			free(l->in);
			free(l);
		}
		close(fd);
		return NULL;
	}
	l->fd = fd;
	return l;
}

/* Frees a message and closes its descriptor. */
static void drop_waiting(struct waiting *w)
{
	free(w->text);
	if (w->fd >= 0)
		close(w->fd);
	*w = (struct waiting){ .fd = -1 };
}

void link__free(struct link *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		drop_waiting(&l->queue[(l->first + i) % LINK_QUEUE]);
	close(l->fd);
	free(l->queue);
	free(l->in);
	free(l);
}

int link__fd(const struct link *l)
{
	return l->fd;
}

short link__events(const struct link *l)
{
	return l->n && !l->gone ? POLLIN | POLLOUT : POLLIN;
}

/* ---- sending ---- */

/* Returns 0, -EAGAIN (try later) or -EPIPE (the other end is closed). All other errors, such as
 * ETOOMANYREFS (too many descriptors in flight), also become -EAGAIN. */
static int send_now(struct link *l, const struct waiting *w)
{
	struct iovec io = { .iov_base = w->text, .iov_len = w->len };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };

	if (w->fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control.room);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &w->fd, sizeof(int));
	}
	if (sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
		return 0;
	if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN || errno == EBADF)
		return -EPIPE;
	return -EAGAIN;
}

/* Sends waiting messages until the socket is full. Returns 0, or -EPIPE if the other end is closed.
 */
static int flush_queue(struct link *l)
{
	while (l->n && !l->gone) {
		struct waiting *w = &l->queue[l->first];
		int err = send_now(l, w);

		if (err == -EAGAIN)
			return 0;
		if (err)
			l->gone = true;
		l->n_fds -= w->fd >= 0;
		drop_waiting(w);
		l->first = (l->first + 1) % LINK_QUEUE;
		l->n--;
	}
	return l->gone ? -EPIPE : 0;
}

/* Sends w, or queues it if it cannot be sent now. Takes over w. Errors as link__send(). */
static int send_or_queue(struct link *l, struct waiting *w)
{
	int err;

	if (!w->text)
		err = -ENOMEM;
	else if (w->len > LINK_MESSAGE)
		err = -E2BIG;
	else if (flush_queue(l))
		err = -EPIPE;
	else if (l->n)
		err = l->n == LINK_QUEUE ? -ENOBUFS : -EAGAIN;
	else
		err = send_now(l, w);
	if (err == -EAGAIN) {
		l->queue[(l->first + l->n++) % LINK_QUEUE] = *w;
		l->n_fds += w->fd >= 0;
		return 0;
	}
	l->gone |= err == -EPIPE;
	drop_waiting(w);
	return err;
}

/* Each waiting descriptor counts against the process's limit of open files. */
bool link__crowded(const struct link *l)
{
	return l->n_fds >= LINK_FDS;
}

size_t link__waiting(const struct link *l)
{
	return l->n;
}

int link__send(struct link *l, json_t *msg, int fd)
{
	struct waiting w = { .text = msg ? json_dumps(msg, JSON_COMPACT) : NULL, .fd = fd };

	json_decref(msg);
	w.len = w.text ? strlen(w.text) : 0;
	return send_or_queue(l, &w);
}

int link__offer(struct link *l, json_t *msg)
{
	if (flush_queue(l) || l->n) {
		json_decref(msg);
		return l->gone ? -EPIPE : -ENOBUFS;
	}
	return link__send(l, msg, /*fd=*/-1);
}

/* ---- receiving ---- */

/* Sets *ret to the received descriptor, or -1. With several descriptors, closes all of them and
 * returns -EPROTO. */
static int take_fd(struct msghdr *m, int *ret)
{
	/* MSG_CTRUNC: there were more descriptors than the buffer holds */
	int err = m->msg_flags & MSG_CTRUNC ? -EPROTO : 0;

	*ret = -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		bool has_fds = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS;
		size_t n = has_fds ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (*ret < 0) {
				*ret = fd;
			} else {
				close(fd);
				err = -EPROTO;
			}
		}
	}
	if (err && *ret >= 0) {
		close(*ret);
		*ret = -1;
	}
	return err;
}

/* Checks the nesting depth, because jansson's limit is much higher than needed. */
static bool too_deep(const json_t *v, unsigned depth)
{
	const char *key;
	json_t *e;
	size_t i;

	if (depth > DEPTH)
		return true;
	if (json_is_object(v)) {
		json_object_foreach((json_t *)v, key, e)
			if (too_deep(e, depth + 1))
				return true;
	} else if (json_is_array(v)) {
		json_array_foreach(v, i, e)
			if (too_deep(e, depth + 1))
				return true;
	}
	return false;
}

/* Receives one message, with its descriptor in *fd (-1: none). Returns 1, 0 (no message is
 * waiting), -EPIPE (the other end is closed) or -EPROTO (an invalid message). */
static int receive_message(struct link *l, json_t **msg, int *fd)
{
	/* the additional byte shows that a message is too long */
	struct iovec io = { .iov_base = l->in, .iov_len = LINK_MESSAGE + 1 };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(8 * sizeof(int))];
	} control = { 0 };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control.room) };
	ssize_t n = recvmsg(l->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int err;

	*msg = NULL;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -EPIPE;
	err = take_fd(&m, fd);
	if (err)
		goto refused;
	err = n ? -EPROTO : -EPIPE; /* 0 bytes: the other end is closed */
	if (!n || n > LINK_MESSAGE || m.msg_flags & MSG_TRUNC)
		goto refused;
	*msg = json_loadb(l->in, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(*msg) && !too_deep(*msg, 0))
		return 1;
refused:
	json_decref(*msg);
	if (*fd >= 0)
		close(*fd);
	return err;
}

int link__pump(struct link *l, void (*fn)(void *ctx, json_t *msg, int fd), void *ctx)
{
	int err = 0;

	flush_queue(l);
	/* Read also when the other end has closed: its last messages are still there. */
	for (int i = 0; i < AT_ONCE; i++) {
		json_t *msg;
		int fd;

		err = receive_message(l, &msg, &fd);
		if (err <= 0)
			break;
		fn(ctx, msg, fd);
		json_decref(msg);
		err = 0;
	}
	if (err)
		l->gone = true;
	return err;
}
