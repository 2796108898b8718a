/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/replay/trust.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "base/user.h"
#include "capture/session.h"
#include "estimate/replay.h"
#include "estimate/replay/wire.h"
#include "inspect/elf.h"
#include "record/stream.h"

/* Limit on the interpreter, ms; it only looks for torch and does not import it. */
#define TIMEOUT 20000  /* ms */
#define LINKS 40       /* as many links as the kernel follows */
#define LINES_MAX 1000 /* of the list */
#define CLASS "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
#define TABLE "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE"
#define TABLE_MAX 4096u /* bytes; version 2.15 has 470 */
#define RELA_MAX (1ULL << 28)
#define CHUNK 4096u /* relocations per read */
#define NONE (~0u)
#define CANNOT_RUN 126 /* exit code, as a shell's for a program that it cannot run */
#define FD_LEAST 16    /* above the descriptors of the replayer (REPLAY_LIB_FD ...) */

/* Removes the current folder from the path, which Python would search first. */
static const char question[] = "import sys; sys.path[:1] = []; from importlib.util import "
			       "find_spec; s = find_spec('torch'); "
			       "print(s.submodule_search_locations[0] if s else '')";

/* ---- paths from a recording ---- */

/* A walk along a path: the present folder, and the rest of the path. */
struct walk {
	int at;
	unsigned links;
	char left[2 * PATH_MAX];
};

/* Returns 0 if only root can change the file, -EPERM if others can, -EXDEV in /proc and /sys, or
 * another -errno. A link is safe if its folder is, which was checked before. */
static int check_root_only(int fd, struct stat *st)
{
	struct statfs fs;
	bool others_write;

	if (fstat(fd, st) || fstatfs(fd, &fs))
		return -errno;
	if (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC)
		return -EXDEV;
	/* Sticky folders are no exception: others may mount on folders that they add there, with
	 * any owner. */
	others_write = !S_ISLNK(st->st_mode) && st->st_mode & (S_IWGRP | S_IWOTH);
	return st->st_uid || others_write ? -EPERM : 0;
}

/* Goes to the root folder. Returns 0 or -errno. */
static int begin(struct walk *w)
{
	struct stat st;

	if (w->at >= 0)
		close(w->at);
	w->at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return w->at < 0 ? -errno : check_root_only(w->at, &st);
}

/* Puts the link's target before the rest of the path. Returns 0 or -errno. */
static int follow(struct walk *w, int link)
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

/* Goes to the next part of the path, if only root can change it. Returns 0 or -errno. */
static int step(struct walk *w)
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
	err = check_root_only(fd, &st);
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
	struct walk w = { .at = -1 };
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

/* True for a path into a folder that differs between processes. Checks only the text. */
static bool differs_by_process(const char *path)
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

/* True if path is the folder or lies in it. False for the root folder, because it contains every
 * path. */
static bool is_in(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return n > 1 && !strncmp(path, folder, n) && (!path[n] || path[n] == '/');
}

/* Finds the real folder of a file, with follow_it that of the file that its link leads to. buf:
 * PATH_MAX bytes. False: unknown. */
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

/* True if the checked file fd lies with the recording or in the current folder. It may then have
 * the same origin as the recording, even if root owns it. */
static bool is_near_recording(const struct replay_opts *opts, int fd)
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

/* True if the file's own name is that of a Python: "python3.12", "python3.13t". Ignores link names.
 */
static bool is_python(int fd)
{
	static const char prefix[] = "/python";

	char link[32], path[PATH_MAX];
	const char *name;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	name = strrchr(path, '/');
	if (!name || strncmp(name, prefix, strlen(prefix)) != 0)
		return false;
	name += strlen(prefix);
	name += strspn(name, "0123456789.");
	return !name[strspn(name, "dmtu")]; /* letters of special builds (PEP 3149) */
}

/* ---- the interpreter ---- */

int replay_trust__become(bool own, const struct user *user)
{
	struct user sudo;
	bool behind = false;
	int err = 0;

	if (!own) {
		err = user__behind_sudo(&sudo, &behind);
		user = behind ? &sudo : NULL;
	}
	if (!err && user)
		err = user__become(user);
	return err ? CANNOT_RUN : 0;
}

