/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* How the process of a recording ended, from the facts end_*, oom_* and cgroup_*
 * (docs/reference/mtr.md). All text is clean. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct facts;
struct json;

enum ending_reason {
	ENDING_UNKNOWN, /* the process has not ended, or the recorder did not see its end */
	ENDING_GOOD,	/* the process exited with status 0 */
	ENDING_EXIT,	/* the process exited with another status */
	ENDING_SIGNAL,	/* a signal killed the process */
	ENDING_OOM,	/* the kernel's OOM killer killed the process */
};

enum ending_reason ending__reason(const struct facts *f);
/* True for ENDING_SIGNAL and ENDING_OOM. */
bool ending__killed(const struct facts *f);
/* Writes how the process ended, without a full stop: "killed by the kernel's OOM killer at 12.3 s:
 * cgroup limit 2.00 GiB, the process had 1.97 GiB (anonymous 1.90 GiB)". Writes "" for
 * ENDING_UNKNOWN and ENDING_GOOD. buf: 512 bytes. Returns buf. */
char *ending__text(char *buf, size_t size, const struct facts *f);
/* Writes the cgroup's limit and the largest other processes: "cgroup /job: 2.00 GiB used of 2.00
 * GiB; most memory in it: ...". Writes "" if nothing is known. buf: 1 KiB. Returns buf. */
char *ending__others(char *buf, size_t size, const struct facts *f);
/* Writes the member "end" of docs/reference/report.md. Writes nothing for ENDING_UNKNOWN. */
void ending__json(struct json *j, const struct facts *f);
