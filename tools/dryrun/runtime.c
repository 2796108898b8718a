// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The runtime API: errors, devices, memory. Streams, graphs and launches are in runtime_work.c. */
#include "clock.h"
#include "core.h"
#include "host.h"
#include "pool.h"
#include "props.h"
#include "stream.h"

#include <string.h>

#define DRIVER_VERSION 13020

static int valid(int device)
{
	if (device >= 0 && device < dryrun__n_devices())
		return CUDA_OK;
	return dryrun__n_devices() ? CUDA_INVALID_DEVICE : CUDA_NO_DEVICE;
}

/* ---- errors ---- */

API(int, cudaGetLastError, void)
{
	return dryrun__last_error(true);
}

API(int, cudaPeekAtLastError, void)
{
	return dryrun__last_error(false);
}

/* ---- devices ---- */

API(int, cudaDriverGetVersion, int *version)
{
	if (!version)
		return dryrun__result(CUDA_INVALID_VALUE);
	*version = DRIVER_VERSION;
	return CUDA_OK;
}

API(int, cudaGetDeviceCount, int *count)
{
	if (!count)
		return dryrun__result(CUDA_INVALID_VALUE);
	*count = dryrun__n_devices();
	return dryrun__result(*count ? CUDA_OK : CUDA_NO_DEVICE);
}

API(int, cudaGetDevice, int *device)
{
	if (!device)
		return dryrun__result(CUDA_INVALID_VALUE);
	if (!dryrun__n_devices())
		return dryrun__result(CUDA_NO_DEVICE);
	*device = dryrun__device();
	return CUDA_OK;
}

API(int, cudaSetDevice, int device)
{
	return dryrun__result(dryrun__set_device(device));
}

API(int, cudaInitDevice, int device, unsigned int device_flags, unsigned int flags)
{
	return dryrun__result(dryrun__use(device));
}

API(int, cudaDeviceReset, void)
{
	dryrun__reset(dryrun__device());
	return CUDA_OK;
}

API(int, cudaDeviceSynchronize, void)
{
	int device = dryrun__device(), err = dryrun__use(device);

	if (!err)
		err = dryrun__device_wait(device);
	if (!err)
		pool__at_sync(device);
	return dryrun__result(err);
}

NO_EFFECT(cudaSetDeviceFlags)

API(int, cudaGetDeviceFlags, unsigned int *flags)
{
	*flags = 0;
	return CUDA_OK;
}

static int get_properties(void *prop, int device, int major)
{
	int err = valid(device);

	if (!err && !prop)
		err = CUDA_INVALID_VALUE;
	if (!err)
		props__fill(prop, device, major);
	return dryrun__result(err);
}

API(int, cudaGetDeviceProperties, void *prop, int device)
{
	return get_properties(prop, device, dryrun__runtime_major());
}

/* The name in CUDA 12 for its layout. */
API(int, cudaGetDeviceProperties_v2, void *prop, int device)
{
	return get_properties(prop, device, 12);
}

API(int, cudaDeviceGetAttribute, int *value, int attribute, int device)
{
	int err = valid(device);

	if (!err)
		*value = props__attribute(attribute, device);
	return dryrun__result(err);
}

API(int, cudaDeviceGetPCIBusId, char *text, int size, int device)
{
	int err = valid(device);

	if (!err && (!text || size < 13))
		err = CUDA_INVALID_VALUE;
	if (!err)
		props__bus_id(device, text, (size_t)size);
	return dryrun__result(err);
}

API(int, cudaDeviceGetByPCIBusId, int *device, const char *text)
{
	char own[16];

	for (int i = 0; i < dryrun__n_devices(); i++) {
		props__bus_id(i, own, sizeof(own));
		if (!strcasecmp(own, text)) {
			*device = i;
			return CUDA_OK;
		}
	}
	return dryrun__result(CUDA_INVALID_VALUE);
}

API(int, cudaDeviceGetStreamPriorityRange, int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_OK;
}

enum { LIMIT_STACK, LIMIT_PRINTF, LIMIT_HEAP, N_LIMITS = 8 };

static size_t limits[N_LIMITS] = {
	[LIMIT_STACK] = 1024, [LIMIT_PRINTF] = 1u << 20, [LIMIT_HEAP] = 8u << 20
};

API(int, cudaDeviceGetLimit, size_t *value, int limit)
{
	if (!value || limit < 0 || limit >= N_LIMITS)
		return dryrun__result(CUDA_INVALID_VALUE);
	*value = __atomic_load_n(&limits[limit], __ATOMIC_RELAXED);
	return CUDA_OK;
}