/* A question to an interpreter. fd: the checked file; -1: the user named it, perhaps for PATH. */
struct question_ctx {
	const struct replay_opts *opts;
	int fd;
};

/* For subprocess_opts.prepare, in the process of the interpreter. Returns 0 or an exit code. */
static int become(void *ctx)
{
	const struct question_ctx *q = ctx;
	int status = replay_trust__become(q->opts->own, q->opts->user);

	if (status)
		return status;
	if (q->fd < 0) /* a name of the user's may be relative to this folder */
		return 0;
	return chdir("/") ? CANNOT_RUN : 0;
}

/* Reads the interpreter's output to its end or the time limit, then kills it. Returns the bytes
 * read. */
static size_t read_output(int fd, struct subprocess *p, char *buf, size_t size)
{
	struct pollfd written = { .fd = fd, .events = POLLIN };
	size_t n = 0;

	while (n < size - 1) {
		int ready = poll(&written, 1, TIMEOUT);
		ssize_t got;

		if (ready < 0 && errno == EINTR)
			continue;
		got = ready > 0 ? read(fd, buf + n, size - 1 - n) : 0;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	subprocess__kill(p);
	buf[n] = '\0';
	return n;
}

/* Runs the interpreter to find the folder of its torch. Returns 0, or -errno and *f. */
static int ask_interpreter(const struct replay_opts *opts, const char *python, int fd, char *torch,
			   size_t size, struct failure *f)
{
	const char *const argv[] = { python, "-c", question, NULL };
	/* A script's interpreter opens the script by this number. */
	const struct subprocess_fd kept = { fd, fd };
	struct question_ctx ctx = { opts, fd };
	struct subprocess_opts child = { .argv = argv, .prepare = become, .ctx = &ctx };
	struct subprocess p;
	int fds[2], err;

	if (pipe2(fds, O_CLOEXEC))
		return failure__set(f, EXIT_FAILED, -errno, "pipe: %s", strerror(errno));
	child.out = fds[1];
	if (fd < 0) {
		child.program = python;
	} else {
		child.program_fd = fd;
		child.fds = &kept;
		child.n_fds = 1;
	}
	err = subprocess__start(&child, &p);
	close(fds[1]);
	if (err) {
		close(fds[0]);
		return failure__set(f, EXIT_FAILED, err, "cannot start %s: %s", python,
				    strerror(-err));
	}
	read_output(fds[0], &p, torch, size);
	close(fds[0]);
	torch[strcspn(torch, "\n")] = '\0';
	if (torch[0] == '/')
		return 0;
	return failure__set(
		f, EXIT_UNUSABLE, -ENOENT,
		"%s: no Python with PyTorch; give an interpreter that has it with --python",
		python);
}

/* ---- the recorded PyTorch ---- */

/* Finds the interpreter: the path in the command line, for a virtual environment, otherwise the
 * executable. */
static void find_interpreter(const struct facts *facts, char *buf, size_t size)
{
	const char *cmdline = facts__get(facts, "cmdline");
	const char *exe = facts__get(facts, "exe");
	json_t *words = cmdline ? json_loads(cmdline, 0, NULL) : NULL;
	const char *first = json_string_value(json_array_get(words, 0));

	if (first && first[0] == '/' && (differs_by_process(first) || !access(first, X_OK)))
		exe = first;
	snprintf(buf, size, "%s", exe ? exe : "");
	json_decref(words);
}

/* Why a file that can be opened is not used; NULL: another error. */
static const char *refusal(int err)
{
	switch (err) {
	case -EPERM:
		return "users other than root can change it";
	case -EEXIST:
		return "it is in the folder of the recording or in the current folder: both may "
		       "have the same origin";
	case -EDOM:
		return "it is in no folder that packages fill (" REPLAY_PLACES_TEXT
		       ") or that " REPLAY_PLACES_LIST " lists";
	}
	return NULL;
}

/* Writes the interpreter that imports the PyTorch of this folder: bin/python of the virtual
 * environment or installation around PREFIX/lib/python3.12/site-packages/torch/lib. False: there is
 * none. */
static bool interpreter_around(const char *lib, char *buf, size_t size)
{
	const char *packages = strstr(lib, "/lib/python");

	if (!packages || differs_by_process(lib) || !strstr(packages, "/torch/lib"))
		return false;
	if ((size_t)snprintf(buf, size, "%.*s/bin/python", (int)(packages - lib), lib) >= size)
		return false;
	return !access(buf, X_OK);
}

/* Explains in *f why the path is not used, and which command would use it. Returns err. */
static int explain_refusal(const struct replay_opts *opts, const struct facts *facts,
			   const char *path, int err, struct failure *f)
{
	char python[PATH_MAX], word[PATH_MAX], clean[512];

	text__clean(clean, sizeof(clean), path, strlen(path));
	if (err == -EXDEV)
		return failure__set(
			f, EXIT_NOT_PERMITTED, err,
			"%s: the recording names this file, but this name means another file in "
			"each process, so it is not used. Choose an interpreter with --python",
			clean);
	if (!refusal(err))
		return failure__set(f, EXIT_UNUSABLE, err, "%s: the recording names this file: %s",
				    clean, strerror(-err));
	if (!interpreter_around(path, python, sizeof(python)))
		find_interpreter(facts, python, sizeof(python));
	if (differs_by_process(python) || access(python, X_OK) ||
	    !text__shell(word, sizeof(word), python))
		snprintf(word, sizeof(word), "PATH");
	return failure__set(f, EXIT_NOT_PERMITTED, err,
			    "%s: the recording names this file, and %s. Its code is not run. "
			    "If you trust it, run: memtrace-bpf replay --python %s %s",
			    clean, refusal(err), word, opts->again ? opts->again : "FILE");
}

/* Whether a file is where packages are. 0; -EEXIST: near the recording; -EDOM: in no place of
 * packages. */
static int check_place(const struct replay_opts *opts, const char *path, int fd)
{
	if (is_near_recording(opts, fd))
		return -EEXIST;
	return replay_trust__has_place(path, fd, REPLAY_PLACES_LIST) ? 0 : -EDOM;
}

/* Opens (O_PATH) a file that the recording names, if it may be used. Returns the descriptor, or
 * negative and *f. */
static int open_named(const struct replay_opts *opts, const struct facts *facts, const char *path,
		      struct failure *f)
{
	int fd = -EXDEV, err = 0;

	if (!differs_by_process(path) && opts->own) {
		fd = open(path, O_PATH | O_CLOEXEC);
		err = fd < 0 ? -errno : 0;
	} else {
		if (!differs_by_process(path))
			fd = replay_trust__open(path);
		err = fd < 0 ? fd : check_place(opts, path, fd);
	}
	if (!err)
		return fd;
	if (fd >= 0)
		close(fd);
	return explain_refusal(opts, facts, path, err, f);
}

/* Logs that a file is used because the recording names it. */
static void log_use(const struct replay_opts *opts, const char *does, const char *path)
{
	char clean[PATH_MAX];

	if (!opts->own)
		log_info("replay: %s %s, which the recording names", does,
			 text__clean(clean, sizeof(clean), path, strlen(path)));
}

/* Opens the folder in the fact torch_lib (lib), if its library may be used. path: for messages.
 * Returns the descriptor, or negative and *f. */
static int recorded_folder(const struct replay_opts *opts, const struct facts *facts,
			   const char *lib, char *path, size_t size, struct failure *f)
{
	char file[PATH_MAX + sizeof(REPLAY_LIBRARY)];
	int fd, dir = open_named(opts, facts, lib, f);

	if (dir < 0)
		return dir;
	/* The replayer loads this name from the folder's descriptor. */
	snprintf(file, sizeof(file), "%s/" REPLAY_LIBRARY, lib);
	fd = open_named(opts, facts, file, f);
	if (fd < 0) {
		close(dir);
		return fd;
	}
	close(fd);
	snprintf(path, size, "%s", lib);
	log_use(opts, "loads", file);
	return dir;
}

/* Asks the recorded interpreter, if it may be used, for the folder of its PyTorch. Returns 0, or
 * negative and *f. */
static int recorded_interpreter(const struct replay_opts *opts, const struct facts *facts,
				char *torch, size_t size, struct failure *f)
{
	const char *version = facts__get(facts, "torch") ?: "not known";
	char python[PATH_MAX], clean[512] = "not known", known[64];
	int fd, err;

	find_interpreter(facts, python, sizeof(python));
	if (python[0])
		text__clean(clean, sizeof(clean), python, strlen(python));
	if (!python[0] || (!differs_by_process(python) && access(python, X_OK)))
		return failure__set(
			f, EXIT_UNUSABLE, -ENOENT,
			"the interpreter of the recording (%s) is not on this host; give one with "
			"PyTorch (recorded: %s) with --python FILE",
			clean, text__clean(known, sizeof(known), version, strlen(version)));
	fd = open_named(opts, facts, python, f);
	if (fd < 0)
		return fd;
	/* Another program of root's could have side effects. */
	if (!opts->own && !is_python(fd)) {
		close(fd);
		return failure__set(
			f, EXIT_UNUSABLE, -ENOEXEC,
			"%s: the recording names this file as its interpreter, but its name is not "
			"that of a Python. Choose an interpreter with --python",
			clean);
	}
	log_use(opts, "runs", python);
	err = ask_interpreter(opts, python, fd, torch, size, f);
	close(fd);
	return err;
}

/*
 * Opens (O_PATH) the folder of libc10_cuda.so: of opts->python's PyTorch, or of the recorded one.
 * Writes its path to path, for messages. Returns the descriptor, which the caller closes, or -errno
 * and *f.
 */
static int find_folder(const struct replay_opts *opts, const struct facts *facts, char *path,
		       size_t size, struct failure *f)
{
	const char *lib = facts__get(facts, "torch_lib");
	char torch[PATH_MAX];
	int dir, err;

	if (!opts->python && lib && lib[0] == '/' && strlen(lib) < PATH_MAX &&
	    (differs_by_process(lib) || !access(lib, R_OK)))
		return recorded_folder(opts, facts, lib, path, size, f);
	err = opts->python ? ask_interpreter(opts, opts->python, /*fd=*/-1, torch, sizeof(torch), f)
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
				    ": %s: replay needs PyTorch with CUDA; choose an interpreter "
				    "that has it with --python",
				    path, strerror(err));
	}
	if (!opts->python && !opts->own)
		log_info("replay: loads %s/" REPLAY_LIBRARY ", the PyTorch of that interpreter",
			 path);
	return dir;
}

