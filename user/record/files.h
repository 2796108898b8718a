/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Origin of a source file, judged by the path in its code objects, and PyTorch's files that start
 * its autograd engine. */
#include <stdbool.h>
#include <stddef.h>

struct facts;

enum file_origin {
	FILE_USER,
	FILE_TORCH,   /* PyTorch's files, and code that it generates */
	FILE_PACKAGE, /* installed packages, and code that they generate */
	FILE_STDLIB,
	/* In files__kind() only: code in no file, or in one that a program wrote, whose name does
	 * not say who made it: "<string>", "/tmp/tmp89gz6hgy.py". */
	FILE_GENERATED,
};

/* facts: "stdlib" is the folder of the target's standard library; may be NULL. */
enum file_origin files__origin(const char *path, const struct facts *facts);
/* The same, or FILE_GENERATED: the frames around it say whose it is, see
 * docs/reference/report.md, "Lines". Others count it as the user's. */
enum file_origin files__kind(const char *path, const struct facts *facts);
/* The cell of a notebook that path is the code of, and its length: "7" of "<cell 7>" and of
 * "<ipython-input-7-5dc3>", otherwise a hash: "3425228602" of "/tmp/ipykernel_77/3425228602.py".
 * NULL: none. */
const char *files__cell(const char *path, size_t *len);
/* Writes the name of a library's generated file without what differs from run to run:
 * ".../torch_geometric.nn.conv.sage_conv_SAGEConv_propagate_*.py". False: path keeps its name. */
bool files__stable(const char *path, char *buf, size_t size);
/* Whether the program is given on the command line, python -c TEXT, and has this function. func: a
 * qualified name. A name without a part that the text can have, such as "<module>", is in it. */
bool files__in_command(const struct facts *facts, const char *func);
/* The rest of path after dir ("torch/optim/"), if dir is at its start or after a slash; otherwise
 * NULL. */
const char *files__after_dir(const char *path, const char *dir);
/* Whether path is name, or ends with a slash and name. */
bool files__is(const char *path, const char *name);

/* True for torch/autograd/{graph,__init__}.py and torch/_tensor.py, the files with such
 * functions. */
bool files__has_engine(const char *path);
/* True if this function starts the autograd engine: frames that it calls run in backward. From
 * Python 3.11 on, names are qualified
 * ("Tensor.backward"). */
bool files__starts_engine(const char *path, const char *func);
