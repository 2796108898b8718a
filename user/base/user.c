/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads /etc/passwd and /etc/group itself: the C library's own look-up loads shared libraries,
 * which a static program must not do. For users of other directories, such as LDAP, it asks getent,
 * a program of the host's C library.
 */
#include "base/user.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"
#include "base/subprocess.h"

#define GETENT "/usr/bin/getent"
#define GETENT_MS 10000 /* time for getent, ms */
#define LINE 4096	/* bytes of an entry of a user, at most */

/* Returns 0, or -EINVAL: a text of the entry is too long. */
static int fill_user(struct user *u, const struct passwd *pw)
{
	*u = (struct user){ .uid = pw->pw_uid, .gid = pw->pw_gid };
	if ((size_t)snprintf(u->name, sizeof(u->name), "%s", pw->pw_name) >= sizeof(u->name) ||
	    (size_t)snprintf(u->home, sizeof(u->home), "%s", pw->pw_dir) >= sizeof(u->home) ||
	    (size_t)snprintf(u->shell, sizeof(u->shell), "%s", pw->pw_shell) >= sizeof(u->shell))
		return -EINVAL;
	return 0;
}

bool user__parse_id(const char *text, uid_t *ret)
{
	unsigned long id;
	char *end;

	errno = 0;
	id = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno || *end || id >= UINT32_MAX)
		return false;
	*ret = id;
	return true;
}

/* Sets text to the output of "getent TABLE KEY". False: there is no getent, or it does not know
 * the key. */
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

/* Finds the user with this name or, if name is NULL, with this ID, in a file like /etc/passwd.
 * Returns 0, -ENOENT or -EINVAL. */
static int find_in_file(FILE *f, const char *name, uid_t uid, struct user *u)
{
	const struct passwd *pw;

	while ((pw = fgetpwent(f)))
		if (name ? !strcmp(pw->pw_name, name) : pw->pw_uid == uid)
			return fill_user(u, pw);
	return -ENOENT;
}

/* Like find_in_file(), in /etc/passwd. */
static int find_in_passwd(const char *name, uid_t uid, struct user *u)
{
	FILE *f = fopen("/etc/passwd", "re");
	int err = f ? find_in_file(f, name, uid, u) : -ENOENT;

	if (f)
		fclose(f);
	return err;
}

int user__in_passwd(struct user *u, uid_t uid)
{
	return find_in_passwd(NULL, uid, u);
}

/* Finds the user in /etc/passwd, otherwise by getent. Returns 0 or -errno: -ENOENT, or -EINVAL as
 * fill_user(). */
static int find_user(const char *name, uid_t uid, struct user *u)
{
	char text[LINE], uid_text[16];
	int err = find_in_passwd(name, uid, u);
	FILE *f;

	if (err != -ENOENT)
		return err;
	snprintf(uid_text, sizeof(uid_text), "%u", uid);
	if (!ask_getent("passwd", name ? name : uid_text, text, sizeof(text)))
		return -ENOENT;
	f = fmemopen(text, strlen(text), "r");
	if (!f)
		return -errno;
	err = find_in_file(f, name, uid, u);
	fclose(f);
	return err;
}

int user__named(struct user *u, const char *name)
{
	int err = find_user(name, 0, u);
	uid_t uid;

	return err == -ENOENT && user__parse_id(name, &uid) ? find_user(NULL, uid, u) : err;
}

