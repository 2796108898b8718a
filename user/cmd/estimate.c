/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf estimate: the device memory that a script needs, found without a device. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/preload.h"
#include "cmd/commands.h"
#include "cmd/estimate_here.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "estimate/estimate.h"

#define DEFAULT_TOP 10			       /* rows of each table */
#define DEVICES_NAMED 63		       /* devices that a message lists, at most */
#define DEFAULT_TIME (30 * 60 * 1000000000ULL) /* 30 minutes in ns */
#define HOST_SHARE 80			       /* percentage of the available memory */

enum {
	OPT_VRAM = OPT_COMMANDS_OWN,
	OPT_DEVICES,
	OPT_SM,
	OPT_CONTEXT,
	OPT_WORKSPACE,
	OPT_ALLOC,
	OPT_STEPS,
	OPT_TIME,
	OPT_HOST,
	OPT_MIN,
	OPT_WORLD,
	OPT_RANK,
	OPT_LOCAL,
	OPT_NO_SEARCH,
	OPT_USER,
	OPT_TRACER,
	OPT_HERE,
	OPT_COMMAND_ENV
};

struct options {
	struct report_args shown;
	struct estimate_args estimate;
	bool here;
};

static const struct argp_option options[] = {
	{ NULL, 0, NULL, 0, "The device", 1 },
	{ "device", OPT_DEVICE, "KIND", 0,
	  "h100, h200, a100, l40s, 4090, ...: sets memory and compute capability", 1 },
	{ "here", OPT_HERE, NULL, 0, "This host's GPUs, with what is free on them now", 1 },
	{ "vram", OPT_VRAM, "SIZE", 0, "Memory of each device (default 80G, or by --device)", 1 },
	{ "devices", OPT_DEVICES, "N", 0, "Number of devices (default 1)", 1 },
	{ "sm", OPT_SM, "7.0|7.5|8.0|8.6|8.9|9.0|10.0|10.3|12.0", OPTION_RARE,
	  "Compute capability (default: that of --device, or 8.0)", 1 },
	{ "context", OPT_CONTEXT, "SIZE", OPTION_RARE,
	  "Size of the CUDA context (default: that of --device if known, or 512M)", 1 },
	{ "cudnn-workspace", OPT_WORKSPACE, "SIZE", OPTION_RARE,
	  "cuDNN workspace of a convolution, which a dry run cannot measure (default 32M)", 1 },
	{ "alloc-conf", OPT_ALLOC, "SETTINGS", 0,
	  "Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF", 1 },
	{ NULL, 0, NULL, 0, "Ranks", 2 },
	{ "world-size", OPT_WORLD, "N", 0,
	  "Run one rank of a job of N ranks (default: from torchrun's command line)", 2 },
	{ "rank", OPT_RANK, "N", 0,
	  "Rank to run (default 0), or several one after the other: 0,1,63 or 0-3 or all", 2 },
	{ "local-world-size", OPT_LOCAL, "N", OPTION_RARE,
	  "Ranks per machine (default: all, at most 8)", 2 },
	{ "steps", OPT_STEPS, "N", 0,
	  "Stop after N optimizer steps (default: when memory use repeats)", OPTIONS_TIME },
	{ "max-time", OPT_TIME, "TIME", 0, "Stop after TIME (default 30m)", OPTIONS_TIME },
	{ "max-host-memory", OPT_HOST, "SIZE", OPTION_RARE,
	  "Stop if the script needs more host memory (default: 80 % of what is available)",
	  OPTIONS_TIME },
	{ "min-vram", OPT_MIN, NULL, 0, "Always find the smallest --vram that works",
	  OPTIONS_TIME },
	{ "no-search", OPT_NO_SEARCH, NULL, OPTION_RARE,
	  "Do not search for the smallest --vram if the job does not fit", OPTIONS_TIME },
	{ "user", OPT_USER, "USER", OPTION_RARE,
	  "As root: run the script as USER (default: the user behind sudo)", OPTIONS_COMMAND },
	{ "command-env", OPT_COMMAND_ENV, "NAME,...", OPTION_RARE,
	  "Pass only these variables to the script, besides PATH, LANG, TZ and similar ones; "
	  "\"*\": all (default: all; none with --user)",
	  OPTIONS_COMMAND },
	{ "tracer", OPT_TRACER, "auto|inside|bpf", OPTION_RARE,
	  "Recorder: the kernel (bpf) or a library in the script (inside, needs no root); auto "
	  "(default): bpf as root",
	  OPTIONS_COMMAND },
	{ "output", 'o', "FILE", 0, "Keep the recording, for report, leaks, export, ...",
	  OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT },
	{ "top", OPT_TOP, "N", 0, "Print N rows per table; 0: all (default 10)", OPTIONS_OUTPUT },
	{ "format", OPT_FORMAT, "text|json", 0, "Format (default text)", OPTIONS_OUTPUT },
	OPTION_COLOR,
	{ 0 },
};

