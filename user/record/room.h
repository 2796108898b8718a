/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A bound on the memory of this process while it reads recordings. A file of a few KB can describe
 * millions of allocations that are never freed, and the model keeps each of them. Readers check the
 * bound as they go. Threads may check it after one of them has.
 */
#include <stddef.h>
#include <stdint.h>

/* Sets a bound in bytes. Without it the bound is half of the memory available at the first check,
 * and 7/8 of RLIMIT_AS. */
void room__set(uint64_t bytes);
/* Returns 0, -ENOBUFS if the process uses more than the bound, or -ENOMEM. Reads /proc. */
int room__check(void);
/* As room__check(), before the process uses `bytes` more. */
int room__check_more(uint64_t bytes);
/* Text for -ENOBUFS and -ENOMEM: the reason and the remedy. buf: 256 bytes. Returns buf. */
char *room__why(char *buf, size_t size, int err);
