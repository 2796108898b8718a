/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"

#define CMDLINE_MAX (128u << 10)
#define MAPS_TEXT_MAX (256u << 20) /* also the limit of maps__parse() */
#define MAPS_TEXT_FIRST (256u << 10)
#define STAT_PF_KTHREAD 0x00200000u
#define FIRST_PID_NAMESPACE 0xEFFFFFFCu /* PROC_PID_INIT_INO */

/*
 * Two handles protect against a reused PID. A PID is free for reuse only after the pidfd reports
 * the end of its process. The directory /proc/PID belongs to the process at opening; after its end,
 * all paths below fail with ESRCH.
 */
struct proc {
	pid_t pid;
	int pidfd;
	int dirfd; /* /proc/PID */
	int memfd; /* /proc/PID/mem, or -1 */
	uint64_t start_time;
	bool files_only;
	char comm[64];
	char *cmdline;
	size_t cmdline_len;
};

struct stat_line {
	char state;
	uint32_t flags;
	uint64_t start_time;
};

/*
 * True if `name` lists mappings and the list may be incomplete. While a process releases its
 * memory, at its end or for an exec, the list ends early without an error; then not even its first
 * byte can be read again.
 */
static bool is_maps_cut(int fd, const char *name)
{
	char byte;

	return (!strcmp(name, "maps") || !strcmp(name, "smaps")) && pread(fd, &byte, 1, 0) <= 0;
}

/* Reads a file below dirfd, at most max bytes; first: bytes allocated at first. The caller frees
 * *ret, which ends with a NUL. -ESRCH: the process released its memory meanwhile. */
static int read_file(int dirfd, const char *name, size_t first, size_t max, char **ret,
		     size_t *ret_len)
{
	size_t cap = first, len = 0;
	char *buf, *bigger;
	ssize_t got;
	int err, fd;

	fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	buf = malloc(cap + 1);
	if (!buf) {
		err = -ENOMEM;
		goto out;
	}
	for (;;) {
		if (len == cap) {
			if (cap == max) {
				err = -EFBIG;
				goto out;
			}
			cap = cap > max / 2 ? max : cap * 2;
			bigger = realloc(buf, cap + 1);
			if (!bigger) {
				err = -ENOMEM;
				goto out;
			}
			buf = bigger;
		}
		got = read(fd, buf + len, cap - len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			err = -errno;
			goto out;
		}
		if (got == 0)
			break;
		len += (size_t)got;
	}
	if (is_maps_cut(fd, name)) {
		err = -ESRCH;
		goto out;
	}
	buf[len] = '\0';
	*ret = buf;
	*ret_len = len;
	close(fd);
	return 0;
out:
	free(buf);
	close(fd);
	return err;
}

/* Parses a stat file. The process's name in brackets may contain spaces and brackets, so the other
 * fields begin after the last bracket. */
static int read_stat(int dirfd, const char *name, struct stat_line *ret)
{
	unsigned long long start;
	unsigned int flags;
	char *text, *after_name;
	size_t len;
	char state;
	int err, items;

	err = read_file(dirfd, name, /*first=*/1024, 64 << 10, &text, &len);
	if (err)
		return err;
	after_name = strrchr(text, ')');
	items = after_name ? sscanf(after_name + 1,
				    " %c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d "
				    "%*d %*d %*d %*d %llu",
				    &state, &flags, &start)
			   : 0;
	free(text);
	if (items != 3)
		return -EIO;
	ret->state = state;
	ret->flags = flags;
	ret->start_time = start;
	return 0;
}

static bool pidfd_ended(int pidfd)
{
	struct pollfd pfd = { .fd = pidfd, .events = POLLIN };
	int ready;

	do {
		ready = poll(&pfd, 1, 0);
	} while (ready < 0 && errno == EINTR);
	return ready != 0; /* an error counts as the end */
}

/* In a container that sees the host's /proc, system calls and /proc use different PIDs. The pidfd's
 * fdinfo has the PID that this /proc uses. */
static int check_namespace(int pidfd, pid_t pid)
{
	char name[64], *text;
	const char *line;
	size_t len;
	int err;

	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", pidfd);
	err = read_file(AT_FDCWD, name, /*first=*/1024, 64 << 10, &text, &len);
	if (err)
		return err;
	line = strstr(text, "\nPid:");
	/* -1: the process has ended */
	if (line && atol(line + 5) != pid)
		err = atol(line + 5) == -1 ? -ESRCH : -EXDEV;
	free(text);
	return err;
}

