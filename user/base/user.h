/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Users of the system. */
#include <stdbool.h>
#include <sys/types.h>

struct user {
	uid_t uid;
	gid_t gid;
	char name[64], home[256], shell[128];
};

/* Parses the numeric ID of a user or group. False: the text is not one. */
bool user__parse_id(const char *text, uid_t *ret);
/* Finds the user who ran sudo. *ret: true if this process is root by sudo. A user whom the host
 * does not know has the IDs from sudo and no name. Returns 0, -ENOENT (no such user) or -EINVAL
 * (SUDO_UID is no user ID). */
int user__behind_sudo(struct user *u, bool *ret);
/* Finds a user by name or ID. Returns 0, -ENOENT (no such user) or -EINVAL (a name or path of the
 * user is too long). */
int user__named(struct user *u, const char *name);
/* Finds a user by ID in /etc/passwd alone: starts no program. Returns as user__named(). */
int user__in_passwd(struct user *u, uid_t uid);
/* Makes this process run as the user, with the user's groups of /etc/group, irreversibly. If that
 * is another user, calls user__guard_terminal() first. Returns 0 or -errno. */
int user__become(const struct user *u);

/*
 * Call it before this process runs a program as another user. From then on, the kernel refuses
 * ioctl() with TIOCSTI and TIOCLINUX in this process and in all that it starts. These type into a
 * terminal, and a shell would read that as its input. Does nothing if the process has no terminal,
 * on descriptors 0 to 2 or as its controlling one. Without CAP_SYS_ADMIN it sets no_new_privs. On
 * a kernel without seccomp filters the process gets its own session, without a terminal. Returns 0
 * or -errno.
 */
int user__guard_terminal(void);
/* Removes all variables from the environment, since they may be secret, except basic ones (see
 * user.c) and those in names, a comma-separated list. A final "*" in a name matches any suffix. */
void user__keep_variables(const char *names);
