/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/passed_files.h"
#include "lib/text.h"
#include "log/config.h"
#include "log/log.h"
#include "serve/sandbox.h"

#define PREFIX "memtrace-bpf: "

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U /* Linux 6.3; older kernels refuse it, and need no flag */
#endif

/*
 * A copy of this program that may be run and not read. The kernel makes a process undumpable when
 * it runs such a file, before its first instruction: no process of the same user can take a
 * descriptor from it, not even while it is being linked. -1: this system runs no memfd.
 */
static int unreadable_copy(void)
{
	static int copy = -2;
	int self;
	struct stat st;
	off_t at = 0;

	if (copy != -2)
		return copy;
	copy = -1;
#ifndef __SANITIZE_ADDRESS__ /* whose search for leaks looks at us from outside */
	self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	copy = memfd_create("memtrace-bpf", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (copy < 0 && errno == EINVAL)
		copy = memfd_create("memtrace-bpf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (self < 0 || copy < 0 || fstat(self, &st))
		goto failed;
	while (at < st.st_size) {
		ssize_t n = sendfile(copy, self, &at, (size_t)(st.st_size - at));

		if (n <= 0 && errno != EINTR)
			goto failed;
	}
	if (fchmod(copy, 0111) ||
	    fcntl(copy, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
		goto failed;
	close(self);
	return copy;
failed:
	log_warn("workers run the program's own file, which cannot be copied into memory to be "
		 "run: %s. Other processes of the same user may "
		 "look into them until they have opened their recordings",
		 strerror(errno));
	if (self >= 0)
		close(self);
	if (copy >= 0)
		close(copy);
	copy = -1;
#else
	(void)self, (void)st, (void)at;
#endif
	return copy;
}

static void say(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		_exit(126);
}

/* In the child. */
static void give_up_rights(const struct spawn_opts *o, const int *keep, size_t n_keep, pid_t parent)
{
	char self[4096], why[256] = "", text[320];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *runnable[16] = { self };
	struct sandbox_opts d = {
		.who = "worker",
		.uid = o->uid,
		.gid = o->gid,
		.flags = SANDBOX_EXECS,
		.readable = drop_linking,
		.runnable = runnable,
		.keep = keep,
		.n_keep = n_keep,
		.death_signal = SIGKILL,
		.parent = parent,
		.memory = o->memory,
		.file_size = o->file_size,
		.cpu_seconds = o->cpu_seconds,
	};

	self[n > 0 ? n : 0] = '\0';
	for (size_t i = 0; drop_libraries[i] && i + 2 < sizeof(runnable) / sizeof(*runnable); i++)
		runnable[i + 1] = drop_libraries[i];
	if (!sandbox__rights(&d, NULL, why))
		return;
	snprintf(text, sizeof(text), PREFIX "%s\n", why);
	say(text);
	_exit(126);
}

static void keep_rights(const int *keep, size_t n_keep, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	/* which ends record, and what run hands on to its command */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(127);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	for (size_t i = 0; i < n_keep; i++)
		fcntl(keep[i], F_SETFD, 0);
}

/* Whoever may look at a worker may look at its environment, and what is in ours is not theirs. */
static void keep_few_variables(void)
{
	static const char *const names[] = { "TZ",	     "LANG",	      "LC_ALL",
					     "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS",
					     HANDED };
	char *values[sizeof(names) / sizeof(*names)];
	bool lost = false;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *v = getenv(names[i]);

		values[i] = v ? strdup(v) : NULL;
		lost |= v && !values[i];
	}
	clearenv();
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		lost |= values[i] && setenv(names[i], values[i], 1);
	if (lost)
		_exit(126);
}

/* "3:run.mtr,4:other.mtr" */
static void name_files(const struct spawn_opts *o)
{
	char text[SPAWN_FILES * 216] = "";
	size_t at = 0;

	for (size_t i = 0; i < o->n_files; i++) {
		int n = snprintf(text + at, sizeof(text) - at, "%s%d:%s", i ? "," : "",
				 o->files[i].fd, o->files[i].name);

		if (n < 0 || (size_t)n >= sizeof(text) - at)
			_exit(126);
		at += (size_t)n;
	}
	if (at)
		setenv(HANDED, text, 1);
	else
		unsetenv(HANDED);
}

static void run(const struct spawn_opts *o, int err, pid_t parent, int copy)
	__attribute__((noreturn));
static void run(const struct spawn_opts *o, int err, pid_t parent, int copy)
{
	const char *argv[SPAWN_ARGS + 2] = { "memtrace-bpf" };
	int null = open("/dev/null", O_RDWR), keep[SPAWN_FILES + 3], log;
	size_t n_keep = 0;

	for (size_t i = 0; i < SPAWN_ARGS && o->argv[i]; i++)
		argv[i + 1] = o->argv[i];
	for (const char *const *e = o->env; e && *e; e++)
		putenv((char *)*e);
	name_files(o);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(o->out >= 0 ? o->out : null, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
		_exit(126);
	for (size_t i = 0; i < o->n_files; i++)
		keep[n_keep++] = o->files[i].fd;
	if (o->keep >= 0)
		keep[n_keep++] = o->keep;
	log = log__hand_on(true);
	if (o->drop)
		keep_few_variables(); /* and no log: the last of what it says comes by way of us */
	else if (log >= 0)
		keep[n_keep++] = log;
	/* Ctrl-C is for us, who then ask it to end; and the terminal is nothing for commands of
	 * another user */
	setsid();
	if (o->nice_by && nice(o->nice_by) < 0)
		errno = 0; /* as it is, then */
	/* The messages of a server are read by programs. */
	setenv("NO_COLOR", "1", 1);
	if (o->drop) {
		for (size_t i = 0; i < n_keep; i++)
			fcntl(keep[i], F_SETFD, 0);
		if (copy >= 0)
			keep[n_keep++] = copy; /* until it runs: it is closed then */
		give_up_rights(o, keep, n_keep, parent);
		if (copy >= 0)
			syscall(SYS_execveat, copy, "", argv, environ, AT_EMPTY_PATH);
		/* Here if memory may not be run (vm.memfd_noexec): passed_files__open() closes what
		 * is open until then. */
	} else {
		keep_rights(keep, n_keep, parent);
	}
	execv("/proc/self/exe", (char *const *)argv);
	say(PREFIX "this program cannot be started once more: it has been replaced, or may not be "
		   "read by the user that it becomes\n");
	_exit(127);
}

int spawn__self(const struct spawn_opts *o, struct spawned *ret)
{
	pid_t parent = getpid();
	int err[2], failed, copy = o->drop ? unreadable_copy() : -1;

	if (o->n_files > SPAWN_FILES)
		return -E2BIG;
	if (pipe2(err, O_CLOEXEC))
		return -errno;
	*ret = (struct spawned){ .pidfd = -1, .said = err[0] };
	ret->pid = fork();
	if (!ret->pid)
		run(o, err[1], parent, copy);
	failed = errno;
	close(err[1]);
	if (ret->pid > 0) {
		ret->pidfd = (int)syscall(SYS_pidfd_open, ret->pid, 0u);
		failed = errno;
	}
	if (ret->pidfd < 0) {
		ret->pid = ret->pid < 0 ? 0 : ret->pid;
		spawned__close(ret);
		return -failed;
	}
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	return 0;
}

static void keep_last(struct spawned *s, const char *text, size_t n)
{
	size_t drop = s->n_last + n > SPAWN_LAST ? s->n_last + n - SPAWN_LAST : 0;

	if (drop > s->n_last) {
		text += n - SPAWN_LAST;
		n = SPAWN_LAST;
		drop = s->n_last;
	}
	memmove(s->last, s->last + drop, s->n_last - drop);
	s->n_last -= drop;
	memcpy(s->last + s->n_last, text, n);
	s->n_last += n;
}

void spawned__read(struct spawned *s)
{
	char buf[4096];

	/* Not more than so much at once: it may write without end. */
	for (int i = 0; i < 16 && s->said >= 0; i++) {
		ssize_t n = read(s->said, buf, sizeof(buf));

		if (n > 0) {
			keep_last(s, buf, (size_t)n);
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			close(s->said);
			s->said = -1;
		} else {
			break;
		}
	}
}

bool spawned__ended(struct spawned *s, int *status)
{
	siginfo_t si = { 0 };

	if (!s->pid || waitid(P_PID, (id_t)s->pid, &si, WEXITED | WNOHANG | WNOWAIT) ||
	    si.si_pid != s->pid)
		return false;
	/* What a command has left behind, while the number is still its own. */
	kill(-s->pid, SIGKILL);
	if (waitpid(s->pid, status, 0) != s->pid)
		return false;
	s->pid = 0;
	spawned__read(s);
	return true;
}

bool spawned__has_started(const struct spawned *s, pid_t pid)
{
	char path[32], text[512], *end;
	int parent = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = s->pid > 0 && pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	end = strrchr(text, ')'); /* its name may have anything in it */
	return end && sscanf(end + 1, " %*c %d", &parent) == 1 && parent == s->pid;
}

void spawned__close(struct spawned *s)
{
	if (s->pid > 0) {
		kill(-s->pid, SIGKILL); /* a command, too */
		kill(s->pid, SIGKILL);
		while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	s->pid = 0;
	if (s->pidfd >= 0)
		close(s->pidfd);
	if (s->said >= 0)
		close(s->said);
	s->pidfd = s->said = -1;
}

/* Without what a program of ours puts in front; argp names the command, too. */
static const char *skip_prefix(const char *line, const char *end)
{
	const char *words[] = { PREFIX, "memtrace-bpf ", "error: ", "warning: " };

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		size_t n = strlen(words[i]);
		const char *colon;

		if ((size_t)(end - line) < n || strncmp(line, words[i], n) != 0)
			continue;
		line += n;
		colon = i == 1 ? memchr(line, ':', (size_t)(end - line)) : NULL;
		if (colon && colon + 2 < end)
			line = colon + 2;
	}
	return line;
}

char *spawned__words(const struct spawned *s, char *buf, size_t size)
{
	const char *at = s->last, *end = s->last + s->n_last, *best = NULL, *best_end = NULL, *next;
	bool ours = false;

	for (; at < end; at = next + 1) {
		bool mine = (size_t)(end - at) > strlen(PREFIX) &&
			    !strncmp(at, "memtrace-bpf", 12) && (at[12] == ':' || at[12] == ' ');

		next = memchr(at, '\n', (size_t)(end - at));
		next = next ? next : end;
		/* "See `memtrace-bpf help report`." is advice for a terminal. */
		if (next == at ||
		    !strncmp(at, "See `", (size_t)(next - at) < 5 ? (size_t)(next - at) : 5) ||
		    (ours && !mine))
			continue;
		best = mine ? skip_prefix(at, next) : at;
		best_end = next;
		ours = mine;
	}
	if (!best)
		return text__clean(buf, size, "", 0);
	return text__clean(buf, size, best, (size_t)(best_end - best));
}
