/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf report: the lines, modules and phases that held the memory of a recording. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/log.h"
#include "model/analysis.h"
#include "model/inputs.h"
#include "record/machine_log.h"
#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/report_machine.h"
#include "cmd/usage.h"
#include "model/words.h"
#include "report/text.h"
#include "report/files.h"

#define DEFAULT_TOP 20 /* rows of text; JSON and CSV have all rows */

struct options {
	struct report_args shown;
	struct report_files r;
	const char *columns; /* --columns; NULL: not given */
	bool no_overview, by_given, csv;
};

enum {
	OPT_TREE = OPT_COMMANDS_OWN,
	OPT_SCOPES,
	OPT_BARS,
	OPT_NO_BARS,
	OPT_NO_OVERVIEW,
	OPT_TOGETHER,
	OPT_APART,
	OPT_OUTLIERS,
	OPT_SIDE,
	OPT_FAIL,
	OPT_ADVICE,
	OPT_COLUMNS
};

static const struct argp_option options[] = {
	{ "at", OPT_AT, "peak|end|oom|SECONDS|mark:NAME|scope:NAME#N", 0,
	  "Moment: peak (default), end, first out of memory, seconds since the start, a mark, or "
	  "the peak of a function",
	  OPTIONS_SHOW },
	{ "by", OPT_BY, "line|stack|module|layer|phase|role|thread|scope|segment", 0,
	  "Group rows (default line); layer: a module with all inside. Several, such as "
	  "module,role: all but stack, layer, segment",
	  OPTIONS_SHOW },
	OPTION_SCOPE,
	{ "scopes", OPT_SCOPES, NULL, 0, "Print only the table of scopes, without rows",
	  OPTIONS_SHOW },
	{ "tree", OPT_TREE, NULL, 0, "Show modules as a tree", OPTIONS_SHOW },
	{ "device", OPT_DEVICE, "DEVICE", 0, "Device: cuda:0, cpu ... (default: highest peak)",
	  OPTIONS_SHOW },
	{ "top", OPT_TOP, "N", 0, "Print N rows; 0: all (default 20 in text, otherwise all)",
	  OPTIONS_SHOW },
	{ "filter", OPT_FILTER, "EXPR", 0,
	  "Show only matches: words, or fields as in 'module:blocks.3 role:activation block:>1M'",
	  OPTIONS_SHOW },
	{ "hide", OPT_HIDE, "PATTERN", OPTION_RARE,
	  "Charge the caller instead of this file or folder; repeatable", OPTIONS_SHOW },
	OPTION_FRAMES,
	{ "advice", OPT_ADVICE, NULL, 0, "Print what would make the peak smaller", OPTIONS_SHOW },
	{ "fail-if", OPT_FAIL, "CONDITION",
	  0, "Exit with 4 if CONDITION is true, such as 'peak>16G' or 'growth>1G/100steps'; repeatable",
	  OPTIONS_SHOW },
	{ NULL, 0, NULL, 0, "Several recordings", OPTIONS_PARTS },
	{ "together", OPT_TOGETHER, NULL, 0,
	  "One report of all, with each recording's share (default for ranks of one job or a "
	  "service)",
	  OPTIONS_PARTS },
	{ "side-by-side", OPT_SIDE, NULL, 0, "One report with a column for each recording",
	  OPTIONS_PARTS },
	{ "apart", OPT_APART, NULL, OPTION_RARE, "One report after the other", OPTIONS_PARTS },
	{ "outliers", OPT_OUTLIERS, NULL, OPTION_RARE,
	  "With --together --format json: only the rows in which recordings differ, without each "
	  "recording's share",
	  OPTIONS_PARTS },
	{ "columns", OPT_COLUMNS, "NAMES", 0, "Columns: size,blocks,location,...; +NAMES adds some",
	  OPTIONS_OUTPUT },
	{ "bars", OPT_BARS, NULL, OPTION_RARE,
	  "Draw bars (default: on a terminal that is wide enough)", OPTIONS_OUTPUT },
	{ "no-bars", OPT_NO_BARS, NULL, OPTION_RARE, "Draw no bars", OPTIONS_OUTPUT },
	{ "no-overview", OPT_NO_OVERVIEW, NULL, OPTION_RARE,
	  "Leave out the overview above the table", OPTIONS_OUTPUT },
	OPTION_OUTPUT,
	OPTION_COLOR,
	{ "format", OPT_FORMAT, "text|json|csv|html", 0,
	  "Format (default text); html: a page of the ranks of a job", OPTIONS_OUTPUT },
	{ 0 },
};

/* True if the len bytes of text are this word. */
static bool is_word(const char *text, size_t len, const char *word)
{
	return strlen(word) == len && !strncmp(text, word, len);
}

/* Finds the group with this name of len bytes. False: no group has it. */
static bool find_group(const char *arg, size_t len, enum group *ret)
{
	for (int by = 0; by < BY_NR; by++) {
		bool role = by == BY_CATEGORY && is_word(arg, len, "role");

		if (role || is_word(arg, len, group_names[by])) {
			*ret = by;
			return true;
		}
	}
	return false;
}

