/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The tools that mcp offers, with their arguments and the commands that answer; JSON-RPC 2.0 and
 * the methods of the Model Context Protocol. */
#include "serve/mcp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/grammar.h"
#include "base/io.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "record/mtr.h"

#define MESSAGES_MAX 4096		 /* bytes of standard error in an answer */
#define OUTPUT_MAX ((uint64_t)256 << 20) /* a command that writes more fails */
/* limit of a command that only reads, in bytes */
#define ADDRESS_SPACE ((uint64_t)8 << 30)
#define END_WITHIN 2000		 /* ms between SIGINT and SIGKILL */
#define DEPTH_MAX 6		 /* levels of folders below the served folder */
#define ENTRIES_MAX 20000	 /* most entries of folders that `list` looks at */
#define ENTRY_TEXT 200		 /* bytes of a recording in the list, without its path */
#define LINE_MAX_BYTES (1 << 20) /* longest message of the client */
#define ID_MAX 256		 /* bytes of a text that identifies a request */
#define TEXT_MAX 4096		 /* bytes of one text */
#define ARGV_MAX 64		 /* most arguments of a command */
#define WHY_SIZE 256		 /* bytes of a reason */

/* ---- tools ---- */

enum mcp_type {
	/* path of a recording, or of a folder with recordings; below the served folder */
	MCP_RECORDING,
	MCP_SCRIPT, /* path of a file below the served folder */
	MCP_WORD,   /* one of `words` */
	MCP_TEXT,   /* text without control characters */
	MCP_NUMBER, /* integer from `least` to `most` */
	MCP_TEXTS,  /* array of texts */
};

struct mcp_argument {
	const char *name, *help;
	/* The command's option for this argument, "--by"; NULL: the value is passed without an
	 * option, in the order of the table. */
	const char *option;
	enum mcp_type type;
	bool required;
	const char *const *words; /* allowed values of MCP_WORD, NULL-terminated */
	/* Extended regular expression for MCP_TEXT; NULL: any text. With a pattern, help names the
	 * allowed texts. */
	const char *pattern;
	int least, most;      /* bounds of MCP_NUMBER */
	const char *suffix;   /* unit that is added to the number, "s"; NULL: none */
	const char *fallback; /* value if the argument is not given; NULL: no option */
};

struct mcp_tool {
	const char *name, *help;
	const char *const *command; /* command and fixed options, NULL-terminated; NULL: `list` */
	const struct mcp_argument *arguments; /* ends with a name of NULL */
	bool attaches, runs;		      /* needs allow_attach or allow_run */
	int seconds;			      /* time limit of the command */
};

/* A command line. */
struct mcp_argv {
	char *v[ARGV_MAX + 1]; /* NULL-terminated; owned */
	size_t n;
	bool json; /* the command prints JSON */
};

static const char *const groups[] = { WORD_ARRAY(GROUP_WORDS) NULL };
static const char *const leak_groups[] = { WORD_ARRAY(LEAK_GROUP_WORDS) NULL };
static const char *const formats[] = { "text", "json", NULL };

#define RECORDING(key, text)                                                                       \
	{                                                                                          \
		.name = key, .help = text, .type = MCP_RECORDING, .required = true                 \
	}
