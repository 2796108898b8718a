/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inspect/proc.h"
#include "unit/scratch.h"

/* ---- maps ---- */

static int parse(const char *text, struct maps *m)
{
	return maps__parse(text, strlen(text), m);
}

static void test_maps_fields(void **state)
{
	static const char text[] = "55d1598ab000-55d1598ad000 r--p 00000000 fe:00 247026           "
				   "          /usr/bin/cat\n"
				   "55d1598ad000-55d1598b2000 r-xs 00002000 103:1f "
				   "18446744073709551615      /a b/c d\n"
				   "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n"
				   "7f0000001000-7f0000002000 ---p 00000000 00:00 0\n"
				   "7f0000002000-7f0000003000 rw-p 00000000 00:01 1024             "
				   "          /memfd:x (deleted)\n"
				   "7f0000003000-7f0000004000 rwxp 00000000 00:00 0                "
				   "          [anon: (deleted)]\n"
				   "7f0000004000-7f0000005000 r--p 00000000 fe:00 9                "
				   "          /new\\012line (deleted)\n"
				   "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0        "
				   "          [vsyscall]";
	struct maps m;

	assert_int_equal(parse(text, &m), 0);
	assert_int_equal(m.n, 8);
	assert_true(m.v[0].start == 0x55d1598ab000 && m.v[0].end == 0x55d1598ad000);
	assert_true(m.v[0].r && !m.v[0].w && !m.v[0].x && !m.v[0].deleted);
	assert_true(m.v[0].dev_major == 0xfe && m.v[0].dev_minor == 0 && m.v[0].inode == 247026);
	assert_string_equal(m.v[0].path, "/usr/bin/cat");
	assert_true(m.v[1].x && m.v[1].offset == 0x2000 && m.v[1].inode == UINT64_MAX);
	assert_true(m.v[1].dev_major == 0x103 && m.v[1].dev_minor == 0x1f);
	assert_string_equal(m.v[1].path, "/a b/c d");
	assert_string_equal(m.v[2].path, "");
	assert_string_equal(m.v[3].path, "");
	assert_true(m.v[4].deleted);
	assert_string_equal(m.v[4].path, "/memfd:x");
	assert_false(m.v[5].deleted);
	assert_true(m.v[5].r && m.v[5].w && m.v[5].x);
	assert_string_equal(m.v[6].path, "/new\\012line");
	assert_true(m.v[6].deleted);
	assert_true(m.v[7].start == 0xffffffffff600000);
	assert_string_equal(m.v[7].path, "[vsyscall]");
	maps__free(&m);
	assert_true(m.n == 0 && !m.v && !m.text);
}

