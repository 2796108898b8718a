/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: report, diff, compare and export on any recording. The first byte
 * chooses the command, as an index into commands[]. The second says how the rest becomes a file
 * (recording_file.h). Text must be harmless on a terminal, and JSON must be JSON.
 */
#include <jansson.h>
#include <stdbool.h>

#include "cmd/commands.h"
#define RECORDING_AT 1 /* offset after the command byte */
#include "recording_file.h"
#include "terminal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_ARGS 8
#define MAX_OUTPUT (16u << 20)

static const struct {
	const struct command *command;
	const char *argv[MAX_ARGS];
	char kind;  /* t: text; j: JSON; h: HTML; b: binary */
	bool twice; /* true: two inputs, the same recording */
} commands[] = {
	{ &command_report, { "report" }, 't' },
	{ &command_report, { "report", "--by", "stack", "--top", "0" }, 't' },
	{ &command_report, { "report", "--by", "layer", "--at", "end" }, 't' },
	{ &command_report, { "report", "--by", "category,module", "--device", "cpu" }, 't' },
	{ &command_report, { "report", "--by", "thread", "--frames", "all" }, 't' },
	{ &command_report, { "report", "--by", "phase" }, 't' },
	{ &command_report, { "report", "--by", "segment" }, 't' },
	{ &command_report, { "report", "--tree" }, 't' },
	{ &command_report, { "report", "--at", "oom" }, 't' },
	{ &command_report, { "report", "--format", "json" }, 'j' },
	{ &command_report, { "report", "--format", "json", "--by", "stack", "--at", "0.001" }, 'j' },
	{ &command_report, { "report", "--format", "json", "--by", "segment", "--at", "end" }, 'j' },
	{ &command_report, { "report", "--format", "csv" }, 't' },
	{ &command_report, { "report", "--format", "csv", "--by", "module,line,category" }, 't' },
	{ &command_export, { "export", "-o", "-", "speedscope" }, 'j' },
	{ &command_export, { "export", "-o", "-", "timeline" }, 'h' },
	{ &command_export, { "export", "-o", "-", "flamegraph" }, 'h' },
	{ &command_export, { "export", "-o", "-", "folded" }, 't' },
	{ &command_export, { "export", "-o", "-", "html" }, 'h' },
	{ &command_export, { "export", "-o", "-", "perfetto" }, 'j' },
	{ &command_export, { "export", "-o", "-", "pprof" }, 'b' },
	{ &command_export, { "export", "-o", "-", "snapshot" }, 'b' },
	{ &command_export, { "export", "-o", "-", "snapshot", "--at", "peak" }, 'b' },
	{ &command_export, { "export", "-o", "-", "tensorboard" }, 'b' },
	{ &command_export, { "export", "-o", "-", "openmetrics" }, 't' },
	{ &command_export, { "export", "-o", "-", "csv" }, 't' },
	{ &command_export, { "export", "-o", "-", "ndjson" }, 't' },
	{ &command_report, { "report", "--bars", "--filter", "module:*.1|x.* -size:>4K" }, 't' },
	{ &command_report,
	  { "report", "--by", "layer", "--hide", "a*", "--filter", "line:py -category:activation" },
	  't' },
	{ &command_report,
	  { "report", "--tree", "--bars", "--filter", "line:py|\"\" name:\"\"" },
	  't' },
	{ &command_report,
	  { "report", "--format", "json", "--hide", "*", "--filter", "-source:hidden" },
	  'j' },
	{ &command_report, { "report", "--together" }, 't' },
	{ &command_report, { "report", "--side-by-side", "--by", "module,category" }, 't' },
	{ &command_report, { "report", "--together", "--format", "json" }, 'j' },
	{ &command_report, { "report", "--together", "--format", "csv", "--by", "layer" }, 't' },
	{ &command_diff, { "diff", "--top", "0" }, 't', true },
	{ &command_diff, { "diff", "--by", "stack", "--at", "0.001,peak" }, 't', true },
	{ &command_diff, { "diff", "--by", "layer", "--at", "end,0.001" }, 't', true },
	{ &command_diff,
	  { "diff", "--format", "json", "--by", "stack", "--at", "0.001,end" },
	  'j',
	  true },
	{ &command_diff, { "diff", "--format", "csv", "--at", "peak,oom" }, 't', true },
	{ &command_diff, { "diff", "--format", "flamegraph", "--at", "0.001,peak" }, 'h', true },
	{ &command_compare, { "compare" }, 't', true },
	{ &command_compare, { "compare", "--format", "json", "--skip", "1" }, 'j' },
	{ &command_compare, { "compare", "--format", "markdown", "--name", "a,b" }, 't', true },
	{ &command_leaks,
	  { "leaks", "--min-confidence", "low", "--min-growth", "0", "--steps" },
	  't' },
	{ &command_leaks,
	  { "leaks", "--by", "category", "--min-growth", "0", "--format", "json" },
	  'j' },
	{ &command_leaks, { "leaks", "--by", "stack", "--format", "json", "--steps" }, 'j' },
	{ &command_leaks, { "leaks", "--by", "module", "--min-confidence", "low" }, 't' },
	{ &command_report, { "report", "--advice" }, 't' },
	{ &command_report, { "report", "--advice", "--format", "json", "--device", "cuda:0" }, 'j' },
	{ &command_report, { "report", "--fail-if", "growth>1M/10steps or leaks>0" }, 't' },
};
#define NR_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static char *output;
static int out_fd = -1;

