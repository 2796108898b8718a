/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Actions that are impossible after dropping rights: a child tries each and reports the result. */
#include "unit/cmocka.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/sandbox_attempt.h"
#include "serve/server/sandbox.h"

static char folder[64], inside[96];

static bool has_landlock(void)
{
	return !SANDBOX_SANITIZED && syscall(SYS_landlock_create_ruleset, NULL, 0, 1) > 0;
}

/* ---- identity ---- */

static uint64_t status_figure(const char *name, int base)
{
	char text[8192];
	ssize_t n = pread(status_fd, text, sizeof(text) - 1, 0);
	const char *at;

	if (n < 0)
		_exit(98);
	text[n] = '\0';
	at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, base) : UINT64_MAX;
}

static int try_identity(const struct sandbox_done *done)
{
	static const char *const none[] = { "CapInh:", "CapPrm:", "CapEff:", "CapAmb:" };
	struct rlimit core;

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		if (status_figure(none[i], 16))
			return 1 + i;
	}
	if (done->bounding && status_figure("CapBnd:", 16))
		return 10;
	if (status_figure("NoNewPrivs:", 10) != 1)
		return 11;
	if (done->filtered && status_figure("Seccomp:", 10) != 2)
		return 12;
	if (!SANDBOX_SANITIZED && !done->filtered)
		return 13;
	if (!getuid() || !geteuid() || getuid() != geteuid())
		return 14;
	if (!setuid(0) || !seteuid(0) || !setgid(0) || !setegid(0) || !setgroups(0, NULL))
		return 15;
	if (umask(0) != 077)
		return 16;
	if (getrlimit(RLIMIT_CORE, &core) || core.rlim_cur || core.rlim_max)
		return 17;
	if (!SANDBOX_SANITIZED && prctl(PR_GET_DUMPABLE))
		return 18;
	return PASSED;
}

/* CAP_SETPCAP, which a container may lack. */
static bool may_empty;

static int try_nobody(const struct sandbox_done *done)
{
	if (getuid() != NOBODY || getgid() != NOBODY || getgroups(0, NULL))
		return 30;
	return done->bounding == may_empty ? try_identity(done) : 31;
}

static void test_identity(void **state)
{
	struct attempt a = { nobody(0), geteuid() ? try_identity : try_nobody };

	status_fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	may_empty = status_figure("CapEff:", 16) >> CAP_SETPCAP & 1;
	close(status_fd);
	expect(a, PASSED);
	a.opts.flags = SANDBOX_EXECS;
	expect(a, PASSED);
	a.opts.flags = SANDBOX_CONNECTS | SANDBOX_THREADS;
	expect(a, PASSED);
}

/* If root cannot become another user, nothing runs with the remaining rights. */
static void test_never_root(void **state)
{
	struct attempt a = { { .uid = 0, .gid = NOBODY }, try_identity };

	if (geteuid())
		skip();
	expect(a, REFUSED);
	a.opts.uid = NOBODY;
	a.opts.gid = 0;
	expect(a, REFUSED);
}

/* ---- files ---- */

