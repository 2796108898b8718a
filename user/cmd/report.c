/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf report: the lines, modules and phases that held the memory of a recording. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/analysis.h"
#include "archive/inputs.h"
#include "cmd/commands.h"
#include "cmd/csv_args.h"
#include "cmd/log_args.h"
#include "cmd/memory_args.h"
#include "cmd/report_args.h"
#include "report/fail.h"
#include "report/files.h"

#define DEFAULT_TOP 20 /* rows of text; JSON and CSV have all rows */

struct options {
	struct report_args shown;
	struct report_files r;
	bool no_overview;
};

enum {
	OPT_TREE = OPT_COMMANDS_OWN,
	OPT_BARS,
	OPT_NO_BARS,
	OPT_NO_OVERVIEW,
	OPT_TOGETHER,
	OPT_APART,
	OPT_SIDE,
	OPT_FAIL,
	OPT_ADVICE
};

static const struct argp_option options[] = {
	{ "at", OPT_AT, "MOMENT", 0,
	  "peak (default), end, oom (the first out of memory) or seconds since the start", 0 },
	{ "by", OPT_BY, "WHAT", 0,
	  "line (default), stack, module, layer (module with all inside), phase, category, thread "
	  "or segment; or some of "
	  "line, module, phase, category, thread: --by category,module",
	  0 },
	{ "tree", OPT_TREE, NULL, 0,
	  "Modules under those that they are in, with what each holds itself and with all inside",
	  0 },
	{ "device", OPT_DEVICE, "NAME", 0,
	  "cuda:0, cpu ... (default: the one with the largest peak, CUDA first)", 0 },
	{ "top", OPT_TOP, "N", 0,
	  "Rows, the rest in one; 0: all (default 20 in text, all in json and csv)", 0 },
	OPTION_FRAMES,
	{ "filter", OPT_FILTER, "EXPR", 0,
	  "Show what matches: words, or fields as in 'category:activation module:blocks.3 "
	  "line:model.py phase:backward size:>1M'; "
	  "the rest is one row. docs/reference/report.md has all of it",
	  0 },
	{ "hide", OPT_HIDE, "PATTERN", 0,
	  "Charge nothing to this file, or to files in this folder: the next frame out is charged; "
	  "may be given again",
	  0 },
	{ "together", OPT_TOGETHER, NULL, 0,
	  "Several FILEs as one report, with what each has of a row and which ones differ (default "
	  "in text for ranks of one job)",
	  0 },
	{ "apart", OPT_APART, NULL, 0, "Several FILEs one after the other", 0 },
	{ "side-by-side", OPT_SIDE, NULL, 0,
	  "Together, in text, with a column for each FILE, as many as fit", 0 },
	{ "fail-if", OPT_FAIL, "CONDITION", 0,
	  "Exit with 4 and say which line is to blame if this holds: 'peak>16G', 'reserved>=80%', "
	  "'growth>1G/100steps', 'ooms>0', "
	  "'fragmentation>20% and unused>2G' ...; may be given again. docs/guide/watch.md has all "
	  "of it",
	  0 },
	{ "advice", OPT_ADVICE, NULL, 0,
	  "What would make the peak smaller, and by how much: see docs/internals/ESTIMATE.md", 0 },
	{ "bars", OPT_BARS, NULL, 0,
	  "Bars in table and tree (default: on a terminal with room for them)", 0 },
	{ "no-bars", OPT_NO_BARS, NULL, 0, "No bars in table and tree", 0 },
	{ "no-overview", OPT_NO_OVERVIEW, NULL, 0,
	  "Not the lists of categories and modules in front of the table of lines", 0 },
	OPTION_COLOR(0),
	{ "format", OPT_FORMAT, "FORMAT", 0, "text (default), json or csv", 0 },
	{ 0 },
};

static bool find_group(const char *arg, size_t len, enum group *ret)
{
	for (int by = 0; by < BY_NR; by++)
		if (strlen(group_names[by]) == len && !strncmp(arg, group_names[by], len)) {
			*ret = by;
			return true;
		}
	return false;
}

static void parse_by(struct report_files *r, const char *arg, struct argp_state *state)
{
	const unsigned single = 1U << BY_STACK | 1U << BY_LAYER;
	unsigned split = 0, n = 0;

	r->split = 0;
	r->segments = !strcmp(arg, "segment");
	if (r->segments)
		return;
	for (const char *p = arg;; p++) {
		size_t len = strcspn(p, ",");

		if (!find_group(p, len, &r->by)) {
			argp_error(state,
				   "--by: '%.*s' is none of line, stack, module, layer, phase, "
				   "category, thread, segment",
				   (int)len, p);
			return;
		}
		n += !(split & 1U << r->by);
		split |= 1U << r->by;
		p += len;
		if (!*p)
			break;
	}
	if (n > 1 && (split & single))
		argp_error(state, "--by: stack and layer go with nothing else");
	r->split = n > 1 ? split : 0;
}

