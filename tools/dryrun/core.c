// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "core.h"
#include "depends.h"
#include "linked.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct device devices[DRYRUN_MAX_DEVICES];
static int n_devices;
/* Lock of another file, from core__hold_at_fork(). */
static void (*lock_before)(void), (*unlock_after)(void);
static bool forked; /* forked from a process with a context: CUDA fails */
static __thread int current;
static __thread int last_error;

EXPORT struct dryrun_usage memtrace_dryrun_usage = { .magic = DRYRUN_USAGE_MAGIC, .version = 3 };

void dryrun__lock(void)
{
	pthread_mutex_lock(&mutex);
}

void dryrun__unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

void core__hold_at_fork(void (*lock)(void), void (*unlock)(void))
{
	lock_before = lock;
	unlock_after = unlock;
}

static void before_fork(void)
{
	if (lock_before)
		lock_before();
	dryrun__lock();
	contents__lock();
	depends__lock();
	log__lock();
}

static void after_fork(void)
{
	log__unlock();
	depends__unlock();
	contents__unlock();
	dryrun__unlock();
	if (unlock_after)
		unlock_after();
}

static void in_child(void)
{
	for (int i = 0; i < n_devices; i++) {
		forked |= devices[i].up;
		memtrace_dryrun_usage.device[i].used = 0;
		memtrace_dryrun_usage.device[i].context = 0;
	}
	depends__forget();
	after_fork();
}

/* Counts the devices listed by CUDA_VISIBLE_DEVICES. As in CUDA, the first invalid one ends the
 * list. */
static int count_visible(int n)
{
	const char *text = getenv("CUDA_VISIBLE_DEVICES");
	uint64_t taken = 0;
	int visible = 0;

	if (!text)
		return n;
	for (;;) {
		char *end;
		long device = strtol(text, &end, 10);

		if (end == text || device < 0 || device >= n || (*end && *end != ','))
			break;
		if (taken & 1ull << device) /* CUDA rejects a list that repeats a device */
			return 0;
		taken |= 1ull << device;
		visible++;
		if (!*end)
			break;
		text = end + 1;
	}
	return visible;
}

static void begin(void)
{
	const struct dryrun_config *config = dryrun__config();

	/* Read at the first call, as in CUDA: programs set the variable themselves. */
	n_devices = count_visible(config->n_devices);
	for (int i = 0; i < n_devices; i++) {
		devices[i].arena.align = DRYRUN_GRANULE;
		devices[i].small.align = 512;
		memtrace_dryrun_usage.device[i].total = config->vram;
		memtrace_dryrun_usage.device[i].held = config->held[i];
	}
	__atomic_store_n(&memtrace_dryrun_usage.n_devices, (uint32_t)n_devices, __ATOMIC_RELEASE);
	pthread_atfork(before_fork, after_fork, in_child);
}

int dryrun__n_devices(void)
{
	pthread_once(&once, begin);
	return n_devices;
}

struct device *core__device(int device)
{
	return &devices[device];
}

int core__device_of(uint64_t addr)
{
	for (int i = 0; i < dryrun__n_devices(); i++) {
		const struct device *d = &devices[i];

		if (addr - d->base < d->size)
			return i;
	}
	return -1;
}

int dryrun__device(void)
{
	return current;
}

int dryrun__set_device(int device)
{
	int err;

	if (device < 0 || device >= dryrun__n_devices())
		return dryrun__n_devices() ? CUDA_INVALID_DEVICE : CUDA_NO_DEVICE;
	err = dryrun__use(device);
	if (!err)
		current = device;
	return err;
}

int dryrun__result(int error)
{
	if (error)
		last_error = error;
	return error;
}

int dryrun__last_error(bool clear)
{
	int error = last_error;

	if (clear)
		last_error = CUDA_OK;
	return error;
}

