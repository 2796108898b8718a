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

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "watch/watch.h"

#define DOCUMENT_MAX (16u << 20)	  /* largest document of a program, bytes */
#define EXEC_QUEUE 8			  /* commands of --exec that may wait */
#define EXEC_MOST UINT64_C(60000000000)	  /* time limit of --exec, ns */
#define FINISH_MOST UINT64_C(10000000000) /* time of watch_exec__finish() at most, ns */

/* For subprocess_opts.prepare, in the child: it writes into our log. */
static int hand_on_log(void *ctx)
{
	(void)ctx;
	log__hand_on(/*file_only=*/false);
	return 0;
}

int watch_spawn__self(const char *const *argv, int out, int err_fd, int nice_by,
		      struct subprocess *ret)
{
	const char **full_argv;
	size_t n_args = 0;
	int err;

	while (argv[n_args])
		n_args++;
	full_argv = calloc(n_args + 2, sizeof(*full_argv));
	if (!full_argv)
		return -ENOMEM;
	full_argv[0] = "memtrace-bpf";
	memcpy(full_argv + 1, argv, n_args * sizeof(*full_argv));
	err = subprocess__start(&(struct subprocess_opts){ .program = "/proc/self/exe",
							   .argv = full_argv,
							   .prepare = hand_on_log,
							   .out = out >= 0 ? out : STDERR_FILENO,
							   .err = err_fd,
							   .group = SUBPROCESS_OWN_GROUP,
							   .death_signal = SIGINT,
							   .nice_by = nice_by },
				ret);
	free(full_argv);
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

/* A command of --exec that has not started. env: variables "NAME=VALUE", NULL-terminated, owned. */
struct waiting {
	char *env[16];
	size_t n; /* variables */
};

/* One command runs at a time, in order of the events. */
static struct {
	struct waiting queue[EXEC_QUEUE];
	size_t n;		   /* commands in queue */
	struct subprocess process; /* the command that runs */
	uint64_t deadline;	   /* latest end of that command, CLOCK_MONOTONIC, ns */
	const char *command;	   /* argument of --exec, borrowed */
} exec;

static void free_command(struct waiting *command)
{
	for (size_t i = 0; i < command->n; i++)
		free(command->env[i]);
	command->n = 0;
}

/* Adds the variable MEMTRACE_NAME. Leaves it out if memory is short. */
static void put_variable(struct waiting *command, const char *name, const char *value)
{
	if (command->n + 1 < sizeof(command->env) / sizeof(*command->env) &&
	    asprintf(&command->env[command->n], "MEMTRACE_%s=%s", name, value) > 0)
		command->n++;
}

void watch_exec__run(struct watch *w, const char *event, const struct watch_shot *s)
{
	struct waiting *command = &exec.queue[exec.n];
	char number[24];

	if (!w->args.exec)
		return;
	if (exec.n == EXEC_QUEUE) {
		log_warn("--exec: %d commands are waiting: skipped this one", EXEC_QUEUE);
		return;
	}
	exec.command = w->args.exec;
	memset(command, 0, sizeof(*command));
	snprintf(number, sizeof(number), "%d", (int)s->pid);
	put_variable(command, "EVENT", event);
	put_variable(command, "PID", number);
	put_variable(command, "NAME", s->name);
	put_variable(command, "DEVICE", s->device);
	put_variable(command, "RULE", s->rule);
	put_variable(command, "TEXT", s->text);
	put_variable(command, "FILE", s->file);
	put_variable(command, "SNAPSHOT", s->snapshot);
	put_variable(command, "BLAME", s->blame);
	put_variable(command, "FINDINGS", s->findings);
	snprintf(number, sizeof(number), "%lld", (long long)s->rank);
	put_variable(command, "RANK", s->rank < 0 ? "" : number);
	exec.n++;
}

/* Starts a command of --exec. If that fails, logs it, and the command is dropped. */
static void start_command(struct waiting *command, uint64_t now)
{
	const char *argv[] = { "sh", "-c", exec.command, NULL };
	int err = subprocess__start(
		&(struct subprocess_opts){ .program = "/bin/sh",
					   .argv = argv,
					   .env = (const char *const *)command->env,
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
	uint64_t end = clock__monotonic() + FINISH_MOST, now;
	char skipped[48];

	while ((exec.process.pid || exec.n) && (now = clock__monotonic()) < end) {
		watch_exec__pump(now);
		if (exec.process.pid || exec.n)
			nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	}
	if (exec.process.pid)
		log_warn("--exec: the last command is still running");
	if (exec.n)
		log_warn("--exec: skipped %s",
			 text__counted(skipped, sizeof(skipped), exec.n, "waiting command"));
	while (exec.n)
		free_command(&exec.queue[--exec.n]);
}
