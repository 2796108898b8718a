/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A file system may never answer, not even to a look at a file's attributes. So a helper process
 * takes the steps: the mounts of tmpfs, each process, each folder. It sends what it finds, and says
 * before which step it is. If it waits for too long, it is killed and not waited for, and another
 * one begins behind that step.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/map64.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "inspect/machine.h"
#include "inspect/proc.h"

#define CHECK_EVERY 50			/* ms between two checks whether the helper computes */
#define BLOCKED_MOST 500		/* ms that the helper may wait in one step */
#define TIME_MOST UINT64_C(2000000000)	/* ns for all steps */
#define TIME_GRACE UINT64_C(1000000000) /* ns: a helper that computes ends by itself before */
#define PIDS_MOST 16384
#define FILES_MOST 4096			    /* entries of a folder, and descriptors of a process */
#define DEEPEST 4			    /* levels of folders */
#define SMALLEST (64u << 10)		    /* bytes of a file or mapping that is looked at */
#define CHECKPOINT_LEAST (64u << 20)	    /* cached bytes of a checkpoint that comes first */
#define MINCORE_AT_ONCE (UINT64_C(1) << 30) /* bytes of a file */
#define MOUNTS_TEXT (1u << 20)
#define HUB "/.cache/huggingface/hub"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

/* include/uapi/linux/mman.h of Linux 6.5 */
struct cache_range {
	uint64_t off, len;
};
struct cache_figures {
	uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

enum step {
	STEP_MOUNTS = -1000000, /* other steps: PIDs, and those of step_of_path() */
};

enum kind {
	SAY_STEP,
	SAY_FILE,
	SAY_HOLDER,
	SAY_MOUNT,
	SAY_COMMAND,
	SAY_DENIED,
	SAY_NO_FIGURES,
	SAY_LATE,
	SAY_END
};

struct message {
	enum kind kind;
	int64_t step;
	pid_t pid;
	union {
		struct machine_file file;
		struct machine_mount mount;
		char command[MACHINE_TEXT];
	};
};

enum seen_kind { SEEN_FILE, SEEN_MAPPED, SEEN_MOUNT };

struct run {
	struct machine_scan *scan;
	struct machine_processes *processes;
	int64_t *steps;
	size_t n_steps, cap_steps, next; /* next: index of the first step of the helper */
	char **folders;			 /* those of Hugging Face, behind the paths of scan */
	size_t n_folders;
	struct map64 *seen; /* files, by hash of seen_kind, device and inode */
	uint64_t end;	    /* CLOCK_MONOTONIC, ns */
	int link;
	bool wanted; /* this step is a path that the user named: it may take longer */
	bool late;   /* something was left out */
};

/* ---- the helper ---- */

/* Sends a message to the process that started the helper. Ends the helper if that fails. */
static void say(const struct run *r, const struct message *m)
{
	if (send(r->link, m, sizeof(*m), MSG_NOSIGNAL) != sizeof(*m))
		_exit(1);
}

/* As say(), with a message that has only its kind. */
static void say_kind(const struct run *r, enum kind kind)
{
	say(r, &(struct message){ .kind = kind });
}

/* True if the time for all steps is over; a wanted step may take longer. Notes it in r->late. */
static bool is_late(struct run *r)
{
	bool late = clock__monotonic() >= r->end + (r->wanted ? TIME_GRACE / 2 : 0);

	r->late |= late;
	return late;
}

/* Adds a file, a mapped file or a mount to those that were looked at. False: it was there, or there
 * is no memory. */
static bool is_new(struct map64 *seen, enum seen_kind kind, uint64_t dev, uint64_t inode)
{
	uint64_t key[3] = { kind, dev, inode }, old;
	bool had;

	return !map64__swap(seen, hash__bytes(hash__seed(), key, sizeof(key)), 0, &had, &old) &&
	       !had;
}

/* Before Linux 6.5. For a file that is neither ours nor writable, the kernel says that all pages
 * are cached. 0 or -errno. */
static int count_by_mincore(int fd, const struct stat *st, struct machine_file *file)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size = (uint64_t)st->st_size;
	unsigned char *pages;

