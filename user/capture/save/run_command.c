/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/run_command.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/preload.h"
#include "capture/probes.h"
#include "capture/probes/probes_inside.h"
#include "capture/recording.h"
#include "capture/session.h"
#include "inspect/proc.h"

#define EXIT_CANNOT_RUN 126 /* exit code as in shells */
#define EXIT_NO_COMMAND 127
#define EXIT_SIGNALLED 128	    /* plus the signal's number */
#define LOOK_AFTER 500		    /* ms until the dynamic linker has mapped the libraries */
#define SECOND UINT64_C(1000000000) /* ns */
#define GRACE 5 /* seconds between SIGTERM and SIGKILL after the greatest time */

/* The command's time is over: asks it to end, and kills it when it is called again. */
static void stop_command(struct run_command *r)
{
	int number = r->out_of_time ? SIGKILL : SIGTERM;

	log_warn("--max-time: stopping PID %d with signal %d (%s)", (int)child__pid(r->child),
		 number, sigdescr_np(number));
	r->out_of_time = true;
	child__signal(r->child, number);
}

/* Starts the timer of --max-time. It sends SIGALRM then, and again every GRACE seconds. */
static void start_clock(const struct run_command *r)
{
	const struct itimerval timer = { .it_value = { (time_t)(r->args.max_time / SECOND),
						       (suseconds_t)(r->args.max_time % SECOND /
								     1000) },
					 .it_interval = { GRACE, 0 } };

	if (r->args.max_time && setitimer(ITIMER_REAL, &timer, NULL))
		log_warn("--max-time: cannot set a timer: %s", strerror(errno));
}

/* Passes signals on to the command. Signals of the terminal reach it anyway, as it is in our
 * process group. Returns true if any was for the command. */
static bool on_signals(void *ctx)
{
	struct run_command *r = ctx;
	struct signalfd_siginfo si;
	bool any = false;

	while (read(r->loop_command.signals, &si, sizeof(si)) == sizeof(si)) {
		if (recording__signal(&r->recording, (int)si.ssi_signo))
			continue;
		if (si.ssi_signo == SIGALRM && r->args.max_time) {
			stop_command(r);
			continue;
		}
		any = true;
		if (si.ssi_signo != SIGINT && si.ssi_signo != SIGQUIT && si.ssi_code != SI_KERNEL)
			child__signal(r->child, si.ssi_signo);
	}
	return any;
}

int run_command__open(struct run_command *r)
{
	static const int numbers[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM };
	sigset_t set;
	size_t i;

	sigemptyset(&set);
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&set, numbers[i]);
	sigprocmask(SIG_BLOCK, &set, &r->mask);
	r->loop_command.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (r->loop_command.signals >= 0)
		return EXIT_OK;
	log_err("cannot make a signalfd: %s", strerror(errno));
	return EXIT_FAILED;
}

/* Chooses the user who runs the command: --user, otherwise the user behind sudo. *other: r->user is
 * set, otherwise it is the current user. Returns 0 or an exit code, logged. */
static int choose_user(struct run_command *r, bool *other)
{
	int err;

	*other = false;
	if (!r->args.user) {
		err = user__behind_sudo(&r->user, other);
		if (!err)
			return 0;
		log_err("the user behind sudo does not exist on this host (SUDO_UID=%s); choose "
			"one with --user NAME",
			getenv("SUDO_UID"));
		return EXIT_FAILED;
	}
	if (geteuid()) {
		log_err("--user: only root can run a command as another user");
		return EXIT_NOT_PERMITTED;
	}
	err = user__named(&r->user, r->args.user);
	if (err) {
		log_err("--user: no such user: %s", r->args.user);
		return EXIT_USAGE;
	}
	*other = true;
	return 0;
}

/* Loads the programs before anything runs, to know whether the kernel accepts them. Returns EXIT_OK
 * or an exit code, logged. */
static int may_trace(void)
{
	const struct probes_opts po = { .capture.ring_bytes = 1 << 16 };
	const char *why = "";
	struct probes *p = probes__load(&po, &why);

	if (!p) {
		log_err("%s (%s); the command was not started. Without root, --inside records and "
			"--no-trace only runs it",
			why, strerror(errno));
		return EXIT_NOT_PERMITTED;
	}
	probes__free(p);
	return EXIT_OK;
}

static int make_child(struct run_command *r, const struct user *user)
{
	const char *output = r->args.recording.output;
	const char *few = r->args.user && user && user->uid != geteuid() ? "" : NULL;
	struct child_opts co = {
		.argv = r->args.command,
		.user = user,
		.variables = r->args.command_env ?: few,
		.mask = &r->mask,
		.no_new_privs = r->inside_run,
		.stdout_to_stderr = r->args.stdout_to_stderr ||
				    (!r->args.no_trace && output && !strcmp(output, "-")),
	};

	if (r->inside_run) {
		co.env = inside__env(r->inside_run);
		co.keep = inside__memory(r->inside_run)->fd;
	} else if (r->dryrun) {
		co.env = dryrun__env(r->dryrun);
	}
	if (few && !r->args.command_env)
		log_info("the command gets few variables of this environment, as it runs as %s; "
			 "--command-env NAME,... passes more",
			 user->name);
	r->child = child__new(&co);
	if (r->child)
		return EXIT_OK;
	log_err("cannot start a process: %s", strerror(errno));
	return EXIT_FAILED;
}

/* Lets the command run. Returns 0, or the exit code of a shell, logged. */
static int on_ready(void *ctx)
{
	struct run_command *r = ctx;
	int err = child__release(r->child);
	char name[256];

	if (!err) {
		start_clock(r);
		return EXIT_OK;
	}
	r->never_ran = true;
	text__clean(name, sizeof(name), r->args.command[0], strlen(r->args.command[0]));
	log_err("cannot run '%s': %s%s", name, strerror(-err),
		err == -ENOENT && getenv("SUDO_UID") && !strchr(name, '/')
			? "; sudo sets its own PATH: give the full path"
			: "");
	return err == -ENOENT ? EXIT_NO_COMMAND : EXIT_CANNOT_RUN;
}