/* Calls argp_error() for a word of --by that is no group, or is segment. */
static void refuse_group(const char *arg, size_t len, struct argp_state *state)
{
	char word[64];
	const char *words[BY_NR + 2] = { NULL };

	for (int by = 0; by < BY_NR; by++)
		words[by] = group_names[by];
	words[BY_NR] = "segment";
	snprintf(word, sizeof(word), "%.*s", (int)len, arg);
	if (report_args__choose(state, "--by", word, words) == BY_NR)
		argp_error(state, "--by: segment cannot be combined with others");
}

/* Parses "line", "segment", or several groups with commas. Several are bits of r->split. */
static void parse_by(struct report_files *r, const char *arg, struct argp_state *state)
{
	const unsigned only_alone = 1U << BY_STACK | 1U << BY_LAYER;
	unsigned groups = 0, n_groups = 0;

	r->split = 0;
	r->segments = !strcmp(arg, "segment");
	if (r->segments)
		return;
	for (const char *p = arg;; p++) {
		size_t len = strcspn(p, ",");

		if (!find_group(p, len, &r->by)) {
			refuse_group(p, len, state);
			return;
		}
		n_groups += !(groups & 1U << r->by);
		groups |= 1U << r->by;
		p += len;
		if (!*p)
			break;
	}
	if (n_groups > 1 && (groups & only_alone))
		argp_error(state, "--by: stack and layer cannot be combined with others");
	r->split = n_groups > 1 ? groups : 0;
}

/* Adds a condition of --fail-if. Calls argp_error() for one that cannot be parsed. */
static void parse_fail_if(struct report_files *r, const char *arg, struct argp_state *state)
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

/* Calls argp_error() for options that cannot be combined with --scope or --scopes. */
static void check_scopes(const struct options *o, struct argp_state *state)
{
	const struct report_files *r = &o->r;
	enum report_format format = o->shown.format;

	report_args__check_scopes(state, &o->shown, o->shown.at.at_scope);
	if (r->scopes && (o->by_given || r->tree || r->advice || r->segments))
		argp_error(state, "--scopes cannot be combined with --by, --tree or --advice");
	if (r->scopes && format != REPORT_AS_TEXT && format != REPORT_AS_JSON)
		argp_error(state, "--scopes works only with --format text or json");
}

/* Parses --columns after all other options, since they determine which columns there are. */
static void parse_columns(struct options *o, struct argp_state *state)
{
	struct report_files *r = &o->r;
	bool csv = o->shown.format == REPORT_AS_CSV;
	char why[512];

	if (r->tree || r->segments || r->together == TOGETHER_YES)
		argp_error(state,
			   "--columns cannot be combined with --tree, --by segment or --together");
	if (!csv && o->shown.format != REPORT_AS_TEXT)
		argp_error(state,
			   "--columns works only with --format text or csv; json has all figures");
	if (report_columns__parse(o->columns, csv, words__row_properties(r->by, r->split),
				  csv ? &r->fields : &r->columns, why, sizeof(why)))
		argp_error(state, "--columns: %s", why);
}

/* Calls argp_error() for options that cannot be combined. */
static void check_options(struct options *o, struct argp_state *state)
{
	const struct report_files *r = &o->r;
	bool html = o->shown.format == REPORT_AS_HTML;
	bool by_modules = r->by == BY_MODULE && !r->segments && !r->split;
	bool by_others = o->by_given && !by_modules;

	if (r->tree && (by_others || o->shown.format != REPORT_AS_TEXT))
		argp_error(state,
			   "--tree works only with --by module and --format text; see --by layer");
	report_args__check_csv(state, o->csv, o->shown.format == REPORT_AS_CSV);
	check_scopes(o, state);
	if (r->segments && (o->shown.select.filter || o->shown.select.nhide))
		argp_error(
			state,
			"--by segment cannot be combined with --filter or --hide; they need lines");
	if ((r->together == TOGETHER_YES || html) && !report_files__can_be_together(r))
		argp_error(state, "--together cannot be combined with --tree, --advice, --by stack "
				  "or --by segment");
	if (r->advice && o->shown.format == REPORT_AS_CSV)
		argp_error(state, "--advice works only with --format text or json");
	if (o->columns)
		parse_columns(o, state);
	if (html && (r->together == TOGETHER_NO || r->advice))
		argp_error(state, "--format html cannot be combined with --apart or --advice");
	if (r->outliers && (r->together != TOGETHER_YES || o->shown.format != REPORT_AS_JSON))
		argp_error(state, "--outliers works only with --together --format json");
	if (r->side && o->shown.format != REPORT_AS_TEXT)
		argp_error(state, "--side-by-side works only with --format text; for json and csv "
				  "use --together");
}

