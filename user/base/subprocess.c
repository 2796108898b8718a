/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/subprocess.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"

#define CANNOT_PREPARE 126
#define CANNOT_RUN 127 /* as shells have it */
#define CHECK_EVERY 50 /* ms between two looks of subprocess__try() */

/* ---- in the process ---- */

static int compare_fds(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return x < y ? -1 : x > y;
}

static bool is_kept(int fd, const int *keep, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (keep[i] == fd)
			return true;
	return false;
}

/* Closes all descriptors above 2 but n kept ones; with CLOSE_RANGE_CLOEXEC in flags, exec closes
 * them. For kernels without close_range() (before 5.9) or without CLOSE_RANGE_CLOEXEC (before
 * 5.11). The kernel lists descriptors by number, so a closed one hides no other. Returns 0 or
 * -errno. */
static int close_each_but(const int *keep, size_t n, unsigned flags)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	int fd, err = 0;

	if (!dir)
		return -errno;
	while (!err && (entry = readdir(dir))) {
		fd = atoi(entry->d_name);
		if (fd <= 2 || fd == dirfd(dir) || is_kept(fd, keep, n))
			continue;
		if (flags & CLOSE_RANGE_CLOEXEC ? fcntl(fd, F_SETFD, FD_CLOEXEC) : close(fd))
			err = -errno;
	}
	closedir(dir);
	return err;
}

/* Like close_each_but(), with one system call for each gap between kept descriptors. */
static int close_range_but(const int *keep, size_t n, unsigned flags)
{
	int *sorted = malloc((n + 1) * sizeof(*sorted)), err = 0;
	unsigned from = 3;

	if (!sorted)
		return -ENOMEM;
	if (n)
		memcpy(sorted, keep, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_fds);
	for (size_t i = 0; i < n && !err; i++) {
		if (sorted[i] < (int)from)
			continue;
		if (sorted[i] > (int)from &&
		    syscall(SYS_close_range, from, (unsigned)sorted[i] - 1, flags))
			err = -errno;
		from = (unsigned)sorted[i] + 1;
	}
	if (!err && syscall(SYS_close_range, from, ~0u, flags))
		err = -errno;
	free(sorted);
	return err == -ENOSYS || err == -EINVAL ? close_each_but(keep, n, flags) : err;
}

int subprocess__close_others(const int *keep, size_t n)
{
	return close_range_but(keep, n, 0);
}

/* Gives the process its descriptors and closes the others. Duplicates all sources first, because a
 * target may have the number of a source. Returns 0 or -errno. */
static int place_fds(const struct subprocess_opts *o)
{
	struct subprocess_fd all[SUBPROCESS_FDS + 3];
	const int standard[] = { o->in, o->out, o->err };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), keep[SUBPROCESS_FDS], above = 3;
	size_t n = 0;

	if (null < 0)
		return -errno;
	for (int i = 0; i < 3; i++)
		if (standard[i] != SUBPROCESS_INHERIT)
			all[n++] = (struct subprocess_fd){ standard[i] ? standard[i] : null, i };
	for (size_t i = 0; i < o->n_fds; i++) {
		all[n++] = o->fds[i];
		keep[i] = o->fds[i].to;
		above = keep[i] >= above ? keep[i] + 1 : above;
	}
	for (size_t i = 0; i < n; i++) {
		all[i].from = fcntl(all[i].from, F_DUPFD_CLOEXEC, above);
		if (all[i].from < 0)
			return -errno;
	}
	close(null);
	for (size_t i = 0; i < n; i++) {
		if (dup2(all[i].from, all[i].to) < 0)
			return -errno;
		close(all[i].from);
	}
	if (o->keep_all_fds)
		return 0;
	return close_range_but(keep, o->n_fds, o->main ? 0 : CLOSE_RANGE_CLOEXEC);
}