	if (geteuid() && geteuid() != st->st_uid)
		return -EPERM;
	pages = malloc(MINCORE_AT_ONCE / page);
	if (!pages)
		return -ENOMEM;
	file->dirty = MACHINE_NONE;
	for (uint64_t at = 0; at < size; at += MINCORE_AT_ONCE) {
		size_t len = size - at < MINCORE_AT_ONCE ? size - at : MINCORE_AT_ONCE;
		void *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, (off_t)at);

		if (map == MAP_FAILED)
			break;
		if (!mincore(map, len, pages))
			for (size_t i = 0; i < (len + page - 1) / page; i++)
				file->cached += pages[i] & 1 ? page : 0;
		munmap(map, len);
	}
	free(pages);
	return 0;
}

/* Sets the cached and dirty bytes of an open file. Returns 0 or -errno. */
static int count_pages(int fd, const struct stat *st, struct machine_file *file)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct cache_range all = { 0, 0 }; /* length 0: to the end */
	struct cache_figures c = { 0 };

	if (syscall(SYS_cachestat, fd, &all, &c, 0))
		return errno == ENOSYS ? count_by_mincore(fd, st, file) : -errno;
	file->cached = c.cached * page;
	file->dirty = (c.dirty + c.writeback) * page;
	return 0;
}

static bool is_checkpoint(const char *path)
{
	static const char *const ends[] = { ".safetensors", ".pt",   ".pth", ".ckpt", ".gguf",
					    ".distcp",	    ".onnx", ".bin", ".pkl",  ".npz",
					    ".h5",	    ".ot",   ".mar", ".plan", ".engine" };
	size_t len = strlen(path), n;

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		n = strlen(ends[i]);
		if (len > n && !strcmp(path + len - n, ends[i]))
			return true;
	}
	return strstr(path, "/blobs/") && strstr(path, "/models--");
}

/* Copies the end of a path, which names the file. */
static void put_path(char *to, size_t size, const char *path)
{
	size_t len = strlen(path), cut = len < size ? 0 : len - size + 1;

	text__clean(to, size, path + cut, len - cut);
}

/* Says that a process has a file that was looked at before, if that may be one of the user's
 * paths. */
static void say_holder(const struct run *r, const struct machine_file *file)
{
	if (r->scan->n_paths && file->pid)
		say(r, &(struct message){ .kind = SAY_HOLDER, .file = *file });
}

/* Sends the figures of an open file, if it is new and has pages in memory. Closes it. */
static void look_at(struct run *r, int fd, const struct stat *st, const char *path, pid_t pid)
{
	struct message m = { .kind = SAY_FILE };
	struct machine_file *file = &m.file;
	struct statfs fs;
	int err;

	*file = (struct machine_file){ .dev = st->st_dev, .inode = st->st_ino, .pid = pid };
	if ((st->st_size < SMALLEST && !r->wanted) ||
	    !is_new(r->seen, SEEN_FILE, file->dev, file->inode) || fstatfs(fd, &fs) ||
	    (uint32_t)fs.f_type == HUGETLBFS_MAGIC) {
		close(fd);
		say_holder(r, file);
		return;
	}
	*file = (struct machine_file){ .dev = st->st_dev,
				       .inode = st->st_ino,
				       .size = (uint64_t)st->st_size,
				       .pid = pid,
				       .shared = (uint32_t)fs.f_type == TMPFS_MAGIC,
				       .deleted = !st->st_nlink,
				       .named = r->wanted,
				       .checkpoint = is_checkpoint(path) };
	err = count_pages(fd, st, file);
	close(fd);
	if (err == -EPERM)
		say_kind(r, SAY_NO_FIGURES);
	put_path(file->path, sizeof(file->path), path);
	if (!err && file->cached)
		say(r, &m);
}

/* Removes the kernel's " (deleted)". */
static void cut_deleted(char *path)
{
	static const char end[] = " (deleted)";
	size_t len = strlen(path), n = sizeof(end) - 1;

	if (len > n && !strcmp(path + len - n, end))
		path[len - n] = '\0';
}

