/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* JSON-RPC 2.0 and the methods of the Model Context Protocol. */
#include "serve/mcp/tools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "serve/mcp.h"

#define MESSAGES_MAX 4096		 /* bytes of standard error in an answer */
#define OUTPUT_MAX ((uint64_t)256 << 20) /* a command that writes more fails */
#define SPACE ((uint64_t)8 << 30)	 /* address space of a command that only reads */
#define PATIENCE 2000			 /* ms between SIGINT and SIGKILL */
#define DEPTH 6				 /* folders below the folder */
#define ENTRIES 20000			 /* entries of folders to look at */
#define LINE_MAX_BYTES (1 << 20)	 /* of a message */
#define ID_MAX 256			 /* bytes of a text that identifies a request */

struct mcp_answer {
	char *text; /* owned */
	size_t len;
	bool failed;  /* text is the reason */
	bool hung_up; /* the client is gone */
};

/* ---- answers of commands ---- */

/* Answers of commands: their output, cut to the bound of an answer. */

struct job {
	int folder;
	int out, err; /* memory files */
};

static int enter(void *ctx)
{
	return fchdir(((struct job *)ctx)->folder) ? EXIT_FAILURE : 0;
}

/* A client that only closes our input still reads the answer. */
static bool hangs_up(int client)
{
	struct pollfd p = { .fd = client };

	return poll(&p, 1, 0) == 1 && p.revents & (POLLERR | POLLHUP);
}

/* Waits for the end. Returns the exit status, or -1 if the process had to be ended. */
static int wait_for(struct subprocess *p, int seconds, int client, bool *hung_up)
{
	uint64_t until = clock__monotonic() + (uint64_t)seconds * 1000000000;
	int status;

	while (!subprocess__wait(p, 100, &status)) {
		*hung_up = hangs_up(client);
		if (!*hung_up && clock__monotonic() < until)
			continue;
		/* A recorder saves what it has. */
		subprocess__signal(p, SIGINT);
		if (!subprocess__wait(p, PATIENCE, &status))
			subprocess__kill(p);
		return -1;
	}
	return status;
}

static size_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (size_t)st.st_size;
}

/* Bytes of the text that end with a whole line, or at least with a whole character. */
static size_t cut(const char *text, size_t len, size_t most)
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

static void put_file(FILE *f, int fd, size_t most, const char *what)
{
	size_t all = size_of(fd), len = all < most + 4 ? all : most + 4, kept;
	char *text = malloc(len + 1);
	ssize_t n = text ? io__pread(fd, text, len, 0) : -1;

	if (n > 0) {
		text[n] = '\0';
		kept = cut(text, (size_t)n, most);
		fwrite(text, 1, kept, f);
		if (kept < all)
			fprintf(f,
				"\n[%s cut: the first %zu of %zu bytes. Ask for fewer rows (top), "
				"a device, or a filter.]\n",
				what, kept, all);
	}
	free(text);
}

static void take_output(FILE *f, const struct mcp_opts *o, const struct job *j,
			const struct mcp_argv *a, struct mcp_answer *ret)
{
	size_t all = size_of(j->out);

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
	if (!size_of(j->err))
		return;
	if (!a->json || ret->failed) {
		fputs(all ? "\nMessages:\n" : "", f);
		put_file(f, j->err, MESSAGES_MAX, "messages");
	}
}

static int run(const struct mcp_tool *t, const struct mcp_argv *a, struct job *j, int client,
	       struct mcp_answer *ret)
{
	const struct subprocess_limit limits[] = { { RLIMIT_FSIZE, OUTPUT_MAX },
						   { RLIMIT_CORE, 0 },
						   { RLIMIT_AS, SPACE } };
	/* JSON-RPC is UTF-8 wherever the client runs. */
	static const char *const env[] = { "LC_ALL=C.UTF-8", NULL };
	bool reads = !t->attaches && !t->runs;
	struct subprocess p = { 0 };
	int status, err = subprocess__start(
			    &(struct subprocess_opts){ .program = "/proc/self/exe",
						       .argv = (const char *const *)a->v,
						       .env = env,
						       .prepare = enter,
						       .ctx = j,
						       .out = j->out,
						       .err = j->err,
						       .group = SUBPROCESS_OWN_GROUP,
						       .ends_group = true,
						       .death_signal = SIGINT,
						       .limits = limits,
						       .n_limits = reads ? 3 : 0 },
			    &p);

