/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "export/tables/thrift.h"

/* Writes n numbers of `width` bits (1 to 32) in Parquet's hybrid of runs and packed bits. */
void levels__put(struct thrift *t, const uint32_t *v, size_t n, unsigned width);
/* Bits that the numbers below n need, at least 1. */
unsigned levels__width(size_t n);
