/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The HTTP process: one libmicrohttpd daemon per address and the link to the broker, in one
 * event loop. */
#include "serve/web/web.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#define TLS "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"
/* Strict parsing: a bare line feed does not end a line, and chunk sizes contain no blanks.
 * libmicrohttpd 0.9.75 has this only as STRICT_FOR_CLIENT. */
#if MHD_VERSION >= 0x00097701
#define STRICT MHD_OPTION_CLIENT_DISCIPLINE_LVL, 2
#else
#define STRICT MHD_OPTION_STRICT_FOR_CLIENT, 1
#endif
#define TICK_NS 1000000000ull
#define SPARE 64 /* additional connections, because closed ones end only later */

/* ---- connections ---- */

/* Bytes received on the connection; 0 for a Unix socket, where the count is not known. */
static uint64_t received(const struct conn *c)
{
	struct tcp_info info = { .tcpi_bytes_received = 0 };
	socklen_t size = sizeof(info);

	return getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &size) ? 0
								      : info.tcpi_bytes_received;
}

/* The request has ended: starts the idle time of its connection. */
static void on_completed(void *ctx, struct MHD_Connection *mhd, void **kept,
			 enum MHD_RequestTerminationCode why)
{
	struct request *r = *kept;
	struct conn *c = r ? r->conn : NULL;

	(void)ctx;
	(void)mhd;
	(void)why;
	*kept = NULL;
	if (!r)
		return;
	c->request = NULL;
	c->began = 0;
	c->since = c->web->now;
	c->received = received(c);
	request__free(r);
}

/* Closes a connection. The library ends it later; it is no longer counted. */
static void refuse(struct conn *c)
{
	c->refused = true;
	shutdown(c->fd, SHUT_RDWR);
}

/* When the connection became idle, in ns. Also idle: a client that has not read its answer for
 * WEB_READ_NS. 0: busy. */
static uint64_t idle_since(const struct conn *c)
{
	const struct request *r = c->request;

	if (!r || !r->read)
		return c->since;
	return r->sent && !r->stream && c->web->now - r->sent > WEB_READ_NS ? r->sent : 0;
}

/* Closes the longest idle connection, preferring those that have not shown a valid token. For
 * AUTH_PEER_FULL, only of the newcomer's peer. False: no connection is idle. */
static bool make_room(struct web *web, const struct conn *newcomer, enum auth_room full)
{
	struct conn *idle = NULL;

	for (struct conn *c = web->conns; c; c = c->next) {
		if (c == newcomer || c->refused || !idle_since(c))
			continue;
		if (full == AUTH_PEER_FULL &&
		    !auth__same_peer(web->guard, &c->peer, &newcomer->peer))
			continue;
		if (!idle || c->known < idle->known ||
		    (c->known == idle->known && idle_since(c) < idle_since(idle)))
			idle = c;
	}
	if (!idle)
		return false;
	auth__disconnect(web->guard, &idle->peer);
	refuse(idle);
	return true;
}

