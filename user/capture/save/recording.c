/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "capture/option_groups.h"
#include "capture/save/output_file.h"
#include "capture/save/output_folder.h"
#include "capture/save/output_rolling.h"
#include "capture/save/output_windows.h"
#include "capture/save/recording_control.h"
#include "capture/save/reserve.h"
#include "capture/save/status_pipe.h"
#include "capture/tracees.h"
#include "record/flight.h"
#include "record/folder.h"

enum { OPT_MAX_SIZE = 0x2000, OPT_MAX_EVENTS, OPT_TELL };

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "Output (default memtrace-PID-TIME.mtr; \"-\": stdout)",
	  OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT },
	{ "max-size", OPT_MAX_SIZE, "SIZE", 0, "Stop when FILE reaches SIZE, such as 2G",
	  OPTIONS_TIME },
	{ "max-events", OPT_MAX_EVENTS, "N", OPTION_RARE, "Stop after N events", OPTIONS_TIME },
	{ "tell", OPT_TELL, "FD", OPTION_HIDDEN, NULL, 0 }, /* for serve: status_pipe.h */
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct recording_args *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->oom;
		state->child_inputs[1] = &a->rolling;
		state->child_inputs[2] = &a->windows;
		break;
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case OPT_MAX_SIZE:
		if (text__parse_size(arg, &a->bounds.max_size) || a->bounds.max_size < 65536)
			argp_error(state, "--max-size: '%s' is not a size of at least 64K; try 2G",
				   arg);
		break;
	case OPT_MAX_EVENTS:
		a->bounds.max_events = capture_args__parse_count(state, "--max-events", arg, 1);
		break;
	case OPT_TELL:
		a->tell = (int)capture_args__parse_count(state, "--tell", arg, 3);
		/* The command of `run` must not inherit the pipe: serve believes what comes from
		 * it. */
		if (fcntl(a->tell, F_SETFD, FD_CLOEXEC))
			argp_error(state, "--tell: %s: %s", arg, strerror(errno));
		break;
	case ARGP_KEY_END:
		if (a->rolling.size &&
		    (a->oom.on || a->oom.kill || a->bounds.max_size || a->bounds.max_events))
			argp_error(state,
				   "--rolling records without end; it cannot be combined with %s",
				   a->oom.on		? "--on-oom"
				   : a->oom.kill	? "--on-kill"
				   : a->bounds.max_size ? "--max-size"
							: "--max-events");
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

/* True if --children or the choice of processes allows more than one process. */
static bool of_several(const struct recording *r)
{
	return r->loop.args.children || !r->loop.args.pid;
}

/* Refuses options that contradict each other. Returns 0 or an exit code, logged. */
static int check(const struct recording *r)
{
	bool to_stdout = r->args.output && !strcmp(r->args.output, "-");

	if (of_several(r) && to_stdout)
		log_err("%s a file for each process; -o - is for one process",
			r->loop.args.pid ? "--children writes" : "several processes write");
	else if (r->args.rolling.size && to_stdout)
		log_err("--rolling writes a folder; it cannot be combined with -o -");
	else if (r->args.rolling.size && r->args.windows.given)
		log_err("--rolling cannot be combined with windows (--on, --every, --wait, ...)");
	else if (r->args.oom.on && r->args.windows.chosen)
		log_err("--on-oom cannot be combined with windows; use --on 'ooms>0' --before 30s");
	else if (r->args.oom.kill && r->args.windows.chosen)
		log_err("--on-kill cannot be combined with windows (--on, --every, --wait, ...)");
	else
		return EXIT_OK;
	return EXIT_USAGE;
}

/* ---- the folder of all outputs ---- */

static bool is_folder(const struct recording *r)
{
	const char *output = r->args.output;

	return output && strcmp(output, "-") != 0 && folder__wanted(output);
}

static bool looks_back(const struct recording *r)
{
	return r->args.oom.on || r->args.oom.kill;
}

static enum output_kind kind_of(const struct recording *r)
{
	if (r->args.rolling.size)
		return OUTPUT_ROLLING;
	if (r->args.windows.given || looks_back(r))
		return OUTPUT_WINDOWS;
	if (!is_folder(r))
		return OUTPUT_FILE;
	return of_several(r) ? OUTPUT_FOLDER : OUTPUT_WINDOWS;
}

static bool wants_folder(const struct recording *r)
{
	const struct window_args *a = &r->args.windows;

	if (r->kind == OUTPUT_ROLLING)
		return of_several(r) && r->args.output;
	if (r->kind == OUTPUT_WINDOWS && !looks_back(r) &&
	    (window_args__repeat(a) || a->wait || of_several(r)))
		return true;
	return is_folder(r);
}

