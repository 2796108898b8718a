/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "watch/targets/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "watch/watch.h"

#define DOCUMENT_MAX (16u << 20) /* largest document of a program, bytes */
#define EXEC_QUEUE 8
#define EXEC_MOST UINT64_C(60000000000) /* time limit of --exec, ns */

static int hand_on_log(void *ctx)
{
	(void)ctx;
	log__hand_on(false);
	return 0;
}

int watch_spawn__self(const char *const *argv, int out, int err_fd, int nice_by,
		      struct subprocess *ret)
{
	const char **all;
	size_t n = 0;
	int err;

	while (argv[n])
		n++;
	all = calloc(n + 2, sizeof(*all));
	if (!all)
		return -ENOMEM;
	all[0] = "memtrace-bpf";
	memcpy(all + 1, argv, n * sizeof(*all));
	err = subprocess__start(&(struct subprocess_opts){ .program = "/proc/self/exe",
							   .argv = all,
							   .prepare = hand_on_log,
							   .out = out >= 0 ? out : STDERR_FILENO,
							   .err = err_fd,
							   .group = SUBPROCESS_OWN_GROUP,
							   .death_signal = SIGINT,
							   .nice_by = nice_by },
				ret);
	free(all);
	return err;
}

json_t *watch_spawn__document(int fd)
{
	size_t size;
	char *text = io__load(fd, DOCUMENT_MAX, &size);
	json_error_t e;
	json_t *doc = text ? json_loadb(text, size, 0, &e) : NULL;

	free(text);
	return doc;
}

const char *watch_spawn__result(int status, char buf[24])
{
	if (WIFEXITED(status))
		snprintf(buf, 24, "exit code %d", WEXITSTATUS(status));
	else
		snprintf(buf, 24, "signal %d", WTERMSIG(status));
	return buf;
}

/* ---- --exec ---- */

struct waiting {
	char *env[16];
	size_t n;
};

static struct {
	struct waiting queue[EXEC_QUEUE];
	size_t n;
	struct subprocess process;
	uint64_t deadline;
	const char *command;
} exec;

static void free_command(struct waiting *x)
{
	for (size_t i = 0; i < x->n; i++)
		free(x->env[i]);
	x->n = 0;
}

static void put_variable(struct waiting *x, const char *name, const char *value)
{
	if (x->n + 1 < sizeof(x->env) / sizeof(*x->env) &&
	    asprintf(&x->env[x->n], "MEMTRACE_%s=%s", name, value) > 0)
		x->n++;
}

void watch_exec__run(struct watch *w, const char *event, const struct watch_shot *s)
{
	struct waiting *x = &exec.queue[exec.n];
	char number[24];

	if (!w->args.exec)
		return;
	if (exec.n == EXEC_QUEUE) {
		log_warn("--exec: %d commands are waiting: skipped this one", EXEC_QUEUE);
		return;
	}
	exec.command = w->args.exec;
	memset(x, 0, sizeof(*x));
	snprintf(number, sizeof(number), "%d", (int)s->pid);
	put_variable(x, "EVENT", event);
	put_variable(x, "PID", number);
	put_variable(x, "NAME", s->name);
	put_variable(x, "DEVICE", s->device);
	put_variable(x, "RULE", s->rule);
	put_variable(x, "TEXT", s->text);
	put_variable(x, "FILE", s->file);
	put_variable(x, "SNAPSHOT", s->snapshot);
	put_variable(x, "BLAME", s->blame);
	snprintf(number, sizeof(number), "%lld", (long long)s->rank);
	put_variable(x, "RANK", s->rank < 0 ? "" : number);
	exec.n++;
}

static void start_command(struct waiting *x, uint64_t now)
{
	const char *argv[] = { "sh", "-c", exec.command, NULL };
	int err = subprocess__start(&(struct subprocess_opts){ .program = "/bin/sh",
							       .argv = argv,
							       .env = (const char *const *)x->env,
							       .out = STDERR_FILENO,
							       .err = SUBPROCESS_INHERIT,
							       .group = SUBPROCESS_OWN_GROUP },
				    &exec.process);

	if (err)
		log_warn("--exec: cannot start the command: %s", strerror(-err));
	exec.deadline = now + EXEC_MOST;
}

void watch_exec__pump(uint64_t now)
{
	char result[24];
	int status;

	if (subprocess__ended(&exec.process, &status)) {
		if (status)
			log_warn("--exec: the command ended with %s",
				 watch_spawn__result(status, result));
	} else if (exec.process.pid && now >= exec.deadline) {
		/* End the whole group. A command that ends in time may leave processes behind. */
		log_warn("--exec: ended the command after one minute");
		kill(-exec.process.pid, SIGKILL);
		exec.deadline = UINT64_MAX;
	}
	if (exec.process.pid || !exec.n)
		return;
	start_command(&exec.queue[0], now);
	free_command(&exec.queue[0]);
	memmove(exec.queue, exec.queue + 1, --exec.n * sizeof(*exec.queue));
}

void watch_exec__finish(void)
{
	for (int i = 0; i < 100 && (exec.process.pid || exec.n); i++) {
		watch_exec__pump(0);
		if (exec.process.pid || exec.n)
			nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	}
	while (exec.n)
		free_command(&exec.queue[--exec.n]);
}
