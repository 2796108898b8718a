/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf import: keeps a memory snapshot of PyTorch as a recording. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "cmd/commands.h"
#include "cmd/options.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "model/analysis.h"
#include "record/mtr.h"

#define BATCH 64 /* events that are copied together */

struct import_args {
	const char *file, *output;
	bool force;
};

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "Write to FILE (default: the snapshot's name with .mtr)",
	  OPTIONS_OUTPUT },
	{ "force", 'f', NULL, 0, "Replace FILE if it exists", OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct import_args *a = state->input;

	switch (key) {
	case 'o':
		a->output = arg;
		break;
	case 'f':
		a->force = true;
		break;
	case ARGP_KEY_ARG:
		if (a->file)
			argp_error(state, "too many files: one snapshot gives one recording");
		a->file = arg;
		break;
	case ARGP_KEY_END:
		if (!a->file)
			argp_error(state, "no file given: a memory snapshot of PyTorch");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static const struct argp_child children[] = { MEMORY_ARGP_CHILD, LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE",
	.doc = "Keep a memory snapshot of PyTorch as a recording, which is smaller and is read "
	       "faster.",
	.children = children,
};

/* The snapshot's name without its extensions, and ".mtr". The caller frees it; NULL: no memory. */
static char *default_output(const char *file)
{
	static const char *const ends[] = { ".gz", ".zst", ".pickle", ".pkl", ".json" };
	const char *base = strrchr(file, '/');
	size_t n;
	char *ret;

	base = base ? base + 1 : file;
	n = strlen(base);
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		size_t end = strlen(ends[i]);

		if (n > end && !strncmp(base + n - end, ends[i], end))
			n -= end;
	}
	if (!strcmp(file, "-"))
		return strdup("snapshot.mtr");
	return asprintf(&ret, "%.*s.mtr", (int)n, base) < 0 ? NULL : ret;
}

/* Copies all events. Returns 0 or -errno. *by_reader: true if the reading failed, and not the
 * writing. */
static int copy_events(struct mtr_reader *r, struct mtr_writer *w, bool *by_reader)
{
	struct event e[BATCH];
	int n;

	while ((n = mtr_reader__some(r, e, BATCH)) > 0)
		for (int i = 0; i < n; i++) {
			int err = mtr_writer__event(w, &e[i]);

			if (err)
				return err;
		}
	*by_reader = n < 0;
	return n;
}

/* Writes the recording. Returns an exit code, logged. */
static int write_recording(const struct import_args *a, struct mtr_reader *r, struct outfile *out)
{
	const struct mtr_writer_opts no_bounds = { 0 };
	struct mtr_writer *w = mtr_writer__new(outfile__fd(out), mtr_reader__dict(r),
					       mtr_reader__facts(r), &no_bounds);
	bool by_reader = false;
	char why[256];
	int err = w ? copy_events(r, w, &by_reader) : -errno;
	int last = mtr_writer__close(w);

	if (err && by_reader) {
		log_err("%s: %s", a->file, room__why(why, sizeof(why), err));
		return EXIT_FAILED;
	}
	err = err ? err : last;
	if (!err)
		return EXIT_OK;
	log_err("%s: cannot write: %s", outfile__name(out), outfile__why(err));
	return EXIT_FAILED;
}

/* Says what was written. */
static void say_done(const char *output, const struct mtr_reader *r)
{
	uint64_t events;
	char count[32];

	facts__number(mtr_reader__facts(r), "events", &events);
	log_info("%s: %s; memtrace-bpf report shows it", output,
		 text__counted(count, sizeof(count), events, "event"));
}

/* Writes the recording into a new file. Returns an exit code, logged. */
static int import_to(const struct import_args *a, struct mtr_reader *r, const char *output)
{
	struct outfile *out;
	int err = outfile__create(output, OUTFILE_RENAME, a->force, &out), status;

	if (err) {
		log_err("%s: cannot write: %s", output, outfile__why(err));
		return EXIT_FAILED;
	}
	status = write_recording(a, r, out);
	if (status) {
		outfile__discard(out);
		return status;
	}
	err = outfile__commit(out);
	if (err) {
		log_err("%s: cannot write: %s", output, outfile__why(err));
		return EXIT_FAILED;
	}
	say_done(output, r);
	return EXIT_OK;
}

static int cmd_import(int argc, char **argv)
{
	struct import_args a = { 0 };
	struct mtr_reader *r;
	const char *why = NULL;
	struct failure f;
	char *output;
	int status;

	usage__parse(&command_import, argc, argv, 0, &a);
	r = mtr_reader__open(a.file, &why);
	if (!r) {
		analysis__open_failure(a.file, errno, why, &f);
		log_err("%s", f.text);
		return f.status;
	}
	if (!mtr_reader__is_snapshot(r)) {
		log_err("%s: it is a recording already", a.file);
		mtr_reader__free(r);
		return EXIT_UNUSABLE;
	}
	output = a.output ? strdup(a.output) : default_output(a.file);
	status = output ? import_to(&a, r, output) : EXIT_FAILED;
	if (!output)
		log_err("out of memory");
	free(output);
	mtr_reader__free(r);
	return status;
}

const struct command command_import = {
	.name = "import",
	.summary = "keep a memory snapshot of PyTorch as a recording",
	.group = COMMANDS_READ,
	.argp = &argp,
	.examples = "memtrace-bpf import snapshot.pickle\n"
		    "memtrace-bpf import snapshot.pickle.gz -o run.mtr",
	.status = "0 done, 1 failed, 2 not a snapshot, 64 usage",
	.run = cmd_import,
};
