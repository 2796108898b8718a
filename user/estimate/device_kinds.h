/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ESTIMATE_DEVICE_KINDS_H
#define MT_ESTIMATE_DEVICE_KINDS_H
/*
 * Devices that an estimate can be made for (--device), and what is taken of their memory by others
 * than PyTorch's allocator. No figure of a device was measured by us: each says where it is from.
 * docs/ESTIMATE.md, "Devices", has the same tables.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum figure_source {
	FIGURE_UNKNOWN,	 /* nobody said; bytes is 0 and means nothing */
	FIGURE_ASSUMED,	 /* taken from something like it */
	FIGURE_REPORTED, /* somebody's measurement, made public */
	FIGURE_MEASURED, /* ours */
};

struct device_figure {
	uint64_t bytes;
	enum figure_source source;
	const char *from; /* a few words: whose, on what; never NULL */
};

struct device_kind {
	const char *option; /* "h100" */
	const char *name;   /* as NVML and PyTorch say it */
	int sm_major, sm_minor;
	int processors; /* multiprocessors */
	/*
	 * As cudaMemGetInfo has it: less than the card's own, since the driver keeps some back. It
	 * differs by some 10 MiB between drivers, and by 6 % with ECC on or off on cards with GDDR:
	 * the smallest that was reported exactly, for a whole card.
	 */
	uint64_t total_bytes;
	const char *total_from;
};

/* Of a command line: case does not matter, nor does a "rtx" or "rtx-" before the name. NULL: not
 * known. */
const struct device_kind *device_kind__find(const char *text);
const struct device_kind *device_kinds(size_t *n);
/* "h100 h200 ...", for messages. Returns buf; cut at size. */
char *device_kinds__options(char *buf, size_t size);

/* "assumed", "reported", ... */
const char *figure_source__name(enum figure_source source);

/*
 * What CUDA's context takes on such a device in a process that trains with PyTorch, with the code
 * of all kernels used until then (CUDA_MODULE_LOADING=LAZY, PyTorch's default): the handles of
 * cuBLAS and cuDNN are in it, NCCL is not. cuda_version as CUDART_VERSION has it, 12040 for 12.4;
 * 0: not known. A figure that was reported with another version counts as assumed. kind NULL: any
 * device. Always fills ret; false where nothing is known.
 */
bool device_kind__context(const struct device_kind *kind, int cuda_version,
			  struct device_figure *ret);

/*
 * What one communicator of NCCL takes on a device with its default settings: channels' buffers and
 * its own kernels. n_ranks on one node, 1 or more. Depends on links, number of nodes and which
 * collectives are used, so that other jobs may be far off. Always fills ret; false where nothing is
 * known.
 */
bool device_kind__nccl(const struct device_kind *kind, unsigned n_ranks, struct device_figure *ret);

/* What else takes memory, in words; whether an estimate has it in its figure, and where it is from.
 */
struct device_overhead {
	const char *what;
	const char *bytes; /* in words: these depend on the device */
	bool in_allocator; /* PyTorch's allocator hands it out: it is in the peak already */
	enum figure_source source;
	const char *from;
};

const struct device_overhead *device_kinds__overheads(size_t *n);

#endif
