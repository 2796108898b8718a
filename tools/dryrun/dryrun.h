/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The dry-run CUDA runtime: a preloaded library that answers the CUDA runtime and driver without a
 * device, so that PyTorch's own allocator, autograd and modules run unchanged. Allocations hand out
 * addresses against a chosen amount of memory; kernels do nothing; small copies really carry their
 * bytes. docs/DRYRUN.md says what is modelled.
 *
 * What is here is what the parts share. Nothing of it is exported: a function that the program may
 * call is defined with API(). CUDA's types are pointers and integers to us, so no CUDA header is
 * needed; every layout that is written was measured on the headers of CUDA 12.1, 13.0 and 13.2, and
 * is given where it is written.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRYRUN_MAX_DEVICES 64
#define DRYRUN_PAGE 4096u
#define DRYRUN_GRANULE (2u << 20) /* of device memory: what cudaMalloc and cuMemCreate round to */
#define DRYRUN_SMALL_COPY                                                                          \
	(64u << 10) /* up to so many bytes a copy to or from a device carries its bytes */

#define EXPORT __attribute__((visibility("default")))
/* A function of CUDA's, by its name in the program's view. */
#define API(type, name, ...)                                                                       \
	EXPORT type name(__VA_ARGS__);                                                             \
	EXPORT type name(__VA_ARGS__)

/* Results of the runtime and of the driver API, which number these alike. */
enum {
	CUDA_OK = 0,
	CUDA_INVALID_VALUE = 1,
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_NOT_INITIALIZED = 3,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_DEVICE = 101,
	CUDA_INVALID_CONTEXT = 201,
	CUDA_INVALID_HANDLE = 400,
	CUDA_NOT_FOUND = 500,
	CUDA_PEER_ALREADY_ENABLED = 704,
	CUDA_PEER_NOT_ENABLED = 705,
	CUDA_HOST_ALREADY_REGISTERED = 712,
	CUDA_HOST_NOT_REGISTERED = 713,
	CUDA_NOT_SUPPORTED = 801,
	CUDA_CAPTURE_UNSUPPORTED = 900,
	CUDA_CAPTURE_INVALIDATED = 901,
	CUDA_CAPTURE_UNMATCHED = 903,
	CUDA_CAPTURED_EVENT = 907,
};

/* ---- config.c: what the environment says; read before the program begins, a bad value ends it
 * with 64 ---- */

struct dryrun_config {
	uint64_t vram;		  /* bytes of each device */
	uint64_t context;	  /* bytes that a device's context takes at its first use */
	uint64_t cudnn_workspace; /* bytes that cuDNN is said to need for a convolution */
	int n_devices;
	int sm_major, sm_minor;
	int processors; /* 0: as the kind of device has */
	char name[256];
	const char *log;    /* a path, "-" for stderr, NULL: nowhere */
	bool bypass;	    /* driver functions by name are not the exported ones: see entry.c */
	bool host_init;	    /* a model's weights on the host are given their values */
	const char *values; /* MEMTRACE_DRYRUN_VALUES; valid where it is set, NULL: none */
};

const struct dryrun_config *dryrun__config(void);

/* A size as "85899345920", "80G", "512M", "64K" (binary units); false when it is none or above what
 * an address holds. */
bool dryrun__parse_size(const char *text, uint64_t *size);

/* ---- log.c ---- */

/* Notes the first use of a function (or of one of its cases) whose effect is not modelled. Any
 * thread. */
void dryrun__unmodelled(const char *name);

/* One line into the log, if there is one. */
void dryrun__log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- core.c: devices, and which one a thread uses ---- */

/* All state below is guarded by one lock; it is held over a fork. Do not call out with it held. */
void dryrun__lock(void);
void dryrun__unlock(void);

/* Devices that CUDA_VISIBLE_DEVICES leaves; constant from the first question on. */
int dryrun__n_devices(void);

/* The calling thread's device. */
int dryrun__device(void);
int dryrun__set_device(int device);

/*
 * The calling thread's last error, as cudaGetLastError has it. dryrun__result() notes a failure and
 * hands its argument back; every runtime function ends with it.
 */
int dryrun__result(int error);
int dryrun__last_error(bool clear);

/* Major version of the runtime library that the program has loaded: 12 or 13. Some signatures and
 * layouts go by it. */
int dryrun__runtime_major(void);

