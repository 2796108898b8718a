/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/store/tcp_store_serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/user.h"
#include "estimate/store/tcp_store.h"

#define CONNECTIONS_MAX 256u
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

/* Sends, blocking for at most SEND_SECONDS, so that a client that does not read cannot block the
 * store. */
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

static bool read_client(struct serving *s, const struct connection *c)
{
	static char buf[64 << 10];
	ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	return n && !tcp_store__feed(s->store, c->client, buf, (size_t)n, now_ms());
}

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

static int become_server(void *user)
{
	return user && user__become(user) ? 1 : 0;
}

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
	subprocess__wait(&s->process, -1, &status);
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
