/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * What NVML says of the machine besides this process. The file that MEMTRACE_DRYRUN_NVML names is
 * read again at each question, so a test can change the machine while others look at it. One
 * directive a line:
 *
 *     process DEVICE PID BYTES   a process holds so much on the device
 *     minor DEVICE NUMBER        its node is /dev/nvidiaNUMBER; without the line NUMBER is DEVICE
 *     mig DEVICE 0|1             multi-instance GPU mode
 *     reserved DEVICE BYTES      memory that the driver keeps for itself
 *     delay MILLISECONDS         how long a question about memory or processes takes
 *     hang                       such a question never comes back
 *     no_v2                      a driver without nvmlDeviceGetMemoryInfo_v2
 *
 * Devices count from 0; BYTES may have a unit (40G).
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
	bool hang, no_v2;
};

/* False: the file cannot be read, or has a line that is none of these. Without the variable: the
 * defaults. */
bool machine__read(struct machine *m);
/* The delay, or for ever. */
void machine__wait(const struct machine *m);
