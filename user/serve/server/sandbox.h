/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Drops the rights of a process that talks to other machines or parses untrusted data, and
 * verifies the result. Irreversible. Call in a process that base/subprocess.h has started for it,
 * with few descriptors, limits and default signals, while it has one thread. */
#include <stdbool.h>
#include <sys/types.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANDBOX_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANDBOX_SANITIZED true
#endif
#endif
#ifndef SANDBOX_SANITIZED
#define SANDBOX_SANITIZED false
#endif

enum drop_flags {
	SANDBOX_CONNECTS = 1, /* may connect to other machines (push) */
	SANDBOX_THREADS = 2,  /* may start threads but no processes (push: name lookup) */
	SANDBOX_EXECS = 4,    /* will execute another program (workers); may start threads */
};

/* Rights that the process keeps. Each list of paths ends with NULL, and the list NULL has none.
 * Missing paths are skipped. A folder includes everything below it. */
struct sandbox_opts {
	/* User to change to, never root. Ignored if the process is not root: it keeps its user. */
	uid_t uid;
	gid_t gid;
	unsigned flags;		     /* enum drop_flags, combined */
	const char *const *readable; /* files and folders the process may read */
	const char *const *writable; /* folders where it may read, create, write and remove files */
	const char *const *runnable; /* programs and library folders it may read and run */
};

/* Protections that are active. A kernel without Landlock or seccomp is not an error; any other
 * failure is. */
struct sandbox_done {
	int landlock; /* Landlock's version; 0: not in the kernel, or off */
	/* The bounding set of capabilities is empty. False: the process had no right to empty it;
	 * no_new_privs then prevents that a program regains capabilities from it. */
	bool bounding;
	bool filtered; /* seccomp filters system calls */
};

/* Paths for `runnable` and `readable` that dynamically linked programs need. */
extern const char *const sandbox_libraries[], *const sandbox_linking[];
/* Paths for `readable` that name lookup and certificate checks need. */
extern const char *const sandbox_names[];

/*
 * After the call, the process has:
 * - the given user and group, no capabilities, no_new_privs, umask 077
 * - no core file, not dumpable, no readable terminal
 * - only the given files (Landlock), no signals or abstract sockets to processes outside
 * - no system calls that the server does not need (seccomp): no new program, process, namespace,
 *   tracing or BPF; no new socket without SANDBOX_CONNECTS
 * Returns 0, or -errno with the failed step in why (at least 160 bytes); the process must then
 * exit. done may be NULL. With AddressSanitizer, the process stays dumpable and has no Landlock or
 * seccomp, because leak checking needs what they forbid.
 */
int sandbox__drop_rights(const struct sandbox_opts *o, struct sandbox_done *done, char *why);
