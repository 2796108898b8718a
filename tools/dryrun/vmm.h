/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The driver's virtual memory: addresses, memory and the mapping of one to the other, each apart
 * (expandable segments). Memory is charged from its creation until neither its handle nor a mapping
 * of it is left.
 */
#include "core.h"

/* Addresses; align a power of two or 0. 0, CUDA_OUT_OF_MEMORY, CUDA_INVALID_VALUE. */
int vmm__reserve(uint64_t size, uint64_t align, uint64_t *addr);
/* CUDA_INVALID_VALUE: not such a range, or something is mapped in it. */
int vmm__unreserve(uint64_t addr, uint64_t size);
/* device -1: the host's memory, which no device is charged for. props is kept as it is. */
int vmm__create(int device, uint64_t size, const void *props, uint64_t *handle);
/* A file descriptor of it, which another process imports: memory that no device is charged for
 * there. */
int vmm__export(uint64_t handle, int *fd);
int vmm__import(int fd, uint64_t *handle);
int vmm__retain(uint64_t addr, uint64_t *handle);
int vmm__release(uint64_t handle);
int vmm__map(uint64_t addr, uint64_t size, uint64_t offset, uint64_t handle);
/* One or more whole mappings. */
int vmm__unmap(uint64_t addr, uint64_t size);
/* Whether all of it is mapped. */
bool vmm__mapped(uint64_t addr, uint64_t size);
/* Copies the props of vmm__create(). */
int vmm__props(uint64_t handle, void *props);

#define VMM_PROPS_SIZE 32 /* CUmemAllocationProp */
