/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/securebits.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Constants of include/uapi/linux/landlock.h, Linux 6.12 */
#define FS_TRUNCATE (UINT64_C(1) << 14)	 /* Landlock version 3 */
#define FS_IOCTL_DEV (UINT64_C(1) << 15) /* Landlock version 5 */
#define NET_BIND_TCP UINT64_C(1)	 /* Landlock version 4 */
#define NET_CONNECT_TCP UINT64_C(2)
#define SCOPE_ABSTRACT_SOCKETS UINT64_C(1) /* Landlock version 6 */
#define SCOPE_SIGNALS UINT64_C(2)

#define FS_FIRST ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1) /* all rights of Landlock version 1 */
#define FS_OF_FILES                                                                                \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE |                              \
	 LANDLOCK_ACCESS_FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)
#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_RUN (FS_READ | LANDLOCK_ACCESS_FS_EXECUTE)
#define FS_WRITE                                                                                   \
	(FS_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |                   \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | FS_TRUNCATE)
#define WHY_SIZE 160 /* size of an error message, in bytes */
#define CAPS 64	     /* bits of a capability set; the kernel knows fewer capabilities */

/* ---- system calls ---- */

/* Denied system calls. A list of allowed calls would be stricter but break with each new C
 * library, and each process has a user of its own. This list has dangerous calls that the server's
 * processes never make. */

static const char *const never_calls[] = {
	/* other processes and their memory */
	"ptrace",
	"process_vm_readv",
	"process_vm_writev",
	"process_madvise",
	"process_mrelease",
	"kcmp",
	"pidfd_open",
	"pidfd_getfd",
	"pidfd_send_signal",
	"kill",
	"tkill",
	"rt_sigqueueinfo",
	"rt_tgsigqueueinfo",
	"setpriority",
	"sched_setaffinity",
	/* kernel interfaces */
	"bpf",
	"perf_event_open",
	"userfaultfd",
	"io_uring_setup",
	"io_uring_enter",
	"io_uring_register",
	"keyctl",
	"add_key",
	"request_key",
	"kexec_load",
	"kexec_file_load",
	"init_module",
	"finit_module",
	"delete_module",
	"reboot",
	"syslog",
	"acct",
	"quotactl",
	"quotactl_fd",
	"swapon",
	"swapoff",
	"iopl",
	"ioperm",
	"modify_ldt",
	"personality",
	"settimeofday",
	"clock_settime",
	"clock_adjtime",
	"adjtimex",
	"sethostname",
	"setdomainname",
	"lookup_dcookie",
	"fanotify_init",
	"vhangup",
	"vmsplice",
	"move_pages",
	"migrate_pages",
	"mbind",
	"set_mempolicy",
	/* shared memory, semaphores and queues (System V), old asynchronous I/O */
	"shmget",
	"shmat",
	"shmdt",
	"shmctl",
	"semget",
	"semop",
	"semtimedop",
	"semctl",
	"msgget",
	"msgsnd",
	"msgrcv",
	"msgctl",
	"mq_open",
	"mq_unlink",
	"mq_timedsend",
	"mq_timedreceive",
	"mq_notify",
	"mq_getsetattr",
	"io_setup",
	"io_destroy",
	"io_submit",
	"io_cancel",
	"io_getevents",
	"io_pgetevents",
	/* mounts, namespaces and file handles */
	"mount",
	"umount2",
	"umount",
	"pivot_root",
	"chroot",
	"move_mount",
	"open_tree",
	"fsopen",
	"fsconfig",
	"fsmount",
	"fspick",
	"mount_setattr",
	"unshare",
	"setns",
	"open_by_handle_at",
	"name_to_handle_at",
	"memfd_secret",
	/* user, group and capabilities */
	"setuid",
	"setgid",
	"setreuid",
	"setregid",
	"setresuid",
	"setresgid",
	"setgroups",
	"setfsuid",
	"setfsgid",
	"capset",
	/* new processes; for clone see refuse_processes() */
	"fork",
	"vfork",
	"setsid",
	"setpgid",
};

