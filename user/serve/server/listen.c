/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/server/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128 /* connections that wait for accept(), at most */
#define UNIX_PREFIX "unix:"
#define NEW_SUFFIX ".new" /* suffix of a Unix socket's temporary path */
#define SHOWN 100	  /* bytes of the address shown in messages */

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_un un;
	struct sockaddr_storage storage;
};

/* ---- parsing of addresses ---- */

/* Writes to why that text is not an address. Returns -EINVAL. */
static int refuse_text(const char *text, char *why)
{
	snprintf(why, LISTEN_WHY,
		 "'%.*s' is not an address; use 127.0.0.1:8000, [::1]:8000, localhost:8000, "
		 "0.0.0.0:8000 or unix:/PATH",
		 SHOWN, text);
	return -EINVAL;
}

/* Splits "[HOST]:PORT" or "HOST:PORT"; without a port, port gets LISTEN_PORT. False: text is
 * neither. */
static bool split_host_port(const char *text, char host[64], char port[8])
{
	const char *colon = strrchr(text, ':'), *end;
	size_t len;

	if (*text == '[') {
		end = strchr(++text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
		colon = end[1] ? end + 1 : NULL;
	} else {
		if (colon && colon != strchr(text, ':'))
			return false; /* An IPv6 address without brackets is ambiguous. */
		end = colon ? colon : text + strlen(text);
	}
	len = end - text;
	if (!len || len >= 64)
		return false;
	memcpy(host, text, len);
	host[len] = '\0';
	snprintf(port, 8, "%d", LISTEN_PORT);
	if (!colon)
		return true;
	len = strlen(++colon);
	if (!len || len > 5 || strspn(colon, "0123456789") != len || atol(colon) > 65535)
		return false;
	memcpy(port, colon, len + 1);
	return true;
}

/* Parses an address such as "fe80::1%eth0", with the name or number of an interface after '%'. Cuts
 * the interface off host. */
static bool parse_inet6(char *host, struct sockaddr_in6 *in6)
{
	char *scope = strchr(host, '%');

	*in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
	if (scope) {
		*scope++ = '\0';
		in6->sin6_scope_id = if_nametoindex(scope) ?: (unsigned)strtoul(scope, NULL, 10);
		if (!in6->sin6_scope_id)
			return false;
	}
	return inet_pton(AF_INET6, host, &in6->sin6_addr) == 1;
}

/* Parses HOST:PORT. Does not look up names: a name server must not decide the listening address.
 * Returns 0, or -EINVAL with why. */
static int parse_inet(const char *text, union address *a, socklen_t *len, char *why)
{
	char host[64], port[8];

	if (!split_host_port(text, host, port))
		return refuse_text(text, why);
	if (!strcmp(host, "localhost"))
		strcpy(host, "127.0.0.1");
	if (strchr(host, ':')) {
		if (!parse_inet6(host, &a->in6))
			return refuse_text(text, why);
		a->in6.sin6_port = htons(atoi(port));
		*len = sizeof(a->in6);
		return 0;
	}
	a->in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	if (inet_pton(AF_INET, host, &a->in.sin_addr) != 1)
		return refuse_text(text, why);
	*len = sizeof(a->in);
	return 0;
}

/* True for an address that only this host reaches. */
static bool is_loopback(const union address *a)
{
	return a->any.sa_family == AF_INET ? ntohl(a->in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
					   : IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

/* Checks the path of a Unix socket. Returns 0, or -EINVAL with why. */
static int check_path(const char *path, char why[LISTEN_WHY])
{
	struct sockaddr_un sa;

	if (*path != '/') {
		snprintf(why, LISTEN_WHY,
			 "'%.*s': give the full path of the Unix socket, such as "
			 "unix:/run/memtrace-bpf.sock",
			 SHOWN, path);
		return -EINVAL;
	}
	if (strlen(path) + strlen(NEW_SUFFIX) >= sizeof(sa.sun_path)) {
		snprintf(
			why, LISTEN_WHY,
			"'%.*s...' is too long for a Unix socket, whose path has at most %zu bytes",
			SHOWN, path, sizeof(sa.sun_path) - strlen(NEW_SUFFIX) - 1);
		return -EINVAL;
	}
	return 0;
}

int listen__is_local(const char *text, bool *ret, char *why)
{
	union address a;
	socklen_t len;
	int err;

	if (!strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX))) {
		*ret = true;
		return check_path(text + strlen(UNIX_PREFIX), why);
	}
	err = parse_inet(text, &a, &len, why);
	if (!err)
		*ret = is_loopback(&a);
	return err;
}

/* ---- description ---- */

/* Sets host, port and URL of an address. */
static void describe_inet(const union address *a, bool tls, struct listen_at *ret)
{
	const char *scheme = tls ? "https" : "http";
	bool is_inet6 = a->any.sa_family == AF_INET6;
	char scope[IF_NAMESIZE];
	size_t len;

	ret->local = is_loopback(a);
	ret->port = ntohs(is_inet6 ? a->in6.sin6_port : a->in.sin_port);
	inet_ntop(a->any.sa_family, is_inet6 ? (const void *)&a->in6.sin6_addr : &a->in.sin_addr,
		  ret->host, sizeof(ret->host));
	len = strlen(ret->host);
	if (is_inet6 && a->in6.sin6_scope_id && if_indextoname(a->in6.sin6_scope_id, scope))
		snprintf(ret->host + len, sizeof(ret->host) - len, "%%%s", scope);
	snprintf(ret->url, sizeof(ret->url), is_inet6 ? "%s://[%s]:%d" : "%s://%s:%d", scheme,
		 ret->host, ret->port);
}

/* Sets path and URL of a Unix socket. Returns 0, or -EINVAL for one without a path. */
static int describe_unix(const union address *a, socklen_t len, struct listen_at *ret)
{
	size_t n;

	if (len <= offsetof(struct sockaddr_un, sun_path) || len > sizeof(a->un) ||
	    a->un.sun_path[0] != '/')
		return -EINVAL;
	n = strnlen(a->un.sun_path, len - offsetof(struct sockaddr_un, sun_path));
	if (n > strlen(NEW_SUFFIX) &&
	    !memcmp(a->un.sun_path + n - strlen(NEW_SUFFIX), NEW_SUFFIX, strlen(NEW_SUFFIX)))
		n -= strlen(NEW_SUFFIX); /* the socket keeps its temporary name */
	snprintf(ret->path, sizeof(ret->path), "%.*s", (int)n, a->un.sun_path);
	snprintf(ret->url, sizeof(ret->url), UNIX_PREFIX "%s", ret->path);
	ret->local = ret->is_unix = true;
	return 0;
}

int listen__describe(int fd, bool tls, struct listen_at *ret)
{
	struct listen_at at = { .fd = fd };
	union address a = { 0 };
	socklen_t len = sizeof(a);
	int err = 0;

	if (getsockname(fd, &a.any, &len))
		return -errno;
	if (a.any.sa_family == AF_UNIX)
		err = describe_unix(&a, len, &at);
	else if (a.any.sa_family == AF_INET || a.any.sa_family == AF_INET6)
		describe_inet(&a, tls, &at);
	else
		err = -EINVAL;
	if (!err)
		*ret = at;
	return err;
}

/* ---- opening ---- */

/* Writes "TEXT: cannot DOING: ERROR" and a hint into the buffer `why`. Returns err. */
static int refuse(const char *text, const char *doing, int err, char *why)
{
	const char *hint = err == -EACCES ? ": not permitted" : "";

	if (err == -EADDRINUSE)
		hint = ": another program already listens there; choose another port, or 0 for a "
		       "free one";
	else if (err == -EADDRNOTAVAIL)
		hint = ": no such address on this machine";
	snprintf(why, LISTEN_WHY, "%.*s: cannot %s: %s%s", SHOWN, text, doing, strerror(-err),
		 hint);
	return err;
}

/* Opens a socket on HOST:PORT. Returns 0, or -errno with why. */
static int open_inet(const char *text, bool tls, struct listen_at *ret, char *why)
{
	const int on = 1;
	union address a;
	socklen_t len;
	int err = parse_inet(text, &a, &len, why), fd;

	if (err)
		return err;
	fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return refuse(text, "make a socket", -errno, why);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* [::] must not also listen on IPv4. */
	if (a.any.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, &a.any, len) || listen(fd, BACKLOG)) {
		err = refuse(text, "listen", -errno, why);
		close(fd);
		return err;
	}
	err = listen__describe(fd, tls, ret);
	if (err)
		close(fd);
	return err;
}

