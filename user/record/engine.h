/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_ENGINE_H
#define MT_RECORD_ENGINE_H
/* Which functions of PyTorch's start the autograd engine: what is below them on a stack runs in
 * backward. */
#include <stdbool.h>

/* torch/autograd/{graph,__init__}.py, torch/_tensor.py: files with such functions */
bool engine__is_file(const char *path);
/* Is this one of them? Names are qualified from Python 3.11 on ("Tensor.backward"). */
bool engine__starts(const char *path, const char *func);

#endif
