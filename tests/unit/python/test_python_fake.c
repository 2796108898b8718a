/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Simulated interpreters for what real ones do not show on demand: unsupported builds,
 * contradictory _Py_DebugOffsets, other C libraries, cyclic lists.
 */
#include "unit/cmocka.h"
#include "inspect/python/pyinternal.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/uio.h>

#include "fake_python.h"
#include "last_python.h"

static void refused(struct world *w, int err, const char *text)
{
	int got = look(w);

	if (got != err || !strstr(w->why, text))
		fail_msg("3.%d: %s (%s), not %s (%s)", w->l.minor, strerror(got), w->why,
			 strerror(err), text);
}

static void check_slot(struct world *w, enum pyslot_kind kind, int64_t off1, int64_t off2)
{
	struct pyslot s;
	const char *why = "";

	assert_int_equal(look(w), 0);
	if (python__slot(w->py, &s, &why))
		fail_msg("3.%d: %s", w->l.minor, why);
	assert_true(s.kind == kind && s.first == off1 && s.second == off2);
}

static void check_frames(struct world *w)
{
	struct pyframe f[8];
	struct pythread *t;
	size_t n;
	bool shims = w->l.minor >= 12;
	int scale = w->l.lasti_scale;

	assert_int_equal(python__threads(w->py, &t, &n), 0);
	assert_int_equal(n, NR_THREADS);
	for (size_t i = 0; i < n; i++) {
		assert_true(t[i].tstate == addr(w, TSTATE(NR_THREADS - 1 - i)));
		assert_int_equal(t[i].tid, 1000 + NR_THREADS - 1 - i);
	}
	assert_int_equal(python__stack(w->py, &t[0], f, 8), 0);
	assert_int_equal(python__stack(w->py, &t[NR_THREADS - 1], f, 8), shims ? 2 : 3);
	assert_true(f[0].code == addr(w, CODE) && f[0].at == -1 && f[0].local0 == 0xabc0);
	if (!shims)
		assert_true(f[1].at == (scale ? 9 * scale : 18) && f[1].local0 == 0xabd0);
	f[1] = f[shims ? 1 : 2];
	assert_true(f[1].code == addr(w, CODE) && f[1].at == (scale ? 19 * scale : 38) &&
		    f[1].local0 == 0xabe0);
	free(t);
}

static void all_versions_work(void **state)
{
	for (const struct build *b = builds; b < builds + NR_BUILDS; b++) {
		struct world w = make_build(b->minor, b->free_threaded);
		int v[3], minor = b->minor;

		check_slot(&w, PYSLOT_DIRECT, minor >= 15 ? LOCAL_AT : 784 + 3 * 16 + 8, 0);
		assert_int_equal(python__layout(w.py)->free_threaded, b->free_threaded);
		python__version(w.py, &v[0], &v[1], &v[2]);
		assert_int_equal(v[1], minor);
		assert_int_equal(v[2], minor >= 11 ? 7 : -1); /* no sys to read the version from */
		assert_string_equal(python__file(w.py), w.path);
		check_frames(&w);
		drop(&w);
	}
}

static void versions_refused(void **state)
{
	struct world w = make(12);

	put(&w, VERSION, 0x031002f0);
	refused(&w, ENOTSUP, "Python 3.16 is not known to this version; known: " PYLAYOUT_VERSIONS);
	put(&w, VERSION, 0x040000f0);
	refused(&w, ENOTSUP, "Python 4.0 is not known");
	put(&w, VERSION, 0x030c00b1);
	refused(&w, ENOTSUP, "pre-release of Python 3.12");
	put(&w, VERSION, 0x030c00c1);
	assert_int_equal(look(&w), 0);
	drop(&w);

	w = make(10);
	assert_int_equal(unlink(w.path), 0);
	map_file(w.path, "python3.7", w.m, w.m, 0, 3);
	refused(&w, ENOTSUP, "Python 3.7 is not known");
	unlink(w.path);
	map_file(w.path, "something", w.m, w.m, 0, 3);
	refused(&w, ENOTSUP, "before 3.11 of unknown version");
	unlink(w.path);
	map_file(w.path, "python3.12", w.m, w.m, 0, 3); /* exports all symbols except Py_Version */
	refused(&w, ENOTSUP, "Python 3.12 that does not export Py_Version");
	drop(&w);
}

