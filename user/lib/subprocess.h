/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_SUBPROCESS_H
#define MT_LIB_SUBPROCESS_H
/*
 * Starts a process, either another program or a function of this one, and waits for its end. All
 * functions are for callers with one thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SUBPROCESS_FDS 24
#define SUBPROCESS_INHERIT (-1) /* for in, out and err: the caller's own */

enum subprocess_group {
	SUBPROCESS_OUR_GROUP, /* Ctrl-C reaches it */
	SUBPROCESS_OWN_GROUP,
	SUBPROCESS_OWN_SESSION, /* without a terminal */
};

struct subprocess_fd {
	int from, to; /* the descriptor here, and its number in the process */
};

struct subprocess_limit {
	int resource; /* RLIMIT_... */
	uint64_t most;
};

struct subprocess_opts {
	/* A program. argv and env are NULL-terminated. */
	const char *program;	 /* path, or a name to search in PATH; NULL: none */
	int program_fd;		 /* runs first, program if the kernel refuses it; 0: none */
	const char *const *argv; /* from the program's name on */
	const char *const *env;	 /* "NAME=VALUE" to set, "NAME" to remove; NULL: nothing */
	bool empty_env;		 /* env is the whole environment */
	const char *refused;	 /* for standard error if the program cannot run; NULL: nothing */
	/* Or a function, whose result is the exit code. It may use stdio, but has to flush. */
	int (*main)(void *ctx);

	/*
	 * Runs in the process when all below is set up, before the program or main. Anything but 0
	 * ends the process with this exit code. Descriptors that are to be closed for a program are
	 * still open.
	 */
	int (*prepare)(void *ctx);
	void *ctx; /* for main and prepare */

	int in, out, err; /* a descriptor, SUBPROCESS_INHERIT, or 0 for /dev/null */
	/* Besides these three; the process has no others. At most SUBPROCESS_FDS. */
	const struct subprocess_fd *fds;
	size_t n_fds;
	bool keep_all_fds; /* main gets all descriptors, as they are */
	bool keep_signals; /* signal mask and dispositions stay; false: default, none blocked */

	enum subprocess_group group;
	bool ends_group;  /* when it ends, SIGKILL ends all that is left in its group */
	int death_signal; /* when the caller ends; 0: it goes on */
	int nice_by;	  /* as for nice(2); where that fails the priority stays */
	const struct subprocess_limit *limits; /* a lower limit stays */
	size_t n_limits;
};

/* A process. All zero: none. */
struct subprocess {
	pid_t pid; /* 0: none, or it has been waited for */
	int pidfd; /* readable when it has ended; valid while pid is not 0 */
	bool ends_group;
};

/* 0 or -errno. A step that fails in the process ends it with exit code 126 or 127. */
int subprocess__start(const struct subprocess_opts *o, struct subprocess *ret);
/* Has it ended? Then *status is that of waitpid(), and *p is all zero. Does not wait. */
bool subprocess__ended(struct subprocess *p, int *status);
/* The same, but waits for the end for this time. ms: -1: without limit. */
bool subprocess__wait(struct subprocess *p, int ms, int *status);
/* Sends a signal; with ends_group SIGKILL reaches the whole group. Fine if there is no process. */
void subprocess__signal(const struct subprocess *p, int signal);
/* Ends it with SIGKILL and waits. Fine if there is no process. */
void subprocess__kill(struct subprocess *p);
/* Closes all descriptors above 2 but these, in the calling process. 0 or -errno. */
int subprocess__close_others(const int *keep, size_t n);

#endif
