/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_DUMP_DUMP_H
#define MT_DUMP_DUMP_H
/* What a process holds right now: its tensors, and on CUDA devices the blocks of its allocator, put
 * together. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "census/census.h"
#include "torch/cudaalloc.h"
#include "torch/torch.h"

struct json;
struct python;

/* One of the first to be told: a tensor, or the sum of several. */
struct dump_row {
	const struct census_tensor *tensor; /* the tensor, or one of those in the row; NULL: held by
					       no tensor that was found */
	uint64_t bytes, count;
	uint8_t device; /* index into devices */
	uint8_t kind;	/* enum census_kind */
};

struct dump_device {
	char name[16]; /* "cuda:0", "cpu" */
	uint8_t type, index;
	bool known;	 /* the allocator's figures: of CUDA devices, where they could be read */
	bool consistent; /* they add up, and did not move while they were read */
	uint64_t allocated, reserved,
		blocks; /* where known; else allocated is the sum of storages */
	uint64_t bytes[CENSUS_KINDS], count[CENSUS_KINDS];
	uint64_t unheld,
		unheld_blocks; /* of blocks that no tensor holds that was found; only where known */
	uint64_t moved;	       /* tensors whose block came or went while it was read: left out */
};

struct dump {
	struct census_state census;
	struct dump_device *devices;
	size_t ndevices;
	struct dump_row *rows; /* one a tensor, by device, then by size */
	size_t nrows;
	char alloc_why[128]; /* why there are no figures of CUDA's allocator; "" where there are */
};

struct dump_opts {
	int pid;
	const char *comm;
	char python[32];
	const struct torch_info *torch;
	enum dump_by { DUMP_BY_TENSOR, DUMP_BY_MODULE, DUMP_BY_CATEGORY } by;
	size_t top; /* rows a device; 0: all */
};

/* Reads. alloc: NULL where there is no CUDA. 0, or -errno with *why. */
int dump__read(struct census *c, struct cudaalloc *alloc, uint64_t limit_ns, struct dump *ret,
	       const char **why);
void dump__free(struct dump *d); /* what it holds */

/* One row a module or category instead of one a tensor, by device, then by size. *ret is for
 * free(). 0 or -ENOMEM. */
int dump__group(const struct dump *d, enum dump_by by, struct dump_row **ret, size_t *n);

void dump__text(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
		const struct dump_opts *o);
/* 0 or -ENOMEM. Errors of the stream are the caller's. */
int dump__json(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
	       const struct dump_opts *o);

#endif