/* Parses --together, --side-by-side and --apart, of which the last excludes the others. */
static void parse_together(struct report_files *r, int key, struct argp_state *state)
{
	enum report_together together = key == OPT_APART ? TOGETHER_NO : TOGETHER_YES;

	if (r->together != TOGETHER_AUTO && r->together != together)
		argp_error(state, "--apart cannot be combined with --together or --side-by-side");
	r->together = together;
	r->side |= key == OPT_SIDE;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	struct report_files *r = &o->r;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &o->csv;
		break;
	case OPT_BY:
		if (o->by_given)
			argp_error(state, "--by: given twice; give several at once, such as "
					  "--by line,module");
		o->by_given = true;
		parse_by(r, arg, state);
		break;
	case OPT_SCOPES:
		r->scopes = true;
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
	case OPT_COLUMNS:
		o->columns = arg;
		break;
	case OPT_ADVICE:
		r->advice = true;
		break;
	case OPT_SIDE:
	case OPT_TOGETHER:
	case OPT_APART:
		parse_together(r, key, state);
		break;
	case OPT_OUTLIERS:
		r->outliers = true;
		break;
	case OPT_FAIL:
		parse_fail_if(r, arg, state);
		break;
	case ARGP_KEY_ARGS:
		r->paths = state->argv + state->next;
		r->n = (size_t)(state->argc - state->next);
		break;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no recording given: memtrace-bpf report FILE");
		break;
	case ARGP_KEY_END:
		check_options(o, state);
		break;
	default:
		return report_args__parse(key, arg, state, &o->shown);
	}
	return 0;
}

/* Prints a folder of `watch --machine`. Returns the exit code. */
static int report_machine(const struct options *o)
{
	bool json = o->shown.format == REPORT_AS_JSON;

	if (!json && o->shown.format != REPORT_AS_TEXT) {
		log_err("%s: a recording of watch --machine has only the formats text and json",
			o->r.paths[0]);
		return EXIT_USAGE;
	}
	if (o->r.fail) {
		log_err("%s: --fail-if is for recordings of processes", o->r.paths[0]);
		return EXIT_USAGE;
	}
	return report_machine__print(o->r.paths[0], json);
}

/* Turns the options into those of report_files, and prints. Returns the exit code. */
static int report(struct options *o)
{
	struct report_files *r = &o->r;
	struct inputs in;
	int status;

	if (r->n == 1 && machine_log__is(r->paths[0]))
		return report_machine(o);
	status = inputs__expand(r->paths, r->n, INPUTS_REPORT, &in);
	r->paths = in.paths;
	r->hosts = in.hosts;
	r->n = in.n;
	r->missing = in.missing;
	r->n_missing = in.n_missing;
	r->at = report_args__moment(&o->shown, &o->shown.at);
	r->at.at_default = !o->shown.at_given && r->n == 1;
	r->at.at_device = o->shown.device;
	r->device = o->shown.device;
	r->format = o->shown.format;
	if (r->format == REPORT_AS_HTML) {
		r->together = TOGETHER_YES;
		r->outliers = true;
	}
	r->top = r->format == REPORT_AS_TEXT && !o->shown.top_given ? DEFAULT_TOP : o->shown.top;
	r->which_line = o->shown.which_line;
	r->select = &o->shown.select;
	r->colour = o->shown.colour;
	r->overview = !o->no_overview && !r->tree && !r->segments && !r->split &&
		      r->by == BY_LINE && !r->scopes;
	if (r->tree)
		r->by = BY_MODULE;
	if (!status)
		status = report_files__print(r);
	inputs__free(&in);
	return status;
}

static const struct argp_child children[] = {
	CSV_ARGP_CHILD, MEMORY_ARGP_CHILD, SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 }
};
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "FILE...",
	.doc = "Show which line, module and phase held the memory of a recording, at the peak or "
	       "at another moment.",
	.children = children,
};

static int cmd_report(int argc, char **argv)
{
	static const char *const formats[] = { [REPORT_AS_TEXT] = "text",
					       [REPORT_AS_JSON] = "json",
					       [REPORT_AS_CSV] = "csv",
					       [REPORT_AS_HTML] = "html",
					       NULL };
	struct options o = { .shown.formats = formats };
	struct report_output output;
	int status;

	usage__parse(&command_report, argc, argv, 0, &o);
	status = report_output__begin(&output, &o.shown, /*attaches=*/false);
	if (!status) {
		status = report(&o);
		if (o.r.fail)
			status = report_fail__say(o.r.fail, status);
		status = report_output__end(&output, status);
	}
	report_fail__free(o.r.fail);
	report_select__drop(&o.shown.select);
	return status;
}

const struct command command_report = {
	.name = "report",
	.summary = "show which line, module and phase holds the memory",
	.group = COMMANDS_READ,
	.argp = &argp,
	.examples = "memtrace-bpf report run.mtr\n"
		    "memtrace-bpf report --by module --at end run.mtr\n"
		    "memtrace-bpf report --filter 'role:activation block:>1M' run.mtr\n"
		    "memtrace-bpf report --fail-if 'peak>16G' run.mtr",
	.status = "0 done, 1 failed, 2 not a recording, 4 --fail-if, 64 usage",
	.run = cmd_report,
};
