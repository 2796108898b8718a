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
	/* Only files__kind() returns this: code in no file ("<string>"), or in a file that a
	   program wrote and whose name does not say which program ("/tmp/tmp89gz6hgy.py"). */
	FILE_GENERATED,
};

/* Judges where a source file is from. facts: has "stdlib", the folder of the target's standard
 * library; may be NULL. */
enum file_origin files__origin(const char *path, const struct facts *facts);
/* As files__origin(), but returns FILE_GENERATED for generated code that files__origin() counts as
 * the user's. The frames around it show whose it is: docs/reference/report.md, "Lines". */
enum file_origin files__kind(const char *path, const struct facts *facts);
/* Finds a notebook's cell in the path of its code: the number "7" in "<cell 7>" and in
 * "<ipython-input-7-5dc3>", the hash "3425228602" in "/tmp/ipykernel_77/3425228602.py". Returns its
 * start within path and sets *len to its length. NULL: path is not the code of a cell. */
const char *files__cell(const char *path, size_t *len);
/* Writes the name of a library's generated file with "*" for the characters that differ from run to
 * run: ".../torch_geometric.nn.conv.sage_conv_SAGEConv_propagate_*.py". Returns false if path has
 * no such characters. */
bool files__stable(const char *path, char *buf, size_t size);
/* True if the program was given on the command line, as python -c TEXT, and TEXT has the name of
 * this function. func: its qualified name. A name such as "<module>", which no text can have,
 * counts as found. */
bool files__in_command(const struct facts *facts, const char *func);
/* Returns the rest of path after dir, such as "torch/optim/", if dir is at the start of path or
 * after a slash; otherwise NULL. */
const char *files__after_dir(const char *path, const char *dir);
/* True if path is equal to name, or ends in a slash and name. */
bool files__is(const char *path, const char *name);

/* True for PyTorch's files whose functions start the autograd engine:
 * torch/autograd/{graph,__init__}.py and torch/_tensor.py. */
bool files__has_engine(const char *path);
/* True if this function starts the autograd engine, so that the frames that it calls run in
 * backward. func: its plain name, or from Python 3.11 on its qualified name ("Tensor.backward"). */
bool files__starts_engine(const char *path, const char *func);