static const char *const exec_calls[] = { "execve", "execveat" };

/* Files, in addition to Landlock, which does not cover all of these calls and may be missing. */
static const char *const open_calls[] = { "open",  "openat",   "openat2",
					  "chdir", "readlink", "readlinkat" };

static const char *const change_calls[] = {
	"creat",   "unlink",  "unlinkat",  "rename",   "renameat",  "renameat2",   "link",
	"linkat",  "symlink", "symlinkat", "mkdir",    "mkdirat",   "rmdir",	   "mknod",
	"mknodat", "chmod",   "fchmodat",  "chown",    "lchown",    "fchownat",	   "truncate",
	"utime",   "utimes",  "utimensat", "setxattr", "lsetxattr", "removexattr", "lremovexattr",
};

/* Makes the calls in names fail with an errno. Skips calls that this architecture lacks. */
static int refuse_calls(scmp_filter_ctx ctx, const char *const *names, size_t n, int error)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]);

		if (nr >= 0)
			err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(error), nr, 0);
	}
	return err;
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Denies new processes, but threads are also made by clone. clone3 passes its flags in memory,
 * which seccomp cannot read. ENOSYS makes the C library use clone. */
static int refuse_processes(scmp_filter_ctx ctx, unsigned flags)
{
	int err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);

	if (err)
		return err;
	if (!(flags & (SANDBOX_THREADS | SANDBOX_EXECS)))
		return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 0);
	return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
				SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
}

/* Denies sockets. With SANDBOX_CONNECTS allows internet sockets, and netlink for name lookup: a
 * rule compares with one number, so each other family up to netlink needs a rule. */
static int refuse_sockets(scmp_filter_ctx ctx, unsigned flags)
{
	int err;

	if (!(flags & SANDBOX_CONNECTS)) {
		err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 0);
		return err ? err
			   : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(connect), 0);
	}
	err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
			       SCMP_A0(SCMP_CMP_LT, AF_INET));
	if (!err)
		err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
				       SCMP_A0(SCMP_CMP_GT, AF_NETLINK));
	for (int family = AF_INET + 1; family < AF_NETLINK && !err; family++) {
		if (family != AF_INET6)
			err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
					       SCMP_A0(SCMP_CMP_EQ, family));
	}
	return err;
}

/* Denies signals and limits for other processes. abort() signals its own process, and the C
 * library reads its own limits with prlimit64. */
static int refuse_to_others(scmp_filter_ctx ctx)
{
	int err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(tgkill), 1,
				   SCMP_A0(SCMP_CMP_NE, (scmp_datum_t)getpid()));

	return err ? err
		   : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), 1,
				      SCMP_A0(SCMP_CMP_NE, 0));
}

/* Adds all rules. Returns 0 or -errno. */
static int add_rules(scmp_filter_ctx ctx, const struct sandbox_opts *o)
{
	bool opens = o->readable || o->writable || o->runnable;
	const struct {
		const char *const *calls;
		size_t n;
		int error;
		bool refused;
	} sets[] = {
		{ never_calls, COUNT(never_calls), EPERM, true },
		{ exec_calls, COUNT(exec_calls), EPERM, !(o->flags & SANDBOX_EXECS) },
		{ open_calls, COUNT(open_calls), EACCES, !opens },
		{ change_calls, COUNT(change_calls), EACCES, !o->writable },
	};
	int err;

	for (size_t i = 0; i < COUNT(sets); i++) {
		if (!sets[i].refused)
			continue;
		err = refuse_calls(ctx, sets[i].calls, sets[i].n, sets[i].error);
		if (err)
			return err;
	}
	err = refuse_processes(ctx, o->flags);
	if (err)
		return err;
	return refuse_sockets(ctx, o->flags) ?: refuse_to_others(ctx);
}

