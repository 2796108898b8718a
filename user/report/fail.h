/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_REPORT_FAIL_H
#define MT_REPORT_FAIL_H
/*
 * --fail-if: conditions (cond.h) on recordings, judged while a report is made of them; what holds
 * is said on standard error with the lines that are to blame, and makes the exit code EXIT_HELD.
 *
 * Figures are those of the report's moment; peaks, counts and step_time of the whole recording;
 * growth is the most that there was over any such window. What was there before the second step
 * ended counts for no growth. What cannot be known, be it because events were lost, is an error.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "archive/analysis.h"
#include "cond/cond.h"
#include "model/model.h"
#include "report/blame.h"

struct json;
struct report_fail;

struct failing { /* a condition, of one device of one recording */
	const char *condition;
	struct cond_result result;
	char *recording;
	char *device; /* NULL: it is of the whole recording, or there is none */
	char *cwd;    /* NULL: not known */
	bool has_rank;
	bool empty; /* the recording has no event, as that of a launcher has none */
	uint64_t rank;
	struct blame blame; /* of what holds */
};

struct report_fail *report_fail__new(void);    /* NULL on ENOMEM */
void report_fail__free(struct report_fail *f); /* NULL is fine */
/* One more condition. 0; -EINVAL: *why says what is wrong, for free(); -ENOMEM. text must outlive
 * f. */
int report_fail__add(struct report_fail *f, const char *text, char **why);

/* Before a recording is run: what conditions need to be watched. 0 or -ENOMEM. */
int report_fail__begin(struct report_fail *f, struct analysis *a);
/* For analysis__run(); ctx is the struct report_fail. */
int report_fail__event(void *ctx, const struct event *e);
/*
 * After it: judges all, of one device (its index) or, with -1, of each but the CPU, or the CPU if
 * there is nothing else. at: of what moment the model is. 0 or -ENOMEM.
 */
int report_fail__judge(struct report_fail *f, struct analysis *a, int device,
		       const struct model_opts *at, bool innermost);

/* So far, in the order of recordings. */
size_t report_fail__count(const struct report_fail *f);
const struct failing *report_fail__at(const struct report_fail *f, size_t i);
/* "failed": those from the i-th on, into the open object. */
void report_fail__json(struct json *j, const struct report_fail *f, size_t from);
/*
 * Says what holds and what cannot be judged on standard error. Returns the exit code: status, or
 * what is worse. Recordings without events are no failure beside others that have some.
 */
int report_fail__say(const struct report_fail *f, int status);

#endif
