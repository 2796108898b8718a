/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Replaces libbpf's header. The only field read is the address of the kernel's return trampoline.
 */
extern __u64 host_trampoline;

#define bpf_core_field_exists(...) 1
#define bpf_core_field_offset(type, field) offsetof(type, field)
#define bpf_core_type_size(type) sizeof(type)
#define BPF_CORE_READ(src, ...) ((void)(src), host_trampoline)
#define MT_KERNEL(field) ((void)task, host_trampoline)
