/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_BPF_HOST_CORE_READ_H
#define MT_BPF_HOST_CORE_READ_H
/* libbpf's header of this name. The one thing that is read so is where return probes make calls
 * return to. */
extern __u64 host_trampoline;

#define bpf_core_field_exists(...) 1
#define bpf_core_field_offset(type, field) offsetof(type, field)
#define bpf_core_type_size(type) sizeof(type)
#define BPF_CORE_READ(src, ...) ((void)(src), host_trampoline)
#define MT_KERNEL(field) ((void)task, host_trampoline)

#endif
