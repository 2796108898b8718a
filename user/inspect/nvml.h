/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Driver-reported use of a process on each device, as in nvidia-smi. It comes from NVML or, for a
 * process in a dry run without a GPU, from the dry-run library. If neither has it, or the device is
 * uncertain, there is no figure.
 * A figure must belong to a place in the stream. A dry run answers at once: its figure counts if it
 * is the same before and after a drain. NVML answers later: its figure counts if it equals the last
 * one, and no call that changes it came between.
 */
#include <stdbool.h>
#include <stdint.h>

#define NVML_DEVICES_MAX 64

struct proc;
struct nvml;

/* dry_run: address of the dry-run library's table in the target; 0: use NVML through the helper of
 * gpus.h. Only nvml__read_last() waits. Borrows p. NULL on ENOMEM. */
struct nvml *nvml__open(const struct proc *p, uint64_t dry_run);
void nvml__free(struct nvml *s); /* accepts NULL */
bool nvml__is_dry_run(const struct nvml *s);

/* Number of blocks that PyTorch has reported so far in a dry run. False: no dry run, or it
 * ended. */
bool nvml__reports(const struct nvml *s, uint64_t *ret);

/* Reads a dry run's number of devices again; the library sets it once CUDA is used. */
void nvml__refresh(struct nvml *s);

/* Maximum number of the process's devices; 0: not known yet. */
unsigned nvml__devices(struct nvml *s);
/*
 * Sets what the process itself knows. devices: how many it sees, <= 0: not known. in_use: bit i if
 * its allocator has memory on device i. If NVML contradicts it, the order of GPUs is uncertain, and
 * there are no figures.
 */
void nvml__process_has(struct nvml *s, int devices, uint64_t in_use);
/* Name of a device and bytes available to programs, by the process's numbering; "" and 0: not
 * known. False: both are not known. */
bool nvml__device(const struct nvml *s, unsigned device, const char **name, uint64_t *total);

struct nvml_figures {
	unsigned n; /* number of devices, in the process's numbering */
	uint64_t used[NVML_DEVICES_MAX];
	bool known[NVML_DEVICES_MAX];
	uint64_t free[NVML_DEVICES_MAX]; /* bytes available on the device, with all processes
					    counted */
	bool has_free[NVML_DEVICES_MAX];
};

/* Reads the last answer, or a dry run's current figures. Unreadable figures are not known. A
 * process that ended has none. */
void nvml__read(struct nvml *s, struct nvml_figures *ret);
/* Requests a new answer. Returns the time for nvml__answered(). */
uint64_t nvml__ask(struct nvml *s);
/* True: an answer that began at asked or later is in *ret. Always true in a dry run. */
bool nvml__answered(struct nvml *s, uint64_t asked, struct nvml_figures *ret);
/* Requests an answer and waits at most 250 ms; all captures together wait once. */
void nvml__read_last(struct nvml *s, struct nvml_figures *ret);
/* Calls fn for each device whose figure changed since the last call. 0 or the value that fn
 * returned. */
int nvml__tell(struct nvml *s, const struct nvml_figures *f,
	       int (*fn)(void *ctx, unsigned device, uint64_t used), void *ctx);
/* As nvml__tell() for available bytes, of devices that nvml__tell() has reported. */
int nvml__tell_free(struct nvml *s, const struct nvml_figures *f,
		    int (*fn)(void *ctx, unsigned device, uint64_t left), void *ctx);

/* ---- for tests ---- */

/*
 * Order of n GPUs in a process. visible: its CUDA_VISIBLE_DEVICES, NULL if not set. uuid: of each
 * GPU ("GPU-..."). sorted: CUDA numbers them in the machine's order. order[i]: the machine's number
 * of device i. Returns how many devices it sees; -1: uncertain.
 */
int nvml__order(const char *visible, const char *const *uuid, unsigned n, bool sorted,
		unsigned order[NVML_DEVICES_MAX]);
