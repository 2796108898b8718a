/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "replay/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/session.h"
#include "lib/exit.h"
#include "lib/failure.h"
#include "lib/text.h"
#include "lib/user.h"
#include "log/log.h"
#include "record/stream.h"
#include "replay/replay.h"
#include "replay/wire.h"

#define PATIENCE                                                                                   \
	20000	 /* ms, for an interpreter to say where its torch is: it imports nothing of it */
#define LINKS 40 /* as many as the kernel follows */

/* Without what the working folder has: it would be looked at first. */
static const char question[] = "import sys; sys.path[:1] = []; from importlib.util import "
			       "find_spec; s = find_spec('torch'); "
			       "print(s.submodule_search_locations[0] if s else '')";

/* ---- paths that a recording names
 * ------------------------------------------------------------------------ */

/* A way that is being walked: where we are, and what of the path is left. */
struct way {
	int at;
	unsigned links;
	char left[2 * PATH_MAX];
};

/* Can only root change it? A link is replaced by whoever can write its folder, and folders have
 * been checked before. */
static int roots_alone(int fd, struct stat *st)
{
	struct statfs fs;

	if (fstat(fd, st) || fstatfs(fd, &fs))
		return -errno;
	if (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC)
		return -EXDEV;
	/* No exception for sticky folders: others may mount on what they add there, and a mount can
	 * show any owner. */
	return st->st_uid || (!S_ISLNK(st->st_mode) && st->st_mode & (S_IWGRP | S_IWOTH)) ? -EPERM
											  : 0;
}

static int begin(struct way *w)
{
	struct stat st;

	if (w->at >= 0)
		close(w->at);
	w->at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return w->at < 0 ? -errno : roots_alone(w->at, &st);
}

/* Puts what the link says in front of the rest of the path. */
static int follow(struct way *w, int link)
{
	char to[2 * PATH_MAX];
	ssize_t n = readlinkat(link, "", to, PATH_MAX);
	size_t left = strlen(w->left);

	if (n <= 0)
		return n ? -errno : -ENOENT;
	if (++w->links > LINKS)
		return -ELOOP;
	if (n >= PATH_MAX || left >= PATH_MAX)
		return -ENAMETOOLONG;
	to[n] = '/';
	memcpy(to + n + 1, w->left, left + 1);
	strcpy(w->left, to);
	return to[0] == '/' ? begin(w) : 0;
}

static int step(struct way *w)
{
	char name[PATH_MAX], *from = w->left + strspn(w->left, "/");
	size_t n = strcspn(from, "/");
	struct stat st;
	int fd, err;

	if (n >= sizeof(name))
		return -ENAMETOOLONG;
	memcpy(name, from, n);
	name[n] = '\0';
	memmove(w->left, from + n, strlen(from + n) + 1);
	if (!n)
		return 0;
	fd = openat(w->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = roots_alone(fd, &st);
	if (!err && S_ISLNK(st.st_mode)) {
		err = follow(w, fd);
		close(fd);
		return err;
	}
	close(w->at);
	w->at = fd;
	return err;
}

int replay_trust__open(const char *path)
{
	struct way w = { .at = -1 };
	int err;

	if (path[0] != '/')
		return -EINVAL;
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(w.left, path);
	err = begin(&w);
	while (!err && w.left[0])
		err = step(&w);
	if (!err)
		return w.at;
	if (w.at >= 0)
		close(w.at);
	return err;
}

/* By its text alone: nothing there is opened. */
static bool another_each_time(const char *path)
{
	static const char *const folders[] = { "/proc", "/sys", "/dev/fd" };

	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		size_t n = strlen(folders[i]);
		const char *p = path + strspn(path, "/") - (path[0] == '/');

		if (!strncmp(p, folders[i], n) && (!p[n] || p[n] == '/'))
			return true;
	}
	return false;
}

/* Is it the folder, or somewhere in it? All is in the root folder, which says nothing. */
static bool is_in(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return n > 1 && !strncmp(path, folder, n) && (!path[n] || path[n] == '/');
}

/* The folder of a file, without links. False: not known. */
static bool folder_of(const char *file, bool follow_it, char *buf)
{
	char path[PATH_MAX], *slash;

	if (follow_it) {
		if (!realpath(file, buf))
			return false;
		slash = strrchr(buf, '/');
		*slash = '\0';
		return true;
	}
	if ((size_t)snprintf(path, sizeof(path), "%s", file) >= sizeof(path))
		return false;
	slash = strrchr(path, '/');
	if (slash)
		slash[slash == path] = '\0';
	return realpath(slash ? path : ".", buf);
}

