/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Lines of libraries that share the memory of one line of the user's code, such as vLLM's below the
 * call of `LLM(...)`. */
#include <stdio.h>

#include "model/model.h"

/* Prints the innermost lines of the stacks that are charged to the line of `of`, largest first,
 * five at most, this many columns wide. of_rows: how the row was made. Prints nothing if all are
 * that line itself. 0 or -ENOMEM. */
int library_lines__print(FILE *out, const struct model *m, size_t device,
			 const struct row_opts *of_rows, const struct row *of, const char *cwd,
			 size_t columns);
