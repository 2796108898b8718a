/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The loop of a capture, without PyTorch: the order of its calls, and its end. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/exit.h"
#include "base/log.h"
#include "capture/capture_loop.h"

struct world {
	struct capture_loop loop;
	struct loop_command command;
	pid_t pid;
	char calls[256]; /* the calls, in order */
	char log[1024];
	int begin_fails, ready_fails, end_status;
	bool ready_kills, ready_quits, ready_signals;
};

static void note(struct world *w, const char *what)
{
	strncat(w->calls, what, sizeof(w->calls) - strlen(w->calls) - 1);
}

static void *begin(void *ctx, struct session *s, pid_t pid, unsigned int times, struct sink **sink)
{
	static struct sink none;
	struct world *w = ctx;

	assert_non_null(s);
	assert_int_equal(pid, w->pid);
	note(w, times ? "begin again; " : "begin; ");
	*sink = &none;
	return w->begin_fails ? NULL : w;
}

static int attached(void *output)
{
	note(output, "attached; ");
	return EXIT_OK;
}

static int end(void *output, const char *reason, int err)
{
	struct world *w = output;

	assert_int_equal(err, 0);
	note(w, "end: ");
	note(w, reason);
	return w->end_status;
}

static const struct tracees_output output = { begin, attached, NULL, end };

static bool signalled(void *ctx)
{
	struct world *w = ctx;
	struct signalfd_siginfo si;

	while (read(w->command.signals, &si, sizeof(si)) == sizeof(si))
		;
	note(w, "signalled; ");
	w->loop.quit = true;
	return true;
}

static int ready(void *ctx)
{
	struct world *w = ctx;

	note(w, "ready; ");
	if (w->ready_kills)
		kill(w->pid, SIGKILL);
	if (w->ready_signals)
		raise(SIGTERM);
	w->loop.quit = w->ready_quits;
	return w->ready_fails;
}

static void waiting(void *ctx)
{
	note(ctx, "waiting; ");
}

static void take_log(void *ctx, enum log_level level, const char *text)
{
	struct world *w = ctx;

	snprintf(w->log, sizeof(w->log), "%s", text);
}

/* A process of ours that is neither Python nor has PyTorch. */
static void setup(struct world *w, bool of_command)
{
	sigset_t set;

	w->pid = fork();
	if (!w->pid) {
		alarm(60); /* its end, if the test breaks off */
		pause();
		_exit(0);
	}
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	w->command = (struct loop_command){
		.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
		.signalled = signalled,
		.ready = ready,
		.waiting = waiting,
	};
	w->loop.args.pid = w->pid;
	w->loop.output = &output;
	w->loop.ctx = w;
	w->loop.command = of_command ? &w->command : NULL;
	log__divert(take_log, w);
}

static void cleanup(struct world *w)
{
	log__divert(NULL, NULL);
	capture_loop__close(&w->loop);
	close(w->command.signals);
	kill(w->pid, SIGKILL);
	waitpid(w->pid, NULL, 0);
}

static void runs(struct world w, int status, const char *calls, const char *reason)
{
	setup(&w, true);
	assert_int_equal(capture_loop__open(&w.loop), EXIT_OK);
	assert_int_equal(capture_loop__run(&w.loop), status);
	assert_string_equal(w.calls, calls);
	if (reason)
		assert_string_equal(w.loop.stop_reason, reason);
	cleanup(&w);
}

/* The output begins before the command runs, so that a full disk is known. */
static void test_order(void **state)
{
	runs((struct world){ .ready_quits = true }, EXIT_OK, "begin; ready; end: signal", "signal");
}

static void test_ends_without_torch(void **state)
{
	runs((struct world){ .ready_kills = true }, EXIT_UNUSABLE,
	     "begin; ready; end: target exited", "target exited");
}

/* A signal is the command's as long as it is captured. */
static void test_signal(void **state)
{
	runs((struct world){ .ready_signals = true }, EXIT_OK,
	     "begin; ready; signalled; end: signal", "signal");
}

static void test_failures(void **state)
{
	runs((struct world){ .begin_fails = 1 }, EXIT_FAILED, "begin; ", NULL);
	runs((struct world){ .ready_fails = 127 }, 127, "begin; ready; end: signal", NULL);
	runs((struct world){ .ready_quits = true, .end_status = EXIT_FAILED }, EXIT_FAILED,
	     "begin; ready; end: signal", NULL);
}

/* Only a command may still become Python. */
static void test_no_python(void **state)
{
	struct world w = { 0 };

	setup(&w, false);
	assert_int_equal(capture_loop__open(&w.loop), EXIT_UNUSABLE);
	assert_non_null(strstr(w.log, "has no Python interpreter, PyTorch or CUDA"));
	assert_string_equal(w.calls, "");
	cleanup(&w);
}

static void test_no_process(void **state)
{
	struct world w = { 0 };

	setup(&w, false);
	kill(w.pid, SIGKILL);
	waitpid(w.pid, NULL, 0);
	assert_int_equal(capture_loop__open(&w.loop), EXIT_UNUSABLE);
	assert_non_null(strstr(w.log, "no process with PID"));
	capture_loop__close(&w.loop);
	close(w.command.signals);
	log__divert(NULL, NULL);
}

static void says(struct capture_loop loop, const char *until)
{
	assert_string_equal(capture_loop__until(&loop), until);
}

static void test_until(void **state)
{
	says((struct capture_loop){ 0 }, "it exits");
	says((struct capture_loop){ .args.duration = 10000000000 }, "10.0 s have passed");
	says((struct capture_loop){ .args.session.steps = 60 }, "60 steps have passed");
	says((struct capture_loop){ .args.session.steps = 1 }, "1 step has passed");
	says((struct capture_loop){ .args.session.steps = 1, .args.duration = 10000000000 },
	     "10.0 s or 1 step have passed");
	says((struct capture_loop){ .args.session.steps = 1, .until = "peak>1 holds" },
	     "peak>1 holds");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),	  cmocka_unit_test(test_ends_without_torch),
		cmocka_unit_test(test_signal),	  cmocka_unit_test(test_failures),
		cmocka_unit_test(test_no_python), cmocka_unit_test(test_no_process),
		cmocka_unit_test(test_until),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