/* Opens or makes the folder of all outputs, if there is one. Returns 0 or an exit code, logged. */
static int open_folder(struct recording *r)
{
	const char *path = output__main_path(r);
	size_t len = strlen(path);
	char name[64];
	int err;

	if (!wants_folder(r))
		return EXIT_OK;
	if (!r->args.output) {
		snprintf(name, sizeof(name), "%.*s", (int)len - 4, path);
		path = name;
	} else if (r->kind == OUTPUT_WINDOWS && !is_folder(r)) {
		log_err("%s: several windows need a folder: -o NAME/", path);
		return EXIT_USAGE;
	}
	r->made_folder = access(path, F_OK);
	err = folder__create(path, r->args.force, &r->folder);
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

static void say_nothing(const struct recording *r)
{
	if (looks_back(r))
		log_info("%s: nothing was written",
			 !r->args.oom.kill ? "nothing ran out of memory"
			 : !r->args.oom.on ? "nothing was killed and nothing failed"
					   : "nothing ran out of memory, was killed or failed");
	else if (r->kind == OUTPUT_WINDOWS)
		log_info("no window began: nothing was written");
	else if (r->folder)
		log_warn("nothing was written: no recorded process allocated a tensor");
}

/* Prints a summary, closes the folder, and removes it if r made it and it has no recording. */
static void close_folder(struct recording *r, int status)
{
	bool one = r->kind == OUTPUT_WINDOWS;
	size_t n = 0;

	if (r->folder && !folder__read_again(r->folder))
		folder__entries(r->folder, &n);
	if (n)
		output__say_next(one && n > 1 ? "compare" : "report", folder__path(r->folder));
	else if (!n && !status && !r->written)
		say_nothing(r);
	if (r->folder && !n && r->made_folder)
		remove_folder(folder__path(r->folder));
	folder__free(r->folder);
	r->folder = NULL;
}

/* ---- the outputs ---- */

/* Makes the output of a process and adds it to r->outputs. With times 0 its own file is opened at
 * once, so that a full disk is known before attaching. All other files are made with the first
 * event, because many processes end without one. NULL: failed, logged. */
static struct output *new_output(struct recording *r, struct session *s, pid_t pid,
				 unsigned int times)
{
	static struct output *(*const new[])(const struct output *process) = {
		[OUTPUT_FILE] = output_file__new,
		[OUTPUT_FOLDER] = output_folder__new,
		[OUTPUT_WINDOWS] = output_windows__new,
		[OUTPUT_ROLLING] = output_rolling__new,
	};
	struct output **at = &r->outputs;
	const struct output process = { .r = r, .session = s, .pid = pid, .times = times };

	while (*at)
		at = &(*at)->next;
	*at = new[r->kind](&process);
	return *at;
}

static void *begin(void *ctx, struct session *s, pid_t pid, unsigned int times, struct sink **sink)
{
	struct recording *r = ctx;
	struct output *o = new_output(r, s, pid, times);

	if (!o)
		return NULL;
	if (!times)
		status_pipe__tell(r, o, "opened", NULL);
	*sink = &o->sink;
	return o;
}

static int attached(void *output)
{
	struct output *o = output;
	struct recording *r = o->r;

	if (o->times)
		return EXIT_OK;
	status_pipe__tell(r, o, "capturing", NULL);
	if (r->calls.attached)
		r->calls.attached(r->calls.ctx, o->session);
	return o->attached ? o->attached(o) : EXIT_OK;
}

static const char *is_full(void *output)
{
	struct output *o = output;
	struct recording *r = o->r;
	const char *reason;

	if (!o->times)
		status_pipe__drained(r, o);
	reason = o->full ? o->full(o) : NULL;
	if (!reason && !o->times && r->calls.over)
		reason = r->calls.over(r->calls.ctx);
	return reason;
}

static int end(void *output, const char *reason, int err)
{
	struct output *o = output, **at = &o->r->outputs;

	if (!o->times)
		status_pipe__tell(o->r, o, "ended", reason);
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	return o->end(o, reason, err);
}

static const struct tracees_output outputs = { begin, attached, is_full, end };

/* ---- the recording ---- */

/* Sets room for the last file aside, and protects this process. Returns 0 or an exit code, logged. */
static int prepare_for_the_worst(struct recording *r)
{
	uint64_t most = r->args.bounds.max_size ? r->args.bounds.max_size : FLIGHT_BYTES;
	const char *path = output__main_path(r);
	char size[24];

	reserve__protect(of_several(r) ? 0 : r->loop.args.pid);
	if (!strcmp(path, "-"))
		return EXIT_OK;
	r->reserve = reserve__new(path, most);
	r->window_opts.reserve = r->reserve;
	if (r->reserve)
		return EXIT_OK;
	if (errno == ENOSPC || errno == EDQUOT) {
		log_err("%s: the disk has no room for %s, which is set aside for the last file; "
			"free some, or set --max-size",
			path, text__bytes(size, sizeof(size), most));
		return EXIT_FAILED;
	}
	log_debug("%s: no room is set aside for the last file: %s", path, strerror(errno));
	return EXIT_OK;
}

static int capture(struct recording *r)
{
	int status;

	r->kind = kind_of(r);
	r->loop.writes_later = r->kind != OUTPUT_FILE;
	r->loop.endings = r->args.oom.kill ? LOOP_ENDINGS_NEEDED : LOOP_ENDINGS_IF_POSSIBLE;
	r->loop.output = &outputs;
	r->loop.ctx = r;
	status = r->kind == OUTPUT_WINDOWS ? output_windows__prepare(r, of_several(r)) : EXIT_OK;
	if (!status)
		status = capture_loop__open(&r->loop);
	if (!status)
		status = open_folder(r);
	if (!status && r->args.oom.kill)
		status = prepare_for_the_worst(r);
	if (status)
		return status;
	recording_control__open(r);
	status = capture_loop__run(&r->loop);
	recording_control__close(r);
	reserve__free(r->reserve);
	return status;
}

int recording__run(struct recording *r)
{
	int status = check(r);

	if (!status)
		status = capture(r);
	status_pipe__tell(r, NULL, "ended", NULL);
	close_folder(r, status);
	return status;
}
