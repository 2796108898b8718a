/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_USER_H
#define MT_LIB_USER_H
/* Users of the system, whom a process of ours may become. */
#include <stdbool.h>
#include <sys/types.h>

struct user {
	uid_t uid;
	gid_t gid;
	char name[64], home[256], shell[128];
};

/*
 * The user behind sudo if we are root through sudo; *ret is false if there is none. 0; -ENOENT: no
 * such user; -EINVAL: sudo's variable names no user.
 */
int user__behind_sudo(struct user *u, bool *ret);
/* The user with this name or number. 0; -ENOENT: no such user; -EINVAL: a text of the user's is too
 * long. */
int user__named(struct user *u, const char *name);
/* Becomes the user, with the user's groups, for good. 0 or -errno. */
int user__become(const struct user *u);

#endif