int user__behind_sudo(struct user *u, bool *ret)
{
	const char *uid_text = getenv("SUDO_UID");
	const char *gid_text = getenv("SUDO_GID");
	uid_t uid, gid;
	int err;

	*ret = false;
	if (geteuid() || !uid_text)
		return 0;
	if (!user__parse_id(uid_text, &uid))
		return -EINVAL;
	if (!uid)
		return 0;
	err = find_user(NULL, uid, u);
	if (err == -ENOENT && gid_text && user__parse_id(gid_text, &gid)) {
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

/* Adds the user's groups of /etc/group to n groups. Returns the new number. */
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

/* Gives this process the groups of the user, and no others. Returns 0 or -errno. */
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

/* ---- the terminal ---- */

/* The architectures whose calls a 64-bit kernel accepts: its own, and the 32-bit one. x32 calls
 * have the number of an x86-64 call with a bit set. Kernels before 5.4 take X32_IOCTL without that
 * bit. */
#ifdef __x86_64__
#define ARCH_OURS AUDIT_ARCH_X86_64
#define ARCH_32 AUDIT_ARCH_I386
#define X32_BIT 0x40000000u
#define X32_IOCTL 514
#else
#define ARCH_OURS AUDIT_ARCH_AARCH64
#define ARCH_32 AUDIT_ARCH_ARM
#define X32_BIT 0u
#define X32_IOCTL SYS_ioctl
#endif
#define IOCTL_32 54 /* on i386 and on ARM */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_EQUAL(value, then, otherwise) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, then, otherwise)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)

/* A seccomp filter that refuses the two ioctl requests. The numbers in IF_EQUAL are the
 * instructions to skip. The kernel takes the low 32 bits of a request: on a little-endian machine,
 * the first half. */
static const struct sock_filter refuse_typing[] = {
	LOAD(arch),
	IF_EQUAL(ARCH_OURS, 3, 0),
	IF_EQUAL(ARCH_32, 0, 11),
	LOAD(nr),
	IF_EQUAL(IOCTL_32, 4, 7),
	LOAD(nr), /* ARCH_OURS */
	BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~X32_BIT),
	IF_EQUAL(SYS_ioctl, 1, 0),
	IF_EQUAL(X32_IOCTL, 0, 3),
	LOAD(args[1]), /* an ioctl */
	IF_EQUAL(TIOCSTI, 2, 0),
	IF_EQUAL(TIOCLINUX, 1, 0),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(SECCOMP_RET_ERRNO | EPERM),
	RETURN(SECCOMP_RET_KILL_PROCESS), /* an unknown architecture */
};

/* True if the process has a terminal, or if that is not known. */
static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	if (fd >= 0 || errno != ENXIO)
		return true;
	return isatty(STDIN_FILENO) || isatty(STDOUT_FILENO) || isatty(STDERR_FILENO);
}

/* Makes this process and its children subject to refuse_typing. Returns 0 or -errno. */
static int install_filter(void)
{
	struct sock_fprog prog = { .len = sizeof(refuse_typing) / sizeof(*refuse_typing),
				   .filter = (struct sock_filter *)refuse_typing };

	/* Without this flag, kernels before 5.16 slow the program down (speculative stores). */
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &prog)
		       ? -errno
		       : 0;
}

int user__guard_terminal(void)
{
	int err;

	if (!has_terminal())
		return 0;
	err = install_filter();
	/* A process without CAP_SYS_ADMIN must first give up the privileges of later programs. */
	if (err == -EACCES && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		err = install_filter();
	if (err != -EINVAL && err != -ENOSYS)
		return err;
	/* The kernel has no filters: leave the terminal. */
	return setsid() < 0 ? -errno : 0;
}

/* ---- the environment ---- */

/* True if the variable NAME=... is in the comma-separated list. */
static bool is_listed(const char *variable, const char *list)
{
	size_t len = strcspn(variable, "="), n;

	for (const char *at = list; *at; at += n + (at[n] == ',')) {
		n = strcspn(at, ",");
		if (n && at[n - 1] == '*' ? len >= n - 1 && !strncmp(variable, at, n - 1)
					  : n == len && !strncmp(variable, at, n))
			return true;
	}
	return false;
}

void user__keep_variables(const char *names)
{
	static const char always[] = "PATH,HOME,USER,LOGNAME,SHELL,LANG,LC_*,TZ,TERM,MEMTRACE_*,"
				     "PYTORCH_*,TORCH_*,CUDA_*,NVIDIA_*,OMP_NUM_THREADS";
	size_t kept = 0;

	for (size_t i = 0; environ && environ[i]; i++) {
		if (is_listed(environ[i], always) || is_listed(environ[i], names))
			environ[kept++] = environ[i];
	}
	if (environ)
		environ[kept] = NULL;
}

int user__become(const struct user *u)
{
	int err;

	if (u->uid == getuid() && u->uid == geteuid())
		return 0;
	err = user__guard_terminal();
	if (!err)
		err = set_groups(u);
	if (err)
		return err;
	if (setresgid(u->gid, u->gid, u->gid) || setresuid(u->uid, u->uid, u->uid))
		return -errno;
	return 0;
}
