/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Memory of calls that failed, which a kept exception holds through its traceback. */
#include <stddef.h>

struct model;

#define KEPT_ERROR_TEXT 768

/* "264.13 MiB of it are of the call that failed at 6.25 s: ...", for the device's last
 * out-of-memory event; "" if nothing worth a line is kept. Returns buf. */
const char *kept_error__say(const struct model *m, size_t device, char *buf, size_t size);