static void test_maps_bad(void **state)
{
	static const char *const bad[] = {
		"\n",
		"x",
		"1000",
		"1000-",
		"1000-2000",
		"1000-2000 ",
		"1000-2000 r--",
		"1000-2000 r--q 0 0:0 0",
		"1000-2000 x--p 0 0:0 0",
		"1000-2000 r--p 0 0:0",
		"1000-2000 r--p 0 0:0 ",
		"1000-2000 r--p 0 00 0",
		"1000-2000 r--p 0 0:0 0/x",
		"1000-2000 r--p  0 0:0 0",
		"2000-1000 r--p 0 0:0 0",
		"1000-1000 r--p 0 0:0 0",
		"11111111111111111-2 r--p 0 0:0 0",
		"1000-2000 r--p 11111111111111111 0:0 0",
		"1000-2000 r--p 0 100000000:0 0",
		"1000-2000 r--p 0 0:100000000 0",
		"1000-2000 r--p 0 0:0 18446744073709551616",
		"-2000 r--p 0 0:0 0",
		"1000-2000 r--p 0 0:0 0 /ok\n\n",
		"1000-2000 r--p 0 0:0 0 /ok\nrest of a name with a newline\n",
	};
	struct maps m = { .n = 77 };
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (parse(bad[i], &m) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
	assert_int_equal(maps__parse("1000-2000 r--p 0 0:0 0 /a\0b\n", 28, &m), -EINVAL);
	assert_int_equal(m.n, 77);
	assert_int_equal(maps__parse("", 0, &m), 0);
	assert_int_equal(m.n, 0);
	assert_null(maps__find(&m, 0));
	maps__free(&m);
}

static void test_maps_find(void **state)
{
	struct maps m;

	/* out of order, unlike any kernel's: sorted */
	assert_int_equal(
		parse("5000-6000 r--p 0 0:0 0\n1000-2000 r--p 0 0:0 0\n2000-3000 r-xp 0 0:0 0\n",
		      &m),
		0);
	assert_null(maps__find(&m, 0xfff));
	assert_true(maps__find(&m, 0x1000) == &m.v[0]);
	assert_true(maps__find(&m, 0x1fff) == &m.v[0]);
	assert_true(maps__find(&m, 0x2000) == &m.v[1] && m.v[1].x);
	assert_null(maps__find(&m, 0x3000));
	assert_null(maps__find(&m, 0x4fff));
	assert_true(maps__find(&m, 0x5fff) == &m.v[2]);
	assert_null(maps__find(&m, 0x6000));
	assert_null(maps__find(&m, UINT64_MAX));
	maps__free(&m);
}

/* ---- a process ---- */

static struct proc *open_self(void)
{
	struct proc *p = proc__open(getpid());

	assert_non_null(p);
	return p;
}

static void test_self(void **state)
{
	char comm[64] = "";
	struct proc *p = open_self();
	const struct map *map;
	const char *cmd;
	struct maps m;
	size_t len;
	FILE *f;

	assert_int_equal(proc__pid(p), getpid());
	assert_true(proc__alive(p));
	f = fopen("/proc/self/comm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%63[^\n]", comm), 1);
	fclose(f);
	assert_string_equal(proc__comm(p), comm);
	cmd = proc__cmdline(p, &len);
	assert_true(len > 0 && cmd[len] == '\0' && strlen(cmd) < len);
	assert_int_equal(proc__maps(p, &m), 0);
	map = maps__find(&m, (uint64_t)(uintptr_t)&test_self);
	assert_true(map && map->x && map->inode);
	maps__free(&m);
	proc__free(p);
	proc__free(NULL);
}

/* Reads the calling process's own memory. */
static void check_reads(const struct proc *p)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t value = 0x1122334455667788, got = 1, addr;
	uint32_t got32 = 0;
	char *two, buf[64];

	assert_int_equal(proc__read_u64(p, (uint64_t)(uintptr_t)&value, &got), 0);
	assert_true(got == value);
	assert_int_equal(proc__read_u32(p, (uint64_t)(uintptr_t)&value, &got32), 0);
	assert_true(got32 == 0x55667788);
	two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(two != MAP_FAILED);
	memset(two, 'q', 2 * page);
	assert_int_equal(munmap(two + page, page), 0);
	addr = (uint64_t)(uintptr_t)two + page;
	assert_int_equal(proc__read(p, addr - 64, buf, 64), 0);
	assert_true(buf[0] == 'q' && buf[63] == 'q');
	/* the last byte is unmapped */
	assert_int_equal(proc__read(p, addr - 63, buf, 64), -EFAULT);
	got = 7;
	assert_int_equal(proc__read_u64(p, addr - 4, &got), -EFAULT);
	assert_int_equal(proc__read_u64(p, addr, &got), -EFAULT);
	assert_int_equal(proc__read_u64(p, 0, &got), -EFAULT);
	assert_int_equal(proc__read_u64(p, UINT64_MAX - 7, &got), -EFAULT);
	assert_int_equal(proc__read_u64(p, UINT64_MAX - 3, &got), -EFAULT);
	assert_int_equal(proc__read_u64(p, 1ull << 63, &got), -EFAULT);
	assert_int_equal(proc__read(p, 0, NULL, 0), 0);
	assert_true(got == 7);
	munmap(two, page);
}

