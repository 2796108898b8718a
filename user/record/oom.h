/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * What is recorded about an allocation that failed. Texts are hostile.
 *
 * ---- tensors ----
 *
 * The tensors that were local variables of the frames of an allocation that failed. They are in
 * facts: "oom.0" to "oom.15" for the first eight such events and the last eight. A value has lines:
 *
 *   TIME
 *   DEPTH LINE IMPL BYTES STORAGE TYPE INDEX NDIM SIZES <tab> DTYPE <tab> NAME <tab> FUNCTION <tab>
 *   FILE
 * SIZES are joined by commas; "-": none; "?": not known.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

#define OOM_FACTS 16	/* failures that a recording keeps: with tensors, with processes */
#define OOM_TENSORS 64	/* tensors of one event */
#define OOM_DIMS 8	/* sizes that are kept; a tensor may have more dimensions */
#define OOM_MAX_DIMS 64 /* as PyTorch */

struct oom_tensor {
	uint64_t impl;	  /* address of the TensorImpl: two variables may have one tensor */
	uint64_t bytes;	  /* bytes of its elements; 0: none, or the dtype is unknown */
	uint64_t storage; /* bytes of the storage that it is in; 0: none, or not known */
	uint32_t depth;	  /* number of frames inside of that of the variable */
	uint32_t line;	  /* line of the frame; 0: unknown */
	uint32_t order;	  /* set by oom__read(): arguments come first, then other variables */
	struct device device;
	bool sized;   /* the shape is known */
	uint8_t ndim; /* at most OOM_MAX_DIMS */
	uint64_t shape[OOM_DIMS];
	const char *dtype;	 /* "bfloat16"; hostile, as all texts here */
	const char *name;	 /* name of the variable */
	const char *func, *file; /* places of the frame: "" if unknown */
};

struct oom_tensors {
	struct oom_tensor v[OOM_TENSORS];
	size_t n;
	char *text; /* owned; all texts are in it */
};

/* Sets the fact for the number-th event with tensors, from 0, at `time` (ns since start). Texts are
 * cut, and lose tabs and ends of lines. At most OOM_TENSORS are kept. 0 or -errno, as
 * facts__set(). */
int oom__add(struct facts *f, uint64_t number, uint64_t time, const struct oom_tensor *v, size_t n);
/* Finds the tensors of the event at this time. None: *ret is empty. 0 or -ENOMEM; oom__free() must
 * follow. */
int oom__read(const struct facts *f, uint64_t time, struct oom_tensors *ret);
void oom__free(struct oom_tensors *t); /* frees the contents */

/*
 * ---- other processes ----
 *
 * Other processes that had memory on a device when an allocation failed, or when the recorded
 * process ended badly. They are in facts: "neighbours.0" to "neighbours.15" for the first eight
 * failures and the last eight, "neighbours.end.<device>" for the end. A value has lines:
 *
 *   TIME DEVICE READ ALL
 *   PID BYTES UID <tab> USER <tab> COMMAND <tab> CONTAINER
 * TIME: the failure's. READ: time of the question to the driver. Both are ns since start. ALL:
 * number of other processes. The largest have lines. BYTES and UID "?": not known.
 */

#define NEIGHBOURS_MAX 32 /* processes of one failure */

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
