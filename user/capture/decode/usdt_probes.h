/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Static probes (USDT) in the target's files: where they are probed, and those that --scope names
 * as begin and end of a scope. The files are hostile.
 */
#include <stdint.h>

#include "capture/probes.h"

struct decoder;
struct map;
struct usdt_sites;

/* Chooses the places to probe: 10-byte nops if the kernel replaces them with calls, which are
 * cheaper than traps. Sets offset and ref_ctr of sites. Returns 0, or -ENOTSUP: a site has only a
 * long nop, and the kernel does not. */
int usdt_probes__choose(const struct decoder *decoder, const struct usdt_sites *usdt,
			struct probe_site sites[]);
/* Looks for the probes of opts->usdt in a mapped file, and attaches to those of each pair that has
 * both there. Warns if that is not possible. Returns the pairs that the file has: bit i for
 * opts->usdt[i]. */
uint32_t usdt_probes__attach(const struct decoder *decoder, const struct map *map);
/* Warns of each pair that is not in `found`, the pairs of all files so far. */
void usdt_probes__warn_missing(const struct decoder *decoder, uint32_t found);
