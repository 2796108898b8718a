/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include <stdint.h>

/* Raises the soft limit of open descriptors, up to the hard one. */
void rlimit__raise_files(uint64_t wanted);