/* Thousands of pieces, every seventh unreadable: all others are read. */
static void check_pieces(const struct proc *p)
{
	enum { N = 3000 };
	static uint64_t from[N], to[N];
	static struct proc_piece v[N];

	for (size_t i = 0; i < N; i++) {
		from[i] = i * 3 + 1;
		to[i] = 0;
		v[i] = (struct proc_piece){
			.addr = (uint64_t)(uintptr_t)&from[i], .buf = &to[i], .len = 8, .err = 1
		};
		if (i % 7 == 3)
			v[i].addr = i % 2 ? 8 : UINT64_MAX - 3;
		if (i == 1000)
			v[i].len = 0;
	}
	assert_int_equal(proc__readv(p, v, N), 0);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(v[i].err, i % 7 == 3 ? -EFAULT : 0);
		if (i % 7 != 3)
			assert_int_equal(to[i], i == 1000 ? 0 : i * 3 + 1);
	}
	assert_int_equal(proc__readv(p, v, 0), 0);
}

/* Pieces of four pages, the third unmapped, in rising, falling and mixed order, also over the
 * ends of pages: each has its own result, and the bytes between them stay out. */
static void check_pages(const struct proc *p)
{
	enum { N = 1500 };
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	static struct proc_piece v[N];
	static uint8_t to[N][64];
	uint8_t *from = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);

	assert_true(from != MAP_FAILED);
	for (size_t i = 0; i < 4 * page; i++)
		from[i] = (uint8_t)(i * 7 + i / page);
	assert_int_equal(munmap(from + 2 * page, page), 0);
	for (size_t order = 0; order < 3; order++) {
		memset(to, 0xee, sizeof(to));
		for (size_t i = 0; i < N; i++) {
			size_t k = order == 0 ? i : order == 1 ? N - 1 - i : i * 677 % N;

			v[i] = (struct proc_piece){
				.addr = (uint64_t)(uintptr_t)from + k * (4 * page - 64) / N,
				.buf = to[i],
				.len = 1 + k % 13,
			};
		}
		assert_int_equal(proc__readv(p, v, N), 0);
		for (size_t i = 0; i < N; i++) {
			size_t at = v[i].addr - (uint64_t)(uintptr_t)from, end = at + v[i].len;
			bool bad = end > 2 * page && at < 3 * page;

			assert_int_equal(v[i].err, bad ? -EFAULT : 0);
			for (size_t k = 0; k < 64 && !bad; k++)
				assert_int_equal(to[i][k], k < v[i].len ? (uint8_t)((at + k) * 7 +
										    (at + k) / page)
									: 0xee);
		}
	}
	munmap(from, 2 * page);
	munmap(from + 3 * page, page);
}

static void test_read(void **state)
{
	struct proc *p = open_self();

	check_reads(p);
	check_pieces(p);
	check_pages(p);
	proc__free(p);
}

/* A child without process_vm_readv() reads through /proc/PID/mem. */
static void test_read_fallback(void **state)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = 4, .filter = code };
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct proc *p;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
			_exit(77);
		p = proc__open(getpid());
		if (!p)
			_exit(2);
		check_reads(p);
		check_pieces(p);
		check_pages(p);
		_exit(0); /* a failed check ends the child with another status */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("SKIP: no seccomp filters here, /proc/PID/mem was not tried\n");
		skip();
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static pid_t spawn_sleeper(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		for (;;)
			pause();
	}
	return pid;
}