static void add_connection(struct web *web, struct MHD_Connection *mhd, void **kept)
{
	enum auth_room room;
	const union MHD_ConnectionInfo *fd = MHD_get_connection_info(
		mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	const union MHD_ConnectionInfo *addr = MHD_get_connection_info(
		mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct conn *c = fd ? calloc(1, sizeof(*c)) : NULL;

	*kept = c;
	if (!c) {
		if (fd)
			shutdown(fd->connect_fd, SHUT_RDWR);
		return;
	}
	c->web = web;
	c->since = web->now;
	c->fd = fd->connect_fd;
	c->peer = auth__peer(addr ? addr->client_addr : NULL, c->fd);
	c->next = web->conns;
	if (c->next)
		c->next->prev = c;
	web->conns = c;
	room = auth__connect(web->guard, &c->peer, web->now);
	if (room != AUTH_ROOM && make_room(web, c, room))
		room = auth__connect(web->guard, &c->peer, web->now);
	if (room != AUTH_ROOM)
		refuse(c);
}

static void remove_connection(struct web *web, struct conn *c)
{
	if (!c->refused)
		auth__disconnect(web->guard, &c->peer);
	if (c->prev)
		c->prev->next = c->next;
	else
		web->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	free(c);
}

static void on_connection(void *ctx, struct MHD_Connection *mhd, void **kept,
			  enum MHD_ConnectionNotificationCode what)
{
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		add_connection(ctx, mhd, kept);
	else if (*kept)
		remove_connection(ctx, *kept);
}

/* Closes connections whose request arrives too slowly. The library's own timeout restarts with
 * every byte. */
static void close_slow(struct web *web)
{
	for (struct conn *c = web->conns; c; c = c->next) {
		if (c->request && c->request->read)
			continue;
		if (!c->began && (c->request || received(c) > c->received))
			c->began = web->now;
		/* For a Unix socket, `began` stays 0 between requests, so only WEB_IDLE_S
		 * applies. */
		if ((c->began && web->now - c->began > WEB_READ_NS) ||
		    (!c->request && web->now - c->since > WEB_IDLE_S * 1000000000ull)) {
			log_debug("serve: a request took too long to arrive");
			shutdown(c->fd, SHUT_RDWR);
		}
	}
}

/* ---- the broker ---- */

static void on_message(void *ctx, json_t *msg, int fd)
{
	struct web *web = ctx;
	struct state_trace *trace;

	if (json_object_get(msg, "id")) {
		request__answered(web, msg, fd);
		return;
	}
	if (serve_state__take(&web->state, msg, fd, &trace)) {
		log_debug("serve: received an invalid message");
		return;
	}
	if (!strcmp(json_string_value(json_object_get(msg, "event")), "hello")) {
		free(web->openapi);
		web->openapi = NULL;
	}
	if (strcmp(json_string_value(json_object_get(msg, "event")), "scan") != 0)
		sse__publish(web, msg, trace);
	request__run_waiting(web);
}

/* ---- the loop ---- */

static int run_once(struct web *web, struct pollfd *fds, size_t n)
{
	uint64_t timeout = 1000;
	MHD_UNSIGNED_LONG_LONG t;
	int err;

	for (size_t i = 0; i < web->n_daemons; i++)
		if (MHD_get_timeout(web->daemons[i], &t) == MHD_YES && t < timeout)
			timeout = t;
	fds[1].events = link__events(web->link);
	if (poll(fds, n, (int)timeout) < 0 && errno != EINTR)
		return -errno;
	web->now = clock__monotonic();
	if (fds[0].revents)
		return -EINTR;
	err = link__pump(web->link, on_message, web);
	if (err)
		return err;
	for (size_t i = 0; i < web->n_daemons; i++)
		if (MHD_run(web->daemons[i]) != MHD_YES)
			return -EIO;
	return 0;
}

static int loop(struct web *web, int signals)
{
	struct pollfd fds[2 + SERVE_LISTEN] = { { .fd = signals, .events = POLLIN },
						{ .fd = link__fd(web->link) } };
	uint64_t swept = clock__monotonic();
	int err = 0;

	for (size_t i = 0; i < web->n_daemons; i++)
		fds[2 + i] = (struct pollfd){
			MHD_get_daemon_info(web->daemons[i], MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
			POLLIN, 0
		};
	web->now = swept;
	while (!err) {
		err = run_once(web, fds, 2 + web->n_daemons);
		if (err || web->now - swept < TICK_NS)
			continue;
		swept = web->now;
		close_slow(web);
		request__sweep(web);
		sse__sweep(web);
	}
	return err;
}

/* ---- start and end ---- */

__attribute__((format(printf, 2, 0))) static void on_log(void *ctx, const char *fmt, va_list ap)
{
	char raw[512], clean[512];

	(void)ctx;
	vsnprintf(raw, sizeof(raw), fmt, ap);
	raw[strcspn(raw, "\n")] = '\0';
	text__clean(clean, sizeof(clean), raw, strlen(raw));
	log_debug("serve: %s", clean);
}

/* Decoding is left to request.c, after the path is split: "%2F" is not a
 * separator. */
static size_t leave_escaped(void *ctx, struct MHD_Connection *mhd, char *text)
{
	(void)ctx;
	(void)mhd;
	return strlen(text);
}

static int start(struct web *web, int fd)
{
	const struct serve_secrets *s = &web->args->secrets;
	bool tls = s->cert && s->key;
	struct MHD_OptionItem with_tls[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, s->cert },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, s->key },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, TLS },
		{ MHD_OPTION_END, 0, NULL },
	};
	unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
			 (tls ? MHD_USE_TLS : 0);
	struct MHD_Daemon *d = MHD_start_daemon(
		flags, 0, NULL, NULL, request__access, web, MHD_OPTION_EXTERNAL_LOGGER, on_log,
		NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped,
		NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, web, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, web, MHD_OPTION_CONNECTION_LIMIT, (unsigned)AUTH_CONNECTIONS + SPARE,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)WEB_IDLE_S, STRICT,
		MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY,
		tls ? with_tls : with_tls + 3, MHD_OPTION_END);

	if (!d) {
		close(fd);
		return -EIO;
	}
	web->daemons[web->n_daemons++] = d;
	return 0;
}

