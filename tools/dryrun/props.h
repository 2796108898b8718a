/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* What a device says of itself. */
#include <stddef.h>
#include <stdint.h>

#define DRYRUN_PCI_BUS(device) ((device) + 1)

/* What a kind of device (by its compute capability) has. Sizes in bytes. */
struct arch {
	int major, minor;
	int processors, threads, blocks;    /* multiprocessors; of each: threads, blocks */
	int shared, shared_block, reserved; /* shared memory of a multiprocessor, of one block that
					       asks for it, taken from each block */
	int l2, bus_width, clock_khz, memory_khz;
};

const struct arch *props__arch(void);
/* Multiprocessors: what the environment says, or that kind's. */
int props__processors(void);
/* The runtime's and the driver's attribute; those that are not known are 0 and are noted. */
int props__attribute(int attribute, int device);
/* "0000:01:00.0" */
void props__bus_id(int device, char *text, size_t size);
void props__uuid(int device, unsigned char uuid[16]);
/* Fills cudaDeviceProp in the layout of that runtime. */
void props__fill(void *prop, int device, int runtime_major);
