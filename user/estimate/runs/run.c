/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/runs/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/map64.h"
#include "base/memory.h"
#include "base/subprocess.h"
#include "inspect/proc.h"

#define MEMBERS 256
#define TERM_WITHIN 3000 /* ms until SIGKILL */
#define KILL_WITHIN 10000
#define ROUNDS 5 /* rounds of killing, because a process may start another just before its end */
#define LOOK_EVERY 250000000ULL /* ns between checks of the host's memory */

/* ---- processes of the script ---- */

static uint64_t rss_of(pid_t pid)
{
	char buf[128];
	uint64_t pages;

	if (io__text_of_process(pid, "statm", buf, sizeof(buf)) < 0 ||
	    sscanf(buf, "%*u %" SCNu64, &pages) != 1)
		return 0;
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t pss_of(pid_t pid)
{
	char buf[2048];
	uint64_t bytes;

	if (io__text_of_process(pid, "smaps_rollup", buf, sizeof(buf)) > 0 &&
	    memory__field(buf, "\nPss:", &bytes))
		return bytes;
	return rss_of(pid);
}

static uint64_t sum(uint64_t (*of)(pid_t), pid_t pid, const pid_t *pids, size_t n)
{
	uint64_t bytes = of(pid);

	for (size_t i = 0; i < n; i++)
		bytes += of(pids[i]);
	return bytes;
}

uint64_t estimate_run__memory(pid_t pid, uint64_t enough)
{
	pid_t pids[MEMBERS], parents[MEMBERS];
	size_t n = descendants__descendants(pid, pids, parents, MEMBERS);
	uint64_t bytes = sum(rss_of, pid, pids, n);

	return bytes > enough && n ? sum(pss_of, pid, pids, n) : bytes;
}

/* True if the process handles SIGTERM. Its handler could save a checkpoint, which is useless after
 * a run that computed nothing. */
static bool catches_term(pid_t pid)
{
	char buf[4096], *at;

	io__text_of_process(pid, "status", buf, sizeof(buf));
	at = strstr(buf, "\nSigCgt:");
	return at && (strtoull(at + 8, NULL, 16) >> (SIGTERM - 1) & 1);
}

static bool ended_within(int pidfd, int ms)
{
	struct pollfd fd = { .fd = pidfd, .events = POLLIN };

	return poll(&fd, 1, ms) > 0;
}

static void send(int pidfd, int number)
{
	syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0u);
}

static void end_one(pid_t pid, int pidfd)
{
	if (!catches_term(pid)) {
		send(pidfd, SIGTERM);
		if (ended_within(pidfd, TERM_WITHIN))
			return;
	}
	send(pidfd, SIGKILL);
	ended_within(pidfd, KILL_WITHIN);
}

/* Kills the remaining descendants, also those inherited from dead processes. */
static unsigned end_others(pid_t spare)
{
	pid_t pids[MEMBERS], parents[MEMBERS], again[MEMBERS];
	size_t n = descendants__descendants(getpid(), pids, parents, MEMBERS), m;
	int fds[MEMBERS];
	unsigned ended = 0;

	for (size_t i = 0; i < n; i++)
		fds[i] = pids[i] == spare ? -1 : (int)syscall(SYS_pidfd_open, pids[i], 0u);
	/* A process that is still listed is the one that its descriptor refers to. */
	m = descendants__descendants(getpid(), again, parents, MEMBERS);
	for (size_t i = 0; i < n; i++) {
		bool there = false;

		for (size_t k = 0; k < m; k++)
			there |= again[k] == pids[i];
		if (fds[i] < 0 || !there || ended_within(fds[i], 0))
			continue;
		ended++;
		send(fds[i], SIGKILL);
		ended_within(fds[i], KILL_WITHIN);
	}
	for (size_t i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return ended;
}

unsigned estimate_run__end(pid_t pid, int pidfd, pid_t spare)
{
	unsigned ended = 0, now;

	end_one(pid, pidfd);
	for (int i = 0; i < ROUNDS; i++) {
		now = end_others(spare);
		ended += now;
		if (!now)
			break;
	}
	return ended;
}

/* ---- a run ---- */

/* State of the recording process. */
struct runner {
	struct run_command cmd; /* first member, as its callbacks receive it */
	const struct estimate_run_opts *opts;
	struct estimate_run *ret; /* memory shared with the parent process */
	struct repeat *repeat;
	struct map64 *changed; /* addresses where blocks came or went after the recording ended */
	bool over;	       /* true if the recording is complete */
	bool lost;	       /* true if events were lost after the recording ended */
	bool failed; /* true if there was no memory to compare steps; another bound ends the run */
	uint64_t start, checked_at;
};

static void on_step(struct runner *r)
{
	const struct estimate_run_opts *o = r->opts;
	uint64_t steps = repeat__steps(r->repeat);

	r->ret->steps = steps;
	if (o->steps ? steps >= o->steps
		     : !r->failed && repeat__found(r->repeat, &r->ret->repeat)) {
		r->ret->end = o->steps ? RUN_STEPS : RUN_REPEATED;
		r->over = true;
	} else if (!o->steps && !r->failed && repeat__grows(r->repeat)) {
		r->ret->end = RUN_GROWS;
		r->over = true;
	} else if (o->steps_at_most && steps >= o->steps_at_most) {
		r->ret->end = RUN_STEPS;
		r->over = true;
	}
}

static void on_oom(struct runner *r)
{
	r->ret->ooms++;
	if (r->opts->until_oom) {
		r->ret->end = RUN_OOM;
		r->over = true;
	}
}

/* Chooses the events to record. The recording ends exactly with a step, even if the script runs on.
 * A final census follows; it keeps only tensors whose blocks did not change since that step. */
static bool keep_event(void *ctx, const struct event *e)
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
		r->lost |= map64__set(r->changed, e->addr, 1) != 0;
		return false;
	case EVENT_LOST:
		r->lost = true;
		return false;
	case EVENT_TENSOR:
		return !r->lost && !map64__get(r->changed, e->addr, &one);
	case EVENT_CENSUS:
		return !r->lost;
	default:
		return false;
	}
}

