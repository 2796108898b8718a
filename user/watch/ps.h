/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The list of all processes with PyTorch or CUDA, with the memory of each, for `ps`, completion and
 * error messages. Only reads: no process gets a probe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "inspect/container.h"

#define PS_MOST 256 /* processes in the list; further ones are only counted */

struct ps_process {
	pid_t pid;
	uid_t uid;
	/* All text is clean. */
	char user[64];			 /* name, or ID */
	char command[256];		 /* from the script's name on: "train.py --lr 0.1" */
	char container[CONTAINER_SHOWN]; /* name, or start of the ID; "": none */
	char pod[CONTAINER_SHOWN];	 /* name, or UID; "": none */
	int64_t rank;			 /* -1: not known */
	bool rss_known;
	uint64_t rss;
	bool has_allocator; /* allocated and reserved are known: of all devices together */
	uint64_t allocated, reserved;
	bool used_known; /* driver-reported use, of all devices together */
	uint64_t used;
	/* Growth of allocated and of rss between the last two ps__look(), in bytes per second. */
	bool growth_known, rss_growth_known;
	double growth, rss_growth;
	bool denied;   /* this user may not read the process */
	char why[160]; /* why allocated and reserved are not known; "": they are */
};

struct ps;

struct ps *ps__new(void);    /* NULL: no memory */
void ps__free(struct ps *s); /* NULL is fine */
/* Finds processes. Takes at most about a second; processes of a file system that does not answer
 * take longer. */
void ps__find(struct ps *s);
/* Reads the figures of all, and drops those that ended. Growth is known after two calls. */
void ps__look(struct ps *s);
/* The processes, largest device memory first. Valid until the next call. */
const struct ps_process *const *ps__list(struct ps *s, size_t *n);
/* Number of processes that are not in the list: the list is full, or the process's files did not
 * answer. */
size_t ps__left_out(const struct ps *s);
struct holder_torch;
/* Writes PyTorch's figures of each process on each GPU to v, which has room for `most`. Leaves out
 * devices of which it is not certain which GPU they are. Returns the number. */
size_t ps__on_gpus(const struct ps *s, struct holder_torch *v, size_t most);
/* The list's sort key: driver-reported use if it is known, otherwise reserved bytes. */
uint64_t ps_process__device(const struct ps_process *p);
