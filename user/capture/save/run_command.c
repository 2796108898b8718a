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
#define GRACE 5			    /* seconds from SIGTERM to SIGKILL, after --max-time */

/* The command's time is over: asks it to end, and kills it when it is called again. */
static void stop_command(struct run_command *run)
{
	int number = run->out_of_time ? SIGKILL : SIGTERM;

	log_warn("--max-time: stopping PID %d with signal %d (%s)", (int)child__pid(run->child),
		 number, sigdescr_np(number));
	run->out_of_time = true;
	child__signal(run->child, number);
}

/* Starts the timer of --max-time. It sends SIGALRM then, and again every GRACE seconds. */
static void start_clock(const struct run_command *run)
{
	const struct itimerval timer = { .it_value = { (time_t)(run->args.max_time / SECOND),
						       (suseconds_t)(run->args.max_time % SECOND /
								     1000) },
					 .it_interval = { GRACE, 0 } };

	if (run->args.max_time && setitimer(ITIMER_REAL, &timer, NULL))
		log_warn("--max-time: cannot set a timer: %s", strerror(errno));
}

/* Passes signals on to the command. Signals of the terminal reach it anyway, as it is in our
 * process group. Returns true if any was for the command. */
static bool on_signals(void *ctx)
{
	struct run_command *run = ctx;
	struct signalfd_siginfo signal;
	bool any = false;

	while (read(run->loop_command.signals, &signal, sizeof(signal)) == sizeof(signal)) {
		if (recording__signal(&run->recording, (int)signal.ssi_signo))
			continue;
		if (signal.ssi_signo == SIGALRM && run->args.max_time) {
			stop_command(run);
			continue;
		}
		any = true;
		if (signal.ssi_signo != SIGINT && signal.ssi_signo != SIGQUIT &&
		    signal.ssi_code != SI_KERNEL)
			child__signal(run->child, signal.ssi_signo);
	}
	return any;
}

int run_command__open(struct run_command *run)
{
	static const int numbers[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM };
	sigset_t set;
	size_t i;

	sigemptyset(&set);
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&set, numbers[i]);
	sigprocmask(SIG_BLOCK, &set, &run->mask);
	run->loop_command.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (run->loop_command.signals >= 0)
		return EXIT_OK;
	log_err("cannot make a signalfd: %s", strerror(errno));
	return EXIT_FAILED;
}

/* Chooses the user who runs the command: --user, otherwise the user behind sudo. *other: run->user
 * is set, otherwise it is the current user. Returns 0 or an exit code, logged. */
