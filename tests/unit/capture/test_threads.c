/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Threads of a process whose numbers the kernel gives again. The test runs in a PID namespace,
 * where it chooses the next number. */
#include "unit/cmocka.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/decode/decoder.h"
#include "capture/session.h"
#include "capture/target.h"
#include "inspect/proc.h"
#include "record/dict.h"

#define SECOND 1000000000ULL
#define PASSED 42
#define CANNOT 43

struct thread_here {
	const char *name;
	pthread_t id;
	pid_t tid;
	uint64_t started;
	pthread_barrier_t ready, end;
};

static void *thread(void *ctx)
{
	struct thread_here *t = ctx;

	prctl(PR_SET_NAME, t->name);
	t->tid = gettid();
	pthread_barrier_wait(&t->ready);
	pthread_barrier_wait(&t->end);
	return NULL;
}

static bool begin(const struct proc *p, struct thread_here *t, const char *name)
{
	*t = (struct thread_here){ .name = name };
	pthread_barrier_init(&t->ready, NULL, 2);
	pthread_barrier_init(&t->end, NULL, 2);
	if (pthread_create(&t->id, NULL, thread, t))
		return false;
	pthread_barrier_wait(&t->ready);
	return !proc__thread_started(p, t->tid, &t->started);
}

static void end(const struct proc *p, struct thread_here *t)
{
	uint64_t started;

	pthread_barrier_wait(&t->end);
	pthread_join(t->id, NULL);
	while (!proc__thread_started(p, t->tid, &started))
		sched_yield(); /* the kernel wakes us before it frees the number */
}

/* Starts a thread with the number of an ended one, which the kernel may free late, and with another
 * start time (in ticks of 10 ms). */
static bool begin_again(const struct proc *p, const struct thread_here *was, struct thread_here *t)
{
	FILE *f;

	for (;;) {
		f = fopen("/proc/sys/kernel/ns_last_pid", "we");
		if (!f || fprintf(f, "%d", was->tid - 1) < 0 || fclose(f))
			return false;
		if (!begin(p, t, "second"))
			return false;
		if (t->tid == was->tid && t->started != was->started)
			return true;
		end(p, t);
	}
}

/* ---- in the namespace ---- */

static uint32_t event_thread;

static int on_event(struct sink *s, const struct event *e)
{
	(void)s;
	event_thread = e->thread;
	return 0;
}

/* The name of the thread of a record. */
static const char *name_at(struct decoder *d, pid_t tid, uint64_t time)
{
	const struct mt_rec_free r = {
		.h = { .type = MT_REC_CPU_DELETE, .tid = (uint32_t)tid, .time = time }, .addr = 4096
	};

	if (decoder__record(d, &r, sizeof(r)))
		return "";
	return dict__str(d->dict, dict__get_thread(d->dict, event_thread).name);
}

static bool is(const char *name, const char *expected)
{
	return !strcmp(name, expected);
}

static int try_reuse(void)
{
	const struct session_opts opts = { 0 };
	struct target target = { .proc = proc__open(getpid()) };
	struct dict *dict = dict__new();
	struct sink sink = { .event = on_event };
	struct decoder *d = decoder__new(&opts, &target, NULL, dict, NULL);
	struct thread_here first, second;

	if (!target.proc || !dict || !d || !begin(target.proc, &first, "first"))
		return 1;
	d->next = &sink;
	d->start = 1;
	if (!is(name_at(d, first.tid, SECOND), "first"))
		return 2;
	decoder__thread(d, (uint32_t)first.tid)->cuda_device_no = 3;
	if (!is(name_at(d, first.tid, 2 * SECOND), "first") ||
	    decoder__thread(d, (uint32_t)first.tid)->cuda_device_no != 3)
		return 3; /* silent, but the same */
	end(target.proc, &first);
	if (!begin_again(target.proc, &first, &second))
		return CANNOT;
	if (!is(name_at(d, second.tid, 3 * SECOND), "second"))
		return 4;
	if (decoder__thread(d, (uint32_t)second.tid)->cuda_device_no)
		return 5;
	end(target.proc, &second);
	/* Records of a thread that has ended are its own, until another thread has its number. */
	if (!is(name_at(d, second.tid, 4 * SECOND), "second"))
		return 6;
	decoder__free(d);
	dict__free(dict);
	proc__free(target.proc);
	return PASSED;
}

static int wait_for(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static void test_a_thread_number_given_again_is_another_thread(void **state)
{
	pid_t outer = fork(), inner;
	int code;

	(void)state;
	if (!outer) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS))
			_exit(CANNOT);
		inner = fork();
		if (inner)
			_exit(wait_for(inner));
		if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("proc", "/proc", "proc", 0, NULL))
			_exit(CANNOT);
		_exit(try_reuse());
	}
	code = wait_for(outer);
	if (code == CANNOT)
		skip();
	assert_int_equal(code, PASSED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_thread_number_given_again_is_another_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
