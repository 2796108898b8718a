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

/* Finds the user behind sudo. *ret: true if this process is root by sudo. A user whom the host does
 * not know has the IDs from sudo and no name. Returns 0, -ENOENT (no such user) or -EINVAL
 * (SUDO_UID is no user ID). */
int user__behind_sudo(struct user *u, bool *ret);
/* Finds a user by name or ID. Returns 0, -ENOENT (no such user) or -EINVAL (a name or path of the
 * user is too long). */
int user__named(struct user *u, const char *name);
/* Changes this process to the user and the user's groups in /etc/group, irreversibly. Returns 0 or
 * -errno. */
int user__become(const struct user *u);