static void descriptions_refused(void **state)
{
	struct world w = make(13);

	put(&w, RUNTIME + 16, 1); /* says that it is free-threaded, and is not */
	refused(&w, EBADMSG, "co_code_adaptive at 0, not at 200");
	put(&w, RUNTIME + 16, 0);
	put(&w, RUNTIME + 8, 0x030d06f0);
	refused(&w, EBADMSG, "_Py_DebugOffsets is of version 0x30d06f0");
	put(&w, RUNTIME, 0);
	refused(&w, EBADMSG, "does not begin with _Py_DebugOffsets");
	drop(&w);
}

/* Each entry of _Py_DebugOffsets in turn is larger than its struct. */
static void impossible_offsets_refused(void **state)
{
	static const uint64_t bad[] = { 0x3001,	    0xffff,	    0x10000,
					UINT64_MAX, UINT64_MAX - 3, 1ull << 63 };
	char path[64], name[32];
	unsigned pos, size;
	FILE *f;

	for (int minor = 13; minor <= LAST_MINOR; minor++) {
		struct world w = make(minor);
		size_t n = 0;

		snprintf(path, sizeof(path), "tests/data/debugoffsets-3.%d.txt", minor);
		f = fopen(path, "r");
		assert_non_null(f);
		while (fscanf(f, "%31s %u %u", name, &pos, &size) == 3) {
			uint64_t good;

			if (!strcmp(name, "minor"))
				continue;
			memcpy(&good, w.m + RUNTIME + pos, sizeof(good));
			for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
				put(&w, RUNTIME + pos, bad[i]);
				refused(&w, EBADMSG, name);
			}
			put(&w, RUNTIME + pos, good);
			n++;
		}
		fclose(f);
		assert_true(n == 31);
		assert_int_equal(look(&w), 0);
		drop(&w);
	}
}

/* The interpreter's own offsets take precedence over the table. */
static void description_wins(void **state)
{
	for (int minor = 13; minor <= LAST_MINOR; minor++) {
		struct world w = make(minor);

		w.l.fr_local0 = 96;
		w.l.fr_instr = 24;
		w.l.ts_frame = 80;
		w.l.is_threads = 6000;
		w.l.co_code_adaptive = 240;
		w.l.co_linetable = 144;
		memset(w.m + INTERP, 0, SIZE - INTERP);
		describe(&w, 0x03000000u | (uint32_t)minor << 16 | 0x7f0);
		put_types(&w);
		put(&w, INTERP + w.l.is_threads, addr(&w, TSTATE(NR_THREADS - 1)));
		for (size_t i = 0; i < NR_THREADS; i++)
			put_thread(&w, i);
		put_frames(&w);
		assert_int_equal(look(&w), 0);
		assert_int_equal(python__layout(w.py)->fr_local0, 96);
		assert_int_equal(python__layout(w.py)->co_code_adaptive, 240);
		check_frames(&w);
		drop(&w);
	}
}

