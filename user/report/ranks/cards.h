/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Cards (GPUs) with memory of several recorded processes, such as a trainer and an inference
 * engine. Recordings are of one card if they name the same UUID and host. Their clocks give one
 * moment: that of the process with the most memory at its own moment. The other recordings are read
 * again at that moment.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/model.h"

struct analysis;
struct json;
struct ranks;
struct report_text_opts;

/* What is known of a process at the card's moment. */
enum card_state {
	CARD_READ,	  /* its memory */
	CARD_NOT_BEGUN,	  /* the recording begins later, or with the process */
	CARD_ENDED,	  /* the process had ended */
	CARD_NOT_COVERED, /* the recording ended earlier */
	CARD_NO_CLOCK,	  /* the recording does not have the time of its begin */
	CARD_NOT_AGAIN,	  /* the recording could not be read a second time */
};

/* Use of a card by a recording. */
struct card_use {
	char *uuid, *host, *name; /* name of the recording; host NULL: unknown */
	char device[16];	  /* name in the process: "cuda:0" */
	char card[96];		  /* name of the GPU, clean; "": unknown */
	uint64_t total;		  /* bytes of the card; 0: unknown */
	uint32_t path;		  /* index of the path of the recording */
	uint32_t recording;	  /* as rank.added; UINT32_MAX: in no report of all */
	uint64_t pid, started;	  /* started as in struct process_id; 0: unknown */
	/* Clock: at `zero` (ns since 1970) the recording's time was 0; how far the clock was moved
	 * until the end, ns. */
	bool has_clock;
	uint64_t zero, moved;
	uint64_t begin, end; /* ns; the recording knows the state between them */
	bool exited;	     /* it ended with the process */
	bool marked;	     /* the device reached the report's moment; then: */
	uint64_t mark_time, mark_event, mark_allocated;
	/* Valid after cards__finish(). */
	enum card_state state;
	uint64_t time;		   /* the card's moment in the recording, ns; with CARD_READ */
	uint64_t allocated;	   /* the next members: with CARD_READ */
	enum figure is;		   /* exactness of allocated */
	bool has_reserved;	   /* the allocator reports it */
	uint64_t reserved, asleep; /* asleep: part of reserved without memory on the card */
	bool driver_known;
	uint64_t driver; /* bytes that the driver counts for the process */
};

struct card {
	uint32_t first, n; /* range of uses: one for each process, the largest first */
	bool has_moment;
	uint64_t moment; /* ns since 1970 */
	uint32_t leader; /* index of the use whose moment it is */
	uint64_t moved;	 /* largest card_use.moved: the moments may differ by so much */
};

struct cards {
	struct card_use *uses;
	size_t n_uses, room;
	struct card *all; /* cards with several processes; valid after cards__finish() */
	size_t n;
};

/* Notes the accelerators that a recording uses. path, recording: as in struct card_use. Returns 0
 * or -ENOMEM. */
int cards__add(struct cards *c, const struct analysis *a, uint32_t path, uint32_t recording);
/* Finds cards with several processes, and reads these processes' recordings again. device: only
 * cards with this name in a recording; NULL: all. Returns 0 or -ENOMEM. */
int cards__finish(struct cards *c, char *const *paths, const char *device);
void cards__free(struct cards *c);
/* Prints a bar for each process of each card. Nothing without such a card. Returns 0 or -ENOMEM. */
int cards__text(FILE *out, const struct cards *c, const struct report_text_opts *o);
/* Writes "cards"; nothing without such a card. */
void cards__json(struct json *j, const struct cards *c, const struct ranks *r);
