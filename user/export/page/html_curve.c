/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Curve of allocated bytes in time intervals. The intervals grow with the recording, so that
 * their number is bounded. */
#include <errno.h>

#include "base/array.h"
#include "export/page/html.h"

#define CURVE_MAX 8192	 /* largest number of intervals */
#define CURVE_FIRST 1024 /* first interval, in ns */

static void cover(struct curve_part *a, const struct curve_part *b)
{
	a->min = b->min < a->min ? b->min : a->min;
	a->max = b->max > a->max ? b->max : a->max;
	a->reserved_max = b->reserved_max > a->reserved_max ? b->reserved_max : a->reserved_max;
	a->last = b->last;
	a->reserved = b->reserved;
}

static void halve(struct curve *c)
{
	size_t k = 0;

	c->width *= 2;
	for (size_t i = 0; i < c->n; i++) {
		c->parts[i].number /= 2;
		if (k && c->parts[k - 1].number == c->parts[i].number)
			cover(&c->parts[k - 1], &c->parts[i]);
		else
			c->parts[k++] = c->parts[i];
	}
	c->n = k;
}

int curve__add(struct curve *c, uint64_t time, int64_t allocated, uint64_t reserved)
{
	struct curve_part part = {
		.min = allocated,
		.max = allocated,
		.last = allocated,
		.reserved_max = reserved,
		.reserved = reserved,
	};

	c->width = c->width ? c->width : CURVE_FIRST;
	while (time / c->width >= CURVE_MAX)
		halve(c);
	part.number = time / c->width;
	if (c->n && c->parts[c->n - 1].number == part.number) {
		cover(&c->parts[c->n - 1], &part);
		return 0;
	}
	if (array__grow(&c->parts, &c->cap, c->n + 1, sizeof(*c->parts)))
		return -ENOMEM;
	c->parts[c->n++] = part;
	return 0;
}
