/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf ps: all processes with PyTorch or CUDA, with their memory. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/grid.h"
#include "base/json.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "cmd/commands.h"
#include "cmd/ps_device.h"
#include "cmd/ps_machine.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "model/words.h"
#include "record/cond.h"
#include "watch/ps.h"

#define INTERVAL UINT64_C(1000000000)	   /* --interval, ns */
#define CLEAR_SCREEN "\033[H\033[J"	   /* cursor to the first line; delete all after it */
#define INTERVAL_LEAST UINT64_C(100000000) /* ns */
#define COMMAND_WANTED 16		   /* least width of the last column, in characters */

enum { OPT_WATCH = OPT_COMMANDS_OWN, OPT_IDLE, OPT_ORPHANS, OPT_FAIL, OPT_MACHINE, OPT_FILES };

struct ps_args {
	struct report_args shown;
	struct ps_device_args device;
	bool by_device; /* --device */
	struct ps_machine_args machine;
	bool by_machine; /* --machine */
	uint64_t interval, count;
	bool watch;
};

static const struct argp_option options[] = {
	{ "device", OPT_DEVICE, "GPU", OPTION_ARG_OPTIONAL,
	  "List all that hold the memory of this GPU (number or UUID; default: all GPUs), with the "
	  "driver's reserve and the rest. What is probably left over comes first",
	  OPTIONS_SHOW },
	{ "orphans", OPT_ORPHANS, NULL, 0, "With --device: only what is probably left over",
	  OPTIONS_SHOW },
	{ "idle", OPT_IDLE, "TIME", 0,
	  "With --device: only processes that have given the GPU no work for so long",
	  OPTIONS_SHOW },
	{ "fail-if", OPT_FAIL, "CONDITION", 0,
	  "With --device: exit with 4 if CONDITION is true of a GPU, such as 'free<20G' or "
	  "'used>90%'; repeatable",
	  OPTIONS_SHOW },
	{ "machine", OPT_MACHINE, NULL, 0,
	  "Print who has this machine's memory: processes, page cache, kernel, drivers, free",
	  OPTIONS_SHOW },
	{ "files", OPT_FILES, "PATH", 0,
	  "With --machine: also look for the page cache of this file, or of a folder's files; "
	  "repeatable",
	  OPTIONS_SHOW },
	{ "watch", OPT_WATCH, NULL, 0, "Print the list again every interval, until Ctrl-C",
	  OPTIONS_TIME },
	{ "interval", 'i', "TIME", 0, "Time between two looks (default 1s)", OPTIONS_TIME },
	{ "count", 'n', "N", 0, "With --watch: stop after N lists", OPTIONS_TIME },
	{ "format", OPT_FORMAT, "text|json", 0, "Format (default text)", OPTIONS_OUTPUT },
	{ 0 },
};

static void parse_fail_if(struct ps_device_args *a, const char *arg, struct argp_state *state)
{
	char *why = NULL;
	int err;

	if (a->n_conds == PS_DEVICE_CONDS)
		argp_error(state, "--fail-if: more than %d conditions", PS_DEVICE_CONDS);
	err = cond__parse(arg, &a->conds[a->n_conds], &why);
	if (err)
		argp_error(state, "--fail-if: %s", why ? why : "out of memory");
	free(why);
	a->n_conds++;
}

/* --device and its number may be two words. */
static void parse_word(struct ps_args *a, char *arg, struct argp_state *state)
{
	bool number = *arg && arg[strspn(arg, "0123456789")] == '\0';

	if (!a->by_device || a->device.device || !(number || text__starts(arg, "GPU-")))
		usage__unexpected(state, arg, "ps lists all processes");
	a->device.device = arg;
}

