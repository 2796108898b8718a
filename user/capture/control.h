/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The socket that controls a running capture: /run/memtrace-bpf/TARGET.OWN.sock with both PIDs, in
 * a folder of mode 0700. A request is one message, an action and its argument ("mark epoch 3"). The
 * answer is one message, a JSON object with "ok", and with "error" if that is false. Only root and
 * the capturing user may connect.
 *
 * The capture never waits for a client: it drops a client that does not take the answer at once.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONTROL_REQUEST 1024 /* bytes of a request at most */
#define CONTROL_ANSWER 65536 /* bytes of an answer at most */

struct json;
struct control;

/*
 * Handles a request. argument: the text after the action, "" if none; valid UTF-8 without control
 * characters. Adds the answer to j, an open object. Returns 0, or a negative error after adding
 * "error"; -ENOTSUP: unknown action, with nothing added.
 */
typedef int control_handler(void *ctx, const char *action, const char *argument, struct json *j);

/*
 * Opens the socket of a capture of the process target. folder NULL: the default folder. Returns 0
 * or -errno; the capture runs without a socket then.
 */
int control__open(pid_t target, const char *folder, control_handler *handler, void *ctx,
		  struct control **ret);
/*
 * A socket that only sends, for programs of the captured processes' users:
 * /run/memtrace-bpf-figures/TARGET.OWN.sock, in a folder that everybody may list. It takes no
 * requests.
 */
struct control_feed {
	/* Sets *ret to the users whose programs may connect, besides root and the capturing user.
	 * Returns their number, which only grows. */
	size_t (*users)(void *ctx, const uid_t **ret);
	/* The next message for a reader of this user after the message number *at (0: before the
	 * first), which it advances. NULL: there is none yet. ctx owns the text. */
	const char *(*next)(void *ctx, uid_t uid, uint64_t *at);
	void *ctx;
};
/* As control__open(). feed is borrowed. Nobody can wake the capture through this socket, so it
 * needs neither control__fd() nor control__pump(). Nobody but its users can connect to it, if the
 * file system has access control lists. */
int control__open_feed(pid_t target, const char *folder, const struct control_feed *feed,
		       struct control **ret);
/* Accepts a few readers of a feed, and sends all readers what they have not got yet. A reader that
 * does not read gets the rest with a later call. Never blocks. Call it after each drain. */
void control__feed(struct control *control);
void control__close(struct control *control);	/* removes the socket; NULL is fine */
int control__fd(const struct control *control); /* becomes readable when a client needs an answer */
void control__pump(struct control *control);	/* answers waiting clients; never blocks */

/* For clients: a running capture, as the PIDs of the captured process and of the program that
 * captures it. */
struct control_place {
	pid_t target, capturer;
};
/*
 * Finds the captures whose target or own PID is pid; 0: all. Removes sockets that nobody listens
 * on. The caller frees *ret. Returns the number, or -errno; -ENOENT: no capture ever ran here.
 */
ssize_t control__find(const char *folder, pid_t pid, struct control_place **ret);
/* Sends a request. The caller frees *answer, NUL-terminated, at most CONTROL_ANSWER bytes. Waits at
 * most 10 s. Returns 0 or -errno. */
int control__ask(const char *folder, const struct control_place *p, const char *request,
		 char **answer);
