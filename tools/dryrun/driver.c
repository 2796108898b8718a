// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The driver API as far as PyTorch, Triton and the memory model need it. The others are
 * generated. */
#include "clock.h"
#include "core.h"
#include "lib.h"
#include "linked.h"
#include "host.h"
#include "pool.h"
#include "props.h"
#include "stream.h"
#include "vmm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_VERSION 13020

typedef uint64_t devptr;

/* An exported function, and its implementation as a separate function: see internal_function() in
 * entry.c. */
#define HIDDEN(name, args, ...)                                                                    \
	static __attribute__((noinline)) int name##_hidden(__VA_ARGS__);                           \
	API(int, name, __VA_ARGS__)                                                                \
	{                                                                                          \
		return name##_hidden args;                                                         \
	}                                                                                          \
	static int name##_hidden(__VA_ARGS__)

/* The same for the per-thread default stream: work completes at once on every stream. */
#define PER_THREAD(name, args, ...)                                                                \
	API(int, name##_ptsz, __VA_ARGS__)                                                         \
	{                                                                                          \
		return name##_hidden args;                                                         \
	}

/* ---- errors; entry points are in entry.c ---- */

API(int, cuInit, unsigned int flags)
{
	return dryrun__n_devices() ? CUDA_OK : CUDA_NO_DEVICE;
}

API(int, cuDriverGetVersion, int *version)
{
	*version = DRIVER_VERSION;
	return CUDA_OK;
}

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
	{ CUDA_OK, "CUDA_SUCCESS", "no error" },
	{ CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ CUDA_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ CUDA_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ CUDA_PEER_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
	  "peer access is already enabled" },
	{ CUDA_PEER_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
	  "peer access has not been enabled" },
	{ CUDA_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported (dry run)" },
	{ CUDA_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	  "operation not permitted when stream is capturing" },
	{ CUDA_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	  "operation failed due to a previous error during capture" },
	{ CUDA_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
	  "capture was not initiated in this stream" },
	{ CUDA_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
	  "operation not permitted on an event last recorded in a capturing stream" },
};

static int error_text(int error, bool name, const char **text)
{
	if (!text)
		return CUDA_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		if (errors[i].code != error)
			continue;
		*text = name ? errors[i].name : errors[i].text;
		return CUDA_OK;
	}
	*text = NULL;
	return CUDA_INVALID_VALUE;
}

API(int, cuGetErrorName, int error, const char **text)
{
	return error_text(error, true, text);
}

API(int, cuGetErrorString, int error, const char **text)
{
	return error_text(error, false, text);
}

/* The table that NVIDIA's own runtime asks for. It is not answered: the runtime then checks that
 * the driver is NVIDIA's. */
static const unsigned char runtime_table[16] = { 0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
						 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9 };

/* A runtime whose functions are redirected asks, too: the few that are its own, such as
 * cudaGetErrorName(), work without a driver. */
