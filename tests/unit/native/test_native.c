/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Stacks of running programs, compiled in different ways: tests/programs/native. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "inspect/native/wire.h"
#include "inspect/native/native.h"
#include "inspect/proc.h"
#include "programs/native/snapshot.h"

#define SOURCES "tests/programs/native/"
#define STACK (16 * 1024)

/* A program that has called snapshot(). */
struct program {
	pid_t pid;
	struct proc *proc;
	struct native *native;
	struct native_regs regs;
	char stack[STACK];
	size_t size;
	struct native_frames frames;
};

static const char *path_of(const char *name)
{
	static char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *end;

	assert_true(n > 0);
	path[n] = '\0';
	end = strstr(path, "/tests/unit/");
	assert_non_null(end);
	sprintf(end, "/tests/programs/native/%s", name);
	return path;
}

static void start(struct program *p, const char *name, const char *how)
{
	const char *path = path_of(name);
	struct snapshot s;
	int out[2];

	assert_int_equal(pipe(out), 0);
	p->pid = fork();
	if (!p->pid) {
		dup2(out[1], STDOUT_FILENO);
		execl(path, path, how, NULL);
		_exit(127);
	}
	close(out[1]);
	assert_int_equal(io__read(out[0], &s, sizeof(s)), sizeof(s));
	assert_true(s.size <= STACK);
	assert_int_equal(io__read(out[0], p->stack, s.size), s.size);
	close(out[0]);
	p->regs = (struct native_regs){ .ip = s.ip, .sp = s.sp, .fp = s.fp, .lr = s.lr };
	p->size = s.size;
	p->proc = proc__open(p->pid);
	assert_non_null(p->proc);
	p->native = native__new(p->proc);
	assert_non_null(p->native);
}

static void stop(struct program *p)
{
	native__free(p->native);
	proc__free(p->proc);
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
}

static void unwind(struct program *p)
{
	assert_int_equal(native__unwind(p->native, &p->regs, p->stack, p->size, &p->frames), 0);
	assert_true(p->frames.n > 0);
}

/* The line with this remark. */
static uint32_t line_of(const char *file, const char *remark)
{
	char path[128], text[256];
	uint32_t n = 0, found = 0;
	FILE *f;

	snprintf(path, sizeof(path), SOURCES "%s", file);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(text, sizeof(text), f) && !found && ++n)
		if (strstr(text, remark))
			found = n;
	fclose(f);
	assert_true(found);
	return found;
}

struct expected {
	const char *function, *remark; /* remark in the source; NULL: no line is known */
	bool inlined;
};

static void assert_frame(const struct native_frame *f, const char *file, const struct expected *e)
{
	const char *base = strrchr(f->file, '/');

	assert_string_equal(f->function, e->function);
	assert_int_equal(f->inlined, e->inlined);
	if (!e->remark) {
		assert_int_equal(f->line, 0);
		return;
	}
	assert_string_equal(base ? base + 1 : f->file, file);
	assert_int_equal(f->line, line_of(file, e->remark));
}

/* Checks the frames after snapshot()'s own. */
static void assert_frames(const struct program *p, const char *file, const struct expected *e,
			  size_t n)
{
	assert_true(p->frames.n > n);
	assert_string_equal(p->frames.v[0].function, "snapshot");
	for (size_t i = 0; i < n; i++)
		assert_frame(&p->frames.v[i + 1], file, &e[i]);
}

static const struct expected alpha_beta[] = { { "beta", "the line of beta", false },
					      { "alpha", "the line of alpha", false } };

static void test_c(void **state)
{
	static const char *const programs[] = { "plain", "with_pointer", "clang" };
	struct program p;

	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		start(&p, programs[i], NULL);
		unwind(&p);
		assert_frames(&p, "plain.c", alpha_beta, 2);
		assert_string_equal(p.frames.v[3].function, "main");
		assert_true(p.frames.whole);
		stop(&p);
	}
}

static void test_alloca(void **state)
{
	const struct expected e[] = { alpha_beta[0],
				      alpha_beta[1],
				      { "moves_stack", "the line of moves_stack", false } };
	struct program p;

	start(&p, "plain", "alloca");
	unwind(&p);
	assert_frames(&p, "plain.c", e, 3);
	assert_string_equal(p.frames.v[4].function, "main");
	stop(&p);
}

