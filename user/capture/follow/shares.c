/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/shares.h"

#include <stdlib.h>
#include <string.h>

size_t shares__count(const struct place *v, size_t n, const struct owner *owner)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += v[i].owner == owner;
	return count;
}

/* Counts the places of this rank, or of all ranks, for each owner. */
static void count_places(const struct place *v, size_t n, const unsigned *rank)
{
	for (size_t i = 0; i < n; i++)
		v[i].owner->places = 0;
	for (size_t i = 0; i < n; i++)
		v[i].owner->places += !rank || v[i].rank == *rank;
}

struct owner *shares__largest(const struct place *v, size_t n)
{
	struct owner *most = NULL;

	count_places(v, n, NULL);
	for (size_t i = 0; i < n; i++)
		if (!most || v[i].owner->places > most->places)
			most = v[i].owner;
	return most;
}

size_t shares__choose(const struct place *v, size_t n, const struct owner *owner, unsigned rank)
{
	size_t found = SHARES_NONE;

	for (unsigned r = 0; r <= rank && found == SHARES_NONE; r++) {
		/* An owner of the same rank must still have as many afterwards. */
		size_t most = r < rank ? 0 : 1;

		count_places(v, n, &r);
		for (size_t i = 0; i < n && r == rank; i++)
			if (v[i].owner == owner) {
				most = owner->places + 1;
				break;
			}
		for (size_t i = 0; i < n; i++) {
			const struct place *p = &v[i];

			if (p->rank != r || p->owner->places < most ||
			    (p->owner->places == most &&
			     (found == SHARES_NONE || p->owner != v[found].owner ||
			      p->came < v[found].came)))
				continue;
			found = i;
			most = p->owner->places;
		}
	}
	return found;
}
