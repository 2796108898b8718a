/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "replay_trust.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/attach.h"
#include "capture/session.h"
#include "child.h"
#include "lib/exit.h"
#include "record/stream.h"

#define PATIENCE 20000 /* ms, for an interpreter to say where its torch is: it imports nothing of it */

/* Without what the working folder has: it would be looked at first. */
static const char question[] = "import sys; sys.path[:1] = []; from importlib.util import find_spec; s = find_spec('torch'); "
			       "print(s.submodule_search_locations[0] if s else '')";

static bool ours(const struct stat *st, uid_t behind)
{
	return st->st_uid == 0 || st->st_uid == geteuid() || st->st_uid == behind;
}

int replay_trust__path(const char *path)
{
	char real[PATH_MAX], *slash;
	struct child_user user = { .uid = geteuid() };
	bool behind;
	struct stat st;

	if (path[0] != '/' || !realpath(path, real))
		return path[0] != '/' ? -EINVAL : -errno;
	if (child_user__behind_sudo(&user, &behind) || !behind)
		user.uid = geteuid();
	for (;;) {
		if (stat(real, &st))
			return -errno;
		/* In a folder with the sticky bit others can add what is theirs, not change what is ours. */
		if (!ours(&st, user.uid) || (st.st_mode & (S_IWGRP | S_IWOTH) && !(S_ISDIR(st.st_mode) && st.st_mode & S_ISVTX)))
			return -EPERM;
		slash = strrchr(real, '/');
		if (!slash || !real[1])
			return 0;
		slash[slash == real] = '\0';
	}
}

static void ask(const char *python, int out)
{
	struct child_user user;
	bool behind = false;
	int null = open("/dev/null", O_RDWR);

	if (child_user__behind_sudo(&user, &behind) || (behind && child_user__become(&user)))
		_exit(126);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
		_exit(126);
	execlp(python, python, "-c", question, (char *)NULL);
	_exit(127);
}

/* What it writes, until its end; it is killed where that does not come. Bytes. */
static size_t hear(int fd, pid_t pid, char *buf, size_t size)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t n = 0;

	while (n < size - 1) {
		int ready = poll(&p, 1, PATIENCE);
		ssize_t got;

		if (ready < 0 && errno == EINTR)
			continue;
		got = ready > 0 ? read(fd, buf + n, size - 1 - n) : 0;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	kill(pid, SIGKILL); /* nothing, where it has ended */
	buf[n] = '\0';
	return n;
}

int replay_trust__ask(const char *python, char *torch, size_t size, struct failure *f)
{
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return failure__set(f, EXIT_FAILED, -errno, "pipe: %s", strerror(errno));
	pid = fork();
	if (!pid)
		ask(python, fds[1]);
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return failure__set(f, EXIT_FAILED, -errno, "fork: %s", strerror(errno));
	}
	hear(fds[0], pid, torch, size);
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	torch[strcspn(torch, "\n")] = '\0';
	if (torch[0] == '/')
		return 0;
	return failure__set(f, EXIT_UNUSABLE, -ENOENT, "%s: no Python that has PyTorch in it; --python names an interpreter that has", python);
}

/* The interpreter as it was called, if that was a path: a virtual environment's own. Else the file that ran. */
static void interpreter(const struct facts *facts, char *buf, size_t size)
{
	const char *cmdline = facts__get(facts, "cmdline"), *exe = facts__get(facts, "exe");
	json_t *words = cmdline ? json_loads(cmdline, 0, NULL) : NULL;
	const char *first = json_string_value(json_array_get(words, 0));

	snprintf(buf, size, "%s", first && first[0] == '/' && !access(first, X_OK) ? first : exe ? exe : "");
	json_decref(words);
}

int replay_trust__recorded(const struct facts *facts, char *torch, size_t size, struct failure *f)
{
	const char *lib = facts__get(facts, "torch_lib");
	char python[PATH_MAX];

	if (lib && lib[0] == '/' && strlen(lib) < size && !access(lib, R_OK)) {
		char *slash;

		if (replay_trust__path(lib))
			return failure__set(f, EXIT_NOT_PERMITTED, -EPERM,
					    "%s: the recording names this PyTorch, which others than root and you can change: --python says that it is to be run all the same", lib);
		strcpy(torch, lib); /* .../torch/lib */
		slash = strrchr(torch, '/');
		*slash = '\0';
		return 0;
	}
	interpreter(facts, python, sizeof(python));
	if (!python[0] || access(python, X_OK))
		return failure__set(f, EXIT_UNUSABLE, -ENOENT,
				    "%s: the interpreter of the recording is not here; --python names one with PyTorch, best the same version (%s)",
				    python[0] ? python : "(none)", facts__get(facts, "torch") ? facts__get(facts, "torch") : "not known");
	if (replay_trust__path(python))
		return failure__set(f, EXIT_NOT_PERMITTED, -EPERM,
				    "%s: the recording names this interpreter, which others than root and you can change: --python says that it is to be run all the same", python);
	return replay_trust__ask(python, torch, size, f);
}
