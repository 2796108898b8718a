/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_SANDBOX_H
#define MT_SERVE_SANDBOX_H
/*
 * Gives up what a process that speaks to the outside, or reads what others wrote, must not have:
 * for good, and looks afterwards whether it is gone. To be called in a child that has been forked
 * for it, while it has one thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum drop_flags {
	SANDBOX_CONNECTS = 1, /* may open connections to other machines (push) */
	SANDBOX_THREADS = 2,  /* may start threads, no processes (push: its resolver) */
	SANDBOX_EXECS = 4,    /* runs another program next (workers), which may start threads */
};

/* Paths are NULL-terminated arrays, NULL: none; what is not there is left out. A folder stands for
 * all below it. */
struct sandbox_opts {
	const char *who; /* "web", for messages */
	uid_t uid; /* whom to become where we are root, never root. Where we are not: not looked at,
		      we stay who we are */
	gid_t gid;
	unsigned flags;		     /* enum drop_flags */
	const char *const *readable; /* files and folders that may be read */
	const char *const
		*writable; /* folders in which files may be read, made, written and removed */
	const char *const *runnable; /* programs, and folders of libraries: may be read and run */
	const int *keep; /* descriptors that stay, besides 0, 1 and 2; all others are closed */
	size_t n_keep;
	int death_signal;     /* that we get when our parent ends; 0: none */
	pid_t parent;	      /* who that is: where it has ended already, so do we */
	uint64_t memory;      /* bytes of address space; 0: not bounded */
	uint64_t file_size;   /* bytes of a file that is written; 0: not bounded */
	unsigned cpu_seconds; /* 0: not bounded */
	unsigned files;	      /* descriptors; 0: as it is */
};

/* What could be had here. A kernel without Landlock is no error; the rest of what is asked for is,
 * where it fails. */
struct sandbox_done {
	int landlock;  /* its version; 0: the kernel has none, or it is off */
	bool bounding; /* the bounding set is empty; false: we had no right to empty it, and
			  no_new_privs stands for it */
	bool filtered; /* system calls are (seccomp) */
};

/* What a program needs that is linked with this one's libraries: for `runnable` and `readable`. */
extern const char *const drop_libraries[], *const drop_linking[];
/* What looking up names and checking certificates reads: for `readable`. */
extern const char *const drop_names[];

/*
 * Afterwards: user and groups as asked for, no capability in any set, no_new_privs, not dumpable,
 * no core file, signals as a program finds them at its start, none blocked, no controlling terminal
 * and none that can be read, umask 077; no files but those named (Landlock), no signal and no
 * abstract socket to the outside of it; no system call that none of ours needs (seccomp: no other
 * program, process, namespace, tracing, BPF, and without SANDBOX_CONNECTS no new socket). 0;
 * -errno, and *why says what could not be given up (why: at least 160 bytes): the process has to
 * end then. done may be NULL. Programs that are built with AddressSanitizer stay dumpable, with
 * neither Landlock nor seccomp: its search for leaks needs what these forbid.
 */
int sandbox__rights(const struct sandbox_opts *o, struct sandbox_done *done, char *why);

#endif