/* Returns the name of a bound that was reached, or NULL. */
static const char *reached_bound(struct runner *r)
{
	const struct estimate_run_opts *o = r->opts;
	uint64_t now = clock__monotonic(), bytes;

	if (now - r->start >= o->max_time) {
		r->ret->end = RUN_TIME;
		return "duration";
	}
	if (now - r->checked_at < LOOK_EVERY)
		return NULL;
	r->checked_at = now;
	bytes = estimate_run__memory(child__pid(r->cmd.child), o->max_host_memory);
	if (bytes > r->ret->host_memory)
		r->ret->host_memory = bytes;
	if (bytes <= o->max_host_memory)
		return NULL;
	r->ret->end = RUN_HOST_MEMORY;
	return "host-memory";
}

static const char *over(void *ctx)
{
	struct runner *r = ctx;

	return r->over ? "steps" : reached_bound(r);
}

static void idle(struct run_command *cmd)
{
	if (reached_bound((struct runner *)cmd))
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
		/* A signal ended the recording, or the process can no longer be recorded. */
		if (!status)
			r->ret->end = RUN_INTERRUPTED;
	}
	r->ret->at_end = run_command__has_ended(cmd);
	r->ret->killed_workers = estimate_run__end(child__pid(cmd->child), child__pidfd(cmd->child),
						   cmd->dryrun ? dryrun__keeper(cmd->dryrun) : 0) !=
				 0;
	r->ret->wait_status = child__wait(cmd->child);
	r->ret->time = clock__monotonic() - r->start;
	/* attached tells the caller that the script never imported PyTorch. */
	return status == EXIT_UNUSABLE && !cmd->was_attached ? EXIT_OK : status;
}

/* For the recording process. */
struct run_ctx {
	const struct estimate_run_opts *opts;
	struct estimate_run *ret;
	const sigset_t *mask;
	int signals;
};

/* Body of the recording process. Returns its exit code. */
static int run(void *ctx)
{
	const struct run_ctx *c = ctx;
	const struct estimate_run_opts *o = c->opts;
	struct runner r = { .opts = o, .ret = c->ret, .start = clock__monotonic() };
	struct session_opts *session = &r.cmd.args.capture.session;
	int status;

	close(c->signals);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigprocmask(SIG_SETMASK, c->mask, NULL);
	if (o->quiet)
		make_quiet(o->quiet);
	if (log__level() > LOG_WARN)
		log__set_level(LOG_WARN);
	r.cmd.args = *o->args;
	r.cmd.args.dryrun.wanted = true;
	r.cmd.args.stdout_to_stderr = true;
	r.cmd.args.recording.output = o->path;
	session->no_census = session->no_autograd = session->no_modules = o->lean;
	/* Makes a replay under other settings exact. */
	session->requested_if_there = !o->lean;
	r.cmd.idle = idle;
	r.cmd.recording.calls.keep = keep_event;
	r.cmd.recording.calls.over = over;
	r.repeat = repeat__new();
	r.changed = map64__new();
	status = r.repeat && r.changed ? run_command__open(&r.cmd) : EXIT_FAILED;
	if (!status) {
		status = record(&r);
		run_command__close(&r.cmd);
	}
	repeat__free(r.repeat);
	map64__free(r.changed);
	return status;
}

/* Waits for the process. Ctrl-C reaches it through the terminal; other signals are forwarded. After
 * any signal no further run starts. */
static int wait_for_child(struct subprocess *p, int signals, struct estimate_run *ret)
{
	struct pollfd fds[] = { { .fd = signals, .events = POLLIN },
				{ .fd = p->pidfd, .events = POLLIN } };
	int status;
	struct signalfd_siginfo si;
	bool signalled = false;

	while (!fds[1].revents) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		while (fds[0].revents && read(signals, &si, sizeof(si)) == sizeof(si)) {
			signalled = true;
			if (si.ssi_signo != SIGINT && si.ssi_signo != SIGQUIT)
				subprocess__signal(p, (int)si.ssi_signo);
		}
	}
	subprocess__wait(p, -1, &status);
	if (signalled)
		ret->end = RUN_INTERRUPTED;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	log_err("signal %d (%s) ended the recording process", WTERMSIG(status),
		sigdescr_np(WTERMSIG(status)));
	return EXIT_FAILED;
}

int estimate_run(const struct estimate_run_opts *opts, struct estimate_run *ret)
{
	static const int numbers[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
	struct estimate_run *shared;
	int signals, status = EXIT_FAILED, err;
	struct subprocess process;
	sigset_t set, old;

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
	err = signals < 0 ? -errno : 0;
	if (!err)
		err = subprocess__start(
			&(struct subprocess_opts){
				.main = run,
				.ctx = &(struct run_ctx){ opts, shared, &old, signals },
				.in = SUBPROCESS_INHERIT,
				.out = SUBPROCESS_INHERIT,
				.err = SUBPROCESS_INHERIT,
				.keep_all_fds = true, /* it goes on as this program, with its log */
				.keep_signals = true, /* of whoever started us, for the script */
				.death_signal = SIGTERM },
			&process);
	if (err)
		log_err("cannot start a process: %s", strerror(-err));
	else
		status = wait_for_child(&process, signals, shared);
	if (signals >= 0)
		close(signals);
	sigprocmask(SIG_SETMASK, &old, NULL);
	*ret = *shared;
	munmap(shared, sizeof(*shared));
	return status;
}
