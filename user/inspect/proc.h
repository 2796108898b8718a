/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A process, read from outside: its identity (a pidfd), maps, memory and descendants. Nothing here
 * stops, signals or writes to it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

/* A mapping: one line of /proc/PID/maps. Addresses are the target's; path is "" for anonymous
 * memory. */
struct map {
	uint64_t start, end; /* [start, end) */
	uint64_t offset;     /* into the file, bytes */
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	bool r, w, x;
	bool shared;	  /* MAP_SHARED */
	bool deleted;	  /* the kernel's " (deleted)" was cut from path */
	const char *path; /* owned by the struct maps; hostile text */
};

static inline bool map__same_file(const struct map *a, const struct map *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

/* Name of a file without its folders. */
static inline const char *map__base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

struct maps {
	struct map *v; /* sorted by start */
	size_t n;
	char *text; /* memory of all paths */
};

struct proc;

/*
 * Opens a process: pidfd, then start time, so that a reused PID is noticed. NULL with errno. ESRCH:
 * no such process, or a zombie; EPERM, EACCES: not permitted; EINVAL: a kernel thread; EXDEV: /proc
 * is another PID namespace's.
 */
struct proc *proc__open(pid_t pid);
/* Inode number of memtrace-bpf's PID namespace, to whose PIDs the BPF programs translate; 0: the
 * machine's initial namespace, or not known. */
uint32_t proc__pid_namespace(void);
/* A placeholder for a process that has ended. It has the name and the arguments of `like`; all
 * reads fail. NULL on ENOMEM, EMFILE. */
struct proc *proc__ended(pid_t pid, const struct proc *like);
void proc__free(struct proc *p); /* accepts NULL */

/* Forbids elf__open_map() to read files of p through its memory: such a read may wait forever for a
 * file system that the process itself serves. */
void proc__set_files_only(struct proc *p);
bool proc__files_only(const struct proc *p);
pid_t proc__pid(const struct proc *p);
int proc__pidfd(const struct proc *p);	/* owned by p; readable once the process has ended */
bool proc__alive(const struct proc *p); /* false once the process has exited */
/* Start time, CLOCK_BOOTTIME, ns, in the kernel's resolution; with the PID it identifies the
 * process. */
uint64_t proc__started(const struct proc *p);
/* Opens a handle on the program that p runs now: a file descriptor to close(), or -errno.
 * proc__image_gone() is true for it after an exec, or after the end of the process. */
int proc__image(const struct proc *p);
bool proc__image_gone(int image);
/* Resident bytes (/proc/PID/statm). On older kernels the figure is wrong by some pages per CPU. 0
 * or -errno. */
int proc__resident(const struct proc *p, uint64_t *ret);
/* Size of the address space in pages (/proc/PID/statm): a new figure means new mappings. 0 or
 * -errno. */
int proc__pages(const struct proc *p, uint64_t *ret);
/* CPU time of all threads, also of ended ones, ns. 0 or -errno. */
int proc__cpu_time(const struct proc *p, uint64_t *ret);
const char *proc__comm(const struct proc *p);
/* Writes the path of the executable as in its maps, or "" if it cannot be read. Returns buf. */
char *proc__exe(const struct proc *p, char *buf, size_t size);
/* NUL-separated arguments as read at open, *len bytes and a NUL after them; owned by p. */
const char *proc__cmdline(const struct proc *p, size_t *len);
/* Writes the command line of a process as one line of clean text, without the folders of its
 * program. "": it has none, as a kernel thread or a zombie. The process may make this wait for
 * ever: the text may lie in a file of its own file system. Returns buf. */
char *proc__command_line(pid_t pid, char *buf, size_t size);
/* Reads the arguments again if there were none at open: a process that is starting a program has
 * its new name first, and the arguments a little later. */
void proc__complete_cmdline(struct proc *p);

/* Opens a regular file in the target's mount namespace for reading. Symbolic links stay below the
 * target's root. A file descriptor (O_CLOEXEC) or -errno. */
int proc__open_file(const struct proc *p, const char *path);

/*
 * Device number of a character device in the target's mount namespace, found as by
 * proc__open_file() but not opened. 0, or -errno. -ENOENT: no such file. -ENODEV: not a character
 * device. Other errors: not known.
 */
int proc__char_device(const struct proc *p, const char *path, uint32_t *dev_major,
		      uint32_t *dev_minor);

/* Name of a thread (/proc/PID/task/TID/comm). 0, or -errno if the thread ended. */
int proc__thread_comm(const struct proc *p, pid_t tid, char *buf, size_t size);

/* Stack pointer of a waiting thread (/proc/PID/task/TID/syscall). 0; -EBUSY: it runs; -ENOENT,
 * -ESRCH: it ended; other -errno. */
int proc__thread_sp(const struct proc *p, pid_t tid, uint64_t *ret);

/*
 * Opens a file of /proc/PID, such as "pagemap". A file descriptor (O_CLOEXEC) or -errno; -ESRCH:
 * the process ended.
 */
int proc__open_own(const struct proc *p, const char *name);
/*
 * Opens for reading the memory of memfd_create() that one of the process's descriptors has. Any
 * other file is not touched: to open or close one may wait for a file system of the process. A file
 * descriptor (O_CLOEXEC) or -errno. -ENOENT: there is no such descriptor; -EINVAL: another file.
 */
int proc__open_memory(const struct proc *p, int number);
/* Reads a text file of /proc/PID whole, at most max bytes. The caller frees *ret, which ends with a
 * NUL. 0 or -errno; -EFBIG: longer; -ESRCH: the process ended. */
int proc__text(const struct proc *p, const char *name, size_t max, char **ret, size_t *len);
/* Reads the current maps. *ret is unchanged on failure. 0 or -errno. */
int proc__maps(const struct proc *p, struct maps *ret);
int maps__copy(struct maps *to, const struct maps *from); /* 0 or -ENOMEM */
void maps__free(struct maps *m);
/* The mapping that contains addr, or NULL. */
const struct map *maps__find(const struct maps *m, uint64_t addr);
/* The executable mapping of the same file as `file` that contains this file offset, or NULL. */
const struct map *maps__find_code(const struct maps *m, const struct map *file, uint64_t offset);
/* Parses the text of a maps file. -EINVAL for a bad line. For proc__maps() and tests. */
int maps__parse(const char *text, size_t len, struct maps *ret);

/*
 * Opens the file behind a mapping through /proc/PID/map_files/START-END, also a deleted or replaced
 * one, or through the process's root and path. The file has the device and inode of the mapping. A
 * file descriptor (O_CLOEXEC) or -errno. -ENOENT: anonymous memory; -EINVAL: not a regular file;
 * -ESTALE: another file is mapped there or has the path now.
 */
int proc__open_map(const struct proc *p, const struct map *m);
/*
 * Names a file that cannot be opened: returns a descriptor (O_PATH, O_CLOEXEC) of the file that is
 * mapped at m's addresses now, which may be another one than m says. Or -errno.
 */
int proc__pin_map(const struct proc *p, const struct map *m);

/* Start time of a thread in kernel ticks; with the TID it identifies the thread. 0 or -errno. */
int proc__thread_started(const struct proc *p, pid_t tid, uint64_t *ret);
/* Whether the main thread has ended while others run. Then the kernel allows neither reading its
 * maps nor attaching by its PID, so such a process is not recorded. */
bool proc__lost_leader(pid_t pid);
/* Whether the main thread has ended, and its parent has not waited for it yet. */
bool proc__is_zombie(pid_t pid);
/* Whether the main thread has a user shadow stack (x86-64: a second copy of return addresses).
 * Other threads inherit it. */
bool proc__shadow_stack(const struct proc *p);
bool proc__says_shadow_stack(const char *status); /* status: text of /proc/PID/status */
/* Reads target memory with process_vm_readv or /proc/PID/mem, all or nothing. 0; -EFAULT: some byte
 * is unmapped; -ESRCH: the process ended; -EPERM. buf is undefined on failure. */
int proc__read(const struct proc *p, uint64_t addr, void *buf, size_t len);
int proc__read_u64(const struct proc *p, uint64_t addr, uint64_t *ret);
int proc__read_u32(const struct proc *p, uint64_t addr, uint32_t *ret);

/* The 64-bit word at p, in a buffer that was read from a process. */
static inline uint64_t proc__word(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* One read of proc__readv(): len bytes at addr into buf. Sets err: 0, or -EFAULT with buf
 * undefined. */
struct proc_piece {
	uint64_t addr;
	void *buf;
	size_t len;
	int err;
};
/* Reads many pieces with few system calls; each piece completely or not at all. 0, even if pieces
 * failed; on -ESRCH and -EPERM no piece is valid. */
int proc__readv(const struct proc *p, struct proc_piece *v, size_t n);

/* Descendants with PyTorch mapped in memory of their own: stores the first max of them in pids,
 * nearest first. Returns their total number. Examines at most 1,024 processes and skips unreadable
 * ones. */
size_t descendants__with_torch(pid_t pid, pid_t *pids, size_t max);

/* All current descendants and their parents, nearest first, at most max and 1,024. Returns their
 * number. */
size_t descendants__list(pid_t pid, pid_t *pids, pid_t *parents, size_t max);
/* Whether PyTorch is mapped. False if the maps are not readable. */
bool descendants__has_torch(pid_t pid);
/* Whether a process has this PID; it may be a later process than the caller's. */
bool descendants__exists(pid_t pid);
/* Size of the address space in pages, which grows with each mapped file; 0: not known. */
uint64_t descendants__pages(pid_t pid);

/* ---- the environment ---- */

/* Variables are read from the process's memory, since a program may change them. Before it has set
 * up its environment, they come from /proc/PID/environ, which has the initial one. */

/* Writes the value of a variable to buf. 0; -ENOENT: not set; -E2BIG: does not fit; other -errno:
 * the environment is not readable. buf is hostile text, undefined on failure. */
int environ__get(const struct proc *p, const struct maps *m, const char *name, char *buf,
		 size_t size);

/* The rank of a process in its job, from the variables that launchers set: torchrun, Open MPI,
 * MPICH and Intel MPI, Slurm, and Kubernetes for indexed jobs, in this order. */

struct rank_env {
	uint64_t rank, local, world; /* local: rank on its host; world: number of ranks */
	bool has_rank, has_local, has_world;
	const char *from; /* variable with the rank, static; NULL: none */
};

/* Finds the rank. get() writes the value of a variable, hostile text, to buf and returns 0, or
 * returns another value if it is not set or not known. Variables of batch systems count only if
 * there are several ranks: a script without ranks has them, too. */
void rank_env__find(int (*get)(void *ctx, const char *name, char *buf, size_t size), void *ctx,
		    struct rank_env *ret);
