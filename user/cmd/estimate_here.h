/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* estimate --here: the script's devices are GPUs of this host, with what is free on them now. */
#include <stddef.h>
#include <stdint.h>

#include "estimate/estimate.h"

struct gpu_look;

struct estimate_here_gpus {
	struct estimate_here here;
	uint64_t held[DRYRUN_DEVICES_MAX]; /* for dryrun_args.held */
	struct gpu_look *look;		   /* owns the tables of `here` */
};

/*
 * Sets the device, its memory and a->here from the GPUs that CUDA would show a program that is
 * started now. n: number of the script's devices; 0: all GPUs. ret must stay valid as long as *a.
 * Returns 0, or an exit code after a message, also if the driver tells no free memory.
 */
int estimate_here__read(struct estimate_here_gpus *ret, struct estimate_args *a, unsigned n);
/* Frees what estimate_here__read() has filled; without effect on zeros. */
void estimate_here__free(struct estimate_here_gpus *h);