static void check_options(const struct ps_args *a, struct argp_state *state)
{
	if (a->count && !a->watch)
		argp_error(state, "--count is for --watch");
	if (a->machine.n_paths && !a->by_machine)
		argp_error(state, "--files is for --machine");
	if (a->by_machine && a->by_device)
		argp_error(state, "--machine and --device are two tables: give one of them");
	if (!a->by_device && (a->device.orphans || a->device.idle || a->device.n_conds))
		argp_error(state, "--orphans, --idle and --fail-if are for --device");
	for (size_t i = 0; i < a->device.n_conds; i++)
		if (cond__needs_growth(a->device.conds[i]))
			argp_error(state, "--fail-if '%s': growth is for `watch --rule`",
				   cond__text(a->device.conds[i]));
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct ps_args *a = state->input;

	switch (key) {
	case OPT_WATCH:
		a->watch = true;
		break;
	case 'i':
		if (text__parse_time(arg, &a->interval) || a->interval < INTERVAL_LEAST)
			argp_error(state,
				   "--interval: '%s' is not a time of at least 100ms; try 1s", arg);
		break;
	case 'n':
		a->count = capture_args__parse_count(state, "--count", arg, /*min=*/1);
		break;
	case OPT_DEVICE:
		a->by_device = true;
		a->device.device = arg;
		break;
	case OPT_ORPHANS:
		a->device.orphans = true;
		break;
	case OPT_IDLE:
		if (text__parse_time(arg, &a->device.idle) || !a->device.idle)
			argp_error(state, "--idle: '%s' is not a time; try 10m", arg);
		break;
	case OPT_FAIL:
		parse_fail_if(&a->device, arg, state);
		break;
	case OPT_MACHINE:
		a->by_machine = true;
		break;
	case OPT_FILES:
		if (a->machine.n_paths == PS_MACHINE_PATHS)
			argp_error(state, "--files: more than %d paths", PS_MACHINE_PATHS);
		a->machine.paths[a->machine.n_paths++] = arg;
		break;
	case ARGP_KEY_ARG:
		parse_word(a, arg, state);
		break;
	case ARGP_KEY_END:
		check_options(a, state);
		break;
	default:
		return report_args__parse(key, arg, state, &a->shown);
	}
	return 0;
}

/* ---- text ---- */

enum column_id {
	COL_PID,
	COL_USER,
	COL_DEVICE,
	COL_RESERVED,
	COL_ALLOCATED,
	COL_GROWTH,
	COL_RSS,
	COL_RSS_GROWTH,
	COL_RANK,
	COL_CONTAINER,
	COL_NR
};

/* Sets a cell to a size; "-": it is not known. */
static void put_bytes(struct grid *g, enum column_id column, bool known, uint64_t bytes)
{
	char text[24];

	grid__put(g, column, known ? text__bytes(text, sizeof(text), bytes) : "-", NULL);
}

/* Sets a cell to bytes per second with a sign; "-": they are not known. */
static void put_growth(struct grid *g, enum column_id column, bool known, double growth)
{
	char bytes[24], text[32];

	text__bytes(bytes, sizeof(bytes), (uint64_t)(growth < 0 ? -growth : growth));
	snprintf(text, sizeof(text), "%s%s", growth < 0 ? "-" : "+", bytes);
	if (growth < 1 && growth > -1)
		snprintf(text, sizeof(text), "0 B");
	grid__put(g, column, known ? text : "-", NULL);
}

static void put_row(struct grid *g, const struct ps_process *p)
{
	char text[32];

	grid__row(g);
	snprintf(text, sizeof(text), "%d", (int)p->pid);
	grid__put(g, COL_PID, text, NULL);
	grid__put(g, COL_USER, p->user, NULL);
	put_bytes(g, COL_DEVICE, p->used_known || p->has_allocator, ps_process__device(p));
	put_bytes(g, COL_RESERVED, p->has_allocator, p->reserved);
	put_bytes(g, COL_ALLOCATED, p->has_allocator, p->allocated);
	put_growth(g, COL_GROWTH, p->growth_known, p->growth);
	put_bytes(g, COL_RSS, p->rss_known, p->rss);
	put_growth(g, COL_RSS_GROWTH, p->rss_growth_known, p->rss_growth);
	snprintf(text, sizeof(text), "%" PRId64, p->rank);
	grid__put(g, COL_RANK, p->rank < 0 ? "" : text, NULL);
	grid__put(g, COL_CONTAINER, *p->container ? p->container : p->pod, NULL);
}

