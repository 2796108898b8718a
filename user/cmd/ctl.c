/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf ctl: controls a running capture. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "capture/capture_args.h"
#include "model/words.h"
#include "base/exit.h"
#include "base/text.h"
#include "base/log.h"
#include "inspect/proc.h"
#include "capture/control.h"

#define COMMAND_SHOWN 48 /* characters of a command line */

struct ctl_args {
	pid_t pid;
	bool json;
	const char *word, *argument;
};

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "The traced process or the capture; needed if several captures run",
	  OPTIONS_PROCESS },
	{ "format", OPT_FORMAT, "text|json", 0,
	  "Format (default text); json: a line for each capture", OPTIONS_OUTPUT },
	{ 0 },
};

static const struct command_word actions[] = {
	{ "start", "start a window (record --wait)" },
	{ "stop", "end the window" },
	{ "mark", "NAME: put a mark into the recording" },
	{ "save", "write what is kept in memory (record --on-oom, --before)" },
	{ "status", "print the state of the capture" },
	{ 0 },
};

static struct command_word action_word(size_t i)
{
	return actions[i];
}

/* Returns the action. Calls argp_error() for an unknown one, before any capture is looked for. */
static const char *check_action(const char *word, struct argp_state *state)
{
	static const char *const words[] = { "start", "stop", "mark NAME", "save", "status", NULL };

	for (size_t i = 0; actions[i].name; i++)
		if (!strcmp(word, actions[i].name))
			return word;
	usage__unknown(state, "unknown action", word, words);
	return NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ctl_args *a = state->input;

	switch (key) {
	case 'p':
		capture_args__parse_only_pid(state, arg, "", &a->pid);
		break;
	case OPT_FORMAT:
		a->json = report_args__choose(state, "--format", arg, report_args_formats);
		break;
	case ARGP_KEY_ARG:
		if (!a->word)
			a->word = check_action(arg, state);
		else if (!a->argument && !strcmp(a->word, "mark"))
			a->argument = arg;
		else
			argp_error(state,
				   "unexpected argument '%s'; only mark takes one: memtrace-bpf "
				   "ctl mark NAME",
				   arg);
		break;
	case ARGP_KEY_END:
		if (!a->word)
			argp_error(state,
				   "no action given; use start, stop, mark NAME, save or status");
		if (!strcmp(a->word, "mark") && !a->argument)
			argp_error(state, "mark needs a name: memtrace-bpf ctl mark NAME");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* Writes a process's command line for people, cut to COMMAND_SHOWN characters. "": it has none.
 * Returns buf. */
static const char *command_of(uint64_t pid, char *buf, size_t size)
{
	struct proc *p = pid && pid <= INT_MAX ? proc__open((pid_t)pid) : NULL;
	const char *cmdline;
	size_t len;

	buf[0] = '\0';
	if (p) {
		cmdline = proc__cmdline(p, &len);
		words__cut(words__arguments(buf, size, cmdline, len), COMMAND_SHOWN);
	}
	proc__free(p);
	return buf;
}

/* Finds the captures to send the action to: one, or for "status" all. *ret: for the caller
 * to free. Returns 0, or an exit code after a message. */
static int find_captures(const struct ctl_args *a, struct control_place **ret, size_t *found)
{
	bool each = !strcmp(a->word, "status");
	struct control_place *all = NULL;
	ssize_t n = control__find(/*folder=*/NULL, a->pid, &all);
	char command[256];
	int status = EXIT_OK;

	if (n == -EACCES || n == -EPERM) {
		log_err("not permitted to control captures of other users; run it with sudo");
		return EXIT_NOT_PERMITTED;
	}
	if (n <= 0) {
		const char *whose = "", *next = "memtrace-bpf record begins one";

		if (geteuid()) {
			whose = " of yours";
			next = "those of root are reached with sudo memtrace-bpf ctl";
		}
		if (a->pid)
			log_err("no capture%s of PID %d runs here; %s", whose, (int)a->pid, next);
		else
			log_err("no capture%s runs here; %s", whose, next);
		status = EXIT_UNUSABLE;
	} else if (n > 1 && !each) {
		log_err("%zd captures are running; choose one with -p:", n);
		for (ssize_t i = 0; i < n; i++) {
			if (all[i].target == all[i].capturer)
				log_err("  -p %d: several processes, captured by PID %d",
					(int)all[i].capturer, (int)all[i].capturer);
			else
				log_err("  -p %d: PID %d, captured by PID %d  %s",
					(int)all[i].capturer, (int)all[i].target,
					(int)all[i].capturer,
					command_of(all[i].target, command, sizeof(command)));
		}
		status = EXIT_USAGE;
	}
	if (status)
		free(all);
	else
		*ret = all;
	*found = status ? 0 : (size_t)n;
	return status;
}

/* ---- answers ---- */

/* A member of a JSON object as text, cleaned; "": the member is no text. */
static const char *string(const json_t *o, const char *key, char *buf, size_t size)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? text__clean(buf, size, s, strlen(s)) : "";
}

/* A member of a JSON object as a number; 0: the member is no number, or negative. */
static uint64_t number(const json_t *o, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(o, key));

	return n > 0 ? (uint64_t)n : 0;
}