static int choose_user(struct run_command *run, bool *other)
{
	int err;

	*other = false;
	if (!run->args.user) {
		err = user__behind_sudo(&run->user, other);
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
	err = user__named(&run->user, run->args.user);
	if (err) {
		log_err("--user: no such user: %s", run->args.user);
		return EXIT_USAGE;
	}
	*other = true;
	return 0;
}

/* Loads the programs before anything runs, to know whether the kernel accepts them. Returns EXIT_OK
 * or an exit code, logged. */
static int may_trace(void)
{
	const struct probes_opts opts = { .capture.ring_bytes = 1 << 16 };
	const char *why = "";
	struct probes *probes = probes__load(&opts, &why);

	if (!probes) {
		log_err("%s (%s); the command was not started. Without root, --inside records and "
			"--no-trace only runs it",
			why, strerror(errno));
		return EXIT_NOT_PERMITTED;
	}
	probes__free(probes);
	return EXIT_OK;
}

/* Makes the process of the command, which waits. Returns EXIT_OK, or EXIT_FAILED, logged. */
static int make_child(struct run_command *run, const struct user *user)
{
	const char *output = run->args.recording.output;
	/* for another user: child.h adds the few that are harmless */
	const char *no_variables = run->args.user && user && user->uid != geteuid() ? "" : NULL;
	struct child_opts opts = {
		.argv = run->args.command,
		.user = user,
		.variables = run->args.command_env ?: no_variables,
		.mask = &run->mask,
		.no_new_privs = run->inside_run,
		.stdout_to_stderr = run->args.stdout_to_stderr ||
				    (!run->args.no_trace && output && !strcmp(output, "-")),
	};

	if (run->inside_run) {
		opts.env = inside__env(run->inside_run);
		opts.keep = inside__memory(run->inside_run)->fd;
	} else if (run->dryrun) {
		opts.env = dryrun__env(run->dryrun);
	}
	if (no_variables && !run->args.command_env)
		log_info("the command gets few variables of this environment, as it runs as %s; "
			 "--command-env NAME,... passes more",
			 user->name);
	run->child = child__new(&opts);
	if (run->child)
		return EXIT_OK;
	log_err("cannot start a process: %s", strerror(errno));
	return EXIT_FAILED;
}

/* Lets the command run. Returns 0, or the exit code of a shell, logged. */
static int on_ready(void *ctx)
{
	struct run_command *run = ctx;
	int err = child__release(run->child);
	char name[256];

	if (!err) {
		start_clock(run);
		return EXIT_OK;
	}
	run->never_ran = true;
	text__clean(name, sizeof(name), run->args.command[0], strlen(run->args.command[0]));
	log_err("cannot run '%s': %s%s", name, strerror(-err),
		err == -ENOENT && getenv("SUDO_UID") && !strchr(name, '/')
			? "; sudo sets its own PATH: give the full path"
			: "");
	return err == -ENOENT ? EXIT_NO_COMMAND : EXIT_CANNOT_RUN;
}

/* Warns once if the command has not loaded the libraries of the dry run. */
static void check_dry_run(struct run_command *run)
{
	if (!run->dryrun || run->looked_at_maps)
		return;
	run->looked_at_maps = true;
	if (!dryrun__mapped(run->dryrun, child__pid(run->child)))
		log_warn("PID %d has not taken the libraries of the dry run (is it static, "
			 "set-user-ID, or unable to read them?): it "
			 "sees this machine's GPUs, if any",
			 (int)child__pid(run->child));
}

/* Warns if PyTorch is in a child process of the command. */
static void on_waiting(void *ctx)
{
	struct run_command *run = ctx;
	const char *others;
	pid_t pids[1];
	size_t n;

	check_dry_run(run);
	if (run->idle)
		run->idle(run);
	if (run->warned_of_child)
		return;
	n = descendants__with_torch(child__pid(run->child), pids, 1);
	if (!n)
		return;
	run->warned_of_child = true;
	others = n > 1 ? " among others" : "";
	log_warn("PyTorch is in PID %d, which the command has started%s, and not in the command "
		 "itself (PID %d): not traced; "
		 "attach with -p %d%s",
		 (int)pids[0], others, (int)child__pid(run->child), (int)pids[0],
		 run->args.inside ? "" : ", or follow what the command starts with --children");
}

/* Notes that the command was attached, and whether it is a dry run. */
static void on_attached(void *ctx, struct session *session)
{
	struct run_command *run = ctx;

	run->was_attached = true;
	check_dry_run(run);
	if (run->dryrun)
		facts__set(session__facts(session), "dry_run", "1");
}

/* Records the command. Returns an exit code. */
static int record(struct run_command *run)
{
	struct recording *recording = &run->recording;

	recording->args = run->args.recording;
	recording->loop.args = run->args.capture;
	recording->loop.args.pid = child__pid(run->child);
	recording->loop.args.session.dry_run = run->args.dryrun.wanted;
	recording->calls.attached = on_attached;
	recording->calls.ctx = run;
	run->loop_command.inside = run->inside_run ? inside__memory(run->inside_run) : NULL;
	run->loop_command.signalled = on_signals;
	run->loop_command.ready = on_ready;
	run->loop_command.waiting = on_waiting;
	recording->loop.command = &run->loop_command;
	return recording__run(recording);
}

/* Waits for the command's end, and passes signals on meanwhile. */
static void wait_for_end(struct run_command *run)
{
	struct pollfd fds[] = { { .fd = run->loop_command.signals, .events = POLLIN },
				{ .fd = child__pidfd(run->child), .events = POLLIN } };

	while (!fds[1].revents) {
		if (!poll(fds, 2, run->dryrun && !run->looked_at_maps ? LOOK_AFTER : -1))
			check_dry_run(run);
		if (fds[0].revents)
			on_signals(run);
	}
}

bool run_command__has_ended(const struct run_command *run)
{
	struct pollfd fd = { .fd = child__pidfd(run->child), .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

bool run_command__started(const struct run_command *run)
{
	return run->child && child__released(run->child) && !run->never_ran;
}

/* Prepares the recording from inside. Returns EXIT_OK or an exit code, logged. */
static int make_inside(struct run_command *run, const struct user *user)
{
	int status = EXIT_OK;

	run->inside_run = inside__new(run->dryrun ? dryrun__env(run->dryrun) : NULL,
				      run->args.capture.session.ring_bytes, user, &status);
	return run->inside_run ? EXIT_OK : status;
}

int run_command__record(struct run_command *run)
{
	bool other;
	int status = choose_user(run, &other);

	if (!status && !run->args.no_trace && !run->args.inside)
		status = may_trace();
	run->args.dryrun.paced = !run->args.no_trace && !run->args.capture.session.no_census;
	if (!status && run->args.dryrun.wanted)
		run->dryrun = dryrun__new(&run->args.dryrun, other ? &run->user : NULL, &status);
	if (run->dryrun)
		status = EXIT_OK; /* dryrun__new() sets it in any case */
	if (!status && run->args.inside)
		status = make_inside(run, other ? &run->user : NULL);
	if (!status)
		status = make_child(run, other ? &run->user : NULL);
	if (status)
		return status;
	signal(SIGPIPE, SIG_IGN);
	return run->args.no_trace ? on_ready(run) : record(run);
}

int run_command__wait(struct run_command *run)
{
	int status;

	wait_for_end(run);
	status = child__wait(run->child);
	if (WIFEXITED(status)) {
		log_event(LOG_DEBUG, "ended",
			  LOG_FIELDS(LOG_INT("target", child__pid(run->child)),
				     LOG_INT("exit_code", WEXITSTATUS(status))),
			  "PID %d has ended with exit code %d", (int)child__pid(run->child),
			  WEXITSTATUS(status));
		return WEXITSTATUS(status);
	}
	log_event(LOG_WARN, "ended",
		  LOG_FIELDS(LOG_INT("target", child__pid(run->child)),
			     LOG_INT("signal", WTERMSIG(status))),
		  "PID %d was ended by signal %d (%s)%s", (int)child__pid(run->child),
		  WTERMSIG(status), sigdescr_np(WTERMSIG(status)),
		  WCOREDUMP(status) ? ", core dumped" : "");
	return EXIT_SIGNALLED + WTERMSIG(status);
}

void run_command__close(struct run_command *run)
{
	capture_loop__close(&run->recording.loop);
	free(run->args.recording.windows.growth);
	child__free(run->child);
	inside__free(run->inside_run);
	dryrun__free(run->dryrun);
}
