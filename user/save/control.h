/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_CONTROL_H
#define MT_SAVE_CONTROL_H
/*
 * The socket by which a capture that runs is told what to do: /run/memtrace-bpf/TARGET.OWN.sock,
 * both PIDs, in a folder that is root's alone. A request is one message, a word and what follows it
 * ("mark epoch 3"); the answer is one, a JSON object with "ok", and "error" where that is false.
 * Only root and the user who captures are listened to.
 *
 * Nothing here ever waits for a client: what does not take its answer at once is dropped.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CONTROL_REQUEST 1024 /* bytes at most */
#define CONTROL_ANSWER 65536

struct json;
struct control;

/*
 * A word of a client's: puts what is to be answered into j, an object that is open. argument: what
 * follows the word, "" if nothing; valid UTF-8 without control characters. 0, or negative: not
 * done, and "error" has been put into j; -ENOTSUP: no such word, nothing has been put.
 */
typedef int control_handler(void *ctx, const char *word, const char *argument, struct json *j);

/*
 * Opens the socket of a capture of the process. folder NULL: the usual one. 0 or -errno; who may
 * not have one captures without.
 */
int control__open(pid_t target, const char *folder, control_handler *handler, void *ctx,
		  struct control **ret);
void control__close(struct control *c); /* removes the socket; NULL is fine */
int control__fd(
	const struct control *c); /* to be waited for: readable when there is something to do */
void control__pump(struct control *c); /* does what there is to do, and does not wait */

/* The client's side. */
struct control_place {
	pid_t target, capturer;
};
/*
 * The captures that there are, those of a process alone if pid is not 0 (the captured one's, or the
 * capturing one's). What nobody listens on any more is removed. *ret is for free(). How many, or
 * -errno: -ENOENT: none was ever made here.
 */
ssize_t control__find(const char *folder, pid_t pid, struct control_place **ret);
/* Asks one of them: answer, NUL-terminated, at most CONTROL_ANSWER bytes, is for free(). 0 or
 * -errno; waits 10 s at most. */
int control__ask(const char *folder, const struct control_place *p, const char *request,
		 char **answer);

#endif