/* Parses a size from min to max bytes. limits: the end of the message for another one. Calls
 * argp_error() for it. */
static uint64_t parse_size(struct argp_state *state, const char *option, const char *arg,
			   uint64_t min, uint64_t max, const char *limits)
{
	uint64_t bytes = 0;

	if (text__parse_size(arg, &bytes) || bytes < min || bytes > max)
		argp_error(state, "%s: '%s' is not a size%s", option, arg, limits);
	return bytes;
}

/* Parses a number from min to max. Calls argp_error() for anything else. */
static uint64_t parse_limited(struct argp_state *state, const char *option, const char *arg,
			      uint64_t min, uint64_t max)
{
	uint64_t n = capture_args__parse_count(state, option, arg, min);

	if (n > max)
		argp_error(state, "%s: at most %" PRIu64, option, max);
	return n;
}

/* Parses --sm. Calls argp_error() for a compute capability that the dry run does not know. */
static void parse_sm(struct dryrun_args *d, const char *arg, struct argp_state *state)
{
	/* those that the dry run's library knows */
	static const char *const known[] = { "7.0", "7.5",  "8.0",  "8.6",  "8.9",
					     "9.0", "10.0", "10.3", "12.0", NULL };
	const char *name = known[report_args__choose(state, "--sm", arg, known)];

	d->sm_major = atoi(name);
	d->sm_minor = atoi(strchr(name, '.') + 1);
}

/* Parses --device. Calls argp_error() for an unknown one, with those that there are. */
static void parse_device(struct estimate_args *a, const char *arg, struct argp_state *state)
{
	const char *names[DEVICES_NAMED + 1] = { NULL };
	size_t n;
	const struct device_kind *all = device_kinds(&n);

	a->kind = device_kind__find(arg);
	for (size_t i = 0; i < n && i < DEVICES_NAMED; i++)
		names[i] = all[i].option;
	if (!a->kind)
		usage__unknown(state, "--device: unknown device", arg, names);
}

/* Parses a rank. A list is checked later, when the world size is known. */
static void parse_rank(struct estimate_args *a, const char *arg, struct argp_state *state)
{
	a->rank_list = NULL;
	if (!strcmp(arg, "all") || strpbrk(arg, ",-"))
		a->rank_list = arg;
	else
		a->ranks.rank = (unsigned)parse_limited(state, "--rank", arg, 0,
							ESTIMATE_WORLD_MAX - 1);
}

/* Parses options about the device. */
static error_t parse_target(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	struct estimate_args *a = &o->estimate;
	struct dryrun_args *d = &a->run.dryrun;

	switch (key) {
	case OPT_HERE:
		o->here = true;
		break;
	case OPT_VRAM:
		a->vram = parse_size(state, "--vram", arg, DRYRUN_VRAM_MIN, DRYRUN_VRAM_MAX,
				     " between 16M and 4T; try 80G");
		break;
	case OPT_DEVICE:
		parse_device(a, arg, state);
		break;
	case OPT_DEVICES:
		d->devices = (unsigned)parse_limited(state, "--devices", arg, 1,
						     DRYRUN_DEVICES_MAX);
		break;
	case OPT_SM:
		parse_sm(d, arg, state);
		break;
	case OPT_CONTEXT:
		d->context = parse_size(state, "--context", arg, 0, DRYRUN_VRAM_MAX / 2,
					" up to 2T");
		d->context_given = true;
		break;
	case OPT_WORKSPACE:
		d->cudnn_workspace = parse_size(state, "--cudnn-workspace", arg, 0, DRYRUN_VRAM_MAX,
						" up to 4T");
		d->cudnn_workspace_given = true;
		break;
	case OPT_WORLD:
		a->ranks.world_size = (unsigned)parse_limited(state, "--world-size", arg, 1,
							      ESTIMATE_WORLD_MAX);
		break;
	case OPT_RANK:
		parse_rank(a, arg, state);
		break;
	case OPT_LOCAL:
		a->ranks.local_world_size = (unsigned)parse_limited(state, "--local-world-size",
								    arg, 1, DRYRUN_DEVICES_MAX);
		break;
	case OPT_ALLOC:
		d->alloc_conf = arg;
		break;
	default:
		return report_args__parse(key, arg, state, &o->shown);
	}
	return 0;
}

