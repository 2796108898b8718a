/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * NVML: the driver's figures of a process (nvml), and the machine's GPUs (gpus).
 *
 * Driver-reported use of a process on each device, as in nvidia-smi. It comes from NVML or, for a
 * process in a dry run without a GPU, from the dry-run library. If neither has it, or the device is
 * uncertain, there is no figure.
 * The capture records a figure only at the place in the stream where it holds. A dry run answers at
 * once: a figure counts if it is the same before and after draining the ring. NVML answers later: a
 * figure counts if it equals the one before, and no call between the two changes it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NVML_DEVICES_MAX 64
#define NVML_UUID 96 /* size of a buffer for a UUID */

struct proc;
struct nvml;

/* Opens the figures of process p, which it borrows. dry_run: address of the dry-run library's table
 * in the target; 0: use NVML through the helper process below. Only nvml__read_last() waits. NULL:
 * out of memory. */
struct nvml *nvml__open(const struct proc *p, uint64_t dry_run);
void nvml__free(struct nvml *s); /* accepts NULL */
bool nvml__is_dry_run(const struct nvml *s);

/* Sets *ret to the number of allocator reports that the dry-run library has counted so far. False:
 * no dry run, or the process ended. */
bool nvml__count_reports(const struct nvml *s, uint64_t *ret);

/* Reads a dry run's number of devices again; the library sets it once CUDA is used. */
void nvml__refresh(struct nvml *s);

/* Returns the number of devices that the process sees, or an upper bound before their order is
 * known. 0: not known yet. */
unsigned nvml__devices(struct nvml *s);
/*
 * Sets facts read from the process itself. devices: number of devices that CUDA shows it, <= 0: not
 * known. in_use: bit i is set if its allocator has memory on device i. If NVML contradicts these,
 * the order of GPUs is uncertain, and there are no figures.
 */
void nvml__set_process(struct nvml *s, int devices, uint64_t in_use);
/* Sets *name to the name of a device, in the process's numbering, and *total to its bytes available
 * to programs; "" and 0: not known. False: the device is not known. */
bool nvml__device(const struct nvml *s, unsigned device, const char **name, uint64_t *total);

/* Writes the UUID of a device, as nvidia-smi does, in a dry run as its CUDA does; "": not known, as
 * of a slice of a GPU. Returns buf. */
char *nvml__uuid(const struct nvml *s, unsigned device, char buf[NVML_UUID]);

/* The machine's GPU that a device of the process is, in a dry run the one with the same number; -1:
 * not certain. */
int nvml__gpu(const struct nvml *s, unsigned device);

struct nvml_figures {
	unsigned n; /* number of devices, in the process's numbering */
	uint64_t used[NVML_DEVICES_MAX];
	bool known[NVML_DEVICES_MAX];
	uint64_t free[NVML_DEVICES_MAX]; /* bytes available on the device, with all processes
					    counted */
	bool has_free[NVML_DEVICES_MAX];
};

/* Sets *ret to the figures of NVML's last answer, or to a dry run's current ones. A process that
 * has ended has no figures (n is 0). */
void nvml__read(struct nvml *s, struct nvml_figures *ret);
/* Requests new figures from NVML. Returns the time of the request, for nvml__answered(). */
uint64_t nvml__ask(struct nvml *s);
/* True if NVML has answered with calls that began at `asked` or later; *ret has the figures. Always
 * true in a dry run. */
bool nvml__answered(struct nvml *s, uint64_t asked, struct nvml_figures *ret);
/* Requests new figures and waits for them, at most 250 ms. Captures that end together wait only
 * once. */
void nvml__read_last(struct nvml *s, struct nvml_figures *ret);
/* Another process with memory on a device. */
struct nvml_other {
	pid_t pid;
	uint64_t used; /* bytes; UINT64_MAX: not known */
};

/* Requests an answer that has all processes, those of graphics and MPS, too. Returns as nvml__ask().
 */
