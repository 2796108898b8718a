/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/session.h"
#include "estimate/watch.h"
#include "lib/clock.h"
#include "lib/exit.h"
#include "lib/map64.h"
#include "log/log.h"

#define LOOK_EVERY 250000000ULL /* ns, at the host's memory */

const char *run_end__name(enum run_end e)
{
	static const char *const names[] = {
		[RUN_ENDED] = "ended",
		[RUN_REPEATED] = "repeated",
		[RUN_STEPS] = "steps",
		[RUN_OOM] = "oom",
		[RUN_TIME] = "max-time",
		[RUN_HOST_MEMORY] = "max-host-memory",
		[RUN_INTERRUPTED] = "interrupted",
	};

	return names[e];
}

/* In the process that records. */
struct runner {
	struct run_command cmd; /* first: what its calls get */
	const struct estimate_run_opts *opts;
	struct estimate_run *ret; /* shared with the process that asked */
	struct repeat *repeat;
	struct map64 *gone; /* addresses that blocks came and went at since the end */
	bool over;	    /* all that belongs into the recording is there */
	bool blind;	    /* events after that were lost */
	bool failed;	    /* no memory to compare steps: the run goes on to another end */
	uint64_t start, looked;
};

static void on_step(struct runner *r)
{
	const struct estimate_run_opts *o = r->opts;
	uint64_t steps = repeat__steps(r->repeat);

	r->ret->steps = steps;
	r->ret->after_oom += r->ret->ooms != 0;
	if (o->steps ? steps >= o->steps
		     : !r->failed && repeat__found(r->repeat, &r->ret->repeat)) {
		r->ret->end = o->steps ? RUN_STEPS : RUN_REPEATED;
		r->over = true;
	} else if (o->steps_at_most && steps >= o->steps_at_most) {
		r->ret->end = RUN_STEPS;
		r->over = true;
	}
}

static void on_oom(struct runner *r)
{
	r->ret->ooms++;
	r->ret->after_oom = 0;
	if (r->opts->until_oom) {
		r->ret->end = RUN_OOM;
		r->over = true;
	}
}

/*
 * The recording ends with a step, to the event, however late the script is stopped. What blocks are
 * for is read from its objects once more after that, and told of blocks that have been there since.
 */
static bool keep(void *ctx, const struct event *e)
{
	struct runner *r = ctx;
	uint64_t one;

	if (!r->over) {
		r->failed |= repeat__event(r->repeat, e) != 0;
		if (e->kind == EVENT_STEP)
			on_step(r);
		else if (e->kind == EVENT_OOM)
			on_oom(r);
		return true;
	}
	switch (e->kind) {
	case EVENT_ALLOC:
	case EVENT_FREE:
		r->blind |= map64__set(r->gone, e->addr, 1) != 0;
		return false;
	case EVENT_LOST:
		r->blind = true;
		return false;
	case EVENT_TENSOR:
		return !r->blind && !map64__get(r->gone, e->addr, &one);
	case EVENT_CENSUS:
		return !r->blind;
	default:
		return false;
	}
}

/* A bound that was reached; NULL: none. */
static const char *bound(struct runner *r)
{
	const struct estimate_run_opts *o = r->opts;
	uint64_t now = clock__monotonic(), bytes;

	if (now - r->start >= o->max_time) {
		r->ret->end = RUN_TIME;
		return "duration";
	}
	if (now - r->looked < LOOK_EVERY)
		return NULL;
	r->looked = now;
	bytes = estimate_watch__memory(child__pid(r->cmd.child), o->max_host_memory);
	if (bytes > r->ret->host_memory)
		r->ret->host_memory = bytes;
	if (bytes <= o->max_host_memory)
		return NULL;
	r->ret->end = RUN_HOST_MEMORY;
	return "host-memory";
}

static const char *drained(struct run_command *cmd)
{
	struct runner *r = (struct runner *)cmd;

	return r->over ? "steps" : bound(r);
}

static void idle(struct run_command *cmd)
{
	if (bound((struct runner *)cmd))
		cmd->recording.loop.quit = true;
}

static void make_quiet(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (fd < 0)
		fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
	}
}