	if (err)
		return err;
	status = wait_for(&p, t->seconds, client, &ret->hung_up);
	/* 4: a condition holds, or the job does not fit. That is an answer. */
	ret->failed = status < 0 || !WIFEXITED(status) ||
		      (WEXITSTATUS(status) && WEXITSTATUS(status) != 4);
	return status < 0 && !ret->hung_up ? -ETIMEDOUT : 0;
}

/* Runs the command with the folder as its current folder and waits for its end, or ends it when
 * its time is over or `client` (the input) hangs up. Returns 0 or -ENOMEM. */
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
		err = run(t, a, &j, client, ret);
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

/* The recordings below a folder. */

struct list {
	struct json *j;
	FILE *f;
	size_t most; /* bytes of the answer */
	size_t seen, left_out;
	char path[PATH_MAX];
};

static bool is_recording(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && !strcmp(name + n - 4, ".mtr");
}

static void put(struct list *l, const struct stat *st)
{
	char date[40];

	fflush(l->f);
	if ((size_t)ftell(l->f) + 2 * strlen(l->path) + 200 > l->most) {
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

static void walk(struct list *l, int fd, int depth);

/* Links are not followed, and hidden entries and recordings under construction are not shown. */
static void visit(struct list *l, int folder, const struct dirent *e, int depth)
{
	size_t at = strlen(l->path);
	struct stat st;

	if (e->d_name[0] == '.' || ++l->seen > ENTRIES ||
	    fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
	    at + strlen(e->d_name) + 2 > sizeof(l->path))
		return;
	snprintf(l->path + at, sizeof(l->path) - at, "%s%s", at ? "/" : "", e->d_name);
	if (S_ISREG(st.st_mode) && is_recording(e->d_name))
		put(l, &st);
	else if (S_ISDIR(st.st_mode) && depth < DEPTH)
		walk(l, openat(folder, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
		     depth + 1);
	l->path[at] = '\0';
}

/* Closes fd. */
static void walk(struct list *l, int fd, int depth)
{
	struct dirent **all = NULL;
	int n = fd < 0 ? 0 : scandirat(fd, ".", &all, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		visit(l, fd, all[i], depth);
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
	walk(l, openat(o->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
	json__close_array(l->j);
	json__uint(l->j, "left_out", l->left_out);
	json__bool(l->j, "complete", !l->left_out && l->seen <= ENTRIES);
	json__close_object(l->j);
	json__free(l->j);
	fclose(l->f);
	free(l);
	return 0;
}

/* ---- messages ---- */

enum {
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

static struct json *begin(struct server *s)
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

static void end(struct json *j)
{
	json__close_object(j);
	json__free(j);
}

static void fail(struct server *s, int code, const char *message)
{
	struct json *j = begin(s);

	if (!j)
		return;
	json__open_object(j, "error");
	json__int(j, "code", code);
	json__string(j, "message", message);
	json__close_object(j);
	end(j);
}

static void initialize(struct server *s, const json_t *params)
{
	const char *asked = json_string_value(json_object_get(params, "protocolVersion"));
	const char *version = versions[N_VERSIONS - 1];
	struct json *j = begin(s);

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
	json__string(j, "instructions",
		     "Recordings of the memory of PyTorch processes. Begin with list, then report "
		     "of a recording: its rows say which line of Python holds how many bytes at "
		     "the peak. leaks says what grows, diff what changed.");
	json__close_object(j);
	end(j);
}

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

static void list_tools(struct server *s)
{
	const struct mcp_tool *t;
	struct json *j = begin(s);

	if (!j)
		return;
	json__open_object(j, "result");
	json__open_array(j, "tools");
	for (size_t i = 0; (t = mcp_tools__at(s->o, i)); i++)
		put_tool(j, t);
	json__close_array(j);
	json__close_object(j);
	end(j);
}

static void put_answer(struct server *s, const struct mcp_answer *a)
{
	struct json *j = begin(s);

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
	end(j);
}

static void call_tool(struct server *s, const json_t *params)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	const struct mcp_tool *t = name ? mcp_tools__find(s->o, name) : NULL;
	struct mcp_answer answer = { 0 };
	struct mcp_argv argv = { 0 };
	char why[MCP_WHY] = "";
	int err;

	if (!t) {
		fail(s, INVALID_PARAMS, "no such tool; tools/list names them");
		return;
	}
	err = mcp_argv__make(&argv, t, json_object_get(params, "arguments"), s->o->folder, why);
	if (!err)
		err = t->command ? answer_of_command(&answer, s->o, t, &argv, fileno(s->out))
				 : answer_of_list(&answer, s->o);
	s->hung_up = answer.hung_up;
	if (err == -EINVAL)
		fail(s, INVALID_PARAMS, why);
	else if (err)
		fail(s, INTERNAL_ERROR, strerror(-err));
	else if (!s->hung_up)
		put_answer(s, &answer);
	free(answer.text);
	mcp_argv__free(&argv);
}

static void pong(struct server *s)
{
	struct json *j = begin(s);

	if (!j)
		return;
	json__open_object(j, "result");
	json__close_object(j);
	end(j);
}

static void request(struct server *s, const char *method, const json_t *params)
{
	if (params && !json_is_object(params))
		fail(s, INVALID_PARAMS, "params: not an object");
	else if (!strcmp(method, "initialize"))
		initialize(s, params);
	else if (!strcmp(method, "ping"))
		pong(s);
	else if (!strcmp(method, "tools/list"))
		list_tools(s);
	else if (!strcmp(method, "tools/call"))
		call_tool(s, params);
	else
		fail(s, METHOD_NOT_FOUND, "this server has tools only");
}

static bool is_id(const json_t *id)
{
	return json_is_integer(id) || (json_is_string(id) && json_string_length(id) <= ID_MAX);
}

static void message(struct server *s, const json_t *m)
{
	const char *version = json_string_value(json_object_get(m, "jsonrpc"));
	const char *method = json_string_value(json_object_get(m, "method"));
	const json_t *id = json_object_get(m, "id");

	if (!version || strcmp(version, "2.0") != 0)
		fail(s, INVALID_REQUEST, "not a message of JSON-RPC 2.0");
	else if (id && !is_id(id))
		fail(s, INVALID_REQUEST, "id: not an integer or a short text");
	else if (!method &&
		 (!id || (!json_object_get(m, "result") && !json_object_get(m, "error"))))
		fail(s, INVALID_REQUEST, "method: missing");
	else if (method && id) {
		s->id = id;
		request(s, method, json_object_get(m, "params"));
		s->id = NULL;
	}
	/* The rest are notifications, and answers to questions that we never ask. */
}

static void line(struct server *s, const char *text, size_t len)
{
	json_error_t why;
	json_t *m = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);

	if (!m)
		fail(s, PARSE_ERROR, "not JSON in one line");
	else
		message(s, m);
	json_decref(m);
}

/* A line of the input. Returns its length, 0 for an empty line, -ENODATA at the end, -EMSGSIZE if
 * it is too long, and then it has been skipped. */
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

int mcp__serve(const struct mcp_opts *o, int in, int out)
{
	struct server s = { .o = o, .out = fdopen(dup(out), "w") };
	FILE *input = fdopen(dup(in), "r");
	char *buf = malloc(LINE_MAX_BYTES);
	ssize_t n = s.out && input && buf ? 0 : -ENOMEM;

	while (n >= 0 || n == -EMSGSIZE) {
		n = read_line(input, buf, LINE_MAX_BYTES);
		if (n == -EMSGSIZE)
			fail(&s, INVALID_REQUEST, "the message is longer than 1 MiB");
		else if (n > 0)
			line(&s, buf, (size_t)n);
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