/* Looks at the files that the process has open. */
static void look_at_open_files(struct run *r, pid_t pid)
{
	char name[64], path[PATH_MAX];
	struct dirent *entry;
	struct stat st;
	unsigned n = 0;
	DIR *dir;

	snprintf(name, sizeof(name), "/proc/%d/fd", (int)pid);
	dir = opendir(name);
	if (!dir && errno == EACCES)
		say_kind(r, SAY_DENIED);
	if (!dir)
		return;
	while (n++ < FILES_MOST && !is_late(r) && (entry = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, path, sizeof(path) - 1);
		int fd;

		/* A container's root lists descriptors, but may not trace the process. */
		if (len < 0 && errno == EACCES) {
			say_kind(r, SAY_DENIED);
			break;
		}
		if (len <= 0 || *path != '/') /* a pipe, a socket ... */
			continue;
		path[len] = '\0';
		if (text__starts(path, "/dev/") && !text__starts(path, "/dev/shm/"))
			continue;
		fd = io__open_regular(dirfd(dir), entry->d_name, LINKS_FOLLOW, &st);
		if (fd < 0)
			continue;
		cut_deleted(path);
		look_at(r, fd, &st, path, pid);
	}
	if (n > FILES_MOST)
		say_kind(r, SAY_LATE);
	closedir(dir);
}

static void look_at_mappings(struct run *r, pid_t pid)
{
	struct proc *proc = proc__open(pid);
	struct stat st;
	struct maps maps;

	if (!proc || proc__maps(proc, &maps)) {
		proc__free(proc);
		return;
	}
	for (size_t i = 0; i < maps.n && !is_late(r); i++) {
		const struct map *map = &maps.v[i];
		int fd;

		if (map->end - map->start < SMALLEST || *map->path != '/' ||
		    !is_new(r->seen, SEEN_MAPPED, (uint64_t)map->dev_major << 32 | map->dev_minor,
			    map->inode))
			continue;
		fd = proc__open_map(proc, map);
		if (fd < 0)
			continue;
		if (fstat(fd, &st))
			close(fd);
		else
			look_at(r, fd, &st, map->path, pid);
	}
	maps__free(&maps);
	proc__free(proc);
}

/* Sends the command line of a process that is in the list. */
static void say_command(struct run *r, pid_t pid)
{
	struct message m = { .kind = SAY_COMMAND, .pid = pid };

	if (*proc__command_line(pid, m.command, sizeof(m.command)))
		say(r, &m);
}

static void look_at_process(struct run *r, pid_t pid)
{
	for (size_t i = 0; i < r->processes->n; i++)
		if (r->processes->v[i].pid == pid)
			say_command(r, pid);
	look_at_open_files(r, pid);
	look_at_mappings(r, pid);
}

/* Looks at all files of a folder, which it closes, and below. */
static void look_at_folder(struct run *r, int folder, const char *path, unsigned depth)
{
	DIR *dir = folder < 0 ? NULL : fdopendir(folder);
	char name[PATH_MAX];
	struct dirent *entry;
	struct stat st;
	unsigned n = 0;

	if (!dir && folder >= 0)
		close(folder);
	while (dir && n++ < FILES_MOST && !is_late(r) && (entry = readdir(dir))) {
		int fd, len = snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);

		if (*entry->d_name == '.' || len < 0 || (size_t)len >= sizeof(name))
			continue;
		if (entry->d_type == DT_DIR && depth == DEEPEST && r->wanted)
			say_kind(r, SAY_LATE);
		if (entry->d_type == DT_DIR && depth < DEEPEST)
			look_at_folder(r,
				       openat(dirfd(dir), entry->d_name,
					      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
				       name, depth + 1);
		if (entry->d_type != DT_REG)
			continue;
		fd = io__open_regular(dirfd(dir), entry->d_name, LINKS_NONE, &st);
		if (fd >= 0)
			look_at(r, fd, &st, name, 0);
	}
	if (n > FILES_MOST)
		say_kind(r, SAY_LATE);
	if (dir)
		closedir(dir);
}

static void look_at_path(struct run *r, const char *path)
{
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	struct stat st;

	if (folder >= 0) {
		look_at_folder(r, folder, path, 0);
		return;
	}
	fd = io__open_regular(AT_FDCWD, path, LINKS_FOLLOW, &st);
	if (fd >= 0)
		look_at(r, fd, &st, path, 0);
}