static void contradictions_refused(void **state)
{
	static const char *const names[] = { "co_argcount",    NULL,	      "co_flags",
					     "co_firstlineno", "co_filename", "co_name",
					     "co_linetable",   "co_qualname" };

	for (size_t i = 0; i < 8; i++) {
		struct world w = make(12);

		if (!names[i])
			goto next;
		put(&w, MEMBERS + 40 * i + 16, 1000);
		refused(&w, EBADMSG, names[i]);
		assert_non_null(strstr(w.why, "at 1000, not at "));
		memcpy(w.m + NAMES + 32 * i, "other", 6);
		refused(&w, EBADMSG, names[i]);
		assert_non_null(strstr(w.why, "does not list"));
		memset(w.m + NAMES + 32 * i, 'x', 32);
		put(&w, MEMBERS + 40 * i, addr(&w, NAMES + 0x7e0));
		memset(w.m + NAMES + 0x7e0, 'x', 32);
		refused(&w, EBADMSG, "members of PyCode_Type");
		put(&w, MEMBERS + 40 * i, addr(&w, SIZE));
		refused(&w, EFAULT, "members of PyCode_Type");
	next:
		drop(&w);
	}
	struct world w = make(12);

	put(&w, CODE_TYPE + w.l.tp_basicsize, 200);
	refused(&w, EBADMSG, "co_code_adaptive at 200, not at 192");
	put(&w, CODE_TYPE + w.l.ob_type, addr(&w, CODE_TYPE));
	refused(&w, EBADMSG, "PyCode_Type is not a type");
	put(&w, CODE_TYPE + w.l.ob_type, 0);
	refused(&w, EAGAIN, "still starting");
	put(&w, RUNTIME + w.l.rt_interp_head, 0);
	refused(&w, EAGAIN, "still starting");
	drop(&w);
}

/* An executable with a copy of _PyRuntime, and a library with the rest. */
static void copied_runtime(void **state)
{
	struct world w = make(12);

	unlink(w.path);
	map_file(w.path, "program", w.m, w.m, 0, 1);
	refused(&w, ENOTSUP, "no mapped file exports PyCode_Type");
	/* the interpreter's unused last page */
	map_file(w.path2, "libpython3.12.so", w.m + 0x7000, w.m, 1, 3);
	check_slot(&w, PYSLOT_DIRECT, 784 + 3 * 16 + 8, 0);
	assert_string_equal(python__file(w.py), w.path);
	assert_true(python__symbol(w.py, "PyCode_Type") == addr(&w, CODE_TYPE));
	assert_true(w.py->runtime == addr(&w, RUNTIME));
	drop(&w);
}

static void forget_keys(struct world *w)
{
	for (size_t i = 0; i < NR_THREADS; i++)
		put(w, key_slot(i, 3), 0);
}

/* Key 37 is in a second-level block; key 3 belongs to an extension that also stores the thread
 * state. */
static void keys_in_second_blocks(void **state)
{
	struct world w = make(12);

	for (size_t i = 0; i < NR_THREADS; i++) {
		put(&w, PTHREAD(i) + 1296 + 8, addr(&w, KEYS(i)));
		put(&w, KEYS(i) + 16 * 5 + 8, addr(&w, TSTATE(i)));
	}
	put32(&w, RUNTIME + w.l.rt_tss_key + 4, 37);
	check_slot(&w, PYSLOT_INDIRECT, 1296 + 8, 16 * 5 + 8);
	put32(&w, RUNTIME + w.l.rt_tss_key + 4, 3);
	check_slot(&w, PYSLOT_DIRECT, 784 + 3 * 16 + 8, 0);
	forget_keys(&w);
	check_slot(&w, PYSLOT_INDIRECT, 1296 + 8, 16 * 5 + 8);
	/* without the runtime's key, the key with the most matching threads is chosen */
	put32(&w, RUNTIME + w.l.rt_tss_key, 0);
	put(&w, key_slot(0, 9), addr(&w, TSTATE(0)));
	put(&w, key_slot(1, 9), addr(&w, TSTATE(1)));
	check_slot(&w, PYSLOT_INDIRECT, 1296 + 8, 16 * 5 + 8);
	drop(&w);
}

