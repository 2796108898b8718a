/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * torch/csrc/autograd/saved_variable.h: after data_ come pointers, version and output number, then
 * five bools: was_default_constructed_, is_inplace_on_view_, saved_original_, is_leaf_, is_output_.
 * The original is saved unless it is an output and not a leaf. A saved original is a leaf if it has
 * no node.
 */
#include <string.h>

#include "inspect/torch/pygraph.h"

#define FIRST 24u /* at least three pointers */
#define STEP 8u
/* Matches that suffice: five bytes that agree with one another and with the tensor are no
 * coincidence. */
#define ENOUGH 4u
#define MAX_NUMBER 4096u /* maximum of output numbers of a node */

enum { DEFAULT, INPLACE, ORIGINAL, LEAF, OUTPUT, FLAGS };

static bool fits(const uint8_t *f, bool known, bool grad_fn)
{
	uint32_t number;

	memcpy(&number, f - sizeof(number), sizeof(number));
	if (number > MAX_NUMBER)
		return false;
	for (size_t k = 0; k < FLAGS; k++)
		if (f[k] > 1)
			return false;
	if (f[DEFAULT] || f[ORIGINAL] != (!f[OUTPUT] || f[LEAF]))
		return false;
	return !known || !f[ORIGINAL] || f[LEAF] != grad_fn;
}

size_t pygraph__find_flags(const struct pygraph *g, const bool *grad_fn, const bool *known)
{
	size_t found = 0;

	for (size_t at = FIRST; at + FLAGS <= PYGRAPH_AFTER; at += STEP) {
		size_t good = 0, bad = 0, outputs = 0, others = 0;

		for (size_t i = 0; i < g->nsaved; i++) {
			const uint8_t *f = g->saved[i].after + at;

			if (g->saved[i].leaf || !g->saved[i].has_after)
				continue;
			if (!fits(f, known[i], grad_fn[i])) {
				bad++;
				continue;
			}
			good++;
			outputs += f[OUTPUT] && (f[LEAF] || !f[ORIGINAL]);
			others += !f[OUTPUT] && !f[LEAF] && known[i] && grad_fn[i];
		}
		/* Needs outputs and others, so that zeroed memory does not match. Uninitialized
		 * words may hold any value. */
		if (!outputs || !others || good < ENOUGH || bad * 2 > good)
			continue;
		if (found)
			return 0;
		found = at;
	}
	return found;
}

enum pygraph_use pygraph__use(const struct pygraph_saved *s, size_t flags, bool known, bool grad_fn)
{
	const uint8_t *f = s->after + flags;

	if (s->leaf || !flags || !s->has_after || !fits(f, known, grad_fn))
		return PYGRAPH_HELD;
	return f[OUTPUT] || (known && grad_fn) ? PYGRAPH_MADE : PYGRAPH_SAVED;
}
