/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PROCESS_PROC_H
#define MT_PROCESS_PROC_H
/*
 * A process that is looked at from outside: its identity (held by a pidfd), its maps, its
 * memory. Nothing here stops, writes to or signals it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One line of /proc/PID/maps. Addresses are the target's; path is "" for anonymous memory. */
struct map {
	uint64_t start, end; /* [start, end) */
	uint64_t offset;     /* into the file, bytes */
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	bool r, w, x;
	bool deleted;	  /* the kernel appended " (deleted)"; it is cut from path */
	const char *path; /* owned by the struct maps; hostile text */
};

struct maps {
	struct map *v; /* sorted by start */
	size_t n;
	char *text; /* the paths live here */
};

struct proc;

/*
 * Opens the process: pidfd first, then its start time, so that a reused PID is noticed.
 * NULL with errno: ESRCH no such process, or a zombie; EPERM/EACCES not permitted; EINVAL a kernel
 * thread; EXDEV /proc is that of another PID namespace than ours.
 */
struct proc *proc__open(pid_t pid);
/* Our own PID namespace's number, by which the kernel side gives PIDs as we know them; 0: the
 * machine's first one, or not known. */
uint32_t proc__pid_namespace(void);
/* Stands for a process that has ended, of which nothing can be asked any more; like: what it was
 * called. NULL on ENOMEM, EMFILE. */
struct proc *proc__ended(pid_t pid, const struct proc *like);
void proc__free(struct proc *p); /* NULL is fine */

pid_t proc__pid(const struct proc *p);
int proc__pidfd(const struct proc *p);	      /* owned by p; readable when the process has ended */
bool proc__alive(const struct proc *p);	      /* false once it has exited */
uint64_t proc__started(const struct proc *p); /* CLOCK_BOOTTIME, ns, to the kernel's tick: with its
						 PID, who it is */
/*
 * The program that runs now, to ask later whether it still does: an exec makes another one of the
 * same process. A file, for close(), or -errno.
 */
int proc__image(const struct proc *p);
bool proc__image_gone(int image);
/* Pages of its address space, of all kinds (/proc/PID/statm): changes when anything is mapped. 0 or
 * -errno. */
int proc__pages(const struct proc *p, uint64_t *ret);
const char *proc__comm(const struct proc *p);
/* The NUL-separated argument vector as read at open, *len bytes; owned by p. */
const char *proc__cmdline(const struct proc *p, size_t *len);
/* A file of the target's mount namespace: "/proc/PID/root" + path. 0, -EINVAL not absolute,
 * -ENAMETOOLONG. */
int proc__root_path(const struct proc *p, const char *path, char *buf, size_t size);

/*
 * Opens a regular file of the target's mount namespace for reading; symbolic links are resolved
 * below the target's root. Returns an fd (O_CLOEXEC) or -errno.
 */
int proc__open_file(const struct proc *p, const char *path);

/*
 * The number of a device's node in the target's mount namespace, found as by proc__open_file(),
 * without opening it. 0; -ENOENT none; -ENODEV it is no character device; or another -errno: not
 * known.
 */
int proc__char_device(const struct proc *p, const char *path, uint32_t *dev_major,
		      uint32_t *dev_minor);

/* Name of a thread (/proc/PID/task/TID/comm). 0, or -errno when the thread is gone. */
int proc__thread_comm(const struct proc *p, pid_t tid, char *buf, size_t size);

/*
 * Stack pointer of a thread that waits (/proc/PID/task/TID/syscall). 0; -EBUSY: it runs; or -errno:
 * -ENOENT or -ESRCH when it is gone.
 */
int proc__thread_sp(const struct proc *p, pid_t tid, uint64_t *ret);

/* Reads the current maps. *ret is untouched on failure. 0 or -errno. */
int proc__maps(const struct proc *p, struct maps *ret);
int maps__copy(struct maps *to, const struct maps *from); /* 0 or -ENOMEM */
void maps__free(struct maps *m);
/* The mapping that holds addr, or NULL. */
const struct map *maps__find(const struct maps *m, uint64_t addr);
/* Parses the text of a maps file (any bytes; a bad line is -EINVAL). For proc__maps and tests. */
int maps__parse(const char *text, size_t len, struct maps *ret);

/*
 * Opens the very file behind a mapping through /proc/PID/map_files/START-END (works for deleted and
 * replaced files and across mount namespaces); falls back to /proc/PID/root + path after comparing
 * device and inode. Only regular files. Returns an fd (O_CLOEXEC) or -errno: -ENOENT anonymous
 * memory, -EINVAL not a regular file, -ESTALE another file has that path by now.
 */
int proc__open_map(const struct proc *p, const struct map *m);
/* The path of a mapping's file that the kernel accepts for uprobes, into buf. 0 or -errno. */
int proc__map_path(const struct proc *p, const struct map *m, char *buf, size_t size);

/* When a thread of it began, in the kernel's ticks: with its number, which thread it is. 0 or
 * -errno. */
int proc__thread_started(const struct proc *p, pid_t tid, uint64_t *ret);
/* Has its main thread ended while others run? Then the kernel lets nobody read its maps, nor attach
 * to it by its PID. */
bool proc__lost_leader(pid_t pid);
/* Has it user shadow stacks (a second copy of all return addresses, x86-64)? Of its main thread;
 * others inherit it. */
bool proc__shadow_stack(const struct proc *p);
bool proc__says_shadow_stack(const char *status); /* the text of /proc/PID/status */
/*
 * Reads target memory: process_vm_readv, falling back to /proc/PID/mem. All or nothing: 0, -EFAULT
 * when any byte is unmapped, -ESRCH when the process ended, -EPERM. buf is undefined on failure.
 */
int proc__read(const struct proc *p, uint64_t addr, void *buf, size_t len);
int proc__read_u64(const struct proc *p, uint64_t addr, uint64_t *ret);
int proc__read_u32(const struct proc *p, uint64_t addr, uint32_t *ret);

/* One of many places to read: len bytes at addr into buf. err: 0, or -EFAULT, and then buf is
 * undefined. */
struct proc_piece {
	uint64_t addr;
	void *buf;
	size_t len;
	int err;
};
/*
 * Reads many pieces with few system calls; each is all or nothing by itself. 0 however many could
 * not be read, -ESRCH, -EPERM: then none counts.
 */
int proc__readv(const struct proc *p, struct proc_piece *v, size_t n);

#endif
