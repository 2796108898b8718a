/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* An output: windows of a process's events (windows.h), by the options of window_argp or by
 * --on-oom. */
#include <stdbool.h>

struct output;
struct recording;

/*
 * Sets r->window_opts and r->until. of_several: of more than one process. -d and --steps bound each
 * window then, and no longer the capture. Returns 0 or an exit code, logged.
 */
int output_windows__prepare(struct recording *r, bool of_several);
/* The constructor, for recording.c; process has the common members. */
struct output *output_windows__new(const struct output *process);
