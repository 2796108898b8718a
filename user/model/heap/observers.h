/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Callbacks of model__watch() for blocks and segments. */
#include <stdbool.h>
#include <stdint.h>

#include "model/heap/hash_index.h"
#include "model/model.h"

struct dev;
struct rec;

struct observers {
	int (*went)(void *ctx, const struct model_block *b); /* NULL: no observer */
	int (*segment)(void *ctx, const struct model_extent *e);
	void *ctx;
	int err;
	struct watch_class { /* compared as bytes: no padding */
		uint32_t site, label1, category;
	} * classes;
	uint32_t nclasses;
	size_t capclasses;
	struct hash_index index;
};
/* Connects a new device to the callbacks. */
void observers__device(struct model *m, struct dev *dev);
/* Reports a block. dead: it is freed now; false: it is live at the end. 0 or the observer's
 * error. */
int observers__went(struct model *m, const struct dev *dev, uint64_t addr, const struct rec *rec,
		    bool dead);
int observers__finish(struct model *m);
