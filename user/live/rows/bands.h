/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Scopes over time, for a row below the graph: in each column the scope that ran longest. Only
 * scopes outside of others count. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

#define BAND_NONE SIZE_MAX	    /* no scope ran, or only for a small part of the column */
#define BAND_UNKNOWN (SIZE_MAX - 1) /* before the runs that the model remembers */

/* Reads the columns of a graph__read() with the same now, which returned width, ns. scope: by
 * column, as model__scope(). Returns false if no column has a scope. */
bool live_bands__read(const struct model *m, uint64_t now, uint64_t width, size_t *scope,
		      size_t columns);
/* Returns how many bytes all names of these scopes begin with, up to the end of a word or before a
 * number, so that the rest still tells them apart: 6 of "train/forward" and "train/step". 0: they
 * have no such begin, or there is one scope. */
size_t live_bands__prefix(const struct model *m, const size_t *scope, size_t columns);
