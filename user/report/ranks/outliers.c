/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/ranks/ranks.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"

void outliers__sort(uint64_t *values, size_t n)
{
	if (n)
		qsort(values, n, sizeof(*values), array__compare_u64);
}

uint64_t outliers__median(const uint64_t *sorted, size_t n)
{
	if (!n)
		return 0;
	if (n % 2)
		return sorted[n / 2];
	return sorted[n / 2 - 1] + (sorted[n / 2] - sorted[n / 2 - 1]) / 2;
}

uint64_t outliers__median_with_zeros(const uint64_t *sorted, size_t n, size_t zeros)
{
	uint64_t below, above;

	if (n <= zeros || n / 2 < zeros)
		return 0;
	above = sorted[n / 2 - zeros];
	if (n % 2)
		return above;
	below = n / 2 - 1 < zeros ? 0 : sorted[n / 2 - 1 - zeros];
	return below + (above - below) / 2;
}

/* Returns the median of the n > 1 values without one of this value; of two middle values, the
 * nearer one. */
static uint64_t median_without(const uint64_t *sorted, size_t n, uint64_t value)
{
	size_t out = 0, hi = n, half = (n - 1) / 2;
	uint64_t above, below;

	while (out < hi) { /* finds the first value that is not smaller */
		size_t mid = out + (hi - out) / 2;

		if (sorted[mid] < value)
			out = mid + 1;
		else
			hi = mid;
	}
	above = sorted[half + (half >= out)];
	if (n % 2 == 0)
		return above;
	below = sorted[half - 1 + (half - 1 >= out)];
	if (value >= above)
		return above;
	return value <= below || value - below < above - value ? below : above;
}

static bool differs(uint64_t a, uint64_t others, uint64_t least)
{
	uint64_t d = a > others ? a - others : others - a;

	return d > least &&
	       (unsigned __int128)d * 100 > (unsigned __int128)others * OUTLIER_PERCENT;
}

static int add_outlier(struct outliers *o, struct outlier x)
{
	if (array__grow(&o->all, &o->room, o->n + 1, sizeof(*o->all)))
		return -ENOMEM;
	o->all[o->n++] = x;
	return 0;
}

int outliers__add_to_zeros(struct outliers *o, uint32_t recording, uint64_t bytes, uint64_t least,
			   uint32_t line_no)
{
	if (bytes <= least)
		return 0;
	return add_outlier(
		o, (struct outlier){ .recording = recording, .line_no = line_no, .bytes = bytes });
}

int outliers__add(struct outliers *o, const uint64_t *values, const uint64_t *sorted, size_t n,
		  uint64_t least, uint32_t line_no)
{
	for (size_t i = 0; i < n && n > 1; i++) {
		uint64_t others = median_without(sorted, n, values[i]);

		if (!differs(values[i], others, least) || (n == 2 && values[i] < others))
			continue;
		if (add_outlier(o, (struct outlier){ .recording = (uint32_t)i,
						     .line_no = line_no,
						     .bytes = values[i],
						     .others = others }))
			return -ENOMEM;
	}
	return 0;
}

static int cmp_outlier(const void *a, const void *b)
{
	const struct outlier *x = a, *y = b;

	if (!x->line_no != !y->line_no)
		return x->line_no ? 1 : -1;
	if (outlier__distance(x) != outlier__distance(y))
		return outlier__distance(x) > outlier__distance(y) ? -1 : 1;
	if (x->recording != y->recording)
		return x->recording < y->recording ? -1 : 1;
	return x->line_no < y->line_no ? -1 : x->line_no > y->line_no;
}

void outliers__order(struct outliers *o)
{
	if (o->n)
		qsort(o->all, o->n, sizeof(*o->all), cmp_outlier);
}
