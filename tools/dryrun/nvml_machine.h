/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * NVML's view of the machine besides this process. Each query reads the file
 * MEMTRACE_DRYRUN_NVML again, so a test can change it during a run. One directive per line:
 *
 *     process DEVICE PID BYTES   memory of a process on the device
 *     minor DEVICE NUMBER        node /dev/nvidiaNUMBER; default: DEVICE
 *     mig DEVICE 0|1             multi-instance GPU mode
 *     reserved DEVICE BYTES      memory reserved by the driver
 *     delay MILLISECONDS         duration of queries for memory or processes
 *     hang                       such queries never return
 *     no_v2                      a driver without nvmlDeviceGetMemoryInfo_v2
 *     no_memory                  GPUs without memory of their own, as GB10: no figures of devices
 *
 * Devices are numbered from 0. BYTES may have a unit (40G).
 */
#include "dryrun.h"

#define MACHINE_PROCESSES 64

struct machine {
	struct {
		unsigned int minor, mig;
		uint64_t reserved;
	} device[DRYRUN_MAX_DEVICES];
	struct {
		int device;
		unsigned int pid;
		uint64_t used;
	} process[MACHINE_PROCESSES];
	unsigned int n_processes, delay_ms;
	bool hang, no_v2, no_memory;
};

/* False: the file is unreadable or has an invalid line. Without the variable, sets the defaults. */
bool machine__read(struct machine *m);
/* Waits for the configured delay, or for ever. */
void machine__wait(const struct machine *m);