static void musl(void **state)
{
	struct world w = make(12);

	for (size_t i = 0; i < NR_THREADS; i++) {
		memset(w.m + PTHREAD(i), 0, 0x1000);
		put(&w, PTHREAD(i), addr(&w, PTHREAD(i)));
		put(&w, PTHREAD(i) + 16, addr(&w, PTHREAD((i + 1) % NR_THREADS)));
		put(&w, PTHREAD(i) + 128, addr(&w, KEYS(i)));
		put(&w, KEYS(i) + 8 * 3, addr(&w, TSTATE(i)));
	}
	check_slot(&w, PYSLOT_INDIRECT, 128, 8 * 3);
	put32(&w, RUNTIME + w.l.rt_tss_key, 77);
	check_slot(&w, PYSLOT_INDIRECT, 128, 8 * 3);
	drop(&w);
}

static void no_slot(void **state)
{
	struct world w = make(12);
	struct pyslot s = { .first = 77 };
	const char *why = "";

	forget_keys(&w);
	assert_int_equal(look(&w), 0);
	assert_int_equal(python__slot(w.py, &s, &why), -ENOENT);
	assert_non_null(strstr(why, "of the 3 Python threads"));
	/* one of three threads under a key, without a second one */
	put(&w, key_slot(1, 9), addr(&w, TSTATE(1)));
	assert_int_equal(python__slot(w.py, &s, &why), -ENOENT);
	assert_int_equal(python__slot(w.py, &s, NULL), -ENOENT);
	for (size_t i = 0; i < NR_THREADS; i++)
		put(&w, TSTATE(i) + w.l.ts_thread_id, 0);
	assert_int_equal(python__slot(w.py, &s, &why), -ENOENT);
	assert_non_null(strstr(why, "no Python thread has begun"));
	put(&w, TSTATE(0) + w.l.ts_next, addr(&w, SIZE));
	assert_int_equal(python__slot(w.py, &s, &why), -EFAULT);
	assert_int_equal(s.first, 77);
	drop(&w);
}

/* From 3.15 on. */
static void local_variables(void **state)
{
	struct world w = make(15);
	struct pyslot s;
	const char *why = "";

	/* one thread runs Python code: its second variable holds its state */
	put(&w, PTHREAD(1) - 8, addr(&w, TSTATE(1)));
	check_slot(&w, PYSLOT_DIRECT, LOCAL_AT, 0);
	put(&w, PTHREAD(0) - 8, addr(&w, TSTATE(0)));
	put(&w, PTHREAD(2) - 8, addr(&w, TSTATE(2)));
	check_slot(&w, PYSLOT_EITHER, -8, LOCAL_AT);
	for (size_t i = 0; i < NR_THREADS; i++)
		put(&w, PTHREAD(i) - 16, addr(&w, TSTATE(i)));
	assert_int_equal(look(&w), 0);
	assert_int_equal(python__slot(w.py, &s, &why), -ENOENT);
	assert_non_null(strstr(why, "3 thread-local variables hold"));
	for (size_t i = 0; i < NR_THREADS; i++) {
		put(&w, PTHREAD(i) - 8, 0);
		put(&w, PTHREAD(i) - 16, 0);
		put(&w, PTHREAD(i) + LOCAL_AT, 0);
	}
	put(&w, PTHREAD(1) - 8, addr(&w, TSTATE(1)));
	assert_int_equal(python__slot(w.py, &s, &why), -ENOENT); /* one of three */
	drop(&w);
}

/* A thread's copy of the bytecode that is not there. */
static void hostile_copies(void **state)
{
	struct world w = make_build(14, true);
	struct pyframe f[4];
	struct pythread t = { .tstate = addr(&w, TSTATE(0)) };

	assert_int_equal(look(&w), 0);
	assert_int_equal(python__stack(w.py, &t, f, 4), 2);
	assert_int_equal(f[1].at, 38);
	put32(&w, FRAME(2) + w.l.fr_tlbc, 2);
	assert_int_equal(python__stack(w.py, &t, f, 4), 1);
	put32(&w, FRAME(2) + w.l.fr_tlbc, UINT32_MAX);
	assert_int_equal(python__stack(w.py, &t, f, 4), 1);
	put32(&w, FRAME(0) + w.l.fr_tlbc, 1);
	put(&w, CODE + w.l.co_tlbc, addr(&w, SIZE));
	assert_int_equal(python__stack(w.py, &t, f, 4), -EBADMSG);
	drop(&w);
}

