/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads the stacks of tests/workloads/stacks.py from outside in every interpreter of
 * $MEMTRACE_PYTHONS (paths separated by colons; default: those from python3.8 on in $PATH) and
 * compares them with the workload's output. Missing versions are reported as skipped. Versions
 * without a layout must be refused.
 */
#include "unit/cmocka.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <time.h>

#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "inspect/python/pyinternal.h"
#include "last_python.h"
#include "live.h"

#define MAX_STACK 512
#define CHURN_MS 700

struct wanted {
	char *name, *file;
	uint32_t line;
	bool check_self;
	uint64_t self;
};

struct test {
	struct live live;
	struct proc *proc;
	struct python *py;
	int version[3];
	uint64_t modules;
	char *stdlib;
	struct pyslot slot;
	struct pythread *threads;
	size_t nthreads, checked, frames;
	uint64_t empty; /* a thread state without frames; 0: none */
	char *sub;	/* innermost frame of the subinterpreter's thread */
	uint32_t sub_line;
	/* the thread of the workload's current lines */
	uint64_t ident;
	uint32_t native;
	char *name;
	struct wanted want[MAX_STACK];
	size_t nwant;
};

static uint64_t number(const char *s)
{
	return strtoull(s, NULL, 10);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void open_python(struct test *t)
{
	const char *why = NULL;
	struct maps maps;

	t->proc = proc__open(t->live.pid);
	assert_non_null(t->proc);
	assert_int_equal(proc__maps(t->proc, &maps), 0);
	t->py = python__open(t->proc, &maps, &why);
	if (t->version[1] < 8 || t->version[1] > LAST_MINOR) {
		char text[32];

		assert_null(t->py);
		assert_int_equal(errno, ENOTSUP);
		snprintf(text, sizeof(text), "Python 3.%d is not known", t->version[1]);
		if (strncmp(why, text, strlen(text)))
			fail_msg("%s", why);
		print_message("  refused: %s\n", why);
	} else if (!t->py) {
		fail_msg("%s: %s", why, strerror(errno));
	}
	maps__free(&maps);
}

static void check_process(struct test *t)
{
	static const char *const kinds[] = { "direct", "indirect", "either" };
	char dir[1024], tiny[4] = "old";
	int v[3];
	const char *why = "";
	int err;

	python__version(t->py, &v[0], &v[1], &v[2]);
	assert_memory_equal(v, t->version, sizeof(v));
	assert_ptr_equal(python__proc(t->py), t->proc);
	assert_int_equal(python__layout(t->py)->minor, v[1]);
	assert_int_equal(python__modules(t->py), t->modules);
	assert_int_equal(python__stdlib(t->py, dir, sizeof(dir)), 0);
	assert_string_equal(dir, t->stdlib);
	assert_int_equal(python__stdlib(t->py, tiny, sizeof(tiny)), -ENAMETOOLONG);
	assert_string_equal(tiny, "old");
	assert_int_equal(python__symbol(t->py, "_PyRuntime"), t->py->runtime);
	assert_int_equal(python__symbol(t->py, "Py_NoSuchThing"), 0);
	assert_true(python__symbol(t->py, "PyCell_Type") != 0);
	assert_int_equal(python__file(t->py)[0], '/');
	assert_int_equal(python__threads(t->py, &t->threads, &t->nthreads), 0);
	err = python__slot(t->py, &t->slot, &why);
	if (err)
		fail_msg("%s: %s", why, strerror(-err));
	print_message("  %s, %zu threads, slot %s %" PRId64 " %" PRId64 "\n", python__file(t->py),
		      t->nthreads, kinds[t->slot.kind], t->slot.first, t->slot.second);
}

/* The thread state as the kernel side finds it. ident: pthread_self() of the thread. Its thread
 * pointer is as far from it as this thread's, of the same libc. */
static uint64_t follow_slot(struct test *t, uint64_t ident)
{
	uint64_t tp = ident + (uint64_t)(uintptr_t)__builtin_thread_pointer() -
		      (uint64_t)pthread_self();
	uint64_t v = 0;

	assert_int_equal(proc__read_u64(t->proc, tp + (uint64_t)t->slot.first, &v), 0);
	if (t->slot.kind == PYSLOT_EITHER && !v)
		assert_int_equal(proc__read_u64(t->proc, tp + (uint64_t)t->slot.second, &v), 0);
	else if (t->slot.kind == PYSLOT_INDIRECT)
		assert_int_equal(proc__read_u64(t->proc, v + (uint64_t)t->slot.second, &v), 0);
	return v;
}

static void check_frame(struct test *t, const struct pyframe *f, const struct wanted *w, size_t i)
{
	struct pycode code;
	uint32_t line;
	int err = pyobj__code(t->py, f->code, &code);

	if (err)
		fail_msg("%s, frame %zu: %s for %s", t->name, i, strerror(-err), w->name);
	line = pyline__find(t->version[1], code.linetable, code.linetable_len, code.firstlineno,
			    f->at);
	if (strcmp(code.name, w->name) || strcmp(code.file, w->file) || line != w->line)
		fail_msg("%s, frame %zu: %s (%s:%u), not %s (%s:%u)", t->name, i, code.name,
			 code.file, line, w->name, w->file, w->line);
	if (w->check_self && f->local0 != w->self)
		fail_msg("%s, frame %zu, %s: self %#" PRIx64 ", not %#" PRIx64, t->name, i, w->name,
			 f->local0, w->self);
	pycode__free(&code);
	t->frames++;
}

/* Finds a thread by frames: a subinterpreter's thread uses the same pthread. */
static const struct pythread *find_thread(struct test *t, uint64_t slot)
{
	for (size_t i = 0; i < t->nthreads; i++) {
		if (t->threads[i].thread_id == t->ident && t->threads[i].tstate == slot)
			return &t->threads[i];
	}
	fail_msg("%s: thread state %#" PRIx64 " of its slot is not in the list", t->name, slot);
	return NULL;
}

static void check_thread(struct test *t)
{
	struct pyframe frames[MAX_STACK], few[3];
	const struct pythread *th;
	int n;

	th = find_thread(t, follow_slot(t, t->ident));
	assert_int_equal(th->tid, t->native);
	n = python__stack(t->py, th, frames, MAX_STACK);
	if (n < 0 || (size_t)n != t->nwant)
		fail_msg("%s: %d frames, not %zu", t->name, n, t->nwant);
	for (size_t i = 0; i < t->nwant; i++)
		check_frame(t, &frames[i], &t->want[i], i);
	assert_int_equal(python__stack(t->py, th, few, 3), 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(few[i].code == frames[i].code && few[i].at == frames[i].at &&
			    few[i].local0 == frames[i].local0);
	assert_int_equal(python__stack(t->py, th, few, 0), 0);
	t->checked++;
}

static void end_thread(struct test *t)
{
	if (t->nwant)
		check_thread(t);
	for (size_t i = 0; i < t->nwant; i++) {
		free(t->want[i].name);
		free(t->want[i].file);
	}
	t->nwant = 0;
	free(t->name);
	t->name = NULL;
}

static void on_line(struct test *t, char **f, size_t n)
{
	if (!strcmp(f[0], "version")) {
		assert_int_equal(n, 4);
		for (int i = 0; i < 3; i++)
			t->version[i] = (int)number(f[i + 1]);
	} else if (!strcmp(f[0], "modules")) {
		t->modules = number(f[1]);
	} else if (!strcmp(f[0], "stdlib")) {
		t->stdlib = live__unhex(f[1], NULL);
		open_python(t);
		if (t->py)
			check_process(t);
	} else if (!strcmp(f[0], "empty")) {
		t->empty = number(f[1]);
	} else if (!strcmp(f[0], "sub")) {
		t->sub = live__unhex(f[1], NULL);
		t->sub_line = (uint32_t)number(f[2]);
	} else {
		fail_msg("unknown line %s", f[0]);
	}
}

static void on_frame(struct test *t, char **f, size_t n)
{
	struct wanted *w;

	assert_int_equal(n, 5);
	assert_true(t->nwant < MAX_STACK);
	w = &t->want[t->nwant++];
	w->name = live__unhex(f[1], NULL);
	w->file = live__unhex(f[2], NULL);
	w->line = (uint32_t)number(f[3]);
	w->check_self = strcmp(f[4], "-");
	w->self = number(f[4]);
}

/* The workload stops after "ready", so its lines stay valid. */
static void read_workload(struct test *t)
{
	char *lines[4096], *f[LIVE_FIELDS];
	size_t nlines = 0, n;

	while (true) {
		ssize_t len = getline(&t->live.line, &t->live.line_cap, t->live.out);

		if (len <= 0)
			fail_msg("the workload ended early");
		assert_true(nlines < 4096);
		if (!strcmp(t->live.line, "ready\n"))
			break;
		t->live.line[len - 1] = '\0';
		lines[nlines++] = strdup(t->live.line);
	}
	for (size_t i = 0; i < nlines; i++) {
		char *save = NULL;

		n = 0;
		for (char *s = strtok_r(lines[i], "\t", &save); s && n < LIVE_FIELDS;
		     s = strtok_r(NULL, "\t", &save))
			f[n++] = s;
		if (strcmp(f[0], "frame"))
			end_thread(t);
		if (!t->py && t->stdlib)
			; /* a version without a layout: nothing to compare */
		else if (!strcmp(f[0], "frame"))
			on_frame(t, f, n);
		else if (!strcmp(f[0], "thread")) {
			t->ident = number(f[1]);
			t->native = (uint32_t)number(f[2]);
			t->name = live__unhex(f[3], NULL);
		} else
			on_line(t, f, n);
		free(lines[i]);
	}
	end_thread(t);
}

static void check_empty(struct test *t)
{
	struct pyframe f;
	size_t i = 0;

	if (!t->empty)
		return;
	while (i < t->nthreads && t->threads[i].tstate != t->empty)
		i++;
	assert_true(i < t->nthreads);
	assert_int_equal(python__stack(t->py, &t->threads[i], &f, 1), 0);
}

/* A thread in the list must have the subinterpreter's innermost frame. */
static void check_sub(struct test *t)
{
	struct pyframe f[MAX_STACK];
	struct pycode code;
	size_t found = 0;

	if (!t->sub)
		return;
	for (size_t i = 0; i < t->nthreads; i++) {
		if (python__stack(t->py, &t->threads[i], f, MAX_STACK) < 1 ||
		    pyobj__code(t->py, f[0].code, &code))
			continue;
		found += !strcmp(code.name, t->sub) &&
			 pyline__find(t->version[1], code.linetable, code.linetable_len,
				      code.firstlineno, f[0].at) == t->sub_line;
		pycode__free(&code);
	}
	assert_int_equal(found, 1);
}

static void check_all(struct test *t, size_t *whole, size_t *broken, size_t *cut)
{
	struct pythread *threads = NULL;
	struct pyframe f[64];
	struct pycode code;
	size_t n = 0;

	if (python__threads(t->py, &threads, &n))
		return;
	for (size_t i = 0; i < n; i++) {
		int depth = python__stack(t->py, &threads[i], f, 64);

		assert_true(depth <= 64);
		if (depth < 1) {
			*cut += depth < 0;
			continue;
		}
		if (pyobj__code(t->py, f[depth - 1].code, &code)) {
			++*broken;
			continue;
		}
		if (strstr(code.name, "_bootstrap") || !strcmp(code.name, "<module>"))
			++*whole;
		else
			*cut += depth < 64;
		pycode__free(&code);
	}
	free(threads);
}

/* Threads that run, start and end during reads: no crash, and mostly complete stacks. */
static void check_running(struct test *t)
{
	size_t whole = 0, broken = 0, cut = 0, looks = 0, slots = 0;
	char *f[LIVE_FIELDS];
	struct pyslot slot;
	uint64_t end;

	live__tell(&t->live, "r");
	assert_true(live__next(&t->live, f) == 1 && !strcmp(f[0], "running"));
	live__tell(&t->live, "");
	for (end = now_ms() + CHURN_MS; now_ms() < end; looks++) {
		check_all(t, &whole, &broken, &cut);
		if (looks % 16)
			continue;
		slots++;
		if (!python__slot(t->py, &slot, NULL))
			assert_true(slot.kind == t->slot.kind && slot.first == t->slot.first &&
				    slot.second == t->slot.second);
	}
	print_message("  running: %zu looks, %zu stacks read to the thread's start, %zu cut off, "
		      "%zu torn; %zu calibrations\n",
		      looks, whole, cut, broken, slots);
	assert_true(looks > 10 && whole > looks && cut <= whole / 20);
}

static void test_interpreter(const char *python)
{
	struct test t = { 0 };

	print_message("%s\n", python);
	live__start(&t.live, python, "tests/workloads/stacks.py");
	read_workload(&t);
	if (t.py) {
		check_empty(&t);
		check_sub(&t);
		assert_true(t.checked > 10 && t.frames > 400);
		print_message("  3.%d.%d: %zu threads, %zu frames as they should be%s%s\n",
			      t.version[1], t.version[2], t.checked, t.frames,
			      t.sub ? ", another interpreter" : "",
			      t.empty ? ", a state without frames" : "");
		check_running(&t);
	}
	live__tell(&t.live, "q");
	assert_true(live__stop(&t.live));
	python__free(t.py);
	proc__free(t.proc);
	free(t.threads);
	free(t.stdlib);
	free(t.sub);
}

/* A name in $PATH can be a launcher without that version: it must run. */
static bool runs(const char *python, int minor)
{
	char program[96];
	int status;
	pid_t pid;

	snprintf(program, sizeof(program), "import sys; sys.exit(sys.version_info[:2] != (3, %d))",
		 minor);
	pid = fork();
	if (!pid) {
		if (freopen("/dev/null", "w", stderr))
			execlp(python, python, "-c", program, (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       !WEXITSTATUS(status);
}

static void test_path(size_t *tested)
{
	char name[16];

	for (int minor = 8; minor <= LAST_MINOR; minor++) {
		snprintf(name, sizeof(name), "python3.%d", minor);
		if (runs(name, minor)) {
			test_interpreter(name);
			++*tested;
		} else {
			print_message("%s: skipped, there is none in $PATH\n", name);
		}
	}
}

static void stacks_equal_the_workloads(void **state)
{
	char *list = getenv("MEMTRACE_PYTHONS"), *copy, *save = NULL;
	size_t tested = 0;

	if (list && *list) {
		copy = strdup(list);
		for (char *p = strtok_r(copy, ":", &save); p;
		     p = strtok_r(NULL, ":", &save), tested++)
			test_interpreter(p);
		free(copy);
	} else {
		test_path(&tested);
	}
	if (!tested) {
		print_message("no interpreter at all: skipped\n");
		skip();
	}
}

static void refuses_without_python(void **state)
{
	struct proc *p = proc__open(getpid());
	const char *why = NULL;
	struct maps maps;

	assert_non_null(p);
	assert_int_equal(proc__maps(p, &maps), 0);
	assert_null(python__open(p, &maps, &why));
	assert_int_equal(errno, ENOENT);
	assert_non_null(strstr(why, "no Python in the process"));
	assert_null(python__open(p, &maps, NULL));
	python__free(NULL);
	maps__free(&maps);
	proc__free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_without_python),
		cmocka_unit_test(stacks_equal_the_workloads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