/* Gives all signals their default action and blocks none. */
static void reset_signals(void)
{
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL); /* fails for SIGKILL and SIGSTOP */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Lowers the soft and the hard limit, so that neither can be raised again. The soft limit of open
 * files goes up to the hard one. Returns 0 or -errno. */
static int lower_limit(const struct subprocess_limit *l)
{
	struct rlimit have, want;

	if (getrlimit(l->resource, &have))
		return -errno;
	want.rlim_max = have.rlim_max < l->most ? have.rlim_max : l->most;
	want.rlim_cur = have.rlim_cur < want.rlim_max ? have.rlim_cur : want.rlim_max;
	if (l->resource == RLIMIT_NOFILE)
		want.rlim_cur = want.rlim_max;
	return setrlimit(l->resource, &want) ? -errno : 0;
}

/* Returns 0 or -ENOMEM. */
static int set_env(const struct subprocess_opts *o)
{
	int err = o->empty_env ? clearenv() : 0;

	for (const char *const *entry = o->env; entry && *entry && !err; entry++)
		err = strchr(*entry, '=') ? putenv((char *)*entry) : unsetenv(*entry);
	return err ? -ENOMEM : 0;
}

/* Lets the kernel send this process a signal, if not 0, when its parent ends. Returns 0 or -errno;
 * -ESRCH: the parent has ended already. */
static int set_death_signal(pid_t parent, int signal)
{
	if (!signal)
		return 0;
	if (prctl(PR_SET_PDEATHSIG, signal))
		return -errno;
	return getppid() == parent ? 0 : -ESRCH;
}

/* Sets up the child by its options, before the program or main. Returns 0 or -errno. */
static int set_up_child(const struct subprocess_opts *o, pid_t parent)
{
	int err = set_death_signal(parent, o->death_signal);

	if (err)
		return err;
	if (o->group == SUBPROCESS_OWN_SESSION && setsid() < 0)
		return -errno;
	if (o->group == SUBPROCESS_OWN_GROUP && setpgid(0, 0))
		return -errno;
	if (!o->keep_signals)
		reset_signals();
	err = place_fds(o);
	if (err)
		return err;
	for (size_t i = 0; i < o->n_limits; i++) {
		err = lower_limit(&o->limits[i]);
		if (err)
			return err;
	}
	if (o->nice_by && nice(o->nice_by) < 0)
		errno = 0;
	return set_env(o);
}

/* Runs in the child after fork(): sets the child up, then runs main or the program. */
__attribute__((noreturn)) static void run_child(const struct subprocess_opts *o, pid_t parent)
{
	int status = set_up_child(o, parent) ? CANNOT_PREPARE : 0;

	if (!status && o->prepare)
		status = o->prepare(o->ctx);
	/* A change of user in prepare() clears the death signal. */
	if (!status && set_death_signal(parent, o->death_signal))
		status = CANNOT_PREPARE;
	if (status)
		_exit(status);
	if (o->main)
		_exit(o->main(o->ctx));
	if (o->program_fd)
		syscall(SYS_execveat, o->program_fd, "", o->argv, environ, AT_EMPTY_PATH);
	if (o->program && strchr(o->program, '/'))
		execv(o->program, (char *const *)o->argv);
	else if (o->program)
		execvp(o->program, (char *const *)o->argv);
	if (o->refused && write(STDERR_FILENO, o->refused, strlen(o->refused)) < 0)
		_exit(CANNOT_PREPARE);
	_exit(CANNOT_RUN);
}

/* ---- in the caller ---- */

int subprocess__start(const struct subprocess_opts *o, struct subprocess *ret)
{
	pid_t parent = getpid();
	struct sigaction on_end;
	int err = 0;

	*ret = (struct subprocess){ 0 };
	if (o->n_fds > SUBPROCESS_FDS)
		return -E2BIG;
	/* With an ignored SIGCHLD, inherited from our parent, waitpid() would fail. */
	if (!sigaction(SIGCHLD, NULL, &on_end) && on_end.sa_handler == SIG_IGN)
		signal(SIGCHLD, SIG_DFL);
	if (o->main)
		fflush(NULL);
	ret->pid = fork();
	if (!ret->pid)
		run_child(o, parent);
	if (ret->pid < 0) {
		err = -errno;
		ret->pid = 0;
		return err;
	}
	ret->ends_group = o->ends_group;
	ret->pidfd = (int)syscall(SYS_pidfd_open, ret->pid, 0u);
	if (ret->pidfd < 0) {
		err = -errno;
		subprocess__kill(ret);
	}
	return err;
}