static size_t take_output(void)
{
	off_t size;

	fflush(stdout);
	size = lseek(out_fd, 0, SEEK_END);
	if (size < 0 || size > (off_t)MAX_OUTPUT || pread(out_fd, output, (size_t)size, 0) != size)
		abort();
	output[size] = '\0';
	if (ftruncate(out_fd, 0) || lseek(out_fd, 0, SEEK_SET))
		abort();
	return (size_t)size;
}

static void check_text(const char *text, size_t size)
{
	for (const char *line = text; line < text + size;) {
		/* the first line, as in CSV */
		size_t len = strcspn(line, "\n"),
		       end = len && line[len - 1] == '\r' ? len - 1 : len;

		if (!terminal__harmless(line, end))
			abort();
		line += len + 1;
	}
}

static void check_output(char kind, size_t size)
{
	json_t *doc;

	if (kind == 't')
		check_text(output, size);
	if (kind == 'j') {
		/* u64 values can exceed jansson's integers */
		doc = json_loadb(output, size, JSON_DECODE_INT_AS_REAL, NULL);
		if (!doc)
			abort();
		json_decref(doc);
	}
}

static void start(void)
{
	output = malloc(MAX_OUTPUT + 1);
	out_fd = memfd_create("output", 0);
	if (!output || out_fd < 0 || dup2(out_fd, STDOUT_FILENO) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *messages, *old = stderr;
	size_t said = 0, n = 0, len;
	char *argv[MAX_ARGS + 3] = { NULL }, *text = NULL;
	int status;

	if (size < 3)
		return 0;
	if (!output)
		start();
	const size_t which = data[0] % NR_COMMANDS;

	while (commands[which].argv[n]) {
		argv[n] = strdup(commands[which].argv[n]);
		n++;
	}
	argv[n++] = strdup(recording_file(data + 1, size - 1));
	if (commands[which].twice) {
		argv[n] = strdup(argv[n - 1]);
		n++;
	}
	messages = open_memstream(&text, &said);
	if (!messages)
		abort();
	stderr = messages;
	status = commands[which].command->run((int)n, argv);
	stderr = old;
	fclose(messages);
	len = take_output();
	check_text(text, said);
	if (!status)
		check_output(commands[which].kind, len);
	free(text);
	/* argp reorders the array: keep the pointers to free */
	for (size_t i = 0; i < n; i++)
		free(argv[i]);
	return 0;
}
