/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_NVML_GPUS_H
#define MT_NVML_GPUS_H
/*
 * The machine's GPUs as NVML, the library of nvidia-smi, describes them. A call into NVML may take
 * milliseconds, or never return when a GPU has failed. So one helper process of this process makes
 * the calls, for all captures together: it has no descriptor but its socket and gives up the rights
 * it does not need. Nothing here blocks, except gpus__wait(), which is bounded. A helper that
 * answers late is killed and not waited for. One thread only.
 */
#include <stdbool.h>
#include <stdint.h>

#define GPUS_MAX 64
#define GPUS_PROCESSES 2048 /* in one answer */

struct gpu {
	char name[96], uuid[96]; /* terminated; "" where NVML does not say */
	int minor;		 /* its node is /dev/nvidia<minor>; -1: not known */
	bool mig; /* multi-instance mode: name and total are not those of what a process sees */
	uint64_t total; /* bytes that programs can use; 0: not known */
};

struct gpus_process {
	uint32_t gpu, pid;
	uint64_t used; /* bytes; UINT64_MAX: NVML does not say */
};

struct gpus_answer {
	uint64_t begin, end;	 /* ns of CLOCK_MONOTONIC, around the calls */
	uint64_t known;		 /* by bit: the GPUs whose processes are all listed */
	uint64_t has_free;	 /* by bit: free[] is known */
	uint64_t free[GPUS_MAX]; /* bytes that no process holds */
	uint32_t n, pad;
	struct gpus_process process[GPUS_PROCESSES];
};

/* Starts the helper for the first user; gpus__close() of the last one ends it. */
void gpus__open(void);
void gpus__close(void);
/* How many GPUs there are; 0: not known yet, or none. */
unsigned gpus__count(void);
const struct gpu *gpus__get(unsigned i);
/*
 * Wants an answer about the GPUs of the mask whose calls begin at not_before (ns of CLOCK_MONOTONIC)
 * or later. Calls are made at most every 50 ms, and take at most a twentieth of the time.
 */
void gpus__ask(uint64_t mask, uint64_t not_before);
/* The last answer, for all users; NULL: none. Valid until the next call of any function here. */
const struct gpus_answer *gpus__answer(void);
/* Is it about all GPUs of the mask, and did its calls begin at not_before or later? */
bool gpus__answered(uint64_t mask, uint64_t not_before);
/* Waits for an answer about all GPUs of the mask that begins at not_before or later, at most a
 * quarter of a second. False: none came. */
bool gpus__wait(uint64_t mask, uint64_t not_before);

/* ---- the helper ---- */

#define GPUS_GREETS_WITHIN 30 /* s: NVML may have to wake up the GPUs */
#define GPUS_ANSWERS_WITHIN 5 /* s */
#define GPUS_HELPER                                                                                \
	"gpus-helper" /* the word by which this program is started as the helper, and the PID of   \
			 who starts it */

/* Runs until its standard input, a socket, is closed at the other end, or the parent ends. The exit
 * status. */
int gpus_helper__main(int parent);

/* Messages. The helper sends the greeting once, then an answer for each question. */
struct gpus_greeting {
	uint32_t n; /* 0: none, for the reason in why */
	char why[160];
	struct gpu gpu[GPUS_MAX];
};

struct gpus_question {
	uint64_t mask;
};

#endif
