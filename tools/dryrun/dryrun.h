/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The dry-run CUDA runtime: a preloaded library that implements the CUDA runtime and driver without
 * a device, so that PyTorch's own allocator, autograd and modules run unchanged. Allocations get
 * addresses from a chosen amount of memory; kernels do nothing; small copies transfer their bytes.
 * docs/internals/DRYRUN.md describes the model.
 *
 * This header declares what the library's parts share. None of it is exported: API() defines the
 * functions that programs call. CUDA's types are pointers and integers here, so no CUDA header is
 * needed. The layouts were measured on the headers of CUDA 12.1, 13.0 and 13.2, and are documented
 * where they are used.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRYRUN_MAX_DEVICES 64
#define DRYRUN_PAGE 4096u
#define DRYRUN_GRANULE (2u << 20) /* bytes; cudaMalloc and cuMemCreate round to it */
#define DRYRUN_SMALL_COPY                                                                          \
	(64u << 10) /* bytes; larger copies to or from a device do not transfer data */

#define EXPORT __attribute__((visibility("default")))
/* Defines an exported function of CUDA. */
#define API(type, name, ...)                                                                       \
	EXPORT type name(__VA_ARGS__);                                                             \
	EXPORT type name(__VA_ARGS__)

/* Defines a function without an effect on memory, whatever its arguments. */
#define NO_EFFECT(name)                                                                            \
	API(int, name, void)                                                                       \
	{                                                                                          \
		return 0;                                                                          \
	}

/* Results that the runtime and the driver API number alike. */
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
	CUDA_NOT_READY = 600,
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

/* ---- config.c: the environment, read at startup; an invalid value ends the program with 64
 * ---- */

struct dryrun_config {
	uint64_t vram;			   /* bytes of each device */
	uint64_t held[DRYRUN_MAX_DEVICES]; /* bytes of each device that other processes hold */
	uint64_t context;	  /* bytes of a device's context, charged at its first use */
	uint64_t cudnn_workspace; /* bytes of workspace that cuDNN reports for a convolution */
	int n_devices;
	int sm_major, sm_minor;
	int processors; /* multiprocessors; 0: the number of the device kind */
	char name[256];
	const char *log;    /* path of the log; "-": stderr; NULL: no log */
	bool bypass;	    /* cuGetProcAddress returns internal functions, see entry.c */
	int paced;	    /* number of kernels, from the first, that take time: 3 ms each */
	bool host_init;	    /* initialize weights on the host */
	const char *values; /* MEMTRACE_DRYRUN_VALUES, validated; NULL: not set */
	double clock;	    /* durations of work are modelled, times this; 0: work takes no time */
};

const struct dryrun_config *dryrun__config(void);

/* Parses "85899345920", "80G", "512M" or "64K" (binary units) to bytes. False: invalid, or larger
 * than an address space. */
bool dryrun__parse_size(const char *text, uint64_t *size);

/* ---- log.c ---- */

/* Logs the first use of a function, or of a case of it, whose effect is not modelled.
 * Thread-safe. */
void dryrun__unmodelled(const char *name);

/* Writes a line to the log, if there is one. */
void dryrun__log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- core.c: devices, and each thread's current device ---- */

/* One lock guards all state below and is held across fork(). Do not call code of the program while
 * holding it. */
void dryrun__lock(void);
void dryrun__unlock(void);

/* Number of devices that CUDA_VISIBLE_DEVICES leaves; constant after the first call. */
int dryrun__n_devices(void);

/* The calling thread's device. */
int dryrun__device(void);
int dryrun__set_device(int device);

/*
 * The calling thread's last error, as for cudaGetLastError. Every runtime function ends with
 * dryrun__result(), which stores a failure and returns its argument.
 */
int dryrun__result(int error);
int dryrun__last_error(bool clear);

/* Major version of the loaded runtime library, 12 or 13. Some signatures and layouts depend on
 * it. */
int dryrun__runtime_major(void);

/* Creates the device's context if needed: reserves addresses and charges the context. 0 or an
 * error. */
int dryrun__use(int device);
bool dryrun__in_use(int device);

/* ---- memory.c: device memory ---- */

