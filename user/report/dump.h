/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads and prints the present memory of a process, or of a process and its children: its tensors,
 * matched with the CUDA allocator's blocks, and its host memory. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "inspect/census.h"
#include "inspect/cudaalloc.h"
#include "inspect/hostmem.h"
#include "inspect/torch.h"
#include "model/holders.h"

struct json; /* base/json.h */
struct map64;
struct maps;
struct proc;
struct python;

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
	/* The part of unheld and unheld_blocks that was allocated during the reading. */
	uint64_t unheld_new, unheld_new_blocks;
	uint64_t moved; /* tensors left out because their block changed during the reading */
	/* Tensors left out because the CUDA allocator does not have their memory: host memory that
	 * the device reads, or memory of other libraries. */
	uint64_t elsewhere;
	/* view_bytes: blocks whose only tensor uses at most half of them. view_used: bytes that
	 * these tensors use. */
	uint64_t view_bytes, view_used;
};

struct dump {
	struct census_state census;
	struct dump_device *devices;
	size_t ndevices;
	struct dump_row *rows; /* one row per tensor, by device, then by size */
	size_t nrows;
	struct holders *holders; /* private to dump.c: holders of each device's tensors */
	char *details;		 /* private to dump.c: the texts of held.detail in census.about */
	char alloc_why[128];	 /* reason why the allocator's figures are missing; "": none */
};

struct dump_opts {
	int pid;
	const char *comm;    /* the process's command name */
	const char *command; /* its command line, from words__arguments(); "": print comm instead */
	char python[32];     /* version of Python, as text */
	const struct torch_info *torch;
	enum dump_by { DUMP_BY_HOLDER, DUMP_BY_TENSOR, DUMP_BY_MODULE, DUMP_BY_CATEGORY } by;
	size_t top; /* rows per device; 0: all */
};

/* Reads a process's tensors in at most limit_ns. alloc: its CUDA allocator; NULL: no CUDA. Returns
 * 0, or a negative errno with the reason in *why. */
int dump__read(struct census *c, struct cudaalloc *alloc, uint64_t limit_ns, struct dump *ret,
	       const char **why);
void dump__free(struct dump *d); /* frees the contents of d */

/* Groups the rows, ordered by device, then by size. *ret is for free(), and valid until d is freed
 * or grouped again. Returns 0 or -ENOMEM. */
int dump__group(struct dump *d, enum dump_by by, struct dump_row **ret, size_t *n);

/* Writes "[1024, 4096] float32". Returns buf. */
char *dump__shape(char *buf, size_t size, const struct census_about *a);
/* Prints the tables of all devices. rows: from dump__group(). Returns 0 or -ENOMEM. */
int dump__text(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
	       const struct dump_opts *o);
/* Writes the rows, from dump__group(), as one JSON object. Returns 0 or -ENOMEM. The caller checks
 * out for errors. */
int dump__json(FILE *out, const struct dump *d, const struct dump_row *rows, size_t n,
	       const struct dump_opts *o);

/* ---- a process and its descendants: a router, its engine and workers ---- */

struct dump_process {
	pid_t pid, parent;  /* parent: 0 for the first process */
	struct dump dump;   /* empty if why is not "" */
	struct dump_opts o; /* options for dump__text(); its texts are borrowed */
	char name[64];	    /* the process's name from pynames__process(), clean; "": not known */
	char why[256]; /* why it was not read, such as "torch is not imported (yet)"; "": was */
};

/* Prints a table of the processes with their devices and the sums, then dump__text() of each
 * process that was read. A process's cuda:0 is the first device that it sees. Returns 0 or -ENOMEM.
 */
int dump_tree__text(FILE *out, struct dump_process *v, size_t n);
/* Writes one JSON document that contains each process's object from dump__json(). Returns 0 or
 * -ENOMEM. */
int dump_tree__json(FILE *out, struct dump_process *v, size_t n);

/* ---- host memory ---- */

struct dump_host_process {
	pid_t pid;
	char comm[64]; /* command name, not cleaned */
	struct host_ledger ledger;
	uint64_t tensors; /* bytes of CPU storages that the census found, resident or not */
	char why[160];	  /* why tensors are not known; "": they are */
	struct host_samples samples; /* live blocks by stack, if malloc's own sampler is on */
	int names;		     /* result of host_samples__name() */
};

/* Files of shared memory that the processes map, each counted once. RSS lacks pages that no process
 * has touched. */
struct dump_shared {
	uint64_t files, bytes; /* bytes: of the largest mapping of each file */
	struct map64 *seen;    /* private to host.c: number of the file -> its bytes */
};

struct dump_host {
	struct dump_host_process *v; /* the chosen process, then its children */
	size_t n, skipped;	     /* skipped: children that ended or cannot be read */
	struct host_ledger sum;	     /* sum of all processes in v */
	struct dump_shared shared;
	bool tree; /* the children were read, too */
};

/* Parts that a reading of one process leaves out. */
struct dump_host_opts {
	bool no_tensors;   /* the tensors on the CPU: they count for malloc */
	bool brief;	   /* see struct host_opts */
	bool proportional; /* nothing; see struct host_opts */
};

/* Reads the host memory of a process. py NULL: no Python. Tensors that cannot be read are no error.
 * Returns 0 or a negative errno, as hostmem__read(). */
int dump_host__read(const struct proc *p, const struct python *py,
		    const struct dump_host_opts *opts, struct dump_host_process *ret);
/* Reads the host memory of a process and, if tree is true, of its children. Returns 0 or a negative
 * errno. */
int dump_host__read_all(const struct proc *p, const struct python *py, bool tree,
			struct dump_host *ret);
void dump_host__free(struct dump_host *d); /* frees its contents */

/* Prints host memory as text. command: the process's command line, clean. Returns 0 or -ENOMEM. */
int dump_host__text(FILE *out, const struct dump_host *d, const char *command);
/* Writes host memory as JSON. Returns 0 or -ENOMEM; the caller checks ferror(out). */
int dump_host__json(FILE *out, const struct dump_host *d);
