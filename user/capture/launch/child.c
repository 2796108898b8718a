/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/launch/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/subprocess.h"

struct child {
	pid_t pid;
	int pidfd;
	int go;	    /* a byte starts the program, closing ends the child */
	int failed; /* receives the errno of a failed start; closed when the program runs */
	bool released, reaped;
	int status; /* wait status, valid once reaped */
};

/* True if the command runs as another user. */
static bool is_other(const struct user *u)
{
	return u && u->uid != geteuid();
}

/* Sets the environment of the command. 0 or -ENOMEM. */
static int set_env(const struct child_opts *opts)
{
	const struct user *user = opts->user;
	const char *const *variable;
	int err = 0;

	if (opts->variables)
		user__keep_variables(opts->variables);
	if (is_other(user))
		err = setenv("HOME", user->home, 1) || setenv("USER", user->name, 1) ||
		      setenv("LOGNAME", user->name, 1) || setenv("SHELL", user->shell, 1);
	for (variable = opts->env; variable && *variable && !err; variable++)
		err = strchr(*variable, '=') ? putenv((char *)*variable) : unsetenv(*variable);
	return err ? -ENOMEM : 0;
}

/* Closes our descriptors for a command of another user, except standard ones, `failed` and
 * opts->keep. 0 or -errno. */
static int close_ours(const struct child_opts *opts, int failed)
{
	const int keep[] = { failed, opts->keep };

	if (!is_other(opts->user))
		return 0;
	return subprocess__close_others(keep, opts->keep ? 2 : 1);
}

/* Sets up all that the program inherits, except its environment. 0 or -errno. */
static int prepare(const struct child_opts *opts, int failed)
{
	int err;

	if (opts->stdout_to_stderr && dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return -errno;
	err = close_ours(opts, failed);
	if (err)
		return err;
	err = opts->user ? user__become(opts->user) : 0;
	if (err)
		return err;
	if (opts->no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return sigprocmask(SIG_SETMASK, opts->mask, NULL) ? -errno : 0;
}

/* Runs in the child: waits for a byte from `go`, then runs the program, or writes the errno to
 * `failed`. Does not return. */
static void run(const struct child_opts *opts, int go, int failed)
{
	int err = set_env(opts);
	ssize_t n;
	char c;

	do {
		n = read(go, &c, 1);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(0); /* never released */
	err = err ?: prepare(opts, failed);
	if (!err) {
		execvp(opts->argv[0], opts->argv);
		err = -errno;
	}
	while (write(failed, &err, sizeof(err)) < 0 && errno == EINTR)
		;
	_exit(127); /* as a shell, if the command is not found */
}

static void close_both(const int pipe[2])
{
	for (int i = 0; i < 2 && pipe[i] >= 0; i++)
		close(pipe[i]);
}

struct child *child__new(const struct child_opts *opts)
{
	struct child *child = calloc(1, sizeof(*child));
	int go[2] = { -1, -1 }, failed[2] = { -1, -1 }, err;

	if (!child)
		return NULL;
	child->go = child->failed = child->pidfd = -1;
	if (pipe2(go, O_CLOEXEC) || pipe2(failed, O_CLOEXEC))
		goto fail;
	child->pid = fork();
	if (child->pid < 0)
		goto fail;
	if (!child->pid) {
		close(go[1]);
		close(failed[0]);
		run(opts, go[0], failed[1]);
	}
	close(go[0]);
	close(failed[1]);
	child->go = go[1];
	child->failed = failed[0];
	child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0u);
	if (child->pidfd < 0) {
		err = errno;
		child__free(child);
		errno = err;
		return NULL;
	}
	return child;
fail:
	err = errno;
	close_both(go);
	close_both(failed);
	free(child);
	errno = err;
	return NULL;
}

pid_t child__pid(const struct child *child)
{
	return child->pid;
}

int child__pidfd(const struct child *child)
{
	return child->pidfd;
}

int child__release(struct child *child)
{
	int err = 0;
	ssize_t n;

	do {
		n = write(child->go, "", 1);
	} while (n < 0 && errno == EINTR);
	child->released = n == 1;
	if (n != 1)
		return -errno;
	do {
		n = read(child->failed, &err, sizeof(err));
	} while (n < 0 && errno == EINTR);
	if (n != sizeof(err))
		return 0; /* closed by exec: the program runs */
	child__wait(child);
	return err;
}

bool child__released(const struct child *child)
{
	return child->released;
}

void child__signal(struct child *child, int number)
{
	/* An ended child keeps its PID until it is reaped. */
	if (!child->reaped)
		kill(child->pid, number);
}

int child__wait(struct child *child)
{
	while (!child->reaped) {
		if (waitpid(child->pid, &child->status, 0) == child->pid)
			child->reaped = true;
		else if (errno != EINTR)
			break;
	}
	return child->status;
}

void child__free(struct child *child)
{
	if (!child)
		return;
	close(child->go);
	if (!child->released)
		child__wait(child);
	close(child->failed);
	if (child->pidfd >= 0)
		close(child->pidfd);
	free(child);
}