/* Allocates `size` bytes with a device's rounding; 0 bytes: *ptr is NULL. 0, CUDA_OUT_OF_MEMORY or
 * another error. */
int dryrun__alloc(int device, uint64_t size, void **ptr);
/* Frees memory of dryrun__alloc(). NULL is allowed. */
int dryrun__free(void *ptr);
/* Destroys a device's context and frees its memory. */
void dryrun__reset(int device);
/* The values of cudaMemGetInfo, in bytes. */
void dryrun__memory(int device, uint64_t *available, uint64_t *total);

enum dryrun_place {
	PLACE_PAGEABLE, /* host memory not registered with CUDA, or an unknown address */
	PLACE_PINNED,
	PLACE_DEVICE,
	PLACE_MANAGED, /* device memory by its kind, but the host reads and writes it */
};

struct dryrun_range {
	enum dryrun_place place;
	int device;
	uint64_t base,
		size; /* bytes of the allocation that contains the address; base and size 0: none */
	unsigned int flags; /* PLACE_PINNED: flags of cudaHostAlloc or cudaHostRegister */
};

/* Finds the kind of memory at an address. Never fails: unknown addresses are pageable. */
void dryrun__where(const void *ptr, struct dryrun_range *range);

/*
 * Copies between any two places. Up to DRYRUN_SMALL_COPY bytes are transferred. A larger copy to a
 * device makes its bytes unknown; a larger copy from a device writes zeros.
 */
void dryrun__copy(void *to, const void *from, size_t size);
void dryrun__fill(void *to, int byte, size_t size);
/* The same for a copy by the program; counts a read of a kernel's result. caller: return address in
 * the program. */
void dryrun__copy_for(const void *caller, void *to, const void *from, size_t size);
/* True if copies wrote all bytes, not a kernel. Always true for host memory. */
bool dryrun__known(const void *ptr, size_t size);
/* Marks copied bytes as a guess: they count as a kernel's result. */
void dryrun__doubt(void *ptr, size_t size);

/* ---- driver.c ---- */

/* Functions of the driver behind the exported names; a NULL name ends the list. */
struct driver_hidden {
	const char *name;
	void *function;
};

extern const struct driver_hidden driver__hidden[];

/* ---- c10.c ---- */

/* Bytes of the block that PyTorch's allocator returned at ptr; 0: unknown. */
uint64_t dryrun__block_size(const void *ptr);

/* ---- vmm.c ---- */

/* True for device memory, which the host must not access. */
bool dryrun__is_device(const void *ptr);

/* ---- exported by libcuda.so.1 for observers in other processes and for the NVML here ---- */

#define DRYRUN_USAGE_MAGIC 0x4d544452u

struct dryrun_usage {
	uint32_t magic, version, n_devices,
		linked; /* CUDART_VERSION of a runtime that is linked into an object; 0: none */
	struct {
		uint64_t total, used /* bytes; used: by this process, context included */, context,
			refused /* number of failed allocations */, held /* by other processes */;
	} device[DRYRUN_MAX_DEVICES];
	uint64_t reports; /* calls of c10::reportMemoryUsageToProfiler, to count losses */
};

extern struct dryrun_usage memtrace_dryrun_usage;

/* ---- stream.c ---- */

/*
 * For NCCL: before the next cudaStreamWaitEvent of a stream without collectives, pauses so that the
 * watchdog sees the work done.
 */
void dryrun__collective_enqueued(void *stream);
/*
 * Adds work to a stream; during a capture, a node. CUDA_CAPTURE_INVALIDATED: the capture has become
 * invalid and accepts no work until it ends.
 */
int dryrun__stream_work(void *stream);
/* The same for work of so many ns of virtual time: on the stream, or in the graph of a capture.
 * Waits while the stream's queue is full. 0: it takes no time. */
int dryrun__stream_run(void *stream, uint64_t ns);
/* The host waits for a stream. During a capture: CUDA_CAPTURE_UNSUPPORTED, and the capture becomes
 * invalid. */
int dryrun__stream_wait(void *stream);
/* The host waits for all streams of a device; errors as for dryrun__stream_wait(). */
int dryrun__device_wait(int device);