/* Checks the folder of a socket: in a world-writable one without the sticky bit, other users could
 * replace the socket. Returns 0, or -errno with why. */
static int check_folder(const char *path, char *why)
{
	char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct stat st;

	snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
	if (stat(*folder ? folder : "/", &st))
		return refuse(path, "look at its folder", -errno, why);
	if (!(st.st_mode & S_IWOTH) || st.st_mode & S_ISVTX)
		return 0;
	snprintf(why, LISTEN_WHY, "%.*s: anyone can write to its folder; use a folder of your own",
		 SHOWN, path);
	return -EPERM;
}

/* Returns 0 if the path does not exist or is a socket without a listener, otherwise -errno with
 * why. */
static int check_existing(const char *path, const struct sockaddr_un *sa, char *why)
{
	struct stat st;
	int fd, err = 0;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : refuse(path, "look at it", -errno, why);
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(why, LISTEN_WHY,
			 "%.*s exists and is not a socket: remove it, or choose another path",
			 SHOWN, path);
		return -EEXIST;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return refuse(path, "make a socket", -errno, why);
	/* EAGAIN: the listener's queue is full; EPROTOTYPE: not a stream socket */
	if (!connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) || errno != ECONNREFUSED)
		err = refuse(path, "listen", -EADDRINUSE, why);
	close(fd);
	return err;
}