static void refuse_runtime(const void *caller)
{
	static bool said;
	Dl_info from;

	if (!dladdr(caller, &from) || !from.dli_fname || linked__redirected(caller) ||
	    __atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		return;
	fprintf(stderr,
		"memtrace-bpf: dry run: NVIDIA's own CUDA runtime in %s asks for a driver, and its "
		"calls fail. A runtime that is linked in (libcudart_static.a) needs its symbol "
		"table: do not strip the file, or link the shared runtime (nvcc -cudart shared)\n",
		from.dli_fname);
}

API(int, cuGetExportTable, const void **table, const void *id)
{
	if (!table || !id)
		return CUDA_INVALID_VALUE;
	*table = NULL;
	if (!memcmp(id, runtime_table, sizeof(runtime_table)))
		refuse_runtime(__builtin_return_address(0));
	return CUDA_NOT_FOUND;
}

/* ---- devices ---- */

API(int, cuDeviceGetCount, int *count)
{
	*count = dryrun__n_devices();
	return CUDA_OK;
}

API(int, cuDeviceGet, int *device, int ordinal)
{
	if (!device || ordinal < 0 || ordinal >= dryrun__n_devices())
		return CUDA_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_OK;
}

static bool valid(int device)
{
	return device >= 0 && device < dryrun__n_devices();
}

API(int, cuDeviceGetName, char *name, int size, int device)
{
	if (!valid(device) || size < 1)
		return CUDA_INVALID_DEVICE;
	snprintf(name, (size_t)size, "%s", dryrun__config()->name);
	return CUDA_OK;
}

API(int, cuDeviceGetUuid_v2, unsigned char *uuid, int device)
{
	if (!valid(device))
		return CUDA_INVALID_DEVICE;
	props__uuid(device, uuid);
	return CUDA_OK;
}

API(int, cuDeviceGetUuid, unsigned char *uuid, int device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

API(int, cuDeviceTotalMem_v2, size_t *size, int device)
{
	if (!valid(device))
		return CUDA_INVALID_DEVICE;
	*size = dryrun__config()->vram;
	return CUDA_OK;
}

API(int, cuDeviceGetAttribute, int *value, int attribute, int device)
{
	if (!valid(device))
		return CUDA_INVALID_DEVICE;
	*value = props__attribute(attribute, device);
	return CUDA_OK;
}

API(int, cuDeviceGetPCIBusId, char *text, int size, int device)
{
	if (!valid(device))
		return CUDA_INVALID_DEVICE;
	if (!text || size < 13)
		return CUDA_INVALID_VALUE;
	props__bus_id(device, text, (size_t)size);
	return CUDA_OK;
}

API(int, cuDeviceCanAccessPeer, int *can, int device, int peer)
{
	if (!valid(device) || !valid(peer))
		return CUDA_INVALID_DEVICE;
	*can = device != peer;
	return CUDA_OK;
}

API(int, cuDeviceGetP2PAttribute, int *value, int attribute, int device, int peer)
{
	if (!valid(device) || !valid(peer))
		return CUDA_INVALID_DEVICE;
	*value = device != peer && attribute != 1;
	return CUDA_OK;
}

API(int, cuDeviceGetDefaultMemPool, struct pool **pool, int device)
{
	if (!valid(device))
		return CUDA_INVALID_DEVICE;
	*pool = pool__default(device);
	return *pool ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

API(int, cuDeviceGetMemPool, struct pool **pool, int device)
{
	if (!valid(device))
		return CUDA_INVALID_DEVICE;
	*pool = pool__current(device);
	return *pool ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

API(int, cuDeviceSetMemPool, int device, struct pool *pool)
{
	return valid(device) ? pool__set_current(device, pool) : CUDA_INVALID_DEVICE;
}

/* ---- contexts: the primary one of each device ---- */

struct context {
	char unused; /* only the struct's address is used */
};

static struct context contexts[DRYRUN_MAX_DEVICES];
static __thread bool no_context; /* after cuCtxSetCurrent(NULL) */

#define MAX_PUSHED 16

static __thread struct context *pushed[MAX_PUSHED];
static __thread unsigned int n_pushed;

static struct context *current(void)
{
	return !no_context && dryrun__in_use(dryrun__device()) ? &contexts[dryrun__device()] : NULL;
}

static int set_current(struct context *context)
{
	size_t device = (size_t)(context - contexts);
	int err;

	if (!context) {
		no_context = true;
		return CUDA_OK;
	}
	if (context < contexts || device >= (size_t)dryrun__n_devices())
		return CUDA_INVALID_CONTEXT;
	err = dryrun__set_device((int)device);
	if (!err)
		no_context = false;
	return err;
}

API(int, cuCtxGetCurrent, struct context **context)
{
	*context = current();
	return CUDA_OK;
}

API(int, cuCtxSetCurrent, struct context *context)
{
	return set_current(context);
}

API(int, cuCtxPushCurrent_v2, struct context *context)
{
	struct context *before = current();
	int err;

	if (!context || n_pushed == MAX_PUSHED)
		return CUDA_INVALID_CONTEXT;
	err = set_current(context);
	if (!err)
		pushed[n_pushed++] = before;
	return err;
}

API(int, cuCtxPushCurrent, struct context *context)
{
	return cuCtxPushCurrent_v2(context);
}

API(int, cuCtxPopCurrent_v2, struct context **context)
{
	struct context *before = current();

	if (!before)
		return CUDA_INVALID_CONTEXT;
	if (context)
		*context = before;
	return set_current(n_pushed ? pushed[--n_pushed] : NULL);
}

API(int, cuCtxPopCurrent, struct context **context)
{
	return cuCtxPopCurrent_v2(context);
}

API(int, cuCtxGetDevice, int *device)
{
	if (!current())
		return CUDA_INVALID_CONTEXT;
	*device = dryrun__device();
	return CUDA_OK;
}

/* The device of a context; NULL or an unknown context is the current one, see entry.c. */
static int device_of(const struct context *context)
{
	return context >= contexts && context < contexts + dryrun__n_devices()
		       ? (int)(context - contexts)
		       : dryrun__device();
}

API(int, cuCtxGetDevice_v2, int *device, struct context *context)
{
	if (!current())
		return CUDA_INVALID_CONTEXT;
	*device = device_of(context);
	return CUDA_OK;
}

API(int, cuCtxGetFlags, unsigned int *flags)
{
	*flags = 0;
	return CUDA_OK;
}

API(int, cuCtxGetApiVersion, struct context *context, unsigned int *version)
{
	*version = 3020; /* value of the drivers of CUDA 12 and 13 */
	return CUDA_OK;
}

API(int, cuCtxGetStreamPriorityRange, int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_OK;
}

static int wait_for(int device)
{
	int err = current() ? dryrun__device_wait(device) : CUDA_INVALID_CONTEXT;

	if (!err)
		pool__at_sync(device);
	return err;
}

API(int, cuCtxSynchronize, void)
{
	return wait_for(dryrun__device());
}

API(int, cuCtxSynchronize_v2, struct context *context)
{
	return wait_for(device_of(context));
}

NO_EFFECT(cuCtxEnablePeerAccess)

API(int, cuDevicePrimaryCtxGetState, int device, unsigned int *flags, int *active)
{
	if (!valid(device))
		return CUDA_INVALID_DEVICE;
	if (flags)
		*flags = 0;
	if (active)
		*active = dryrun__in_use(device);
	return CUDA_OK;
}

API(int, cuDevicePrimaryCtxRetain, struct context **context, int device)
{
	int err = dryrun__use(device);

	if (!err)
		*context = &contexts[device];
	return err;
}

API(int, cuDevicePrimaryCtxRelease_v2, int device)
{
	return valid(device) ? CUDA_OK : CUDA_INVALID_DEVICE;
}

API(int, cuDevicePrimaryCtxSetFlags_v2, int device, unsigned int flags)
{
	return valid(device) ? CUDA_OK : CUDA_INVALID_DEVICE;
}

API(int, cuDevicePrimaryCtxReset_v2, int device)
{
	if (!valid(device))
		return CUDA_INVALID_DEVICE;
	dryrun__reset(device);
	return CUDA_OK;
}

/* ---- memory ---- */

static int need_context(void)
{
	return current() ? CUDA_OK : CUDA_INVALID_CONTEXT;
}

API(int, cuMemGetInfo_v2, size_t *available, size_t *total)
{
	int err = need_context();

	if (!err)
		dryrun__memory(dryrun__device(), available, total);
	return err;
}

HIDDEN(cuMemAlloc_v2, (ptr, size), devptr *ptr, size_t size)
{
	int err = need_context();

	if (!ptr || !size)
		return CUDA_INVALID_VALUE;
	return err ? err : dryrun__alloc(dryrun__device(), size, (void **)ptr);
}

HIDDEN(cuMemAllocManaged, (ptr, size, flags), devptr *ptr, size_t size, unsigned int flags)
{
	return ptr && size ? host__alloc_managed(size, (void **)ptr) : CUDA_INVALID_VALUE;
}

HIDDEN(cuMemFree_v2, (ptr), devptr ptr)
{
	int err;

	clock__wait(clock__device_end(dryrun__device()));
	err = dryrun__free((void *)(uintptr_t)ptr);
	return err ? host__free_managed((void *)(uintptr_t)ptr) : CUDA_OK;
}

HIDDEN(cuMemAllocHost_v2, (ptr, size), void **ptr, size_t size)
{
	return ptr && size ? host__alloc(size, 0, ptr) : CUDA_INVALID_VALUE;
}

HIDDEN(cuMemHostAlloc, (ptr, size, flags), void **ptr, size_t size, unsigned int flags)
{
	return ptr && size ? host__alloc(size, flags, ptr) : CUDA_INVALID_VALUE;
}

HIDDEN(cuMemFreeHost, (ptr), void *ptr)
{
	return host__free(ptr);
}

HIDDEN(cuMemHostRegister_v2, (ptr, size, flags), void *ptr, size_t size, unsigned int flags)
{
	return host__register(ptr, size, flags);
}

API(int, cuMemHostUnregister, void *ptr)
{
	return host__unregister(ptr);
}

API(int, cuMemHostGetDevicePointer_v2, devptr *out, void *ptr, unsigned int flags)
{
	struct dryrun_range range;

	dryrun__where(ptr, &range);
	if (range.place != PLACE_PINNED)
		return CUDA_INVALID_VALUE;
	*out = (uintptr_t)ptr;
	return CUDA_OK;
}

HIDDEN(cuMemAllocAsync, (ptr, size, stream), devptr *ptr, size_t size, void *stream)
{
	struct pool *p = pool__current(dryrun__device());
	int err = dryrun__stream_work(stream);

	if (err)
		return err;
	return p ? pool__alloc(p, size, (void **)ptr) : CUDA_NOT_INITIALIZED;
}

HIDDEN(cuMemAllocFromPoolAsync, (ptr, size, pool, stream), devptr *ptr, size_t size,
       struct pool *pool, void *stream)
{
	int err = dryrun__stream_work(stream);

	return err ? err : pool__alloc(pool, size, (void **)ptr);
}

HIDDEN(cuMemFreeAsync, (ptr, stream), devptr ptr, void *stream)
{
	dryrun__stream_work(stream); /* always succeeds, like cudaFreeAsync */
	return dryrun__free((void *)(uintptr_t)ptr) ? host__free_pooled((void *)(uintptr_t)ptr)
						    : CUDA_OK;
}

PER_THREAD(cuMemAllocAsync, (ptr, size, stream), devptr *ptr, size_t size, void *stream)
PER_THREAD(cuMemAllocFromPoolAsync, (ptr, size, pool, stream), devptr *ptr, size_t size,
	   struct pool *pool, void *stream)
PER_THREAD(cuMemFreeAsync, (ptr, stream), devptr ptr, void *stream)

struct pool_props { /* CUmemPoolProps, first members */
	int type, handle_types, location_type, location_id;
};

API(int, cuMemPoolCreate, struct pool **pool, const struct pool_props *props)
{
	return pool && props
		       ? pool__create(props->type, props->location_type, props->location_id, pool)
		       : CUDA_INVALID_VALUE;
}

API(int, cuMemPoolGetAttribute, struct pool *pool, int attribute, void *value)
{
	return pool__get(pool, attribute, value);
}

API(int, cuMemPoolSetAttribute, struct pool *pool, int attribute, void *value)
{
	return pool__set(pool, attribute, value);
}

API(int, cuMemPoolTrimTo, struct pool *pool, size_t keep)
{
	return pool__trim(pool, keep);
}

API(int, cuMemPoolSetAccess, struct pool *pool, const void *list, size_t count)
{
	return pool__valid(pool) ? CUDA_OK : CUDA_INVALID_VALUE;
}

API(int, cuMemPoolDestroy, struct pool *pool)
{
	return pool__destroy(pool);
}

API(int, cuMemGetAddressRange_v2, devptr *base, size_t *size, devptr ptr)
{
	struct dryrun_range range;

	dryrun__where((void *)(uintptr_t)ptr, &range);
	if (!range.size)
		return CUDA_NOT_FOUND;
	if (base)
		*base = range.base;
	if (size)
		*size = range.size;
	return CUDA_OK;
}

enum {
	POINTER_CONTEXT = 1,
	POINTER_MEMORY_TYPE,
	POINTER_DEVICE,
	POINTER_HOST,
	POINTER_IS_MANAGED = 8,
	POINTER_ORDINAL = 9,
	POINTER_RANGE_START = 11,
	POINTER_RANGE_SIZE = 12,
	POINTER_MAPPED = 13
};

API(int, cuPointerGetAttribute, void *data, int attribute, devptr ptr)
{
	struct dryrun_range range;
	char name[48];

	dryrun__where((void *)(uintptr_t)ptr, &range);
	if (!data || !range.size)
		return CUDA_INVALID_VALUE;
	switch (attribute) {
	case POINTER_CONTEXT:
		*(void **)data = range.device >= 0 ? &contexts[range.device] : NULL;
		return CUDA_OK;
	case POINTER_MEMORY_TYPE: /* 1: host, 2: device */
		*(unsigned int *)data = range.place == PLACE_PINNED ? 1 : 2;
		return CUDA_OK;
	case POINTER_DEVICE:
		*(devptr *)data = ptr;
		return CUDA_OK;
	case POINTER_HOST:
		if (range.place == PLACE_DEVICE)
			return CUDA_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)ptr;
		return CUDA_OK;
	case POINTER_IS_MANAGED:
		*(unsigned int *)data = range.place == PLACE_MANAGED;
		return CUDA_OK;
	case POINTER_ORDINAL:
		*(int *)data = range.device;
		return CUDA_OK;
	case POINTER_RANGE_START:
		*(devptr *)data = range.base;
		return CUDA_OK;
	case POINTER_RANGE_SIZE:
		*(size_t *)data = range.size;
		return CUDA_OK;
	case POINTER_MAPPED:
		*(int *)data = 1;
		return CUDA_OK;
	default:
		snprintf(name, sizeof(name), "pointer attribute %d", attribute);
		dryrun__unmodelled(name);
		return CUDA_NOT_SUPPORTED;
	}
}

/* ---- copies ---- */

static int copy(const void *caller, uint64_t to, uint64_t from, size_t size, void *stream)
{
	int err = need_context();

	if (!err)
		err = stream__copy(stream, (void *)(uintptr_t)to, (const void *)(uintptr_t)from,
				   size);
	if (err)
		return err;
	dryrun__copy_for(caller, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
	return CUDA_OK;
}

/* A copy that is over when its call returns, unless it stays in the device. */
static int copy_now(const void *caller, uint64_t to, uint64_t from, size_t size)
{
	int err = copy(caller, to, from, size, NULL);

	if (!err && (!dryrun__is_device((void *)(uintptr_t)to) ||
		     !dryrun__is_device((void *)(uintptr_t)from)))
		stream__reach(NULL);
	return err;
}

API(int, cuMemcpy, devptr to, devptr from, size_t size)
{
	return copy_now(__builtin_return_address(0), to, from, size);
}

API(int, cuMemcpyAsync, devptr to, devptr from, size_t size, void *stream)
{
	return copy(__builtin_return_address(0), to, from, size, stream);
}

API(int, cuMemcpyHtoD_v2, devptr to, const void *from, size_t size)
{
	return copy_now(__builtin_return_address(0), to, (uintptr_t)from, size);
}

API(int, cuMemcpyHtoDAsync_v2, devptr to, const void *from, size_t size, void *stream)
{
	return copy(__builtin_return_address(0), to, (uintptr_t)from, size, stream);
}

API(int, cuMemcpyDtoH_v2, void *to, devptr from, size_t size)
{
	return copy_now(__builtin_return_address(0), (uintptr_t)to, from, size);
}

API(int, cuMemcpyDtoHAsync_v2, void *to, devptr from, size_t size, void *stream)
{
	return copy(__builtin_return_address(0), (uintptr_t)to, from, size, stream);
}

API(int, cuMemcpyDtoD_v2, devptr to, devptr from, size_t size)
{
	return copy_now(__builtin_return_address(0), to, from, size);
}

API(int, cuMemcpyDtoDAsync_v2, devptr to, devptr from, size_t size, void *stream)
{
	return copy(__builtin_return_address(0), to, from, size, stream);
}

static int fill(devptr to, const void *unit, size_t unit_size, size_t n, void *stream)
{
	int err = need_context();
	size_t size;

	if (err)
		return err;
	if (__builtin_mul_overflow(n, unit_size, &size))
		return CUDA_INVALID_VALUE;
	err = dryrun__stream_run(stream, clock__fill_ns(size));
	if (err)
		return err;
	if (size > DRYRUN_SMALL_COPY) {
		dryrun__fill((void *)(uintptr_t)to, 0, size);
		return CUDA_OK;
	}
	for (size_t i = 0; i < n; i++)
		dryrun__copy((void *)(uintptr_t)(to + i * unit_size), unit, unit_size);
	return CUDA_OK;
}

API(int, cuMemsetD8_v2, devptr to, unsigned char value, size_t n)
{
	return fill(to, &value, 1, n, NULL);
}

API(int, cuMemsetD8Async, devptr to, unsigned char value, size_t n, void *stream)
{
	return fill(to, &value, 1, n, stream);
}

API(int, cuMemsetD32_v2, devptr to, unsigned int value, size_t n)
{
	return fill(to, &value, 4, n, NULL);
}

API(int, cuMemsetD32Async, devptr to, unsigned int value, size_t n, void *stream)
{
	return fill(to, &value, 4, n, stream);
}

API(int, cuStreamWriteValue32_v2, void *stream, devptr to, uint32_t value, unsigned int flags)
{
	return copy(NULL, to, (uintptr_t)&value, sizeof(value), stream);
}

API(int, cuStreamWriteValue32, void *stream, devptr to, uint32_t value, unsigned int flags)
{
	return copy(NULL, to, (uintptr_t)&value, sizeof(value), stream);
}

/* ---- virtual memory ---- */

API(int, cuMemAddressReserve, devptr *ptr, size_t size, size_t align, devptr wish,
    unsigned long long flags)
{
	return ptr ? vmm__reserve(size, align, ptr) : CUDA_INVALID_VALUE;
}

API(int, cuMemAddressFree, devptr ptr, size_t size)
{
	return vmm__unreserve(ptr, size);
}

struct allocation_prop { /* CUmemAllocationProp: 32 bytes */
	int type, handle_types, location_type, location_id;
	void *win32;
	unsigned char flags[8];
};

_Static_assert(sizeof(struct allocation_prop) == VMM_PROPS_SIZE, "CUmemAllocationProp");

API(int, cuMemGetAllocationGranularity, size_t *granularity, const struct allocation_prop *prop,
    int option)
{
	if (!granularity || !prop)
		return CUDA_INVALID_VALUE;
	*granularity = DRYRUN_GRANULE;
	return CUDA_OK;
}

HIDDEN(cuMemCreate, (handle, size, prop, flags), uint64_t *handle, size_t size,
       const struct allocation_prop *prop, unsigned long long flags)
{
	if (!handle || !prop)
		return CUDA_INVALID_VALUE;
	if (prop->location_type == 1 && !valid(prop->location_id))
		return CUDA_INVALID_DEVICE;
	return vmm__create(prop->location_type == 1 ? prop->location_id : -1, size, prop, handle);
}

HIDDEN(cuMemRelease, (handle), uint64_t handle)
{
	return vmm__release(handle);
}

API(int, cuMemRetainAllocationHandle, uint64_t *handle, void *ptr)
{
	return handle ? vmm__retain((uintptr_t)ptr, handle) : CUDA_INVALID_VALUE;
}

API(int, cuMemGetAllocationPropertiesFromHandle, struct allocation_prop *prop, uint64_t handle)
{
	return prop ? vmm__props(handle, prop) : CUDA_INVALID_VALUE;
}

HIDDEN(cuMemMap, (ptr, size, offset, handle, flags), devptr ptr, size_t size, size_t offset,
       uint64_t handle, unsigned long long flags)
{
	return vmm__map(ptr, size, offset, handle);
}

HIDDEN(cuMemUnmap, (ptr, size), devptr ptr, size_t size)
{
	return vmm__unmap(ptr, size);
}

API(int, cuMemSetAccess, devptr ptr, size_t size, const void *list, size_t count)
{
	return size && vmm__mapped(ptr, size) ? CUDA_OK : CUDA_INVALID_VALUE;
}

#define HANDLE_FD 1 /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */

API(int, cuMemExportToShareableHandle, void *out, uint64_t handle, int type,
    unsigned long long flags)
{
	if (type == HANDLE_FD)
		return out ? vmm__export(handle, out) : CUDA_INVALID_VALUE;
	dryrun__unmodelled("cuMemExportToShareableHandle of another type than a file descriptor");
	return CUDA_NOT_SUPPORTED;
}

API(int, cuMemImportFromShareableHandle, uint64_t *handle, void *from, int type)
{
	if (type == HANDLE_FD)
		return handle ? vmm__import((int)(intptr_t)from, handle) : CUDA_INVALID_VALUE;
	dryrun__unmodelled("cuMemImportFromShareableHandle of another type than a file descriptor");
	return CUDA_NOT_SUPPORTED;
}

/* ---- modules and kernels: opaque handles ---- */

static int new_handle(void **out)
{
	*out = malloc(1);
	return *out ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

API(int, cuModuleLoadData, void **module, const void *image)
{
	int err = need_context();

	return err ? err : new_handle(module);
}

API(int, cuModuleLoadDataEx, void **module, const void *image, unsigned int n, int *options,
    void **values)
{
	return cuModuleLoadData(module, image);
}

API(int, cuModuleLoad, void **module, const char *path)
{
	return cuModuleLoadData(module, path);
}

API(int, cuModuleLoadFatBinary, void **module, const void *image)
{
	return cuModuleLoadData(module, image);
}

API(int, cuModuleUnload, void *module)
{
	free(module);
	return CUDA_OK;
}

/* Returns the module as the function: functions are not distinguished, and live as long as it. */
API(int, cuModuleGetFunction, void **function, void *module, const char *name)
{
	if (!function || !module)
		return CUDA_INVALID_VALUE;
	*function = module;
	return CUDA_OK;
}

/* A library is a module that every context has; its kernels are not distinguished either. */
API(int, cuLibraryLoadData, void **library, const void *code, int *jit, void **jit_values,
    unsigned int n_jit, int *options, void **values, unsigned int n)
{
	return library ? new_handle(library) : CUDA_INVALID_VALUE;
}

API(int, cuLibraryLoadFromFile, void **library, const char *path, int *jit, void **jit_values,
    unsigned int n_jit, int *options, void **values, unsigned int n)
{
	return library ? new_handle(library) : CUDA_INVALID_VALUE;
}

API(int, cuLibraryUnload, void *library)
{
	free(library);
	return CUDA_OK;
}

API(int, cuLibraryGetKernel, void **kernel, void *library, const char *name)
{
	return cuModuleGetFunction(kernel, library, name);
}

API(int, cuLibraryGetModule, void **module, void *library)
{
	return cuModuleGetFunction(module, library, NULL);
}

API(int, cuKernelGetFunction, void **function, void *kernel)
{
	return cuModuleGetFunction(function, kernel, NULL);
}

/* The linker accepts any input and makes an empty image, which cuModuleLoadData() accepts, too. */
API(int, cuLinkCreate_v2, unsigned int n, int *options, void **values, void **state)
{
	return state ? new_handle(state) : CUDA_INVALID_VALUE;
}

API(int, cuLinkAddData_v2, void *state, int type, void *data, size_t size, const char *name,
    unsigned int n, int *options, void **values)
{
	return state && data && size ? CUDA_OK : CUDA_INVALID_VALUE;
}

API(int, cuLinkAddFile_v2, void *state, int type, const char *path, unsigned int n, int *options,
    void **values)
{
	return state && path ? CUDA_OK : CUDA_INVALID_VALUE;
}

API(int, cuLinkComplete, void *state, void **image, size_t *size)
{
	static char linked[64] = "\177ELF";

	if (!state || !image)
		return CUDA_INVALID_VALUE;
	*image = linked;
	if (size)
		*size = sizeof(linked);
	return CUDA_OK;
}

API(int, cuLinkDestroy, void *state)
{
	free(state);
	return CUDA_OK;
}

API(int, cuModuleGetLoadingMode, int *mode)
{
	*mode = 2; /* lazy */
	return CUDA_OK;
}

/* attribute: CUfunction_attribute. */
API(int, cuFuncGetAttribute, int *value, int attribute, void *function)
{
	const struct arch *a = props__arch();

	switch (attribute) {
	case 0: /* threads per block */
		*value = 1024;
		break;
	case 4: /* registers */
		*value = 32;
		break;
	case 5: /* versions */
	case 6:
		*value = a->major * 10 + a->minor;
		break;
	case 8: /* dynamic shared memory */
		*value = a->shared_block;
		break;
	default:
		*value = 0;
	}
	return CUDA_OK;
}

API(int, cuKernelGetAttribute, int *value, int attribute, void *kernel, int device)
{
	return valid(device) ? cuFuncGetAttribute(value, attribute, kernel) : CUDA_INVALID_DEVICE;
}

NO_EFFECT(cuFuncSetAttribute)
NO_EFFECT(cuKernelSetAttribute)
NO_EFFECT(cuFuncSetCacheConfig)

static uint64_t kernel_ns(unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
			  unsigned int by, unsigned int bz)
{
	return clock__kernel_ns((uint64_t)gx * gy * gz * bx * by * bz);
}

API(int, cuLaunchKernel, void *function, unsigned int gx, unsigned int gy, unsigned int gz,
    unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, void *stream,
    void **args, void **extra)
{
	int err = need_context();

	return err ? err : dryrun__stream_run(stream, kernel_ns(gx, gy, gz, bx, by, bz));
}

API(int, cuLaunchCooperativeKernel, void *function, unsigned int gx, unsigned int gy,
    unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
    void *stream, void **args)
{
	int err = need_context();

	return err ? err : dryrun__stream_run(stream, kernel_ns(gx, gy, gz, bx, by, bz));
}

struct launch_config { /* CUlaunchConfig, first members */
	unsigned int grid[3], block[3], shared;
	void *stream;
};

API(int, cuLaunchKernelEx, const struct launch_config *config, void *function, void **args,
    void **extra)
{
	const unsigned int *g = config->grid, *b = config->block;
	int err = need_context();

	return err ? err
		   : dryrun__stream_run(config->stream,
					kernel_ns(g[0], g[1], g[2], b[0], b[1], b[2]));
}

API(int, cuOccupancyMaxActiveBlocksPerMultiprocessor, int *n, void *function, int threads,
    size_t shared)
{
	*n = threads > 0 && props__arch()->threads > threads ? props__arch()->threads / threads : 1;
	return CUDA_OK;
}

API(int, cuOccupancyMaxActiveClusters, int *n, void *function, const void *config)
{
	*n = props__processors() / 2;
	return CUDA_OK;
}

API(int, cuTensorMapEncodeTiled, void *map)
{
	memset(map, 0, 128); /* CUtensorMap */
	return CUDA_OK;
}

/* ---- streams and events ---- */

API(int, cuStreamCreate, void **stream, unsigned int flags)
{
	return stream__new(flags, 0, stream);
}

API(int, cuStreamCreateWithPriority, void **stream, unsigned int flags, int priority)
{
	return stream__new(flags, priority, stream);
}

API(int, cuStreamDestroy_v2, void *stream)
{
	return stream__destroy(stream);
}

API(int, cuStreamSynchronize, void *stream)
{
	int err = dryrun__stream_wait(stream);

	if (!err)
		pool__at_sync(stream__device(stream));
	return err;
}

API(int, cuStreamQuery, void *stream)
{
	return stream__query(stream);
}

API(int, cuStreamWaitEvent, void *stream, void *event, unsigned int flags)
{
	return stream__wait_event(stream, event);
}

API(int, cuStreamIsCapturing, void *stream, int *status)
{
	return capture__info(stream, status, NULL, NULL, NULL, NULL);
}

API(int, cuStreamGetCaptureInfo_v2, void *stream, int *status, uint64_t *id, void **graph,
    const void *const **deps, size_t *n_deps)
{
	return capture__info(stream, status, id, graph, deps, n_deps);
}

API(int, cuStreamGetCaptureInfo_v3, void *stream, int *status, uint64_t *id, void **graph,
    const void *const **deps, const void **edges, size_t *n_deps)
{
	if (edges)
		*edges = NULL;
	return capture__info(stream, status, id, graph, deps, n_deps);
}

API(int, cuLaunchHostFunc, void *stream, void (*call)(void *), void *what)
{
	return call ? stream__host_func(stream, call, what) : CUDA_INVALID_VALUE;
}

/* The fourth argument says how the stream waits for the host; streams never wait here. */
API(int, cuLaunchHostFunc_v2, void *stream, void (*call)(void *), void *what, unsigned int mode)
{
	return call ? stream__host_func(stream, call, what) : CUDA_INVALID_VALUE;
}

API(int, cuStreamGetCtx, void *stream, struct context **context)
{
	*context = &contexts[stream__device(stream)];
	return CUDA_OK;
}

API(int, cuStreamGetCtx_v2, void *stream, struct context **context, void **green)
{
	if (green)
		*green = NULL; /* the stream has no green context */
	if (context)
		*context = &contexts[stream__device(stream)];
	return CUDA_OK;
}

API(int, cuEventCreate, void **event, unsigned int flags)
{
	return event__new(flags, event);
}

API(int, cuEventDestroy_v2, void *event)
{
	return event__destroy(event);
}

API(int, cuEventRecord, void *event, void *stream)
{
	return event__record(event, stream);
}

API(int, cuEventQuery, void *event)
{
	return event__query(event);
}

API(int, cuEventSynchronize, void *event)
{
	return event__wait(event);
}

API(int, cuEventElapsedTime_v2, float *ms, void *start, void *end)
{
	return event__elapsed(ms, start, end);
}

API(int, cuEventElapsedTime, float *ms, void *start, void *end)
{
	return event__elapsed(ms, start, end);
}

/* ---- returned by entry.c instead of the exported functions ---- */

const struct driver_hidden driver__hidden[] = {
	{ "cuMemAlloc_v2", (void *)(uintptr_t)cuMemAlloc_v2_hidden },
	{ "cuMemFree_v2", (void *)(uintptr_t)cuMemFree_v2_hidden },
	{ "cuMemAllocManaged", (void *)(uintptr_t)cuMemAllocManaged_hidden },
	{ "cuMemAllocHost_v2", (void *)(uintptr_t)cuMemAllocHost_v2_hidden },
	{ "cuMemHostAlloc", (void *)(uintptr_t)cuMemHostAlloc_hidden },
	{ "cuMemHostRegister_v2", (void *)(uintptr_t)cuMemHostRegister_v2_hidden },
	{ "cuMemFreeHost", (void *)(uintptr_t)cuMemFreeHost_hidden },
	{ "cuMemAllocAsync", (void *)(uintptr_t)cuMemAllocAsync_hidden },
	{ "cuMemAllocFromPoolAsync", (void *)(uintptr_t)cuMemAllocFromPoolAsync_hidden },
	{ "cuMemFreeAsync", (void *)(uintptr_t)cuMemFreeAsync_hidden },
	{ "cuMemCreate", (void *)(uintptr_t)cuMemCreate_hidden },
	{ "cuMemRelease", (void *)(uintptr_t)cuMemRelease_hidden },
	{ "cuMemMap", (void *)(uintptr_t)cuMemMap_hidden },
	{ "cuMemUnmap", (void *)(uintptr_t)cuMemUnmap_hidden },
	{ NULL, NULL },
};
