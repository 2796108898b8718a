/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The allocator's calls for device memory, seen on their way to the dry run. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The allocator's next call for so much is answered with this address, where it is free. */
void device__place(uint64_t addr, uint64_t size);
/* cudaMallocs of the allocator: not given back, and in all. */
uint64_t device__segments(void);
uint64_t device__takes(void);

/* Memory that is taken by others. False: there is no room. */
bool device__take(uint64_t size, void **ret);
void device__give(void *ptr);

/* A stream of its own. */
bool device__stream(void **ret);

/* Takes all that is left, in as many pieces as that takes; ptr: DEVICE_PIECES of them. How many it
 * took. */
#define DEVICE_PIECES 256
size_t device__fill(void **ptr);

/* What the device has taken from it, by whomever, and how often it had no room, in whichever way it
 * was asked. */
uint64_t device__used(void);
uint64_t device__refused(void);
