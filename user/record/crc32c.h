/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli) of len bytes. The CRC of "123456789" is e3069283. */
uint32_t crc32c(const void *data, size_t len);