static int record(struct runner *r)
{
	struct run_command *cmd = &r->cmd;
	int status = run_command__record(cmd);

	r->ret->attached = cmd->was_attached;
	if (!run_command__started(cmd))
		return status ? status : EXIT_FAILED;
	if (r->ret->end == RUN_ENDED && !run_command__has_ended(cmd)) {
		/* Nobody told it to stop but a signal, or it is recorded no more. */
		if (!status)
			r->ret->end = RUN_INTERRUPTED;
	}
	r->ret->at_end = run_command__has_ended(cmd);
	r->ret->killed_workers = estimate_watch__end(
					 child__pid(cmd->child), child__pidfd(cmd->child),
					 cmd->dryrun ? dryrun__keeper(cmd->dryrun) : 0) != 0;
	r->ret->wait_status = child__wait(cmd->child);
	r->ret->time = clock__monotonic() - r->start;
	/* That it never imported PyTorch is told by attached. */
	return status == EXIT_UNUSABLE && !cmd->was_attached ? EXIT_OK : status;
}

/* The process that records. Its exit code. */
static int run(const struct estimate_run_opts *o, struct estimate_run *ret, const sigset_t *mask)
{
	struct runner r = { .opts = o, .ret = ret, .start = clock__monotonic() };
	struct session_opts *session = &r.cmd.args.capture.session;
	int status;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (o->quiet)
		make_quiet(o->quiet);
	if (log__level() > LOG_WARN)
		log__set_level(LOG_WARN);
	r.cmd.args = *o->args;
	r.cmd.args.dryrun.wanted = true;
	r.cmd.args.stdout_to_stderr = true;
	r.cmd.args.recording.output = o->path;
	session->no_census = session->no_autograd = session->no_modules = o->lean;
	/* with it a replay under other settings is exact */
	session->requested_if_there = !o->lean;
	r.cmd.idle = idle;
	r.cmd.drained = drained;
	r.cmd.recording.keep = keep;
	r.cmd.recording.keep_ctx = &r;
	r.repeat = repeat__new();
	r.gone = map64__new();
	status = r.repeat && r.gone ? run_command__open(&r.cmd) : EXIT_FAILED;
	if (!status) {
		status = record(&r);
		run_command__close(&r.cmd);
	}
	repeat__free(r.repeat);
	map64__free(r.gone);
	return status;
}

/* The terminal's Ctrl-C is for the script, and for us: no more runs. Others are handed on. */
static int await(pid_t pid, int signals, struct estimate_run *ret)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0u), status;
	struct pollfd fds[] = { { .fd = signals, .events = POLLIN },
				{ .fd = pidfd, .events = POLLIN } };
	struct signalfd_siginfo si;
	bool told = false;

	while (pidfd >= 0 && !fds[1].revents) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		while (fds[0].revents && read(signals, &si, sizeof(si)) == sizeof(si)) {
			told = true;
			if (si.ssi_signo != SIGINT && si.ssi_signo != SIGQUIT)
				kill(pid, (int)si.ssi_signo);
		}
	}
	if (pidfd >= 0)
		close(pidfd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (told)
		ret->end = RUN_INTERRUPTED;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	log_err("the process that records was ended by signal %d (%s)", WTERMSIG(status),
		sigdescr_np(WTERMSIG(status)));
	return EXIT_FAILED;
}

int estimate_run(const struct estimate_run_opts *opts, struct estimate_run *ret)
{
	static const int numbers[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
	struct estimate_run *shared;
	int signals, status = EXIT_FAILED;
	sigset_t set, old;
	pid_t pid;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		sigaddset(&set, numbers[i]);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	sigprocmask(SIG_BLOCK, &set, &old);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	fflush(NULL);
	pid = signals < 0 ? -1 : fork();
	if (!pid) {
		close(signals);
		_exit(run(opts, shared, &old));
	}
	if (pid < 0)
		log_err("cannot start a process: %s", strerror(errno));
	else
		status = await(pid, signals, shared);
	if (signals >= 0)
		close(signals);
	sigprocmask(SIG_SETMASK, &old, NULL);
	*ret = *shared;
	munmap(shared, sizeof(*shared));
	return status;
}
