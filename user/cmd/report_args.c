/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/report_args.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/exit.h"
#include "capture/capture_args.h"
#include "cmd/usage.h"
#include "model/analysis.h"

const char *const report_args_formats[] = { "text", "json", NULL };

#define WORDS_MOST 16 /* words of an option in a message */

int report_args__choose(struct argp_state *state, const char *option, const char *arg,
			const char *const *words)
{
	const char *shown[WORDS_MOST + 1] = { NULL }; /* role: what people read for category */
	char what[64];

	for (int i = 0; words[i]; i++) {
		bool role = !strcmp(words[i], "category");

		if (!strcmp(arg, words[i]) || (role && !strcmp(arg, "role")))
			return i;
		if (i < WORDS_MOST)
			shown[i] = role ? "role" : words[i];
	}
	snprintf(what, sizeof(what), "%s: unknown value", option);
	usage__unknown(state, what, arg, shown);
	return 0;
}

static void parse_hide(struct report_args *a, const char *arg, struct argp_state *state)
{
	int err = report_select__add_hide(&a->select, arg);

	if (err == -EINVAL)
		argp_error(state, "--hide needs a file or a folder");
	else if (err)
		argp_failure(state, EXIT_FAILED, 0, "out of memory");
}

error_t report_args__parse(int key, char *arg, struct argp_state *state, struct report_args *a)
{
	static const char *const frames[] = { "user", "all", "native", NULL };
	static const char *const choices[] = {
		[REPORT_AUTO] = "auto", [REPORT_ALWAYS] = "always", [REPORT_NEVER] = "never", NULL
	};
	char why[256];

	switch (key) {
	case OPT_AT:
		a->at_given = true;
		if (analysis__parse_at(arg, &a->at))
			argp_error(
				state,
				"--at: unknown moment '%s'; use peak, end, oom, seconds since the "
				"start or mark:NAME",
				arg);
		break;
	case OPT_BY:
		if (a->by_given)
			argp_error(state, "--by: given twice; give it once");
		a->by_given = true;
		a->by = report_args__choose(state, "--by", arg, a->groups);
		break;
	case OPT_DEVICE:
		a->device = arg;
		break;
	case OPT_TOP:
		a->top = capture_args__parse_count(state, "--top", arg, 0);
		a->top_given = true;
		break;
	case OPT_FRAMES:
		a->which_line = report_args__choose(state, "--frames", arg, frames);
		break;
	case OPT_FILTER:
		if (report_select__set_filter(&a->select, arg, why, sizeof(why)))
			argp_error(state, "--filter: %s", why);
		break;
	case OPT_HIDE:
		parse_hide(a, arg, state);
		break;
	case OPT_FORMAT:
		a->format = report_args__choose(state, "--format", arg, a->formats);
		break;
	case OPT_COLOR:
		a->colour = report_args__choose(state, "--color", arg, choices);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}