/* Sends the use of a tmpfs; line: one of mountinfo. */
static void look_at_mount(struct run *r, const char *line)
{
	struct message m = { .kind = SAY_MOUNT };
	unsigned major, minor;
	char path[1024], type[32];
	const char *dash;
	struct statfs fs;

	dash = strstr(line, " - ");
	if (sscanf(line, "%*s %*s %u:%u %*s %1023s", &major, &minor, path) != 3 || !dash ||
	    sscanf(dash, " - %31s", type) != 1 || strcmp(type, "tmpfs") != 0)
		return;
	io__unescape_path(path);
	if (!is_new(r->seen, SEEN_MOUNT, major, minor) || statfs(path, &fs) ||
	    (uint32_t)fs.f_type != TMPFS_MAGIC || fs.f_blocks <= fs.f_bfree)
		return;
	m.mount.used = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	put_path(m.mount.path, sizeof(m.mount.path), path);
	say(r, &m);
}

static void look_at_mounts(struct run *r)
{
	char *text = malloc(MOUNTS_TEXT), *line, *rest = text;

	if (text && io__text("/proc/self/mountinfo", text, MOUNTS_TEXT) > 0)
		while ((line = strsep(&rest, "\n")))
			look_at_mount(r, line);
	free(text);
}

/* The step that looks at a path. index: in the caller's paths, and behind them in run.folders.
 * Steps above 0 are PIDs. */
static int64_t step_of_path(size_t index)
{
	return -1 - (int64_t)index;
}

static size_t path_of_step(int64_t step)
{
	return (size_t)(-1 - step);
}

/* True if the step looks at one of the caller's paths. */
static bool is_path(const struct run *r, int64_t step)
{
	return step < 0 && step != STEP_MOUNTS && path_of_step(step) < r->scan->n_paths;
}

static int run_helper(void *ctx)
{
	struct run *r = ctx;

	if (subprocess__close_others(&r->link, 1))
		return 1;
	for (size_t i = r->next; i < r->n_steps; i++) {
		int64_t step = r->steps[i];

		r->wanted = is_path(r, step);
		if (is_late(r))
			continue;
		say(r, &(struct message){ .kind = SAY_STEP, .step = (int64_t)i });
		if (step == STEP_MOUNTS)
			look_at_mounts(r);
		else if (step > 0)
			look_at_process(r, (pid_t)step);
		else if (r->wanted)
			look_at_path(r, r->scan->paths[path_of_step(step)]);
		else
			look_at_path(r, r->folders[path_of_step(step) - r->scan->n_paths]);
	}
	if (r->late)
		say_kind(r, SAY_LATE);
	say_kind(r, SAY_END);
	return 0;
}

/* ---- the steps ---- */

/* True if an earlier helper was blocked in this step: it is not tried again. */
static bool was_blocked(const struct machine_scan *s, int64_t step)
{
	for (size_t i = 0; i < s->n_blocked; i++)
		if (s->blocked[i] == step)
			return true;
	return false;
}

static int add_step(struct run *r, int64_t step)
{
	if (was_blocked(r->scan, step))
		return 0;
	if (array__grow(&r->steps, &r->cap_steps, r->n_steps + 1, sizeof(*r->steps)))
		return -ENOMEM;
	r->steps[r->n_steps++] = step;
	return 0;
}

struct candidate {
	pid_t pid;
	uint64_t resident; /* pages */
};

static int by_resident(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->resident < y->resident ? 1 : -(x->resident > y->resident);
}