uint64_t nvml__ask_others(struct nvml *s);
/* Sets v to the largest other processes on a device, at most max, the largest first, and *all to
 * their number in all, from NVML's last answer whose calls began at `asked` or later. In
 * multi-instance mode only those in the process's own slice. *began: when the calls began,
 * CLOCK_MONOTONIC, ns. Returns the number in v; -EAGAIN: there is no such answer; -ENOENT: it does
 * not have the device, as in a dry run. */
int nvml__others(struct nvml *s, unsigned device, uint64_t asked, struct nvml_other *v, size_t max,
		 size_t *all, uint64_t *began);
/* Calls fn for each device whose figure changed since the last call. 0 or the value that fn
 * returned. */
int nvml__report_used(struct nvml *s, const struct nvml_figures *f,
		      int (*fn)(void *ctx, unsigned device, uint64_t used), void *ctx);
/* As nvml__report_used(), for available bytes. Skips devices that nvml__report_used() has not
 * reported yet. */
int nvml__report_free(struct nvml *s, const struct nvml_figures *f,
		      int (*fn)(void *ctx, unsigned device, uint64_t left), void *ctx);

/* ---- for tests ---- */

/*
 * Finds the order of the machine's n GPUs in a process. visible: the process's
 * CUDA_VISIBLE_DEVICES, NULL if not set. uuid: UUIDs of the GPUs ("GPU-..."). sorted: CUDA numbers
 * them in the machine's order. order[i]: index in uuid of the process's device i. Returns the
 * number of devices that the process sees. -1: the order is uncertain.
 */
int nvml__order(const char *visible, const char *const *uuid, unsigned n, bool sorted,
		unsigned order[NVML_DEVICES_MAX]);

/*
 * The machine's GPUs, from NVML (nvidia-smi's library). A call into NVML may take milliseconds, or
 * never return if a GPU failed. So one helper process makes the calls for all captures, with no
 * descriptor except its socket and without rights it does not need. Only gpus__wait() blocks, for a
 * bounded time. A helper that is late is killed and not waited for. Use from one thread only.
 */

#define GPUS_MAX 64
#define GPUS_PROCESSES 2048 /* maximum processes in one answer */

struct gpu {
	char name[96], uuid[96]; /* NUL-terminated; "": not known */
	int minor;		 /* number in /dev/nvidia<minor>; -1: not known */
	bool mig;		 /* multi-instance mode: a process sees another name and total */
	bool vgpu; /* a part of a GPU that a hypervisor gives this machine: its profile is the total
		    */
	uint64_t total; /* bytes available to programs, the host's if the GPU has none of
			   its own; 0: not known */
};

#define GPUS_SLICES 128		 /* maximum slices (multi-instance mode) in one answer */
#define GPUS_NO_SLICE UINT32_MAX /* a process that is in no slice */

enum { GPUS_COMPUTE = 1, GPUS_GRAPHICS = 2, GPUS_MPS = 4 }; /* NVML's lists of processes */

/* A process on a GPU. With gpus__ask_all() also those of graphics and MPS, and with slices. */
struct gpus_process {
	uint32_t gpu, pid;
	uint64_t used;	 /* bytes; UINT64_MAX: not known */
	uint64_t worked; /* last work that the driver remembers, CLOCK_MONOTONIC, ns; 0: not known */
	uint32_t kinds;	 /* the lists that it is in: GPUS_COMPUTE ... */
	uint32_t slice;	 /* number of the GPU instance, or GPUS_NO_SLICE */
};

/* A slice of a GPU in multi-instance mode. */
struct gpus_slice {
	uint32_t gpu, number; /* number of the GPU instance */
	uint64_t total, used; /* bytes; used: all that is not free. total 0: not known */
	char uuid[80];	      /* NUL-terminated; "": not known */
};

/* Memory of a whole GPU, of which the driver tells. Bytes. */
struct gpus_memory {
	uint64_t total, used; /* used: all that is not free, with the reserve */
	uint64_t reserved;    /* the driver's own; UINT64_MAX: not known */
};

