/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_MODEL_OBSERVERS_H
#define MT_MODEL_OBSERVERS_H
/* The caller of model__watch(). */
#include <stdbool.h>
#include <stdint.h>

#include "model/hash_index.h"
#include "model/model.h"

struct dev;
struct rec;

struct observers {
	int (*went)(void *ctx, const struct model_block *b); /* NULL: no observer */
	int (*segment)(void *ctx, const struct model_extent *e);
	void *ctx;
	int err;
	struct watch_class {
		uint32_t site, label1;
		uint8_t category;
	} * classes;
	uint32_t nclasses, capclasses;
	struct hash_index index;
};
/* A new device. */
void observers__device(struct model *m, struct dev *dev);
/* dead: the block is freed now; false at the end. 0 or the observer's error. */
int observers__went(struct model *m, const struct dev *dev, uint64_t addr, const struct rec *rec,
		    bool dead);
int observers__finish(struct model *m);

#endif
