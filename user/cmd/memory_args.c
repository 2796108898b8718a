/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/memory_args.h"

#include <stdint.h>

#include "base/text.h"
#include "capture/option_groups.h"
#include "record/mtr.h"

enum { OPT_MAX_MEMORY = 0x8200 };

static const struct argp_option options[] = {
	{ "max-memory", OPT_MAX_MEMORY, "SIZE", OPTION_RARE,
	  "Stop if reading needs more memory than SIZE (default: half of the available memory)",
	  OPTIONS_MESSAGES },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	uint64_t bytes;

	if (key != OPT_MAX_MEMORY)
		return ARGP_ERR_UNKNOWN;
	if (text__parse_size(arg, &bytes) || !bytes)
		argp_error(state, "--max-memory: '%s' is not a size; try 8G", arg);
	room__set(bytes);
	return 0;
}

const struct argp memory_argp = { .options = options, .parser = parse };
