/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* JSON-RPC 2.0 and the methods of the Model Context Protocol. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "serve/mcp.h"
#include "serve/mcp/answer.h"
#include "serve/mcp/tools.h"

#define LINE_MAX_BYTES (1 << 20) /* of a message */
#define ID_MAX 256		 /* bytes of a text that identifies a request */

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
		err = t->command ? mcp_answer__of_command(&answer, s->o, t, &argv, fileno(s->out))
				 : mcp_answer__of_list(&answer, s->o);
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
