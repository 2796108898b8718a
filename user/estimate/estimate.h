/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The command estimate: finds out how much memory of a device a script needs, without that device.
 * It runs the script in the dry run (run.h) and prints the estimate as text or JSON.
 * docs/internals/ESTIMATE.md explains the terms.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "capture/run_command.h"
#include "estimate/runs/known.h"
#include "estimate/runs/parts.h"
#include "estimate/runs/ranks.h"
#include "estimate/runs/run.h"
#include "inspect/gpu_holders.h"
#include "model/analysis.h"
#include "model/growth_summary.h"
#include "report/advice.h"
#include "report/text.h"

/* ---- kinds of devices ---- */

/*
 * Devices for which a job can be estimated (--device), with the memory that code other than
 * PyTorch's allocator takes. All figures are other people's measurements; each names its source.
 * docs/internals/ESTIMATE.md, "Devices", has the same figures.
 */

enum figure_source {
	FIGURE_UNKNOWN,	 /* the figure is unknown; device_figure.bytes means nothing */
	FIGURE_ASSUMED,	 /* taken from a similar device or setting */
	FIGURE_REPORTED, /* published measurement by other people */
	FIGURE_MEASURED, /* our own measurement */
};

struct device_figure {
	uint64_t bytes;
	enum figure_source source;
	/* the source in a few words: who measured it on which device; never NULL */
	const char *from;
};

struct device_kind {
	const char *option; /* name on the command line, such as "h100" */
	const char *name;   /* name in NVML and PyTorch */
	int sm_major, sm_minor;
	int processors; /* number of multiprocessors */
	/*
	 * Total memory according to cudaMemGetInfo. It is less than the card's own, because the
	 * driver reserves a part. The figure is the smallest exact report for a whole card. It
	 * differs by about 10 MiB between drivers, and by 6 % with ECC on or off on cards with
	 * GDDR.
	 */
	uint64_t total_bytes;
	const char *total_from; /* source of total_bytes, as device_figure.from */
};

/* Finds a device by its name in NVML. NULL: unknown device. */
const struct device_kind *device_kind__named(const char *name);
/* Finds a device by the text of a command line. Ignores case and a leading "rtx" or "rtx-". NULL:
 * unknown device. */
const struct device_kind *device_kind__find(const char *text);
/* Returns all kinds of devices and sets *n to their number. */
const struct device_kind *device_kinds(size_t *n);

/* Returns "assumed", "reported", ... */
const char *figure_source__name(enum figure_source source);

/* Returns the CUDART_VERSION of a PyTorch version such as "2.11.0+cu130" or
 * "2.0.1+cu117.with.pypi.cudnn", or 0 if that does not name it. NULL is fine. */
int device_kind__cuda_version(const char *torch);
/*
 * Memory of the CUDA context in a process that trains with PyTorch on this device. It includes the
 * code of all kernels used so far (CUDA_MODULE_LOADING=LAZY, PyTorch's default) and the handles of
 * cuBLAS and cuDNN, but not NCCL. The argument cuda_version is as CUDART_VERSION, 12040 for 12.4;
 * 0: unknown. A figure reported for another version counts as assumed. kind NULL: any device.
 * Always fills *ret; returns false if the figure is unknown.
 */
bool device_kind__context(const struct device_kind *kind, int cuda_version,
			  struct device_figure *ret);

/*
 * Memory of one NCCL communicator on a device with default settings: buffers of its channels and
 * its own kernels. n_ranks: ranks on one node, at least 1. Links, nodes and collectives change the
 * figure considerably. Always fills *ret; returns false if the figure is unknown.
 */
bool device_kind__nccl(const struct device_kind *kind, unsigned n_ranks, struct device_figure *ret);

/* ---- the estimate ---- */

struct json;

enum estimate_format { ESTIMATE_TEXT, ESTIMATE_JSON };

enum estimate_tracer { TRACER_AUTO, TRACER_INSIDE, TRACER_BPF };

/* A device of the script that is a GPU of this host, as it is now (--here). */
struct estimate_gpu {
	unsigned gpu;		  /* number by NVML */
	uint32_t slice;		  /* number of the GPU instance, or GPUS_NO_SLICE */
	char name[128], uuid[96]; /* clean text; uuid "": not known */
	uint64_t total, free;	  /* bytes */
	char held[640];		  /* who holds the rest, in words; "": nobody */
	const struct gpu_table *table;
};

struct estimate_here {
	uint64_t time; /* when the GPUs were looked at, ns since 1970 */
	unsigned n;
	struct estimate_gpu gpu[DRYRUN_DEVICES_MAX]; /* in the order in which CUDA numbers them */
};