#define RECORDING_HELP                                                                             \
	"path of a recording (.mtr), of a memory snapshot of PyTorch (.pickle, also .gz or "       \
	".zst), "                                                                                  \
	"or of a folder with those of one job"
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
	RECORDING("recording", RECORDING_HELP),
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
static const struct mcp_argument diagnose_arguments[] = {
	RECORDING("recording", RECORDING_HELP),
	{ .name = "format",
	  .help = "json (default) or text; memtrace-bpf diagnose --json-schema prints the schema",
	  .option = "--format",
	  .type = MCP_WORD,
	  .words = formats,
	  .fallback = "json" },
	{ 0 },
};
static const struct mcp_argument leaks_arguments[] = {
	RECORDING("recording", RECORDING_HELP),
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
	RECORDING("old", "path of the first recording or snapshot"),
	RECORDING("new", "path of the second recording or snapshot"),
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
static const char *const diagnose_command[] = { "diagnose", NULL };
static const char *const leaks_command[] = { "leaks", NULL };
static const char *const diff_command[] = { "diff", NULL };
static const char *const estimate_command[] = { "estimate", NULL };
static const char *const attach_command[] = { "record", NULL };

static const struct mcp_tool tools[] = {
	{ .name = "list",
	  .help = "List the recordings of PyTorch memory, and PyTorch's own memory snapshots, in "
		  "the "
		  "folder.",
	  .arguments = list_arguments },
	{ .name = "diagnose",
	  .help = "What is wrong with the memory of a recorded job: each finding with its code, "
		  "bytes, line, holder, confidence and remedy, the worst first.",
	  .command = diagnose_command,
	  .arguments = diagnose_arguments,
	  .seconds = 300 },
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

/* True for a tool that the options allow. */
static bool is_allowed(const struct mcp_opts *o, const struct mcp_tool *t)
{
	return (!t->attaches || o->allow_attach) && (!t->runs || o->allow_run);
}

/* The i-th tool that these options allow. NULL: none. */
static const struct mcp_tool *tool_at(const struct mcp_opts *o, size_t i)
{
	for (size_t k = 0; k < sizeof(tools) / sizeof(*tools); k++)
		if (is_allowed(o, &tools[k]) && !i--)
			return &tools[k];
	return NULL;
}

/* The allowed tool with this name; NULL: none. */
static const struct mcp_tool *find_tool(const struct mcp_opts *o, const char *name)
{
	const struct mcp_tool *t;

	for (size_t i = 0; (t = tool_at(o, i)); i++)
		if (!strcmp(t->name, name))
			return t;
	return NULL;
}

/* ---- command lines ---- */

static int refuse(char why[WHY_SIZE], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Writes the reason to why. Returns -EINVAL. */
static int refuse(char why[WHY_SIZE], const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, WHY_SIZE, format, ap);
	va_end(ap);
	return -EINVAL;
}

/* Adds "OPTION=VALUE" or, if option is NULL, "VALUE", each with the suffix (NULL: none). Returns 0,
 * -E2BIG or -ENOMEM. */
static int add_arg(struct mcp_argv *a, const char *option, const char *value, const char *suffix)
{
	char *s = NULL;
	int n;

	if (a->n == ARGV_MAX)
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

/* Checks that the path leads to a file, or to a folder unless file_only, below `folder` and through
 * no link. Returns 0 or -errno. */
static int check_path(int folder, const char *path, bool file_only)
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

/* Adds a path that starts with "./", so that no command takes it for an option or for "-". folder:
 * descriptor of the served folder. Returns 0, -E2BIG or -ENOMEM, or -EINVAL with the reason in
 * why. */
static int add_path(struct mcp_argv *a, const struct mcp_argument *arg, const char *path,
		    int folder, char why[WHY_SIZE])
{
	bool file_only = arg->type == MCP_SCRIPT;
	int err = check_path(folder, path, file_only);
	char *dotted;

	if (err == -ENOENT)
		return refuse(why, "%s: no such file in the folder; `list` names the recordings",
			      arg->name);
	if (err)
		return refuse(why, "%s: it has to be below the folder, without links", arg->name);
	if (asprintf(&dotted, "./%s", path) < 0)
		return -ENOMEM;
	err = add_arg(a, /*option=*/NULL, dotted, /*suffix=*/NULL);
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

/* The add_ functions check a value and add it to the command line. They return 0, -E2BIG or
 * -ENOMEM, or -EINVAL with the reason in why. */
static int add_word(struct mcp_argv *a, const struct mcp_argument *arg, const char *word,
		    char why[WHY_SIZE])
{
	for (size_t i = 0; arg->words[i]; i++)
		if (!strcmp(arg->words[i], word)) {
			a->json |= !strcmp(arg->name, "format") && !strcmp(word, "json");
			return add_arg(a, arg->option, word, /*suffix=*/NULL);
		}
	return refuse(why, "%s: unknown value; tools/list has its values", arg->name);
}

static int add_text(struct mcp_argv *a, const struct mcp_argument *arg, const char *text,
		    char why[WHY_SIZE])
{
	if (arg->pattern && !text__matches(text, arg->pattern))
		return refuse(why, "%s: unknown value; %s", arg->name, arg->help);
	return add_arg(a, arg->option, text, /*suffix=*/NULL);
}

/* Adds an argument that is a whole number. Returns as add_arg(), or what refuse() returns. */
static int add_number(struct mcp_argv *a, const struct mcp_argument *arg, const json_t *v,
		      char why[WHY_SIZE])
{
	json_int_t n = json_integer_value(v);
	char text[32];

	if (!json_is_integer(v) || n < arg->least || n > arg->most)
		return refuse(why, "%s: not an integer from %d to %d", arg->name, arg->least,
			      arg->most);
	snprintf(text, sizeof(text), "%d", (int)n);
	return add_arg(a, arg->option, text, arg->suffix);
}

/* Adds each text of an argument that is an array of texts. Returns as add_number(). */
static int add_texts(struct mcp_argv *a, const struct mcp_argument *arg, const json_t *v,
		     char why[WHY_SIZE])
{
	int err = 0;

	if (!json_is_array(v))
		return refuse(why, "%s: not an array of texts", arg->name);
	for (size_t i = 0; i < json_array_size(v) && !err; i++) {
		const json_t *member = json_array_get(v, i);

		err = is_text(member) ? add_arg(a, /*option=*/NULL, json_string_value(member),
						/*suffix=*/NULL)
				      : refuse(why, "%s: not an array of texts", arg->name);
	}
	return err == -E2BIG ? refuse(why, "%s: too many", arg->name) : err;
}

/* Checks and adds an argument of a call. v: its value; NULL: it was not given. folder: descriptor
 * of the served folder. Returns 0, -E2BIG, -ENOMEM, or -EINVAL with the reason in why. */
static int add_argument(struct mcp_argv *a, const struct mcp_argument *arg, const json_t *v,
			int folder, char why[WHY_SIZE])
{
	if (!v && arg->required)
		return refuse(why, "%s: missing", arg->name);
	if (!v && !arg->fallback)
		return 0;
	if (!v && arg->type == MCP_WORD)
		return add_word(a, arg, arg->fallback, why);
	if (!v)
		return add_arg(a, arg->option, arg->fallback, arg->suffix);
	if (arg->type == MCP_NUMBER)
		return add_number(a, arg, v, why);
	if (arg->type == MCP_TEXTS)
		return add_texts(a, arg, v, why);
	if (!is_text(v))
		return refuse(why, "%s: not a text of one line", arg->name);
	if (arg->type == MCP_WORD)
		return add_word(a, arg, json_string_value(v), why);
	if (arg->type == MCP_RECORDING || arg->type == MCP_SCRIPT)
		return add_path(a, arg, json_string_value(v), folder, why);
	return add_text(a, arg, json_string_value(v), why);
}

/* The tool's argument with this name; NULL: none. */
static const struct mcp_argument *find_argument(const struct mcp_tool *t, const char *name)
{
	for (const struct mcp_argument *a = t->arguments; a->name; a++)
		if (!strcmp(a->name, name))
			return a;
	return NULL;
}

/* Checks that the tool has all given arguments. Returns 0, or -EINVAL with the reason in why. */
static int check_names(const struct mcp_tool *t, const json_t *given, char why[WHY_SIZE])
{
	const char *key;
	json_t *value;

	if (given && !json_is_object(given))
		return refuse(why, "arguments: not an object");
	json_object_foreach((json_t *)given, key, value)
		if (!find_argument(t, key))
			return refuse(why, "%s has no argument of that name: '%.64s'", t->name,
				      key);
	return 0;
}

/* Adds the program's name, the command and its fixed options. Returns 0, -E2BIG or -ENOMEM. */
static int add_command(struct mcp_argv *a, const struct mcp_tool *t)
{
	int err = add_arg(a, /*option=*/NULL, "memtrace-bpf", /*suffix=*/NULL);

	for (size_t i = 0; t->command && t->command[i] && !err; i++)
		err = add_arg(a, /*option=*/NULL, t->command[i], /*suffix=*/NULL);
	return err;
}

/* Adds "-- python3", which precedes the script, whose arguments follow it. Returns 0, -E2BIG or
 * -ENOMEM. */
static int add_python(struct mcp_argv *a)
{
	int err = add_arg(a, /*option=*/NULL, "--", /*suffix=*/NULL);

	return err ? err : add_arg(a, /*option=*/NULL, "python3", /*suffix=*/NULL);
}

/* Adds all arguments of a call. Parameters: as in make_argv(). Returns 0, -E2BIG, -ENOMEM, or
 * -EINVAL with the reason in why. */
static int add_arguments(struct mcp_argv *a, const struct mcp_tool *t, const json_t *given,
			 int folder, char why[WHY_SIZE])
{
	for (const struct mcp_argument *arg = t->arguments; arg->name; arg++) {
		int err = arg->type == MCP_SCRIPT ? add_python(a) : 0;

		if (err)
			return err;
		err = add_argument(a, arg, json_object_get(given, arg->name), folder, why);
		if (err)
			return err;
	}
	return 0;
}

/* Makes the command line of a call. given: an object, or NULL. folder: descriptor of the served
 * folder. Returns 0, or -EINVAL with the reason in why, or -ENOMEM. Free it with free_argv() in any
 * case. */
static int make_argv(struct mcp_argv *a, const struct mcp_tool *t, const json_t *given, int folder,
		     char why[WHY_SIZE])
{
	int err;

	*a = (struct mcp_argv){ 0 };
	err = check_names(t, given, why);
	if (err)
		return err;
	err = add_command(a, t);
	if (!err)
		err = add_arguments(a, t, given, folder, why);
	return err == -E2BIG ? refuse(why, "too many arguments") : err;
}

static void free_argv(struct mcp_argv *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->v[i]);
	*a = (struct mcp_argv){ 0 };
}

struct mcp_answer {
	char *text; /* owned */
	size_t len;
	bool failed;  /* the call failed, and text is the reason */
	bool hung_up; /* the client has closed its end of our output */
};

/* ---- answers of commands ---- */

/* A running command. */
struct job {
	int folder;   /* current folder of the command */
	int out, err; /* files in memory for its output and messages */
};

/* In the command's process. Returns 0 or an exit code. */
static int enter_folder(void *ctx)
{
	return fchdir(((struct job *)ctx)->folder) ? EXIT_FAILURE : 0;
}

/* True if the client no longer reads our output. One that has only closed our input still does. */
static bool hangs_up(int client)
{
	struct pollfd p = { .fd = client };

	return poll(&p, 1, 0) == 1 && p.revents & (POLLERR | POLLHUP);
}

/* Waits for the end of the command. Returns its status as from waitpid(), or -1 if it took too long
 * or the client hung up (*hung_up), and the command was ended. */
static int wait_for_command(struct subprocess *p, int seconds, int client, bool *hung_up)
{
	uint64_t until = clock__monotonic() + (uint64_t)seconds * 1000000000;
	int status;

	while (!subprocess__wait(p, /*ms=*/100, &status)) {
		*hung_up = hangs_up(client);
		if (!*hung_up && clock__monotonic() < until)
			continue;
		/* On SIGINT, a recorder completes its recording. */
		subprocess__signal(p, SIGINT);
		if (!subprocess__wait(p, END_WITHIN, &status))
			subprocess__kill(p);
		return -1;
	}
	return status;
}

/* The bytes of a file in memory. */
static size_t file_size(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (size_t)st.st_size;
}

/* The length of the text or, if it is longer than `most`, of the part that ends with a whole line,
 * or at least with a whole character. */
static size_t cut_text(const char *text, size_t len, size_t most)
{
	size_t n = most;

	if (len <= most)
		return len;
	while (n && text[n - 1] != '\n')
		n--;
	for (n = n ? n : most; n && (text[n] & 0xc0) == 0x80;)
		n--;
	return n;
}

#define CHAR_MOST 4 /* bytes of a character in UTF-8 */
/* Writes the file of fd to f, cut to about `most` bytes. A note says that `what` was cut. */
static void put_file(FILE *f, int fd, size_t most, const char *what)
{
	size_t all = file_size(fd), len = all < most + CHAR_MOST ? all : most + CHAR_MOST, kept;
	char *text = malloc(len + 1);
	ssize_t n = text ? io__pread(fd, text, len, 0) : -1;

	if (n > 0) {
		text[n] = '\0';
		kept = cut_text(text, (size_t)n, most);
		fwrite(text, 1, kept, f);
		if (kept < all)
			fprintf(f,
				"\n[%s cut: the first %zu of %zu bytes. Ask for fewer rows (top), "
				"a device, or a filter.]\n",
				what, kept, all);
	}
	free(text);
}

/* Writes the command's output and, in a text, its messages to the answer f. */
static void take_output(FILE *f, const struct mcp_opts *o, const struct job *j,
			const struct mcp_argv *a, struct mcp_answer *ret)
{
	size_t all = file_size(j->out);

	if (a->json && all > o->max_answer) {
		/* A part of a document is not valid JSON. */
		ret->failed = true;
		fprintf(f,
			"the document has %zu bytes, and an answer has at most %zu: ask for fewer "
			"rows (top), or for the format text",
			all, o->max_answer);
		return;
	}
	put_file(f, j->out, o->max_answer, "output");
	if (!file_size(j->err))
		return;
	if (!a->json || ret->failed) {
		fputs(all ? "\nMessages:\n" : "", f);
		put_file(f, j->err, MESSAGES_MAX, "messages");
	}
}

/* Runs the command. Returns 0, -ETIMEDOUT or another -errno; ret->failed: the command failed. */
static int run_command(const struct mcp_tool *t, const struct mcp_argv *a, struct job *j,
		       int client, struct mcp_answer *ret)
{
	const struct subprocess_limit limits[] = { { RLIMIT_FSIZE, OUTPUT_MAX },
						   { RLIMIT_CORE, 0 },
						   { RLIMIT_AS, ADDRESS_SPACE } };
	/* JSON-RPC is UTF-8 wherever the client runs. */
	static const char *const env[] = { "LC_ALL=C.UTF-8", NULL };
	bool reads = !t->attaches && !t->runs;
	bool has_answer;

	struct subprocess p = { 0 };
	int status, err = subprocess__start(
			    &(struct subprocess_opts){
				    .program = "/proc/self/exe",
				    .argv = (const char *const *)a->v,
				    .env = env,
				    .prepare = enter_folder,
				    .ctx = j,
				    .out = j->out,
				    .err = j->err,
				    .group = SUBPROCESS_OWN_GROUP,
				    .ends_group = true,
				    .death_signal = SIGINT,
				    .limits = limits,
				    .n_limits = reads ? sizeof(limits) / sizeof(limits[0]) : 0 },
			    &p);

	if (err)
		return err;
	status = wait_for_command(&p, t->seconds, client, &ret->hung_up);
	/* EXIT_HELD is an answer, too. */
	has_answer = status >= 0 && WIFEXITED(status) &&
		     (!WEXITSTATUS(status) || WEXITSTATUS(status) == EXIT_HELD);
	ret->failed = !has_answer;
	return status < 0 && !ret->hung_up ? -ETIMEDOUT : 0;
}

/* Runs the command with the served folder as its current folder, and makes the answer from its
 * output. Ends the command when its time is over or `client` (our output) hangs up. Returns 0 or
 * -ENOMEM. */
static int answer_of_command(struct mcp_answer *ret, const struct mcp_opts *o,
			     const struct mcp_tool *t, const struct mcp_argv *a, int client)
{
	struct job j = { .folder = o->folder,
			 .out = memfd_create("answer", MFD_CLOEXEC),
			 .err = memfd_create("messages", MFD_CLOEXEC) };
	FILE *f;
	int err = j.out < 0 || j.err < 0 ? -errno : 0;

	*ret = (struct mcp_answer){ 0 };
	f = open_memstream(&ret->text, &ret->len);
	if (f && !err)
		err = run_command(t, a, &j, client, ret);
	if (f && err) {
		ret->failed = true;
		fprintf(f, "%s: %s", t->name,
			err == -ETIMEDOUT ? "it took too long and was ended" : strerror(-err));
	} else if (f) {
		take_output(f, o, &j, a, ret);
	}
	if (j.out >= 0)
		close(j.out);
	if (j.err >= 0)
		close(j.err);
	return !f || fclose(f) ? -ENOMEM : 0;
}

/* ---- the recordings below a folder ---- */

struct list {
	struct json *j;
	FILE *f;
	size_t most;	     /* longest answer, in bytes */
	size_t seen;	     /* entries of folders so far */
	size_t left_out;     /* recordings that do not fit into the answer */
	char path[PATH_MAX]; /* path of the current entry, below the served folder */
};

/* A memory snapshot of PyTorch counts as a recording. */
static bool is_recording(const char *name)
{
	size_t n = strlen(name);

	return (n > 4 && !strcmp(name + n - 4, ".mtr")) || mtr_reader__names_snapshot(name);
}

/* Adds the recording l->path to the answer, if there is room. */
static void put_recording(struct list *l, const struct stat *st)
{
	char date[40];

	fflush(l->f);
	if ((size_t)ftell(l->f) + 2 * strlen(l->path) + ENTRY_TEXT > l->most) {
		l->left_out++;
		return;
	}
	json__open_object(l->j, NULL);
	json__string(l->j, "path", l->path);
	json__uint(l->j, "bytes", (uint64_t)st->st_size);
	json__string(l->j, "modified",
		     text__date(date, sizeof(date),
				(uint64_t)st->st_mtim.tv_sec * 1000000000 +
					(uint64_t)st->st_mtim.tv_nsec));
	json__close_object(l->j);
}

static void walk_folder(struct list *l, int fd, int depth);

/* Adds an entry of a folder, with all entries below it. Skips links and hidden entries; recordings
 * that are not complete are hidden. */
static void visit_entry(struct list *l, int folder, const struct dirent *e, int depth)
{
	size_t at = strlen(l->path);
	struct stat st;

	if (e->d_name[0] == '.' || ++l->seen > ENTRIES_MAX)
		return;
	if (at + strlen(e->d_name) + 2 > sizeof(l->path)) /* a slash and a NUL */
		return;
	if (fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
		return;
	snprintf(l->path + at, sizeof(l->path) - at, "%s%s", at ? "/" : "", e->d_name);
	if (S_ISREG(st.st_mode) && is_recording(e->d_name))
		put_recording(l, &st);
	else if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
		walk_folder(l,
			    openat(folder, e->d_name,
				   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
			    depth + 1);
	l->path[at] = '\0';
}

/* Adds the recordings in and below the folder fd (-1: none), and closes it. */
static void walk_folder(struct list *l, int fd, int depth)
{
	struct dirent **all = NULL;
	int n = fd < 0 ? 0 : scandirat(fd, ".", &all, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		visit_entry(l, fd, all[i], depth);
		free(all[i]);
	}
	free(all);
	if (fd >= 0)
		close(fd);
}

/* The recordings below the folder, as JSON. Returns 0 or -ENOMEM. */
static int answer_of_list(struct mcp_answer *ret, const struct mcp_opts *o)
{
	struct list *l = calloc(1, sizeof(*l));

	*ret = (struct mcp_answer){ 0 };
	if (l)
		l->f = open_memstream(&ret->text, &ret->len);
	if (l && l->f)
		l->j = json__new(l->f, false);
	if (!l || !l->f || !l->j) {
		if (l && l->f)
			fclose(l->f);
		free(l);
		return -ENOMEM;
	}
	l->most = o->max_answer;
	json__open_object(l->j, NULL);
	json__open_array(l->j, "recordings");
	walk_folder(l, openat(o->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
	json__close_array(l->j);
	json__uint(l->j, "left_out", l->left_out);
	json__bool(l->j, "complete", !l->left_out && l->seen <= ENTRIES_MAX);
	json__close_object(l->j);
	json__free(l->j);
	fclose(l->f);
	free(l);
	return 0;
}

/* ---- messages ---- */

enum { /* codes of JSON-RPC */
       PARSE_ERROR = -32700,
       INVALID_REQUEST = -32600,
       METHOD_NOT_FOUND = -32601,
       INVALID_PARAMS = -32602,
       INTERNAL_ERROR = -32603,
};

/* Versions with the handshake `initialize`, oldest first. */
static const char *const versions[] = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" };
#define N_VERSIONS (sizeof(versions) / sizeof(*versions))

struct server {
	const struct mcp_opts *o;
	FILE *out;
	const json_t *id; /* of the request; NULL: none */
	bool hung_up;
};

/* Begins an answer to the request s->id. end_answer() completes it. NULL: no memory. */
static struct json *begin_answer(struct server *s)
{
	struct json *j = json__new(s->out, false);

	if (!j)
		return NULL;
	json__open_object(j, NULL);
	json__string(j, "jsonrpc", "2.0");
	if (json_is_integer(s->id))
		json__int(j, "id", json_integer_value(s->id));
	else
		json__string(j, "id", json_string_value(s->id));
	return j;
}

static void end_answer(struct json *j)
{
	json__close_object(j);
	json__free(j);
}

/* The send_ functions write the answer to a request; nothing without memory. code: of JSON-RPC. */
static void send_error(struct server *s, int code, const char *message)
{
	struct json *j = begin_answer(s);

	if (!j)
		return;
	json__open_object(j, "error");
	json__int(j, "code", code);
	json__string(j, "message", message);
	json__close_object(j);
	end_answer(j);
}

/* Answers with the client's version of the protocol if it is known, otherwise with the newest
 * one. */
static void send_initialize(struct server *s, const json_t *params)
{
	const char *asked = json_string_value(json_object_get(params, "protocolVersion"));
	const char *version = versions[N_VERSIONS - 1];
	struct json *j = begin_answer(s);

	for (size_t i = 0; asked && i < N_VERSIONS; i++)
		if (!strcmp(asked, versions[i]))
			version = versions[i];
	if (!j)
		return;
	json__open_object(j, "result");
	json__string(j, "protocolVersion", version);
	json__open_object(j, "capabilities");
	json__open_object(j, "tools");
	json__close_object(j);
	json__close_object(j);
	json__open_object(j, "serverInfo");
	json__string(j, "name", "memtrace-bpf");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__string(
		j, "instructions",
		"Recordings of the memory of PyTorch processes, and PyTorch's own memory "
		"snapshots, which all tools read as recordings. Begin with list, then "
		"diagnose of a recording: it names what is wrong and what to do. report says "
		"which line of Python holds how many bytes at the peak, leaks what grows, diff "
		"what changed.");
	json__close_object(j);
	end_answer(j);
}

/* Writes the JSON schema of an argument into the open object. */
static void put_type(struct json *j, const struct mcp_argument *a)
{
	static const char *const types[] = {
		[MCP_RECORDING] = "string", [MCP_SCRIPT] = "string",  [MCP_WORD] = "string",
		[MCP_TEXT] = "string",	    [MCP_NUMBER] = "integer", [MCP_TEXTS] = "array",
	};

	json__string(j, "type", types[a->type]);
	json__string(j, "description", a->help);
	if (a->type == MCP_NUMBER) {
		json__int(j, "minimum", a->least);
		json__int(j, "maximum", a->most);
	}
	if (a->type == MCP_TEXTS) {
		json__open_object(j, "items");
		json__string(j, "type", "string");
		json__close_object(j);
	}
	if (!a->words)
		return;
	json__open_array(j, "enum");
	for (size_t i = 0; a->words[i]; i++)
		json__string(j, NULL, a->words[i]);
	json__close_array(j);
}

/* Writes a tool as tools/list has it. */
static void put_tool(struct json *j, const struct mcp_tool *t)
{
	json__open_object(j, NULL);
	json__string(j, "name", t->name);
	json__string(j, "description", t->help);
	json__open_object(j, "inputSchema");
	json__string(j, "type", "object");
	json__open_object(j, "properties");
	for (const struct mcp_argument *a = t->arguments; a->name; a++) {
		json__open_object(j, a->name);
		put_type(j, a);
		json__close_object(j);
	}
	json__close_object(j);
	json__open_array(j, "required");
	for (const struct mcp_argument *a = t->arguments; a->name; a++)
		if (a->required)
			json__string(j, NULL, a->name);
	json__close_array(j);
	json__bool(j, "additionalProperties", false);
	json__close_object(j);
	json__open_object(j, "annotations");
	json__bool(j, "readOnlyHint", !t->attaches && !t->runs);
	json__bool(j, "destructiveHint", false);
	json__bool(j, "openWorldHint", false);
	json__close_object(j);
	json__close_object(j);
}

/* Answers with the allowed tools. */
static void list_tools(struct server *s)
{
	const struct mcp_tool *t;
	struct json *j = begin_answer(s);

	if (!j)
		return;
	json__open_object(j, "result");
	json__open_array(j, "tools");
	for (size_t i = 0; (t = tool_at(s->o, i)); i++)
		put_tool(j, t);
	json__close_array(j);
	json__close_object(j);
	end_answer(j);
}

/* Answers a call of a tool with its text. */
static void send_result(struct server *s, const struct mcp_answer *a)
{
	struct json *j = begin_answer(s);

	if (!j)
		return;
	json__open_object(j, "result");
	json__open_array(j, "content");
	json__open_object(j, NULL);
	json__string(j, "type", "text");
	json__string(j, "text", a->text);
	json__close_object(j);
	json__close_array(j);
	json__bool(j, "isError", a->failed);
	json__close_object(j);
	end_answer(j);
}

/* Runs a tool and answers with its output. params: of the request. */
static void call_tool(struct server *s, const json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	const struct mcp_tool *t = name ? find_tool(s->o, name) : NULL;
	struct mcp_answer answer = { 0 };
	struct mcp_argv argv = { 0 };
	char why[WHY_SIZE] = "";
	int err;

	if (!t) {
		send_error(s, INVALID_PARAMS, "no such tool; tools/list names them");
		return;
	}
	err = make_argv(&argv, t, json_object_get(params, "arguments"), s->o->folder, why);
	if (!err)
		err = t->command ? answer_of_command(&answer, s->o, t, &argv, fileno(s->out))
				 : answer_of_list(&answer, s->o);
	s->hung_up = answer.hung_up;
	if (err == -EINVAL)
		send_error(s, INVALID_PARAMS, why);
	else if (err)
		send_error(s, INTERNAL_ERROR, strerror(-err));
	else if (!s->hung_up)
		send_result(s, &answer);
	free(answer.text);
	free_argv(&argv);
}

static void send_pong(struct server *s)
{
	struct json *j = begin_answer(s);

	if (!j)
		return;
	json__open_object(j, "result");
	json__close_object(j);
	end_answer(j);
}

/* Answers a request by its method. params NULL: none. */
static void handle_request(struct server *s, const char *method, const json_t *params)
{
	if (params && !json_is_object(params))
		send_error(s, INVALID_PARAMS, "params: not an object");
	else if (!strcmp(method, "initialize"))
		send_initialize(s, params);
	else if (!strcmp(method, "ping"))
		send_pong(s);
	else if (!strcmp(method, "tools/list"))
		list_tools(s);
	else if (!strcmp(method, "tools/call"))
		call_tool(s, params);
	else
		send_error(s, METHOD_NOT_FOUND, "this server has tools only");
}

/* True for what may identify a request. */
static bool is_id(const json_t *id)
{
	return json_is_integer(id) || (json_is_string(id) && json_string_length(id) <= ID_MAX);
}

/* Handles a message of the client: answers a request, and ignores a notification. */
static void handle_message(struct server *s, const json_t *m)
{
	const char *version = json_string_value(json_object_get(m, "jsonrpc"));
	const char *method = json_string_value(json_object_get(m, "method"));
	const json_t *id = json_object_get(m, "id");

	if (!version || strcmp(version, "2.0") != 0)
		send_error(s, INVALID_REQUEST, "not a message of JSON-RPC 2.0");
	else if (id && !is_id(id))
		send_error(s, INVALID_REQUEST, "id: not an integer or a short text");
	else if (!method &&
		 (!id || (!json_object_get(m, "result") && !json_object_get(m, "error"))))
		send_error(s, INVALID_REQUEST, "method: missing");
	else if (method && id) {
		s->id = id;
		handle_request(s, method, json_object_get(m, "params"));
		s->id = NULL;
	}
	/* The rest are notifications, and answers to questions that we never ask. */
}

/* Handles a line of the input. */
static void handle_line(struct server *s, const char *text, size_t len)
{
	json_error_t why;
	json_t *m = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);

	if (!m)
		send_error(s, PARSE_ERROR, "not JSON in one line");
	else
		handle_message(s, m);
	json_decref(m);
}

/* Reads a line of the input. Returns its length without the newline, -ENODATA at the end, -EIO, or
 * -EMSGSIZE if the line is longer than size; the rest of that line is skipped. */
static ssize_t read_line(FILE *in, char *buf, size_t size)
{
	size_t n = 0;
	int c;

	while ((c = getc_unlocked(in)) != EOF && c != '\n')
		if (n++ < size)
			buf[n - 1] = (char)c;
	if (c == EOF)
		return ferror(in) ? -EIO : -ENODATA;
	return n > size ? -EMSGSIZE : (ssize_t)n;
}

/* The client may end by closing the input (-ENODATA), or by no longer reading our output. */
int mcp__serve(const struct mcp_opts *o, int in, int out)
{
	struct server s = { .o = o, .out = fdopen(dup(out), "w") };
	FILE *input = fdopen(dup(in), "r");
	char *buf = malloc(LINE_MAX_BYTES);
	ssize_t n = s.out && input && buf ? 0 : -ENOMEM;

	while (n >= 0 || n == -EMSGSIZE) {
		n = read_line(input, buf, LINE_MAX_BYTES);
		if (n == -EMSGSIZE)
			send_error(&s, INVALID_REQUEST, "the message is longer than 1 MiB");
		else if (n > 0)
			handle_line(&s, buf, (size_t)n);
		errno = 0;
		if (s.hung_up || fflush(s.out))
			n = s.hung_up || errno == EPIPE ? -ENODATA : -EIO;
	}
	free(buf);
	if (input)
		fclose(input);
	if (s.out)
		fclose(s.out);
	return n == -ENODATA ? 0 : (int)n;
}
