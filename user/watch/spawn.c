/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "watch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "log/config.h"
#include "watch/watch.h"

#define MOST_ARGS 30
#define EXEC_QUEUE 8
#define EXEC_MOST UINT64_C(60000000000) /* ns that --exec may take */

extern char **environ;

/* In the child: as a shell would start it. */
static void settle(int out, int nice_by, bool with_us)
{
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	dup2(out >= 0 ? out : STDERR_FILENO, STDOUT_FILENO);
	if (nice_by && nice(nice_by) < 0)
		errno = 0; /* as it is, then */
	setpgid(0, 0);	   /* Ctrl-C is for us, who then ask it to end */
	if (with_us)
		prctl(PR_SET_PDEATHSIG, SIGINT);
}

pid_t watch_spawn__self(const char *const *argv, int out, int nice_by)
{
	const char *all[MOST_ARGS + 2] = { "memtrace-bpf" };
	pid_t pid, parent = getpid();

	for (size_t i = 0; i < MOST_ARGS && argv[i]; i++)
		all[i + 1] = argv[i];
	pid = fork();
	if (pid)
		return pid;
	settle(out, nice_by, true);
	log__hand_on(false);
	if (getppid() == parent)
		execv("/proc/self/exe", (char *const *)all);
	_exit(127);
}

/* ---- --exec ---- */

struct waiting {
	char *env[16];
	size_t n;
};

static struct {
	struct waiting queue[EXEC_QUEUE];
	size_t n;
	pid_t pid;
	uint64_t deadline;
	const char *command;
} exec;

static void drop(struct waiting *x)
{
	for (size_t i = 0; i < x->n; i++)
		free(x->env[i]);
	x->n = 0;
}

static void put(struct waiting *x, const char *name, const char *value)
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
		log_warn("--exec: %d commands wait already: this one is not run", EXEC_QUEUE);
		return;
	}
	exec.command = w->args.exec;
	memset(x, 0, sizeof(*x));
	snprintf(number, sizeof(number), "%d", (int)s->pid);
	put(x, "EVENT", event);
	put(x, "PID", number);
	put(x, "NAME", s->name);
	put(x, "DEVICE", s->device);
	put(x, "RULE", s->rule);
	put(x, "TEXT", s->text);
	put(x, "FILE", s->file);
	put(x, "SNAPSHOT", s->snapshot);
	put(x, "BLAME", s->blame);
	snprintf(number, sizeof(number), "%lld", (long long)s->rank);
	put(x, "RANK", s->rank < 0 ? "" : number);
	exec.n++;
}

static void begin(struct waiting *x, uint64_t now)
{
	exec.pid = fork();
	if (!exec.pid) {
		settle(-1, 0, false);
		for (size_t i = 0; i < x->n; i++)
			putenv(x->env[i]);
		execl("/bin/sh", "sh", "-c", exec.command, (char *)NULL);
		_exit(127);
	}
	if (exec.pid < 0) {
		log_warn("--exec: cannot be started: %s", strerror(errno));
		exec.pid = 0;
	}
	exec.deadline = now + EXEC_MOST;
}

void watch_exec__pump(uint64_t now)
{
	int status;

	if (exec.pid && waitpid(exec.pid, &status, WNOHANG) == exec.pid) {
		exec.pid = 0;
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			log_warn("--exec: the command ended with %s %d",
				 WIFEXITED(status) ? "exit code" : "signal",
				 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	} else if (exec.pid && now >= exec.deadline) {
		/* It leads a group of its own: with all that it has started. */
		log_warn("--exec: the command takes longer than a minute: ended");
		kill(-exec.pid, SIGKILL);
		exec.deadline = UINT64_MAX;
	}
	if (exec.pid || !exec.n)
		return;
	begin(&exec.queue[0], now);
	drop(&exec.queue[0]);
	memmove(exec.queue, exec.queue + 1, --exec.n * sizeof(*exec.queue));
}

void watch_exec__finish(void)
{
	for (int i = 0; i < 100 && (exec.pid || exec.n); i++) {
		watch_exec__pump(0);
		if (exec.pid || exec.n)
			nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	}
	while (exec.n)
		drop(&exec.queue[--exec.n]);
}
