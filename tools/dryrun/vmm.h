/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The driver's virtual memory (expandable segments): addresses, memory, and mappings between them.
 * Memory is charged from its creation until it has no handle and no mapping.
 */
#include "core.h"

/* Reserves addresses. align: a power of two, or 0. 0, CUDA_OUT_OF_MEMORY or CUDA_INVALID_VALUE. */
int vmm__reserve(uint64_t size, uint64_t align, uint64_t *addr);
/* CUDA_INVALID_VALUE: no such range, or memory is mapped in it. */
int vmm__unreserve(uint64_t addr, uint64_t size);
/* Creates memory. device -1: host memory, without a charge. Stores a copy of props. */
int vmm__create(int device, uint64_t size, const void *props, uint64_t *handle);
/* Exports a file descriptor. The importing process charges no device. */
int vmm__export(uint64_t handle, int *fd);
int vmm__import(int fd, uint64_t *handle);
int vmm__retain(uint64_t addr, uint64_t *handle);
int vmm__release(uint64_t handle);
int vmm__map(uint64_t addr, uint64_t size, uint64_t offset, uint64_t handle);
/* Removes one or more whole mappings. */
int vmm__unmap(uint64_t addr, uint64_t size);
/* True if the whole range is mapped. */
bool vmm__mapped(uint64_t addr, uint64_t size);
/* Copies the props of vmm__create(). */
int vmm__props(uint64_t handle, void *props);

#define VMM_PROPS_SIZE 32 /* CUmemAllocationProp */
