/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The pickers of site__pick(), one for each machine, with the same arguments and results. */
#include "inspect/site.h"

#define SITE_PASS_MAX 24 /* maximum of instructions before the site */

int site_x86__pick(const uint8_t *code, size_t size, uint64_t func_size, unsigned args,
		   struct site *ret);
int site_a64__pick(const uint8_t *code, size_t size, uint64_t func_size, unsigned args,
		   struct site *ret);
