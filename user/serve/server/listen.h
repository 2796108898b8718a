/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Listening sockets: an address with a port, or a Unix socket. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "serve/serve.h"

#define LISTEN_PORT 8000 /* default port */

/* Rights to connect to a Unix socket. */
struct listen_opts {
	uid_t uid; /* owner of the socket's file; (uid_t)-1: unchanged */
	/* Group whose members may connect. (gid_t)-1: unchanged, and only the owner may
	 * connect. */
	gid_t gid;
};

struct listen_at {
	int fd;
	bool local; /* loopback address or Unix socket: not reachable from other machines */
	bool is_unix;
	uint16_t port;	/* actual port; 0 for a Unix socket */
	char host[64];	/* address, "127.0.0.1" or "::1"; "" for a Unix socket */
	char url[160];	/* "http://127.0.0.1:8000", "http://[::1]:8000" or "unix:/run/x.sock" */
	char path[108]; /* path of a Unix socket, otherwise "" */
	dev_t dev;	/* device and inode of the Unix socket's file */
	ino_t ino;
};

/*
 * Opens a listening socket: bound, non-blocking, close-on-exec.
 * text: "127.0.0.1:8000", "[::1]:8000", "localhost:8000" (127.0.0.1), "0.0.0.0:80", "[::]:80",
 * "127.0.0.1" or "unix:/run/x.sock". Port 0 selects a free port. Names are not looked up.
 * tls: the URL begins with https. opts NULL: owner and group stay unchanged. A Unix socket without
 * a listener is replaced; any other existing file is an error. Returns 0, -EINVAL (text is not an
 * address) or another -errno. why: at least LISTEN_WHY bytes, gets the error and what to do.
 */
int listen__open(const char *text, bool tls, const struct listen_opts *opts, struct listen_at *ret,
		 char *why);
/* Describes the inherited listening socket fd. tls: the URL begins with https. Returns 0 or
 * -errno. */
int listen__describe(int fd, bool tls, struct listen_at *ret);
/* Closes the socket and removes its file if it is still the same file. Only for the process that
 * opened it. */
void listen__close(struct listen_at *at);