/* Prints the state of the capture of one process, for status. */
static void print_process(const json_t *p)
{
	const json_t *devices = json_object_get(p, "devices"), *d;
	char began[256], command[256], name[32], a[24], r[24], count[32], time[24];
	double seconds = json_real_value(json_object_get(p, "time"));
	uint64_t ns = seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds * 1e9) : 0;
	size_t i;

	command_of(number(p, "pid"), command, sizeof(command));
	printf("PID %" PRIu64 "%s%s: captured for %s, %s", number(p, "pid"), *command ? " " : "",
	       command, text__time(time, sizeof(time), ns),
	       text__counted(count, sizeof(count), number(p, "steps"), "step"));
	printf(", %s", text__counted(count, sizeof(count), number(p, "captured"), "event"));
	if (number(p, "lost"))
		printf(", %s lost", text__count(count, sizeof(count), number(p, "lost")));
	if (json_object_get(p, "windows"))
		printf(", %s written",
		       text__counted(count, sizeof(count), number(p, "windows"), "window"));
	if (json_is_true(json_object_get(p, "writing")))
		printf("; one is open (begun by: %s), %s so far",
		       string(p, "began", began, sizeof(began)),
		       text__counted(count, sizeof(count), number(p, "events"), "event"));
	putchar('\n');
	json_array_foreach(devices, i, d) {
		printf("  %s  allocated %s", string(d, "device", name, sizeof(name)),
		       text__bytes(a, sizeof(a), number(d, "allocated")));
		if (number(d, "reserved"))
			printf(", reserved %s", text__bytes(r, sizeof(r), number(d, "reserved")));
		putchar('\n');
	}
}

/* Prints what the action (word) did for the capture of one process: a file, a window, or an error. */
static void print_done(const json_t *p, const char *word)
{
	char file[4096], error[256];

	if (json_is_true(json_object_get(p, "ok")))
		printf("PID %" PRIu64 ": %s\n", number(p, "pid"),
		       !strcmp(word, "start") ? "a window began"
					      : string(p, "file", file, sizeof(file)));
	else
		printf("PID %" PRIu64 ": %s\n", number(p, "pid"),
		       string(p, "error", error, sizeof(error)));
}

/* Prints an answer for people. word: the action. */
static void print_text(const json_t *doc, const char *word)
{
	const json_t *p;
	char waits[512];
	size_t i;

	if (json_object_get(doc, "waiting_for"))
		printf("PID %" PRIu64 ": captures nothing yet, waits for %s\n",
		       number(doc, "capturer"), string(doc, "waiting_for", waits, sizeof(waits)));
	json_array_foreach(json_object_get(doc, "processes"), i, p) {
		if (!strcmp(word, "status"))
			print_process(p);
		else
			print_done(p, word);
	}
}

/* Prints a capture's answer, or logs its error. Returns the exit code. */
static int show_answer(const struct ctl_args *a, const char *answer)
{
	json_error_t e;
	json_t *doc = json_loads(answer, 0, &e);
	char error[256];
	int status = EXIT_FAILED;

	if (!json_is_object(doc)) {
		log_err("the capture sent an answer that cannot be read; do both have the same "
			"version?");
	} else {
		if (json_is_true(json_object_get(doc, "ok")))
			status = EXIT_OK;
		else
			log_err("%s: %s", a->word, string(doc, "error", error, sizeof(error)));
		if (a->json)
			fputs(answer, stdout);
		else if (!status)
			print_text(doc, a->word);
	}
	json_decref(doc);
	return status;
}

/* True for the errors of a capture that has ended, or is ending. */
static bool has_ended(int err)
{
	return err == -ECONNRESET || err == -ECONNREFUSED || err == -EPIPE || err == -ENOENT;
}

/* Sends a request to a capture and shows the answer. Returns the exit code. */
static int ask_capture(const struct ctl_args *a, const struct control_place *place,
		       const char *request)
{
	char *answer;
	int err = control__ask(/*folder=*/NULL, place, request, &answer), status;

	/* The list of all captures goes on without one that ended since it was made. */
	if (!a->pid && has_ended(err)) {
		log_debug("the capture of PID %d (it is PID %d) has ended", (int)place->target,
			  (int)place->capturer);
		return EXIT_OK;
	}
	if (err) {
		log_err("the capture of PID %d (it is PID %d) does not answer: %s",
			(int)place->target, (int)place->capturer, strerror(-err));
		return EXIT_FAILED;
	}
	status = show_answer(a, answer);
	free(answer);
	return status;
}

static const struct argp_child children[] = { SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "ACTION",
	.doc = "Control a running capture.",
	.children = children,
};

static int cmd_ctl(int argc, char **argv)
{
	struct ctl_args args = { 0 };
	struct control_place *places;
	char *request;
	size_t n;
	int status, result;

	usage__parse(&command_ctl, argc, argv, 0, &args);
	status = find_captures(&args, &places, &n);
	if (status)
		return status;
	if (args.argument)
		result = asprintf(&request, "%s %s", args.word, args.argument);
	else
		result = asprintf(&request, "%s", args.word);
	if (result < 0) {
		log_err("out of memory");
		free(places);
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < n; i++) {
		result = ask_capture(&args, &places[i], request);
		status = status ? status : result;
	}
	free(request);
	free(places);
	return status;
}

const struct command command_ctl = {
	.name = "ctl",
	.summary = "control a running capture",
	.group = COMMANDS_RECORD,
	.argp = &argp,
	.word = action_word,
	.words = "Actions",
	.examples = "sudo memtrace-bpf ctl status\n"
		    "sudo memtrace-bpf ctl mark 'epoch 3'",
	.status = "0 done, 1 failed, 2 no capture runs, 3 not permitted, 64 usage",
	.run = cmd_ctl,
};
