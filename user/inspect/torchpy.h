/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Functions of PyTorch without a symbol, found through its Python objects. */
#include <stdint.h>

struct python;

#define TORCHPY_SCOPE_EXIT "torch._C.DisableTorchFunctionSubclass.__exit__"

/*
 * Address of the C function of torch._C.DisableTorchFunctionSubclass.__exit__, which
 * record_function.__exit__ calls last (torch/autograd/profiler.py, 2.1 to 2.15). An optimizer's
 * step runs in a record_function, so this call marks its end. It is called rarely, unlike
 * at::RecordFunction::end(). 0; -ENOENT: torch is not imported; -EBADMSG, -EFAULT.
 */
int torchpy__scope_exit(const struct python *py, uint64_t *addr);
