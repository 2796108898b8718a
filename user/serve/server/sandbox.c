/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve/server/sandbox_internal.h"

#define WHY 160

const char *const drop_libraries[] = { "/lib",	     "/lib64",	       "/usr/lib",
				       "/usr/lib64", "/usr/local/lib", NULL };
const char *const drop_linking[] = { "/etc/ld.so.cache",
				     "/etc/ld.so.preload",
				     "/usr/share/zoneinfo",
				     "/etc/localtime",
				     "/dev/null",
				     "/dev/urandom",
				     NULL };
const char *const drop_names[] = { "/etc/resolv.conf",
				   "/run/systemd/resolve",
				   "/etc/hosts",
				   "/etc/host.conf",
				   "/etc/nsswitch.conf",
				   "/etc/gai.conf",
				   "/etc/services",
				   "/etc/ssl",
				   "/etc/pki",
				   "/etc/ca-certificates",
				   "/usr/share/ca-certificates",
				   "/usr/local/share/ca-certificates",
				   "/usr/share/zoneinfo",
				   "/etc/localtime",
				   "/etc/gnutls",
				   "/dev/urandom",
				   NULL };

static int failed(char *why, const char *what, int err)
{
	snprintf(why, WHY, "%s: %s", what, strerror(-err));
	return err;
}

/* ---- the terminal ---- */

/*
 * Detaches from the controlling terminal, so that this process can neither read typed passwords nor
 * inject input (TIOCSTI). Terminals on standard output and error are reopened write-only; one that
 * cannot be reopened stays.
 */
static int leave_terminal(void)
{
	int tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY), other, err = 0;
	char name[32];

	if (tty >= 0) {
		if (ioctl(tty, TIOCNOTTY))
			err = -errno;
		close(tty);
	}
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && !err; fd++) {
		if (!isatty(fd))
			continue;
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		other = open(fd == STDIN_FILENO ? "/dev/null" : name,
			     (fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) | O_NOCTTY | O_CLOEXEC);
		if (other < 0)
			continue;
		if (dup2(other, fd) < 0)
			err = -errno;
		close(other);
	}
	return err;
}

/* ---- user, groups and capabilities ---- */

static int get_caps(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &h, data) ? -errno : 0;
}

/* Empties the bounding set; *ret: done. Without CAP_SETPCAP this is impossible, but no_new_privs
 * then prevents regaining capabilities. */
static int empty_bounding(bool *ret)
{
	struct __user_cap_data_struct data[2] = { 0 };
	int err = get_caps(data);

	*ret = false;
	if (err)
		return err;
	if (!(data[CAP_TO_INDEX(CAP_SETPCAP)].effective & CAP_TO_MASK(CAP_SETPCAP)))
		return 0;
	/* EINVAL: the kernel does not know this capability */
	for (int cap = 0; cap < 64; cap++) {
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EINVAL)
			return -errno;
	}
	if (prctl(PR_SET_SECUREBITS, SECURE_ALL_BITS | SECURE_ALL_LOCKS, 0, 0, 0))
		return -errno;
	*ret = true;
	return 0;
}

static int become(const struct sandbox_opts *o)
{
	if (geteuid() && getuid())
		return 0;
	if (!o->uid || !o->gid)
		return -EINVAL;
	if (setgroups(0, NULL) || setresgid(o->gid, o->gid, o->gid) ||
	    setresuid(o->uid, o->uid, o->uid))
		return -errno;
	return 0;
}

static int empty_caps(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &h, none) ? -errno : 0;
}

/* ---- verification ---- */

static const char *find_remaining_id(void)
{
	uid_t r, e, s;
	gid_t rg, eg, sg;

	if (getresuid(&r, &e, &s) || !r || r != e || e != s)
		return "the user";
	if (getresgid(&rg, &eg, &sg) || rg != eg || eg != sg)
		return "the group";
	/* Try before the seccomp filter is active, because its refusal would prove nothing. */
	if (!setresuid(-1, 0, -1) || !setresuid(0, -1, -1))
		return "the way back to root";
	return NULL;
}

static const char *find_remaining_right(const struct sandbox_opts *o, bool was_root, bool bounding)
{
	struct __user_cap_data_struct data[2] = { 0 };

	if (get_caps(data))
		return "capabilities";
	for (int i = 0; i < 2; i++) {
		if (data[i].effective || data[i].permitted || data[i].inheritable)
			return "capabilities";
	}
	for (int cap = 0; cap < 64; cap++) {
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) == 1)
			return "ambient capabilities";
		if (bounding && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
			return "the bounding set";
	}
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return "no_new_privs";
	if (!SANDBOX_SANITIZED && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0))
		return "dumpable";
	if (was_root && (getgroups(0, NULL) || getuid() != o->uid || getgid() != o->gid))
		return "the user and groups";
	return find_remaining_id();
}

/* Checks that Landlock works: the folder / must not be readable. */
static int check_files(void)
{
	int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	close(fd);
	return -EPERM;
}

static int give_up_ids(const struct sandbox_opts *o, bool *bounding, char *why)
{
	bool was_root = !geteuid() || !getuid();
	const char *left;
	int err = empty_bounding(bounding);

	if (err)
		return failed(why, "cannot empty the bounding set of capabilities", err);
	err = become(o);
	if (err)
		return failed(
			why,
			"cannot become the user without rights (needs CAP_SETUID and CAP_SETGID)",
			err);
	err = empty_caps();
	if (err)
		return failed(why, "cannot give up capabilities", err);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return failed(why, "cannot set no_new_privs", -errno);
	if (!SANDBOX_SANITIZED && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return failed(why, "cannot become undumpable", -errno);
	left = find_remaining_right(o, was_root, *bounding);
	if (!left)
		return 0;
	snprintf(why, WHY, "cannot give up %s", left);
	return -EPERM;
}

static int give_up_files(int rules, char *why)
{
	int err = sandbox__enforce_rules(rules);

	if (err)
		return failed(why, "Landlock", err);
	err = check_files();
	if (err)
		snprintf(why, WHY, "Landlock is on, but / is still readable");
	return err;
}

int sandbox__rights(const struct sandbox_opts *o, struct sandbox_done *ret, char *why)
{
	struct sandbox_done done = { 0 };
	int rules = -1, err = leave_terminal();

	umask(077);
	if (err)
		return failed(why, "cannot leave the terminal", err);
	if (setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }))
		return failed(why, "cannot forbid core files", -errno);
	/* Before changing the user, who may not be able to reach the paths. */
	if (!SANDBOX_SANITIZED)
		err = sandbox__make_rules(o, &rules, &done.landlock);
	if (err)
		return failed(why, "Landlock", err);
	err = give_up_ids(o, &done.bounding, why);
	if (!err && rules >= 0)
		err = give_up_files(rules, why);
	if (rules >= 0)
		close(rules);
	if (err)
		return err;
	if (!SANDBOX_SANITIZED) {
		err = sandbox__filter_calls(o);
		/* EINVAL, ENOSYS: the kernel has no seccomp */
		if (err && err != -EINVAL && err != -ENOSYS)
			return failed(why, "cannot filter system calls", err);
		done.filtered = !err;
	}
	if (ret)
		*ret = done;
	return 0;
}