/* Reads a name of a process or a thread without its newline. -ESRCH: it has ended. */
static int read_comm(int dirfd, const char *name, char *buf, size_t size)
{
	char *text, *end;
	size_t len;
	int err;

	if (!size)
		return -EINVAL;
	err = read_file(dirfd, name, /*first=*/64, /*max=*/4096, &text, &len);
	if (err)
		return err == -ENOENT ? -ESRCH : err;
	end = memrchr(text, '\n', len);
	if (end)
		*end = '\0';
	snprintf(buf, size, "%s", text);
	free(text);
	return 0;
}

/* Reads the arguments, cut at CMDLINE_MAX: the process chooses their length, and they are only
 * displayed. */
static int read_cmdline(struct proc *proc)
{
	ssize_t got;
	int fd;

	fd = openat(proc->dirfd, "cmdline", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	proc->cmdline = proc->cmdline ?: malloc(CMDLINE_MAX + 1);
	if (!proc->cmdline) {
		close(fd);
		return -ENOMEM;
	}
	got = io__read(fd, proc->cmdline, CMDLINE_MAX);
	proc->cmdline_len = got > 0 ? (size_t)got : 0;
	proc->cmdline[proc->cmdline_len] = '\0';
	close(fd);
	return got < 0 ? (int)got : 0;
}

/* Opens and closes the process's maps: the kernel then checks the permission to read its memory. */
static int check_access(const struct proc *p)
{
	int fd = openat(p->dirfd, "maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* Opens the pidfd, then /proc/PID. */
static int open_handles(struct proc *proc)
{
	char name[32];

	proc->pidfd = (int)syscall(SYS_pidfd_open, proc->pid, 0u);
	/* EINVAL, on later kernels ENOENT: the number is a thread's */
	if (proc->pidfd < 0)
		return errno == EINVAL || errno == ENOENT ? -ESRCH : -errno;
	snprintf(name, sizeof(name), "/proc/%d", proc->pid);
	proc->dirfd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc->dirfd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	return check_namespace(proc->pidfd, proc->pid);
}

/* Reads start time, name and arguments, after checking that this is a process that can be read. */
static int read_identity(struct proc *proc)
{
	struct stat_line st;
	int err;

	err = read_stat(proc->dirfd, "stat", &st);
	if (err)
		return err == -ENOENT ? -ESRCH : err;
	if (st.flags & STAT_PF_KTHREAD)
		return -EINVAL;
	if (st.state == 'Z' || st.state == 'X')
		return -ESRCH;
	proc->start_time = st.start_time;
	err = read_comm(proc->dirfd, "comm", proc->comm, sizeof(proc->comm)) ?: check_access(proc);
	if (!err)
		err = read_cmdline(proc);
	if (err)
		return err == -ENOENT ? -ESRCH : err;
	/* fallback for reading memory; may be refused */
	proc->memfd = openat(proc->dirfd, "mem", O_RDONLY | O_CLOEXEC);
	/* If the process still runs, the directory opened after the pidfd is its own. */
	return proc__alive(proc) ? 0 : -ESRCH;
}

struct proc *proc__open(pid_t pid)
{
	struct proc *proc;
	int err;

	if (pid <= 0) {
		errno = ESRCH;
		return NULL;
	}
	proc = calloc(1, sizeof(*proc));
	if (!proc)
		return NULL;
	proc->pid = pid;
	proc->pidfd = proc->dirfd = proc->memfd = -1;
	err = open_handles(proc) ?: read_identity(proc);
	if (err) {
		proc__free(proc);
		errno = -err;
		return NULL;
	}
	return proc;
}

uint32_t proc__pid_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) || st.st_ino == FIRST_PID_NAMESPACE
		       ? 0
		       : (uint32_t)st.st_ino;
}

struct proc *proc__ended(pid_t pid, const struct proc *like)
{
	struct proc *proc = calloc(1, sizeof(*proc));

	if (!proc)
		return NULL;
	proc->pid = pid;
	proc->dirfd = proc->memfd = -1;	       /* all reads fail */
	proc->pidfd = eventfd(1, EFD_CLOEXEC); /* readable, like the pidfd of an ended process */
	memcpy(proc->comm, like->comm, sizeof(proc->comm));
	proc->cmdline = malloc(like->cmdline_len + 1);
	if (proc->pidfd < 0 || !proc->cmdline) {
		proc__free(proc);
		errno = ENOMEM;
		return NULL;
	}
	memcpy(proc->cmdline, like->cmdline, like->cmdline_len);
	proc->cmdline[like->cmdline_len] = '\0';
	proc->cmdline_len = like->cmdline_len;
	return proc;
}

void proc__free(struct proc *proc)
{
	if (!proc)
		return;
	if (proc->pidfd >= 0)
		close(proc->pidfd);
	if (proc->dirfd >= 0)
		close(proc->dirfd);
	if (proc->memfd >= 0)
		close(proc->memfd);
	free(proc->cmdline);
	free(proc);
}

void proc__set_files_only(struct proc *p)
{
	p->files_only = true;
}

bool proc__files_only(const struct proc *p)
{
	return p->files_only;
}

pid_t proc__pid(const struct proc *p)
{
	return p->pid;
}

int proc__pidfd(const struct proc *p)
{
	return p->pidfd;
}

bool proc__alive(const struct proc *proc)
{
	struct stat_line st;

	if (pidfd_ended(proc->pidfd))
		return false;
	return read_stat(proc->dirfd, "stat", &st) == 0 && st.start_time == proc->start_time;
}

uint64_t proc__started(const struct proc *p)
{
	return p->start_time * (1000000000ULL / (uint64_t)sysconf(_SC_CLK_TCK));
}

int proc__thread_started(const struct proc *proc, pid_t tid, uint64_t *ret)
{
	struct stat_line st;
	char name[48];
	int err;

	snprintf(name, sizeof(name), "task/%d/stat", tid);
	err = read_stat(proc->dirfd, name, &st);
	*ret = err ? 0 : st.start_time;
	return err;
}

bool proc__is_zombie(pid_t pid)
{
	struct stat_line st;
	char name[48];

	snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
	return !read_stat(AT_FDCWD, name, &st) && st.state == 'Z';
}

bool proc__lost_leader(pid_t pid)
{
	struct dirent *entry;
	char path[48];
	size_t threads = 0;
	DIR *dir;

	if (!proc__is_zombie(pid))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		threads += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return threads > 1;
}

bool proc__says_shadow_stack(const char *status)
{
	static const char key[] = "x86_Thread_features:";
	const char *line = strstr(status, key);
	const char *end, *at;

	if (!line || (line != status && line[-1] != '\n'))
		return false;
	end = strchr(line, '\n');
	at = strstr(line, "shstk");
	return at && (!end || at < end);
}

bool proc__shadow_stack(const struct proc *proc)
{
	char text[8192];

	io__text_at(proc->dirfd, "status", text, sizeof(text));
	return proc__says_shadow_stack(text);
}

#define STAT_STARTSTACK 28 /* proc_pid_stat(5) */

/* An address in the stack of the first thread; 0: unknown. */
static uint64_t stack_start(const struct proc *proc)
{
	unsigned long long ret = 0;
	char buf[1024], *at;

	if (io__text_at(proc->dirfd, "stat", buf, sizeof(buf)) <= 0)
		return 0;
	at = strrchr(buf, ')');
	/* the bracket ends field 2; each further field begins with a space */
	for (int field = 2; at && field < STAT_STARTSTACK; field++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, "%llu", &ret) != 1)
		return 0;
	return ret;
}