/* ---- places ---- */

/* Not all of /usr and /usr/local: people clone into /usr/src, /usr/local/src and /usr/local/NAME. */
static const char *const built_in[] = {
	"/bin",	      "/lib",		"/lib64",	  "/usr/bin",	      "/usr/lib",
	"/usr/lib64", "/usr/local/bin", "/usr/local/lib", "/usr/local/lib64",
};

/* True if path is below the folder, or below the folder that its name leads to. */
static bool is_below(const char *path, const char *folder)
{
	char real[PATH_MAX];
	const char *names[] = { folder, realpath(folder, real) };

	for (size_t i = 0; i < 2; i++) {
		size_t n = names[i] ? strlen(names[i]) : 0;

		if (n > 1 && !strncmp(path, names[i], n) && path[n] == '/')
			return true;
	}
	return false;
}

/* True if path is below a folder that packages fill. */
static bool is_built_in(const char *path)
{
	for (size_t i = 0; i < sizeof(built_in) / sizeof(*built_in); i++)
		if (is_below(path, built_in[i]))
			return true;
	return false;
}

/* Opens the list of folders, if only root can change it. NULL: there is none. */
static FILE *open_list(const char *list)
{
	int checked = replay_trust__open(list), fd;
	char again[32];

	if (checked < 0)
		return NULL;
	snprintf(again, sizeof(again), "/proc/self/fd/%d", checked);
	fd = io__open_regular(AT_FDCWD, again, LINKS_FOLLOW, NULL);
	close(checked);
	return fd < 0 ? NULL : fdopen(fd, "r");
}

