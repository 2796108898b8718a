/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Replaces libbpf's header. tests/bpf_host.h or tools/inprocess/ define the helpers. */
#include "vmlinux.h"

#define SEC(name) __attribute__((used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#undef __noinline
#define __noinline __attribute__((noinline))

/* The same as in libbpf: the types of a map's members define the map. */
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

#define HOST_NUMBER(member) (sizeof(*(member)) / sizeof(int))
#define HOST_MAP(map)                                                                              \
	host_map(map, HOST_NUMBER((map)->type), HOST_NUMBER((map)->max_entries),                   \
		 sizeof(*(map)->key), sizeof(*(map)->value))
#define HOST_STORAGE(map)                                                                          \
	host_map(map, HOST_NUMBER((map)->type), 1, sizeof(*(map)->key), sizeof(*(map)->value))

struct host_map;

struct host_map *host_map(void *map, unsigned type, size_t max, size_t key, size_t value);
void *host_lookup(struct host_map *m, const void *key);
long host_update(struct host_map *m, const void *key, const void *value, __u64 flags);
long host_delete(struct host_map *m, const void *key);
void *host_storage(struct host_map *m, __u64 flags);

#define bpf_map_lookup_elem(map, k) ((typeof((map)->value))host_lookup(HOST_MAP(map), k))
#define bpf_map_update_elem(map, k, v, flags) host_update(HOST_MAP(map), k, v, flags)
#define bpf_map_delete_elem(map, k) host_delete(HOST_MAP(map), k)
#define bpf_task_storage_get(map, task, value_, flags)                                             \
	((void)(task), (typeof((map)->value))host_storage(HOST_STORAGE(map), flags))

long bpf_probe_read_user(void *dst, __u32 size, const void *addr);
long bpf_copy_from_user(void *dst, __u32 size, const void *addr);
long bpf_probe_read_kernel(void *dst, __u32 size, const void *addr);
long bpf_loop(__u32 n, long (*turn)(__u32, void *), void *ctx, __u64 flags);
struct task_struct *bpf_get_current_task_btf(void);
__u64 bpf_get_current_task(void);
__u64 bpf_get_current_pid_tgid(void);
__u64 bpf_get_attach_cookie(void *ctx);
__u64 bpf_get_func_ip(void *ctx);
__u64 bpf_ktime_get_ns(void);
__u32 bpf_get_prandom_u32(void);
__u32 bpf_get_smp_processor_id(void);
void *host_ring_reserve(__u64 size);
long host_ring_output(const void *data, __u64 size, __u64 flags);
void bpf_ringbuf_submit(void *rec, __u64 flags);
void bpf_ringbuf_discard(void *rec, __u64 flags);

#define bpf_ringbuf_reserve(ring, size, flags) ((void)(ring), host_ring_reserve(size))
#define bpf_ringbuf_output(ring, data, size, flags)                                                \
	((void)(ring), host_ring_output(data, size, flags))