/*
 * Does it lie with the recording, or where the user is now? It may have come with it, and all that
 * root unpacks or clones is root's alone. fd: of what was checked.
 */
static bool came_along(const struct replay_opts *opts, int fd)
{
	char link[32], path[PATH_MAX], folder[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return true;
	path[n] = '\0';
	if (!getcwd(folder, sizeof(folder)) || is_in(path, folder))
		return true;
	for (int follow_it = 0; follow_it < 2 && strcmp(opts->path, "-"); follow_it++) {
		if (!folder_of(opts->path, follow_it, folder) || is_in(path, folder))
			return true;
	}
	return false;
}

/* "python3.12", "python3.13t": the file's own name, wherever links to it have others. */
static bool is_python(int fd)
{
	char link[32], path[PATH_MAX];
	const char *name;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	name = strrchr(path, '/');
	if (!name || strncmp(name, "/python", 7) != 0)
		return false;
	name += 7 + strspn(name + 7, "0123456789.");
	return !name[strspn(name, "dmtu")];
}

/* ---- the interpreter
 * ------------------------------------------------------------------------------------- */

void replay_trust__become(bool own, const struct user *user)
{
	struct user sudo;
	bool behind = false;

	if (!own && (user__behind_sudo(&sudo, &behind) || (behind && user__become(&sudo))))
		_exit(126);
	if (own && user && user__become(user))
		_exit(126);
}

/* fd: of what was checked; -1: the user named it, and it may be in PATH. In the child. */
static void ask(const struct replay_opts *opts, const char *python, int fd, int out)
{
	char *const argv[] = { (char *)python, "-c", (char *)question, NULL };
	int null = open("/dev/null", O_RDWR);

	replay_trust__become(opts->own, opts->user);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 ||
	    dup2(out, STDOUT_FILENO) < 0)
		_exit(126);
	if (fd < 0) {
		execvp(python, argv);
	} else if (!chdir("/") &&
		   (fd = dup(fd)) >=
			   0) { /* kept open: a script's interpreter opens it by its number */
		execveat(fd, "", argv, environ, AT_EMPTY_PATH);
	}
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

/* Runs the interpreter and asks for the folder of its torch. 0, or -errno and *f. */
static int ask_interpreter(const struct replay_opts *opts, const char *python, int fd, char *torch,
			   size_t size, struct failure *f)
{
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return failure__set(f, EXIT_FAILED, -errno, "pipe: %s", strerror(errno));
	pid = fork();
	if (!pid)
		ask(opts, python, fd, fds[1]);
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
	return failure__set(
		f, EXIT_UNUSABLE, -ENOENT,
		"%s: no Python that has PyTorch in it; --python names an interpreter that has",
		python);
}

/* ---- what was recorded
 * ----------------------------------------------------------------------------------- */

/* The interpreter as it was called, if that was a path: a virtual environment's own. Else the file
 * that ran. */
static void interpreter(const struct facts *facts, char *buf, size_t size)
{
	const char *cmdline = facts__get(facts, "cmdline"), *exe = facts__get(facts, "exe");
	json_t *words = cmdline ? json_loads(cmdline, 0, NULL) : NULL;
	const char *first = json_string_value(json_array_get(words, 0));

	snprintf(buf, size, "%s",
		 first && first[0] == '/' && (another_each_time(first) || !access(first, X_OK))
			 ? first
		 : exe ? exe
		       : "");
	json_decref(words);
}

/* Why it is not used, and the command that would use it. */
static int refuse(const struct replay_opts *opts, const struct facts *facts, const char *path,
		  int err, struct failure *f)
{
	char python[PATH_MAX], word[PATH_MAX], clean[512];

	text__clean(clean, sizeof(clean), path, strlen(path));
	if (err == -EXDEV)
		return failure__set(f, EXIT_NOT_PERMITTED, err,
				    "%s: the recording names this file, and that name is another "
				    "file for each process. It is not used. "
				    "--python names an interpreter whose PyTorch is to be used",
				    clean);
	if (err != -EPERM && err != -EEXIST)
		return failure__set(f, EXIT_UNUSABLE, err, "%s: the recording names this file: %s",
				    clean, strerror(-err));
	interpreter(facts, python, sizeof(python));
	if (another_each_time(python) || access(python, X_OK) ||
	    !text__shell(word, sizeof(word), python))
		snprintf(word, sizeof(word), "PATH");
	return failure__set(f, EXIT_NOT_PERMITTED, err,
			    "%s: the recording names this file, and %s. Its code is not run. "
			    "If you trust it, run: memtrace-bpf replay --python %s %s",
			    clean,
			    err == -EPERM ? "users other than root can change it"
					  : "it lies in the folder of the recording or in the "
					    "current one: both may have the same origin",
			    word, opts->again ? opts->again : "FILE");
}

static int open_named(const struct replay_opts *opts, const struct facts *facts, const char *path,
		      struct failure *f)
{
	int fd = another_each_time(path) ? -EXDEV
		 : opts->own		 ? open(path, O_PATH | O_CLOEXEC)
					 : replay_trust__open(path);

	if (fd < 0 && opts->own)
		fd = -errno;
	if (fd >= 0 && !opts->own && came_along(opts, fd)) {
		close(fd);
		fd = -EEXIST;
	}
	return fd < 0 ? refuse(opts, facts, path, fd, f) : fd;
}

static void say(const struct replay_opts *opts, const char *does, const char *path)
{
	char clean[PATH_MAX];

	if (!opts->own)
		log_info("replay: %s %s, which the recording names", does,
			 text__clean(clean, sizeof(clean), path, strlen(path)));
}

/* The folder by the fact torch_lib. */
static int recorded_folder(const struct replay_opts *opts, const struct facts *facts,
			   const char *lib, char *path, size_t size, struct failure *f)
{
	char file[PATH_MAX + sizeof(REPLAY_LIBRARY)];
	int fd, dir = open_named(opts, facts, lib, f);

	if (dir < 0)
		return dir;
	/* Loaded by the folder's descriptor and this name. */
	snprintf(file, sizeof(file), "%s/" REPLAY_LIBRARY, lib);
	fd = open_named(opts, facts, file, f);
	if (fd < 0) {
		close(dir);
		return fd;
	}
	close(fd);
	snprintf(path, size, "%s", lib);
	say(opts, "loads", file);
	return dir;
}

static int recorded_interpreter(const struct replay_opts *opts, const struct facts *facts,
				char *torch, size_t size, struct failure *f)
{
	const char *version = facts__get(facts, "torch");
	char python[PATH_MAX], clean[512], known[64];
	int fd, err;

	interpreter(facts, python, sizeof(python));
	if (!python[0] || (!another_each_time(python) && access(python, X_OK)))
		return failure__set(
			f, EXIT_UNUSABLE, -ENOENT,
			"%s: the interpreter of the recording is not here; --python names one with "
			"PyTorch, best the same version (%s)",
			python[0] ? text__clean(clean, sizeof(clean), python, strlen(python))
				  : "(none)",
			version ? text__clean(known, sizeof(known), version, strlen(version))
				: "not known");
	fd = open_named(opts, facts, python, f);
	if (fd < 0)
		return fd;
	/* Another program of root's would do what it is for, whatever it is asked. */
	if (!opts->own && !is_python(fd)) {
		close(fd);
		return failure__set(f, EXIT_UNUSABLE, -ENOEXEC,
				    "%s: the recording names this file as its interpreter, and it "
				    "is no Python by its name. "
				    "--python names an interpreter whose PyTorch is to be used",
				    text__clean(clean, sizeof(clean), python, strlen(python)));
	}
	say(opts, "runs", python);
	err = ask_interpreter(opts, python, fd, torch, size, f);
	close(fd);
	return err;
}

int replay_trust__find(const struct replay_opts *opts, const struct facts *facts, char *path,
		       size_t size, struct failure *f)
{
	const char *lib = facts__get(facts, "torch_lib");
	char torch[PATH_MAX];
	int dir, err;

	if (!opts->python && lib && lib[0] == '/' && strlen(lib) < PATH_MAX &&
	    (another_each_time(lib) || !access(lib, R_OK)))
		return recorded_folder(opts, facts, lib, path, size, f);
	err = opts->python ? ask_interpreter(opts, opts->python, -1, torch, sizeof(torch), f)
			   : recorded_interpreter(opts, facts, torch, sizeof(torch), f);
	if (err)
		return err;
	if ((size_t)snprintf(path, size, "%s/lib", torch) >= size)
		return failure__set(f, EXIT_UNUSABLE, -ENAMETOOLONG, "%s: too long a name", torch);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || faccessat(dir, REPLAY_LIBRARY, R_OK, 0)) {
		err = errno;
		if (dir >= 0)
			close(dir);
		return failure__set(f, EXIT_UNUSABLE, -err,
				    "%s/" REPLAY_LIBRARY
				    ": %s: a PyTorch with CUDA is needed; --python names an "
				    "interpreter that has one",
				    path, strerror(err));
	}
	if (!opts->python && !opts->own)
		log_info("replay: loads %s/" REPLAY_LIBRARY ", the PyTorch of that interpreter",
			 path);
	return dir;
}
