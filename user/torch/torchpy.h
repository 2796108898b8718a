/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_TORCHPY_H
#define MT_TORCH_TORCHPY_H
/* Functions of PyTorch that no symbol names but that its Python objects point to. */
#include <stdint.h>

struct python;

#define TORCHPY_SCOPE_EXIT "torch._C.DisableTorchFunctionSubclass.__exit__"

/*
 * The C function behind torch._C.DisableTorchFunctionSubclass.__exit__: record_function.__exit__
 * calls it last (torch/autograd/profiler.py, 2.1 to 2.15), and an optimizer's step is wrapped in a
 * record_function, so a call of it from there is the end of a step. Called for little else, unlike
 * at::RecordFunction::end(), which every autograd node passes through. 0; -ENOENT while torch is
 * not imported; -EBADMSG, -EFAULT.
 */
int torchpy__scope_exit(const struct python *py, uint64_t *addr);

#endif
