/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* CUDA's figures of the memory that GPUs share with the host, for the helper process. */
#include <stdbool.h>

#include "inspect/nvml.h"

/* Loads libcuda. False: a->why has the reason. */
bool cuda_memory__load(struct gpus_cuda *a);
/* Fills *a. A question takes a CUDA context on the device, and gives it back. */
void cuda_memory__read(struct gpus_cuda *a);
