/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_MEMORY_H
#define MT_LIB_MEMORY_H
/* This machine's memory: what there is to be had, and what we have. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that are free to be used here: by the kernel's figure, and by the control group that we are
 * in. 0: not known. */
uint64_t memory__available(void);
/*
 * What a control group leaves, in bytes, by its files memory.max, memory.current and memory.stat
 * (NULL: unreadable). Pages of files that the kernel keeps and can drop count as left, as in
 * MemAvailable. UINT64_MAX: it has no limit.
 */
uint64_t memory__group_left(const char *max, const char *current, const char *stat);
/* Bytes of this process's own memory that are present, without pages of files. 0: not known. */
uint64_t memory__own(void);

/* "Name:   123 kB" in a file of such lines; name: "\nName:". */
bool memory__field(const char *text, const char *name, uint64_t *bytes);

#endif
