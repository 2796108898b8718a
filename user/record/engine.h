/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Recognizes the PyTorch functions that start the autograd engine. Frames called by such a function
 * run in backward. */
#include <stdbool.h>

/* True for torch/autograd/{graph,__init__}.py and torch/_tensor.py, the files with such
 * functions. */
bool engine__is_file(const char *path);
/* True if this function starts the engine. From Python 3.11 on, names are qualified
 * ("Tensor.backward"). */
bool engine__starts(const char *path, const char *func);
