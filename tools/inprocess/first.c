/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The first page of the programs' variables (see programs.c), linked first. It holds no variable,
 * so the recorder takes an offset within it as "this table lacks the variable".
 */
#include <linux/types.h>

#include "memtrace.h"
#include "inside_shared.h"

char mt_shared_first[MT_INSIDE_PAGE] __attribute__((section("mt_shared"), aligned(MT_INSIDE_PAGE),
						    visibility("hidden"))) = { 0 };