/* Prints the table. Columns without any value are hidden. 0 or -ENOMEM. */
static int print_rows(struct ps *s)
{
	static const struct column columns[COL_NR] = {
		[COL_PID] = { .title = "PID", .right = true, .least = 7 },
		[COL_USER] = { .title = "User", .goes = 4 },
		[COL_DEVICE] = { .title = "Device", .right = true, .least = 10 },
		[COL_RESERVED] = { .title = "Reserved", .right = true, .goes = 5, .least = 10 },
		[COL_ALLOCATED] = { .title = "Allocated", .right = true, .goes = 3, .least = 10 },
		[COL_GROWTH] = { .title = "Growth/s", .right = true, .goes = 7, .least = 10 },
		[COL_RSS] = { .title = "RSS", .right = true, .goes = 8, .least = 10 },
		[COL_RSS_GROWTH] = { .title = "RSS growth/s", .right = true, .goes = 1 },
		[COL_RANK] = { .title = "Rank", .right = true, .goes = 6 },
		[COL_CONTAINER] = { .title = "Container", .goes = 2 },
	};
	bool ranks = false, containers = false;
	struct grid *g = grid__new(columns, COL_NR);
	size_t n, room;
	const struct ps_process *const *v = ps__list(s, &n);
	char text[512];
	int err;

	if (!g)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		put_row(g, v[i]);
		ranks |= v[i]->rank >= 0;
		containers |= *v[i]->container || *v[i]->pod;
	}
	grid__show(g, COL_RANK, ranks);
	grid__show(g, COL_CONTAINER, containers);
	room = grid__fit(g, text__columns(stdout), COMMAND_WANTED, COL_NR);
	err = grid__error(g);
	if (!err)
		grid__print_titles(g, stdout, text__colour(stdout), "Command");
	for (size_t i = 0; i < n && !err; i++) {
		snprintf(text, sizeof(text), "%s%s", v[i]->denied ? "(not permitted) " : "",
			 v[i]->command);
		grid__print(g, stdout, i, words__cut(text, room));
	}
	grid__free(g);
	return err;
}

/* Prints the list for people. Returns 0 or -ENOMEM. */
static int print_text(struct ps *s)
{
	size_t n, denied = 0, left_out = ps__left_out(s);
	const struct ps_process *const *v = ps__list(s, &n);
	char count[48];
	int err;

	for (size_t i = 0; i < n; i++)
		denied += v[i]->denied;
	if (!n)
		puts("no process with PyTorch or CUDA");
	err = n ? print_rows(s) : 0;
	if (denied)
		printf("%s process%s not permitted; run it with sudo\n",
		       text__count(count, sizeof(count), denied), denied == 1 ? "" : "es");
	if (left_out)
		printf("%s more process%s left out\n", text__count(count, sizeof(count), left_out),
		       left_out == 1 ? "" : "es");
	return err;
}

/* ---- JSON ---- */

/* Adds a text; "" as null. */
static void put_text(struct json *j, const char *key, const char *text)
{
	json__string(j, key, *text ? text : NULL);
}

/* Adds bytes per second; null: they are not known. */
static void put_rate(struct json *j, const char *key, bool known, double rate)
{
	if (known)
		json__double(j, key, rate, 0);
	else
		json__null(j, key);
}

static void put_process(struct json *j, const struct ps_process *p)
{
	json__open_object(j, NULL);
	json__int(j, "pid", p->pid);
	json__string(j, "command", p->command);
	json__uint(j, "uid", p->uid);
	json__string(j, "user", p->user);
	put_text(j, "container", p->container);
	put_text(j, "pod", p->pod);
	json__uint_or_null(j, "rank", p->rank >= 0, (uint64_t)p->rank);
	json__uint_or_null(j, "used", p->used_known, p->used);
	json__uint_or_null(j, "reserved", p->has_allocator, p->reserved);
	json__uint_or_null(j, "allocated", p->has_allocator, p->allocated);
	put_rate(j, "growth", p->growth_known, p->growth);
	json__uint_or_null(j, "rss", p->rss_known, p->rss);
	put_rate(j, "rss_growth", p->rss_growth_known, p->rss_growth);
	json__bool(j, "permitted", !p->denied);
	put_text(j, "why", p->why);
	json__close_object(j);
}

