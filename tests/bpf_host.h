/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Runs the programs of bpf/memtrace.bpf.c in user space, for tests: compiled for the host, with
 * helpers that read simulated memory, keep maps in arrays and append records to a list. For
 * inclusion in one file of a program that has bpf/host first in its include path.
 *
 * The verifier's rules are not checked here. With sanitizers, most violations show anyway.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define HOST_MAPS 32
#define HOST_RECORDS 4096
#define HOST_REGIONS 256

/* Memory of the target. data: borrowed. absent: unreadable until a sleepable read brings it in. */
struct host_region {
	uint64_t addr, size;
	uint8_t *data;
	bool absent;
};

struct host_map {
	void *map;
	unsigned type;
	size_t max, key, value, n; /* n: elements of a hash map */
	uint8_t *keys, *values;
};

struct host_record {
	void *data;
	size_t len;
};

static struct {
	struct host_region region[HOST_REGIONS];
	size_t regions;
	struct host_map map[HOST_MAPS];
	size_t maps;
	struct host_record record[HOST_RECORDS];
	size_t records;
	bool no_storage; /* task storage fails as without memory */
	size_t room;	 /* records that the ring still accepts */
	size_t open;	 /* reserved records, not yet submitted or discarded */
	size_t reads;	 /* reads of the target's memory */
	long (*live)(void *dst, size_t size,
		     uint64_t addr); /* replaces the regions, to read a process; 0 or -EFAULT */
	struct task_struct task;
	struct pt_regs *regs; /* registers of the running program */
	uint64_t cookie, now, func_ip;
	uint32_t random; /* state of bpf_get_prandom_u32() */
} host;

__u64 host_trampoline;

