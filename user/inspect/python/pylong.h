/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Python's int objects. */
#include <stdint.h>

#include "inspect/pyobj.h"

/* Reads an int below 2^60 that is not negative. 0; -EBADMSG: no int; -E2BIG: another one; or the
 * error of the read. */
int pylong__read(struct pymem *m, uint64_t obj, uint64_t *ret);
