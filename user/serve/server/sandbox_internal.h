/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include "serve/server/sandbox.h"

/* Creates the Landlock rules while the paths can still be opened. *fd: the caller closes it; -1
 * if the kernel has no Landlock. Returns 0 or -errno. */
int sandbox__make_rules(const struct sandbox_opts *o, int *fd, int *version);
/* Enforces the rules for this process. Returns 0 or -errno. */
int sandbox__enforce_rules(int fd);
/* Enables the seccomp filter for this process. Returns 0 or -errno. */
int sandbox__filter_calls(const struct sandbox_opts *o);
