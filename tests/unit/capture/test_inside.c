/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The recorder inside a process. This program runs itself again with the library preloaded. The
 * first process sets breakpoints on functions of the second, which compares their results with
 * earlier ones.
 */
#include "unit/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "capture/probes/probes_inside.h"
#include "inspect/site.h"
#include "capture/probes.h"
#include "inspect/proc.h"

typedef long (*function)(long a, long b);

/*
 * Functions with a breakpoint at `at_NAME`. A wrong emulation of that instruction changes the
 * result.
 */
long insn_data[2] = { 42, 43 };
void *insn_target;

#define INSN(name, before, insn, after)                                                            \
	__asm__(".pushsection .text\n.balign 16\n.globl insn_" #name "\ninsn_" #name ":\n" before  \
		"\n.globl at_" #name "\nat_" #name ":\n" insn "\n" after "\n.popsection\n");       \
	extern long insn_##name(long a, long b);                                                   \
	extern const char at_##name[];

#ifdef __aarch64__
#define FRAME "stp x29, x30, [sp, #-16]!\nmov x29, sp\n"
#define UNFRAME "\nldp x29, x30, [sp], #16\nret"
#define INSN_DATA(reg) "adrp " reg ", insn_data\nadd " reg ", " reg ", :lo12:insn_data\n"

INSN(nop, "", "nop", "add x0, x0, #3\nret")
INSN(bti, "", "hint #34", "add x0, x0, #4\nret")
INSN(paciasp, "", "hint #25", "hint #29\nadd x0, x0, #5\nret")
INSN(stp, "", "stp x29, x30, [sp, #-32]!",
     "ldr x2, [sp, #8]\nsub x2, x2, x30\nadd x0, x0, x2\nldp x29, x30, [sp], #32\nret")
INSN(stp_offset, "sub sp, sp, #32\nmov x4, sp", "stp x0, xzr, [sp, #16]",
     "ldp x2, x3, [sp, #16]\nsub x0, x2, x3\nmov x5, sp\nsub x4, x4, x5\nadd x0, x0, x4\n"
     "add sp, sp, #32\nret")
INSN(sub_sp, "", "sub sp, sp, #0x20", "str x0, [sp, #8]\nldr x0, [sp, #8]\nadd sp, sp, #0x20\nret")
INSN(add, "", "add x0, x1, #1, lsl #12", "ret")
INSN(mov, "", "mov x0, x1", "ret")
INSN(mov_zero, "mov x2, #7", "mov x2, xzr", "add x0, x0, x2\nret")
INSN(mov_sp, "mov x4, sp\nsub sp, sp, #16", "mov x2, sp", "sub x0, x4, x2\nadd sp, sp, #16\nret")
INSN(adr, "", "adr x2, 1f", "br x2\nudf #0\n1: add x0, x0, #6\nret")
INSN(adrp, "", "adrp x2, insn_data", "ldr x2, [x2, :lo12:insn_data]\nadd x0, x0, x2\nret")
INSN(b, "", "b 1f", "udf #0\n1: add x0, x0, #7\nret")
INSN(bl, FRAME, "bl insn_nop", "add x0, x0, x1" UNFRAME)
INSN(blr, FRAME "adr x2, 1f", "blr x2", "ldp x29, x30, [sp], #16\nret\n1: add x0, x0, #9\nret")
INSN(ret, "add x0, x0, #8", "ret", "udf #0")
INSN(str, "sub sp, sp, #16", "str x0, [sp, #8]", "ldr x0, [sp, #8]\nadd sp, sp, #16\nret")
INSN(ldr, INSN_DATA("x2"), "ldr x2, [x2, #8]", "add x0, x0, x2\nret")
INSN(movz, "", "mov w2, #77", "add x0, x0, x2\nret")
INSN(cmp, "", "cmp x0, x1", "cset x0, lt\nret")
INSN(fmov, "fmov d0, x0", "fmov x2, d0", "add x0, x1, x2\nret")
INSN(jmp_far, "adrp x2, insn_target\nldr x2, [x2, :lo12:insn_target]", "br x2", "udf #0")

#define JCC(name) INSN(name, "cmp x0, x1", "b." #name " 1f", "mov x0, #1\nret\n1: mov x0, #2\nret")
#define TEST_AND_BRANCH(name, insn)                                                                \
	INSN(name, "", insn " 1f", "mov x0, #1\nret\n1: mov x0, #2\nret")
#define EACH_JCC(do)                                                                               \
	do                                                                                         \
	(eq) do(ne) do(cs) do(cc) do(mi) do(pl) do(vs) do(vc) do(hi) do(ls) do(ge) do(lt) do(      \
		gt) do(le) do(al)
#define EACH_TEST(do)                                                                              \
	do                                                                                         \
	(cbz_x, "cbz x0,") do(cbz_w, "cbz w0,") do(cbnz_x, "cbnz x0,") do(cbnz_w, "cbnz w0,") do(  \
		tbz_0, "tbz x0, #0,") do(tbz_63,                                                   \
					 "tbz x0, #63,") do(tbnz_5,                                \
							    "tbnz w0, #5,") do(tbnz_40,            \
									       "tbnz x0, #40,")
EACH_JCC(JCC)
EACH_TEST(TEST_AND_BRANCH)

/* Nested calls whose return is awaited, and one left by longjmp. */
INSN(deep, "", "stp x29, x30, [sp, #-16]!",
     "mov x29, sp\ncbz x0, 1f\nsub x0, x0, #1\nbl insn_deep\nadd x0, x0, #1\n1:" UNFRAME)
/* Called by the threads; used for module calls. */
INSN(record, "", "stp x29, x30, [sp, #-16]!", "ldp x29, x30, [sp], #16\nret")
INSN(module, "", "stp x29, x30, [sp, #-16]!", "ldp x29, x30, [sp], #16\nret")

#define COPIED_1 at_str
#define COPIED_2 at_cmp
#define EMULATED at_stp
#define TRAP() __asm__ volatile("brk #0")
#else
INSN(push, "", "push %rbx", "mov %rdi, %rbx\nlea 1(%rbx), %rax\npop %rbx\nret")
INSN(push12, "", "push %r12", "mov %rdi, %r12\nlea 2(%r12), %rax\npop %r12\nret")
INSN(push_sp, "", "push %rsp", "pop %rax\nsub %rsp, %rax\nadd %rdi, %rax\nret")
INSN(nop, "", "nop", "lea 3(%rdi), %rax\nret")
INSN(long_nop, "", "nopl 0(%rax,%rax)", "lea 4(%rdi), %rax\nret")
INSN(endbr, "", "endbr64", "lea 5(%rdi), %rax\nret")
INSN(jmp8, "", "jmp 1f", "ud2\n1: lea 6(%rdi), %rax\nret")
INSN(jmp32, "", ".byte 0xe9\n.long 2", "ud2\nlea 7(%rdi), %rax\nret")
INSN(call, "sub $8, %rsp", "call insn_nop", "add $8, %rsp\nadd %rsi, %rax\nret")
INSN(ret, "lea 8(%rdi), %rax", "ret", "ud2")
INSN(mov, "", "mov %rdi, %rax", "add %rsi, %rax\nret")
INSN(sub_sp, "", "sub $0x18, %rsp", "mov %rdi, 8(%rsp)\nmov 8(%rsp), %rax\nadd $0x18, %rsp\nret")
INSN(test, "", "test %rdi, %rdi", "sete %al\nmovzbl %al, %eax\nret")
INSN(load, "", "mov insn_data(%rip), %rax", "add %rdi, %rax\nret")
INSN(lea, "", "lea insn_data(%rip), %rax", "mov 8(%rax), %rax\nadd %rdi, %rax\nret")
INSN(cmp8, "", "cmpl $42, insn_data(%rip)", "sete %al\nmovzbl %al, %eax\nret")
INSN(cmp32, "", "cmpl $0x1234567, insn_data(%rip)", "setne %al\nmovzbl %al, %eax\nret")
INSN(movups, "", "movups insn_data(%rip), %xmm0", "movq %xmm0, %rax\nret")
INSN(jmp_far, "", "jmp *insn_target(%rip)", "ud2")

#define JCC_BOTH(name)                                                                             \
	INSN(name##_8, "cmp %rsi, %rdi", "{disp8} " #name " 1f",                                   \
	     "mov $1, %eax\nret\n1: mov $2, %eax\nret")                                            \
	INSN(name##_32, "cmp %rsi, %rdi", "{disp32} " #name " 1f",                                 \
	     "mov $1, %eax\nret\n1: mov $2, %eax\nret")
#define EACH_JCC(do)                                                                               \
	do                                                                                         \
	(jo) do(jno) do(jb) do(jae) do(je) do(jne) do(jbe) do(ja) do(js) do(jns) do(jp) do(        \
		jnp) do(jl) do(jge) do(jle) do(jg)
EACH_JCC(JCC_BOTH)

/* Nested calls whose return is awaited, and one left by longjmp. */
INSN(deep, "", "push %rbp",
     "mov %rdi, %rax\ntest %rdi, %rdi\nje 1f\ndec %rdi\ncall insn_deep\ninc %rax\n1: pop %rbp\nret")
/* Called by the threads; used for module calls. */
INSN(record, "", "push %rbx", "pop %rbx\nret")
INSN(module, "", "push %rbx", "pop %rbx\nret")

#define COPIED_1 at_mov
#define COPIED_2 at_sub_sp
#define EMULATED at_push
#define TRAP() __asm__ volatile("int3")
#endif

static const struct {
	const char *name;
	function call;
	const char *at;
} insns[] = {
#define ONE(name) { #name, insn_##name, at_##name },
#define BOTH(name) ONE(name##_8) ONE(name##_32)
#define ONE_TEST(name, insn) ONE(name)
#ifdef __aarch64__
	ONE(nop) ONE(bti) ONE(paciasp) ONE(stp) ONE(stp_offset) ONE(sub_sp) ONE(add) ONE(mov)
		ONE(mov_zero) ONE(mov_sp) ONE(adr) ONE(adrp) ONE(b) ONE(bl) ONE(blr) ONE(ret)
			ONE(str) ONE(ldr) ONE(movz) ONE(cmp) ONE(fmov) ONE(jmp_far) EACH_JCC(ONE)
				EACH_TEST(ONE_TEST)
#else
	ONE(push) ONE(push12) ONE(push_sp) ONE(nop) ONE(long_nop) ONE(endbr) ONE(jmp8) ONE(jmp32)
		ONE(call) ONE(ret) ONE(mov) ONE(sub_sp) ONE(test) ONE(load) ONE(lea) ONE(cmp8)
			ONE(cmp32) ONE(movups) ONE(jmp_far) EACH_JCC(BOTH)
#endif
};

#define INSNS (sizeof(insns) / sizeof(insns[0]))
static const long values[] = { 0, 1, 42, -1, INT_MAX, LONG_MIN, LONG_MAX };
#define VALUES (sizeof(values) / sizeof(values[0]))
#define RUNS (VALUES * VALUES)

#define THREADS 8
#define CALLS 20000
#define DEPTH 20

/* ---- the second process ---- */

static void say(char c)
{
	if (write(STDOUT_FILENO, &c, 1) != 1)
		_exit(90);
}

static void await_word(void)
{
	char c;

	if (read(STDIN_FILENO, &c, 1) != 1)
		_exit(91);
}

static void call_all(long *results)
{
	size_t i, a, b;

	for (i = 0; i < INSNS; i++)
		for (a = 0; a < VALUES; a++)
			for (b = 0; b < VALUES; b++)
				*results++ = insns[i].call(values[a], values[b]);
}

static int second_insns(void)
{
	static long before[INSNS * RUNS], after[INSNS * RUNS];
	size_t i;

	call_all(before);
	say('b');
	await_word();
	call_all(after);
	for (i = 0; i < INSNS * RUNS; i++) {
		if (before[i] != after[i]) {
			fprintf(stderr, "%s: %ld, and before %ld\n", insns[i / RUNS].name, after[i],
				before[i]);
			return 1;
		}
	}
	return 0;
}

static void *call_often(void *arg)
{
	long i;

	for (i = 0; i < CALLS; i++)
		insn_record((long)(intptr_t)arg << 32 | i, 0);
	return NULL;
}

static int second_threads(void)
{
	pthread_t t[THREADS];
	sigset_t all;
	size_t i;

	say('b');
	await_word();
	/* A breakpoint on a thread with SIGTRAP blocked would end the process. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	for (i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, call_often, (void *)(intptr_t)i);
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	return 0;
}

static uint64_t fake_type[2], fake_object[4]; /* head of an object: the second word is its type */

static int second_modules(void)
{
	long i;

	fake_object[1] = (uintptr_t)fake_type;
	say('b');
	if (write(STDOUT_FILENO, &(uint64_t){ (uintptr_t)fake_type }, 8) != 8)
		return 92;
	await_word();
	for (i = 0; i < CALLS; i++)
		insn_module((long)(uintptr_t)fake_object, 0);
	return 0;
}

static int second_returns(void)
{
	long i, got;

	say('b');
	await_word();
	for (i = 0; i < DEPTH; i++) {
		got = insn_deep(i, 0);
		if (got != i) {
			fprintf(stderr, "%ld calls within one another return %ld\n", i, got);
			return 1;
		}
	}
	return 0;
}

static volatile sig_atomic_t traps;

/* The program counter is behind an int3, and at a brk. */
static void on_trap(int number, siginfo_t *info, void *context)
{
	traps++;
#ifdef __aarch64__
	if (info->si_code > 0)
		((ucontext_t *)context)->uc_mcontext.pc += 4;
#endif
}

/* Its own SIGTRAP handler and breakpoints, and a child that is not recorded. */
static int second_signals(void)
{
	struct sigaction act = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO }, old;
	int status;
	pid_t pid;

	say('b');
	await_word();
	if (sigaction(SIGTRAP, &act, &old) || old.sa_handler != SIG_DFL)
		return 1;
	insn_record(1, 0);
	if (traps)
		return 2;
	TRAP();
	raise(SIGTRAP);
	if (traps != 2)
		return 3;
	insn_record(2, 0);
	if ((uintptr_t)signal(SIGTRAP, SIG_DFL) != (uintptr_t)on_trap)
		return 4;
	pid = fork();
	if (!pid) {
		insn_record(3, 0);
		_exit(7);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
		return 5;
	insn_record(4, 0);
	pid = fork();
	if (!pid)
		TRAP();
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGTRAP)
		return 6;
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} seconds[] = { { "insns", second_insns },
		{ "threads", second_threads },
		{ "modules", second_modules },
		{ "returns", second_returns },
		{ "signals", second_signals } };

/* ---- the first process ---- */

struct second {
	struct inside_memory *m;
	struct probes *p;
	pid_t pid;
	int to, from; /* the process's standard input and output */
};

static char *library(void)
{
	static char path[PATH_MAX + 64];
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	assert_true(n > 0);
	exe[n] = '\0';
	snprintf(path, sizeof(path), "%s/../../../inside/" MT_INSIDE_LIBRARY, dirname(exe));
	return path;
}

static void start(struct second *s, const char *what, size_t ring)
{
	char told[64], c;
	int in[2], out[2], i;
	struct stat st;

	s->m = inside_memory__new(ring, NULL);
	assert_non_null(s->m);
	assert_int_equal(fstat(s->m->fd, &st), 0);
	snprintf(told, sizeof(told), "%d:%lu:%lu", s->m->fd, (unsigned long)st.st_dev,
		 (unsigned long)st.st_ino);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	s->pid = fork();
	if (!s->pid) {
		inside_memory__bind(s->m, getpid());
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		setenv("LD_PRELOAD", library(), 1);
		setenv(MT_INSIDE_ENV, told, 1);
		execl("/proc/self/exe", "second", what, NULL);
		_exit(99);
	}
	close(in[0]);
	close(out[1]);
	s->to = in[1];
	s->from = out[0];
	inside_memory__bind(s->m, s->pid);
	for (i = 0; i < 5000 && !s->m->image; i++) {
		inside_memory__meet(s->m);
		usleep(1000);
	}
	assert_int_equal(s->m->image, 1);
	assert_int_equal(read(s->from, &c, 1), 1);
}

static void load(struct second *s, bool modules)
{
	const struct probes_opts opts = { .capture.inside = s->m,
					  .modules = modules,
					  .py.ob_type = 8 };
	const char *why = "";

	s->p = probes__load(&opts, &why);
	if (!s->p)
		print_error("%s: %s\n", why, strerror(errno));
	assert_non_null(s->p);
}

/* Offset of one of our addresses in our file; equal in the second process. */
static uint64_t offset_of(const char *addr, struct call_file *file)
{
	struct proc *self = proc__open(getpid());
	const struct map *m;
	struct maps maps;
	uint64_t ret;

	assert_non_null(self);
	assert_int_equal(proc__maps(self, &maps), 0);
	m = maps__find(&maps, (uintptr_t)addr);
	assert_non_null(m);
	ret = m->offset + ((uintptr_t)addr - m->start);
	*file = (struct call_file){ NULL, m->inode, m->dev_major, m->dev_minor };
	maps__free(&maps);
	proc__free(self);
	return ret;
}

static int attach(struct second *s, enum call_probe which, const char *at, uint64_t cookie)
{
	struct call_file file;
	const struct probe_site site = { .offset = offset_of(at, &file), .cookie = cookie };

	return probes__attach_calls(s->p, s->pid, which, &file, &site, 1);
}

/* Lets the process continue to its end while reading all records. */
static int finish(struct second *s, probes_fn fn, void *ctx, unsigned int pause)
{
	int status;

	assert_int_equal(write(s->to, "g", 1), 1);
	while (waitpid(s->pid, &status, WNOHANG) == 0) {
		assert_true(probes__consume(s->p, fn, ctx) >= 0);
		usleep(pause);
	}
	assert_true(probes__consume(s->p, fn, ctx) >= 0);
	probes__free(s->p);
	inside_memory__free(s->m);
	close(s->to);
	close(s->from);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

struct seen {
	uint64_t n[256]; /* count by cookie */
	uint64_t next[THREADS];
	uint64_t others, wrong, returned[DEPTH];
};

static int on_set_device(void *ctx, const void *rec, size_t len)
{
	const struct mt_rec_call *r = rec;
	struct seen *seen = ctx;
	uint64_t thread = r->arg[0] >> 32;

	if (r->h.type != MT_REC_SET_DEVICE) {
		seen->others++;
		return 0;
	}
	seen->n[r->fn % 256]++;
	if (thread < THREADS)
		seen->wrong += (uint32_t)r->arg[0] != seen->next[thread]++;
	return 0;
}

/* A library without an offset for a variable is refused: another variable would be overwritten. */
static void test_variable_without_place(void **state)
{
	const size_t n = sizeof(struct mt_inside_variables) / sizeof(uint32_t);
	struct probes_opts opts = { 0 };
	struct second s;
	uint32_t *at;

	start(&s, "insns", 0);
	opts.capture.inside = s.m;
	at = (uint32_t *)&s.m->at->variables;
	for (size_t i = 1; i < n; i++) {
		const uint32_t was = at[i];
		const char *why = "";

		at[i] = 0;
		errno = 0;
		assert_null(probes__load(&opts, &why));
		assert_int_equal(errno, EBADMSG);
		assert_non_null(strstr(why, "from another version of memtrace-bpf"));
		at[i] = was;
	}
	load(&s, false);
	assert_int_equal(finish(&s, on_set_device, &(struct seen){ 0 }, 1000), 0);
}

/* Other writers of the shared memory cannot change where the recorder writes, or what. */
static void test_written_by_others(void **state)
{
	uint8_t before[4096], after[4096];
	struct map text = { 0 };
	struct maps maps;
	struct proc *proc;
	struct second s;
	size_t i;

	start(&s, "insns", 0);
	load(&s, false);
	proc = proc__open(s.pid);
	assert_non_null(proc);
	assert_int_equal(proc__maps(proc, &maps), 0);
	for (i = 0; i < maps.n && !text.x; i++) {
		if (maps.v[i].x && strstr(maps.v[i].path, "libc.so"))
			text = maps.v[i];
	}
	assert_true(text.x);
	assert_int_equal(proc__read(proc, text.start, before, sizeof(before)), 0);
	s.m->at->slots[0] = s.m->at->slots[1] = text.start;
	s.m->at->linker = text.start + 1024;
	s.m->at->returns = text.start;
	/* Two sites run from copies, one does not. */
	assert_int_equal(attach(&s, CALL_SET_DEVICE, COPIED_1, 1), 0);
	assert_int_equal(attach(&s, CALL_SET_DEVICE, COPIED_2, 1), 0);
	assert_int_equal(attach(&s, CALL_SET_DEVICE, EMULATED, 1), 0);
	for (i = 0; i < MT_INSIDE_SITES; i++) {
		if (s.m->at->site[i].addr) {
			s.m->at->site[i].addr = text.start + 2048 + i % 1024;
			s.m->at->site[i].original = (uint8_t)~before[2048 + i % 1024];
		}
	}
	probes__detach(s.p);
	assert_int_equal(proc__read(proc, text.start, after, sizeof(after)), 0);
	assert_memory_equal(before, after, sizeof(after));
	/* Nor can the file be made shorter than the mapping. */
	assert_int_equal(ftruncate(s.m->fd, 4096), -1);
	maps__free(&maps);
	proc__free(proc);
	/* Its instructions are restored: with breakpoints but without sites it would end. */
	assert_int_equal(finish(&s, on_set_device, &(struct seen){ 0 }, 1000), 0);
}

static void __attribute__((unused)) test_instructions(void **state)
{
	struct seen *seen = calloc(1, sizeof(*seen));
	struct second s;
	size_t i;

	start(&s, "insns", 0);
	load(&s, false);
	for (i = 0; i < INSNS; i++) {
		int err = attach(&s, CALL_SET_DEVICE, insns[i].at, i);

		if (err)
			print_error("%s: %s\n", insns[i].name, strerror(-err));
		assert_int_equal(err, 0);
	}
	assert_int_equal(finish(&s, on_set_device, seen, 1000), 0);
	for (i = 0; i < INSNS; i++) {
		/* Two sites are also jumped to */
		size_t times = !strcmp(insns[i].name, "nop") || !strcmp(insns[i].name, "mov") ? 2
											      : 1;

		if (seen->n[i] != RUNS * times)
			print_error("%s\n", insns[i].name);
		assert_int_equal(seen->n[i], RUNS * times);
	}
	assert_int_equal(seen->others, 0);
	free(seen);
}

/* With a ring that is always full no record is lost, and each thread's records are in order. */
static void __attribute__((unused)) test_threads(void **state)
{
	struct seen *seen = calloc(1, sizeof(*seen));
	struct second s;
	size_t i;

	start(&s, "threads", 64 << 10);
	load(&s, false);
	assert_int_equal(attach(&s, CALL_SET_DEVICE, at_record, 1), 0);
	assert_int_equal(finish(&s, on_set_device, seen, 500), 0);
	assert_int_equal(seen->n[1], THREADS * CALLS);
	assert_int_equal(seen->wrong, 0);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(seen->next[i], CALLS);
	free(seen);
}

struct churn {
	struct second *s;
	uint64_t keep, next;
	uint64_t calls;
};

/* A table key is found while other keys come and go. */
static int on_module(void *ctx, const void *rec, size_t len)
{
	const struct mt_hdr *h = rec;
	struct churn *c = ctx;

	c->calls += h->type == MT_REC_MODULE_CALL;
	return 0;
}

static void *churn(void *arg)
{
	struct churn *c = arg;
	uint64_t i;

	for (i = 0; !__atomic_load_n(&c->next, __ATOMIC_RELAXED); i++) {
		uint64_t key = 0x10000 + (i % 5000) * 16;

		probes__set_module_type(c->s->p, 0, key, MT_TYPE_MODULE);
		if (i >= 2000)
			probes__set_module_type(c->s->p, 0, 0x10000 + ((i - 2000) % 5000) * 16, 0);
	}
	return NULL;
}

static void __attribute__((unused)) test_tables(void **state)
{
	struct second s;
	struct churn c = { .s = &s };
	struct hook h = { .id = HOOK_MODULE_CALL };
	struct call_file file;
	pthread_t t;
	int status;

	start(&s, "modules", 0);
	assert_int_equal(read(s.from, &c.keep, 8), 8);
	load(&s, true);
	h.offset = offset_of(at_module, &file);
	h.inode = file.inode;
	h.dev_major = file.dev_major;
	h.dev_minor = file.dev_minor;
	assert_int_equal(probes__attach(s.p, s.pid, &h), 0);
	assert_int_equal(probes__set_module_type(s.p, 0, c.keep, MT_TYPE_OTHER), 0);
	assert_int_equal(pthread_create(&t, NULL, churn, &c), 0);
	assert_int_equal(write(s.to, "g", 1), 1);
	while (waitpid(s.pid, &status, WNOHANG) == 0) {
		assert_true(probes__consume(s.p, on_module, &c) >= 0);
		usleep(1000);
	}
	__atomic_store_n(&c.next, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	assert_true(probes__consume(s.p, on_module, &c) >= 0);
	assert_int_equal(status, 0);
	assert_int_equal(s.m->at->counters[MT_CNT_HIT + MT_REC_MODULE_CALL], CALLS);
	assert_int_equal(s.m->at->counters[MT_CNT_FILTERED + MT_REC_MODULE_CALL], CALLS);
	assert_int_equal(c.calls, 0);
	probes__free(s.p);
	inside_memory__free(s.m);
	close(s.to);
	close(s.from);
}

static int on_return(void *ctx, const void *rec, size_t len)
{
	const struct mt_rec_call *r = rec;
	struct seen *seen = ctx;

	if (r->h.type != MT_REC_CUDA_CALL || r->fn != 5 || r->arg[0] >= DEPTH ||
	    (long)r->result != (long)r->arg[0])
		seen->wrong++;
	else
		seen->returned[r->arg[0]]++;
	return 0;
}

/* The outermost call is reported when it returns, with arguments and result. */
static void __attribute__((unused)) test_returns(void **state)
{
	struct seen *seen = calloc(1, sizeof(*seen));
	struct second s;
	size_t i;

	start(&s, "returns", 0);
	load(&s, false);
	assert_int_equal(attach(&s, CALL_RETURN, (const char *)insn_deep, MT_CALL_COOKIE(5, 0)), 0);
	assert_int_equal(attach(&s, CALL_ENTER, (const char *)insn_deep, MT_CALL_COOKIE(5, 0)), 0);
	assert_int_equal(finish(&s, on_return, seen, 1000), 0);
	assert_int_equal(seen->wrong, 0);
	for (i = 0; i < DEPTH; i++)
		assert_int_equal(seen->returned[i], 1);
	free(seen);
}

static void __attribute__((unused)) test_signals(void **state)
{
	struct seen *seen = calloc(1, sizeof(*seen));
	struct second s;

	start(&s, "signals", 0);
	load(&s, false);
	assert_int_equal(attach(&s, CALL_SET_DEVICE, at_record, 1), 0);
	assert_int_equal(finish(&s, on_set_device, seen, 1000), 0);
	assert_int_equal(seen->n[1], 3); /* without the forked child's call */
	free(seen);
}

/* Instructions that cannot be emulated are refused, and copies that cannot reach their data. */
static void test_plan(void **state)
{
	static const struct {
		uint8_t code[15];
		uint64_t slot;
		int err;
	} plans[] = {
		{ { 0xff, 0xd0 }, 0x1000, -ENOTSUP },	    /* call *%rax */
		{ { 0xe2, 0x10 }, 0x1000, -ENOTSUP },	    /* loop */
		{ { 0xcc }, 0x1000, -ENOTSUP },		    /* int3 */
		{ { 0x0f, 0x05 }, 0x1000, -ENOTSUP },	    /* syscall */
		{ { 0xc2, 0x08, 0x00 }, 0x1000, -ENOTSUP }, /* ret $8 */
		{ { 0x06 }, 0x1000, -ENOTSUP },		    /* invalid */
		{ { 0x48, 0x8b, 0x05, 0, 0, 0, 0 },
		  0x7f0000000000,
		  -ERANGE }, /* mov 0(%rip), %rax */
		{ { 0x48, 0x8b, 0x05, 0, 0, 0, 0 }, 0x600000, 0 },
		{ { 0x48, 0x8b, 0x07 }, 0x7f0000000000, 0 }, /* mov (%rdi), %rax */
	};
	uint8_t copy[MT_INSIDE_SLOT];
	struct mt_inside_site site;
	int32_t disp;
	size_t i;

	for (i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
		assert_int_equal(inside_plan__x86(plans[i].code, 15, 0x400000, plans[i].slot, &site,
						  copy),
				 plans[i].err);
	/* c5 f8 10 05 disp32: vmovups disp(%rip), %xmm0 */
	assert_int_equal(
		inside_plan__x86((const uint8_t[15]){ 0xc5, 0xf8, 0x10, 0x05, 0x00, 0x01, 0, 0 },
				 15, 0x400000, 0x400800, &site, copy),
		0);
	memcpy(&disp, copy + 4, sizeof(disp));
	assert_int_equal(disp, 0x100 - 0x800);
	assert_int_equal(site.length, 8);
	assert_int_equal(site.way, MT_INSIDE_SLOT_RUN);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_written_by_others),
		cmocka_unit_test(test_variable_without_place),
		cmocka_unit_test(test_plan),
#ifndef __SANITIZE_ADDRESS__ /* the sanitizer's runtime must be the first library */
		cmocka_unit_test(test_instructions),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_returns),
		cmocka_unit_test(test_signals),
#endif
	};
	size_t i;

	insn_target = (void *)insn_mov;
	for (i = 0; argc == 2 && i < sizeof(seconds) / sizeof(seconds[0]); i++) {
		if (!strcmp(argv[1], seconds[i].name))
			return seconds[i].run();
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
