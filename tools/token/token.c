/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * memtrace-bpf-token: root runs a command as another user, in a user namespace where that user can
 * load and attach BPF programs of memtrace-bpf's kinds with a BPF token (Linux 6.9 and newer).
 * docs/guide/containers.md describes what that allows.
 *
 * Two processes do it. The kernel wants the file system that tokens come from opened within the
 * user namespace, and its options set by root outside of it. So the child makes the namespaces and
 * opens the file system, the parent sets the options, and the child mounts it.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/subprocess.h"
#include "base/user.h"

#define PLACE "/sys/fs/bpf" /* libbpf looks for a token here */
/* MS_REC and MS_SLAVE: in some C libraries their header and linux/mount.h exclude each other. */
#define MOUNT_REC 0x4000ul
#define MOUNT_SLAVE (1ul << 19)
#define GROUPS_MAX 4096
#define FAILED 125 /* as env(1) and timeout(1): the command was not run */

/*
 * The delegated kinds, include/uapi/linux/bpf.h: bits of enum bpf_cmd, bpf_map_type,
 * bpf_prog_type and bpf_attach_type. These are the kinds that memtrace-bpf loads, but for
 * --on-kill. libbpf tests the kernel with socket filters and tracepoints.
 */
static const struct {
	const char *option, *mask;
} delegated[] = {
	/* MAP_CREATE 0, PROG_LOAD 5, BTF_LOAD 18 */
	{ "delegate_cmds", "0x40021" },
	/* HASH 1, ARRAY 2, PERCPU_HASH 5, PERCPU_ARRAY 6, RINGBUF 27, TASK_STORAGE 29 */
	{ "delegate_maps", "0x28000066" },
	/* SOCKET_FILTER 1, KPROBE 2, TRACEPOINT 5, TRACING 26 */
	{ "delegate_progs", "0x4000026" },
	/* none 0, TRACE_RAW_TP 23, TRACE_UPROBE_MULTI 48 */
	{ "delegate_attachs", "0x1000000800001" },
};

/* The capabilities of the command, which hold within the namespace only. */
static const unsigned caps[] = { CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH };

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fputs("memtrace-bpf-token: ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
	_exit(FAILED);
}

static void send_fd(int to, int fd)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control = { 0 };
	char byte = 0;
	struct iovec io = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = { .msg_iov = &io,
			      .msg_iovlen = 1,
			      .msg_control = control.space,
			      .msg_controllen = sizeof(control.space) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(to, &msg, 0) != 1)
		die("cannot pass a descriptor: %s", strerror(errno));
}

/* Returns the descriptor. Ends this process if the other one has ended, which has said why. */
static int receive_fd(int from)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control = { 0 };
	char byte;
	struct iovec io = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = { .msg_iov = &io,
			      .msg_iovlen = 1,
			      .msg_control = control.space,
			      .msg_controllen = sizeof(control.space) };
	struct cmsghdr *c;
	int fd;

	if (recvmsg(from, &msg, MSG_CMSG_CLOEXEC) != 1)
		_exit(FAILED);
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		_exit(FAILED);
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		die("cannot write %s: %s", path, strerror(errno));
	close(fd);
}

/* Maps the user and all of the user's groups to themselves, and nothing else. */
static void map_ids(pid_t child, const struct passwd *user)
{
	gid_t groups[GROUPS_MAX];
	char path[64], *text;
	int n = GROUPS_MAX, i;
	size_t size;
	FILE *f;

	if (getgrouplist(user->pw_name, user->pw_gid, groups, &n) < 0)
		die("%s is in more than %d groups", user->pw_name, GROUPS_MAX);
	f = open_memstream(&text, &size);
	if (!f)
		die("out of memory");
	for (i = 0; i < n; i++)
		fprintf(f, "%u %u 1\n", groups[i], groups[i]);
	fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)child);
	write_file(path, text);
	free(text);
	if (asprintf(&text, "%u %u 1\n", user->pw_uid, user->pw_uid) < 0)
		die("out of memory");
	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)child);
	write_file(path, text);
	free(text);
}

/* Sets the options of the opened file system and mounts it nowhere yet. Returns a descriptor. */
static int make_mount(int fs)
{
	size_t i;
	long fd;

	for (i = 0; i < sizeof(delegated) / sizeof(delegated[0]); i++) {
		if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, delegated[i].option,
			    delegated[i].mask, 0))
			die("this kernel refuses the option %s of the BPF file system: %s; BPF "
			    "tokens need Linux 6.9 or newer, and root outside of user namespaces",
			    delegated[i].option, strerror(errno));
	}
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		die("cannot make a BPF file system: %s", strerror(errno));
	fd = syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
	if (fd < 0)
		die("cannot mount the BPF file system: %s", strerror(errno));
	return (int)fd;
}