API(int, cudaDeviceSetLimit, int limit, size_t value)
{
	if (limit < 0 || limit >= N_LIMITS)
		return dryrun__result(CUDA_INVALID_VALUE);
	__atomic_store_n(&limits[limit], value, __ATOMIC_RELAXED);
	return CUDA_OK;
}

API(int, cudaDeviceGetCacheConfig, int *config)
{
	*config = 0;
	return CUDA_OK;
}

NO_EFFECT(cudaDeviceSetCacheConfig)

/* ---- peers: every device can access every other ---- */

API(int, cudaDeviceCanAccessPeer, int *can, int device, int peer)
{
	int err = valid(device);

	if (!err)
		err = valid(peer);
	if (!err)
		*can = device != peer;
	return dryrun__result(err);
}

static int set_peer(int peer, bool enable)
{
	int device = dryrun__device(), err = valid(peer);
	struct device *d;

	if (!err)
		err = dryrun__use(device);
	if (!err && peer == device)
		err = CUDA_INVALID_DEVICE;
	if (err)
		return err;
	d = core__device(device);
	dryrun__lock();
	if (enable == !!(d->peers & 1ull << peer))
		err = enable ? CUDA_PEER_ALREADY_ENABLED : CUDA_PEER_NOT_ENABLED;
	else
		d->peers ^= 1ull << peer;
	dryrun__unlock();
	return err;
}

API(int, cudaDeviceEnablePeerAccess, int peer, unsigned int flags)
{
	return dryrun__result(set_peer(peer, true));
}

API(int, cudaDeviceDisablePeerAccess, int peer)
{
	return dryrun__result(set_peer(peer, false));
}

API(int, cudaDeviceGetP2PAttribute, int *value, int attribute, int device, int peer)
{
	int err = valid(device);

	if (!err)
		err = valid(peer);
	if (!err)
		*value = device != peer && attribute != 1; /* 1: performance rank */
	return dryrun__result(err);
}

/* ---- memory ---- */

API(int, cudaMalloc, void **ptr, size_t size)
{
	if (!ptr)
		return dryrun__result(CUDA_INVALID_VALUE);
	return dryrun__result(dryrun__alloc(dryrun__device(), size, ptr));
}

static int free_any(void *ptr)
{
	int err = dryrun__use(dryrun__device()); /* cudaFree(NULL) creates a context */

	if (err || !ptr)
		return err;
	clock__wait(clock__device_end(dryrun__device()));
	err = dryrun__free(ptr);
	return err ? host__free_managed(ptr) : CUDA_OK;
}

API(int, cudaFree, void *ptr)
{
	return dryrun__result(free_any(ptr));
}

API(int, cudaMallocManaged, void **ptr, size_t size, unsigned int flags)
{
	if (!ptr || !size)
		return dryrun__result(CUDA_INVALID_VALUE);
	return dryrun__result(host__alloc_managed(size, ptr));
}

API(int, cudaMallocPitch, void **ptr, size_t *pitch, size_t width, size_t height)
{
	size_t row, size;

	if (!ptr || !pitch || __builtin_add_overflow(width, 511, &row) ||
	    __builtin_mul_overflow(row & ~(size_t)511, height, &size))
		return dryrun__result(CUDA_INVALID_VALUE);
	*pitch = row & ~(size_t)511;
	return dryrun__result(dryrun__alloc(dryrun__device(), size, ptr));
}

API(int, cudaMemGetInfo, size_t *available, size_t *total)
{
	int device = dryrun__device(), err = dryrun__use(device);

	if (!err)
		dryrun__memory(device, available, total);
	return dryrun__result(err);
}

API(int, cudaHostAlloc, void **ptr, size_t size, unsigned int flags)
{
	if (!ptr)
		return dryrun__result(CUDA_INVALID_VALUE);
	return dryrun__result(host__alloc(size, flags, ptr));
}

API(int, cudaMallocHost, void **ptr, size_t size)
{
	if (!ptr)
		return dryrun__result(CUDA_INVALID_VALUE);
	return dryrun__result(host__alloc(size, 0, ptr));
}

API(int, cudaFreeHost, void *ptr)
{
	return dryrun__result(host__free(ptr));
}

API(int, cudaHostRegister, void *ptr, size_t size, unsigned int flags)
{
	return dryrun__result(host__register(ptr, size, flags));
}

API(int, cudaHostUnregister, void *ptr)
{
	return dryrun__result(host__unregister(ptr));
}

API(int, cudaHostGetDevicePointer, void **device_ptr, void *ptr, unsigned int flags)
{
	struct dryrun_range range;

	dryrun__where(ptr, &range);
	if (range.place != PLACE_PINNED)
		return dryrun__result(CUDA_INVALID_VALUE);
	*device_ptr = ptr;
	return CUDA_OK;
}