static int list(struct world *w)
{
	struct pythread *t = (void *)w;
	size_t n = 12345;
	int err;

	err = python__threads(w->py, &t, &n);
	if (!err)
		free(t);
	else
		assert_true(n == 12345 && t == (void *)w);
	return err;
}

static void hostile_lists(void **state)
{
	struct world w = make(9);

	assert_int_equal(look(&w), 0);
	assert_int_equal(list(&w), 0);
	put(&w, TSTATE(0) + w.l.ts_next, addr(&w, TSTATE(2)));
	assert_int_equal(list(&w), -E2BIG);
	put(&w, TSTATE(0) + w.l.ts_next, addr(&w, SIZE));
	assert_int_equal(list(&w), -EFAULT);
	put(&w, TSTATE(0) + w.l.ts_next, UINT64_MAX);
	assert_int_equal(list(&w), -EFAULT);
	put(&w, TSTATE(0) + w.l.ts_next, 0);
	put(&w, TSTATE(1) + w.l.ts_interp, 1);
	assert_int_equal(list(&w), -EAGAIN);
	put(&w, TSTATE(1) + w.l.ts_interp, addr(&w, INTERP));
	put(&w, INTERP + w.l.is_next, addr(&w, INTERP));
	assert_int_equal(list(&w), -E2BIG);
	drop(&w);
}

static int depth(struct world *w, size_t max)
{
	struct pythread t = { .tstate = addr(w, TSTATE(0)) };
	struct pyframe f[64];

	assert_true(max <= 64);
	return python__stack(w->py, &t, f, max);
}

static void hostile_frames(void **state)
{
	for (const struct build *b = builds; b < builds + NR_BUILDS; b++) {
		struct world w = make_build(b->minor, b->free_threaded);
		const struct pylayout *l = &w.l;
		int minor = b->minor;
		int whole = minor >= 12 ? 2 : 3;

		assert_int_equal(look(&w), 0);
		assert_int_equal(depth(&w, 64), whole);
		put(&w, FRAME(2) + l->fr_prev, addr(&w, FRAME(0)));
		assert_int_equal(depth(&w, 64), 64);
		put(&w, FRAME(2) + l->fr_prev, addr(&w, SIZE) - 16);
		assert_int_equal(depth(&w, 64), whole);
		put(&w, FRAME(2) + l->fr_prev, UINT64_MAX - 8);
		assert_int_equal(depth(&w, 64), whole);
		put(&w, FRAME(2) + l->fr_code, addr(&w, CODE_TYPE));
		assert_int_equal(depth(&w, 64), whole - 1);
		put(&w, FRAME(0) + l->fr_code, 0);
		assert_int_equal(depth(&w, 64), -EFAULT);
		put(&w, FRAME(0) + l->fr_code, addr(&w, CODE));
		if (minor >= 11) {
			put(&w, FRAME(0) + l->fr_instr, addr(&w, CODE) - 100);
			assert_int_equal(depth(&w, 64), -EBADMSG);
			put(&w, FRAME(0) + l->fr_instr,
			    addr(&w, CODE) + (1ull << 31) + l->co_code_adaptive);
			assert_int_equal(depth(&w, 64), -EBADMSG);
		}
		if (minor >= 12) { /* only the interpreter's sentinel, in a cycle */
			w.m[FRAME(0) + l->fr_owner] = 3;
			put(&w, FRAME(0) + l->fr_prev, addr(&w, FRAME(0)));
			assert_int_equal(depth(&w, 64), 0);
		}
		put(&w, TSTATE(0) + l->ts_frame, addr(&w, SIZE));
		assert_int_equal(depth(&w, 64), -EFAULT);
		put(&w, TSTATE(0) + l->ts_frame, 0);
		assert_int_equal(depth(&w, 64), 0);
		drop(&w);
	}
}

