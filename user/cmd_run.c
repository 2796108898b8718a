/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * memtrace-bpf run: starts a command and records it from its first instruction on. Whatever becomes of the recording, the
 * command runs to its own end, and how that was is our exit status.
 */
#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/probes.h"
#include "capture/session.h"
#include "capture_args.h"
#include "capture_loop.h"
#include "child.h"
#include "commands.h"
#include "dryrun.h"
#include "lib/exit.h"
#include "lib/log.h"
#include "lib/text.h"
#include "recording.h"
#include "recording_control.h"
#include "target/family.h"

#define EXIT_CANNOT_RUN 126 /* as shells have it */
#define EXIT_NO_COMMAND 127
#define EXIT_SIGNALLED 128  /* plus the signal's number */
#define LOOK_AFTER 500	    /* ms, at what is mapped: time enough for the dynamic linker */

struct run_args {
	struct capture_args capture;
	struct recording_args recording;
	struct dryrun_args dryrun;
	bool no_trace;
	const char *user;
	char **command;
};

struct run {
	struct recording recording; /* first: what the loop calls us with */
	struct run_args args;
	int (*attached)(void *ctx); /* the recording's */
	sigset_t mask;		    /* as we found it */
	int signals;
	struct child_user user;
	struct child *child;
	struct dryrun *dryrun;
	bool said_family, looked_at_maps, was_attached;
};

enum { OPT_DRY_RUN = 0x5000, OPT_VRAM, OPT_DEVICES, OPT_NO_TRACE, OPT_USER };

static const struct argp_option options[] = {
	{ "dry-run-cuda", OPT_DRY_RUN, NULL, 0, "Run it with no GPU: CUDA is answered for, PyTorch's own allocator is real", 0 },
	{ "vram", OPT_VRAM, "SIZE", 0, "Memory of each device of the dry run (default 80G)", 0 },
	{ "devices", OPT_DEVICES, "N", 0, "How many devices the dry run has (default 1)", 0 },
	{ "no-trace", OPT_NO_TRACE, NULL, 0, "Run it and record nothing; needs no privileges", 0 },
	{ "user", OPT_USER, "NAME", 0, "As root: run it as NAME (default: the user behind sudo)", 0 },
	{ 0 },
};

