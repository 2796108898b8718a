/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_OUTPUT_WINDOWS_H
#define MT_SAVE_OUTPUT_WINDOWS_H
/* Only windows of a process's events (windows.h): those of window_argp, or of --on-oom. */
struct output;
struct recording;

/*
 * Makes r->window_opts of the options, and r->until; -d and --steps are of each window then, and
 * not of the capture. 0 or an exit code, logged.
 */
int output_windows__prepare(struct recording *r);
struct output *output_windows__new(const struct output *process); /* as output__new() */

#endif
