/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Starts a command like a shell in the foreground: same process group, terminal, input and output,
 * and original signals. The child is forked at once but executes the program only after
 * child__release(), so that probes can be attached before its first instruction. It continues if
 * this process dies. Not by base/subprocess.h, which runs the program at once.
 */
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/user.h"

struct child;

struct child_opts {
	char **argv; /* command, NULL-terminated; the program is searched in PATH */
	/* User to change to, with HOME, USER, LOGNAME and SHELL; NULL: unchanged. The command of
	 * another user cannot type into our terminal, user__guard_terminal(), and gets none of our
	 * descriptors above 2 but keep. */
	const struct user *user;
	/* "NAME=VALUE" sets, "NAME" removes a variable; NULL-terminated; NULL: none */
	const char *const *env;
	/* Variables of our environment that the child keeps, as a comma-separated list, in
	 * addition to basic ones, user__keep_variables(), and env. "*" or NULL: all. */
	const char *variables;
	int keep;	       /* a descriptor for the command of another user; 0: none */
	const sigset_t *mask;  /* signal mask of the program */
	bool no_new_privs;     /* set no_new_privs: set-user-ID programs get no rights */
	bool stdout_to_stderr; /* replace standard output by standard error */
};

/* Forks. NULL with errno on failure. opts' data must stay valid until child__release(). */
struct child *child__new(const struct child_opts *opts);
pid_t child__pid(const struct child *child);
/* Descriptor owned by child; readable when the child has ended. */
int child__pidfd(const struct child *child);
/* Starts the program. Returns 0, or a negative errno if that failed and the child has ended. */
int child__release(struct child *child);
bool child__released(const struct child *child);
/* Sends a signal. Does nothing after the child was reaped. */
void child__signal(struct child *child, int number);
/* Waits for the child's end. Returns its wait status. */
int child__wait(struct child *child);
/* A child that was not released exits without executing the program. NULL is fine. */
void child__free(struct child *child);
