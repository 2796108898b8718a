/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Denied system calls. A list of allowed calls would be stricter but break with each new C
 * library, and each process has a user of its own. This list has dangerous calls that the server's
 * processes never make. */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/server/sandbox_internal.h"

static const char *const never[] = {
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

static const char *const running[] = { "execve", "execveat" };

/* Files, in addition to Landlock, which does not cover all of these calls and may be missing. */
static const char *const opening[] = { "open",	"openat",   "openat2",
				       "chdir", "readlink", "readlinkat" };

static const char *const changing[] = {
	"creat",   "unlink",  "unlinkat",  "rename",   "renameat",  "renameat2",   "link",
	"linkat",  "symlink", "symlinkat", "mkdir",    "mkdirat",   "rmdir",	   "mknod",
	"mknodat", "chmod",   "fchmodat",  "chown",    "lchown",    "fchownat",	   "truncate",
	"utime",   "utimes",  "utimensat", "setxattr", "lsetxattr", "removexattr", "lremovexattr",
};

/* Denies the calls in names. Skips calls that this architecture does not have. */
static int refuse(scmp_filter_ctx ctx, const char *const *names, size_t n, int with)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]);

		if (nr >= 0)
			err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(with), nr, 0);
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

/* Denies sockets. With SANDBOX_CONNECTS allows internet sockets, and netlink for name lookup. */
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

int sandbox__filter_calls(const struct sandbox_opts *o)
{
	/* libseccomp's default kills a process that uses calls of another architecture or x32. */
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int err;

	if (!ctx)
		return -ENOMEM;
	err = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 1);
	if (!err)
		err = refuse(ctx, never, COUNT(never), EPERM);
	if (!err && !(o->flags & SANDBOX_EXECS))
		err = refuse(ctx, running, COUNT(running), EPERM);
	if (!err && !o->readable && !o->writable && !o->runnable)
		err = refuse(ctx, opening, COUNT(opening), EACCES);
	if (!err && !o->writable)
		err = refuse(ctx, changing, COUNT(changing), EACCES);
	if (!err)
		err = refuse_processes(ctx, o->flags);
	if (!err)
		err = refuse_sockets(ctx, o->flags);
	if (!err)
		err = refuse_to_others(ctx);
	if (!err)
		err = seccomp_load(ctx);
	seccomp_release(ctx);
	return err;
}