/* Sets the descriptor's position to a mapped address, for proc__image_gone(), which reads there. A
 * read elsewhere may expand the stack: the kernel locks the map for writing, and threads wait. */
int proc__image(const struct proc *proc)
{
	int fd = openat(proc->dirfd, "mem", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	lseek(fd, (off_t)stack_start(proc), SEEK_SET);
	return fd;
}

bool proc__image_gone(int image)
{
	char c;

	/* Reading a released address space returns 0. */
	return pread(image, &c, 1, lseek(image, 0, SEEK_CUR)) == 0;
}

/* Sets the pages of the address space and the resident ones. 0 or -errno. */
static int read_statm(const struct proc *proc, uint64_t *size, uint64_t *resident)
{
	char buf[128];
	ssize_t n = io__text_at(proc->dirfd, "statm", buf, sizeof(buf));

	if (n <= 0)
		return n ? (int)n : -ESRCH;
	return sscanf(buf, "%" SCNu64 " %" SCNu64, size, resident) == 2 ? 0 : -EIO;
}

int proc__pages(const struct proc *proc, uint64_t *ret)
{
	uint64_t resident;

	return read_statm(proc, ret, &resident);
}

int proc__resident(const struct proc *proc, uint64_t *ret)
{
	uint64_t size, pages;
	int err = read_statm(proc, &size, &pages);

	if (err)
		return err;
	*ret = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}

int proc__cpu_time(const struct proc *proc, uint64_t *ret)
{
	struct timespec ts;
	clockid_t clock;

	if (clock_getcpuclockid(proc->pid, &clock) || clock_gettime(clock, &ts))
		return -ESRCH;
	if (!proc__alive(proc)) /* another process may have its PID */
		return -ESRCH;
	*ret = (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
	return 0;
}

const char *proc__comm(const struct proc *p)
{
	return p->comm;
}

void proc__complete_cmdline(struct proc *proc)
{
	if (!proc->cmdline_len && proc->dirfd >= 0) /* an ended process's handle has no folder */
		read_cmdline(proc);
}

const char *proc__cmdline(const struct proc *proc, size_t *len)
{
	*len = proc->cmdline_len;
	return proc->cmdline;
}

char *proc__command_line(pid_t pid, char *buf, size_t size)
{
	char text[4096], *name = text, *slash;
	ssize_t len = io__text_of_process(pid, "cmdline", text, sizeof(text));

	*buf = '\0';
	if (len <= 0 || !*text)
		return buf;
	slash = strrchr(text, '/'); /* of the program: its NUL ends the text here */
	if (*text == '/' && slash[1])
		name = slash + 1;
	while (!text[len - 1])
		len--;
	for (ssize_t i = 0; i < len; i++)
		text[i] = text[i] ? text[i] : ' ';
	text__clean(buf, size, name, (size_t)(text + len - name));
	return buf;
}

char *proc__exe(const struct proc *proc, char *buf, size_t size)
{
	static const char deleted[] = " (deleted)";
	const size_t tail = sizeof(deleted) - 1;
	ssize_t n = readlinkat(proc->dirfd, "exe", buf, size - 1);

	buf[n > 0 ? n : 0] = '\0';
	if (n > (ssize_t)tail && !strcmp(buf + n - tail, deleted))
		buf[n - tail] = '\0';
	return buf;
}

int proc__thread_comm(const struct proc *proc, pid_t tid, char *buf, size_t size)
{
	char name[48];

	snprintf(name, sizeof(name), "task/%d/comm", tid);
	return read_comm(proc->dirfd, name, buf, size);
}

int proc__thread_sp(const struct proc *proc, pid_t tid, uint64_t *ret)
{
	char name[48], text[256], *word;
	uint64_t sp;
	ssize_t n;

	snprintf(name, sizeof(name), "task/%d/syscall", tid);
	n = io__text_at(proc->dirfd, name, text, sizeof(text));
	if (n < 0)
		return (int)n;
	if (text__starts(text, "running"))
		return -EBUSY;
	/* The text is the system call's number, its six arguments if one runs, the stack pointer
	 * and the program counter. So the stack pointer is the word before the last. */
	word = strrchr(text, ' ');
	if (!word)
		return -EIO;
	while (word > text && word[-1] != ' ')
		word--;
	if (sscanf(word, "%" SCNx64, &sp) != 1)
		return -EIO;
	*ret = sp;
	return 0;
}

int proc__open_own(const struct proc *p, const char *name)
{
	int fd = openat(p->dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		return fd;
	return errno == ENOENT ? -ESRCH : -errno;
}

/* Number of the mount that one of our descriptors lies in, from 0 on; -1: not known. */
static long mount_of(int fd)
{
	char path[64], text[1024];
	long mount;
	const char *line;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (io__text(path, text, sizeof(text)) <= 0)
		return -1;
	line = strstr(text, "mnt_id:");
	return line && sscanf(line, "mnt_id: %ld", &mount) == 1 ? mount : -1;
}

/* True if the file lies in the kernel's own mount, which has all memory of memfd_create(). */
static bool is_memory(int path)
{
	long mount = mount_of(path);
	int own = memfd_create("memtrace-bpf", MFD_CLOEXEC);
	bool same = own >= 0 && mount >= 0 && mount == mount_of(own);

	if (own >= 0)
		close(own);
	return same;
}

int proc__open_memory(const struct proc *p, int number)
{
	char name[32];
	int path, fd;

	snprintf(name, sizeof(name), "fd/%d", number);
	path = openat(p->dirfd, name, O_PATH | O_CLOEXEC);
	if (path < 0)
		return -errno;
	fd = -EINVAL;
	if (is_memory(path)) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", path);
		fd = open(name, O_RDONLY | O_CLOEXEC);
		fd = fd < 0 ? -errno : fd;
	}
	close(path);
	return fd;
}

int proc__text(const struct proc *p, const char *name, size_t max, char **ret, size_t *len)
{
	int err = read_file(p->dirfd, name, max < 64 << 10 ? max : 64 << 10, max, ret, len);

	return err == -ENOENT ? -ESRCH : err;
}

int proc__maps(const struct proc *proc, struct maps *ret)
{
	size_t len;
	char *text;
	int err;

	err = read_file(proc->dirfd, "maps", MAPS_TEXT_FIRST, MAPS_TEXT_MAX, &text, &len);
	if (err)
		return err == -ENOENT ? -ESRCH : err;
	if (pidfd_ended(proc->pidfd)) {
		free(text);
		return -ESRCH;
	}
	err = maps__parse(text, len, ret);
	free(text);
	return err;
}

/* ---- files ---- */

static bool same_inode(const struct map *a, uint64_t inode, uint32_t dev_major, uint32_t dev_minor)
{
	return a->inode == inode && a->dev_major == dev_major && a->dev_minor == dev_minor;
}

/* True if a mapping of fd would have the map's device and inode. stat() may give others: before
 * Linux 6.8, maps shows the file below overlayfs, and btrfs has a device per volume. */
static bool is_mapped_as(int fd, const struct map *map)
{
	void *page = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
	const struct map *own;
	struct maps maps;
	char *text = NULL;
	size_t len = 0;
	bool ret = false;

	if (page == MAP_FAILED)
		return false;
	if (!read_file(AT_FDCWD, "/proc/self/maps", MAPS_TEXT_FIRST, MAPS_TEXT_MAX, &text, &len) &&
	    !maps__parse(text, len, &maps)) {
		own = maps__find(&maps, (uintptr_t)page);
		ret = own && same_inode(own, map->inode, map->dev_major, map->dev_minor);
		maps__free(&maps);
	}
	free(text);
	munmap(page, 1);
	return ret;
}

/* True if fd is the file of map. */
static bool same_file(int fd, const struct stat *st, const struct map *map)
{
	return same_inode(map, st->st_ino, major(st->st_dev), minor(st->st_dev)) ||
	       is_mapped_as(fd, map);
}

static int open_root(const struct proc *p)
{
	int fd = openat(p->dirfd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Opens a regular file by its path in the process's root directory. Returns a descriptor or a
 * negative errno. */
static int open_in_root(const struct proc *proc, const char *path, struct stat *st)
{
	int root, fd;

	if (path[0] != '/')
		return -EINVAL;
	root = open_root(proc);
	if (root < 0)
		return root;
	fd = io__open_regular(root, path, LINKS_IN_ROOT, st);
	close(root);
	return fd;
}

/* After a chroot, paths in maps begin at the mount namespace's root. Returns the part of path below
 * the process's root; NULL: the path is not below it. */
static const char *below_root(const struct proc *proc, const char *path)
{
	char root[PATH_MAX];
	ssize_t n = readlinkat(proc->dirfd, "root", root, sizeof(root));

	return n > 1 && n < (ssize_t)sizeof(root) && !strncmp(path, root, (size_t)n) &&
			       path[n] == '/'
		       ? path + n
		       : NULL;
}

int proc__open_file(const struct proc *proc, const char *path)
{
	int fd = open_in_root(proc, path, NULL);

	if (fd == -ENOENT) {
		path = below_root(proc, path);
		fd = path ? open_in_root(proc, path, NULL) : fd;
	}
	return fd;
}

int proc__char_device(const struct proc *proc, const char *path, uint32_t *dev_major,
		      uint32_t *dev_minor)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	int root, fd, err = 0;
	struct stat st;

	if (path[0] != '/')
		return -EINVAL;
	root = open_root(proc);
	if (root < 0)
		return root;
	fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	err = fd < 0 ? -errno : 0;
	close(root);
	if (err)
		return err;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISCHR(st.st_mode))
		err = -ENODEV;
	close(fd);
	if (err)
		return err;
	*dev_major = major(st.st_rdev);
	*dev_minor = minor(st.st_rdev);
	return 0;
}

static void map_files_name(const struct map *m, char *buf, size_t size)
{
	snprintf(buf, size, "map_files/%" PRIx64 "-%" PRIx64, m->start, m->end);
}

int proc__open_map(const struct proc *proc, const struct map *map)
{
	struct stat st;
	char name[64];
	int fd;

	if (!map->inode)
		return -ENOENT;
	map_files_name(map, name, sizeof(name));
	fd = io__open_regular(proc->dirfd, name, LINKS_FOLLOW, &st);
	/* not privileged, or the mapping was split or moved */
	if (fd < 0 && !map->deleted && map->path[0] == '/')
		fd = open_in_root(proc, map->path, &st);
	/* The process may have mapped another file at these addresses. */
	if (fd >= 0 && !same_file(fd, &st, map)) {
		close(fd);
		return -ESTALE;
	}
	return fd;
}

int proc__pin_map(const struct proc *proc, const struct map *map)
{
	char name[64];
	int fd;

	if (!map->inode)
		return -ENOENT;
	map_files_name(map, name, sizeof(name));
	fd = openat(proc->dirfd, name, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* ---- memory ---- */

/* Reads all of [addr, addr + len) from a file of memory. -EFAULT: not mapped. -ESRCH: the process
 * has released its memory. */
static int read_mem_file(int fd, uint64_t addr, char *buf, size_t len)
{
	ssize_t got = io__pread(fd, buf, len, addr);

	if (got < 0)
		return got == -EIO ? -EFAULT : (int)got;
	/* Fewer bytes: the address space was released. */
	return (size_t)got == len ? 0 : -ESRCH;
}

/* proc->memfd belongs to the address space that the process had when it was opened. After an exec
 * it reads nothing (-ESRCH), so a new descriptor is opened. */
static int read_mem(const struct proc *proc, uint64_t addr, void *buf, size_t len)
{
	int fd, err;

	if (addr > INT64_MAX)
		return -EFAULT;
	if (proc->memfd >= 0) {
		err = read_mem_file(proc->memfd, addr, buf, len);
		if (err != -ESRCH)
			return err;
	}
	fd = openat(proc->dirfd, "mem", O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == EACCES)
		return -EPERM;
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	err = read_mem_file(fd, addr, buf, len);
	close(fd);
	return err;
}

int proc__read(const struct proc *proc, uint64_t addr, void *buf, size_t len)
{
	struct iovec local = { .iov_base = buf, .iov_len = len };
	struct iovec remote = { .iov_len = len };
	uint64_t end;
	ssize_t got;
	int err;

	if (!len)
		return 0;
	if (__builtin_add_overflow(addr, len - 1, &end) || len > SSIZE_MAX)
		return -EFAULT;
	remote.iov_base = (void *)(uintptr_t)addr;
	got = process_vm_readv(proc->pid, &local, 1, &remote, 1, 0);
	if (got == (ssize_t)len)
		err = 0;
	else if (got >= 0 || errno == EFAULT)
		err = -EFAULT;
	else if (errno == EPERM || errno == ENOSYS)
		err = read_mem(proc, addr, buf,
			       len); /* our own seccomp filter may forbid the call */
	else
		err = -errno;
	/* If the process ended, the bytes may be from a new process with the PID. */
	return pidfd_ended(proc->pidfd) ? -ESRCH : err;
}

int proc__read_u64(const struct proc *proc, uint64_t addr, uint64_t *ret)
{
	uint64_t v;
	int err = proc__read(proc, addr, &v, sizeof(v));

	if (!err)
		*ret = v;
	return err;
}

int proc__read_u32(const struct proc *proc, uint64_t addr, uint32_t *ret)
{
	uint32_t v;
	int err = proc__read(proc, addr, &v, sizeof(v));

	if (!err)
		*ret = v;
	return err;
}

#define PIECES_AT_ONCE 1024u /* IOV_MAX */
#define PAGE_LEAST 4096u     /* bytes of the smallest page; larger ones are multiples of it */

/* False: the piece is empty, too long, or wraps around. */
static bool is_possible(const struct proc_piece *pieces)
{
	uint64_t end;

	return pieces->len && pieces->len <= SSIZE_MAX / PIECES_AT_ONCE &&
	       !__builtin_add_overflow(pieces->addr, pieces->len - 1, &end);
}

/* The arguments of one process_vm_readv(). */
struct batch {
	struct iovec local[PIECES_AT_ONCE], remote[PIECES_AT_ONCE];
	uint32_t first[PIECES_AT_ONCE]; /* first piece of each remote range */
	size_t n_local, n_remote, bytes;
	char gap[PAGE_LEAST]; /* receives the bytes between pieces, which are not used */
};

/*
 * Adds a piece. Most of the cost is per remote range. So pieces that follow one another in one page
 * share a range: the page is readable as a whole or not at all.
 */
static void batch__add(struct batch *batch, const struct proc_piece *pieces, uint32_t i)
{
	struct iovec *last = batch->n_remote ? &batch->remote[batch->n_remote - 1] : NULL;
	uint64_t begin = last ? (uint64_t)(uintptr_t)last->iov_base : 0;
	uint64_t end = last ? begin + last->iov_len : 0;

	if (last && pieces->addr >= end &&
	    begin / PAGE_LEAST == (pieces->addr + pieces->len - 1) / PAGE_LEAST) {
		if (pieces->addr > end)
			batch->local[batch->n_local++] = (struct iovec){ batch->gap,
									 pieces->addr - end };
		batch->bytes += pieces->addr - end + pieces->len;
		last->iov_len = pieces->addr + pieces->len - begin;
	} else {
		batch->first[batch->n_remote] = i;
		batch->remote[batch->n_remote++] = (struct iovec){ (void *)(uintptr_t)pieces->addr,
								   pieces->len };
		batch->bytes += pieces->len;
	}
	batch->local[batch->n_local++] = (struct iovec){ pieces->buf, pieces->len };
}

/* got: bytes that the kernel read before a range that is unreadable. Marks that range's pieces as
 * failed and returns the number of pieces up to its end. */
static size_t batch__failed(const struct batch *batch, struct proc_piece *pieces, size_t n_pieces,
			    size_t got)
{
	size_t range = 0, end;

	while (got >= batch->remote[range].iov_len)
		got -= batch->remote[range++].iov_len;
	end = range + 1 < batch->n_remote ? batch->first[range + 1] : n_pieces;
	for (size_t i = batch->first[range]; i < end; i++)
		pieces[i].err = -EFAULT;
	return end;
}

/* Reads the first pieces, as many as one system call takes. Returns how many of them are done
 * (read or failed), or -errno. */
static ssize_t read_pieces(const struct proc *proc, struct proc_piece *pieces, size_t n_pieces)
{
	struct batch batch;
	ssize_t got;
	size_t i;

	batch.n_local = batch.n_remote = batch.bytes = 0;
	for (i = 0; i < n_pieces && batch.n_local + 2 <= PIECES_AT_ONCE && is_possible(&pieces[i]);
	     i++) {
		batch__add(&batch, &pieces[i], (uint32_t)i);
		pieces[i].err = 0;
	}
	if (!i) { /* the first piece is empty or impossible */
		pieces[0].err = pieces[0].len ? -EFAULT : 0;
		return 1;
	}
	got = process_vm_readv(proc->pid, batch.local, batch.n_local, batch.remote, batch.n_remote,
			       0);
	if (got == (ssize_t)batch.bytes)
		return (ssize_t)i;
	if (got < 0 && (errno == EPERM || errno == ENOSYS)) { /* as in proc__read() */
		pieces[0].err = read_mem(proc, pieces[0].addr, pieces[0].buf, pieces[0].len);
		return pieces[0].err && pieces[0].err != -EFAULT ? pieces[0].err : 1;
	}
	if (got < 0 && errno != EFAULT)
		return -errno;
	return (ssize_t)batch__failed(&batch, pieces, i, got > 0 ? (size_t)got : 0);
}

int proc__readv(const struct proc *proc, struct proc_piece *pieces, size_t n)
{
	ssize_t done;

	while (n) {
		done = read_pieces(proc, pieces, n);
		if (done < 0)
			return (int)done;
		pieces += done;
		n -= (size_t)done;
	}
	return pidfd_ended(proc->pidfd) ? -ESRCH : 0;
}
