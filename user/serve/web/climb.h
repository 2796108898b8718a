/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The growth of a process that is watched from outside, judged as `leaks` judges a line. */
#include <jansson.h>

struct state_process;

/* The member "growth" of a sample: docs/reference/http.md has its keys. A new reference. NULL: no
 * figures yet. */
json_t *climb__of_process(const struct state_process *p);
