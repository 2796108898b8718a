/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Origin of a source file, judged by the path in its code objects. */

#include <stdbool.h>

struct facts;

enum file_origin {
	FILE_USER,
	FILE_TORCH,   /* PyTorch's files, and code that it generates */
	FILE_PACKAGE, /* installed packages, and code that they generate */
	FILE_STDLIB,
	/* In files__kind() only: code in no file, whose name does not say who made it: "<string>". */
	FILE_GENERATED,
};

/* facts: "stdlib" is the folder of the target's standard library; may be NULL. */
enum file_origin files__origin(const char *path, const struct facts *facts);
/* The same, or FILE_GENERATED: the frames around it say whose it is, see
 * docs/reference/report.md, "Lines". Others count it as the user's. */
enum file_origin files__kind(const char *path, const struct facts *facts);
/* Whether the program is given on the command line, python -c TEXT, and has this function. func: a
 * qualified name. A name without a part that the text can have, such as "<module>", is in it. */
bool files__in_command(const struct facts *facts, const char *func);
/* The rest of path after dir ("torch/optim/"), if dir is at its start or after a slash; otherwise
 * NULL. */
const char *files__after_dir(const char *path, const char *dir);
/* Whether path is name, or ends with a slash and name. */
bool files__is(const char *path, const char *name);
