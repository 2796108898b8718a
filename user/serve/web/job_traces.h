/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Traces that belong together. A job is a target, or the folder of recordings on the command line. */
#include <jansson.h>

#include "serve/server/state.h"

/*
 * IDs of the finished traces of a job (NULL: of each), oldest first. Traces of a rank that ended
 * before a later trace of the same rank and job began are left out, and so are traces that were
 * made for a profile. NULL: no memory.
 */
json_t *job_traces__last(const struct state *s, const char *job);
