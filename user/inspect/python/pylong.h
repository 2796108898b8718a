/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Python's int objects. */
#include <stdint.h>

#include "inspect/pyobj.h"

/* Reads an int from 0 to 2^60 - 1. 0; -EBADMSG: not an int; -E2BIG: negative or larger; or the
 * error of the read. */
int pylong__read(struct pymem *mem, uint64_t obj, uint64_t *ret);