/* Removes a final newline, spaces and slashes. */
static void trim(char *line)
{
	size_t n = strlen(line);

	while (n && strchr("\n\r\t /", line[n - 1]))
		line[--n] = '\0';
}

/* True if path is below a folder of the list. */
static bool is_listed(const char *path, const char *list)
{
	char line[PATH_MAX];
	FILE *f = open_list(list);
	bool found = false;

	for (size_t n = 0; f && !found && n < LINES_MAX && fgets(line, sizeof(line), f); n++) {
		trim(line);
		found = line[0] == '/' && is_below(path, line);
	}
	if (f)
		fclose(f);
	return found;
}

/* True if a part of the path is "..", after which its beginning says nothing. */
static bool goes_up(const char *path)
{
	for (const char *at = path; (at = strstr(at, "/..")); at += 3)
		if (!at[3] || at[3] == '/')
			return true;
	return false;
}

bool replay_trust__has_place(const char *name, int fd, const char *list)
{
	char link[32], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0 || goes_up(name))
		return false;
	path[n] = '\0';
	return (is_built_in(name) || is_listed(name, list)) &&
	       (is_built_in(path) || is_listed(path, list));
}

/* ---- the allocator's virtual functions ---- */

/* Forms of each function in PyTorch 2.1 to 2.15. Each version has only one form; the call is the
 * same. */