/* Creates the socket under a temporary name and renames it once its owner is set and it listens.
 * Returns 0 or -errno. */
static int bind_unix(int fd, const char *path, const struct listen_opts *opts,
		     struct listen_at *ret)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	bool shared = opts && opts->gid != (gid_t)-1;
	bool has_owner = shared || (opts && opts->uid != (uid_t)-1);
	struct stat st;
	mode_t mask;
	int err = 0;

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s" NEW_SUFFIX, path);
	unlink(sa.sun_path); /* left over from a killed server */
	/* Set the mode (0660 or 0600) by umask: chmod() by name could reach another file. */
	mask = umask(shared ? 0117 : 0177);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)))
		err = -errno;
	umask(mask);
	if (err)
		return err;
	if (has_owner && lchown(sa.sun_path, opts->uid, opts->gid))
		err = -errno;
	else if (listen(fd, BACKLOG) || lstat(sa.sun_path, &st) || rename(sa.sun_path, path))
		err = -errno;
	if (err) {
		unlink(sa.sun_path);
		return err;
	}
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	return 0;
}

/* Opens a socket on a path. Returns 0, or -errno with why. */
static int open_unix(const char *path, const struct listen_opts *opts, struct listen_at *ret,
		     char *why)
{
	struct listen_at at = { .local = true, .is_unix = true };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int err = check_path(path, why);

	if (!err)
		err = check_folder(path, why);
	if (err)
		return err;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	err = check_existing(path, &sa, why);
	if (err)
		return err;
	at.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (at.fd < 0)
		return refuse(path, "make a socket", -errno, why);
	err = bind_unix(at.fd, path, opts, &at);
	if (err) {
		close(at.fd);
		return refuse(path, "listen", err, why);
	}
	snprintf(at.path, sizeof(at.path), "%s", path);
	snprintf(at.url, sizeof(at.url), UNIX_PREFIX "%s", path);
	*ret = at;
	return 0;
}

int listen__open(const char *text, bool tls, const struct listen_opts *opts, struct listen_at *ret,
		 char *why)
{
	*why = '\0';
	if (!strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)))
		return open_unix(text + strlen(UNIX_PREFIX), opts, ret, why);
	return open_inet(text, tls, ret, why);
}

/* Another server may have replaced the socket's file since. */
void listen__close(struct listen_at *at)
{
	struct stat st;

	if (at->fd >= 0)
		close(at->fd);
	at->fd = -1;
	if (at->is_unix && !lstat(at->path, &st) && st.st_dev == at->dev && st.st_ino == at->ino)
		unlink(at->path);
}