/* Enables the seccomp filter for this process. Returns 0 or -errno. */
static int filter_calls(const struct sandbox_opts *o)
{
	/* libseccomp's default kills a process that uses calls of another architecture or x32. */
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int err;

	if (!ctx)
		return -ENOMEM;
	err = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 1) ?: add_rules(ctx, o);
	if (!err)
		err = seccomp_load(ctx);
	seccomp_release(ctx);
	return err;
}

/* ---- files ---- */

/* Landlock by direct system calls: the C library has no wrappers, and old headers lack new
 * flags. */

/* struct landlock_ruleset_attr of Linux 6.12 */
struct rules {
	uint64_t fs, net, scoped;
};

/* The version of Landlock that the kernel has; 0: none, or Landlock is off. */
static int landlock_version(void)
{
	long v = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return v < 0 ? 0 : (int)v;
}

/* The size of struct rules that a kernel with version v of Landlock knows. */
static size_t size_of_rules(int v)
{
	if (v < 4)
		return offsetof(struct rules, net);
	return v < 6 ? offsetof(struct rules, scoped) : sizeof(struct rules);
}

/* Allows access to a file or to everything below a folder; nothing if the path does not exist. */
static int allow_path(int rules, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr beneath = { 0 };
	struct stat st;
	int fd = open(path, O_PATH | O_CLOEXEC), err = 0;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (fstat(fd, &st)) {
		err = -errno;
	} else {
		beneath.allowed_access = S_ISDIR(st.st_mode) ? access : access & FS_OF_FILES;
		beneath.parent_fd = fd;
		if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0))
			err = -errno;
	}
	close(fd);
	return err;
}

/* allow_path() for a list that ends with NULL; NULL: an empty one. Returns 0 or -errno. */
static int allow_paths(int rules, const char *const *paths, uint64_t access)
{
	int err = 0;

	for (; paths && *paths && !err; paths++)
		err = allow_path(rules, *paths, access);
	return err;
}

/* Creates the Landlock rules while the paths can still be opened. *ret: their descriptor, which the
 * caller closes; -1 if the kernel has no Landlock. Returns 0 or -errno. */
static int make_rules(const struct sandbox_opts *o, int *ret, int *ret_version)
{
	const struct {
		const char *const *paths;
		uint64_t access;
	} allowed[] = { { o->readable, FS_READ },
			{ o->writable, FS_WRITE },
			{ o->runnable, FS_RUN } };
	struct rules r = { .fs = FS_FIRST };
	int v = landlock_version(), fd, err;

	*ret = -1;
	*ret_version = v;
	if (v < 1)
		return 0;
	if (v >= 2)
		r.fs |= LANDLOCK_ACCESS_FS_REFER;
	if (v >= 3)
		r.fs |= FS_TRUNCATE;
	if (v >= 4)
		r.net = NET_BIND_TCP | (o->flags & SANDBOX_CONNECTS ? 0 : NET_CONNECT_TCP);
	if (v >= 5)
		r.fs |= FS_IOCTL_DEV;
	if (v >= 6)
		r.scoped = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS;
	fd = syscall(SYS_landlock_create_ruleset, &r, size_of_rules(v), 0);
	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < COUNT(allowed); i++) {
		err = allow_paths(fd, allowed[i].paths, allowed[i].access & r.fs);
		if (err) {
			close(fd);
			return err;
		}
	}
	*ret = fd;
	return 0;
}

/* Enforces the rules for this process. Returns 0 or -errno. */
static int enforce_rules(int fd)
{
	return syscall(SYS_landlock_restrict_self, fd, 0) ? -errno : 0;
}

/* ---- rights ---- */

const char *const sandbox_libraries[] = { "/lib",	"/lib64",	  "/usr/lib",
					  "/usr/lib64", "/usr/local/lib", NULL };
const char *const sandbox_linking[] = { "/etc/ld.so.cache",
					"/etc/ld.so.preload",
					"/usr/share/zoneinfo",
					"/etc/localtime",
					"/dev/null",
					"/dev/urandom",
					NULL };