/* A process that goes on during a walk: a frame returns, or its generator yields, before the n-th
 * read and runs again before some later read. */
static struct {
	struct world *w;
	unsigned reads, first, last;
	void (*away)(struct world *w);
	void (*back)(struct world *w);
} returned;

static void frame_ends(struct world *w)
{
	put(w, FRAME(2) + w->l.fr_code, 0);
}

static void frame_runs(struct world *w)
{
	put(w, FRAME(2) + w->l.fr_code, addr(w, CODE));
}

static void generator_yields(struct world *w)
{
	put(w, FRAME(0) + w->l.fr_prev, 0);
}

/* Makes frame 0 a generator's. */
static void generator_runs(struct world *w)
{
	const size_t code = COPY; /* a code object in versions without copied bytecode */

	if (w->l.fr_owner != PYLAYOUT_NONE) {
		w->m[FRAME(0) + w->l.fr_owner] = 1;
	} else {
		put(w, code + w->l.ob_type, addr(w, CODE_TYPE));
		put32(w, code + w->l.co_flags, 0x20);
		put(w, FRAME(0) + w->l.fr_code, addr(w, code));
	}
	put(w, FRAME(0) + w->l.fr_prev, addr(w, FRAME(1)));
}

/* To 3.10, a frame that ended is an object that nothing refers to. */
static void frame_is_freed(struct world *w)
{
	if (w->l.fr_owner != PYLAYOUT_NONE)
		return;
	put(w, FRAME(0), 0);
	put(w, FRAME(0) + w->l.fr_prev, 0);
}

static void frame_is_used_again(struct world *w)
{
	if (w->l.fr_owner != PYLAYOUT_NONE)
		return;
	put(w, FRAME(0), 1);
	put(w, FRAME(0) + w->l.fr_prev, addr(w, FRAME(1)));
}

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long m, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long m, unsigned long flags);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long m, unsigned long flags)
{
	if (returned.w && returned.reads++ == returned.first)
		returned.away(returned.w);
	if (returned.w && returned.reads > returned.last)
		returned.back(returned.w);
	return __real_process_vm_readv(pid, local, n, remote, m, flags);
}

static void check_returns(const struct build *b, void (*away)(struct world *w),
			  void (*back)(struct world *w))
{
	struct world w = make_build(b->minor, b->free_threaded);
	int whole = b->minor >= 12 ? 2 : 3;

	assert_int_equal(look(&w), 0);
	back(&w);
	returned.away = away;
	returned.back = back;
	returned.w = &w;
	returned.first = returned.last = UINT_MAX;
	returned.reads = 0;
	assert_int_equal(depth(&w, 64), whole);
	assert_true(returned.reads < 20); /* one walk */
	for (unsigned reads = returned.reads, n = 0; n < reads; n++) {
		returned.first = n;
		returned.last = n + reads;
		returned.reads = 0;
		assert_int_equal(depth(&w, 64), whole);
		back(&w);
	}
	returned.w = NULL;
	drop(&w);
}

static void frames_that_return(void **state)
{
	for (const struct build *b = builds; b < builds + NR_BUILDS; b++) {
		check_returns(b, frame_ends, frame_runs);
		check_returns(b, generator_yields, generator_runs);
		check_returns(b, frame_is_freed, frame_is_used_again);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_versions_work),
		cmocka_unit_test(versions_refused),
		cmocka_unit_test(descriptions_refused),
		cmocka_unit_test(impossible_offsets_refused),
		cmocka_unit_test(description_wins),
		cmocka_unit_test(contradictions_refused),
		cmocka_unit_test(copied_runtime),
		cmocka_unit_test(keys_in_second_blocks),
		cmocka_unit_test(musl),
		cmocka_unit_test(no_slot),
		cmocka_unit_test(local_variables),
		cmocka_unit_test(hostile_copies),
		cmocka_unit_test(hostile_lists),
		cmocka_unit_test(hostile_frames),
		cmocka_unit_test(frames_that_return),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
