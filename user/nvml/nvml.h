/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_NVML_NVML_H
#define MT_NVML_NVML_H
/*
 * The driver's own figure of what a process holds on each device, as nvidia-smi shows it. From
 * NVML, the library of nvidia-smi, where this machine has it; of a process that runs without a GPU,
 * on the dry-run library, from there. Where neither is, or a device cannot be told for sure,
 * nothing is said.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NVML_DEVICES_MAX 64

struct proc;
struct nvml;

/*
 * dry_run: address of the dry-run library's table in the target; 0: there is none, and NVML is
 * asked, through the helper process of gpus.h, so no function here waits except nvml__read_last().
 * Borrows p. NULL on ENOMEM.
 */
struct nvml *nvml__open(const struct proc *p, uint64_t dry_run);
void nvml__free(struct nvml *s); /* NULL is fine */
bool nvml__is_dry_run(const struct nvml *s);

/* Of a dry run: how often PyTorch has told of a block so far. False: it is none, or has ended. */
bool nvml__reports(const struct nvml *s, uint64_t *ret);

/* Looks again at how many devices a dry run has: it says so once CUDA is used. */
void nvml__refresh(struct nvml *s);

/* How many devices there are for the process at most; 0: not known so far. */
unsigned nvml__devices(struct nvml *s);
/*
 * What the process itself says: how many devices it sees (<= 0: not known), and by bit those that
 * its allocator has memory on. Where NVML contradicts it, which GPU is which device is not known,
 * and there are no figures.
 */
void nvml__process_has(struct nvml *s, int devices, uint64_t in_use);
/* A device's name and the bytes that programs can use, by the process's own numbering; "" and 0:
 * not known. False: nothing is. */
bool nvml__device(const struct nvml *s, unsigned device, const char **name, uint64_t *total);

struct nvml_figures {
	unsigned n; /* devices, in the process's own numbering */
	uint64_t used[NVML_DEVICES_MAX];
	bool known[NVML_DEVICES_MAX];
	uint64_t free[NVML_DEVICES_MAX]; /* bytes that the device has left, all processes counted */
	bool has_free[NVML_DEVICES_MAX];
};

/*
 * What the last answer says, asked for by whomever; of a dry run, what is so now. What cannot be
 * read is not known. Of a process that has ended nothing is.
 */
void nvml__read(struct nvml *s, struct nvml_figures *ret);
/* Asks for an answer of later than now. When that is, for nvml__answered(). */
uint64_t nvml__ask(struct nvml *s);
/* Has it come? Of a dry run it always has. */
bool nvml__answered(struct nvml *s, uint64_t asked, struct nvml_figures *ret);
/* Asks and waits, a quarter of a second at most; all captures together wait once. */
void nvml__read_last(struct nvml *s, struct nvml_figures *ret);
/* Calls fn for each device whose figure is another than what was told of last. 0 or what fn
 * returned. */
int nvml__tell(struct nvml *s, const struct nvml_figures *f,
	       int (*fn)(void *ctx, unsigned device, uint64_t used), void *ctx);
/* The same for what the devices have left, of those that nvml__tell() has told of. */
int nvml__tell_free(struct nvml *s, const struct nvml_figures *f,
		    int (*fn)(void *ctx, unsigned device, uint64_t left), void *ctx);

/* ---- for tests ---- */

/*
 * The order in which a process sees n devices: visible is its CUDA_VISIBLE_DEVICES (NULL: not set),
 * uuid names each device
 * ("GPU-..."), sorted: the machine's order is the one that CUDA counts in. order[i] is the
 * machine's number of the process's device i. Returns how many it sees, or -1: cannot be told.
 */
int nvml__order(const char *visible, const char *const *uuid, unsigned n, bool sorted,
		unsigned order[NVML_DEVICES_MAX]);

#endif