API(int, cudaHostGetFlags, unsigned int *flags, void *ptr)
{
	struct dryrun_range range;

	dryrun__where(ptr, &range);
	if (range.place != PLACE_PINNED)
		return dryrun__result(CUDA_INVALID_VALUE);
	*flags = range.flags;
	return CUDA_OK;
}

struct pointer_attributes { /* cudaPointerAttributes of 12; 13 adds reserved bytes */
	int type, device;
	void *device_pointer, *host_pointer;
};

API(int, cudaPointerGetAttributes, struct pointer_attributes *out, const void *ptr)
{
	struct dryrun_range range;

	if (!out)
		return dryrun__result(CUDA_INVALID_VALUE);
	dryrun__where(ptr, &range);
	*out = (struct pointer_attributes){ .device = -2 }; /* cudaInvalidDeviceId */
	if (!range.size)
		return CUDA_OK;
	out->device = range.device;
	out->device_pointer = (void *)(uintptr_t)ptr;
	switch (range.place) {
	case PLACE_PINNED:
		out->type = 1;
		out->host_pointer = out->device_pointer;
		break;
	case PLACE_DEVICE:
		out->type = 2;
		break;
	case PLACE_MANAGED:
		out->type = 3;
		out->host_pointer = out->device_pointer;
		break;
	case PLACE_PAGEABLE:
		break;
	}
	return CUDA_OK;
}

NO_EFFECT(cudaMemAdvise)
NO_EFFECT(cudaMemPrefetchAsync)

/* ---- copies: the addresses determine the direction; `kind` is ignored ---- */

static int copy(const void *caller, void *to, const void *from, size_t size)
{
	int err = dryrun__use(dryrun__device());

	if (!err)
		dryrun__copy_for(caller, to, from, size);
	return dryrun__result(err);
}

static int copy_now(const void *caller, void *to, const void *from, size_t size)
{
	stream__copy_now(to, from, size);
	return copy(caller, to, from, size);
}

static int copy_on(const void *caller, void *to, const void *from, size_t size, void *stream)
{
	int err = stream__copy(stream, to, from, size);

	return err ? dryrun__result(err) : copy(caller, to, from, size);
}

#define CALLER __builtin_return_address(0)

API(int, cudaMemcpy, void *to, const void *from, size_t size, int kind)
{
	return copy_now(CALLER, to, from, size);
}

API(int, cudaMemcpyAsync, void *to, const void *from, size_t size, int kind, void *stream)
{
	return copy_on(CALLER, to, from, size, stream);
}

API(int, cudaMemcpyPeer, void *to, int to_device, const void *from, int from_device, size_t size)
{
	return copy_now(CALLER, to, from, size);
}

API(int, cudaMemcpyPeerAsync, void *to, int to_device, const void *from, int from_device,
    size_t size, void *stream)
{
	return copy_on(CALLER, to, from, size, stream);
}

static int copy_rows(const void *caller, char *to, size_t to_pitch, const char *from,
		     size_t from_pitch, size_t width, size_t height, void *stream)
{
	int err = dryrun__use(dryrun__device());

	if (!err && (width > to_pitch || width > from_pitch))
		err = CUDA_INVALID_VALUE;
	if (!err)
		err = stream__copy(stream, to, from, width * height);
	if (err)
		return dryrun__result(err);
	/* Count a copy of rows to the host as one read, at its last row. */
	for (size_t row = 0; row < height; row++) {
		if (row + 1 < height)
			dryrun__copy(to + row * to_pitch, from + row * from_pitch, width);
		else
			dryrun__copy_for(caller, to + row * to_pitch, from + row * from_pitch,
					 width);
	}
	return CUDA_OK;
}

API(int, cudaMemcpy2DAsync, void *to, size_t to_pitch, const void *from, size_t from_pitch,
    size_t width, size_t height, int kind, void *stream)
{
	return copy_rows(CALLER, to, to_pitch, from, from_pitch, width, height, stream);
}

API(int, cudaMemcpy2D, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
    size_t height, int kind)
{
	return copy_rows(CALLER, to, to_pitch, from, from_pitch, width, height, NULL);
}

static int fill(void *ptr, int value, size_t size)
{
	int err = dryrun__use(dryrun__device());

	if (!err)
		dryrun__fill(ptr, value, size);
	return dryrun__result(err);
}

API(int, cudaMemset, void *ptr, int value, size_t size)
{
	stream__copy_now(ptr, NULL, size);
	return fill(ptr, value, size);
}

