/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads /etc/passwd and /etc/group itself: the C library's own look-up loads shared libraries,
 * which a static program must not do. For users of other directories, such as LDAP, it asks getent,
 * a program of the host's C library.
 */
#include "lib/user.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/io.h"
#include "lib/subprocess.h"

#define GETENT "/usr/bin/getent"
#define GETENT_MS 10000
#define LINE 4096

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

/* Writes what "getent TABLE KEY" prints. False: it is not there, or does not know the key. */
static bool ask_getent(const char *table, const char *key, char *text, size_t room)
{
	struct subprocess_opts o = { .program = GETENT,
				     .argv = (const char *[]){ "getent", table, "--", key, NULL },
				     .empty_env = true,
				     .group = SUBPROCESS_OWN_SESSION };
	struct subprocess p;
	int status = -1;
	ssize_t n = -1;

	if (access(GETENT, X_OK))
		return false;
	o.out = memfd_create("memtrace-bpf-getent", MFD_CLOEXEC);
	if (o.out < 0)
		return false;
	if (!subprocess__start(&o, &p)) {
		if (!subprocess__wait(&p, GETENT_MS, &status))
			subprocess__kill(&p);
		n = io__pread(o.out, text, room - 1, 0);
	}
	close(o.out);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 && !status;
}

/* The user of this name or, if name is NULL, of this ID. */
static int find_in(FILE *f, const char *name, uid_t uid, struct user *u)
{
	const struct passwd *pw;

	while ((pw = fgetpwent(f)))
		if (name ? !strcmp(pw->pw_name, name) : pw->pw_uid == uid)
			return fill_user(u, pw);
	return -ENOENT;
}

static int find(const char *name, uid_t uid, struct user *u)
{
	char text[LINE], number[16];
	FILE *f = fopen("/etc/passwd", "re");
	int err = f ? find_in(f, name, uid, u) : -ENOENT;

	if (f)
		fclose(f);
	if (err != -ENOENT)
		return err;
	snprintf(number, sizeof(number), "%u", uid);
	if (!ask_getent("passwd", name ? name : number, text, sizeof(text)))
		return -ENOENT;
	f = fmemopen(text, strlen(text), "r");
	if (!f)
		return -errno;
	err = find_in(f, name, uid, u);
	fclose(f);
	return err;
}

int user__named(struct user *u, const char *name)
{
	int err = find(name, 0, u);
	uid_t uid;

	return err == -ENOENT && parse_uid(name, &uid) ? find(NULL, uid, u) : err;
}

int user__behind_sudo(struct user *u, bool *ret)
{
	const char *uid_text = getenv("SUDO_UID"), *gid_text = getenv("SUDO_GID");
	uid_t uid, gid;
	int err;

	*ret = false;
	if (geteuid() || !uid_text)
		return 0;
	if (!parse_uid(uid_text, &uid))
		return -EINVAL;
	if (!uid)
		return 0;
	err = find(NULL, uid, u);
	if (err == -ENOENT && gid_text && parse_uid(gid_text, &gid)) {
		*u = (struct user){ uid, gid, "", "/", "/bin/sh" };
		err = 0;
	}
	*ret = !err;
	return err;
}

static bool is_member(const struct group *g, const char *name)
{
	for (char **member = g->gr_mem; *member; member++)
		if (!strcmp(*member, name))
			return true;
	return false;
}

/* Adds the user's groups of /etc/group. */
static int add_groups_of_file(const struct user *u, gid_t *groups, int n)
{
	FILE *f = fopen("/etc/group", "re");
	const struct group *g;

	while (f && n < NGROUPS_MAX && (g = fgetgrent(f)))
		if (g->gr_gid != u->gid && is_member(g, u->name))
			groups[n++] = g->gr_gid;
	if (f)
		fclose(f);
	return n;
}

static int set_groups(const struct user *u)
{
	gid_t *groups = malloc(NGROUPS_MAX * sizeof(*groups));
	int n = 1, err;

	if (!groups)
		return -ENOMEM;
	groups[0] = u->gid;
	if (*u->name)
		n = add_groups_of_file(u, groups, n);
	err = setgroups(n, groups) ? -errno : 0;
	free(groups);
	return err;
}

int user__become(const struct user *u)
{
	int err;

	if (u->uid == getuid() && u->uid == geteuid())
		return 0;
	err = set_groups(u);
	if (err)
		return err;
	if (setresgid(u->gid, u->gid, u->gid) || setresuid(u->uid, u->uid, u->uid))
		return -errno;
	return 0;
}