static void take_command(struct run_args *a, struct argp_state *state)
{
	a->command = state->argv + state->next - 1;
	state->next = state->argc;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct run_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->recording;
		state->child_inputs[1] = &a->capture;
		break;
	case OPT_DRY_RUN:
		a->dryrun.wanted = true;
		break;
	case OPT_VRAM:
		if (text__parse_size(arg, &a->dryrun.vram) || a->dryrun.vram < DRYRUN_VRAM_MIN ||
		    a->dryrun.vram > DRYRUN_VRAM_MAX)
			argp_error(state, "--vram: '%s' is no size between 16M and 4T", arg);
		break;
	case OPT_DEVICES:
		a->dryrun.devices = parse_count(state, "--devices", arg, 1);
		if (a->dryrun.devices > DRYRUN_DEVICES_MAX)
			argp_error(state, "--devices: no more than %d", DRYRUN_DEVICES_MAX);
		break;
	case OPT_NO_TRACE:
		a->no_trace = true;
		break;
	case OPT_USER:
		a->user = arg;
		break;
	case ARGP_KEY_ARG:
		take_command(a, state);
		break;
	case ARGP_KEY_END:
		if (!a->command)
			argp_error(state, "which command? run [OPTION...] -- COMMAND [ARGUMENT...]");
		if (!a->dryrun.wanted && (a->dryrun.vram || a->dryrun.devices))
			argp_error(state, "--vram and --devices are those of a dry run: --dry-run-cuda");
		if (a->no_trace && (a->recording.output || a->capture.duration || a->capture.steps || a->capture.children ||
				    a->recording.bounds.max_size || a->recording.bounds.max_events || a->recording.oom.on ||
				    a->recording.ring.size || a->recording.windows.given))
			argp_error(state, "--no-trace records nothing: no output and no bounds");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* The terminal's signals reach the command by themselves, as it is in our process group; others are handed on. */
static void on_signals(void *ctx)
{
	struct run *r = ctx;
	struct signalfd_siginfo si;

	while (read(r->signals, &si, sizeof(si)) == sizeof(si)) {
		if (recording_control__signal(&r->recording, (int)si.ssi_signo))
			continue;
		if (si.ssi_signo != SIGINT && si.ssi_signo != SIGQUIT && si.ssi_code != SI_KERNEL)
			child__signal(r->child, si.ssi_signo);
	}
}

static int open_signals(struct run *r)
{
	static const int numbers[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
	sigset_t set;
	size_t i;

	sigemptyset(&set);
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&set, numbers[i]);
	sigprocmask(SIG_BLOCK, &set, &r->mask);
	r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return r->signals < 0 ? -errno : 0;
}

static int choose_user(struct run *r, bool *other)
{
	int err;

	*other = false;
	if (!r->args.user) {
		err = child_user__behind_sudo(&r->user, other);
		if (!err)
			return 0;
		log_err("the user behind sudo is not known here (SUDO_UID=%s); --user NAME says whom to run it as", getenv("SUDO_UID"));
		return EXIT_FAILED;
	}
	if (geteuid()) {
		log_err("--user: only root can run a command as somebody else");
		return EXIT_NOT_PERMITTED;
	}
	err = child_user__named(&r->user, r->args.user);
	if (err) {
		log_err("--user: no such user: %s", r->args.user);
		return EXIT_USAGE;
	}
	*other = true;
	return 0;
}

/* Before anything runs: would the kernel take our programs? */
static int may_trace(void)
{
	const struct probes_opts po = { .ring_bytes = 1 << 16 };
	const char *why = "";
	struct probes *p = probes__load(&po, &why);

	if (!p) {
		log_err("%s (%s); nothing was run, --no-trace runs it all the same", why, strerror(errno));
		return EXIT_NOT_PERMITTED;
	}
	probes__free(p);
	return EXIT_OK;
}

static int make_child(struct run *r, const struct child_user *user)
{
	const char *output = r->args.recording.output;
	struct child_opts co = {
		.argv = r->args.command,
		.user = user,
		.env = r->dryrun ? dryrun__env(r->dryrun) : NULL,
		.mask = &r->mask,
		.stdout_to_stderr = !r->args.no_trace && output && !strcmp(output, "-"),
	};

	r->child = child__new(&co);
	if (r->child)
		return EXIT_OK;
	log_err("cannot start a process: %s", strerror(errno));
	return EXIT_FAILED;
}

/* Lets the command run. 0, or what a shell would exit with, logged. */
static int on_ready(void *ctx)
{
	struct run *r = ctx;
	int err = child__release(r->child);
	char name[256];

	if (!err)
		return EXIT_OK;
	text__clean(name, sizeof(name), r->args.command[0], strlen(r->args.command[0]));
	log_err("cannot run '%s': %s%s", name, strerror(-err),
		err == -ENOENT && getenv("SUDO_UID") && !strchr(name, '/') ?
			"; sudo has a PATH of its own: give the whole path" : "");
	return err == -ENOENT ? EXIT_NO_COMMAND : EXIT_CANNOT_RUN;
}

static void look_at_maps(struct run *r)
{
	if (!r->dryrun || r->looked_at_maps)
		return;
	r->looked_at_maps = true;
	if (!dryrun__mapped(r->dryrun, child__pid(r->child)))
		log_warn("PID %d has not taken the libraries of the dry run (is it static, set-user-ID, or unable to read them?): it "
			 "sees this machine's GPUs, if any",
			 (int)child__pid(r->child));
}

/* A launcher: say where the memory is. */
static void on_waiting(void *ctx)
{
	struct run *r = ctx;
	pid_t pids[1];
	size_t n;

	look_at_maps(r);
	if (r->said_family)
		return;
	n = family__with_torch(child__pid(r->child), pids, 1);
	if (!n)
		return;
	r->said_family = true;
	log_warn("PyTorch is in PID %d, which the command has started%s, and not in the command itself (PID %d): not traced; "
		 "attach with -p %d, or follow what the command starts with --children",
		 (int)pids[0], n > 1 ? " among others" : "", (int)child__pid(r->child), (int)pids[0]);
}

static int on_attached(void *ctx)
{
	struct run *r = ctx;

	r->was_attached = true;
	look_at_maps(r);
	if (r->dryrun)
		facts__set(session__facts(r->recording.loop.session), "dry_run", "1");
	return r->attached(ctx);
}

static int record(struct run *r)
{
	struct recording *rec = &r->recording;

	rec->args = r->args.recording;
	rec->loop.args = r->args.capture;
	rec->loop.args.pid = child__pid(r->child);
	recording__init(rec);
	r->attached = rec->loop.attached;
	rec->loop.attached = on_attached;
	rec->loop.started = true;
	rec->loop.signals = r->signals;
	rec->loop.signalled = on_signals;
	rec->loop.ready = on_ready;
	rec->loop.waiting = on_waiting;
	return recording__run(rec);
}

/* Until the command has ended. */
static void wait_for_end(struct run *r)
{
	struct pollfd fds[] = { { .fd = r->signals, .events = POLLIN },
				{ .fd = child__pidfd(r->child), .events = POLLIN } };

	while (!fds[1].revents) {
		if (!poll(fds, 2, r->dryrun && !r->looked_at_maps ? LOOK_AFTER : -1))
			look_at_maps(r);
		if (fds[0].revents)
			on_signals(r);
	}
}

static int end(struct run *r)
{
	int status = child__wait(r->child);

	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	log_warn("PID %d was ended by signal %d (%s)%s", (int)child__pid(r->child), WTERMSIG(status),
		 sigdescr_np(WTERMSIG(status)), WCOREDUMP(status) ? ", core dumped" : "");
	return EXIT_SIGNALLED + WTERMSIG(status);
}

static bool has_ended(const struct run *r)
{
	struct pollfd fd = { .fd = child__pidfd(r->child), .events = POLLIN };

	return poll(&fd, 1, 0) > 0;
}

static int run(struct run *r)
{
	bool other, ended;
	int status = choose_user(r, &other);

	if (!status && !r->args.no_trace)
		status = may_trace();
	if (!status && r->args.dryrun.wanted)
		r->dryrun = dryrun__new(&r->args.dryrun, other ? &r->user : NULL, &status);
	if (!status || r->dryrun)
		status = make_child(r, other ? &r->user : NULL);
	if (status)
		return status;
	signal(SIGPIPE, SIG_IGN);
	status = r->args.no_trace ? on_ready(r) : record(r);
	if (status == EXIT_NO_COMMAND || status == EXIT_CANNOT_RUN || !child__released(r->child))
		return status;
	ended = has_ended(r);
	if (status && !ended)
		log_warn("the command goes on, without a recording");
	wait_for_end(r);
	if (status == EXIT_UNUSABLE && ended && !r->was_attached)
		log_info("PID %d ended without importing PyTorch: nothing was there to trace%s", (int)child__pid(r->child),
			 r->said_family ? "" : "; what it started itself is not followed");
	return end(r);
}

int cmd_run(int argc, char **argv)
{
	static const struct argp_child children[] = { { &recording_argp, 0, NULL, 0 },
						      { &capture_bounds_argp, 0, "Bounds:", 1 },
						      { 0 } };
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "COMMAND [ARGUMENT...]",
		.doc = "Start a command and record its PyTorch's memory events from the first one on. Its input and output pass "
		       "through, its exit status is ours.",
		.children = children,
	};
	struct run r = { 0 };
	int status;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &r.args);
	if (open_signals(&r)) {
		log_err("cannot make a signalfd: %s", strerror(errno));
		return EXIT_FAILED;
	}
	status = run(&r);
	capture_loop__close(&r.recording.loop);
	free(r.args.recording.windows.growth);
	child__free(r.child);
	dryrun__free(r.dryrun);
	return status;
}