/* A child with this many mappings more, each of a page. */
static pid_t spawn_mapped(size_t n)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int done[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(done), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		char *at = mmap(NULL, n * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (size_t i = 0; i < n; i += 2)
			mprotect(at + i * page, page, PROT_READ | PROT_WRITE);
		if (write(done[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(done[0], &byte, 1), 1);
	close(done[0]);
	close(done[1]);
	return pid;
}

/* Reads a list of mappings until the child has been killed: each has all of them or is an error. */
static void check_killed(const char *name, unsigned delay)
{
	enum { N = 4000 };
	pid_t pid = spawn_mapped(N), killer;
	struct proc *p = proc__open(pid);
	int err;

	assert_non_null(p);
	killer = fork();
	assert_true(killer >= 0);
	if (!killer) {
		usleep(delay);
		kill(pid, SIGKILL);
		_exit(0);
	}
	for (err = 0; !err;) {
		size_t len, n = 0;
		char *text;

		err = proc__text(p, name, 64 << 20, &text, &len);
		for (size_t i = 0; !err && i < len; i++)
			n += text[i] == '\n';
		if (!err) {
			assert_true(n >= N);
			free(text);
		}
	}
	assert_int_equal(err, -ESRCH);
	assert_int_equal(waitpid(killer, NULL, 0), killer);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	proc__free(p);
}

static void test_killed_while_it_is_read(void **state)
{
	for (unsigned i = 0; i < 12; i++)
		check_killed(i % 2 ? "smaps" : "maps", 2000 + 700 * i);
}

static void test_death(void **state)
{
	pid_t pid = spawn_sleeper();
	struct pollfd pfd = { .events = POLLIN };
	static const uint64_t value = 5;
	uint64_t got = 0;
	struct proc_piece piece = { .addr = (uint64_t)(uintptr_t)&value,
				    .buf = &got,
				    .len = sizeof(got) };
	struct maps m = { .n = 9 };
	char name[32] = "keep";
	struct proc *p;
	siginfo_t info;

	p = proc__open(pid);
	assert_non_null(p);
	assert_true(proc__alive(p));
	/* reads the child's copy of the variable */
	assert_int_equal(proc__read_u64(p, (uint64_t)(uintptr_t)&value, &got), 0);
	assert_true(got == 5);
	assert_int_equal(proc__thread_comm(p, pid, name, sizeof(name)), 0);
	assert_string_equal(name, proc__comm(p));
	pfd.fd = proc__pidfd(p);
	assert_int_equal(poll(&pfd, 1, 0), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(poll(&pfd, 1, 0), 1);
	assert_false(proc__alive(p));
	assert_int_equal(proc__read_u64(p, (uint64_t)(uintptr_t)&value, &got), -ESRCH);
	assert_int_equal(proc__readv(p, &piece, 1), -ESRCH);
	assert_int_equal(proc__maps(p, &m), -ESRCH);
	assert_null(proc__open(pid)); /* a zombie cannot be opened */
	assert_int_equal(errno, ESRCH);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(proc__alive(p));
	assert_int_equal(proc__read_u64(p, (uint64_t)(uintptr_t)&value, &got), -ESRCH);
	assert_int_equal(proc__maps(p, &m), -ESRCH);
	assert_int_equal(m.n, 9);
	assert_int_equal(proc__thread_comm(p, pid, name, sizeof(name)), -ESRCH);
	assert_null(proc__open(pid));
	assert_int_equal(errno, ESRCH);
	proc__free(p);
}

struct thread_arg {
	pthread_barrier_t ready, done;
	pid_t tid;
};

static void *named_thread(void *arg)
{
	struct thread_arg *t = arg;

	prctl(PR_SET_NAME, "a) (thread\n");
	t->tid = (pid_t)syscall(SYS_gettid);
	pthread_barrier_wait(&t->ready);
	pthread_barrier_wait(&t->done);
	return NULL;
}

static void test_exec(void **state)
{
	int go[2], image, tries;
	struct proc *p;
	pid_t pid;
	char c;

	assert_int_equal(pipe(go), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (read(go[0], &c, 1) == 1)
			execl("/bin/sleep", "sleep", "60", (char *)NULL);
		_exit(1);
	}
	p = proc__open(pid);
	assert_non_null(p);
	image = proc__image(p);
	assert_true(image >= 0);
	assert_false(proc__image_gone(image));
	/* At a mapped address, since others make the kernel lock the map for writing. */
	assert_int_equal(pread(image, &c, 1, lseek(image, 0, SEEK_CUR)), 1);
	assert_int_equal(write(go[1], "x", 1), 1);
	for (tries = 0; tries < 500 && !proc__image_gone(image); tries++)
		usleep(10000);
	assert_true(proc__image_gone(image));
	close(image);
	image = proc__image(p);
	assert_true(image >= 0);
	assert_false(proc__image_gone(image)); /* the process now runs another program */
	close(image);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	proc__free(p);
	close(go[0]);
	close(go[1]);
}

static void test_zombie(void **state)
{
	siginfo_t info;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	assert_false(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
	assert_true(proc__is_zombie(pid));
	assert_false(proc__lost_leader(pid));
	assert_false(proc__is_zombie(getpid()));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(proc__is_zombie(pid));
}

static void test_thread(void **state)
{
	struct proc *p = open_self();
	struct thread_arg arg;
	char name[32] = "keep";
	pthread_t thread;

	pthread_barrier_init(&arg.ready, NULL, 2);
	pthread_barrier_init(&arg.done, NULL, 2);
	assert_int_equal(pthread_create(&thread, NULL, named_thread, &arg), 0);
	pthread_barrier_wait(&arg.ready);
	assert_int_equal(proc__thread_comm(p, arg.tid, name, sizeof(name)), 0);
	/* one newline is from the file, the other from the name */
	assert_string_equal(name, "a) (thread\n");
	assert_int_equal(proc__thread_comm(p, arg.tid, name, 3), 0);
	assert_string_equal(name, "a)");
	assert_null(proc__open(arg.tid)); /* a thread's id cannot be opened as a process */
	assert_int_equal(errno, ESRCH);
	pthread_barrier_wait(&arg.done);
	pthread_join(thread, NULL);
	proc__free(p);
}

static void test_maps_copy(void **state)
{
	struct maps m, copy;

	assert_int_equal(
		parse("1000-2000 r-xp 00000000 fe:00 7 /a b\n3000-4000 rw-p 00000000 00:00 0\n",
		      &m),
		0);
	assert_int_equal(maps__copy(&copy, &m), 0);
	maps__free(&m);
	assert_int_equal(copy.n, 2);
	assert_true(copy.v[0].x && copy.v[0].inode == 7 && copy.v[1].start == 0x3000);
	assert_string_equal(copy.v[0].path, "/a b");
	assert_string_equal(copy.v[1].path, "");
	maps__free(&copy);
}

/* A handle of an ended process must report the end, not another process with its PID. */
static void test_ended(void **state)
{
	struct proc *self = proc__open(getpid()), *p;
	struct pollfd fd = { .events = POLLIN };
	const char *line, *same;
	char name[32], word[8];
	struct maps m;
	size_t len, own;

	assert_non_null(self);
	p = proc__ended(getpid(), self);
	assert_non_null(p);
	assert_int_equal(proc__pid(p), getpid());
	assert_string_equal(proc__comm(p), proc__comm(self));
	line = proc__cmdline(p, &len);
	same = proc__cmdline(self, &own);
	assert_int_equal(len, own);
	assert_memory_equal(line, same, own);
	fd.fd = proc__pidfd(p);
	assert_int_equal(poll(&fd, 1, 0), 1);
	assert_false(proc__alive(p));
	assert_int_not_equal(proc__maps(p, &m), 0);
	assert_int_not_equal(proc__read(p, (uintptr_t)name, word, sizeof(word)), 0);
	assert_int_not_equal(proc__thread_comm(p, getpid(), name, sizeof(name)), 0);
	assert_true(proc__image(p) < 0);
	proc__free(p);
	proc__free(self);
}

/* Reads arg_start and arg_end, fields 48 and 49 of /proc/PID/stat (man proc_pid_stat). */
static bool own_arguments(unsigned long *start, unsigned long *end)
{
	char text[1024] = "", *at;
	FILE *f = fopen("/proc/self/stat", "r");

	if (!f)
		return false;
	at = fgets(text, sizeof(text), f) ? strrchr(text, ')') : NULL;
	fclose(f);
	for (int field = 2; at && field < 48; field++)
		at = strchr(at + 1, ' ');
	return at && sscanf(at, "%lu %lu", start, end) == 2;
}

struct hidden {
	int go, say;
};

/* Makes the arguments unreadable: /proc has none then, as while a process starts a program. A byte
 * from `go` brings them back. A byte to `say` follows each change. In a thread, since the main
 * thread's stack may share a page with them. */
static void *hide_arguments(void *ctx)
{
	const struct hidden *h = ctx;
	unsigned long start, end, page = (unsigned long)sysconf(_SC_PAGESIZE);
	char c;

	if (!own_arguments(&start, &end))
		_exit(1);
	start &= ~(page - 1);
	if (mprotect((void *)start, end - start, PROT_NONE) || write(h->say, "y", 1) != 1 ||
	    read(h->go, &c, 1) != 1 || mprotect((void *)start, end - start, PROT_READ | PROT_WRITE))
		_exit(1);
	_exit(write(h->say, "y", 1) != 1 || read(h->go, &c, 1) != 0);
}

static void test_arguments_come_late(void **state)
{
	int go[2], say[2], status;
	pthread_t thread;
	struct proc *p;
	size_t len;
	pid_t pid;
	char c;

	assert_int_equal(pipe2(go, O_CLOEXEC) | pipe2(say, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		static struct hidden h;

		close(go[1]);
		h = (struct hidden){ .go = go[0], .say = say[1] };
		if (!pthread_create(&thread, NULL, hide_arguments, &h))
			pthread_join(thread, NULL);
		_exit(1);
	}
	close(say[1]);
	assert_int_equal(read(say[0], &c, 1), 1);
	p = proc__open(pid);
	assert_non_null(p);
	proc__cmdline(p, &len);
	assert_int_equal(len, 0);
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(read(say[0], &c, 1), 1);
	proc__complete_cmdline(p);
	assert_non_null(strstr(proc__cmdline(p, &len), "test_proc"));
	assert_true(len > strlen("test_proc"));
	proc__free(p);
	close(go[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(go[0]);
	close(say[0]);
}

/* Expects the line of a shell with these arguments, which stops itself; then of the zombie that
 * it becomes. */
static void check_command_line(char *const argv[], const char *expected)
{
	pid_t pid = fork();
	char text[64];
	int status;

	if (!pid) {
		execv("/bin/sh", argv);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status)); /* only now is its line sure to be there */
	assert_string_equal(proc__command_line(pid, text, sizeof(text)), expected);
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT), 0);
	assert_string_equal(proc__command_line(pid, text, sizeof(text)), "");
	waitpid(pid, &status, 0);
}

static void test_command_line(void **state)
{
	char stop[] = "kill -STOP $$", longer[200] = "/bin/";

	check_command_line((char *[]){ "/a folder/of/s\033[2Jh", "-c", stop, "", "", NULL },
			   "s\\x1b[2Jh -c kill -STOP $$");
	check_command_line((char *[]){ "sh: of/it", "-c", stop, NULL },
			   "sh: of/it -c kill -STOP $$");
	check_command_line((char *[]){ "/", "-c", stop, NULL }, "/ -c kill -STOP $$");
	memset(longer + 5, 'n', sizeof(longer) - 6);
	longer[sizeof(longer) - 1] = '\0';
	check_command_line((char *[]){ longer, "-c", stop, NULL },
			   "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn");
}

static void test_no_process(void **state)
{
	char name[32] = "";
	FILE *f;

	assert_null(proc__open(0));
	assert_int_equal(errno, ESRCH);
	assert_null(proc__open(-1));
	assert_int_equal(errno, ESRCH);
	assert_null(proc__open(INT32_MAX));
	assert_int_equal(errno, ESRCH);
	f = fopen("/proc/2/comm", "r");
	if (!f || !fgets(name, sizeof(name), f) || strcmp(name, "kthreadd\n")) {
		print_message(
			"note: no kernel thread to be seen here; that refusal was not tried\n");
	} else {
		assert_null(proc__open(2));
		assert_int_equal(errno, EINVAL);
	}
	if (f)
		fclose(f);
}

/* ---- files ---- */

static char dir[64];

static size_t open_before; /* entries of /proc/self/fd before the first test */

static size_t count_open(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int make_dir(void **state)
{
	open_before = count_open();
	snprintf(dir, sizeof(dir), "/tmp/test_proc.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	return scratch__remove(dir);
}

static void write_file(const char *path, char fill)
{
	char page[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	memset(page, fill, sizeof(page));
	assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	close(fd);
}

static char first_byte(int fd)
{
	char c;

	assert_int_equal(pread(fd, &c, 1, 0), 1);
	return c;
}

/* Maps a page of a file. */
static void *map_file(const char *path)
{
	int fd = open(path, O_RDONLY);
	void *mem = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);

	assert_true(mem != MAP_FAILED);
	close(fd);
	return mem;
}

static const struct map *map_of(const struct proc *p, const void *addr, struct maps *m)
{
	const struct map *map;

	assert_int_equal(proc__maps(p, m), 0);
	map = maps__find(m, (uint64_t)(uintptr_t)addr);
	assert_non_null(map);
	return map;
}

/* A library replaced on disk: only the mapped file is accepted. */
static void test_replaced_file(void **state)
{
	char path[128];
	struct proc *p = open_self();
	const struct map *map;
	struct maps m;
	void *mem;
	int fd;

	snprintf(path, sizeof(path), "%s/lib", dir);
	write_file(path, 'o');
	mem = map_file(path);
	map = map_of(p, mem, &m);
	assert_false(map->deleted);
	assert_string_equal(map->path, path);
	fd = proc__open_map(p, map);
	assert_true(fd >= 0);
	assert_true(first_byte(fd) == 'o' && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
	close(fd);
	maps__free(&m);

	assert_int_equal(unlink(path), 0);
	write_file(path, 'n');
	map = map_of(p, mem, &m);
	assert_true(map->deleted);
	assert_string_equal(map->path, path);
	fd = proc__open_map(p, map);
	if (fd < 0) {
		assert_true(fd == -EPERM || fd == -EACCES);
		print_message("note: map_files is not permitted here; a replaced file was refused, "
			      "not opened\n");
	} else {
		assert_int_equal(first_byte(fd), 'o');
		close(fd);
	}
	maps__free(&m);
	munmap(mem, 4096);
	unlink(path);
	proc__free(p);
}

/* Another file is mapped at the same addresses since the maps were read: it is not opened. */
static void test_remapped_file(void **state)
{
	char path[128], other[128];
	struct proc *p = open_self();
	const struct map *map;
	struct maps m;
	void *mem;
	int fd;

	snprintf(path, sizeof(path), "%s/lib", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	write_file(path, 'o');
	write_file(other, 'x');
	mem = map_file(path);
	map = map_of(p, mem, &m);
	fd = open(other, O_RDONLY);
	assert_true(mmap(mem, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == mem);
	close(fd);
	fd = proc__open_map(p, map);
	if (fd < 0) {
		assert_int_equal(fd, -ESTALE);
	} else { /* not privileged: opened by its path */
		assert_int_equal(first_byte(fd), 'o');
		close(fd);
	}
	maps__free(&m);
	munmap(mem, 4096);
	unlink(path);
	unlink(other);
	proc__free(p);
}

/* A removed mapping: its path is accepted for the same file only. */
static void test_open_by_path(void **state)
{
	char path[128], fifo[128];
	struct proc *p = open_self();
	struct map gone = { .start = 0x1000, .end = 0x2000, .path = path };
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/lib", dir);
	write_file(path, 'o');
	assert_int_equal(stat(path, &st), 0);
	gone.inode = st.st_ino;
	gone.dev_major = major(st.st_dev);
	gone.dev_minor = minor(st.st_dev);
	fd = proc__open_map(p, &gone);
	assert_true(fd >= 0);
	assert_int_equal(first_byte(fd), 'o');
	close(fd);
	gone.inode++;
	assert_int_equal(proc__open_map(p, &gone), -ESTALE);
	gone.inode = st.st_ino;
	gone.dev_minor++;
	assert_int_equal(proc__open_map(p, &gone), -ESTALE);
	gone.dev_minor--;
	gone.deleted = true;
	assert_true(proc__open_map(p, &gone) < 0);
	gone.inode = 0;
	assert_int_equal(proc__open_map(p, &gone), -ENOENT);
	unlink(path);

	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(stat(fifo, &st), 0);
	gone = (struct map){ .start = 0x1000,
			     .end = 0x2000,
			     .path = fifo,
			     .inode = st.st_ino,
			     .dev_major = major(st.st_dev),
			     .dev_minor = minor(st.st_dev) };
	assert_int_equal(proc__open_map(p, &gone), -EINVAL); /* at once: the FIFO has no writer */
	proc__free(p);
}

static void test_open_file(void **state)
{
	char path[128], fifo[128], sym[128];
	struct proc *p = open_self();
	int fd;

	snprintf(path, sizeof(path), "%s/lib", dir);
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	snprintf(sym, sizeof(sym), "%s/link", dir);
	write_file(path, 'f');
	assert_int_equal(symlink(path, sym), 0);
	fd = proc__open_file(p, sym);
	assert_true(fd >= 0);
	assert_int_equal(first_byte(fd), 'f');
	close(fd);
	assert_int_equal(proc__open_file(p, dir), -EINVAL);
	assert_int_equal(proc__open_file(p, fifo), -EINVAL);
	assert_int_equal(proc__open_file(p, "relative"), -EINVAL);
	assert_int_equal(proc__open_file(p, "/dev/null"), -EINVAL);
	assert_int_equal(proc__open_file(p, "/nonexistent/file"), -ENOENT);
	/* another process's open files could lead anywhere */
	unlink(sym);
	assert_int_equal(symlink("/proc/self/exe", sym), 0);
	assert_int_equal(proc__open_file(p, sym), -ELOOP);
	proc__free(p);
}

/* The tests before this one. */
static void test_nothing_stays_open(void **state)
{
	assert_int_equal(count_open(), open_before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_maps_fields),
		cmocka_unit_test(test_maps_bad),
		cmocka_unit_test(test_maps_find),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_read_fallback),
		cmocka_unit_test(test_killed_while_it_is_read),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_exec),
		cmocka_unit_test(test_thread),
		cmocka_unit_test(test_maps_copy),
		cmocka_unit_test(test_ended),
		cmocka_unit_test(test_arguments_come_late),
		cmocka_unit_test(test_command_line),
		cmocka_unit_test(test_no_process),
		cmocka_unit_test(test_replaced_file),
		cmocka_unit_test(test_remapped_file),
		cmocka_unit_test(test_open_by_path),
		cmocka_unit_test(test_open_file),
		cmocka_unit_test(test_nothing_stays_open),
		cmocka_unit_test(test_zombie),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
