/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The allocator's calls for device memory, intercepted before the dry run. Sizes in bytes. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Gives this address to the allocator's next call for this size, if the address is free. */
void device__place(uint64_t addr, uint64_t size);
/* The allocator's cudaMalloc calls: those not freed yet, and all. */
uint64_t device__segments(void);
uint64_t device__takes(void);

/* Takes memory for other users of the device. False: not enough memory. */
bool device__take(uint64_t size, void **ret);
void device__give(void *ptr);

/* Creates a stream. */
bool device__stream(void **ret);

/* Takes all remaining memory. ptr: array of DEVICE_PIECES. Returns the number of pieces. */
#define DEVICE_PIECES 256
size_t device__fill(void **ptr);

/* Bytes in use on the device by all users, and the number of failed allocations of any kind. */
uint64_t device__used(void);
uint64_t device__refused(void);
