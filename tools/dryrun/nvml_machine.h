/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * NVML's view of the machine besides this process. Each query reads the file
 * MEMTRACE_DRYRUN_NVML again, so a test can change it during a run. One directive per line:
 *
 *     process DEVICE PID BYTES [graphics|mps|both] [slice=N] [worked=SECONDS]
 *                                memory of a process on the device; BYTES -: not known. It
 *                                computes, unless a word says otherwise. worked: seconds since its
 *                                last work
 *     more DEVICE BYTES          memory in use that no listed process holds
 *     minor DEVICE NUMBER        node /dev/nvidiaNUMBER; default: DEVICE
 *     mig DEVICE 0|1             multi-instance GPU mode
 *     slice DEVICE N BYTES       a slice of it, with this total. The device must be asked by slice
 *     vgpu DEVICE BYTES          a virtual GPU, whose profile limits its total memory
 *     reserved DEVICE BYTES      memory reserved by the driver
 *     delay MILLISECONDS         duration of queries for memory or processes
 *     hang                       such queries never return
 *     no_v2                      a driver without nvmlDeviceGetMemoryInfo_v2
 *     no_processes               a driver that lists no processes, as in a virtual machine's vGPU
 *     no_memory                  GPUs without memory of their own, as GB10: no figures of devices
 *
 * Devices are numbered from 0. BYTES may have a unit (40G).
 */
#include "dryrun.h"

#define MACHINE_PROCESSES 64
#define MACHINE_SLICES 8 /* of a device */

enum { MACHINE_COMPUTE = 1, MACHINE_GRAPHICS = 2, MACHINE_MPS = 4 };

struct machine {
	struct {
		unsigned int minor, mig;
		uint64_t reserved, more;
		uint64_t vgpu; /* limit of the profile; 0: no virtual GPU */
		struct {
			unsigned int number;
			uint64_t total;
		} slice[MACHINE_SLICES];
		unsigned int n_slices;
	} device[DRYRUN_MAX_DEVICES];
	struct {
		int device;
		unsigned int pid, kinds;
		uint64_t used;	    /* UINT64_MAX: not known */
		unsigned int slice; /* UINT32_MAX: none */
		bool worked;	    /* `ago` is known */
		unsigned int ago;   /* s since its last work */
	} process[MACHINE_PROCESSES];
	unsigned int n_processes, delay_ms;
	bool hang, no_v2, no_memory, no_processes;
};

/* False: the file is unreadable or has an invalid line. Without the variable, sets the defaults. */
bool machine__read(struct machine *m);
/* Waits for the configured delay, or for ever. */
void machine__wait(const struct machine *m);
