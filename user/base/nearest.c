/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "base/nearest.h"

#define LONGEST 63
#define SHORTEST 3 /* shortest prefix that counts as the word */

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Optimal string alignment with three rows of its table, because a swap needs the row before the
 * last. */
unsigned nearest__distance(const char *a, const char *b)
{
	unsigned rows[3][LONGEST + 1], *two = rows[0], *one = rows[1], *now = rows[2];
	size_t n = strlen(a), m = strlen(b);

	if (n > LONGEST || m > LONGEST)
		return UINT_MAX;
	for (size_t k = 0; k <= m; k++)
		one[k] = (unsigned)k;
	for (size_t i = 1; i <= n; i++) {
		unsigned *free_row = two;

		now[0] = (unsigned)i;
		for (size_t k = 1; k <= m; k++) {
			now[k] = least(least(one[k], now[k - 1]) + 1,
				       one[k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				now[k] = least(now[k], two[k - 2] + 1);
		}
		two = one;
		one = now;
		now = free_row;
	}
	return one[m];
}

void nearest__try(struct nearest *n, const char *candidate)
{
	size_t len = strlen(n->word);
	unsigned distance = nearest__distance(n->word, candidate), begins = 0;

	if (len >= SHORTEST && !strncmp(n->word, candidate, len))
		distance = 0; /* prefers "status" to "start" for "stat" */
	while (n->word[begins] && n->word[begins] == candidate[begins])
		begins++;
	if (distance > least((unsigned)(len + 1) / 3, 3) ||
	    (n->best &&
	     (distance > n->distance || (distance == n->distance && begins <= n->begins))))
		return;
	n->best = candidate;
	n->distance = distance;
	n->begins = begins;
}
