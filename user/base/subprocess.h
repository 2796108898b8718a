/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Starts a process, which runs a program or a function, and waits for its end. The caller must have
 * one thread. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SUBPROCESS_FDS 720
#define SUBPROCESS_INHERIT (-1) /* for in, out and err: the caller's own */

enum subprocess_group {
	SUBPROCESS_OUR_GROUP, /* Ctrl-C reaches the process, too */
	SUBPROCESS_OWN_GROUP,
	SUBPROCESS_OWN_SESSION, /* without a terminal */
};

struct subprocess_fd {
	int from, to; /* number of the descriptor in the caller, and in the process */
};

struct subprocess_limit {
	int resource;  /* RLIMIT_... */
	uint64_t most; /* the new limit, if the current one is higher */
};

struct subprocess_opts {
	/* The program. argv and env are NULL-terminated. */
	const char *program; /* path, or a name to search in PATH; NULL: none */
	int program_fd;	     /* descriptor of an executable that is tried before program; 0: none */
	const char *const *argv; /* arguments, from the program's name on */
	const char *const *env;	 /* "NAME=VALUE" to set, "NAME" to remove; NULL: nothing */
	bool empty_env;		 /* env is the whole environment */
	const char *refused;	 /* for standard error if the program cannot run; NULL: none */
	/* A function instead of a program. It returns the exit code, and flushes stdio itself. */
	int (*main)(void *ctx);

	/* Runs in the process after the setup below and before the program or main. A result other
	 * than 0 is the exit code. A program's other descriptors are still open. */
	int (*prepare)(void *ctx);
	void *ctx; /* for main and prepare */

	int in, out, err; /* a descriptor, SUBPROCESS_INHERIT, or 0 for /dev/null */
	/* More descriptors, at most SUBPROCESS_FDS; all others are closed. */
	const struct subprocess_fd *fds;
	size_t n_fds;
	bool keep_all_fds; /* main gets all descriptors, as they are */
	bool keep_signals; /* keep the signal mask and dispositions; false: default, none blocked */

	enum subprocess_group group;
	bool ends_group;  /* when the process ends, SIGKILL ends the rest of its process group */
	int death_signal; /* signal when the caller ends; 0: none */
	int nice_by;	  /* added to the nice value; a failure is ignored */
	const struct subprocess_limit *limits; /* resource limits; lower existing limits stay */
	size_t n_limits;
};

/* A started process. All zero: no process. */
struct subprocess {
	pid_t pid; /* 0: none, or it has been waited for */
	int pidfd; /* readable when it has ended; valid while pid is not 0 */
	bool ends_group;
};

#define SUBPROCESS_LOST 64

/* Processes that subprocess__try() gave up and that may not have ended. All zero: none. If there is
 * no room for one, it stays a zombie until the caller ends. */
struct subprocess_lost {
	pid_t pid[SUBPROCESS_LOST];
	size_t n;
};

/* Starts a process. Returns 0 or -errno. If its setup fails, its exit code is 126 or 127. */
int subprocess__start(const struct subprocess_opts *o, struct subprocess *ret);
/* True if the process has ended. Then *status is that of waitpid(), and *p is zeroed. Does not
 * wait. */
bool subprocess__ended(struct subprocess *p, int *status);
/* Like subprocess__ended(), but waits at most ms milliseconds for the end; -1: no limit. */
bool subprocess__wait(struct subprocess *p, int ms, int *status);
/* True if the process is running or waits for a CPU, and for nothing else. */
bool subprocess__computes(const struct subprocess *p);
/* Sends a signal; with ends_group, SIGKILL goes to the whole group. No effect if there is no
 * process. */
void subprocess__signal(const struct subprocess *p, int signal);
/* Ends the process with SIGKILL and waits. No effect if there is no process. */
void subprocess__kill(struct subprocess *p);
/* Runs a function that somebody else's file system or driver may keep from ending, in a process
 * without our descriptors. *progress is in memory that both share. Returns the exit code;
 * -ETIMEDOUT: for ms milliseconds on end the process has waited for something and not changed
 * *progress; -EIO: a signal ended it; or -errno. After -ETIMEDOUT the process may go on for a time:
 * it got SIGKILL and is in *lost. The next call with this list collects those that have ended. */
int subprocess__try(int (*main)(void *ctx), void *ctx, const atomic_uint *progress, int ms,
		    struct subprocess_lost *lost);
/* Closes all descriptors above 2 but these, in the calling process. 0 or -errno. */
int subprocess__close_others(const int *keep, size_t n);
