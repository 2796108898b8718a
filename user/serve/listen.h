/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_LISTEN_H
#define MT_SERVE_LISTEN_H
/* Where the server listens: an address and a port, or a Unix socket. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LISTEN_PORT 8000 /* where none is given */
#define LISTEN_WHY 256

/* Whose a Unix socket is. */
struct listen_opts {
	uid_t uid; /* (uid_t)-1: who we are */
	gid_t gid; /* (gid_t)-1: likewise, and only the owner may connect; else its members may, too
		    */
};

struct listen_at {
	int fd;
	bool local; /* a loopback address or a Unix socket: nobody outside of this machine reaches
		       it */
	bool is_unix;
	uint16_t port;	/* as the system gave it; 0 of a Unix socket */
	char host[64];	/* "127.0.0.1", "::1"; "" of a Unix socket */
	char url[160];	/* "http://127.0.0.1:8000", "http://[::1]:8000", "unix:/run/x.sock" */
	char path[108]; /* of a Unix socket, else "" */
	dev_t dev;	/* which file that is */
	ino_t ino;
};

/*
 * text: "127.0.0.1:8000", "[::1]:8000", "localhost:8000" (which is 127.0.0.1), "0.0.0.0:80",
 * "[::]:80", "127.0.0.1", "unix:/run/x.sock". Port 0: one that is free. Names are not looked up.
 * tls: url says https. Bound, listening, non-blocking, close-on-exec. A Unix socket that nobody
 * listens on any more is replaced; one where somebody does, and what is no socket, is not. 0;
 * -EINVAL: text is none of these; else -errno. why: at least LISTEN_WHY bytes, says what failed and
 * what to do. opts NULL: all -1.
 */
int listen__open(const char *text, bool tls, const struct listen_opts *opts, struct listen_at *ret,
		 char *why);
/* Would it be local? For what has to be known before anything is opened. 0, -EINVAL with why. */
int listen__is_local(const char *text, bool *ret, char *why);
/* What fd, which listens, is: for a process that was handed it. url says http, or https with tls. 0
 * or -errno. */
int listen__describe(int fd, bool tls, struct listen_at *ret);
/* Closes it, and removes a Unix socket if it is still the one that was made. For the one process
 * that opened it. */
void listen__close(struct listen_at *at);

#endif