static bool host_hash(const struct host_map *m)
{
	return m->type == BPF_MAP_TYPE_HASH || m->type == BPF_MAP_TYPE_LRU_HASH ||
	       m->type == BPF_MAP_TYPE_PERCPU_HASH || m->type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

static void *host_alloc(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		abort();
	return p;
}

struct host_map *host_map(void *map, unsigned type, size_t max, size_t key, size_t value)
{
	struct host_map *m;

	for (size_t i = 0; i < host.maps; i++) {
		if (host.map[i].map == map)
			return &host.map[i];
	}
	if (host.maps == HOST_MAPS)
		abort();
	m = &host.map[host.maps++];
	*m = (struct host_map){ .map = map, .type = type, .max = max, .key = key, .value = value };
	m->values = host_alloc(max, value);
	if (host_hash(m))
		m->keys = host_alloc(max, key);
	return m;
}

void *host_lookup(struct host_map *m, const void *key)
{
	uint32_t i;

	if (!host_hash(m)) {
		memcpy(&i, key, sizeof(i));
		return i < m->max ? m->values + i * m->value : NULL;
	}
	for (i = 0; i < m->n; i++) {
		if (!memcmp(m->keys + i * m->key, key, m->key))
			return m->values + i * m->value;
	}
	return NULL;
}

long host_update(struct host_map *m, const void *key, const void *value, __u64 flags)
{
	void *v = host_lookup(m, key);

	if (v && flags == BPF_NOEXIST)
		return -EEXIST;
	if (!v) {
		if (!host_hash(m) || m->n == m->max)
			return -E2BIG;
		memcpy(m->keys + m->n * m->key, key, m->key);
		v = m->values + m->n++ * m->value;
	}
	memcpy(v, value, m->value);
	return 0;
}

long host_delete(struct host_map *m, const void *key)
{
	uint8_t *v = host_lookup(m, key);
	size_t i;

	if (!v || !host_hash(m))
		return -ENOENT;
	i = (size_t)(v - m->values) / m->value;
	m->n--;
	memmove(v, m->values + m->n * m->value, m->value);
	memmove(m->keys + i * m->key, m->keys + m->n * m->key, m->key);
	return 0;
}

/* Task storage of the only task. */
void *host_storage(struct host_map *m, __u64 flags)
{
	if (!m->n && (!(flags & BPF_LOCAL_STORAGE_GET_F_CREATE) || host.no_storage))
		return NULL;
	m->n = 1;
	return m->values;
}

static const struct host_region *host_find(uint64_t addr)
{
	for (size_t i = 0; i < host.regions; i++) {
		if (addr - host.region[i].addr < host.region[i].size)
			return &host.region[i];
	}
	return NULL;
}

/* Reads all bytes or returns zeros, as in the kernel. */
static long host_read(void *dst, size_t size, uint64_t addr, bool absent_too)
{
	uint8_t *to = dst;
	size_t done = 0, part;

	host.reads++;
	if (host.live)
		return host.live(dst, size, addr);
	while (done < size) {
		const struct host_region *r = addr + done < addr ? NULL : host_find(addr + done);

		if (!r || (r->absent && !absent_too)) {
			memset(dst, 0, size);
			return -EFAULT;
		}
		part = r->size - (addr + done - r->addr);
		if (part > size - done)
			part = size - done;
		memcpy(to + done, r->data + (addr + done - r->addr), part);
		done += part;
	}
	return 0;
}

long bpf_probe_read_user(void *dst, __u32 size, const void *addr)
{
	return host_read(dst, size, (uintptr_t)addr, false);
}

long bpf_copy_from_user(void *dst, __u32 size, const void *addr)
{
	return host_read(dst, size, (uintptr_t)addr, true);
}

/* The programs read only their registers with this helper. */
long bpf_probe_read_kernel(void *dst, __u32 size, const void *addr)
{
	size_t at = (uintptr_t)addr - (uintptr_t)host.regs;

	if (at > sizeof(*host.regs) || size > sizeof(*host.regs) - at) {
		memset(dst, 0, size);
		return -EFAULT;
	}
	memcpy(dst, addr, size);
	return 0;
}

long bpf_loop(__u32 n, long (*turn)(__u32, void *), void *ctx, __u64 flags)
{
	__u32 i;

	if (flags || n > 1u << 23)
		return -EINVAL;
	for (i = 0; i < n; i++) {
		if (turn(i, ctx))
			return i + 1;
	}
	return n;
}

struct task_struct *bpf_get_current_task_btf(void)
{
	return &host.task;
}

__u64 bpf_get_current_task(void)
{
	return (uintptr_t)&host.task;
}

__u64 bpf_get_current_pid_tgid(void)
{
	return (__u64)host.task.tgid << 32 | (__u32)host.task.pid;
}

__u64 bpf_get_attach_cookie(void *ctx)
{
	return host.cookie;
}

__u64 bpf_get_func_ip(void *ctx)
{
	return host.func_ip;
}

__u64 bpf_ktime_get_ns(void)
{
	return ++host.now;
}

__u32 bpf_get_prandom_u32(void)
{
	host.random ^= host.random << 13;
	host.random ^= host.random >> 17;
	host.random ^= host.random << 5;
	return host.random += !host.random;
}

__u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

void *host_ring_reserve(__u64 size)
{
	uint64_t *p;

	if (!host.room)
		return NULL;
	host.room--;
	host.open++;
	p = host_alloc(1, sizeof(*p) + size);
	*p = size; /* the record's length precedes it, as in the kernel */
	memset(p + 1, 0xa5, size);
	return p + 1;
}

void bpf_ringbuf_submit(void *rec, __u64 flags)
{
	uint64_t *p = (uint64_t *)rec - 1;
	struct host_record *r;

	if (host.records == HOST_RECORDS)
		abort();
	r = &host.record[host.records++];
	r->len = *p;
	r->data = host_alloc(1, r->len);
	memcpy(r->data, rec, r->len);
	free(p);
	host.open--;
}

void bpf_ringbuf_discard(void *rec, __u64 flags)
{
	free((uint64_t *)rec - 1);
	host.open--;
}

long host_ring_output(const void *data, __u64 size, __u64 flags)
{
	void *p = host_ring_reserve(size);

	if (!p)
		return -EAGAIN;
	memcpy(p, data, size);
	bpf_ringbuf_submit(p, 0);
	return 0;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wattributes"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wunknown-attributes"
#pragma GCC diagnostic ignored "-Wignored-attributes"
#endif
/* Not constant here: tests write these variables. */
#define const
#include "../bpf/memtrace.bpf.c"
#undef const
#pragma GCC diagnostic pop

static void host_drop_records(void)
{
	for (size_t i = 0; i < host.records; i++)
		free(host.record[i].data);
	host.records = 0;
}

/* Restores the state after loading: no memory, empty maps, an empty ring. */
static void host_reset(void)
{
	struct mt_py_layout none = { 0 };

	host_drop_records();
	host.regions = host.open = host.reads = 0;
	host.room = HOST_RECORDS;
	for (size_t i = 0; i < host.maps; i++) {
		memset(host.map[i].values, 0, host.map[i].max * host.map[i].value);
		host.map[i].n = 0;
	}
	memcpy((void *)&py, &none, sizeof(py));
	memset(module_code, 0, sizeof(module_code));
	memset(seen_code, 0, sizeof(seen_code));
	memset(seen_module, 0, sizeof(seen_module));
	memset(known_types, 0, sizeof(known_types));
	memset(asked_args, 0, sizeof(asked_args));
	memset(&node_layout, 0, sizeof(node_layout));
	memset(&detail, 0, sizeof(detail));
	memset(timed, 0, sizeof(timed));
	modules = 0;
	stopped = 0;
	woken = code_epoch = 0;
	host_pid = 0;
	native_second = native_copied[0] = native_copied[1] = native_most = 0;
	malloc_every = 0;
	memset(malloc_own, 0, sizeof(malloc_own));
	host_trampoline = 0;
	host.task = (struct task_struct){ .pid = 1000, .tgid = 1000 };
	memset(unkept, 0, sizeof(unkept));
	any_unkept = 0;
	host.no_storage = false;
	host.cookie = host.now = host.func_ip = 0;
}

static void host_add(uint64_t addr, uint64_t size, void *data)
{
	if (host.regions == HOST_REGIONS || addr + size < addr)
		abort();
	host.region[host.regions++] = (struct host_region){ .addr = addr,
							    .size = size,
							    .data = data };
}

/* Runs a program with these registers. Its records are appended to the list. */
__attribute__((unused)) static int host_run(int (*program)(struct pt_regs *), struct pt_regs *regs)
{
	host.regs = regs;
	return program(regs);
}