static void keep_caps(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	size_t i, n = sizeof(caps) / sizeof(caps[0]);
	bool keep;

	for (unsigned cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
		keep = false;
		for (i = 0; i < n; i++)
			keep |= caps[i] == cap;
		if (!keep && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))
			die("cannot drop capability %u: %s", cap, strerror(errno));
	}
	for (i = 0; i < n; i++)
		data[caps[i] / 32].permitted |= 1u << (caps[i] % 32);
	for (i = 0; i < 2; i++)
		data[i].effective = data[i].inheritable = data[i].permitted;
	if (syscall(SYS_capset, &h, data))
		die("cannot set capabilities: %s", strerror(errno));
	for (i = 0; i < n; i++) {
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, caps[i], 0, 0))
			die("cannot keep capability %u: %s", caps[i], strerror(errno));
	}
}

static void become(const struct passwd *user)
{
	gid_t groups[GROUPS_MAX];
	int n = GROUPS_MAX;

	if (getgrouplist(user->pw_name, user->pw_gid, groups, &n) < 0 ||
	    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups((size_t)n, groups) ||
	    setresgid(user->pw_gid, user->pw_gid, user->pw_gid) ||
	    setresuid(user->pw_uid, user->pw_uid, user->pw_uid))
		die("cannot become %s: %s", user->pw_name, strerror(errno));
	keep_caps();
}

/* Root owns the namespace, so the user gets no more capabilities in it than keep_caps() leaves. */
static void make_namespaces(void)
{
	if (!unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return;
	die("cannot make a user namespace: %s; %s", strerror(errno),
	    errno == EPERM ? "the kernel allows none in a chroot"
			   : "sysctl user.max_user_namespaces limits them");
}

static void attach_mount(int mnt)
{
	if (syscall(SYS_mount, NULL, "/", NULL, MOUNT_REC | MOUNT_SLAVE, NULL) ||
	    syscall(SYS_move_mount, mnt, "", AT_FDCWD, PLACE, MOVE_MOUNT_F_EMPTY_PATH))
		die("cannot mount the BPF file system on " PLACE ": %s", strerror(errno));
}

__attribute__((noreturn)) static void child(int parent, pid_t parent_pid, const struct passwd *user,
					    char **command)
{
	int fs, err;

	make_namespaces();
	fs = (int)syscall(SYS_fsopen, "bpf", FSOPEN_CLOEXEC);
	if (fs < 0)
		die("cannot open the BPF file system: %s", strerror(errno));
	send_fd(parent, fs);
	attach_mount(receive_fd(parent));
	err = user__guard_terminal();
	if (err)
		die("cannot protect root's terminal from %s: %s", user->pw_name, strerror(-err));
	become(user);
	/* Only now: a change of user clears it. */
	if (prctl(PR_SET_PDEATHSIG, SIGHUP, 0, 0, 0) || getppid() != parent_pid)
		_exit(FAILED);
	/* Root's other variables and open files may be secret. */
	user__keep_variables("");
	err = subprocess__close_others(NULL, 0);
	if (err)
		die("cannot close root's descriptors: %s", strerror(-err));
	if (setenv("HOME", user->pw_dir, 1) || setenv("USER", user->pw_name, 1) ||
	    setenv("LOGNAME", user->pw_name, 1) || setenv("SHELL", user->pw_shell, 1))
		die("out of memory");
	execvp(command[0], command);
	die("cannot run %s: %s", command[0], strerror(errno));
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			die("cannot wait for the command: %s", strerror(errno));
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static const struct passwd *find_user(const char *name)
{
	const struct passwd *user = getpwnam(name);
	char *end;
	unsigned long uid;

	if (!user) {
		uid = strtoul(name, &end, 10);
		user = *name && !*end && uid < UINT32_MAX ? getpwuid((uid_t)uid) : NULL;
	}
	if (!user)
		die("no user %s", name);
	if (!user->pw_uid)
		die("root needs no token: run the command itself");
	return user;
}

int main(int argc, char **argv)
{
	char *shell[] = { NULL, NULL };
	const struct passwd *user;
	pid_t pid, self = getpid();
	int pair[2];

	if (argc < 2 || argv[1][0] == '-') {
		fputs("Usage: sudo memtrace-bpf-token USER [COMMAND [ARG...]]\n"
		      "Runs the command (default: the user's shell) as USER, who can then record "
		      "processes\nstarted by it with memtrace-bpf, without root.\n",
		      argc > 1 && !strcmp(argv[1], "--help") ? stdout : stderr);
		return argc > 1 && !strcmp(argv[1], "--help") ? 0 : 64;
	}
	if (geteuid())
		die("only root can delegate BPF: run it with sudo");
	user = find_user(argv[1]);
	shell[0] = user->pw_shell;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		die("cannot make a socket: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		die("cannot fork: %s", strerror(errno));
	if (!pid) {
		close(pair[0]);
		child(pair[1], self, user, argc > 2 ? argv + 2 : shell);
	}
	close(pair[1]);
	/* The command gets the terminal's signals, too, and decides what they mean. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	pair[1] = receive_fd(pair[0]);
	map_ids(pid, user);
	send_fd(pair[0], make_mount(pair[1]));
	return wait_for(pid);
}
