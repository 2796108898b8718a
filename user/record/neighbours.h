/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Other processes that had memory on a device when an allocation failed, or when the recorded
 * process ended badly. They are in facts: "neighbours.0" to "neighbours.15" for the first eight
 * failures and the last eight, "neighbours.end.<device>" for the end. A value has lines:
 *
 *   TIME DEVICE READ ALL
 *   PID BYTES UID <tab> USER <tab> COMMAND <tab> CONTAINER
 * TIME: the failure's. READ: time of the question to the driver. Both are ns since start. ALL:
 * number of other processes. The largest have lines. BYTES and UID "?": not known.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

#define NEIGHBOURS_FACTS 16 /* failures that a recording keeps */
#define NEIGHBOURS_MAX 32   /* processes of one failure */

struct neighbour {
	uint32_t pid;
	bool bytes_known, uid_known;
	uint64_t bytes; /* on the device, by the driver */
	uint32_t uid;
	/* Hostile texts; "": not known. command: without the program's folder. */
	const char *user, *command, *container;
};

struct neighbours {
	struct neighbour v[NEIGHBOURS_MAX]; /* the largest first */
	size_t n;
	uint64_t all;  /* number of other processes, at least n */
	uint64_t read; /* time of the question to the driver, ns since start */
	char *text;    /* owned; all texts are in it */
};

#define NEIGHBOURS_AT_END UINT64_MAX

/* Sets the fact for the number-th failure on a CUDA device, from 0, at `time`, or with
 * NEIGHBOURS_AT_END for the end of the process. Texts are cut, and lose tabs and ends of lines. 0
 * or -errno, as facts__set(). */
int neighbours__add(struct facts *f, uint64_t number, uint64_t time, unsigned device,
		    const struct neighbours *v);
/* Finds the processes of the failure on this device at this time. False: not recorded, or memory is
 * short. Then *ret is empty. neighbours__free() must follow. */
bool neighbours__read(const struct facts *f, uint64_t time, struct device device,
		      struct neighbours *ret);
/* As neighbours__read(), for the end of the process. */
bool neighbours__read_end(const struct facts *f, struct device device, struct neighbours *ret);
void neighbours__free(struct neighbours *n); /* frees the contents */