/* Calls argp_error() for options that cannot be combined, or without a command. */
static void check_options(const struct options *o, struct argp_state *state)
{
	const struct estimate_args *a = &o->estimate;

	if (!a->run.command)
		argp_error(state, "no command given: memtrace-bpf estimate [OPTION...] -- COMMAND "
				  "[ARGUMENT...]");
	if (a->output && !strcmp(a->output, "-"))
		argp_error(state,
			   "-o: the answer goes to standard output; give a file for the recording");
	if (a->output && a->rank_list)
		argp_error(state, "-o: a recording has one rank; choose it with --rank N");
	if (o->here && (a->vram || a->kind))
		argp_error(state,
			   "--here takes the memory of this host's GPUs: leave out --vram and "
			   "--device");
	if (a->min_vram && a->no_search)
		argp_error(state, "--min-vram and --no-search cannot be combined");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	static const char *const tracers[] = {
		[TRACER_AUTO] = "auto", [TRACER_INSIDE] = "inside", [TRACER_BPF] = "bpf", NULL
	};
	struct options *o = state->input;
	struct estimate_args *a = &o->estimate;

	switch (key) {
	case OPT_STEPS:
		a->steps = capture_args__parse_count(state, "--steps", arg, /*min=*/1);
		break;
	case OPT_TIME:
		if (text__parse_time(arg, &a->max_time) || !a->max_time)
			argp_error(state, "--max-time: '%s' is not a time; try 90s or 30m", arg);
		break;
	case OPT_HOST:
		a->max_host_memory = parse_size(state, "--max-host-memory", arg, 1 << 20,
						1ULL << 60, " of at least 1M");
		break;
	case OPT_MIN:
		a->min_vram = true;
		break;
	case OPT_NO_SEARCH:
		a->no_search = true;
		break;
	case OPT_TRACER:
		a->tracer = report_args__choose(state, "--tracer", arg, tracers);
		break;
	case OPT_USER:
		a->run.user = arg;
		break;
	case OPT_COMMAND_ENV:
		a->run.command_env = arg;
		break;
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case ARGP_KEY_ARG:
		a->run.command = state->argv + state->next - 1;
		state->next = state->argc;
		break;
	case ARGP_KEY_END:
		check_options(o, state);
		break;
	default:
		return parse_target(key, arg, state);
	}
	return 0;
}

/* Chooses the tracer: the kernel as root, otherwise the script itself. Returns 0, or an exit
 * code after a message. */
static int choose_tracer(struct estimate_args *a)
{
	char why[256];

	if (a->tracer == TRACER_BPF || (a->tracer == TRACER_AUTO && !geteuid()))
		return EXIT_OK;
	a->run.inside = !inside__can(why, sizeof(why));
	if (a->run.inside)
		return EXIT_OK;
	log_err("the script cannot be recorded without root: %s%s", why,
		a->tracer == TRACER_AUTO ? "; run it with sudo" : "");
	return EXIT_NOT_PERMITTED;
}

/* Sets what the options leave open. Returns 0, or an exit code after a message. */
static int set_defaults(struct estimate_args *a)
{
	struct dryrun_args *d = &a->run.dryrun;
	uint64_t available;
	char have[24], want[24];

	if (memory__available(&available)) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	if (d->context_given)
		a->context = (struct device_figure){ .bytes = d->context,
						     .source = FIGURE_ASSUMED,
						     .from = "--context" };
	else if (!a->kind || !device_kind__context(a->kind, 0, &a->context))
		a->context = (struct device_figure){ .bytes = DRYRUN_CONTEXT_DEFAULT,
						     .source = FIGURE_ASSUMED,
						     .from = "set by --context" };
	if (a->kind) {
		if (!d->name)
			d->name = a->kind->name;
		d->processors = (unsigned)a->kind->processors;
		if (!d->sm_major) {
			d->sm_major = a->kind->sm_major;
			d->sm_minor = a->kind->sm_minor;
		}
	}
	if (!a->vram)
		a->vram = a->kind ? a->kind->total_bytes : DRYRUN_VRAM_DEFAULT;
	if (!a->max_time)
		a->max_time = DEFAULT_TIME;
	if (!a->max_host_memory)
		a->max_host_memory = available ? available / 100 * HOST_SHARE : UINT64_MAX;
	if (granule__down(a->vram) > a->context.bytes)
		return choose_tracer(a);
	log_err("--vram: %s for the CUDA context do not fit into %s; set --context or a larger "
		"--vram",
		text__bytes(want, sizeof(want), a->context.bytes),
		text__bytes(have, sizeof(have), a->vram));
	return EXIT_USAGE;
}

