/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Properties of devices. */
#include <stddef.h>
#include <stdint.h>

#define DRYRUN_PCI_BUS(device) ((device) + 1)

/* Properties of a device kind, by compute capability. Sizes in bytes. */
struct arch {
	int major, minor;
	int processors, threads, blocks;    /* multiprocessors; threads and blocks of each */
	int shared, shared_block, reserved; /* shared memory: all, most, reserved per block */
	int l2, bus_width, clock_khz, memory_khz;
};

const struct arch *props__arch(void);
/* Number of multiprocessors: from the environment, or of the device kind. */
int props__processors(void);
/* An attribute of the runtime and the driver. Unknown ones are 0 and logged. */
int props__attribute(int attribute, int device);
/* Writes a PCI bus id, such as "0000:01:00.0". */
void props__bus_id(int device, char *text, size_t size);
void props__uuid(int device, unsigned char uuid[16]);
/* Fills cudaDeviceProp in the layout of the runtime version. */
void props__fill(void *prop, int device, int runtime_major);
