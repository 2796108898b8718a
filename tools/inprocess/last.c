/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The last page of the programs' variables, linked last. */
#include <linux/types.h>

#include "memtrace.h"
#include "inside_shared.h"

char mt_shared_last[MT_INSIDE_PAGE] __attribute__((section("mt_shared"), aligned(MT_INSIDE_PAGE),
						   visibility("hidden"))) = { 0 };