struct gpus_answer {
	uint64_t begin, end;	 /* before and after NVML's calls; CLOCK_MONOTONIC, ns */
	uint64_t known;		 /* bit i: all processes of GPU i are listed */
	uint64_t has_free;	 /* bit i: free[i] is known */
	uint64_t free[GPUS_MAX]; /* bytes of GPU i that no process holds */
	/* Only after gpus__ask_all(). has_memory: bit i: memory[i] is known. */
	uint64_t has_memory;
	struct gpus_memory memory[GPUS_MAX];
	struct gpus_slice slice[GPUS_SLICES];
	uint32_t n_slices, n;
	struct gpus_process process[GPUS_PROCESSES];
};

/* Adds a user. The first user starts the helper process; gpus__close() of the last user ends it. */
void gpus__open(void);
void gpus__close(void);
/* Number of GPUs; 0: none, or not known yet. */
unsigned gpus__count(void);
/* GPU i, which is below gpus__count(). Static. */
const struct gpu *gpus__get(unsigned i);
/* Requests an answer about the GPUs in mask (bit i: GPU i), with calls into NVML that begin at
 * not_before (CLOCK_MONOTONIC, ns) or later. The helper's calls are at least 50 ms apart and take
 * at most a twentieth of the time. */
void gpus__ask(uint64_t mask, uint64_t not_before);
/* From now on, answers have all that NVML knows of the processes: graphics, MPS, slices, the last
 * work. Such an answer takes more calls. */
void gpus__ask_all(void);
/* Waits at most `within` ms for the number of GPUs, which NVML may take seconds to find. Returns
 * it; 0: there is none, or NVML is not ready. */
unsigned gpus__wait_count(unsigned within);
/* Why there are no figures, as a clause: "this machine has no libnvidia-ml.so.1". "": not known.
 * Static. */
const char *gpus__why(void);
/* Returns the helper's last answer, which all users share. NULL: there is none. Valid until the
 * next call of a gpus__ function. */
const struct gpus_answer *gpus__answer(void);
/* Whether the last answer has all GPUs in mask and its calls began at not_before or later. */
bool gpus__answered(uint64_t mask, uint64_t not_before);
/* Waits at most 250 ms for an answer about all GPUs in mask that began at not_before or later.
 * False: none came. */
bool gpus__wait(uint64_t mask, uint64_t not_before);
/* As gpus__wait(), until the helper's own limit: GPUS_ANSWERS_WITHIN. */
bool gpus__wait_long(uint64_t mask, uint64_t not_before);

/*
 * Memory that GPUs share with the host (GB10, Jetson), by CUDA: cudaMemGetInfo's figures. NVML has
 * none there. The helper process needs a CUDA context on the device for a moment, which takes some
 * memory: ask only where NVML has no figures.
 */

#define GPUS_CUDA_MAX 8
#define GPUS_CUDA_WITHIN 10 /* s */

struct gpus_cuda {
	uint32_t n; /* number of devices without memory of their own */
	struct {
		char name[96]; /* NUL-terminated, hostile */
		uint64_t total, free;
	} device[GPUS_CUDA_MAX];
	char why[160]; /* why figures are missing; "": none is */
};

/* Asks in a helper process. Waits at most 10 s. */
void gpus_cuda__read(struct gpus_cuda *ret);

/* ---- the helper: tools/nvml/helper.c ---- */

/* Writes the helper's program into a file in memory. Returns its descriptor or -errno. */
int gpus__write_helper(void);

#define GPUS_GREETS_WITHIN 30 /* s after its start; NVML may have to wake up the GPUs */
#define GPUS_ANSWERS_WITHIN 5 /* s after a question */

/* Messages. The helper sends a greeting, then an answer to each question. */
struct gpus_greeting {
	uint32_t n; /* number of GPUs; 0: none, for the reason in why */
	char why[160];
	struct gpu gpu[GPUS_MAX];
};

struct gpus_question {
	uint64_t mask; /* bit i: the answer shall have GPU i */
	uint64_t all;  /* 1: all that gpus__ask_all() asks for */
};
