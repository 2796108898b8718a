/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "lib/user.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int fill_user(struct user *u, const struct passwd *pw)
{
	*u = (struct user){ .uid = pw->pw_uid, .gid = pw->pw_gid };
	if ((size_t)snprintf(u->name, sizeof(u->name), "%s", pw->pw_name) >= sizeof(u->name) ||
	    (size_t)snprintf(u->home, sizeof(u->home), "%s", pw->pw_dir) >= sizeof(u->home) ||
	    (size_t)snprintf(u->shell, sizeof(u->shell), "%s", pw->pw_shell) >= sizeof(u->shell))
		return -EINVAL;
	return 0;
}

static bool parse_uid(const char *text, uid_t *ret)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno || *end || n >= UINT32_MAX)
		return false;
	*ret = n;
	return true;
}

int user__named(struct user *u, const char *name)
{
	const struct passwd *pw = getpwnam(name);
	uid_t uid;

	if (!pw && parse_uid(name, &uid))
		pw = getpwuid(uid);
	return pw ? fill_user(u, pw) : -ENOENT;
}

int user__behind_sudo(struct user *u, bool *ret)
{
	const char *text = getenv("SUDO_UID");
	const struct passwd *pw;
	uid_t uid;

	*ret = false;
	if (geteuid() || !text)
		return 0;
	if (!parse_uid(text, &uid))
		return -EINVAL;
	if (!uid)
		return 0;
	pw = getpwuid(uid);
	if (!pw)
		return -ENOENT;
	*ret = true;
	return fill_user(u, pw);
}

int user__become(const struct user *u)
{
	if (u->uid == getuid() && u->uid == geteuid())
		return 0;
	if (initgroups(u->name, u->gid) || setresgid(u->gid, u->gid, u->gid) ||
	    setresuid(u->uid, u->uid, u->uid))
		return -errno;
	return 0;
}