API(int, cudaMemsetAsync, void *ptr, int value, size_t size, void *stream)
{
	int err = dryrun__stream_run(stream, clock__fill_ns(size));

	return err ? dryrun__result(err) : fill(ptr, value, size);
}

API(int, cudaMemset2DAsync, void *ptr, size_t pitch, int value, size_t width, size_t height,
    void *stream)
{
	int err = dryrun__use(dryrun__device());

	if (!err && width > pitch)
		err = CUDA_INVALID_VALUE;
	if (!err)
		err = dryrun__stream_run(stream, clock__fill_ns(width * height));
	if (err)
		return dryrun__result(err);
	for (size_t row = 0; row < height; row++)
		dryrun__fill((char *)ptr + row * pitch, value, width);
	return CUDA_OK;
}

/* ---- pools ---- */

static int pool_or_error(struct pool *p, struct pool **out)
{
	if (p)
		*out = p;
	return dryrun__result(p ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

API(int, cudaMallocAsync, void **ptr, size_t size, void *stream)
{
	struct pool *p;
	int err;

	if (!ptr)
		return dryrun__result(CUDA_INVALID_VALUE);
	p = pool__current(dryrun__device());
	err = dryrun__stream_work(stream);
	if (!err)
		err = p ? pool__alloc(p, size, ptr) : CUDA_NOT_INITIALIZED;
	return dryrun__result(err);
}

API(int, cudaMallocFromPoolAsync, void **ptr, size_t size, struct pool *pool, void *stream)
{
	int err;

	if (!ptr)
		return dryrun__result(CUDA_INVALID_VALUE);
	err = dryrun__stream_work(stream);
	return dryrun__result(err ? err : pool__alloc(pool, size, ptr));
}

/* Also in an invalidated capture: the caller is already failing, and an error would end the
 * program. */
API(int, cudaFreeAsync, void *ptr, void *stream)
{
	dryrun__stream_work(stream);
	return dryrun__result(dryrun__free(ptr) ? host__free_pooled(ptr) : CUDA_OK);
}

API(int, cudaDeviceGetDefaultMemPool, struct pool **pool, int device)
{
	int err = valid(device);

	return err ? dryrun__result(err) : pool_or_error(pool__default(device), pool);
}

API(int, cudaDeviceGetMemPool, struct pool **pool, int device)
{
	int err = valid(device);

	return err ? dryrun__result(err) : pool_or_error(pool__current(device), pool);
}

API(int, cudaDeviceSetMemPool, int device, struct pool *pool)
{
	int err = valid(device);

	return dryrun__result(err ? err : pool__set_current(device, pool));
}

struct pool_props { /* cudaMemPoolProps, first members */
	int type, handle_types, location_type, location_id;
};

API(int, cudaMemPoolCreate, struct pool **pool, const struct pool_props *props)
{
	if (!pool || !props)
		return dryrun__result(CUDA_INVALID_VALUE);
	return dryrun__result(
		pool__create(props->type, props->location_type, props->location_id, pool));
}

API(int, cudaMemPoolDestroy, struct pool *pool)
{
	return dryrun__result(pool__destroy(pool));
}

API(int, cudaMemPoolGetAttribute, struct pool *pool, int attribute, void *value)
{
	return dryrun__result(pool__get(pool, attribute, value));
}

API(int, cudaMemPoolSetAttribute, struct pool *pool, int attribute, void *value)
{
	return dryrun__result(pool__set(pool, attribute, value));
}

API(int, cudaMemPoolSetAccess, struct pool *pool, const void *list, size_t count)
{
	return dryrun__result(pool__valid(pool) ? CUDA_OK : CUDA_INVALID_VALUE);
}

API(int, cudaMemPoolGetAccess, int *flags, struct pool *pool, void *location)
{
	if (!pool__valid(pool))
		return dryrun__result(CUDA_INVALID_VALUE);
	*flags = 3; /* read and write access */
	return CUDA_OK;
}

API(int, cudaMemPoolTrimTo, struct pool *pool, size_t keep)
{
	return dryrun__result(pool__trim(pool, keep));
}

/* Memory nodes of graphs allocate from pools here: see docs/internals/DRYRUN.md. */
API(int, cudaDeviceGetGraphMemAttribute, int device, int attribute, void *value)
{
	*(uint64_t *)value = 0;
	return dryrun__result(valid(device));
}

API(int, cudaDeviceSetGraphMemAttribute, int device, int attribute, void *value)
{
	return dryrun__result(valid(device));
}

API(int, cudaDeviceGraphMemTrim, int device)
{
	return dryrun__result(valid(device));
}
