/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* IPython's own objects, read from outside. */
#include <stdint.h>

struct python;

/*
 * Number of the notebook cell whose code is in this file: "7" of "In [7]". IPython 8 and newer keep
 * it in InteractiveShell._instance.compile._filename_map (IPython/core/compilerop.py). A cell that
 * ran again has its last number. 0, or as the functions of pyobj.h.
 */
int ipython__cell(const struct python *py, const char *file, uint64_t *ret);
