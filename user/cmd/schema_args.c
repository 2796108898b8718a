/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/schema_args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assets/schemas.h"
#include "capture/option_groups.h"
#include "cmd/usage.h"
#include "model/analysis.h"

enum { OPT_SCHEMA = 0x8500 };

static const struct argp_option options[] = {
	{ "json-schema", OPT_SCHEMA, NULL, OPTION_RARE,
	  "Print the JSON Schema of this command's JSON", OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	const char *command = usage__command()->name;

	(void)arg;
	if (key != OPT_SCHEMA)
		return ARGP_ERR_UNKNOWN;
	for (size_t i = 0; i < sizeof(schemas) / sizeof(*schemas); i++) {
		if (strcmp(schemas[i].command, command) != 0)
			continue;
		if (packed__write(&schemas[i].schema, stdout))
			argp_failure(state, 1, ENOMEM, "--json-schema");
		exit(analysis__check_output(stdout, "standard output"));
	}
	argp_error(state, "--json-schema: no schema of %s", command);
	return EINVAL;
}

const struct argp schema_argp = { .options = options, .parser = parse };