/* Copies the recording that the figures are from to the file of -o, which it closes. Returns the
 * exit code. */
static int keep_recording(const struct estimate *e, struct outfile *file)
{
	char buf[65536];
	FILE *in = e->full ? fopen(e->full->path, "re") : NULL;
	FILE *out = outfile__stream(file);
	size_t n;
	int err = 0;

	if (!in) {
		outfile__discard(file);
		return EXIT_OK;
	}
	while (out && (n = fread(buf, 1, sizeof(buf), in)) > 0)
		if (fwrite(buf, 1, n, out) != n)
			break;
	if (!out || ferror(in))
		err = -EIO;
	fclose(in);
	if (err)
		outfile__discard(file);
	else
		err = outfile__commit(file);
	if (!err)
		return EXIT_OK;
	log_err("%s: cannot write: %s", e->args->output, outfile__why(err));
	return EXIT_FAILED;
}

/* Prints the answer, or logs why there is none. Returns the exit code. */
static int print_result(const struct estimate *e)
{
	int err;

	if (!e->full) {
		estimate__complain(e);
		return EXIT_UNUSABLE;
	}
	err = e->args->format == ESTIMATE_JSON ? estimate_json(stdout, e)
					       : estimate_text(stdout, e);
	if (err) {
		log_err("%s", strerror(-err));
		return EXIT_FAILED;
	}
	estimate__complain(e);
	return estimate__status(e);
}

static const struct argp_child children[] = { SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[--] COMMAND [ARGUMENT...]",
	.doc = "Run a training script without a GPU until its memory use repeats, and print how "
	       "much memory it needs, for what, and whether it fits.",
	.children = children,
};

/* Looks at this host's GPUs for the devices of the job. Returns 0, or an exit code after a
 * message. */
static int look_here(struct estimate_here_gpus *h, struct estimate_args *a)
{
	struct estimate_ranks_args ra = a->ranks;
	unsigned n = a->run.dryrun.devices, world, local;

	ra.command = a->run.command;
	if (estimate_ranks__wanted(&ra)) {
		if (estimate_ranks__size(&ra, &world, &local))
			return EXIT_USAGE;
		n = local > n ? local : n;
	}
	return estimate_here__read(h, a, n);
}

/* Estimates one rank, or the script. Returns the exit code. file: for the recording, taken over;
 * NULL: none. */
static int estimate_one(struct estimate_args *a, struct outfile *file)
{
	struct estimate e = { .args = a };
	int status = estimate__run(&e);

	if (!status)
		status = print_result(&e);
	if (file && keep_recording(&e, file))
		status = EXIT_FAILED;
	estimate__free(&e);
	return status;
}

/* Creates the file of -o before the run, which may take long, so that an error there comes
 * first. */
static int estimate_all(struct estimate_args *a)
{
	struct outfile *file = NULL;
	int err;

	if (a->rank_list)
		return estimate_many(stdout, a);
	err = a->output ? outfile__create(a->output, OUTFILE_RENAME, a->force, &file) : 0;
	if (!err)
		return estimate_one(a, file);
	log_err("%s: %s", a->output, outfile__why(err));
	return EXIT_FAILED;
}

static int cmd_estimate(int argc, char **argv)
{
	struct options o = { .shown = { .formats = report_args_formats, .top = DEFAULT_TOP } };
	struct estimate_here_gpus here = { .look = NULL };
	int status = EXIT_OK;

	usage__parse(&command_estimate, argc, argv, ARGP_IN_ORDER, &o);
	o.estimate.format = o.shown.format;
	o.estimate.top = o.shown.top;
	o.estimate.colour = o.shown.colour;
	if (o.here)
		status = look_here(&here, &o.estimate);
	if (!status)
		status = set_defaults(&o.estimate);
	if (!status)
		status = estimate_all(&o.estimate);
	estimate_here__free(&here);
	return status;
}

const struct command command_estimate = {
	.name = "estimate",
	.summary = "find out whether a training script fits, without a GPU",
	.group = COMMANDS_MORE,
	.argp = &argp,
	.examples = "memtrace-bpf estimate --device a100 -- python train.py\n"
		    "memtrace-bpf estimate --here -- python train.py\n"
		    "memtrace-bpf estimate --rank all -- torchrun --nproc-per-node 8 train.py",
	.status = "0 it fits, 4 it does not, 2 it is not known",
	.run = cmd_estimate,
};
