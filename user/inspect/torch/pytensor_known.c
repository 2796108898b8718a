/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Layouts of tensors in released versions of PyTorch. Some programs have too few tensors, or too
 * brief ones, to find the layout by search. A known layout needs one tensor that agrees in all
 * fields.
 */
#include <errno.h>
#include <stdlib.h>

#include "inspect/torch/pytensor_internal.h"

#define LOOKED_AT 256u /* tensors compared with each layout */

/* Measured from the headers; grad depends on the C++ library and is found by search. */
static const struct pytensor_layout known[] = {
	/* 2.10 to 2.12 */
	{ .cdata = 16, .storage = 16, .meta = 24, .pyobj = 56, .sizes = 64, .data = 16 },
	/* 2.13 */
	{ .cdata = 16, .storage = 16, .meta = 24, .pyobj = 48, .sizes = 56, .data = 16 },
	/* 2.3 to 2.9 */
	{ .cdata = 24, .storage = 16, .meta = 24, .pyobj = 56, .sizes = 64, .data = 16 },
	/* 2.0 to 2.2 */
	{ .cdata = 24,
	  .storage = 24,
	  .meta = 32,
	  .pyobj = 64,
	  .sizes = 72,
	  .data = 24,
	  .flag_first = true },
};

#define N_KNOWN (sizeof(known) / sizeof(known[0]))

/* Counts the tensors that have memory and lead back to their Python object in this layout. */
static int confirm(struct pytensors *t, const struct pytensor_layout *l, const uint64_t *objs,
		   struct pytensor *v, size_t n, size_t *ret)
{
	struct pytensor_layout old = t->l;
	bool calibrated = t->calibrated;
	int err;

	for (size_t i = 0; i < n; i++)
		v[i] = (struct pytensor){ .obj = objs[i] };
	t->l = *l;
	t->calibrated = true;
	err = pytensors__read(t, v, n);
	t->l = old;
	t->calibrated = calibrated;
	*ret = 0;
	for (size_t i = 0; !err && i < n; i++)
		*ret += v[i].state == PYTENSOR_OK && v[i].pyobj == v[i].obj;
	return err;
}

int pytensor_known__find(struct pytensors *t, const uint64_t *objs, size_t n,
			 struct pytensor_layout *ret)
{
	size_t best = 0, second = 0, fit;
	struct pytensor *v;
	int err = 0;

	n = n < LOOKED_AT ? n : LOOKED_AT;
	v = calloc(n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (size_t k = 0; !err && k < N_KNOWN; k++) {
		err = confirm(t, &known[k], objs, v, n, &fit);
		if (!err && fit > best) {
			second = best;
			best = fit;
			*ret = known[k];
		} else if (!err && fit > second) {
			second = fit;
		}
	}
	free(v);
	if (err)
		return err;
	return best > second ? 0 : -ENOENT;
}