/* The processes with memory, largest first, so that a lack of time cuts the smallest. */
static int add_processes(struct run *r)
{
	struct candidate *v = calloc(PIDS_MOST, sizeof(*v));
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	char text[128];
	size_t n = 0;
	int err = 0;

	while (v && dir && n < PIDS_MOST && (entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		v[n].pid = atoi(entry->d_name);
		if (io__text_of_process(v[n].pid, "statm", text, sizeof(text)) > 0 &&
		    sscanf(text, "%*u %" SCNu64, &v[n].resident) == 1 && v[n].resident)
			n++;
	}
	r->scan->late = n == PIDS_MOST;
	if (dir)
		closedir(dir);
	if (v)
		qsort(v, n, sizeof(*v), by_resident);
	for (size_t i = 0; i < n && !err; i++)
		err = add_step(r, v[i].pid);
	free(v);
	return v ? err : -ENOMEM;
}

/* Adds the folder of weights below a home. 0 or -ENOMEM. */
static int add_home(struct run *r, const char *home)
{
	char **more = realloc(r->folders, (r->n_folders + 1) * sizeof(*more));
	char *path;

	if (!more)
		return -ENOMEM;
	r->folders = more;
	if (asprintf(&path, "%s" HUB, home) < 0)
		return -ENOMEM;
	r->folders[r->n_folders++] = path;
	return add_step(r, step_of_path(r->scan->n_paths + r->n_folders - 1));
}

/* Adds a step for each path that the caller asked for. 0 or -ENOMEM. */
static int add_paths(struct run *r)
{
	int err = 0;

	for (size_t i = 0; i < r->scan->n_paths && !err; i++)
		err = add_step(r, step_of_path(i));
	return err;
}

/* Adds the folders of weights of our home, and as root of each home: files that were read and
 * closed are in the page cache, too. 0 or -errno. */
static int add_folders(struct run *r)
{
	DIR *homes = geteuid() ? NULL : opendir("/home");
	const char *home = getenv("HOME");
	struct dirent *entry;
	char path[300];
	int err = 0;

	if (home && *home == '/' && !err)
		err = add_home(r, home);
	while (homes && !err && r->n_folders < FILES_MOST && (entry = readdir(homes))) {
		if (*entry->d_name == '.')
			continue;
		snprintf(path, sizeof(path), "/home/%s", entry->d_name);
		err = add_home(r, path);
	}
	if (homes)
		closedir(homes);
	return err;
}

/* ---- results ---- */

/* True if a comes before b: named files, then checkpoints, then by size. */
static bool is_before(const struct machine_file *a, const struct machine_file *b)
{
	bool x = a->checkpoint && a->cached >= CHECKPOINT_LEAST;
	bool y = b->checkpoint && b->cached >= CHECKPOINT_LEAST;

	if (a->named != b->named)
		return a->named;
	return x != y ? x : a->cached > b->cached;
}

/* Inserts a file among the *n largest ones, in the order of sizes, if it is one of them. */
static void insert_file(struct machine_file *v, size_t *n, const struct machine_file *file)
{
	size_t i = *n;

	while (i > 0 && is_before(file, &v[i - 1]))
		i--;
	if (i == MACHINE_TOP)
		return;
	*n += *n < MACHINE_TOP;
	memmove(&v[i + 1], &v[i], (*n - 1 - i) * sizeof(*v));
	v[i] = *file;
}

static void take_file(struct run *r, const struct machine_file *file)
{
	struct machine_scan *s = r->scan;

	is_new(r->seen, SEEN_FILE, file->dev, file->inode); /* the next helper knows it */
	s->looked++;
	if (file->shared) {
		s->shared_cached += file->cached;
		insert_file(s->shared, &s->shared_files, file);
	} else {
		s->cached += file->cached;
		insert_file(s->file, &s->files, file);
	}
}

static void take_holder(struct machine_file *v, size_t n, const struct machine_file *holder)
{
	for (size_t i = 0; i < n; i++)
		if (!v[i].pid && v[i].dev == holder->dev && v[i].inode == holder->inode)
			v[i].pid = holder->pid;
}

static void take_mount(struct machine_scan *s, const struct machine_mount *m)
{
	size_t i = s->mounts;

	s->tmpfs += m->used;
	while (i > 0 && s->mount[i - 1].used < m->used)
		i--;
	if (i == MACHINE_TOP)
		return;
	s->mounts += s->mounts < MACHINE_TOP;
	memmove(&s->mount[i + 1], &s->mount[i], (s->mounts - 1 - i) * sizeof(*m));
	s->mount[i] = *m;
}

static void take_command(struct machine_processes *p, const struct message *m)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].pid == m->pid && *m->command)
			memcpy(p->v[i].command, m->command, sizeof(m->command));
}

