/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf replay: repeats a recording's allocations in PyTorch's real allocator with other
 * settings. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/preload.h"
#include "capture/session.h"
#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "estimate/replay.h"
#include "model/analysis.h"
#include "model/inputs.h"

#define DEVICE_LAST 254 /* largest index of a device in a recording; 255: no device */

struct replay_args {
	struct replay_opts opts;
	bool json, search, smallest, force, unlimited;
	const char *curve;
};

enum {
	OPT_ALLOC_CONF = OPT_COMMANDS_OWN,
	OPT_VRAM,
	OPT_PYTHON,
	OPT_SEARCH,
	OPT_SMALLEST,
	OPT_CURVE
};

static const struct argp_option options[] = {
	{ "alloc-conf", OPT_ALLOC_CONF, "SETTINGS", 0,
	  "Settings as in PYTORCH_CUDA_ALLOC_CONF; \"\": PyTorch's defaults (default: those of the "
	  "recording)",
	  OPTIONS_RECORD },
	{ "vram", OPT_VRAM, "SIZE|none", 0,
	  "Memory of the device (default: that of the recording if memory ran out in it, otherwise "
	  "none: unlimited)",
	  OPTIONS_RECORD },
	{ "search", OPT_SEARCH, NULL, 0, "Try common settings and recommend the best",
	  OPTIONS_RECORD },
	{ "smallest", OPT_SMALLEST, NULL, 0, "Find the smallest --vram that works",
	  OPTIONS_RECORD },
	{ "device", OPT_DEVICE, "DEVICE", 0,
	  "Device: cuda:0, ... (default: the one with the most allocations)", OPTIONS_RECORD },
	{ "python", OPT_PYTHON, "FILE", 0,
	  "Use the PyTorch of this interpreter (default: the recorded one, if only root can change "
	  "it)",
	  OPTIONS_RECORD },
	{ NULL, 0, NULL, 0, "What to replay", OPTIONS_RECORD },
	{ "curve", OPT_CURVE, "FILE", 0,
	  "Write allocated and reserved memory over time to FILE as CSV", OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace the file of --curve if it exists", OPTIONS_OUTPUT },
	{ "format", OPT_FORMAT, "text|json", 0, "Format (default text)", OPTIONS_OUTPUT },
	{ 0 },
};

/* Parses "cuda:0". Calls argp_error() for anything else. */
static int parse_device(const char *arg, struct argp_state *state)
{
	const char *number = !text__starts(arg, "cuda:") ? "" : arg + 5;
	char *end;
	unsigned long n = strtoul(number, &end, 10);

	if (end == number || *end || n > DEVICE_LAST || number[0] == '-')
		argp_error(state, "--device: '%s' is not a CUDA device; try cuda:0", arg);
	return (int)n;
}

/* Calls argp_error() for options that cannot be combined. */
static void check_options(struct argp_state *state, const struct replay_args *a)
{
	if (a->search && (a->opts.alloc_conf || a->curve))
		argp_error(state, "--search cannot be combined with --alloc-conf or --curve; it "
				  "tries settings itself");
	if (a->smallest && (a->search || a->opts.vram || a->curve))
		argp_error(state, "--smallest cannot be combined with --vram, --search or --curve");
	if (a->curve && !strcmp(a->curve, "-"))
		argp_error(state, "--curve needs a file; standard output has the result");
	if (a->force && !a->curve)
		argp_error(state, "--force is for the file of --curve");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct replay_args *a = state->input;

	switch (key) {
	case OPT_ALLOC_CONF:
		a->opts.alloc_conf = arg;
		break;
	case OPT_VRAM:
		a->unlimited = !strcmp(arg, "none");
		a->opts.vram = 0;
		if (a->unlimited)
			break;
		if (text__parse_size(arg, &a->opts.vram) || a->opts.vram < DRYRUN_VRAM_MIN ||
		    a->opts.vram > DRYRUN_VRAM_MAX)
			argp_error(
				state,
				"--vram: '%s' is not a size between 16M and 4T; try 80G, or none",
				arg);
		break;
	case OPT_SEARCH:
		a->search = true;
		break;
	case OPT_SMALLEST:
		a->smallest = true;
		break;
	case OPT_PYTHON:
		a->opts.python = arg;
		break;
	case OPT_DEVICE:
		a->opts.device = parse_device(arg, state);
		break;
	case OPT_CURVE:
		a->curve = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case OPT_FORMAT:
		a->json = report_args__choose(state, "--format", arg, report_args_formats);
		break;
	case ARGP_KEY_ARG:
		if (state->arg_num)
			argp_error(state, "unexpected argument '%s'; replay takes one recording",
				   arg);
		a->opts.path = arg;
		break;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no recording given: memtrace-bpf replay FILE");
		break;
	case ARGP_KEY_END:
		check_options(state, a);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* For replay_opts.curve: writes a point as a line of CSV. time: ns since the start. Returns 0 or
 * -EIO. */
static int write_point(void *ctx, uint64_t event, uint64_t time, uint64_t allocated,
		       uint64_t reserved)
{
	int n = fprintf(ctx, "%" PRIu64 ",%.9f,%" PRIu64 ",%" PRIu64 "\n", event,
			(double)time / 1e9, allocated, reserved);

	return n < 0 ? -EIO : 0;
}

/* Replays with one set of settings. If these are not the recording's own, first replays with its
 * own, for comparison: v[0], and the others in v[1]. 0, or negative with *f. */
static int try_one(struct replay *r, const struct replay_args *a, struct replay_tried *v,
		   struct replay_found *found, struct failure *f)
{
	const char *recorded = found->about->alloc_conf ?: "";
	const char *given = a->opts.alloc_conf;
	bool other = given && strcmp(given, recorded);
	struct replay_tried *t = &v[other];
	int err = 0;

	found->n = 1 + other;
	t->alloc_conf = other ? given : recorded;
	t->own = !other;
	t->costs = "";
	if (other) {
		struct replay_opts own_opts = { .vram = a->opts.vram,
						.afresh = found->about->before != 0 };

		v[0] = (struct replay_tried){ .alloc_conf = recorded, .own = true, .costs = "" };
		err = replay__try(r, &own_opts, &v[0].result, f);
	}
	if (err)
		return err;
	return a->smallest ? replay__smallest(r, &a->opts, &t->smallest, &t->result, f)
			   : replay__try(r, &a->opts, &t->result, f);
}

/* The recorded memory of the device in bytes; 0: not known, or none that a dry run can have. */
static uint64_t recorded_vram(const struct replay_about *about)
{
	bool possible = about->vram >= DRYRUN_VRAM_MIN && about->vram <= DRYRUN_VRAM_MAX;

	return possible ? about->vram : 0;
}

/* Replays as the options ask, and prints the result. curve: file of --curve; NULL: none. Returns
 * the exit code. */
static int run(struct replay_args *a, FILE *curve)
{
	struct failure f = { 0 };
	struct replay_tried pair[2] = { 0 }, *all = NULL;
	struct replay_found found = { .vram = a->opts.vram, .v = pair };
	struct replay *r = replay__open(&a->opts, &f);
	int err = -1;
	bool chooses; /* no option says how much memory the device has */

	if (!r)
		goto out;
	found.about = replay__about(r);
	/* Where the recorded job ran out of memory, the replay has no more than that. */
	chooses = !a->unlimited && !a->smallest && !a->opts.vram;
	if (found.about->ooms && chooses)
		a->opts.vram = recorded_vram(found.about);
	found.recorded_vram = a->opts.vram && a->opts.vram != found.vram;
	found.vram = a->opts.vram;
	if (curve) {
		fprintf(curve, "event,seconds,allocated,reserved\n");
		a->opts.curve = write_point;
		a->opts.ctx = curve;
	}
	err = a->search ? replay__search(r, &a->opts, &all, &found, &f)
			: try_one(r, a, pair, &found, &f);
	if (err)
		goto out;
	if (!a->json)
		replay_print__text(stdout, &found);
	else if (replay_print__json(stdout, &found))
		err = failure__set(&f, EXIT_FAILED, -ENOMEM, "out of memory");
out:
	if (err)
		log_err("%s", f.text);
	free(all);
	replay__close(r);
	if (err)
		return f.status ? f.status : EXIT_FAILED;
	return analysis__check_output(stdout, "standard output");
}

/* Runs with --curve. Its file gets its name when it is complete. Returns the exit code. */
static int run_with_curve(struct replay_args *a)
{
	struct outfile *file;
	char name[512];
	int err = outfile__create(a->curve, OUTFILE_RENAME, a->force, &file), status;

	text__clean(name, sizeof(name), a->curve, strlen(a->curve));
	if (err) {
		log_err("%s: cannot create: %s", name, outfile__why(err));
		return EXIT_FAILED;
	}
	outfile__discard_on_signal(file);
	status = outfile__stream(file) ? run(a, outfile__stream(file)) : EXIT_FAILED;
	if (status) {
		outfile__discard(file);
		return status;
	}
	err = outfile__commit(file);
	if (err)
		log_err("%s: cannot write: %s", name, outfile__why(err));
	return err ? EXIT_FAILED : EXIT_OK;
}

/* Sets buf to n words, quoted for a shell. Returns buf, or NULL if they cannot be shown. */
static const char *quoted(int n, char **words, char *buf, size_t size)
{
	size_t used = 0;

	for (int i = 0; i < n; i++) {
		if (used && used + 1 < size)
			buf[used++] = ' ';
		if (!text__shell(buf + used, size - used, words[i]))
			return NULL;
		used += strlen(buf + used);
	}
	return buf;
}

static const struct argp_child children[] = {
	MEMORY_ARGP_CHILD, SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Repeat the allocations of a recording in PyTorch's own CUDA allocator, without a "
	       "GPU, to see what other settings or less memory would do.",
	.children = children,
};

static int cmd_replay(int argc, char **argv)
{
	struct replay_args args = { .opts.device = -1 };
	char again[1024];
	struct inputs in;
	int status;

	usage__parse(&command_replay, argc, argv, 0, &args);
	args.opts.again = quoted(argc - 1, argv + 1, again, sizeof(again));
	status = inputs__expand((char *const *)&args.opts.path, 1, INPUTS_ONE, &in);
	if (status)
		return status;
	args.opts.path = in.paths[0];
	status = args.curve ? run_with_curve(&args) : run(&args, /*curve=*/NULL);
	inputs__free(&in);
	return status;
}

const struct command command_replay = {
	.name = "replay",
	.summary = "repeat a recording with other allocator settings or less memory",
	.group = COMMANDS_MORE,
	.argp = &argp,
	.examples = "memtrace-bpf replay --search run.mtr\n"
		    "memtrace-bpf replay --alloc-conf expandable_segments:True run.mtr\n"
		    "memtrace-bpf replay --smallest run.mtr",
	.status = STATUS_READ,
	.run = cmd_replay,
};
