/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A server of the Model Context Protocol over standard input and output: one JSON-RPC 2.0 message a
 * line. Its tools are commands of this program, which run as child processes in one folder and with
 * limits. The client is not trusted: it names recordings only below the folder, and no options.
 */
#include <stdbool.h>
#include <stddef.h>

struct mcp_opts {
	int folder;	   /* descriptor of the folder with the recordings; borrowed */
	bool allow_attach; /* offer to record a running process into the folder */
	bool allow_run;	   /* offer to estimate scripts of the folder, which runs them */
	size_t max_answer; /* bytes of text of an answer at most */
};

/* Serves until the end of the input. Returns 0, or -errno if input or output fails. */
int mcp__serve(const struct mcp_opts *o, int in, int out);