/* Returns true at the end. */
static bool take(struct run *r, const struct message *m)
{
	switch (m->kind) {
	case SAY_STEP:
		r->next = (size_t)m->step;
		break;
	case SAY_FILE:
		take_file(r, &m->file);
		break;
	case SAY_HOLDER:
		/* The file is in one of the two lists; the other one ignores it. */
		take_holder(r->scan->file, r->scan->files, &m->file);
		take_holder(r->scan->shared, r->scan->shared_files, &m->file);
		break;
	case SAY_MOUNT:
		take_mount(r->scan, &m->mount);
		break;
	case SAY_COMMAND:
		take_command(r->processes, m);
		break;
	case SAY_DENIED:
		r->scan->denied++;
		break;
	case SAY_NO_FIGURES:
		r->scan->no_figures = true;
		break;
	case SAY_LATE:
		r->scan->late = true;
		break;
	case SAY_END:
		return true;
	}
	return false;
}

/* Takes the helper's messages. 0: it did all; -ETIMEDOUT: a step does not answer; -EPIPE: it ended.
 */
static int listen_to(struct run *r, const struct subprocess *helper)
{
	unsigned blocked = 0;

	for (;;) {
		struct pollfd p = { .fd = r->link, .events = POLLIN };
		struct message m;

		if (poll(&p, 1, CHECK_EVERY) > 0) {
			if (recv(r->link, &m, sizeof(m), MSG_DONTWAIT) != sizeof(m))
				return -EPIPE;
			if (take(r, &m))
				return 0;
			blocked = 0;
			continue;
		}
		/* Computing does not count: another process may take the CPU. */
		if (!subprocess__computes(helper))
			blocked += CHECK_EVERY;
		if (blocked >= BLOCKED_MOST || clock__monotonic() >= r->end + TIME_GRACE)
			return -ETIMEDOUT;
	}
}

/* Runs a helper from step r->next on. 0: all is done, otherwise as listen_to(). */
static int run_once(struct run *r)
{
	struct subprocess helper;
	int fds[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return -errno;
	r->link = fds[1];
	err = subprocess__start(&(struct subprocess_opts){ .main = run_helper,
							   .ctx = r,
							   .err = 0,
							   .keep_all_fds = true,
							   .group = SUBPROCESS_OWN_GROUP,
							   .death_signal = SIGKILL },
				&helper);
	close(fds[1]);
	r->link = fds[0];
	if (!err) {
		err = listen_to(r, &helper);
		subprocess__signal(&helper, SIGKILL);
		/* One that waits for a file system ends when that answers. */
		if (err == -ETIMEDOUT)
			close(helper.pidfd);
		else
			subprocess__kill(&helper);
	}
	close(fds[0]);
	return err;
}

static int run_steps(struct run *r)
{
	struct machine_scan *s = r->scan;
	int err;

	while (r->next < r->n_steps && s->n_blocked < MACHINE_BLOCKED) {
		err = run_once(r);
		if (!err)
			return 0;
		if (err != -ETIMEDOUT)
			return err;
		s->blocked[s->n_blocked++] = r->steps[r->next++];
		r->end += TIME_MOST / 4; /* the wait was not the others' */
	}
	s->late |= r->next < r->n_steps;
	return 0;
}

int machine_scan__run(struct machine_scan *s, struct machine_processes *p)
{
	struct run r = { .scan = s, .processes = p, .end = clock__monotonic() + TIME_MOST };
	int err;

	s->files = s->shared_files = s->mounts = 0;
	s->looked = s->cached = s->shared_cached = s->tmpfs = s->denied = 0;
	s->late = s->no_figures = false;
	r.seen = map64__new();
	err = r.seen ? add_step(&r, STEP_MOUNTS) : -ENOMEM;
	err = err ?: add_paths(&r);
	err = err ?: add_processes(&r);
	err = err ?: add_folders(&r);
	err = err ?: run_steps(&r);
	for (size_t i = 0; i < r.n_folders; i++)
		free(r.folders[i]);
	free(r.folders);
	free(r.steps);
	map64__free(r.seen);
	return err;
}
