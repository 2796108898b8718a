// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Skips the initialization of weights on the host before a model moves to the device. For large
 * tensors the copy to the device drops the values, but initializing them would allocate their
 * pages: 27 GB for a model of 7e9 parameters. If no page of such a tensor has been touched, it
 * stays zero.
 *
 * PyTorch's libraries call operations by symbol, so these definitions replace them. Tensor& is
 * passed as a pointer, std::optional<Generator> as a pointer to the caller's copy.
 */
#include "depends.h"
#include "dryrun.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGE (1u << 20)
#define TOUCHED (3ull << 62) /* bits in /proc/PID/pagemap: page present, or swapped out */
#define N_PAGES 512

typedef void *random_t(void *self, double a, double b, void *generator);
typedef void *zero_t(void *self);

/* PyTorch's C interface for compiled code, since 2.2. A tensor is a pointer to its object. */
static struct {
	int (*device)(void *tensor, int32_t *type);
	int (*dtype)(void *tensor, int32_t *type);
	int (*numel)(void *tensor, int64_t *n);
	int (*storage)(void *tensor, int64_t *size);
	int (*data)(void *tensor, void **at);
} shim;

static void *find(const char *name)
{
	void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD), *at;

	if (!library)
		return NULL;
	at = dlsym(library, name);
	dlclose(library);
	return at;
}

static bool find_shim(void)
{
	static const struct {
		const char *name;
		void *at;
	} names[] = {
		{ "aoti_torch_get_device_type", &shim.device },
		{ "aoti_torch_get_dtype", &shim.dtype },
		{ "aoti_torch_get_numel", &shim.numel },
		{ "aoti_torch_get_storage_size", &shim.storage },
		{ "aoti_torch_get_data_ptr", &shim.data },
	};
	static int known; /* 1: available, 2: not available */
	int state = __atomic_load_n(&known, __ATOMIC_ACQUIRE);

	if (!state) {
		state = 1;
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			void *at = find(names[i].name);

			if (!at)
				state = 2;
			memcpy(names[i].at, &at, sizeof(at));
		}
		__atomic_store_n(&known, state, __ATOMIC_RELEASE);
	}
	return state == 1;
}

/* Bytes of a floating-point host tensor that owns its whole storage; 0: another tensor, or a small
 * one. */
static uint64_t size_of(void *tensor)
{
	static const unsigned char sizes[] = { [5] = 2, [6] = 4, [7] = 8, [15] = 2 };
	int32_t device, type;
	int64_t n, size;

	if (!find_shim() || shim.device(tensor, &device) || device || shim.dtype(tensor, &type) ||
	    shim.numel(tensor, &n) || n < LARGE / 8)
		return 0;
	if (type < 0 || (size_t)type >= sizeof(sizes) || !sizes[type] ||
	    shim.storage(tensor, &size) || size / sizes[type] != n)
		return 0;
	return size >= LARGE ? (uint64_t)size : 0;
}

/* Skips the first and the last page, which other data may share. */
static bool is_untouched(uint64_t at, uint64_t size)
{
	uint64_t first = (at + DRYRUN_PAGE - 1) / DRYRUN_PAGE, end = (at + size) / DRYRUN_PAGE,
		 entries[N_PAGES];
	int fd = sysconf(_SC_PAGESIZE) == DRYRUN_PAGE
			 ? open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)
			 : -1;
	bool untouched = fd >= 0;

	while (untouched && first < end) {
		size_t n = end - first < N_PAGES ? end - first : N_PAGES;

		untouched = pread(fd, entries, n * 8, (off_t)(first * 8)) == (ssize_t)(n * 8);
		for (size_t i = 0; untouched && i < n; i++)
			untouched = !(entries[i] & TOUCHED);
		first += n;
	}
	if (fd >= 0)
		close(fd);
	return untouched;
}

static bool begins_model(void)
{
	struct python_read at;

	return python__where("", &at) &&
	       (strstr(at.inner.file, "/torch/nn/") || strstr(at.inner.file, "/transformers/"));
}

static bool leave(void *tensor, bool random)
{
	uint64_t size = dryrun__config()->host_init ? 0 : size_of(tensor);
	static bool said;
	void *at;

	if (!size || (random && !begins_model()) || shim.data(tensor, &at) || !at ||
	    !is_untouched((uintptr_t)at, size))
		return false;
	if (!random) { /* then the others are resolved, too */
		uint64_t begin = DRYRUN_PAGE - (uintptr_t)at % DRYRUN_PAGE,
			 end = ((uintptr_t)at + size) % DRYRUN_PAGE;

		memset(at, 0, begin);
		memset((char *)at + size - end, 0, end);
	} else if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) {
		dryrun__log("assumed host_weights 0");
	}
	return true;
}

#define RANDOM(name)                                                                               \
	API(void *, name, void *self, double a, double b, void *generator)                         \
	{                                                                                          \
		static random_t *real;                                                             \
		random_t *call = __atomic_load_n(&real, __ATOMIC_RELAXED);                         \
                                                                                                   \
		if (!call) {                                                                       \
			call = (random_t *)(uintptr_t)find(#name);                                 \
			__atomic_store_n(&real, call, __ATOMIC_RELAXED);                           \
		}                                                                                  \
		return !call || leave(self, true) ? self : call(self, a, b, generator);            \
	}

/* at::_ops::normal_::call and uniform_: std::optional from 2.5 on, c10::optional before. */
RANDOM(_ZN2at4_ops7normal_4callERNS_6TensorEddSt8optionalINS_9GeneratorEE)
RANDOM(_ZN2at4_ops7normal_4callERNS_6TensorEddN3c108optionalINS_9GeneratorEEE)
RANDOM(_ZN2at4_ops8uniform_4callERNS_6TensorEddSt8optionalINS_9GeneratorEE)
RANDOM(_ZN2at4_ops8uniform_4callERNS_6TensorEddN3c108optionalINS_9GeneratorEEE)

API(void *, _ZN2at4_ops5zero_4callERNS_6TensorE, void *self)
{
	static zero_t *real;
	zero_t *call = __atomic_load_n(&real, __ATOMIC_RELAXED);

	if (!call) {
		call = (zero_t *)(uintptr_t)find("_ZN2at4_ops5zero_4callERNS_6TensorE");
		__atomic_store_n(&real, call, __ATOMIC_RELAXED);
	}
	return !call || leave(self, false) ? self : call(self);
}