/* Waits for the end of a process, or with WNOHANG in flags looks whether it has ended. Then ends
 * the rest of its group, if wanted, and frees *p. False: it has not ended. */
static bool reap(struct subprocess *p, int flags, int *status)
{
	siginfo_t si = { 0 };

	if (!p->pid)
		return false;
	/* The PID, and so the group's ID, stays in use until waitpid(). */
	while (waitid(P_PID, (id_t)p->pid, &si, WEXITED | WNOWAIT | flags) && errno == EINTR)
		;
	if (si.si_pid != p->pid)
		return false;
	if (p->ends_group)
		kill(-p->pid, SIGKILL);
	if (waitpid(p->pid, status, 0) != p->pid)
		return false;
	if (p->pidfd >= 0)
		close(p->pidfd);
	*p = (struct subprocess){ 0 };
	return true;
}

bool subprocess__ended(struct subprocess *p, int *status)
{
	return reap(p, WNOHANG, status);
}

bool subprocess__wait(struct subprocess *p, int ms, int *status)
{
	uint64_t until = clock__monotonic() + (uint64_t)ms * 1000000, now;
	struct pollfd ended = { .fd = p->pidfd, .events = POLLIN };

	if (ms < 0)
		return reap(p, 0, status);
	while (!subprocess__ended(p, status)) {
		now = clock__monotonic();
		if (!p->pid || now >= until)
			return false;
		poll(&ended, 1, (int)((until - now + 999999) / 1000000));
	}
	return true;
}

bool subprocess__computes(const struct subprocess *p)
{
	char text[512], *end;

	if (!p->pid || io__text_of_process(p->pid, "stat", text, sizeof(text)) <= 0)
		return false;
	end = strrchr(text, ')');
	return end && text__starts(end, ") R");
}

void subprocess__signal(const struct subprocess *p, int signal)
{
	if (!p->pid)
		return;
	if (p->ends_group && signal == SIGKILL)
		kill(-p->pid, SIGKILL);
	kill(p->pid, signal);
}

void subprocess__kill(struct subprocess *p)
{
	int status;

	subprocess__signal(p, SIGKILL);
	reap(p, 0, &status);
}

/* Removes the processes that have ended. */
static void collect(struct subprocess_lost *lost)
{
	int status;

	for (size_t i = lost->n; i-- > 0;)
		if (waitpid(lost->pid[i], &status, WNOHANG))
			lost->pid[i] = lost->pid[--lost->n];
}

int subprocess__try(int (*main)(void *ctx), void *ctx, const atomic_uint *progress, int ms,
		    struct subprocess_lost *lost)
{
	const struct subprocess_opts o = {
		.main = main, .ctx = ctx, .group = SUBPROCESS_OWN_GROUP, .death_signal = SIGKILL
	};
	unsigned before = atomic_load(progress), now;
	struct subprocess p;
	int status, err;

	collect(lost);
	err = subprocess__start(&o, &p);
	for (int waits = 0; !err && waits < ms;) {
		if (subprocess__wait(&p, CHECK_EVERY, &status))
			return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
		now = atomic_load(progress);
		waits = now != before || subprocess__computes(&p) ? 0 : waits + CHECK_EVERY;
		before = now;
	}
	if (err)
		return err;
	subprocess__signal(&p, SIGKILL);
	close(p.pidfd);
	if (lost->n < SUBPROCESS_LOST)
		lost->pid[lost->n++] = p.pid;
	return -ETIMEDOUT;
}
