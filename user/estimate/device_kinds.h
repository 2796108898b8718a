/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Devices for which a job can be estimated (--device), with the memory that code other than
 * PyTorch's allocator takes. All figures are other people's measurements; each names its source.
 * docs/internals/ESTIMATE.md, "Devices", has the same figures.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum figure_source {
	FIGURE_UNKNOWN,	 /* unknown; bytes is 0 without meaning */
	FIGURE_ASSUMED,	 /* taken from a similar device or setting */
	FIGURE_REPORTED, /* published measurement by other people */
	FIGURE_MEASURED, /* our own measurement */
};

struct device_figure {
	uint64_t bytes;
	enum figure_source source;
	const char *from; /* source in a few words: who, on which device; never NULL */
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
	const char *total_from;
};

/* Finds a device by the text of a command line. Ignores case and a leading "rtx" or "rtx-". NULL:
 * unknown device. */
const struct device_kind *device_kind__find(const char *text);
const struct device_kind *device_kinds(size_t *n);

/* Returns "assumed", "reported", ... */
const char *figure_source__name(enum figure_source source);

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