static const struct wanted {
	const char *what;
	const char *names[3];
	size_t where; /* offset in struct replay_torch */
} wanted[] = {
	{ "raw_alloc_with_stream",
	  { CLASS "21raw_alloc_with_streamEmP11CUstream_st" },
	  offsetof(struct replay_torch, raw_alloc) },
	{ "raw_delete", { CLASS "10raw_deleteEPv" }, offsetof(struct replay_torch, raw_delete) },
	{ "init", { CLASS "4initEi" }, offsetof(struct replay_torch, init) },
	{ "emptyCache",
	  { CLASS "10emptyCacheESt4pairIyyE", CLASS "10emptyCacheEv" },
	  offsetof(struct replay_torch, empty_cache) },
	{ "setMemoryFraction",
	  { CLASS "17setMemoryFractionEda", CLASS "17setMemoryFractionEdi" },
	  offsetof(struct replay_torch, set_fraction) },
};
#define N_WANTED (sizeof(wanted) / sizeof(*wanted))

/* A class's table: an offset and the class's type, then the functions. */
#define BEFORE_SLOTS 2 /* words */
#define WORD 8	       /* bytes */

struct table {
	uint64_t addr, size;
	uint64_t function[N_WANTED]; /* addresses of the functions in the file; 0: missing */
	unsigned slot[N_WANTED];
	uint64_t dynsym, n_dynsym;
};

/* Sets the address of each function in the file, where it has one. */
static void find_functions(const struct elf *e, struct table *t)
{
	for (size_t i = 0; i < N_WANTED; i++) {
		t->slot[i] = NONE;
		for (size_t j = 0; j < 3 && wanted[i].names[j] && !t->function[i]; j++) {
			struct elf_sym sym;

			if (!elf__dynsym(e, wanted[i].names[j], &sym))
				t->function[i] = sym.value;
		}
	}
}

/* Returns the address that a relocation writes, if it is a function of this file; otherwise 0. */
static uint64_t target_of(const struct elf *e, const struct table *t, const Elf64_Rela *r)
{
	uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
	uint64_t index = ELF64_R_SYM(r->r_info);
	bool arm = elf__machine(e) == ELF_AARCH64;
	Elf64_Sym sym;

	if (type == (arm ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE))
		return (uint64_t)r->r_addend;
	if (type != (arm ? R_AARCH64_ABS64 : R_X86_64_64) || index >= t->n_dynsym)
		return 0;
	if (elf__read(e, t->dynsym + index * sizeof(sym), &sym, sizeof(sym)))
		return 0;
	return sym.st_shndx == SHN_UNDEF ? 0 : sym.st_value;
}

/* Sets the slot of the function that this relocation puts into the table. */
static void match_relocation(const struct elf *e, struct table *t, const Elf64_Rela *r)
{
	uint64_t to, in = r->r_offset - t->addr;

	if (in >= t->size || in < BEFORE_SLOTS * WORD || in % WORD)
		return;
	to = target_of(e, t, r);
	for (size_t i = 0; i < N_WANTED && to; i++)
		if (t->function[i] == to)
			t->slot[i] = (unsigned)(in / WORD - BEFORE_SLOTS);
}

