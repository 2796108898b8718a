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
	ENDING_UNKNOWN, /* it has not ended, or its end was not seen */
	ENDING_GOOD,	/* it exited with status 0 */
	ENDING_EXIT,	/* it exited with another status */
	ENDING_SIGNAL,
	ENDING_OOM, /* the kernel's OOM killer */
};

enum ending_reason ending__reason(const struct facts *f);
/* True if a signal ended it. */
bool ending__killed(const struct facts *f);
/* One sentence without a full stop: "killed by the kernel's OOM killer at 12.3 s: cgroup limit 2.00
 * GiB, the process had 1.97 GiB (anonymous 1.90 GiB)". "" for ENDING_UNKNOWN and ENDING_GOOD. buf:
 * 512 bytes. Returns buf. */
char *ending__text(char *buf, size_t size, const struct facts *f);
/* Limits and other processes: "cgroup /job: 2.00 GiB of 2.00 GiB ...; most memory in it: ...". ""
 * if nothing is known. buf: 1 KiB. Returns buf. */
char *ending__others(char *buf, size_t size, const struct facts *f);
/* Writes the object "end" (docs/reference/report.md), or nothing if nothing is known. */
void ending__json(struct json *j, const struct facts *f);
