/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cuda_memory.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"

#define INTEGRATED 18 /* CU_DEVICE_ATTRIBUTE_INTEGRATED of cuda.h */

struct context;

static struct {
	int (*init)(unsigned flags);
	int (*count)(int *n);
	int (*device)(int *device, int i);
	int (*name)(char *buf, int size, int device);
	int (*total)(size_t *bytes, int device);
	int (*attribute)(int *value, int attribute, int device);
	int (*retain)(struct context **ret, int device);
	int (*release)(int device);
	int (*set_current)(struct context *context);
	int (*memory)(size_t *left, size_t *total);
} cuda;

static const struct {
	const char *name;
	void *to;
} functions[] = {
	{ "cuInit", &cuda.init },
	{ "cuDeviceGetCount", &cuda.count },
	{ "cuDeviceGet", &cuda.device },
	{ "cuDeviceGetName", &cuda.name },
	{ "cuDeviceTotalMem_v2", &cuda.total },
	{ "cuDeviceGetAttribute", &cuda.attribute },
	{ "cuDevicePrimaryCtxRetain", &cuda.retain },
	{ "cuDevicePrimaryCtxRelease_v2", &cuda.release },
	{ "cuCtxSetCurrent", &cuda.set_current },
	{ "cuMemGetInfo_v2", &cuda.memory },
};

bool cuda_memory__load(struct gpus_cuda *a)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *f;

	if (!lib) {
		snprintf(a->why, sizeof(a->why), "this machine has no libcuda.so.1");
		return false;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		f = dlsym(lib, functions[i].name);
		if (!f) {
			snprintf(a->why, sizeof(a->why), "libcuda.so.1 lacks %s",
				 functions[i].name);
			return false;
		}
		memcpy(functions[i].to, &f, sizeof(f));
	}
	return true;
}

/* Bytes of the host's memory; 0: not known. */
static uint64_t host_total(void)
{
	uint64_t kib;
	char text[128];

	if (io__text("/proc/meminfo", text, sizeof(text)) < 0 ||
	    sscanf(text, "MemTotal: %" SCNu64, &kib) != 1)
		return 0;
	return kib << 10;
}

/* Whether the device uses the host's memory. Some that do so do not say it, but have its size. */
static bool is_unified(int device)
{
	size_t total = 0;
	int yes = 0;

	if (!cuda.attribute(&yes, INTEGRATED, device) && yes)
		return true;
	return !cuda.total(&total, device) && total > host_total() / 2;
}

/* Returns CUDA's error, 0 if it answers. */
static int read_device(int device, struct gpus_cuda *a)
{
	struct context *context;
	size_t left = 0, total = 0;
	int err = cuda.retain(&context, device);

	if (err)
		return err;
	err = cuda.set_current(context);
	if (!err)
		err = cuda.memory(&left, &total);
	cuda.release(device);
	if (err)
		return err;
	if (cuda.name(a->device[a->n].name, sizeof(a->device[a->n].name), device))
		a->device[a->n].name[0] = '\0';
	a->device[a->n].free = left;
	a->device[a->n++].total = total;
	return 0;
}

void cuda_memory__read(struct gpus_cuda *a)
{
	int n = 0, device, err = cuda.init(0);

	if (!err)
		err = cuda.count(&n);
	if (err)
		snprintf(a->why, sizeof(a->why), "CUDA cannot be used: error %d", err);
	for (int i = 0; i < n && a->n < GPUS_CUDA_MAX && !err; i++) {
		if (cuda.device(&device, i) || !is_unified(device))
			continue;
		err = read_device(device, a);
		if (err)
			snprintf(a->why, sizeof(a->why),
				 "CUDA gives no context on device %d: error %d", i, err);
	}
}