/* Fills t->slot. False: the file has no such table. */
static bool read_table(const struct elf *e, struct table *t)
{
	Elf64_Rela *r = NULL;
	uint64_t rela, size, dynsym_size;
	struct elf_sym sym;
	bool ok = true;

	if (elf__dynsym(e, TABLE, &sym) || sym.size > TABLE_MAX ||
	    elf__section(e, ".rela.dyn", &rela, &size) || size > RELA_MAX ||
	    elf__section(e, ".dynsym", &t->dynsym, &dynsym_size))
		return false;
	t->addr = sym.value;
	t->size = sym.size;
	t->n_dynsym = dynsym_size / sizeof(Elf64_Sym);
	find_functions(e, t);
	r = malloc(CHUNK * sizeof(*r));
	for (uint64_t at = 0; r && ok && at + sizeof(*r) <= size; at += CHUNK * sizeof(*r)) {
		size_t bytes = size - at < CHUNK * sizeof(*r)
				       ? (size_t)(size - at) / sizeof(*r) * sizeof(*r)
				       : CHUNK * sizeof(*r);

		ok = !elf__read(e, rela + at, r, bytes);
		for (size_t i = 0; ok && i < bytes / sizeof(*r); i++)
			match_relocation(e, t, &r[i]);
	}
	ok = ok && r;
	free(r);
	return ok;
}

/* Finds the slots of the allocator's functions in PyTorch's libraries. dir: their folder, for
 * messages. Returns 0, or negative and *f. */
static int find_slots(struct replay_torch *ret, const char *dir, struct failure *f)
{
	static const char *const files[] = { "libtorch_cuda.so", "libtorch_python.so" };

	for (size_t i = 0; i < 2; i++) {
		struct table t = { 0 };
		struct elf *e;
		int fd;
		bool there;

		fd = io__open_regular(ret->dir, files[i], LINKS_FOLLOW, NULL);
		e = fd < 0 ? NULL : elf__open_fd(fd);
		there = e && read_table(e, &t);
		elf__free(e);
		if (!there)
			continue;
		for (size_t j = 0; j < N_WANTED; j++) {
			if (t.slot[j] == NONE)
				return failure__set(f, EXIT_UNUSABLE, -ENOTSUP,
						    "%s/%s: cannot call this PyTorch's allocator: "
						    "its %s is unknown",
						    dir, files[i], wanted[j].what);
			*(unsigned *)((char *)ret + wanted[j].where) = t.slot[j];
		}
		return 0;
	}
	return failure__set(f, EXIT_UNUSABLE, -ENOTSUP,
			    "%s: not PyTorch 2.1 or later with CUDA: cannot call its allocator",
			    dir);
}

/* Sets ret->version from a line such as: __version__ = '2.11.0+cu130'. Unchanged if there is none. */
static void read_version(struct replay_torch *ret)
{
	char text[4096], *at, *end, quote;

	io__text_at(ret->dir, "../version.py", text, sizeof(text));
	at = strstr(text, "__version__ =");
	at = at ? strpbrk(at, "'\"") : NULL;
	if (!at)
		return;
	quote = *at++;
	end = strchr(at, quote);
	if (end && (size_t)(end - at) < sizeof(ret->version))
		memcpy(ret->version, at, (size_t)(end - at));
}

int replay_torch__find(const struct replay_opts *opts, const struct facts *facts,
		       struct replay_torch *ret, struct failure *f)
{
	char dir[PATH_MAX];
	int high;

	memset(ret, 0, sizeof(*ret));
	ret->dir = find_folder(opts, facts, dir, sizeof(dir), f);
	if (ret->dir < 0)
		return ret->dir;
	/* Move the descriptor above the numbers that the replayer uses. */
	high = fcntl(ret->dir, F_DUPFD_CLOEXEC, FD_LEAST);
	if (high < 0)
		return failure__set(f, EXIT_FAILED, -errno, "%s: %s", dir, strerror(errno));
	close(ret->dir);
	ret->dir = high;
	if ((size_t)snprintf(ret->lib, sizeof(ret->lib), "%s/" REPLAY_LIBRARY, dir) >=
	    sizeof(ret->lib))
		return failure__set(f, EXIT_UNUSABLE, -ENAMETOOLONG, "%s: too long a name", dir);
	read_version(ret);
	return find_slots(ret, dir, f);
}