/* Prints the list as JSON, with --watch on one line. Returns 0 or -ENOMEM. */
static int print_json(struct ps *s, const struct ps_args *args)
{
	struct json *j = json__new(stdout, !args->watch);
	char date[40];
	size_t n;
	const struct ps_process *const *v = ps__list(s, &n);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__string(j, "time", text__date(date, sizeof(date), clock__read(CLOCK_REALTIME)));
	json__open_array(j, "processes");
	for (size_t i = 0; i < n; i++)
		put_process(j, v[i]);
	json__close_array(j);
	json__uint(j, "left_out", ps__left_out(s));
	json__close_object(j);
	json__free(j);
	return 0;
}

/* ---- */

static void sleep_ns(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000) };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* Prints the list. lists: how many were printed before. On a terminal, --watch replaces the one
 * before. Returns 0 or a negative error. */
static int print(struct ps *s, const struct ps_args *args, uint64_t lists)
{
	int err;

	if (args->shown.format) {
		err = print_json(s, args);
	} else {
		if (args->watch && isatty(STDOUT_FILENO))
			fputs(CLEAR_SCREEN, stdout);
		else if (lists)
			putchar('\n');
		err = print_text(s);
	}
	return err ? err : outfile__flush(stdout);
}

/* Prints the list, with --watch again and again. Returns 0 or -errno. */
static int list(struct ps *s, const struct ps_args *args)
{
	uint64_t lists = 0;
	int err;

	ps__find(s);
	ps__look(s); /* growth needs two looks */
	do {
		sleep_ns(args->interval);
		ps__find(s);
		ps__look(s);
		err = print(s, args, lists++);
	} while (!err && args->watch && (!args->count || lists < args->count));
	return err;
}

static const struct argp_child children[] = { SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.doc = "List all processes with PyTorch or CUDA, with their memory, the largest device "
	       "memory first. Growth is that of allocated memory between two looks. Attaches to "
	       "none of them.",
	.children = children,
};

/* Prints the processes by device (--device). Frees args->device.conds. Returns the exit code. */
static int list_by_device(struct ps_args *args)
{
	struct ps_device_args *d = &args->device;
	int status;

	d->json = args->shown.format != 0;
	d->watch = args->watch;
	d->interval = args->interval;
	d->count = args->count;
	status = ps_device__run(d);
	for (size_t i = 0; i < d->n_conds; i++)
		cond__free(d->conds[i]);
	return status;
}

/* Prints the memory of the whole machine (--machine), repeatedly with --watch. Returns the exit
 * code. */
static int print_machine(struct ps_args *args)
{
	struct ps_machine_args *m = &args->machine;

	m->json = args->shown.format != 0;
	m->watch = args->watch;
	m->interval = args->interval;
	m->count = args->count;
	return ps_machine__run(m);
}

static int cmd_ps(int argc, char **argv)
{
	struct ps_args args = { .shown = { .formats = report_args_formats }, .interval = INTERVAL };
	struct ps *s;
	int err;

	usage__parse(&command_ps, argc, argv, 0, &args);
	if (args.by_device)
		return list_by_device(&args);
	if (args.by_machine)
		return print_machine(&args);
	s = ps__new();
	err = s ? list(s, &args) : -ENOMEM;
	ps__free(s);
	if (!err)
		return EXIT_OK;
	log_err("%s", outfile__why(err));
	return EXIT_FAILED;
}

const struct command command_ps = {
	.name = "ps",
	.summary = "list processes with PyTorch, with their memory",
	.group = COMMANDS_LOOK,
	.argp = &argp,
	.examples = "sudo memtrace-bpf ps\n"
		    "sudo memtrace-bpf ps --watch\n"
		    "sudo memtrace-bpf ps --device 0\n"
		    "sudo memtrace-bpf ps --device --orphans\n"
		    "sudo memtrace-bpf ps --device 0 --fail-if 'free<20G'\n"
		    "sudo memtrace-bpf ps --machine\n"
		    "sudo memtrace-bpf ps --format json",
	.status = "0 done, 1 failed, 2 no such GPU, 4 --fail-if, 64 usage",
	.run = cmd_ps,
};
