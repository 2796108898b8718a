/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LAUNCH_CHILD_H
#define MT_LAUNCH_CHILD_H
/*
 * A command that is started and then let be, as a shell would start it in the foreground: our
 * process group, terminal, input and output; signals as we found them. It is forked at once and
 * runs its program only when told to, so that its PID is known and everything stands ready before
 * its first instruction. When we die it goes on.
 */
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "lib/user.h"

struct child;

struct child_opts {
	char **argv;		 /* NULL-terminated; the program is looked for in PATH */
	const struct user *user; /* NULL: as we are. HOME, USER, LOGNAME and SHELL go with it */
	const char *const
		*env; /* "NAME=VALUE" to set, "NAME" to take away; NULL-terminated; NULL: nothing */
	/*
	 * NULL: it gets our environment. Else a list of names with commas: it gets these, what any
	 * program needs and what PyTorch, CUDA and we are set up by (child.c has the names), and
	 * env. "*": all.
	 */
	const char *variables;
	const sigset_t *mask;  /* the signal mask it gets */
	bool no_new_privs;     /* neither it nor what it starts gets rights by an exec: set-user-ID
				  programs run without */
	bool stdout_to_stderr; /* our standard output is not for it */
};

/* Forks. NULL with errno. What opts points to must stay. */
struct child *child__new(const struct child_opts *opts);
pid_t child__pid(const struct child *c);
int child__pidfd(const struct child *c); /* owned by c; readable when it has ended */
/* Runs the command. 0; negative: the errno of what failed, and it has ended. */
int child__release(struct child *c);
bool child__released(const struct child *c);
/* Sends it a signal; nothing once it has ended. */
void child__signal(struct child *c, int number);
/* Waits until it has ended. Its wait status. */
int child__wait(struct child *c);
/* One that was never released ends without having run anything. NULL is fine. */
void child__free(struct child *c);

#endif