static struct auth *make_guard(const struct serve_args *args, const int *fds, size_t n)
{
	const char *hosts[SERVE_HOSTS + 1] = { NULL };
	struct auth_opts o = { .token = args->secrets.token,
			       .tls = args->secrets.cert,
			       .hosts = hosts,
			       .local = true,
			       .per_minute = args->requests_per_minute };

	memcpy(hosts, args->hosts, args->n_hosts * sizeof(*hosts));
	for (size_t i = 0; i < n; i++) {
		struct sockaddr_storage a = { 0 };
		socklen_t size = sizeof(a);
		const struct sockaddr_in *in = (const struct sockaddr_in *)&a;
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a;

		if (getsockname(fds[i], (struct sockaddr *)&a, &size))
			continue;
		if (a.ss_family == AF_INET)
			o.local &= ntohl(in->sin_addr.s_addr) >> 24 == 127;
		else if (a.ss_family == AF_INET6)
			o.local &= IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
		if (!o.port && a.ss_family != AF_UNIX)
			o.port = ntohs(a.ss_family == AF_INET ? in->sin_port : in6->sin6_port);
	}
	return auth__new(&o);
}

static void release(struct web *web)
{
	request__abandon(web);
	for (size_t i = 0; i < web->n_daemons; i++)
		MHD_stop_daemon(web->daemons[i]);
	auth__free(web->guard);
	serve_state__release(&web->state);
	link__free(web->link);
	free(web->openapi);
}

static int take_signals(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

const struct route *const route_tables[] = { trace_routes, server_routes, page_routes, fleet_routes,
					     NULL };

int web__run(const struct serve_args *args, int link_fd, const int *listen_fds, size_t n)
{
	struct web web = { .args = args, .routes = route_tables, .now = clock__monotonic() };
	int signals = take_signals(), err = signals < 0 ? -errno : 0;
	size_t started = 0;

	serve_state__init(&web.state);
	web.link = link__new(link_fd);
	web.guard = make_guard(args, listen_fds, n);
	if (!web.link || !web.guard)
		err = err ? err : -ENOMEM;
	while (!err && started < n && started < SERVE_LISTEN)
		err = start(&web, listen_fds[started++]);
	while (started < n)
		close(listen_fds[started++]);
	if (err)
		log_err("serve: cannot start the HTTP process: %s", strerror(-err));
	else
		err = loop(&web, signals);
	release(&web);
	if (signals >= 0)
		close(signals);
	if (err != -EINTR && err != -EPIPE)
		log_err("serve: the HTTP process ended: %s", strerror(-err));
	return err == -EINTR || err == -EPIPE ? 0 : 1;
}
