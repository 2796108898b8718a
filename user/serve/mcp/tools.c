/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/mcp/tools.h"

#include <string.h>

#include "base/grammar.h"

static const char *const groups[] = { WORD_ARRAY(GROUP_WORDS) NULL };
static const char *const leak_groups[] = { WORD_ARRAY(LEAK_GROUP_WORDS) NULL };
static const char *const formats[] = { "text", "json", NULL };

#define RECORDING(key, text)                                                                       \
	{                                                                                          \
		.name = key, .help = text, .type = MCP_RECORDING, .required = true                 \
	}
#define FORMAT                                                                                     \
	{                                                                                          \
		.name = "format",                                                                  \
		.help = "text (default) or json; memtrace-bpf COMMAND --json-schema "              \
			"prints the schema",                                                       \
		.option = "--format", .type = MCP_WORD, .words = formats                           \
	}
#define DEVICE                                                                                     \
	{                                                                                          \
		.name = "device", .help = "cuda:0, cpu, host, ...", .option = "--device",          \
		.type = MCP_TEXT                                                                   \
	}
#define TOP                                                                                        \
	{                                                                                          \
		.name = "top", .help = "number of rows (default 20)", .option = "--top",           \
		.type = MCP_NUMBER, .least = 1, .most = 500, .fallback = "20"                      \
	}

static const struct mcp_argument list_arguments[] = {
	{ 0 },
};
static const struct mcp_argument report_arguments[] = {
	RECORDING("recording", "path of a recording, or of a folder with recordings of one job"),
	{ .name = "by",
	  .help = "grouping of the rows: " HELP_GROUPS,
	  .option = "--by",
	  .type = MCP_TEXT,
	  .pattern = PATTERN_GROUPS },
	{ .name = "at",
	  .help = "the moment: " HELP_AT,
	  .option = "--at",
	  .type = MCP_TEXT,
	  .pattern = PATTERN_AT },
	DEVICE,
	TOP,
	{ .name = "filter",
	  .help = "only these blocks, such as 'module:blocks.3 phase:backward size:>1M'",
	  .option = "--filter",
	  .type = MCP_TEXT },
	FORMAT,
	{ 0 },
};
static const struct mcp_argument leaks_arguments[] = {
	RECORDING("recording", "path of a recording, or of a folder with recordings of one job"),
	{ .name = "by",
	  .help = "grouping of the rows (default line)",
	  .option = "--by",
	  .type = MCP_WORD,
	  .words = leak_groups },
	{ .name = "per",
	  .help = "FILE:LINE of a line that allocates one block in each request of a server: rates "
		  "by request",
	  .option = "--per",
	  .type = MCP_TEXT },
	DEVICE,
	TOP,
	FORMAT,
	{ 0 },
};
static const struct mcp_argument diff_arguments[] = {
	RECORDING("old", "path of the first recording"),
	RECORDING("new", "path of the second recording"),
	{ .name = "by",
	  .help = "grouping of the rows (default line)",
	  .option = "--by",
	  .type = MCP_WORD,
	  .words = groups },
	{ .name = "at",
	  .help = "the moment: " HELP_AT_PAIR,
	  .option = "--at",
	  .type = MCP_TEXT,
	  .pattern = PATTERN_AT_PAIR },
	DEVICE,
	TOP,
	FORMAT,
	{ 0 },
};
static const struct mcp_argument estimate_arguments[] = {
	{ .name = "vram",
	  .help = "memory of the device in GiB",
	  .option = "--vram",
	  .type = MCP_NUMBER,
	  .required = true,
	  .least = 1,
	  .most = 100000,
	  .suffix = "G" },
	FORMAT,
	{ .name = "script",
	  .help = "path of a Python script that trains or infers",
	  .type = MCP_SCRIPT,
	  .required = true },
	{ .name = "arguments", .help = "arguments of the script", .type = MCP_TEXTS },
	{ 0 },
};
static const struct mcp_argument attach_arguments[] = {
	{ .name = "pid",
	  .help = "process that uses PyTorch or CUDA",
	  .option = "--pid",
	  .type = MCP_NUMBER,
	  .required = true,
	  .least = 1,
	  .most = 1 << 22 },
	{ .name = "seconds",
	  .help = "length of the recording (default 10)",
	  .option = "--duration",
	  .type = MCP_NUMBER,
	  .least = 1,
	  .most = 300,
	  .suffix = "s",
	  .fallback = "10" },
	{ 0 },
};

static const char *const report_command[] = { "report", NULL };
static const char *const leaks_command[] = { "leaks", NULL };
static const char *const diff_command[] = { "diff", NULL };
static const char *const estimate_command[] = { "estimate", NULL };
static const char *const attach_command[] = { "record", NULL };

static const struct mcp_tool tools[] = {
	{ .name = "list",
	  .help = "List the recordings of PyTorch memory in the folder.",
	  .arguments = list_arguments },
	{ .name = "report",
	  .help = "Which Python lines, modules and phases hold GPU memory at the peak, at the end "
		  "or at an out-of-memory error of a recording.",
	  .command = report_command,
	  .arguments = report_arguments,
	  .seconds = 300 },
	{ .name = "leaks",
	  .help = "Which lines grow from step to step in a recording, with a confidence.",
	  .command = leaks_command,
	  .arguments = leaks_arguments,
	  .seconds = 300 },
	{ .name = "diff",
	  .help = "Compares two recordings: lines that hold more or less memory in the second one.",
	  .command = diff_command,
	  .arguments = diff_arguments,
	  .seconds = 300 },
	{ .name = "estimate",
	  .help = "Runs a script of the folder without a GPU until its steps repeat, and says "
		  "how much device memory it needs.",
	  .command = estimate_command,
	  .arguments = estimate_arguments,
	  .runs = true,
	  .seconds = 1200 },
	{ .name = "attach",
	  .help = "Records the memory events of a running process for some seconds, into a new "
		  "recording in the folder.",
	  .command = attach_command,
	  .arguments = attach_arguments,
	  .attaches = true,
	  .seconds = 420 },
};

static bool is_allowed(const struct mcp_opts *o, const struct mcp_tool *t)
{
	return (!t->attaches || o->allow_attach) && (!t->runs || o->allow_run);
}

const struct mcp_tool *mcp_tools__at(const struct mcp_opts *o, size_t i)
{
	for (size_t k = 0; k < sizeof(tools) / sizeof(*tools); k++)
		if (is_allowed(o, &tools[k]) && !i--)
			return &tools[k];
	return NULL;
}

const struct mcp_tool *mcp_tools__find(const struct mcp_opts *o, const char *name)
{
	const struct mcp_tool *t;

	for (size_t i = 0; (t = mcp_tools__at(o, i)); i++)
		if (!strcmp(t->name, name))
			return t;
	return NULL;
}
