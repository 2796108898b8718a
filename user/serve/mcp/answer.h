/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Text that answers a call of a tool. */
#include <stdbool.h>
#include <stddef.h>

#include "serve/mcp/tools.h"

struct mcp_answer {
	char *text; /* owned */
	size_t len;
	bool failed;  /* text is the reason */
	bool hung_up; /* the client is gone */
};

/* Runs the command with the folder as its current folder and waits for its end, or ends it when
 * its time is over or `client` (the input) hangs up. Returns 0 or -ENOMEM. */
int mcp_answer__of_command(struct mcp_answer *ret, const struct mcp_opts *o,
			   const struct mcp_tool *t, const struct mcp_argv *a, int client);
/* The recordings below the folder, as JSON. Returns 0 or -ENOMEM. */
int mcp_answer__of_list(struct mcp_answer *ret, const struct mcp_opts *o);
