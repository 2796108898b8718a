/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/csv_args.h"

#include "capture/option_groups.h"
#include "cmd/report_args.h"
#include "model/csv.h"

enum { OPT_CSV = 0x8300 };

static const struct argp_option options[] = {
	{ "csv", OPT_CSV, "safe|raw", OPTION_RARE,
	  "Put ' before names that are formulas for a spreadsheet (safe, default) or not (raw)",
	  OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	static const char *const words[] = { "safe", "raw", NULL };

	if (key != OPT_CSV)
		return ARGP_ERR_UNKNOWN;
	*(bool *)state->input = true;
	csv__set_raw(report_args__choose(state, "--csv", arg, words));
	return 0;
}

void csv_args__check(struct argp_state *state, bool given, bool is_csv)
{
	if (given && !is_csv)
		argp_error(state, "--csv is for the format csv");
}

const struct argp csv_argp = { .options = options, .parser = parse };
