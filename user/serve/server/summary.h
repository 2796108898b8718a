/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Results of a trace, made from the output of `report --format json`. */
#include <jansson.h>

#define SUMMARY_REPORT (64 << 20) /* largest report, in bytes */
#define SUMMARY_ROWS 50		  /* number of report rows kept, the largest ones */
#define SUMMARY_PARTS 16	  /* parts of host memory kept from a report, at most */

/* Parses a report from fd; fd stays open. Returns NULL with errno: EPROTO (not a report), EFBIG,
 * or a read error. */
json_t *summary__read(int fd);
/* The answer of POST /api/trace/memory. facts: the broker's description of the trace. Unknown
 * figures are null. Returns NULL if the members of a report are missing in `report`. */
json_t *summary__make(const json_t *facts, const json_t *report);
/* The parts of a report that are kept: devices, capture, categories, phases, the first rows, and
 * host_parts: the known parts of RSS at its highest reading, in bytes. NULL: no memory. */
json_t *summary__figures(const json_t *report);
/* A summary without its layers, for lists of traces. A new reference. */
json_t *summary__short(const json_t *summary);
