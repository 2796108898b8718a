/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Public JSON of the server's state. Each function returns a new reference. */
#include <jansson.h>

struct state_process;
struct state_trace;

/* The public facts of a trace. */
json_t *state_public__trace(const struct state_trace *t);
/* The public facts of a process, without its last figures. */
json_t *state_public__process(const struct state_process *p);
/* The public facts of a process with its last figures. */
json_t *state_public__process_now(const struct state_process *p);

/* The growth of a process that is watched from outside, judged as `leaks` judges a line. */

struct state_process;

/* The member "growth" of a sample: docs/reference/http.md has its keys. A new reference. NULL: no
 * figures yet. */
json_t *state_public__climb(const struct state_process *p);
