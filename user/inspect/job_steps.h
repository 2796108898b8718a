/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Which step of the job the recorded steps are. Optimizers such as Adam count their steps
 * themselves, and checkpoints keep the count. The count minus the recorded steps that have ended by
 * then is the same at each moment, apart from a reading between the count's increment and the end
 * of that step: it is one too high. So the smaller of two neighbours is right.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct census_optimizer;
struct job_steps;
struct proc;

struct job_steps *job_steps__new(void); /* NULL: out of memory */
void job_steps__free(struct job_steps *j);

/*
 * Parses an element of a tensor that holds a count; dtype: c10::ScalarType, raw: 8 bytes of the
 * target, hostile. False if it is no count: not whole, negative, or so large that adding 1 does not
 * change it; or another dtype.
 */
bool job_steps__parse(uint8_t dtype, const void *raw, uint64_t *ret);
/* Bytes of an element of a dtype that job_steps__parse() knows; 0: another dtype. */
unsigned job_steps__item(uint8_t dtype);

/* All times are ns of one clock. A recorded step has ended. Ends come in order, but not at once: a
 * reading waits until a later end, or job_steps__settle(). */
void job_steps__ended(struct job_steps *j, uint64_t time);
/* Ends of steps were lost, so numbers of later steps are not known. */
void job_steps__lost(struct job_steps *j);
/* A reading of the optimizers, of which there are n in the process. Copies v. */
void job_steps__read(struct job_steps *j, const struct census_optimizer *v, size_t n);
/* True if it is time for a look: after the end of a step, and at times that double. now: of that
 * clock. */
bool job_steps__is_due(const struct job_steps *j, uint64_t now);
/* True if there is something to look at, and there were few readings so far. */
bool job_steps__has_few(const struct job_steps *j);
/* Reads the counts of the last reading once more, a few words of p's memory; clock: the one of all
 * times. */
void job_steps__look(struct job_steps *j, const struct proc *p, uint64_t (*clock)(void *ctx),
		     void *ctx);
/* All ends of steps before the readings so far have come. */
void job_steps__settle(struct job_steps *j);

/* The job's number of the first recorded step that ended, from 1 on as the optimizer counts. False:
 * *why (static text) says why it is not known. */
bool job_steps__first(const struct job_steps *j, uint64_t *ret, const char **why);
