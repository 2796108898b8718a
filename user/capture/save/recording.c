/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "capture/capture_loop.h"
#include "capture/control.h"
#include "capture/pick.h"
#include "capture/save/output.h"
#include "capture/save/reserve.h"
#include "capture/save/windows.h"
#include "capture/session.h"
#include "record/flight.h"
#include "record/folder.h"
#include "record/mtr.h"

/* Returns the first attached process from output on; NULL: none. */
static struct output *attached_from(struct output *output)
{
	while (output && !session__attached(output->session))
		output = output->next;
	return output;
}

/* Iterates over the attached processes. */
#define for_each(each, recording)                                                                  \
	for (struct output *each = attached_from((recording)->outputs); each;                      \
	     each = attached_from((each)->next))

/* Text for the errors of windows__start() and others, for `ctl`. */
static const char *describe_error(int err)
{
	switch (err) {
	case -EBUSY:
		return "a window is open already, or as many windows as requested are written";
	case -EALREADY:
		return "no window is being written";
	case -ENXIO:
		return "no process is attached at the moment";
	case -EPERM:
		return "this capture has no windows to start or stop: record with --wait or "
		       "another option for windows";
	default:
		return strerror(-err);
	}
}

/* True if ctl and signals can begin and end windows. Those of --on-oom and --on-kill they cannot. */
static bool has_windows(const struct recording *recording)
{
	return recording->kind == OUTPUT_WINDOWS && !recording->args.oom.on &&
	       !recording->args.oom.kill;
}

/* Begins, ends or saves a window of one process. Returns 0, -EPERM (no windows to control) or the
 * error of fn. */
static int control_windows(const struct recording *recording, struct output *output,
			   int (*fn)(struct windows *windows, const char *who), const char *who)
{
	int err;

	if (!has_windows(recording))
		return -EPERM;
	err = session__drain(output->session); /* events up to now belong before the change */
	return err ? err : fn(output->windows, who);
}

/* Calls fn for the windows of each process. Returns 0 if it worked for at least one process. who:
 * "ctl" or "signal". j: gets the results; NULL: none. */
static int control_all(struct recording *recording,
		       int (*fn)(struct windows *windows, const char *who), const char *who,
		       struct json *j)
{
	int err = -ENXIO, one_err;

	if (j)
		json__open_array(j, "processes");
	for_each(at, recording) {
		one_err = control_windows(recording, at, fn, who);
		if (j) {
			json__open_object(j, NULL);
			json__int(j, "pid", at->pid);
			json__bool(j, "ok", !one_err);
			if (!one_err && fn != windows__start)
				json__string(j, "file", windows__last(at->windows));
			if (one_err)
				json__string(j, "error", describe_error(one_err));
			json__close_object(j);
		}
		err = err && one_err ? one_err : 0; /* 0 as soon as one worked */
	}
	if (j)
		json__close_array(j);
	if (j && err)
		json__string(j, "error", describe_error(err));
	return err;
}

/* Adds a mark to all processes. Returns 0 or a negative error, which is in the answer. */
static int mark(struct recording *recording, const char *name, struct json *j)
{
	int err = -ENXIO;

	if (!*name || strlen(name) >= 128) {
		json__string(j, "error", "a mark has a name of 1 to 127 bytes");
		return -EINVAL;
	}
	for_each(at, recording)
		err = session__mark(at->session, name);
	if (err)
		json__string(j, "error", describe_error(err));
	else
		json__string(j, "mark", name);
	return err;
}

/* When the recording is written, for `ctl status`: at the kill by the kernel, at an out-of-memory
 * error, in windows, or always. */
static const char *what_is_written(const struct recording *recording)
{
	if (recording->args.oom.kill)
		return "kill";
	if (recording->args.oom.on)
		return "out of memory";
	return recording->kind == OUTPUT_WINDOWS ? "windows" : "all";
}

