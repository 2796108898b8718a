/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Calls CUDA's functions and prints what a tracer must record, in order: "take HOW ADDR SIZE
 * DEVICE", "give HOW ADDR SIZE DEVICE"; "failed FUNCTION" for failed calls; "missing FUNCTION" for
 * functions that a library lacks. A library to load into a traced process: call cuda_load(RUNTIME,
 * DRIVER) with paths, or "" for libraries already loaded, then one of the functions at the end.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	DEVICE = 1,
	ASYNC,
	MANAGED,
	HOST,
	REGISTERED,
	PHYSICAL,
	MAPPED,
	RESERVED
}; /* numbers as in user/record/stream.h */
#define NO_DEVICE 255
#define GRAIN (2ull << 20)

struct extent {
	size_t width, height, depth;
};

struct pitched {
	void *ptr;
	size_t pitch, xsize, ysize;
};

/* CUmemAllocationProp of cuda.h */
struct prop {
	int type, handle_types, location_type, location_id;
	void *win32;
	uint8_t flags[8];
};

static void *runtime, *driver;

typedef int (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
static const char *const names[] = {
	"cudaMalloc",
	"cudaFree",
	"cudaMallocAsync",
	"cudaMallocAsync_ptsz",
	"cudaFreeAsync",
	"cudaFreeAsync_ptsz",
	"cudaMallocManaged",
	"cudaMallocPitch",
	"cudaHostAlloc",
	"cudaMallocHost",
	"cudaFreeHost",
	"cudaHostRegister",
	"cudaHostUnregister",
	"cudaMallocFromPoolAsync",
	"cudaDeviceGetDefaultMemPool",
	"cuMemAlloc_v2",
	"cuMemFree_v2",
	"cuMemHostAlloc",
	"cuMemAllocHost_v2",
	"cuMemFreeHost",
	"cuMemAllocManaged",
	"cuMemAddressReserve",
	"cuMemAddressFree",
	"cuMemCreate",
	"cuMemRelease",
	"cuMemMap",
	"cuMemUnmap",
	"cuMemAllocAsync",
	"cuMemFreeAsync",
	"cuMemAllocPitch_v2",
	"cuMemHostRegister_v2",
	"cuMemHostUnregister",
	"cuMemRetainAllocationHandle",
	"cudaMallocFromPoolAsync_ptsz",
	"cudaSetDevice",
};
/* Functions that cuda_refused() does not call. */
static const char *const more[] = {
	"cudaMemPoolCreate",
	"cudaDeviceReset",
	"cuMemExportToShareableHandle",
	"cuMemImportFromShareableHandle",
	"cuCtxGetCurrent",
	"cuCtxSetCurrent",
	"cuCtxPushCurrent_v2",
	"cuCtxPopCurrent_v2",
	"cuCtxCreate_v2",
	"cuCtxDestroy_v2",
	"cuDevicePrimaryCtxRetain",
	"cuDevicePrimaryCtxReset_v2",
	"cuMemFreeAsync_ptsz",
	"cuMemAllocAsync_ptsz",
	"cuGetProcAddress_v2",
};

static function find(const char *name)
{
	void *f = dlsym(!strncmp(name, "cuda", 4) ? runtime : driver, name);
	size_t i, k;

	for (i = 0; i < sizeof(names) / sizeof(names[0]) && strcmp(names[i], name); i++)
		;
	for (k = 0; k < sizeof(more) / sizeof(more[0]) && strcmp(more[k], name); k++)
		;
	if (i == sizeof(names) / sizeof(names[0]) && k == sizeof(more) / sizeof(more[0]))
		abort();
	if (!f)
		printf("missing %s\n", name);
	return (function)f;
}

/* True: the call succeeded. */
static int call(const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	function f = find(name);

	if (!f)
		return 0;
	if (!f(a, b, c, d, e))
		return 1;
	printf("failed %s\n", name);
	return 0;
}

static void take(int how, uint64_t addr, uint64_t size, int device)
{
	printf("take %d %#" PRIx64 " %" PRIu64 " %d\n", how, addr, size, device);
}

static void give(int how, uint64_t addr, uint64_t size, int device)
{
	printf("give %d %#" PRIx64 " %" PRIu64 " %d\n", how, addr, size, device);
}

/* Allocates and frees once; the address is returned through the first argument. */
static void pair(const char *taking, const char *giving, int how, uint64_t size, int device)
{
	uint64_t p = 0;

	if (!call(taking, (uint64_t)&p, size, 0, 0, 0))
		return;
	take(how, p, size, device);
	if (call(giving, p, 0, 0, 0, 0))
		give(how, p, size, device);
}

static void pitched(const char *taking, const char *giving)
{
	uint64_t p = 0, pitch = 0;

	if (!call(taking, (uint64_t)&p, (uint64_t)&pitch, 1000, 7, 4))
		return;
	take(DEVICE, p, pitch * 7, 0);
	if (call(giving, p, 0, 0, 0, 0))
		give(DEVICE, p, pitch * 7, 0);
}

static void pitched_3d(void)
{
	int (*f)(struct pitched *, struct extent) = (int (*)(struct pitched *, struct extent))dlsym(
		runtime, "cudaMalloc3D");
	struct extent e = { 1000, 3, 5 };
	struct pitched p;

	memset(&p, 0, sizeof(p));
	if (!f)
		printf("missing cudaMalloc3D\n");
	else if (f(&p, e))
		printf("failed cudaMalloc3D\n");
	else {
		take(DEVICE, (uint64_t)p.ptr, p.pitch * 15, 0);
		if (call("cudaFree", (uint64_t)p.ptr, 0, 0, 0, 0))
			give(DEVICE, (uint64_t)p.ptr, p.pitch * 15, 0);
	}
}

static void registered(const char *taking, const char *giving)
{
	static char memory[3 * 4096] __attribute__((aligned(4096)));

	if (!call(taking, (uint64_t)memory, sizeof(memory), 0, 0, 0))
		return;
	take(REGISTERED, (uint64_t)memory, sizeof(memory), NO_DEVICE);
	if (call(giving, (uint64_t)memory, 0, 0, 0, 0))
		give(REGISTERED, (uint64_t)memory, sizeof(memory), NO_DEVICE);
}

static void from_pool(void)
{
	uint64_t pool = 0, p = 0;

	if (!call("cudaDeviceGetDefaultMemPool", (uint64_t)&pool, 0, 0, 0, 0) ||
	    !call("cudaMallocFromPoolAsync", (uint64_t)&p, 12345, pool, 0, 0))
		return;
	take(ASYNC, p, 12345, 0);
	if (call("cudaFreeAsync", p, 0, 0, 0, 0))
		give(ASYNC, p, 12345, 0);
}

/* Does what PyTorch's expandable segments do: addresses, memory, mapping; unmaps two pieces at
 * once. */
static void segments(void)
{
	struct prop prop = { .type = 1, .location_type = 1, .location_id = 0 };
	uint64_t base = 0x600000000000, handle[2] = { 0 }, again = 0;
	int reserved, i;

	reserved = call("cuMemAddressReserve", (uint64_t)&base, 4 * GRAIN, 0, 0, 0);
	if (reserved)
		take(RESERVED, base, 4 * GRAIN, NO_DEVICE);
	for (i = 0; i < 2; i++) {
		if (!call("cuMemCreate", (uint64_t)&handle[i], GRAIN, (uint64_t)&prop, 0, 0))
			return;
		take(PHYSICAL, handle[i], GRAIN, 0);
		if (!call("cuMemMap", base + i * GRAIN, GRAIN, 0, handle[i], 0))
			return;
		take(MAPPED, base + i * GRAIN, GRAIN, 0);
	}
	/* The first is released while mapped, so its memory stays until it is unmapped. The second
	 * has two references. */
	call("cuMemRelease", handle[0], 0, 0, 0, 0);
	if (call("cuMemRetainAllocationHandle", (uint64_t)&again, base + GRAIN, 0, 0, 0))
		call("cuMemRelease", again, 0, 0, 0, 0);
	if (!call("cuMemUnmap", base, 2 * GRAIN, 0, 0, 0))
		return;
	give(MAPPED, base, GRAIN, 0);
	give(PHYSICAL, handle[0], GRAIN, 0);
	give(MAPPED, base + GRAIN, GRAIN, 0);
	if (call("cuMemRelease", handle[1], 0, 0, 0, 0))
		give(PHYSICAL, handle[1], GRAIN, 0);
	if (reserved && call("cuMemAddressFree", base, 4 * GRAIN, 0, 0, 0))
		give(RESERVED, base, 4 * GRAIN, NO_DEVICE);
}

static void *thread(void *arg)
{
	uint64_t *p = arg;
	function f = find("cudaMalloc");

	if (!f || f((uint64_t)p, 4096, 0, 0, 0))
		*p = 0;
	return NULL;
}

/* Each of several threads allocates; this thread frees. */
static void threads(void)
{
	pthread_t t[4];
	uint64_t p[4];
	int i;

	for (i = 0; i < 4; i++) {
		pthread_create(&t[i], NULL, thread, &p[i]);
		pthread_join(t[i], NULL);
		if (p[i])
			take(DEVICE, p[i], 4096, 0);
		else
			printf("failed cudaMalloc\n");
	}
	for (i = 0; i < 4; i++)
		if (p[i] && call("cudaFree", p[i], 0, 0, 0, 0))
			give(DEVICE, p[i], 4096, 0);
}

static void everything(void)
{
	uint64_t p = 0;

	pair("cudaMalloc", "cudaFree", DEVICE, 1 << 20, 0);
	pair("cudaMalloc", "cudaFree", DEVICE, 3, 0);
	if (call("cudaMalloc", (uint64_t)&p, 1ull << 50, 0, 0, 0)) /* more than the device has */
		take(DEVICE, p, 1ull << 50, 0);
	call("cudaFree", 0, 0, 0, 0, 0); /* NULL */
	pitched("cudaMallocPitch", "cudaFree");
	pitched_3d();
	pair("cudaMallocAsync", "cudaFreeAsync", ASYNC, 5000, 0);
	pair("cudaMallocAsync_ptsz", "cudaFreeAsync_ptsz", ASYNC, 6000, 0);
	pair("cudaMallocAsync", "cudaFree", ASYNC, 7000, 0); /* allowed by CUDA */
	from_pool();
	pair("cudaMallocManaged", "cudaFree", MANAGED, 8000, 0);
	pair("cudaHostAlloc", "cudaFreeHost", HOST, 9000, NO_DEVICE);
	pair("cudaMallocHost", "cudaFreeHost", HOST, 10000, NO_DEVICE);
	registered("cudaHostRegister", "cudaHostUnregister");
	pair("cuMemAlloc_v2", "cuMemFree_v2", DEVICE, 11000, 0);
	pitched("cuMemAllocPitch_v2", "cuMemFree_v2");
	pair("cuMemAllocAsync", "cuMemFreeAsync", ASYNC, 12000, 0);
	pair("cuMemHostAlloc", "cuMemFreeHost", HOST, 13000, NO_DEVICE);
	pair("cuMemAllocHost_v2", "cuMemFreeHost", HOST, 14000, NO_DEVICE);
	registered("cuMemHostRegister_v2", "cuMemHostUnregister");
	segments();
	threads();
	pair("cudaMalloc", "cudaFree", DEVICE, 15000, 0);
}

int cuda_load(const char *runtime_path, const char *driver_path)
{
	runtime = *runtime_path ? dlopen(runtime_path, RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
	driver = *driver_path ? dlopen(driver_path, RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
	if (runtime != RTLD_DEFAULT && !runtime)
		fprintf(stderr, "%s\n", dlerror());
	if (driver != RTLD_DEFAULT && !driver)
		fprintf(stderr, "%s\n", dlerror());
	return (*runtime_path && !runtime) || (*driver_path && !driver);
}

int cuda_calls(void)
{
	everything();
	fflush(stdout);
	return 0;
}

/* Calls every function of the runtime once without a driver, so that all fail. */
int cuda_refused(void)
{
	static uint64_t memory[512] __attribute__((aligned(4096)));
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(names[i], "cuda", 4) &&
		    call(names[i], (uint64_t)memory, sizeof(memory), (uint64_t)memory,
			 (uint64_t)memory, 0))
			printf("take 0 0 0 0\n"); /* a line that the recording must not have */
	pitched_3d();
	fflush(stdout);
	return 0;
}

static void *on_no_device(void *arg)
{
	/* on the first device, but no call says so */
	pair("cudaMalloc", "cudaFree", DEVICE, 4000, NO_DEVICE);
	return arg;
}

/* Needs two devices or more. This thread has not set a device before. */
int cuda_devices(void)
{
	struct prop prop = { .type = 1, .location_type = 1, .location_id = 1 };
	uint64_t p = 0, handle = 0;
	pthread_t t;

	pair("cudaMalloc", "cudaFree", DEVICE, 1000, NO_DEVICE);
	/* An int is the lower half of its register. */
	call("cudaSetDevice", 0xdead00000001, 0, 0, 0, 0);
	pair("cudaMalloc", "cudaFree", DEVICE, 2000, 1);
	if (call("cudaMalloc", (uint64_t)&p, 3000, 0, 0, 0))
		take(DEVICE, p, 3000, 1);
	call("cudaSetDevice", 0, 0, 0, 0, 0);
	pair("cuMemAlloc_v2", "cuMemFree_v2", DEVICE, 2500, 0);
	pthread_create(&t, NULL, on_no_device, NULL);
	pthread_join(t, NULL);
	if (call("cudaFree", p, 0, 0, 0, 0))
		give(DEVICE, p, 3000, 1); /* on the block's device, not the current one */
	if (call("cuMemCreate", (uint64_t)&handle, GRAIN, (uint64_t)&prop, 0, 0)) {
		take(PHYSICAL, handle, GRAIN, 1);
		if (call("cuMemRelease", handle, 0, 0, 0, 0))
			give(PHYSICAL, handle, GRAIN, 1);
	}
	fflush(stdout);
	return 0;
}

/* Host memory from cuMemCreate and pools is no device memory. A mapping adds nothing. */
int cuda_places(void)
{
	struct prop host = { .type = 1, .location_type = 2 },
		    ours = { .type = 1, .handle_types = 1, .location_type = 1 };
	struct prop pools[] = { { .type = 1, .location_type = 2 },
				{ .type = 2, .location_type = 1 },
				{ .type = 1, .location_type = 1 } };
	static const int hows[] = { HOST, MANAGED, ASYNC };
	uint64_t base = 0, handle = 0, pool, p;
	int fd = -1, i;

	if (!call("cuMemAddressReserve", (uint64_t)&base, GRAIN, 0, 0, 0))
		return 1;
	take(RESERVED, base, GRAIN, NO_DEVICE);
	if (!call("cuMemCreate", (uint64_t)&handle, GRAIN, (uint64_t)&host, 0, 0) ||
	    !call("cuMemMap", base, GRAIN, 0, handle, 0))
		return 1;
	take(HOST, handle, GRAIN, NO_DEVICE);
	if (!call("cuMemRelease", handle, 0, 0, 0, 0) || !call("cuMemUnmap", base, GRAIN, 0, 0, 0))
		return 1;
	give(HOST, handle, GRAIN, NO_DEVICE);

	/* Imported memory counts for the process that created it. */
	if (!call("cuMemCreate", (uint64_t)&handle, GRAIN, (uint64_t)&ours, 0, 0))
		return 1;
	take(PHYSICAL, handle, GRAIN, 0);
	p = 0;
	if (!call("cuMemExportToShareableHandle", (uint64_t)&fd, handle, 1, 0, 0) ||
	    !call("cuMemImportFromShareableHandle", (uint64_t)&p, (uint64_t)fd, 1, 0, 0) ||
	    !call("cuMemMap", base, GRAIN, 0, p, 0) || !call("cuMemUnmap", base, GRAIN, 0, 0, 0) ||
	    !call("cuMemRelease", p, 0, 0, 0, 0) || !call("cuMemRelease", handle, 0, 0, 0, 0))
		return 1;
	close(fd);
	give(PHYSICAL, handle, GRAIN, 0);
	if (call("cuMemAddressFree", base, GRAIN, 0, 0, 0))
		give(RESERVED, base, GRAIN, NO_DEVICE);

	for (i = 0; i < 3; i++) {
		pool = p = 0;
		if (!call("cudaMemPoolCreate", (uint64_t)&pool, (uint64_t)&pools[i], 0, 0, 0) ||
		    !call("cudaMallocFromPoolAsync", (uint64_t)&p, 5000 + i, pool, 0, 0))
			return 1;
		take(hows[i], p, 5000 + i, hows[i] == HOST ? NO_DEVICE : 0);
		if (call("cudaFreeAsync", p, 0, 0, 0, 0))
			give(hows[i], p, 5000 + i, hows[i] == HOST ? NO_DEVICE : 0);
	}
	fflush(stdout);
	return 0;
}

/* One call frees what was allocated in a device's context: not pools, not memory of cuMemCreate,
 * not the other device's. */
static int reset(const char *function, int device)
{
	struct prop prop = { .type = 1, .location_type = 1, .location_id = device };
	uint64_t p[5] = { 0 }, handle = 0, other = 0;

	call("cudaSetDevice", !device, 0, 0, 0, 0);
	if (call("cudaMalloc", (uint64_t)&other, 6000, 0, 0, 0))
		take(DEVICE, other, 6000, !device);
	call("cudaSetDevice", device, 0, 0, 0, 0);
	if (!call("cudaMalloc", (uint64_t)&p[0], 3000, 0, 0, 0) ||
	    !call("cuMemAlloc_v2", (uint64_t)&p[1], 3 << 20, 0, 0, 0) ||
	    !call("cudaMallocHost", (uint64_t)&p[2], 4000, 0, 0, 0) ||
	    !call("cudaMallocManaged", (uint64_t)&p[3], 5000, 1, 0, 0) ||
	    !call("cudaMallocAsync", (uint64_t)&p[4], 7000, 0, 0, 0) ||
	    !call("cuMemCreate", (uint64_t)&handle, GRAIN, (uint64_t)&prop, 0, 0))
		return 1;
	take(DEVICE, p[0], 3000, device);
	take(DEVICE, p[1], 3 << 20, device);
	take(HOST, p[2], 4000, NO_DEVICE);
	take(MANAGED, p[3], 5000, device);
	take(ASYNC, p[4], 7000, device);
	take(PHYSICAL, handle, GRAIN, device);
	if (!call(function, device, 0, 0, 0, 0))
		return 1;
	give(DEVICE, p[0], 3000, device);
	give(DEVICE, p[1], 3 << 20, device);
	give(HOST, p[2], 4000, NO_DEVICE);
	give(MANAGED, p[3], 5000, device);
	if (call("cudaFreeAsync", p[4], 0, 0, 0, 0))
		give(ASYNC, p[4], 7000, device);
	if (call("cuMemRelease", handle, 0, 0, 0, 0))
		give(PHYSICAL, handle, GRAIN, device);
	if (call("cudaFree", other, 0, 0, 0, 0))
		give(DEVICE, other, 6000, !device);
	return 0;
}

int cuda_reset(void)
{
	int code = reset("cudaDeviceReset", 1) || reset("cuDevicePrimaryCtxReset_v2", 0);

	fflush(stdout);
	return code;
}

/* The current context determines the device. Contexts created before attach are unknown. */
int cuda_contexts(void)
{
	uint64_t first = 0, second = 0;

	call("cudaSetDevice", 0, 0, 0, 0, 0);
	call("cuCtxGetCurrent", (uint64_t)&first, 0, 0, 0, 0);
	call("cuDevicePrimaryCtxRetain", (uint64_t)&second, 1, 0, 0, 0);
	call("cuCtxPushCurrent_v2", second, 0, 0, 0, 0);
	pair("cuMemAlloc_v2", "cuMemFree_v2", DEVICE, 1000, 1);
	call("cuCtxPushCurrent_v2", first, 0, 0, 0, 0);
	pair("cuMemAlloc_v2", "cuMemFree_v2", DEVICE, 2000, NO_DEVICE);
	call("cuCtxPopCurrent_v2", 0, 0, 0, 0, 0);
	pair("cuMemAlloc_v2", "cuMemFree_v2", DEVICE, 3000, 1);
	call("cuCtxPopCurrent_v2", 0, 0, 0, 0, 0);
	pair("cuMemAlloc_v2", "cuMemFree_v2", DEVICE, 4000, 0);
	call("cuCtxSetCurrent", second, 0, 0, 0, 0);
	pair("cudaMalloc", "cudaFree", DEVICE, 5000, 1);
	call("cudaSetDevice", 7, 0, 0, 0, 0); /* no such device: the current device stays */
	pair("cudaMalloc", "cudaFree", DEVICE, 6000, 1);
	call("cuCtxSetCurrent", first, 0, 0, 0, 0);
	pair("cudaMalloc", "cudaFree", DEVICE, 7000, NO_DEVICE);
	call("cudaSetDevice", 0, 0, 0, 0, 0);
	pair("cudaMalloc", "cudaFree", DEVICE, 8000, 0);
	fflush(stdout);
	return 0;
}

/* Calls driver functions by address, as libraries do. The per-thread default stream has separate
 * functions. */
int cuda_by_address(void)
{
	uint64_t p[2] = { 0 };
	int i, found[4], state;
	function f[4] = { NULL };
	static const char *const names[] = { "cuMemAllocAsync", "cuMemFreeAsync" };

	for (i = 0; i < 4; i++)
		found[i] = call("cuGetProcAddress_v2", (uint64_t)names[i % 2], (uint64_t)&f[i],
				12080, i < 2 ? 1 : 2, (uint64_t)&state);
	if (!found[0] || !found[1] || !found[2] || !found[3] ||
	    f[2] != find("cuMemAllocAsync_ptsz") || f[3] != find("cuMemFreeAsync_ptsz"))
		return 1;
	for (i = 0; i < 2; i++) {
		if (f[2 * i]((uint64_t)&p[i], 4000 + i, 0, 0, 0))
			return 1;
		take(ASYNC, p[i], 4000 + i, 0);
		if (!f[2 * i + 1](p[i], 0, 0, 0, 0))
			give(ASYNC, p[i], 4000 + i, 0);
	}
	fflush(stdout);
	return 0;
}

int cuda_many(void)
{
	int i;

	for (i = 0; i < 12; i++)
		pair("cudaMalloc", "cudaFree", DEVICE, 1000 + i, 0);
	fflush(stdout);
	return 0;
}

/* ---- what only cuda_fake.c allows ---- */

/* Destroys a context of the program's own: its memory is freed, other memory stays. */
int cuda_own_context(void)
{
	uint64_t context = 0, p[3] = { 0 };

	if (!call("cudaMalloc", (uint64_t)&p[0], 1000, 0, 0, 0) ||
	    !call("cuCtxCreate_v2", (uint64_t)&context, 0, 0, 0, 0) ||
	    !call("cuMemAlloc_v2", (uint64_t)&p[1], 2000, 0, 0, 0) ||
	    !call("cuCtxPopCurrent_v2", 0, 0, 0, 0, 0) ||
	    !call("cuMemAlloc_v2", (uint64_t)&p[2], 3000, 0, 0, 0) ||
	    !call("cuCtxDestroy_v2", context, 0, 0, 0, 0))
		return 1;
	take(DEVICE, p[0], 1000, NO_DEVICE);
	take(DEVICE, p[1], 2000, 0);
	take(DEVICE, p[2], 3000, NO_DEVICE);
	give(DEVICE, p[1], 2000, 0);
	if (call("cuMemFree_v2", p[2], 0, 0, 0, 0))
		give(DEVICE, p[2], 3000, NO_DEVICE);
	if (call("cudaFree", p[0], 0, 0, 0, 0))
		give(DEVICE, p[0], 1000, NO_DEVICE);
	fflush(stdout);
	return 0;
}

static jmp_buf away;

static void leave(void)
{
	longjmp(away, 1);
}

static void end_thread(void)
{
	syscall(SYS_exit, 0);
}

static void *dying(void *arg)
{
	uint64_t p;

	find("cudaMallocManaged")((uint64_t)&p, 1, 1, 0, 0);
	return arg;
}

/* Calls that never return, followed by calls that must be recorded. */
int cuda_odd(void)
{
	void (**hook)(void);
	pthread_t t;
	uint64_t p;
	volatile int i;

	hook = (void (**)(void))dlsym(runtime, "fake_hook");
	if (!hook)
		return 1;
	*hook = leave;
	for (i = 0; i < 3; i++) {
		if (!setjmp(away))
			find("cudaMallocManaged")((uint64_t)&p, 1, 1, 0, 0);
		pair("cudaMalloc", "cudaFree", DEVICE, 1000 + i, 0);
	}
	*hook = end_thread;
	for (i = 0; i < 3; i++) {
		pthread_create(&t, NULL, dying, NULL);
		pthread_detach(t);
		usleep(50000);
		pair("cudaMalloc", "cudaFree", DEVICE, 2000 + i, 0);
	}
	*hook = NULL;
	pair("cudaMallocManaged", "cudaFree", MANAGED, 3000, 0);
	fflush(stdout);
	return 0;
}