int dryrun__runtime_major(void)
{
	static int known;
	int major = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!major) {
		void *handle = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);

		if (handle) {
			major = 13;
			dlclose(handle);
		} else if ((handle = dlopen("libcudart.so.12", RTLD_LAZY | RTLD_NOLOAD))) {
			major = 12;
			dlclose(handle);
		} else if (linked__version()) {
			major = linked__version() / 1000;
		} else {
			return 13; /* no runtime is loaded yet: look again at the next call */
		}
		__atomic_store_n(&known, major, __ATOMIC_RELAXED);
	}
	return major;
}

/*
 * Reserves more addresses than the device has memory: a real device maps any free pages and never
 * fails for fragmentation. No memory is behind them: access by the host faults, as on a device.
 */
static int reserve(struct device *d)
{
	uint64_t vram = dryrun__config()->vram;

	for (int times = 4; times >= 1; times /= 2) {
		uint64_t size = times * vram + DRYRUN_GRANULE;
		void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				-1, 0);
		uint64_t base = ((uintptr_t)at + DRYRUN_GRANULE - 1) &
				~(uint64_t)(DRYRUN_GRANULE - 1);

		if (at == MAP_FAILED)
			continue;
		if (space__extend(&d->arena, base, times * vram)) {
			munmap(at, size);
			break;
		}
		d->base = base;
		d->size = times * vram;
		return CUDA_OK;
	}
	dryrun__log("no room for the addresses of a device: is there a limit (ulimit -v)?");
	return CUDA_OUT_OF_MEMORY;
}

void core__publish(int device)
{
	const struct device *d = &devices[device];
	uint64_t context = d->up ? dryrun__config()->context : 0;

	__atomic_store_n(&memtrace_dryrun_usage.device[device].context, context, __ATOMIC_RELAXED);
	__atomic_store_n(&memtrace_dryrun_usage.device[device].used, context + d->charged,
			 __ATOMIC_RELAXED);
}

static bool has_room(int device, uint64_t size)
{
	const struct dryrun_config *config = dryrun__config();
	uint64_t room = config->vram - config->context, held = config->held[device];

	return room >= held && devices[device].charged <= room - held &&
	       size <= room - held - devices[device].charged;
}

int core__charge(int device, uint64_t size)
{
	struct device *d = &devices[device];

	if (!has_room(device, size) && (!(d->trim && d->trim(device)) || !has_room(device, size))) {
		memtrace_dryrun_usage.device[device].refused++;
		return CUDA_OUT_OF_MEMORY;
	}
	d->charged += size;
	core__publish(device);
	return CUDA_OK;
}

void core__refund(int device, uint64_t size)
{
	devices[device].charged -= size;
	core__publish(device);
}

int core__take(int device, uint64_t size, uint64_t *addr)
{
	int err = core__charge(device, size);

	if (err)
		return err;
	if (space__alloc(&devices[device].arena, size, addr)) {
		core__refund(device, size);
		return CUDA_OUT_OF_MEMORY;
	}
	return CUDA_OK;
}

void core__give(int device, uint64_t addr)
{
	uint64_t size = space__free(&devices[device].arena, addr);

	if (size) {
		contents__clear(addr, size);
		core__refund(device, size);
	}
}

int dryrun__use(int device)
{
	struct device *d;
	int err = CUDA_OK;

	if (device < 0 || device >= dryrun__n_devices())
		return dryrun__n_devices() ? CUDA_INVALID_DEVICE : CUDA_NO_DEVICE;
	d = &devices[device];
	if (__atomic_load_n(&d->up, __ATOMIC_ACQUIRE) && !forked)
		return CUDA_OK;
	dryrun__lock();
	if (forked)
		err = CUDA_NOT_INITIALIZED;
	else if (!d->up) {
		if (!d->size)
			err = reserve(d);
		if (!err) {
			__atomic_store_n(&d->up, true, __ATOMIC_RELEASE);
			core__publish(device);
		}
	}
	dryrun__unlock();
	return err;
}

bool dryrun__in_use(int device)
{
	return device >= 0 && device < dryrun__n_devices() &&
	       __atomic_load_n(&devices[device].up, __ATOMIC_ACQUIRE) && !forked;
}