const char *const sandbox_names[] = { "/etc/resolv.conf",
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

/* Writes to why what failed. Returns err. */
static int failed(char *why, const char *what, int err)
{
	snprintf(why, WHY_SIZE, "%s: %s", what, strerror(-err));
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
		if (fd == STDIN_FILENO)
			other = open("/dev/null", O_RDONLY | O_NOCTTY | O_CLOEXEC);
		else
			other = open(name, O_WRONLY | O_NOCTTY | O_CLOEXEC);
		if (other < 0)
			continue;
		if (dup2(other, fd) < 0)
			err = -errno;
		close(other);
	}
	return err;
}

/* ---- user, groups and capabilities ---- */

/* Reads the capabilities of this process. Returns 0 or -errno. */
static int get_caps(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &h, data) ? -errno : 0;
}

/* Empties the bounding set of capabilities. *ret: whether it is empty. Without CAP_SETPCAP this is
 * impossible, but no_new_privs then prevents regaining capabilities. */
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
	for (int cap = 0; cap < CAPS; cap++) {
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EINVAL)
			return -errno;
	}
	if (prctl(PR_SET_SECUREBITS, SECURE_ALL_BITS | SECURE_ALL_LOCKS, 0, 0, 0))
		return -errno;
	*ret = true;
	return 0;
}

/* Becomes the user without rights, if this process is root's. Returns 0 or -errno. */
static int change_user(const struct sandbox_opts *o)
{
	if (geteuid() && getuid())
		return 0; /* not root: the process keeps its user */
	if (!o->uid || !o->gid)
		return -EINVAL;
	if (setgroups(0, NULL) || setresgid(o->gid, o->gid, o->gid) ||
	    setresuid(o->uid, o->uid, o->uid))
		return -errno;
	return 0;
}

/* Gives up all capabilities. Returns 0 or -errno. */
static int empty_caps(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return syscall(SYS_capset, &h, none) ? -errno : 0;
}

/* ---- verification ---- */

/* Returns what the process still has of root's rights by its IDs, for a message; NULL: nothing. */
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

/* The first right that the process still has, for a message; NULL: none. */
static const char *find_remaining_right(const struct sandbox_opts *o, bool was_root, bool bounding)
{
	struct __user_cap_data_struct data[2] = { 0 };

	if (get_caps(data))
		return "capabilities";
	for (int i = 0; i < 2; i++) {
		if (data[i].effective || data[i].permitted || data[i].inheritable)
			return "capabilities";
	}
	for (int cap = 0; cap < CAPS; cap++) {
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

/* Gives up user, groups and capabilities, and checks that. *bounding: the bounding set is empty,
 * too. Returns 0, or -errno with why. */
static int give_up_ids(const struct sandbox_opts *o, bool *bounding, char *why)
{
	bool was_root = !geteuid() || !getuid();
	const char *left;
	int err = empty_bounding(bounding);

	if (err)
		return failed(why, "cannot empty the bounding set of capabilities", err);
	err = change_user(o);
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
	snprintf(why, WHY_SIZE, "cannot give up %s", left);
	return -EPERM;
}

/* Gives up files, and checks that. Returns 0, or -errno with why. */
static int give_up_files(int rules, char *why)
{
	int err = enforce_rules(rules);

	if (err)
		return failed(why, "Landlock", err);
	err = check_files();
	if (err)
		snprintf(why, WHY_SIZE, "Landlock is on, but / is still readable");
	return err;
}

int sandbox__drop_rights(const struct sandbox_opts *o, struct sandbox_done *ret, char *why)
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
		err = make_rules(o, &rules, &done.landlock);
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
		err = filter_calls(o);
		/* EINVAL, ENOSYS: the kernel has no seccomp */
		if (err && err != -EINVAL && err != -ENOSYS)
			return failed(why, "cannot filter system calls", err);
		done.filtered = !err;
	}
	if (ret)
		*ret = done;
	return 0;
}
