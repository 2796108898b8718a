/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/mcp/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/grammar.h"
#include "base/text.h"

#define TEXT_MAX 4096 /* bytes of one text */

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

/* ---- command lines ---- */

/* Arguments of a tool as a command line. */

static int refuse(char why[MCP_WHY], const char *format, ...) __attribute__((format(printf, 2, 3)));

static int refuse(char why[MCP_WHY], const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, MCP_WHY, format, ap);
	va_end(ap);
	return -EINVAL;
}

static int add(struct mcp_argv *a, const char *option, const char *value, const char *suffix)
{
	char *s = NULL;
	int n;

	if (a->n == MCP_ARGV)
		return -E2BIG;
	if (!suffix)
		suffix = "";
	n = option ? asprintf(&s, "%s=%s%s", option, value, suffix)
		   : asprintf(&s, "%s%s", value, suffix);
	if (n < 0)
		return -ENOMEM;
	a->v[a->n++] = s;
	return 0;
}

int mcp_argv__check_path(int folder, const char *path, bool file_only)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
					   RESOLVE_NO_MAGICLINKS };
	struct stat st;
	int fd = (int)syscall(SYS_openat2, folder, path, &how, sizeof(how));
	int err = fd < 0 || fstat(fd, &st) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	if (!err && !S_ISREG(st.st_mode) && (file_only || !S_ISDIR(st.st_mode)))
		err = -EINVAL;
	return err;
}

/* A path starts with "./", so that no command takes it for an option or for "-". */
static int add_path(struct mcp_argv *a, const struct mcp_argument *of, const char *path, int folder,
		    char why[MCP_WHY])
{
	int err = mcp_argv__check_path(folder, path, of->type == MCP_SCRIPT);
	char *dotted;

	if (err == -ENOENT)
		return refuse(why, "%s: no such file in the folder; `list` names the recordings",
			      of->name);
	if (err)
		return refuse(why, "%s: it has to be below the folder, without links", of->name);
	if (asprintf(&dotted, "./%s", path) < 0)
		return -ENOMEM;
	err = add(a, NULL, dotted, NULL);
	free(dotted);
	return err;
}

/* True for text that may be a command's argument: no control characters, and not too long. */
static bool is_text(const json_t *v)
{
	const char *s = json_string_value(v);

	if (!s || strlen(s) != json_string_length(v) || strlen(s) > TEXT_MAX)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 127)
			return false;
	return true;
}

static int add_word(struct mcp_argv *a, const struct mcp_argument *of, const char *word,
		    char why[MCP_WHY])
{
	for (size_t i = 0; of->words[i]; i++)
		if (!strcmp(of->words[i], word)) {
			a->json |= !strcmp(of->name, "format") && !strcmp(word, "json");
			return add(a, of->option, word, NULL);
		}
	return refuse(why, "%s: unknown value; tools/list has its values", of->name);
}

static int add_text(struct mcp_argv *a, const struct mcp_argument *of, const char *text,
		    char why[MCP_WHY])
{
	if (of->pattern && !text__matches(text, of->pattern))
		return refuse(why, "%s: unknown value; %s", of->name, of->help);
	return add(a, of->option, text, NULL);
}

static int add_number(struct mcp_argv *a, const struct mcp_argument *of, const json_t *v,
		      char why[MCP_WHY])
{
	json_int_t n = json_integer_value(v);
	char text[32];

	if (!json_is_integer(v) || n < of->least || n > of->most)
		return refuse(why, "%s: not an integer from %d to %d", of->name, of->least,
			      of->most);
	snprintf(text, sizeof(text), "%d", (int)n);
	return add(a, of->option, text, of->suffix);
}

static int add_texts(struct mcp_argv *a, const struct mcp_argument *of, const json_t *v,
		     char why[MCP_WHY])
{
	int err = 0;

	if (!json_is_array(v))
		return refuse(why, "%s: not an array of texts", of->name);
	for (size_t i = 0; i < json_array_size(v) && !err; i++) {
		const json_t *one = json_array_get(v, i);

		err = is_text(one) ? add(a, NULL, json_string_value(one), NULL)
				   : refuse(why, "%s: not an array of texts", of->name);
	}
	return err == -E2BIG ? refuse(why, "%s: too many", of->name) : err;
}

static int add_argument(struct mcp_argv *a, const struct mcp_argument *of, const json_t *v,
			int folder, char why[MCP_WHY])
{
	if (!v && of->required)
		return refuse(why, "%s: missing", of->name);
	if (!v)
		return of->fallback ? add(a, of->option, of->fallback, of->suffix) : 0;
	if (of->type == MCP_NUMBER)
		return add_number(a, of, v, why);
	if (of->type == MCP_TEXTS)
		return add_texts(a, of, v, why);
	if (!is_text(v))
		return refuse(why, "%s: not a text of one line", of->name);
	if (of->type == MCP_WORD)
		return add_word(a, of, json_string_value(v), why);
	if (of->type == MCP_RECORDING || of->type == MCP_SCRIPT)
		return add_path(a, of, json_string_value(v), folder, why);
	return add_text(a, of, json_string_value(v), why);
}

static const struct mcp_argument *find(const struct mcp_tool *t, const char *name)
{
	for (const struct mcp_argument *a = t->arguments; a->name; a++)
		if (!strcmp(a->name, name))
			return a;
	return NULL;
}

static int check_names(const struct mcp_tool *t, const json_t *given, char why[MCP_WHY])
{
	const char *key;
	json_t *value;

	if (given && !json_is_object(given))
		return refuse(why, "arguments: not an object");
	json_object_foreach((json_t *)given, key, value)
		if (!find(t, key))
			return refuse(why, "%s has no argument of that name: '%.64s'", t->name,
				      key);
	return 0;
}

int mcp_argv__make(struct mcp_argv *a, const struct mcp_tool *t, const json_t *given, int folder,
		   char why[MCP_WHY])
{
	int err = check_names(t, given, why);

	*a = (struct mcp_argv){ 0 };
	if (!err)
		err = add(a, NULL, "memtrace-bpf", NULL);
	for (size_t i = 0; t->command && t->command[i] && !err; i++)
		err = add(a, NULL, t->command[i], NULL);
	for (const struct mcp_argument *of = t->arguments; of->name && !err; of++) {
		/* The script's own Python, and its arguments behind it. */
		if (of->type == MCP_SCRIPT)
			err = add(a, NULL, "--", NULL) ?: add(a, NULL, "python3", NULL);
		if (!err)
			err = add_argument(a, of, json_object_get(given, of->name), folder, why);
	}
	return err == -E2BIG ? refuse(why, "too many arguments") : err;
}

void mcp_argv__free(struct mcp_argv *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->v[i]);
	*a = (struct mcp_argv){ 0 };
}