/* Writes the answer to `ctl status`. */
static int write_status(struct recording *recording, struct json *j)
{
	json__string(j, "writes", what_is_written(recording));
	json__int(j, "capturer", getpid());
	json__open_array(j, "processes");
	for_each(at, recording) {
		json__open_object(j, NULL);
		if (at->windows) {
			windows__tell(at->windows, j);
		} else {
			json__int(j, "pid", at->pid);
			json__seconds(j, "time", session__now(at->session), /*decimals=*/3);
			json__uint(j, "steps", session__steps(at->session));
		}
		json__uint(j, "captured", session__events(at->session));
		json__uint(j, "lost", session__lost(at->session));
		json__close_object(j);
	}
	json__close_array(j);
	if (!attached_from(recording->outputs)) {
		char who[512], text[560];
		const char *article;

		pick__title(recording->loop.pick, who, sizeof(who));
		article = !text__starts(who, "PID") ? "a " : "";
		snprintf(text, sizeof(text), "%s%s%s", article, who,
			 recording->loop.args.pid ? " to import torch" : "");
		json__string(j, "waiting_for", text);
	}
	return 0;
}

/* Handles a request of `ctl`: see control_handler. */
static int handle_request(void *ctx, const char *action, const char *argument, struct json *j)
{
	struct recording *recording = ctx;

	if (!strcmp(action, "mark"))
		return mark(recording, argument, j);
	if (!strcmp(action, "start"))
		return control_all(recording, windows__start, "ctl", j);
	if (!strcmp(action, "stop"))
		return control_all(recording, windows__stop, "ctl", j);
	if (!strcmp(action, "save"))
		return control_all(recording, windows__save, "ctl", j);
	if (!strcmp(action, "status"))
		return write_status(recording, j);
	return -ENOTSUP;
}

bool recording__signal(struct recording *recording, int number)
{
	int err;

	if (!has_windows(recording) || (number != SIGUSR1 && number != SIGUSR2))
		return false;
	err = control_all(recording, number == SIGUSR1 ? windows__start : windows__stop, "signal",
			  NULL);
	if (err)
		log_warn("%s: %s", number == SIGUSR1 ? "SIGUSR1" : "SIGUSR2", describe_error(err));
	return true;
}

static void on_control(void *ctx)
{
	struct recording *recording = ctx;

	control__pump(recording->control);
}

static void on_signal(void *ctx)
{
	struct recording *recording = ctx;
	struct signalfd_siginfo si;

	while (read(recording->signals, &si, sizeof(si)) == sizeof(si))
		recording__signal(recording, (int)si.ssi_signo);
}

/* Has `ready` called when fd is readable. */
static void add_source(struct recording *recording, int fd, void (*ready)(void *ctx))
{
	if (recording->loop.n_sources < LOOP_SOURCES)
		recording->loop.sources[recording->loop.n_sources++] = (struct loop_source){
			.fd = fd, .ready = ready, .ctx = recording
		};
}

/* The process that the names of sockets have: the only one, or this program. */
static pid_t named_target(const struct recording *recording)
{
	return recording->loop.args.pid ? recording->loop.args.pid : getpid();
}

/* Opens the socket for figures, if they are wanted. Returns 0 or an exit code, logged. */
static int recording__open_figures(struct recording *recording)
{
	int err;

	if (!recording->args.figures)
		return EXIT_OK;
	err = control__open_feed(named_target(recording), /*folder=*/NULL,
				 &recording->figures->feed, &recording->figures_feed);
	if (!err)
		return EXIT_OK;
	if (err == -ENOENT)
		log_err("--figures: without root, the environment must name a folder of yours for "
			"the socket: set XDG_RUNTIME_DIR");
	else
		log_err("--figures: cannot make the socket: %s", strerror(-err));
	return EXIT_FAILED;
}

/* Opens the socket and the signalfd, once the loop is open. Without them the capture goes on. */
static void recording__open_control(struct recording *recording)
{
	pid_t target = named_target(recording);
	int err = control__open(target, /*folder=*/NULL, handle_request, recording,
				&recording->control);
	sigset_t set;

	if (err)
		log_debug("memtrace-bpf ctl will not work: cannot make its socket: %s",
			  strerror(-err));
	else
		add_source(recording, control__fd(recording->control), on_control);
	recording->signals = -1;
	if (!has_windows(recording) || recording->loop.command) /* `run` has its own signalfd */
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	recording->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (recording->signals >= 0)
		add_source(recording, recording->signals, on_signal);
}

