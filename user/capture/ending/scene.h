/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The memory of a process, of its cgroup and of others when it ends. The file with its own memory
 * is open from the beginning: the kernel answers as long as a thread of the process runs.
 */
#include <stdint.h>
#include <sys/types.h>

struct facts;
struct mt_rec_ending;
struct oom_report;
struct scene;

/* Opens the files of a process. It may have ended. NULL: out of memory. */
struct scene *scene__new(pid_t pid);
void scene__free(struct scene *scene); /* NULL is fine */
/* Reads the process's memory once a second. now: CLOCK_MONOTONIC, ns. */
void scene__tick(struct scene *scene, uint64_t now);
/* Reads all that is still there. Call it at once with each record about a signal that will end the
 * process, and for its end. Readings from before that signal are replaced, and dropped if they are
 * more than 0.1 s older. */
void scene__read(struct scene *scene, const struct mt_rec_ending *record);
/* Takes what the kernel's log says about the OOM killer's reason, if the record does not say it. */
void scene__take_report(struct scene *scene, const struct oom_report *report);
/*
 * Sets the facts end_*, oom_* and cgroup_* (docs/reference/mtr.md). record: how the process ended;
 * NULL: not known. start: the stream's start, CLOCK_MONOTONIC, ns. 0, or the error of facts__set().
 */
int scene__set_facts(const struct scene *scene, struct facts *facts,
		     const struct mt_rec_ending *record, uint64_t start);