/* Makes the device's context if it has none: reserves its addresses, charges the context. 0 or an
 * error. */
int dryrun__use(int device);
bool dryrun__in_use(int device);
/* Ends a device's context: what it held is given back. */
void dryrun__reset(int device);

/* ---- memory.c: device memory ---- */

/* size bytes, rounded as a device rounds them; *ptr is NULL for 0 bytes. 0, CUDA_OUT_OF_MEMORY or
 * another error. */
int dryrun__alloc(int device, uint64_t size, void **ptr);
/* NULL is no error. */
int dryrun__free(void *ptr);
/* Bytes taken without an address (cuMemCreate), and given back. size: a multiple of the granule. */
int dryrun__charge(int device, uint64_t size);
void dryrun__refund(int device, uint64_t size);
/* What cudaMemGetInfo says. */
void dryrun__memory(int device, uint64_t *available, uint64_t *total);

enum dryrun_place {
	PLACE_PAGEABLE, /* host memory that CUDA does not know, or any address it does not know */
	PLACE_PINNED,
	PLACE_DEVICE,
	PLACE_MANAGED, /* of a device by its kind, but the host reads and writes it */
};

struct dryrun_range {
	enum dryrun_place place;
	int device;
	uint64_t base,
		size; /* of the allocation that the address is in; 0, 0: the address is in none */
	unsigned int flags; /* PLACE_PINNED: of cudaHostAlloc or cudaHostRegister */
};

/* What an address is. Never fails: an unknown one is pageable. */
void dryrun__where(const void *ptr, struct dryrun_range *range);

/* Whether the address belongs to a device: the host must not touch it. */
bool dryrun__is_device(const void *ptr);

/*
 * Copies between any two places. Up to DRYRUN_SMALL_COPY bytes are carried; a larger copy to a
 * device is forgotten, and one from a device writes zeros.
 */
void dryrun__copy(void *to, const void *from, size_t size);
void dryrun__fill(void *to, int byte, size_t size);
/* The program's own copy, asked for at the address caller: as above, and noted where the host reads
 * a kernel's result. */
void dryrun__copy_for(const void *caller, void *to, const void *from, size_t size);
/* Whether bytes are what copies put there, not a kernel's result; all of the host's are. */
bool dryrun__known(const void *ptr, size_t size);
/* Bytes that were put there are a guess: they stay, and count as a kernel's result. */
void dryrun__doubt(void *ptr, size_t size);

/* ---- driver.c ---- */

/* What exported functions of the driver do, by their names; ends with a NULL name. */
struct driver_hidden {
	const char *name;
	void *function;
};

extern const struct driver_hidden driver__hidden[];

/* ---- c10.c ---- */

/* How large the block is that PyTorch's allocator has handed out at ptr; 0: that is not known any
 * more, or never was. */
uint64_t dryrun__block_size(const void *ptr);

/* ---- lib_nccl_peers.c ---- */

/* A number that a kernel has made of what every rank has sent, its own: true where that was just
 * gathered, once. */
bool dryrun__of_gathered(void *number, size_t size);

/* ---- what libcuda.so.1 shows to an observer outside, and to our NVML ---- */

#define DRYRUN_USAGE_MAGIC 0x4d544452u

struct dryrun_usage {
	uint32_t magic, version, n_devices, pad;
	struct {
		uint64_t total, used /* by this process, context included */, context,
			refused /* how often there was no room */;
	} device[DRYRUN_MAX_DEVICES];
	uint64_t reports; /* calls of c10::reportMemoryUsageToProfiler: what records can tell that
			     it has seen all */
};

extern struct dryrun_usage memtrace_dryrun_usage;

/* ---- stream.c ---- */

/*
 * For NCCL's answers: the next cudaStreamWaitEvent of a stream that has no collectives is preceded
 * by a pause in which the watchdog sees the work done.
 */
void dryrun__collective_enqueued(void *stream);
/*
 * Work put on a stream: a node, where the stream is being captured. CUDA_CAPTURE_INVALIDATED, and
 * the work is not done, where something was done in the capture that cannot be captured: until the
 * capture is ended.
 */
int dryrun__stream_work(void *stream);
/* The host waits for a stream. CUDA_CAPTURE_UNSUPPORTED, and the capture invalidated, where it is
 * being captured. */
int dryrun__stream_wait(void *stream);
/* The host waits for a device, with all its streams; otherwise as above. */
int dryrun__device_wait(int device);