static void recording__close_control(struct recording *recording)
{
	control__close(recording->control);
	control__close(recording->figures_feed);
	recording->control = recording->figures_feed = NULL;
	if (recording->signals >= 0)
		close(recording->signals);
	recording->signals = -1;
	recording->loop.n_sources = 0;
}

enum { OPT_MAX_SIZE = 0x2000, OPT_MAX_EVENTS, OPT_FIGURES, OPT_TELL };

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "Output (default memtrace-PID-TIME.mtr; \"-\": stdout)",
	  OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT },
	{ "max-size", OPT_MAX_SIZE, "SIZE", 0, "Stop when FILE reaches SIZE, such as 2G",
	  OPTIONS_TIME },
	{ "max-events", OPT_MAX_EVENTS, "N", OPTION_RARE, "Stop after N events", OPTIONS_TIME },
	{ "figures", OPT_FIGURES, NULL, OPTION_RARE,
	  "Meanwhile give step figures to the job's user, for W&B, MLflow, TensorBoard",
	  OPTIONS_OUTPUT },
	{ "tell", OPT_TELL, "FD", OPTION_HIDDEN, NULL, 0 }, /* for serve: output.h */
	{ 0 },
};

/* The option that ends a recording, or chooses its end; NULL: none is given. */
static const char *ending_option(const struct recording_args *args)
{
	if (args->oom.on)
		return "--on-oom";
	if (args->oom.kill)
		return "--on-kill";
	if (args->bounds.max_size)
		return "--max-size";
	return args->bounds.max_events ? "--max-events" : NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct recording_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->oom;
		state->child_inputs[1] = &args->rolling;
		state->child_inputs[2] = &args->windows;
		break;
	case 'o':
		args->output = arg;
		break;
	case 'f':
		args->force = true;
		break;
	case OPT_MAX_SIZE:
		if (text__parse_size(arg, &args->bounds.max_size) || args->bounds.max_size < 65536)
			argp_error(state, "--max-size: '%s' is not a size of at least 64K; try 2G",
				   arg);
		break;
	case OPT_MAX_EVENTS:
		args->bounds.max_events = capture_args__parse_count(state, "--max-events", arg,
								    /*min=*/1);
		break;
	case OPT_FIGURES:
		args->figures = true;
		break;
	case OPT_TELL:
		args->tell = (int)capture_args__parse_count(state, "--tell", arg, /*min=*/3);
		/* The command of `run` must not inherit the pipe: serve believes what comes from
		 * it. */
		if (fcntl(args->tell, F_SETFD, FD_CLOEXEC))
			argp_error(state, "--tell: %s: %s", arg, strerror(errno));
		break;
	case ARGP_KEY_END:
		if (args->rolling.size && ending_option(args))
			argp_error(state,
				   "--rolling records without end; it cannot be combined with %s",
				   ending_option(args));
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp_child children[] = { { &oom_argp, 0, NULL, 0 },
					      { &rolling_argp, 0, NULL, 0 },
					      { &window_argp, 0, NULL, 0 },
					      { 0 } };
const struct argp recording_argp = { .options = options, .parser = parse, .children = children };

/* Refuses options that contradict each other. Returns 0 or an exit code, logged. */
static int check(const struct recording *recording)
{
	bool to_stdout = recording->args.output && !strcmp(recording->args.output, "-");

	if (capture_loop__of_several(&recording->loop) && to_stdout)
		log_err("%s a file for each process; -o - is for one process",
			recording->loop.args.pid ? "--children writes" : "several processes write");
	else if (recording->args.rolling.size && to_stdout)
		log_err("--rolling writes a folder; it cannot be combined with -o -");
	else if (recording->args.rolling.size && recording->args.windows.given)
		log_err("--rolling cannot be combined with windows (--on, --every, --wait, ...)");
	else if (recording->args.oom.on && recording->args.windows.chosen)
		log_err("--on-oom cannot be combined with windows; use --on 'ooms>0' --before 30s");
	else if (recording->args.oom.kill && recording->args.windows.chosen)
		log_err("--on-kill cannot be combined with windows (--on, --every, --wait, ...)");
	else
		return EXIT_OK;
	return EXIT_USAGE;
}

/* ---- the folder of all outputs ---- */

static bool is_folder(const struct recording *recording)
{
	const char *output = recording->args.output;

	return output && strcmp(output, "-") != 0 && folder__wanted(output);
}

/* True if the files have what led up to an error or an end. */
static bool looks_back(const struct recording *recording)
{
	return recording->args.oom.on || recording->args.oom.kill;
}

/* Chooses the kind of output. A single process with a folder is one window in it. */
static enum output_kind choose_kind(const struct recording *recording)
{
	if (recording->args.rolling.size)
		return OUTPUT_ROLLING;
	if (recording->args.windows.given || looks_back(recording))
		return OUTPUT_WINDOWS;
	if (!is_folder(recording))
		return OUTPUT_FILE;
	return capture_loop__of_several(&recording->loop) ? OUTPUT_FOLDER : OUTPUT_WINDOWS;
}

/* True if all outputs go into one folder. */
static bool wants_folder(const struct recording *recording)
{
	const struct window_args *args = &recording->args.windows;

	if (recording->kind == OUTPUT_ROLLING)
		return capture_loop__of_several(&recording->loop) && recording->args.output;
	if (recording->kind == OUTPUT_WINDOWS && !looks_back(recording) &&
	    (window_args__repeat(args) || args->wait || capture_loop__of_several(&recording->loop)))
		return true;
	return is_folder(recording);
}

/* Opens or makes the folder of all outputs, if there is one. Returns 0 or an exit code, logged. */
static int open_folder(struct recording *recording)
{
	const char *path = output__main_path(recording);
	size_t len = strlen(path);
	char name[64];
	int err;

	if (!wants_folder(recording))
		return EXIT_OK;
	if (!recording->args.output) {
		/* the default name without ".mtr" */
		snprintf(name, sizeof(name), "%.*s", (int)len - 4, path);
		path = name;
	} else if (recording->kind == OUTPUT_WINDOWS && !is_folder(recording)) {
		log_err("%s: several windows need a folder: -o NAME/", path);
		return EXIT_USAGE;
	}
	recording->made_folder = access(path, F_OK);
	err = folder__create(path, recording->args.force, &recording->folder);
	if (!err)
		return EXIT_OK;
	log_err("%s: %s", path, folder__why(err));
	return EXIT_FAILED;
}

/* Removes the folder unless it has other files in it. */
static void remove_folder(const char *path)
{
	char *index;

	if (asprintf(&index, "%s/" FOLDER_INDEX, path) < 0)
		return;
	unlink(index);
	rmdir(path);
	free(index);
}

/* Says why no recording was written. */
static void say_nothing(const struct recording *recording)
{
	if (recording->args.oom.on && recording->args.oom.kill)
		log_info("nothing ran out of memory, was killed or failed: nothing was written");
	else if (recording->args.oom.on)
		log_info("nothing ran out of memory: nothing was written");
	else if (recording->args.oom.kill)
		log_info("nothing was killed and nothing failed: nothing was written");
	else if (recording->kind == OUTPUT_WINDOWS)
		log_info("no window began: nothing was written");
	else if (recording->folder)
		log_warn("nothing was written: no recorded process allocated a tensor");
}

/* Prints a summary, closes the folder, and removes it if recording made it and it has no recording.
 */
static void close_folder(struct recording *recording, int status)
{
	bool of_windows = recording->kind == OUTPUT_WINDOWS;
	size_t n_entries = 0;

	if (recording->folder && !folder__read_again(recording->folder))
		folder__entries(recording->folder, &n_entries);
	if (n_entries)
		output__say_next(of_windows && n_entries > 1 ? "compare" : "report",
				 folder__path(recording->folder));
	else if (!n_entries && !status && !recording->written)
		say_nothing(recording);
	if (recording->folder && !n_entries && recording->made_folder)
		remove_folder(folder__path(recording->folder));
	folder__free(recording->folder);
	recording->folder = NULL;
}

/* ---- the status of the capture, for `serve` ---- */

#define TELL_EVERY UINT64_C(500000000) /* ns between two messages */
/* Figures at the end of a capture: waits for the reader, and the longest of each, ms. */
#define LAST_WAITS 256
#define LAST_WAIT_MS 20

static json_t *host_parts(const struct host_sheet *sheet)
{
	json_t *parts = json_object();

	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		if (host_part__adds_up(i) && sheet->part[i].known)
			json_object_set_new(parts, host_part__name(i),
					    json_integer((json_int_t)sheet->part[i].bytes));
	return parts;
}

/* Resident bytes in use, and free inside allocators. NULL: not known. */
static json_t *host_use(const struct host_sheet *s)
{
	struct host_use u;

	host_sheet__use(s, &u);
	return u.known ? json_pack("{s:I,s:I}", "live", (json_int_t)u.live, "free",
				   (json_int_t)u.free)
		       : NULL;
}

/* Sends a message to the program that started the capture (--tell). False: there is no room for it
 * now, or the program is gone. */
static bool tell_text(struct recording *recording, const char *text)
{
	size_t len = strlen(text);

	if (!recording->args.tell)
		return false;
	if (send(recording->args.tell, text, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len)
		return true;
	if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
		recording->args.tell = 0; /* the reader is gone */
	return false;
}

/*
 * Writes the status of a capture, as a JSON object, to the socket of the program that started it
 * (--tell, from `serve`). Writing never blocks.
 * {"state": "opened"|"capturing"|"ended", "pid", "seconds", "events", "lost", "steps", "dropped",
 * "bytes", "host" (once read: resident bytes of each known part), "host_use" ({"live", "free"}),
 * "reason" (ended alone)} output: of the process of loop.args.pid; NULL: there is none. After
 * "ended" nothing is written. With --figures, the socket also has their messages, with "kind".
 */
static void tell_status(struct recording *recording, const struct output *output, const char *state,
			const char *reason)
{
	const struct session *session = output ? output->session : NULL;
	bool attached = session && session__now(session); /* now or before */
	const struct mtr_writer *writer = output && recording->kind == OUTPUT_FILE
						  ? ((const struct output_file *)output)->writer
						  : NULL;
	json_t *status = recording->args.tell ? json_pack("{s:s,s:i}", "state", state, "pid",
							  (int)recording->loop.args.pid)
					      : NULL;
	char *text;

	if (status && attached) {
		json_object_set_new(status, "seconds",
				    json_real((double)session__now(session) / 1e9));
		json_object_set_new(status, "events",
				    json_integer((json_int_t)session__events(session)));
		json_object_set_new(status, "lost",
				    json_integer((json_int_t)session__lost(session)));
		json_object_set_new(status, "steps",
				    json_integer((json_int_t)session__steps(session)));
	}
	if (status && attached && writer) {
		json_object_set_new(status, "bytes",
				    json_integer((json_int_t)mtr_writer__bytes(writer)));
		json_object_set_new(status, "dropped",
				    json_integer((json_int_t)mtr_writer__dropped(writer)));
	}
	if (status && recording->has_ledger) {
		json_object_set_new(status, "host", host_parts(&recording->ledger));
		json_object_set_new(status, "host_use", host_use(&recording->ledger));
	}
	if (status && reason)
		json_object_set_new(status, "reason", json_string(reason));
	text = status ? json_dumps(status, JSON_COMPACT) : NULL;
	if (text)
		tell_text(recording, text);
	free(text);
	json_decref(status);
}

/* Passes figures on that were not told yet. Those that find no room are told later. True: all were
 * told, or nobody reads them. */
static bool tell_figures(struct recording *recording)
{
	const struct control_feed *feed = &recording->figures->feed;
	uint64_t at = recording->told;
	const char *text;

	while (recording->args.tell && (text = feed->next(feed->ctx, geteuid(), &at))) {
		if (!tell_text(recording, text))
			return !recording->args.tell;
		recording->told = at;
	}
	return true;
}

/* Hands out the figures: to programs of the processes' users, and to `serve`. last: of the process
 * that ends. Waits then until `serve` has read what came at once. */
static void hand_out_figures(struct recording *recording, bool last)
{
	struct pollfd reader = { .fd = recording->args.tell, .events = POLLOUT };
	int waits = 0;

	if (!recording->figures_feed)
		return;
	control__feed(recording->figures_feed);
	while (!tell_figures(recording) && last && waits++ < LAST_WAITS)
		poll(&reader, 1, LAST_WAIT_MS);
}

/* Tells the status "capturing", at most twice a second. */
static void tell_drained(struct recording *recording, const struct output *output)
{
	uint64_t now = recording->args.tell ? session__now(output->session) : 0;

	if (!recording->args.tell || now - recording->last_status < TELL_EVERY)
		return;
	recording->last_status = now;
	tell_status(recording, output, "capturing", NULL);
}

/* ---- the outputs ---- */

/* Makes the output of a process and adds it to recording->outputs, at the end. With times 0 its
 * file is opened at once, so that a full disk is known before attaching. All other files are made
 * with the first event, because many processes end without one. NULL: failed, logged. */
static struct output *new_output(struct recording *recording, struct session *session, pid_t pid,
				 unsigned int times)
{
	static struct output *(*const constructors[])(const struct output *process) = {
		[OUTPUT_FILE] = output_file__new,
		[OUTPUT_FOLDER] = output_file__new_in_folder,
		[OUTPUT_WINDOWS] = output_windows__new,
		[OUTPUT_ROLLING] = output_rolling__new,
	};
	struct output **at = &recording->outputs;
	const struct output process = {
		.recording = recording, .session = session, .pid = pid, .times = times
	};

	while (*at)
		at = &(*at)->next;
	*at = constructors[recording->kind](&process);
	return *at;
}

/* Keeps the last complete reading of host memory for the status (--tell). */
static void keep_reading(struct recording *recording, const struct event *event)
{
	if (!recording->args.tell || event->kind != EVENT_HOST ||
	    !host_sheet__take(&recording->reading, event))
		return;
	recording->ledger = recording->reading;
	recording->has_ledger = true;
	recording->reading = (struct host_sheet){ 0 };
}

/* True if an event does not go into the recording. The session's stages have seen it, and all
 * destinations get what is left. */
static bool leaves_out(const struct output *output, const struct event *event)
{
	const struct recording_calls *calls = &output->recording->calls;

	return !output->times && calls->keep && !calls->keep(calls->ctx, event);
}

static int on_event(struct sink *s, const struct event *event)
{
	struct output *output = (struct output *)s;
	int err;

	if (output->pid == output->recording->loop.args.pid)
		keep_reading(output->recording, event);
	if (output->figures) {
		err = output->recording->figures->event(output->figures, event);
		if (err)
			return err;
	}
	return leaves_out(output, event) ? 0 : output->event(output, event);
}

static int on_tick(struct sink *s, uint64_t now)
{
	struct output *output = (struct output *)s;
	int err = 0;

	if (output->figures)
		err = output->recording->figures->tick(output->figures, now);
	return err ? err : output->tick(output, now);
}

/* tracees_output.begin(): makes the output of a process. */
static void *begin(void *ctx, struct session *session, pid_t pid, unsigned int times,
		   struct sink **sink)
{
	struct recording *recording = ctx;
	const struct recording_figures *figures = recording->args.figures ? recording->figures
									  : NULL;
	struct output *output = new_output(recording, session, pid, times);

	if (!output)
		return NULL;
	output->figures = figures ? figures->begin(figures->ctx, session, pid) : NULL;
	if (figures && !output->figures)
		log_warn("--figures: out of memory; PID %d has none", (int)pid);
	if (!times)
		tell_status(recording, output, "opened", NULL);
	output->sink = (struct sink){ .event = on_event, .tick = on_tick };
	*sink = &output->sink;
	return output;
}

/* Passes on that a process is attached. Returns EXIT_OK or an exit code, logged. */
static int attached(void *ctx)
{
	struct output *output = ctx;
	struct recording *recording = output->recording;

	if (output->times)
		return EXIT_OK;
	tell_status(recording, output, "capturing", NULL);
	if (recording->calls.attached)
		recording->calls.attached(recording->calls.ctx, output->session);
	return output->attached ? output->attached(output) : EXIT_OK;
}

/* Returns why the output takes no more events; NULL: it does. */
static const char *is_full(void *ctx)
{
	struct output *output = ctx;
	struct recording *recording = output->recording;
	const char *reason;

	if (!output->times)
		tell_drained(recording, output);
	hand_out_figures(recording, /*last=*/false);
	reason = output->full ? output->full(output) : NULL;
	if (!reason && !output->times && recording->calls.over)
		reason = recording->calls.over(recording->calls.ctx);
	return reason;
}

/* tracees_output.end(): removes the output from the list, and ends it. */
static int end(void *ctx, const char *reason, int err)
{
	struct output *output = ctx, **at = &output->recording->outputs;

	if (output->figures)
		output->recording->figures->end(output->figures, reason,
						session__now(output->session));
	hand_out_figures(output->recording, /*last=*/true);
	if (!output->times)
		tell_status(output->recording, output, "ended", reason);
	while (*at != output)
		at = &(*at)->next;
	*at = output->next;
	return output->end(output, reason, err);
}

static const struct tracees_output outputs = { begin, attached, is_full, end };

/* ---- the recording ---- */

/* With --on-kill, sets room for the last file aside, and protects this process. Returns 0 or an
 * exit code, logged. */
static int prepare_for_the_worst(struct recording *recording)
{
	uint64_t file_bytes = recording->args.bounds.max_size ? recording->args.bounds.max_size
							      : FLIGHT_BYTES;
	const char *path = output__main_path(recording);
	char size[24];

	reserve__protect(capture_loop__of_several(&recording->loop) ? 0 : recording->loop.args.pid);
	if (!strcmp(path, "-"))
		return EXIT_OK;
	recording->reserve = reserve__new(path, file_bytes);
	recording->window_opts.reserve = recording->reserve;
	if (recording->reserve)
		return EXIT_OK;
	if (errno == ENOSPC || errno == EDQUOT) {
		log_err("%s: the disk has no room for %s, which is set aside for the last file; "
			"free some, or set --max-size",
			path, text__bytes(size, sizeof(size), file_bytes));
		return EXIT_FAILED;
	}
	log_debug("%s: no room is set aside for the last file: %s", path, strerror(errno));
	return EXIT_OK;
}

/* Prepares the output and records. Returns an exit code, logged. */
static int capture(struct recording *recording)
{
	int status;

	recording->kind = choose_kind(recording);
	recording->loop.writes_later = recording->kind != OUTPUT_FILE;
	recording->loop.endings = recording->args.oom.kill ? LOOP_ENDINGS_NEEDED
							   : LOOP_ENDINGS_IF_POSSIBLE;
	recording->loop.output = &outputs;
	recording->loop.ctx = recording;
	status = recording->kind == OUTPUT_WINDOWS
			 ? output_windows__prepare(recording,
						   capture_loop__of_several(&recording->loop))
			 : EXIT_OK;
	if (status)
		return status;
	status = capture_loop__open(&recording->loop);
	if (status)
		return status;
	status = open_folder(recording);
	if (status)
		return status;
	status = recording->args.oom.kill ? prepare_for_the_worst(recording) : EXIT_OK;
	if (status)
		return status;
	status = recording__open_figures(recording);
	if (status)
		goto out;
	recording__open_control(recording);
	status = capture_loop__run(&recording->loop);
	recording__close_control(recording);
out:
	reserve__free(recording->reserve);
	return status;
}

/* Sets the limit on the cost of a recording that runs by itself for days, unless it was chosen.
 * With probes on malloc, --cost is their limit, too. */
static void choose_cost(struct recording *recording)
{
	struct capture_args *capture = &recording->loop.args;
	bool by_itself = recording->args.rolling.size || recording->args.oom.kill;
	bool inside = recording->loop.command && recording->loop.command->inside;

	if (!by_itself || inside || capture->chose_cost || capture->session.malloc_probes)
		return;
	capture->session.cost = CAPTURE_COST_SHARE;
	log_debug("--cost %s, since nobody waits for this recording", CAPTURE_COST);
}

int recording__run(struct recording *recording)
{
	int status = check(recording);

	choose_cost(recording);
	if (!status)
		status = capture(recording);
	tell_status(recording, /*output=*/NULL, "ended", NULL);
	close_folder(recording, status);
	return status;
}
