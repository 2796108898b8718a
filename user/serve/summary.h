/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_SUMMARY_H
#define MT_SERVE_SUMMARY_H
/* What a trace came to, of the document of `report --format json`. */
#include <jansson.h>

#define SUMMARY_REPORT (64 << 20) /* bytes of such a document at most */
#define SUMMARY_ROWS 50		  /* of the report's that are kept, the largest */

/* Reads all of fd as such a document; fd stays open. NULL with errno: EPROTO (none), EFBIG, that of
 * reading. */
json_t *summary__read(int fd);
/*
 * What POST /api/trace/memory answers: of the trace (facts: what the broker told of it) and its
 * report. NULL: the report is none. A figure that it does not have is null.
 */
json_t *summary__make(const json_t *facts, const json_t *report);
/* The figures that are kept of a report: devices, capture, categories, phases, the first rows.
 * NULL: no memory. */
json_t *summary__figures(const json_t *report);
/* The part of a summary that is told of each trace wherever it is listed: all but its layers. A new
 * reference. */
json_t *summary__short(const json_t *summary);

#endif