/* Whether a function is on the stack. */
static bool has(const struct program *p, const char *function)
{
	for (size_t i = 0; i < p->frames.n; i++)
		if (!strcmp(p->frames.v[i].function, function))
			return true;
	return false;
}

static void test_thread_and_signal(void **state)
{
	struct program p;

	start(&p, "plain", "thread");
	unwind(&p);
	assert_frames(&p, "plain.c", alpha_beta, 2);
	assert_string_equal(p.frames.v[3].function, "on_thread");
	assert_false(has(&p, "main"));
	assert_true(p.frames.whole);
	stop(&p);

	start(&p, "plain", "signal");
	unwind(&p);
	assert_frames(&p, "plain.c", alpha_beta, 2);
	assert_true(has(&p, "raise"));
	assert_true(has(&p, "main"));
	assert_true(p.frames.whole);
	stop(&p);
}

static void test_cplusplus(void **state)
{
	static const struct expected e[] = {
		{ "pool::Block<long>::deepest", "the line of deepest", true },
		{ "pool::Block<long>::deeper", "the line of deeper", true },
		{ "pool::Block<long>::take", "the line of take", false },
		{ "(anonymous namespace)::hidden", "the line of hidden", false },
	};
	struct program p;

	start(&p, "inlined", NULL);
	unwind(&p);
	assert_frames(&p, "inlined.cc", e, 4);
	assert_string_equal(p.frames.v[5].function, "main::{lambda(int)#1}::operator()");
	assert_string_equal(p.frames.v[6].function, "main");
	stop(&p);
}

/* The frames of a goroutine are on another stack: the frame pointers lead there. */
static void test_goroutine(void **state)
{
	static const struct expected e[] = { { "beta", "the line of beta", false },
					     { "runtime.systemstack", "the line of system_stack",
					       false },
					     { "beta", "the line of beta", false },
					     { "beta", "the line of beta", false } };
	struct program p;
	uint64_t in_beta;

	start(&p, "plain", "go");
	unwind(&p);
	assert_frames(&p, "plain.c", e, 2);
	assert_string_equal(p.frames.v[3].function, "main");
	in_beta = p.frames.v[1].at + p.regs.ip - p.frames.v[0].at;
	p.regs.far[0] = p.regs.far[1] = in_beta;
	p.regs.n_far = 2;
	unwind(&p);
	assert_frames(&p, "plain.c", e, 4);
	assert_int_equal(p.frames.n, 5);
	assert_true(p.frames.whole);
	stop(&p);

	/* other stacks do not continue there */
	start(&p, "plain", NULL);
	p.regs.far[0] = in_beta;
	p.regs.n_far = 1;
	unwind(&p);
	assert_string_equal(p.frames.v[3].function, "main");
	stop(&p);
}

