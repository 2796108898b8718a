/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/csv_args.h"

#include <string.h>

#include "lib/csv.h"

enum { OPT_CSV = 0x8300 };

static const struct argp_option options[] = {
	{ "csv", OPT_CSV, "HOW", 0,
	  "Names that a spreadsheet would take for formulas: safe (default), with a ' in front, or "
	  "raw",
	  0 },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	if (key != OPT_CSV)
		return ARGP_ERR_UNKNOWN;
	if (strcmp(arg, "raw") && strcmp(arg, "safe"))
		argp_error(state, "--csv: '%s' is neither safe nor raw", arg);
	csv__set_raw(!strcmp(arg, "raw"));
	return 0;
}

const struct argp csv_argp = { .options = options, .parser = parse };