static int try_no_files(const struct sandbox_done *done)
{
	static const char *const there[] = {
		"/",	    "/etc/passwd", "/proc/self/status", "/proc/self/maps", "/dev/null",
		"/usr/lib", "/tmp"
	};

	for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++) {
		if (open(there[i], O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
			return 1 + i;
	}
	if (open(inside, O_RDONLY) >= 0 || openat(AT_FDCWD, "x", O_CREAT | O_WRONLY, 0600) >= 0 ||
	    !mkdir("/tmp/memtrace-never", 0700))
		return 20;
	if (!unlink(inside) || !rename(inside, "/tmp/memtrace-never") ||
	    !link(inside, "/tmp/memtrace-never") || !symlink("x", "/tmp/memtrace-never"))
		return 21;
	return PASSED;
}

static void test_no_files(void **state)
{
	struct attempt a = { nobody(0), try_no_files };

	if (SANDBOX_SANITIZED)
		skip();
	expect(a, PASSED);
}

/* Landlock: access to some files only. */
static int try_own_folder(const struct sandbox_done *done)
{
	char path[128];
	int fd = open(inside, O_RDONLY);

	if (done->landlock < 1)
		return 1;
	if (fd < 0)
		return 2;
	snprintf(path, sizeof(path), "%s/made", folder);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	if (fd < 0 || write(fd, "x", 1) != 1 || unlink(path))
		return 3;
	if (mkdir(path, 0700) == 0 || symlink("/etc", path) == 0 || mkfifo(path, 0600) == 0)
		return 4;
	if (open("/etc/passwd", O_RDONLY) >= 0 || open("/", O_RDONLY) >= 0 ||
	    open("/proc/self/status", O_RDONLY) >= 0)
		return 5;
	snprintf(path, sizeof(path), "%s/../../etc/passwd", folder);
	if (open(path, O_RDONLY) >= 0)
		return 6;
	snprintf(path, sizeof(path), "%s/out", folder); /* a symbolic link to /etc/passwd */
	if (open(path, O_RDONLY) >= 0)
		return 7;
	return PASSED;
}

static int try_reading_alone(const struct sandbox_done *done)
{
	char path[128];

	if (open(inside, O_RDONLY) < 0)
		return 1;
	snprintf(path, sizeof(path), "%s/made", folder);
	if (open(inside, O_RDWR) >= 0 || open(path, O_CREAT | O_WRONLY, 0600) >= 0 ||
	    !unlink(inside) || !truncate(inside, 0))
		return 2;
	return PASSED;
}

static void test_own_folder(void **state)
{
	const char *paths[] = { folder, "/nowhere/at/all", NULL };
	struct attempt a = { nobody(0), try_own_folder };

	if (!has_landlock())
		skip();
	a.opts.writable = paths;
	expect(a, PASSED);
	a.opts.writable = NULL;
	a.opts.readable = paths;
	a.try = try_reading_alone;
	expect(a, PASSED);
}

/* ---- other processes ---- */

static pid_t bystander; /* a process of the same user outside of the sandbox */

static int try_others(const struct sandbox_done *done)
{
	struct iovec v = { &status_fd, sizeof(status_fd) };
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1
	};

	if (!kill(bystander, 0) || !kill(bystander, SIGTERM) ||
	    !syscall(SYS_tgkill, bystander, bystander, SIGTERM))
		return 1;
	if (!ptrace(PTRACE_SEIZE, bystander, NULL, NULL) || !ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return 2;
	if (process_vm_readv(bystander, &v, 1, &v, 1, 0) >= 0)
		return 3;
	if (syscall(SYS_pidfd_open, bystander, 0) >= 0)
		return 4;
	if (syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)) >= 0)
		return 5;
	if (!unshare(CLONE_NEWUSER) || !mount("x", "/tmp", "tmpfs", 0, NULL) || !chroot("/tmp"))
		return 6;
	if (syscall(SYS_io_uring_setup, 1, NULL) >= 0 || errno != EPERM)
		return 7;
	if (!prlimit(bystander, RLIMIT_CORE, &(struct rlimit){ 0, 0 }, NULL))
		return 8;
	if (getrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }))
		return 9;
	/* Resources shared by a user's processes. */
	if (shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600) >= 0 || errno != EPERM)
		return 10;
	if (semget(IPC_PRIVATE, 1, IPC_CREAT | 0600) >= 0 || errno != EPERM)
		return 11;
	if (msgget(IPC_PRIVATE, IPC_CREAT | 0600) >= 0 || errno != EPERM)
		return 12;
	if (syscall(SYS_mq_open, "test-drop", O_CREAT | O_RDWR, 0600, NULL) >= 0 || errno != EPERM)
		return 13;
	if (syscall(SYS_io_setup, 1, &(unsigned long){ 0 }) >= 0 || errno != EPERM)
		return 14;
	return PASSED;
}

static void test_others(void **state)
{
	struct attempt a = { nobody(0), try_others };

	if (SANDBOX_SANITIZED)
		skip();
	bystander = fork();
	assert_true(bystander >= 0);
	if (!bystander) {
		if (!geteuid() && setresuid(NOBODY, NOBODY, NOBODY))
			_exit(1);
		pause();
		_exit(0);
	}
	expect(a, PASSED);
	a.opts.flags = SANDBOX_CONNECTS | SANDBOX_THREADS;
	expect(a, PASSED);
	a.opts.flags = SANDBOX_EXECS;
	expect(a, PASSED);
	assert_int_equal(kill(bystander, SIGKILL), 0);
	assert_int_equal(waitpid(bystander, NULL, 0), bystander);
}

/* ---- processes, threads, programs ---- */

static void *nothing(void *ctx)
{
	return ctx;
}

static bool thread_runs(void)
{
	pthread_t t;

	return !pthread_create(&t, NULL, nothing, NULL) && !pthread_join(t, NULL);
}

static bool process_runs(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	return pid > 0;
}

