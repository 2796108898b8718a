/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The pickers of site__pick(), one for each machine, with the same arguments and results. */
#include "inspect/site.h"

#define SITE_PASS_MAX 24 /* maximum number of instructions before the site */

/*
 * The branches in a function's code. Branches in the cold part, which the compiler moved elsewhere,
 * are not in it. They lead to places after the branch to the cold part, so after the site.
 */
struct site_body {
	bool whole;	       /* every byte was decoded */
	uint64_t first_target; /* lowest branch target after the entry */
	bool indirect;	       /* has jumps with computed targets */
	bool indexed;	       /* has loads as for jump tables */
};

/* True if all control flow to this offset comes from the entry, once per call. */
static inline bool site_body__only_from_entry(const struct site_body *body, size_t offset)
{
	if (!offset)
		return true;
	return body->whole && body->first_target > offset && !(body->indirect && body->indexed);
}

int site_x86__pick(const uint8_t *code, size_t size, uint64_t func_size, unsigned args,
		   struct site *ret);
int site_a64__pick(const uint8_t *code, size_t size, uint64_t func_size, unsigned args,
		   struct site *ret);
