/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A look at this host's GPUs: for each, a table of all that hold its memory. For ps --device, check
 * and estimate --here. NVML's helper process answers within a bounded time or is given up.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/gpu_holders.h"

struct ps;

struct gpu_look {
	/* Set by gpu_look__new(); the caller may change them. */
	unsigned within; /* ms for the driver to name its GPUs; at first it may have to wake them */
	uint64_t idle;	 /* a process that gave a GPU no work for so long is unusual, ns */
	/* Set by gpu_look__read(). */
	struct ps *ps; /* processes with PyTorch; NULL: not read */
	struct holder_processes *processes;
	struct holder_torch *torch;
	size_t n_torch;
	const struct gpus_answer *answer; /* the driver's; NULL: none */
	char why[200];			  /* why there is no answer */
	unsigned n;		      /* number of GPUs, by the driver or by open device nodes */
	bool by_driver;		      /* the driver named them: gpus__get() is valid below n */
	uint64_t monotonic, boottime; /* time of the look, ns */
	bool stopped;		      /* the helper process has ended */
	struct subprocess_lost lost;  /* of gpu_look__read() */
	struct gpu_table table[GPUS_MAX]; /* those below n are filled */
};

/* Starts NVML's helper process. torch: gpu_look__read() also reads PyTorch's figures, for about a
 * second. NULL: no memory. */
struct gpu_look *gpu_look__new(bool torch);
void gpu_look__free(struct gpu_look *l); /* NULL is fine */
/* Reads all, as holder_processes__read(). 0 or -errno. */
int gpu_look__read(struct gpu_look *l);
/* Ends NVML's helper process. The tables stay valid, the answer does not. */
void gpu_look__stop(struct gpu_look *l);

/* Writes who holds a GPU's memory: the largest processes, the driver's reserve, and the rest. The
 * text is clean. slice: only the processes in this GPU instance; GPUS_NO_SLICE: all. "": nobody.
 * Returns buf. */
char *gpu_look__say_holders(const struct gpu_table *t, uint32_t slice, char *buf, size_t size);
/* Number of rows with memory that are probably left over. */
size_t gpu_look__left_over(const struct gpu_table *t);