static int try_alone(const struct sandbox_done *done)
{
	if (thread_runs())
		return 1;
	if (process_runs() || syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) >= 0)
		return 2;
	execl("/bin/true", "true", NULL);
	return errno == EPERM ? PASSED : 3;
}

static int try_threads(const struct sandbox_done *done)
{
	if (!thread_runs())
		return 1;
	return process_runs() ? 2 : PASSED;
}

static int try_program(const struct sandbox_done *done)
{
	if (process_runs())
		return 1;
	if (has_landlock()) {
		execl("/bin/false", "false", NULL); /* executing a program that is not allowed */
		if (errno != EACCES)
			return 2;
	}
	dup2(status_fd, STDIN_FILENO);
	execl("/bin/sh", "sh", "-c",
	      "n=0; while read -r name value; do case $name in Cap[PEIA]*) [ $value = "
	      "0000000000000000 ] || exit 4; n=$((n + 1));; "
	      "NoNewPrivs:) [ $value = 1 ] || exit 5; n=$((n + 1));; esac; done; [ $n = 5 ] && "
	      "exit 42",
	      NULL);
	return 3;
}

static void test_processes(void **state)
{
	static const char *const programs[] = { "/bin/sh",  "/usr/bin/sh", "/lib", "/lib64",
						"/usr/lib", "/usr/lib64",  NULL };
	struct attempt a = { nobody(0), try_alone };

	if (SANDBOX_SANITIZED)
		skip();
	expect(a, PASSED);
	a.opts.flags = SANDBOX_THREADS | SANDBOX_CONNECTS;
	a.try = try_threads;
	expect(a, PASSED);
	a.opts.flags = SANDBOX_EXECS;
	a.opts.runnable = programs;
	a.opts.readable = sandbox_linking;
	a.try = try_program;
	expect(a, PASSED);
}

/* ---- sockets ---- */

static int listener, port;

static bool connects(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = port,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof(to));
}

static int try_no_connection(const struct sandbox_done *done)
{
	return connects() || socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ||
			       socket(AF_NETLINK, SOCK_RAW, 0) >= 0
		       ? 1
		       : PASSED;
}

static int try_connection(const struct sandbox_done *done)
{
	static const int never[] = { AF_UNIX, AF_PACKET, AF_ALG, AF_VSOCK,
				     AF_AX25, AF_UNSPEC, AF_KEY };
	struct sockaddr_in any = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	if (!connects())
		return 1;
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
		if (socket(never[i], SOCK_DGRAM, 0) >= 0 || errno != EPERM)
			return 10 + i;
	}
	if (socket(AF_INET6, SOCK_DGRAM, 0) < 0 && errno == EPERM)
		return 2;
	if (socket(AF_NETLINK, SOCK_RAW, 0) < 0)
		return 3;
	if (socket(AF_INET, SOCK_RAW, 1) >= 0)
		return 4;
	if (done->landlock >= 4 &&
	    !bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&any, sizeof(any)))
		return 5;
	return PASSED;
}

static void test_sockets(void **state)
{
	struct sockaddr_in any = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(any);
	struct attempt a = { nobody(0), try_no_connection };

	if (SANDBOX_SANITIZED)
		skip();
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(
		bind(listener, (struct sockaddr *)&any, sizeof(any)) || listen(listener, 4), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&any, &len), 0);
	port = any.sin_port;
	expect(a, PASSED);
	a.opts.flags = SANDBOX_EXECS;
	expect(a, PASSED);
	a.opts.flags = SANDBOX_CONNECTS | SANDBOX_THREADS;
	a.try = try_connection;
	expect(a, PASSED);
	close(listener);
}

/* ---- */

static int set_up(void **state)
{
	char path[96];
	int fd;

	strcpy(folder, "/tmp/memtrace-test-XXXXXX");
	if (!mkdtemp(folder) || chmod(folder, 0777))
		return -1;
	snprintf(inside, sizeof(inside), "%s/inside", folder);
	fd = open(inside, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
	snprintf(path, sizeof(path), "%s/out", folder);
	return fd < 0 || fchmod(fd, 0666) || close(fd) || symlink("/etc/passwd", path);
}

static int tear_down(void **state)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/out", folder);
	return unlink(path) || unlink(inside) || rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_identity), cmocka_unit_test(test_never_root),
		cmocka_unit_test(test_no_files), cmocka_unit_test(test_own_folder),
		cmocka_unit_test(test_others),	 cmocka_unit_test(test_processes),
		cmocka_unit_test(test_sockets),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