static void parse_fail(struct report_files *r, const char *arg, struct argp_state *state)
{
	char *why = NULL;
	int err;

	if (!r->fail)
		r->fail = report_fail__new();
	err = r->fail ? report_fail__add(r->fail, arg, &why) : -ENOMEM;
	if (err == -EINVAL)
		argp_error(state, "--fail-if: %s", why);
	else if (err)
		argp_failure(state, EXIT_FAILED, 0, "out of memory");
	free(why);
}

static void check_options(const struct options *o, struct argp_state *state)
{
	const struct report_files *r = &o->r;

	if (r->tree && (r->segments || r->split || (r->by != BY_LINE && r->by != BY_MODULE) ||
			o->shown.format != REPORT_AS_TEXT))
		argp_error(state,
			   "--tree is a text by module, no other --by or --format; see --by layer");
	if (r->segments && (o->shown.select.filter || o->shown.select.nhide))
		argp_error(state,
			   "--by segment: --filter and --hide are of lines, not of segments");
	if (r->together == TOGETHER_YES && !report_files__can_be_together(r))
		argp_error(state,
			   "--together: not with --tree, --advice, --by stack and --by segment");
	if (r->advice && o->shown.format == REPORT_AS_CSV)
		argp_error(state, "--advice is text or json");
	if (r->side && o->shown.format != REPORT_AS_TEXT)
		argp_error(state, "--side-by-side is of text; --together has what each holds in "
				  "json and csv");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	struct report_files *r = &o->r;

	switch (key) {
	case OPT_BY:
		parse_by(r, arg, state);
		break;
	case OPT_TREE:
		r->tree = true;
		break;
	case OPT_BARS:
	case OPT_NO_BARS:
		r->bars = key == OPT_BARS ? REPORT_ALWAYS : REPORT_NEVER;
		break;
	case OPT_NO_OVERVIEW:
		o->no_overview = true;
		break;
	case OPT_ADVICE:
		r->advice = true;
		break;
	case OPT_SIDE:
		r->side = true;
		/* fall through */
	case OPT_TOGETHER:
		r->together = TOGETHER_YES;
		break;
	case OPT_APART:
		r->together = TOGETHER_NO;
		r->side = false;
		break;
	case OPT_FAIL:
		parse_fail(r, arg, state);
		break;
	case ARGP_KEY_ARGS:
		r->paths = state->argv + state->next;
		r->n = (size_t)(state->argc - state->next);
		break;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which recording? memtrace-bpf report FILE");
		break;
	case ARGP_KEY_END:
		check_options(o, state);
		break;
	default:
		return report_args__parse(key, arg, state, &o->shown);
	}
	return 0;
}

static int report(struct options *o)
{
	struct report_files *r = &o->r;
	struct inputs in;
	int status = inputs__expand(r->paths, r->n, INPUTS_REPORT, &in);

	r->paths = in.paths;
	r->n = in.n;
	r->at = o->shown.at;
	r->device = o->shown.device;
	r->format = o->shown.format;
	r->top = r->format == REPORT_AS_TEXT && !o->shown.top_given ? DEFAULT_TOP : o->shown.top;
	r->innermost = o->shown.innermost;
	r->select = &o->shown.select;
	r->colour = o->shown.colour;
	r->overview = !o->no_overview && !r->tree && !r->segments && !r->split && r->by == BY_LINE;
	if (r->tree)
		r->by = BY_MODULE;
	if (!status)
		status = report_files__print(r);
	inputs__free(&in);
	return status;
}

int cmd_report(int argc, char **argv)
{
	static const char *const formats[] = {
		[REPORT_AS_TEXT] = "text", [REPORT_AS_JSON] = "json", [REPORT_AS_CSV] = "csv", NULL
	};
	static const struct argp_child children[] = {
		CSV_ARGP_CHILD, MEMORY_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "FILE ...",
		.doc = "Which line, module and phase held how many bytes, and what for, at the "
		       "peak or another moment, from recordings.",
		.children = children,
	};
	struct options o = { .shown.formats = formats };
	int status;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	status = report(&o);
	if (o.r.fail)
		status = report_fail__say(o.r.fail, status);
	report_fail__free(o.r.fail);
	report_select__drop(&o.shown.select);
	return analysis__check_output(stdout, "standard output") ? EXIT_FAILED : status;
}
