/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The tools that mcp offers: their arguments, which clients see and which are checked, and the
 * command that answers. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "serve/mcp.h"

enum mcp_type {
	MCP_RECORDING, /* path of a recording or of a folder with recordings, below the folder */
	MCP_SCRIPT,    /* path of a file below the folder */
	MCP_WORD,      /* one of `words` */
	MCP_TEXT,      /* text without control characters */
	MCP_NUMBER,    /* integer from `least` to `most` */
	MCP_TEXTS,     /* array of texts */
};

struct mcp_argument {
	const char *name, *help;
	/* Option that passes it on, "--by"; NULL: it stands by itself, in the order of the table */
	const char *option;
	enum mcp_type type;
	bool required;
	const char *const *words; /* NULL-terminated */
	/* Extended regular expression of a text; NULL: any. help then names the texts. */
	const char *pattern;
	int least, most;      /* of a number */
	const char *suffix;   /* behind the number, "s" */
	const char *fallback; /* value if it is not given; NULL: the option is left out */
};

struct mcp_tool {
	const char *name, *help;
	const char *const *command; /* command and fixed options, NULL-terminated; NULL: `list` */
	const struct mcp_argument *arguments; /* until name NULL */
	bool attaches, runs;		      /* needs allow_attach or allow_run */
	int seconds;			      /* longest run */
};

/* The tools that these options allow: the i-th, or by name. NULL: none. */
const struct mcp_tool *mcp_tools__at(const struct mcp_opts *o, size_t i);
const struct mcp_tool *mcp_tools__find(const struct mcp_opts *o, const char *name);

#define MCP_ARGV 64
#define MCP_WHY 256

/* A command line. */
struct mcp_argv {
	char *v[MCP_ARGV + 1]; /* NULL-terminated; owned */
	size_t n;
	bool json; /* its output is JSON */
};

/* Makes the command line of a call. given: an object, or NULL. Returns 0, or -EINVAL with the
 * reason in why, or -ENOMEM. Free it with mcp_argv__free() in any case. */
int mcp_argv__make(struct mcp_argv *a, const struct mcp_tool *t, const json_t *given, int folder,
		   char why[MCP_WHY]);
void mcp_argv__free(struct mcp_argv *a);
/* The path as text, if it is below the folder without links, and a file or a folder. Otherwise
 * -errno. */
int mcp_argv__check_path(int folder, const char *path, bool file_only);