/* Warns once if the command has not loaded the libraries of the dry run. */
static void check_dry_run(struct run_command *r)
{
	if (!r->dryrun || r->looked_at_maps)
		return;
	r->looked_at_maps = true;
	if (!dryrun__mapped(r->dryrun, child__pid(r->child)))
		log_warn("PID %d has not taken the libraries of the dry run (is it static, "
			 "set-user-ID, or unable to read them?): it "
			 "sees this machine's GPUs, if any",
			 (int)child__pid(r->child));
}

/* Warns if PyTorch is in a child process of the command. */
static void on_waiting(void *ctx)
{
	struct run_command *r = ctx;
	const char *others;
	pid_t pids[1];
	size_t n;

	check_dry_run(r);
	if (r->idle)
		r->idle(r);
	if (r->warned_of_child)
		return;
	n = descendants__with_torch(child__pid(r->child), pids, 1);
	if (!n)
		return;
	r->warned_of_child = true;
	others = n > 1 ? " among others" : "";
	log_warn("PyTorch is in PID %d, which the command has started%s, and not in the command "
		 "itself (PID %d): not traced; "
		 "attach with -p %d%s",
		 (int)pids[0], others, (int)child__pid(r->child), (int)pids[0],
		 r->args.inside ? "" : ", or follow what the command starts with --children");
}

static void on_attached(void *ctx, struct session *s)
{
	struct run_command *r = ctx;

	r->was_attached = true;
	check_dry_run(r);
	if (r->dryrun)
		facts__set(session__facts(s), "dry_run", "1");
}

static int record(struct run_command *r)
{
	struct recording *rec = &r->recording;

	rec->args = r->args.recording;
	rec->loop.args = r->args.capture;
	rec->loop.args.pid = child__pid(r->child);
	rec->loop.args.session.dry_run = r->args.dryrun.wanted;
	rec->calls.attached = on_attached;
	rec->calls.ctx = r;
	r->loop_command.inside = r->inside_run ? inside__memory(r->inside_run) : NULL;
	r->loop_command.signalled = on_signals;
	r->loop_command.ready = on_ready;
	r->loop_command.waiting = on_waiting;
	rec->loop.command = &r->loop_command;
	return recording__run(rec);
}

/* Waits for the command's end, and passes signals on meanwhile. */
static void wait_for_end(struct run_command *r)
{
	struct pollfd fds[] = { { .fd = r->loop_command.signals, .events = POLLIN },
				{ .fd = child__pidfd(r->child), .events = POLLIN } };

	while (!fds[1].revents) {
		if (!poll(fds, 2, r->dryrun && !r->looked_at_maps ? LOOK_AFTER : -1))
			check_dry_run(r);
		if (fds[0].revents)
			on_signals(r);
	}
}

bool run_command__has_ended(const struct run_command *r)
{
	struct pollfd fd = { .fd = child__pidfd(r->child), .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

bool run_command__started(const struct run_command *r)
{
	return r->child && child__released(r->child) && !r->never_ran;
}

static int make_inside(struct run_command *r, const struct user *user)
{
	int status = EXIT_OK;

	r->inside_run = inside__new(r->dryrun ? dryrun__env(r->dryrun) : NULL,
				    r->args.capture.session.ring_bytes, user, &status);
	return r->inside_run ? EXIT_OK : status;
}

int run_command__record(struct run_command *r)
{
	bool other;
	int status = choose_user(r, &other);

	if (!status && !r->args.no_trace && !r->args.inside)
		status = may_trace();
	r->args.dryrun.paced = !r->args.no_trace && !r->args.capture.session.no_census;
	if (!status && r->args.dryrun.wanted)
		r->dryrun = dryrun__new(&r->args.dryrun, other ? &r->user : NULL, &status);
	if (r->dryrun)
		status = EXIT_OK; /* dryrun__new() sets it in any case */
	if (!status && r->args.inside)
		status = make_inside(r, other ? &r->user : NULL);
	if (!status)
		status = make_child(r, other ? &r->user : NULL);
	if (status)
		return status;
	signal(SIGPIPE, SIG_IGN);
	return r->args.no_trace ? on_ready(r) : record(r);
}

int run_command__wait(struct run_command *r)
{
	int status;

	wait_for_end(r);
	status = child__wait(r->child);
	if (WIFEXITED(status)) {
		log_event(LOG_DEBUG, "ended",
			  LOG_FIELDS(LOG_INT("target", child__pid(r->child)),
				     LOG_INT("exit_code", WEXITSTATUS(status))),
			  "PID %d has ended with exit code %d", (int)child__pid(r->child),
			  WEXITSTATUS(status));
		return WEXITSTATUS(status);
	}
	log_event(LOG_WARN, "ended",
		  LOG_FIELDS(LOG_INT("target", child__pid(r->child)),
			     LOG_INT("signal", WTERMSIG(status))),
		  "PID %d was ended by signal %d (%s)%s", (int)child__pid(r->child),
		  WTERMSIG(status), sigdescr_np(WTERMSIG(status)),
		  WCOREDUMP(status) ? ", core dumped" : "");
	return EXIT_SIGNALLED + WTERMSIG(status);
}

void run_command__close(struct run_command *r)
{
	capture_loop__close(&r->recording.loop);
	free(r->args.recording.windows.growth);
	child__free(r->child);
	inside__free(r->inside_run);
	dryrun__free(r->dryrun);
}
