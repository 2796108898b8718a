/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Public JSON of the server's state. Each function returns a new reference. */
#include <jansson.h>

struct state_process;
struct state_trace;

/* The public facts of a trace. */
json_t *state_public__trace(const struct state_trace *t);
/* PID, start time, target and name of a process, and what else is known of its identity. */
json_t *state_public__process(const struct state_process *p);
/* Like state_public__process(), with the process's last figures and its growth. */
json_t *state_public__process_now(const struct state_process *p);

/* The growth of a process that is watched from outside, judged as `leaks` judges a line: the member
 * "growth" of a sample, whose keys docs/reference/http.md lists. NULL: no figures yet. */
json_t *state_public__growth(const struct state_process *p);