static void test_names(void **state)
{
	static const char *const names[][2] = {
		{ "main.handle", "main.handle" },
		{ "runtime.(*mheap).alloc.func1", "runtime.(*mheap).alloc.func1" },
		{ "net/http.(*conn).serve", "net/http.(*conn).serve" },
		{ "encoding/json.structEncoder", "encoding/json.structEncoder" },
		{ "main.cold2", "main.cold2" },
		{ "runtime.systemstack.abi0", "runtime.systemstack" },
		{ "take.isra.0", "take" },
		{ "take.cold", "take" },
		{ "take.constprop.0.cold", "take" },
		{ "take.llvm.1234567", "take" },
		{ "__do_fini.0", "__do_fini" },
		{ "malloc@@GLIBC_2.2.5", "malloc" },
		{ "_ZN3foo3barEi.part.0", "foo::bar" },
		/* An identifier of 17 characters that begins with "h" is no hash of Rust. */
		{ "_ZN2at6native17hardtanh_backwardERKNS_6TensorES3_",
		  "at::native::hardtanh_backward" },
		{ "_ZN5rusty4Pool4take17h0123456789abcdefE", "rusty::Pool::take" },
		{ "_ZN4core14drop_$LT$T$GT$17h0123456789abcdefE", "core::drop_<T>" },
		{ "_RNvCs1234_7mycrate3foo", "_RNvCs1234_7mycrate3foo" },
		{ "", "" },
	};
	char buf[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_string_equal(helper__demangle(names[i][0], buf, sizeof(buf)), names[i][1]);
}

static void test_rust(void **state)
{
	static const struct expected e[] = { { "rusty::deeper", "the line of deeper", true },
					     { "rusty::Pool::take", "the line of take", false } };
	static const struct expected plain[] = { { "deeper", "the line of deeper", true },
						 { "take", "the line of take", false } };
	struct program p;

	if (access(path_of("rusty"), X_OK)) {
		print_message("no rustc here: stacks of Rust are not tested\n");
		skip();
	}
	start(&p, "rusty", NULL);
	unwind(&p);
	assert_frames(&p, "rusty.rs", e, 2);
	stop(&p);
	/* Names of the newer kind are not demangled: the debug information has plain ones. */
	start(&p, "rusty_v0", NULL);
	unwind(&p);
	assert_frames(&p, "rusty.rs", plain, 2);
	stop(&p);
}

/* Without names, a frame has its place in the file and the file's build ID. */
static void test_stripped(void **state)
{
	struct program p, q;

	start(&p, "plain", NULL);
	start(&q, "stripped", NULL);
	unwind(&p);
	unwind(&q);
	assert_int_equal(p.frames.n, q.frames.n);
	for (size_t i = 0; i < 4; i++) {
		assert_string_equal(q.frames.v[i].function, "");
		assert_string_equal(q.frames.v[i].file, "");
		assert_int_equal(q.frames.v[i].at, p.frames.v[i].at);
		assert_int_equal(strlen(q.frames.v[i].build_id), 40);
		assert_string_equal(q.frames.v[i].build_id, p.frames.v[i].build_id);
		assert_string_equal(q.frames.v[i].module, path_of("stripped"));
	}
	stop(&p);
	stop(&q);
}

static void test_separate_debug_files(void **state)
{
	struct program p;

	start(&p, "linked", NULL);
	unwind(&p);
	assert_frames(&p, "plain.c", alpha_beta, 2);
	stop(&p);

	/* a file of another build, whose names would be wrong */
	start(&p, "mistaken", NULL);
	unwind(&p);
	assert_string_equal(p.frames.v[1].function, "");
	assert_string_equal(p.frames.v[1].file, "");
	stop(&p);
}

static void test_names_only(void **state)
{
	static const struct expected e[] = { { "beta", NULL, false }, { "alpha", NULL, false } };
	struct program p;

	if (access(path_of("mini"), X_OK)) {
		print_message("no xz here: .gnu_debugdata is not tested\n");
		skip();
	}
	start(&p, "mini", NULL);
	unwind(&p);
	assert_frames(&p, "plain.c", e, 2);
	assert_true(p.frames.v[1].offset > 0);
	stop(&p);
}

/* A copy that ends before the stack does. */
static void test_cut(void **state)
{
	struct program p;

	start(&p, "plain", NULL);
	p.size = 256;
	unwind(&p);
	assert_frames(&p, "plain.c", alpha_beta, 1);
	assert_false(p.frames.whole);
	p.size = 0;
	unwind(&p);
	assert_int_equal(p.frames.n, 1);
	stop(&p);
}

/* Registers and stacks may be anything. */
static void test_any_stack(void **state)
{
	struct program p;
	unsigned seed = 1;

	start(&p, "plain", NULL);
	for (int i = 0; i < 200; i++) {
		for (size_t k = 0; k < p.size; k += 8 * (1 + (size_t)rand_r(&seed) % 64)) {
			uint64_t v = (uint64_t)rand_r(&seed) << 32 | (unsigned)rand_r(&seed);

			memcpy(p.stack + k, i % 2 ? &p.regs.ip : &v, sizeof(v));
		}
		if (i % 3 == 1)
			p.regs.fp = p.regs.sp + (uint64_t)rand_r(&seed) % STACK;
		unwind(&p);
		assert_true(p.frames.n <= NATIVE_FRAMES_MAX);
	}
	p.regs = (struct native_regs){
		.ip = UINT64_MAX, .sp = UINT64_MAX - 7, .fp = UINT64_MAX, .lr = UINT64_MAX
	};
	unwind(&p);
	assert_int_equal(p.frames.n, 1);
	assert_string_equal(p.frames.v[0].module, "");
	stop(&p);
}

/* The helper, which may be taken over by a hostile file, can do nothing to others. */
static void test_confined(void **state)
{
	pid_t pid;
	int status;

#ifdef __SANITIZE_ADDRESS__
	skip(); /* the sanitizer needs what is forbidden */
#endif
	pid = fork();
	if (!pid) {
		char buf[64];
		int before = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

		if (helper__confine())
			_exit(1);
		if (open("/proc/self/status", O_RDONLY | O_CLOEXEC) >= 0 || errno != EPERM)
			_exit(2);
		if (kill(getppid(), 0) >= 0 || fork() >= 0 || socket(AF_UNIX, SOCK_STREAM, 0) >= 0)
			_exit(3);
		if (execl("/bin/true", "true", NULL) >= 0 || unlink("/tmp/none") >= 0 ||
		    errno != EPERM)
			_exit(4);
		if (!setuid(0) || process_vm_readv(getppid(), NULL, 0, NULL, 0, 0) >= 0)
			_exit(5);
		if (read(before, buf, sizeof(buf)) != sizeof(buf) || !malloc(1 << 20))
			_exit(6);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The PIDs of our children whose name is ours, as the helper's is. */
static pid_t find_helper(void)
{
	char path[64], text[4096];
	char *word, *rest = text;
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	assert_true(io__text(path, text, sizeof(text)) > 0);
	while ((word = strtok_r(rest, " ", &rest))) {
		pid = (pid_t)atoi(word);
		snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
		char name[64];

		if (io__text(path, name, sizeof(name)) > 0 && !strncmp(name, "test_native", 11))
			return pid;
	}
	return 0;
}

/* Helpers that end or hang are replaced; after some, none is started for a while. */
static void test_helper_ends(void **state)
{
	struct program p;
	int err;

	start(&p, "plain", NULL);
	for (int i = 0; i < 5; i++) {
		pid_t helper;

		unwind(&p);
		helper = find_helper();
		assert_true(helper > 0);
		kill(helper, SIGKILL);
		err = native__unwind(p.native, &p.regs, p.stack, p.size, &p.frames);
		assert_int_equal(err, -EPROTO);
		assert_int_equal(p.frames.n, 0);
	}
	err = native__unwind(p.native, &p.regs, p.stack, p.size, &p.frames);
	assert_int_equal(err, -EAGAIN);
	assert_int_equal(native__stats(p.native).killed, 5);
	assert_int_equal(native__stats(p.native).failed, 6);
	stop(&p);

	start(&p, "plain", NULL);
	unwind(&p);
	kill(find_helper(), SIGSTOP);
	err = native__unwind(p.native, &p.regs, p.stack, p.size, &p.frames);
	assert_int_equal(err, -ETIMEDOUT);
	unwind(&p);
	stop(&p);
}

/* What was mapped is known after the process ended. */
static void test_ended(void **state)
{
	struct program p;

	start(&p, "plain", NULL);
	unwind(&p);
	kill(p.pid, SIGKILL);
	waitpid(p.pid, NULL, 0);
	unwind(&p);
	assert_frames(&p, "plain.c", alpha_beta, 2);
	native__free(p.native);
	proc__free(p.proc);

	/* before its first stack is read */
	start(&p, "plain", NULL);
	kill(p.pid, SIGKILL);
	waitpid(p.pid, NULL, 0);
	unwind(&p);
	assert_frames(&p, "plain.c", alpha_beta, 2);
	native__free(p.native);
	proc__free(p.proc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_c),
		cmocka_unit_test(test_alloca),
		cmocka_unit_test(test_thread_and_signal),
		cmocka_unit_test(test_cplusplus),
		cmocka_unit_test(test_goroutine),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_rust),
		cmocka_unit_test(test_stripped),
		cmocka_unit_test(test_separate_debug_files),
		cmocka_unit_test(test_names_only),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_any_stack),
		cmocka_unit_test(test_confined),
		cmocka_unit_test(test_helper_ends),
		cmocka_unit_test(test_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
