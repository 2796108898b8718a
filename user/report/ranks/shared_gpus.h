/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * GPUs with memory of several recorded processes, such as a trainer and an inference
 * engine. Recordings are of one GPU if they name the same UUID and host. Their clocks give one
 * moment: that of the process with the most memory at its own moment. The other recordings are read
 * again at that moment.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/model.h"

struct analysis;
struct json;
struct ranks;
struct report_text_opts;

/* What is known of a process at the GPU's moment. */
enum gpu_state {
	GPU_READ,	 /* its memory */
	GPU_NOT_BEGUN,	 /* the recording begins later, or with the process */
	GPU_ENDED,	 /* the process had ended */
	GPU_NOT_COVERED, /* the recording ended earlier */
	GPU_NO_CLOCK,	 /* the recording does not have the time of its begin */
	GPU_NOT_AGAIN,	 /* the recording could not be read a second time */
};

/* Use of a GPU by a recording. */
#define RECORDING_NONE UINT32_MAX

struct gpu_use {
	char *uuid, *host, *name; /* name of the recording; host NULL: unknown */
	char device[16];	  /* name in the process: "cuda:0" */
	char gpu[96];		  /* name of the GPU, clean; "": unknown */
	uint64_t total;		  /* bytes of the GPU; 0: unknown */
	uint32_t path;		  /* index of the path of the recording */
	uint32_t recording;	  /* as rank.added; RECORDING_NONE: not in the report */
	uint64_t pid, started;	  /* started as in struct process_id; 0: unknown */
	/* Clock: at `zero` (ns since 1970) the recording's time was 0; how far the clock was moved
	 * until the end, ns. */
	bool has_clock;
	uint64_t zero, moved;
	uint64_t begin, end; /* ns; the recording knows the state between them */
	bool exited;	     /* it ended with the process */
	bool marked;	     /* the device reached the report's moment; then: */
	uint64_t mark_time, mark_event, mark_allocated;
	/* Valid after shared_gpus__finish(). */
	enum gpu_state state;
	uint64_t time;		   /* the GPU's moment in the recording, ns; with GPU_READ */
	uint64_t allocated;	   /* the next members: with GPU_READ */
	enum figure is;		   /* exactness of allocated */
	bool has_reserved;	   /* the allocator reports it */
	uint64_t reserved, asleep; /* asleep: part of reserved without memory on the GPU */
	bool driver_known;
	uint64_t driver; /* bytes that the driver counts for the process */
};

struct shared_gpu {
	uint32_t first, n; /* range of uses: one for each process, the largest first */
	bool has_moment;
	uint64_t moment; /* ns since 1970 */
	uint32_t leader; /* index of the use whose moment it is */
	uint64_t moved;	 /* largest gpu_use.moved: the moments may differ by so much */
};

struct shared_gpus {
	struct gpu_use *uses;
	size_t n_uses, room;
	struct shared_gpu *all; /* GPUs with several processes; valid after shared_gpus__finish() */
	size_t n;
};

/* Notes the accelerators that a recording uses. path, recording: as in struct gpu_use. Returns 0 or
 * -ENOMEM. */
int shared_gpus__add(struct shared_gpus *c, const struct analysis *a, uint32_t path,
		     uint32_t recording);
/* The same for a recording that does not have the report's moment. Reads the file. host: as in
 * struct analysis. Prints no message. */
int shared_gpus__add_unmarked(struct shared_gpus *c, const char *file, const char *host,
			      uint32_t path);
/* Finds GPUs with several processes, and reads these processes' recordings again. device: only
 * GPUs with this name in a recording; NULL: all. Returns 0 or -ENOMEM. */
int shared_gpus__finish(struct shared_gpus *c, char *const *paths, const char *device);
void shared_gpus__free(struct shared_gpus *c);
/* Prints a bar for each process of each GPU. Nothing without such a GPU. Returns 0 or -ENOMEM. */
int shared_gpus__text(FILE *out, const struct shared_gpus *c, const struct report_text_opts *o);
/* Writes "GPUs"; nothing without such a GPU. */
void shared_gpus__json(struct json *j, const struct shared_gpus *c, const struct ranks *r);
