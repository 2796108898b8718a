/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads the present contents of a process: its tensors, matched with the CUDA allocator's
 * blocks. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "inspect/census.h"
#include "inspect/cudaalloc.h"
#include "inspect/torch.h"
#include "model/holders.h"

struct json; /* base/json.h */

/* A tensor, or the sum of several. */
struct dump_row {
	/* The tensor, or one of several in the row. NULL: no known tensor holds the bytes. */
	const struct census_tensor *tensor;
	const struct holder *holder; /* with DUMP_BY_HOLDER, if tensor is not NULL */
	uint64_t bytes, count;
	uint8_t device; /* index in devices */
	uint8_t kind;	/* enum census_kind */
};

struct dump_device {
	char name[16]; /* device name, such as "cuda:0" or "cpu" */
	uint8_t type, index;
	bool known;	 /* true if the allocator's figures were read (CUDA only) */
	bool consistent; /* true if the allocator's figures add up and did not change during the
			    reading */
	/* The allocator's figures if known; otherwise allocated is the sum of storages. */
	uint64_t allocated, reserved, blocks;
	uint64_t bytes[CENSUS_KINDS], count[CENSUS_KINDS];
	/* Bytes and number of blocks that no known tensor holds; valid if known is true. */
	uint64_t unheld, unheld_blocks;
	/* The part that was allocated during the reading. */
	uint64_t unheld_new, unheld_new_blocks;
	uint64_t moved; /* tensors left out because their block changed during the reading */
	/* Tensors left out because the allocator did not take their memory: host memory that the
	 * device reads, memory of other code. */
	uint64_t elsewhere;
	/* Blocks whose only tensor uses at most half, and the bytes that it uses. */
	uint64_t view_bytes, view_used;
};

struct dump {
	struct census_state census;
	struct dump_device *devices;
	size_t ndevices;
	struct dump_row *rows; /* one row per tensor, by device, then by size */
	size_t nrows;
	struct holders *holders; /* private: of each device, for DUMP_BY_HOLDER */
	char *details;		 /* private: texts of held.detail, of each census.about */
	char alloc_why[128];	 /* reason why the allocator's figures are missing; "": none */
};

struct dump_opts {
	int pid;
	const char *comm;
	const char *command; /* words__arguments(); "": comm instead */
	char python[32];
	const struct torch_info *torch;
	enum dump_by { DUMP_BY_HOLDER, DUMP_BY_TENSOR, DUMP_BY_MODULE, DUMP_BY_CATEGORY } by;
	size_t top; /* rows per device; 0: all */
};

/* Reads the process. alloc NULL: no CUDA. Returns 0, or -errno with *why. */
int dump__read(struct census *c, struct cudaalloc *alloc, uint64_t limit_ns, struct dump *ret,
	       const char **why);
void dump__free(struct dump *d); /* frees the contents of d */

/* Groups the rows, ordered by device, then by size. *ret is for free(), and valid until d is freed
 * or grouped again. Returns 0 or -ENOMEM. */
int dump__group(struct dump *d, enum dump_by by, struct dump_row **ret, size_t *n);

/* The command line without the interpreter's path, or the process's name. Returns buf. */
char *dump__command(char *buf, size_t size, const struct dump_opts *o);
/* Writes "[1024, 4096] float32". Returns buf. */
char *dump__shape(char *buf, size_t size, const struct census_about *a);
/* Returns 0 or -ENOMEM. */
int dump__text(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
	       const struct dump_opts *o);
/* Puts the document into another one, with this key; NULL: into an array. */
void dump__put(struct json *j, const char *key, const struct dump *d, const struct dump_row *rows,
	       size_t n, const struct dump_opts *o);
/* Returns 0 or -ENOMEM. The caller checks out for errors. */
int dump__json(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
	       const struct dump_opts *o);