struct estimate_args {
	/* Only the command, the user, and dryrun without its memory and context. */
	struct run_command_args run;
	const struct device_kind *kind; /* --device; NULL: not given */
	uint64_t vram;			/* memory of the device, bytes */
	/* The GPUs of this host that the script's devices are. Then run.dryrun.held is set, too.
	 * NULL: not given. */
	const struct estimate_here *here;
	struct device_figure context; /* memory of the CUDA context */
	/* its member command is ignored: run.command has the command */
	struct estimate_ranks_args ranks;
	const char *rank_list; /* text of --rank if it is more than a number; otherwise NULL */
	uint64_t steps, max_time, max_host_memory; /* as in struct estimate_run_opts */
	bool min_vram, no_search; /* always search the smallest memory; never search it */
	const char *output;	  /* path of the recording to keep; NULL: none */
	bool force;
	enum estimate_tracer tracer;
	enum estimate_format format;
	enum report_choice colour;
	size_t top; /* rows per table of the text */
};

/* The smallest memory that the script runs with. */
struct estimate_smallest {
	bool asked, found; /* the search was made; it had a result */
	uint64_t vram;	   /* valid if found: the script ran with it, and no request was refused */
	bool less_refused; /* true if a run with one granule less had a refused request */
	uint64_t guess;	   /* result of replaying the full run; 0: none */
	unsigned runs;	   /* runs of the script that the search took */
	const char *why;   /* reason if not found; static text */
};

struct estimate {
	const struct estimate_args *args;
	char dir[64]; /* folder for recordings and logs */
	/* The run with the memory that the user named, and its recording. named is NULL if the
	 * script never imported PyTorch. */
	struct estimate_run run;
	struct analysis *named;
	/* The run that provides the figures: the same one or, if the script did not fit, a run with
	 * unlimited memory. */
	struct estimate_run full_run;
	struct analysis *full;
	bool full_is_whole; /* full_run ended normally; otherwise its figures are lower bounds */
	uint64_t full_vram; /* memory of the device in full_run, bytes */
	struct advisor *advisor; /* advisor of the full run */
	struct advice_list advice;
	/* Growth of memory on `device`. Its verdict is not GROWTH_VERDICT_GROWS if there is no
	 * device. */
	struct growth_summary growth;
	bool of_ranks; /* the script ran as one rank of a job; the fields up to missing_key are
			  valid then */
	unsigned rank, world_size, local_world_size;
	char *missing_key; /* key of the store that the script waited for in vain; NULL: none */
	struct known_list known; /* unknowns of the full run */
	/* args->context, with a source that depends on the script's CUDA version. */
	struct device_figure context;
	enum verdict verdict;
	int device; /* model index of the device that needs most; -1: no device was used */
	struct estimate_parts parts; /* parts of the memory of that device */
	struct estimate_smallest smallest;
};

/* True if the script ended with an error. */
static inline bool estimate__failed(const struct estimate_run *run)
{
	return run->end == RUN_ENDED && run->wait_status != 0;
}
/* Memory for the job on a device of e->full, bytes: all, or with --here what is free now. */
uint64_t estimate__room(const struct estimate *e, size_t device);
/* The GPU that a device of e->full is; NULL: not with --here, or there is none. */
const struct estimate_gpu *estimate__gpu(const struct estimate *e, size_t device);
/* Returns the i-th reason why the figures are only lower bounds, as text that may be in buf; NULL:
 * there are not so many. */
const char *estimate__bound(const struct estimate *e, size_t i, char *buf, size_t size);

/* Runs the script as often as necessary and sets *e, which the caller zeroes except for args.
 * Returns 0, or logs an error and returns an exit code. */
int estimate__run(struct estimate *e);
/* Frees the results, and removes the folder with the recordings of the runs. */
void estimate__free(struct estimate *e);

/* Exit code of the verdict. EXIT_OK: fits; EXIT_HELD: does not fit; EXIT_UNUSABLE: unknown. */
int estimate__status(const struct estimate *e);
/* Logs why the command has no estimate, if it has none. */
void estimate__complain(const struct estimate *e);

/* Print the estimate as text and as JSON. e->full must not be NULL. Both return 0 or -ENOMEM. */
int estimate_text(FILE *out, const struct estimate *e);
int estimate_json(FILE *out, const struct estimate *e);
/* Writes what estimate_json() prints as a value of the document j. If e->full is NULL, writes only
 * the data of the run. */
int estimate_json__put(struct json *j, const struct estimate *e);

/* Estimates each rank of args->rank_list in turn (many.c). Returns the exit code of the
 * worst rank. */
int estimate_many(FILE *out, struct estimate_args *args);
