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

static int set_env(const struct child_opts *o)
{
	const struct user *u = o->user;
	const char *const *e;
	int err = 0;

	if (o->variables)
		user__keep_variables(o->variables);
	if (is_other(u))
		err = setenv("HOME", u->home, 1) || setenv("USER", u->name, 1) ||
		      setenv("LOGNAME", u->name, 1) || setenv("SHELL", u->shell, 1);
	for (e = o->env; e && *e && !err; e++)
		err = strchr(*e, '=') ? putenv((char *)*e) : unsetenv(*e);
	return err ? -ENOMEM : 0;
}

/* Closes our descriptors for a command of another user, except standard ones, `failed` and o->keep.
 * 0 or -errno. */
static int close_ours(const struct child_opts *o, int failed)
{
	const int keep[] = { failed, o->keep };

	if (!is_other(o->user))
		return 0;
	return subprocess__close_others(keep, o->keep ? 2 : 1);
}

/* Sets up all that the program inherits, except its environment. 0 or -errno. */
static int prepare(const struct child_opts *o, int failed)
{
	int err;

	if (o->stdout_to_stderr && dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return -errno;
	err = close_ours(o, failed);
	if (err)
		return err;
	err = o->user ? user__become(o->user) : 0;
	if (err)
		return err;
	if (o->no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return sigprocmask(SIG_SETMASK, o->mask, NULL) ? -errno : 0;
}

/* Runs in the child: waits for a byte from `go`, then runs the program, or writes the errno to
 * `failed`. Does not return. */
static void run(const struct child_opts *o, int go, int failed)
{
	int err = set_env(o);
	ssize_t n;
	char c;

	do {
		n = read(go, &c, 1);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(0); /* never released */
	err = err ?: prepare(o, failed);
	if (!err) {
		execvp(o->argv[0], o->argv);
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
	struct child *c = calloc(1, sizeof(*c));
	int go[2] = { -1, -1 }, failed[2] = { -1, -1 }, err;

	if (!c)
		return NULL;
	c->go = c->failed = c->pidfd = -1;
	if (pipe2(go, O_CLOEXEC) || pipe2(failed, O_CLOEXEC))
		goto fail;
	c->pid = fork();
	if (c->pid < 0)
		goto fail;
	if (!c->pid) {
		close(go[1]);
		close(failed[0]);
		run(opts, go[0], failed[1]);
	}
	close(go[0]);
	close(failed[1]);
	c->go = go[1];
	c->failed = failed[0];
	c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0u);
	if (c->pidfd < 0) {
		err = errno;
		child__free(c);
		errno = err;
		return NULL;
	}
	return c;
fail:
	err = errno;
	close_both(go);
	close_both(failed);
	free(c);
	errno = err;
	return NULL;
}

pid_t child__pid(const struct child *c)
{
	return c->pid;
}

int child__pidfd(const struct child *c)
{
	return c->pidfd;
}

int child__release(struct child *c)
{
	int err = 0;
	ssize_t n;

	do {
		n = write(c->go, "", 1);
	} while (n < 0 && errno == EINTR);
	c->released = n == 1;
	if (n != 1)
		return -errno;
	do {
		n = read(c->failed, &err, sizeof(err));
	} while (n < 0 && errno == EINTR);
	if (n != sizeof(err))
		return 0; /* closed by exec: the program runs */
	child__wait(c);
	return err;
}

bool child__released(const struct child *c)
{
	return c->released;
}

void child__signal(struct child *c, int number)
{
	/* An ended child keeps its PID until it is reaped. */
	if (!c->reaped)
		kill(c->pid, number);
}

int child__wait(struct child *c)
{
	while (!c->reaped) {
		if (waitpid(c->pid, &c->status, 0) == c->pid)
			c->reaped = true;
		else if (errno != EINTR)
			break;
	}
	return c->status;
}

void child__free(struct child *c)
{
	if (!c)
		return;
	close(c->go);
	if (!c->released)
		child__wait(c);
	close(c->failed);
	if (c->pidfd >= 0)
		close(c->pidfd);
	free(c);
}
