/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The machine's GPUs, from NVML (nvidia-smi's library). A call into NVML may take milliseconds, or
 * never return if a GPU failed. So one helper process makes the calls for all captures, with no
 * descriptor except its socket and without rights it does not need. Only gpus__wait() blocks, for a
 * bounded time. A helper that is late is killed and not waited for. Use from one thread only.
 */
#include <stdbool.h>
#include <stdint.h>

#define GPUS_MAX 64
#define GPUS_PROCESSES 2048 /* maximum in one answer */

struct gpu {
	char name[96], uuid[96]; /* NUL-terminated; "": not known */
	int minor;		 /* number in /dev/nvidia<minor>; -1: not known */
	bool mig;		 /* multi-instance mode: a process sees another name and total */
	uint64_t total;		 /* bytes available to programs, the host's if the GPU has none of
				    its own; 0: not known */
};

struct gpus_process {
	uint32_t gpu, pid;
	uint64_t used; /* bytes; UINT64_MAX: not known */
};

struct gpus_answer {
	uint64_t begin, end;	 /* CLOCK_MONOTONIC, ns, around the calls */
	uint64_t known;		 /* bit i: all processes of GPU i are listed */
	uint64_t has_free;	 /* bit i: free[i] is known */
	uint64_t free[GPUS_MAX]; /* bytes that no process holds, likewise */
	uint32_t n, pad;
	struct gpus_process process[GPUS_PROCESSES];
};

/* Starts the helper for the first user; the last gpus__close() ends it. */
void gpus__open(void);
void gpus__close(void);
/* Number of GPUs; 0: none, or not known yet. */
unsigned gpus__count(void);
const struct gpu *gpus__get(unsigned i);
/* Requests an answer about the GPUs in mask, with calls that begin at not_before (CLOCK_MONOTONIC,
 * ns) or later. Calls are at least 50 ms apart and take at most a twentieth of the time. */
void gpus__ask(uint64_t mask, uint64_t not_before);
/* The last answer, for all users; NULL: none. Valid until the next call of a function here. */
const struct gpus_answer *gpus__answer(void);
/* Whether the last answer has all GPUs in mask and began at not_before or later. */
bool gpus__answered(uint64_t mask, uint64_t not_before);
/* Waits at most 250 ms for an answer about all GPUs in mask that began at not_before or later.
 * False: none came. */
bool gpus__wait(uint64_t mask, uint64_t not_before);

/* ---- the helper: tools/nvml/helper.c ---- */

#define GPUS_GREETS_WITHIN 30 /* s; NVML may have to wake up the GPUs */
#define GPUS_ANSWERS_WITHIN 5 /* s */

/* Messages. The helper sends a greeting, then an answer to each question. */
struct gpus_greeting {
	uint32_t n; /* number of GPUs; 0: none, for the reason in why */
	char why[160];
	struct gpu gpu[GPUS_MAX];
};

struct gpus_question {
	uint64_t mask;
};
