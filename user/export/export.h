/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_EXPORT_H
#define MT_EXPORT_EXPORT_H
/*
 * One format, one file. A format either looks at the finished model (flame graph, folded, speedscope)
 * or wants every event as it passes (timeline); the table says which.
 */
#include <stdio.h>

#include "model/model.h"
#include "record/stream.h"

struct export_ctx {
	FILE *out;
	const struct dict *dict;
	const struct facts *facts;
	struct model *model;
	int device;	  /* index into the model's devices; -1: all of them, where the format can */
	const char *name; /* what to call it: the recording's file name */
};

struct export_format {
	const char *name;   /* "speedscope" */
	const char *suffix; /* ".speedscope.json": memtrace-<recording><suffix> */
	const char *help;   /* one line for --help: file, and who reads it */
	/* For formats that want every event: called before the model has seen it, and once at the start. May be NULL. */
	int (*begin)(struct export_ctx *c, void **state);
	int (*event)(struct export_ctx *c, void *state, const struct event *e);
	/* Writes the document. 0 or -errno; errors of c->out are the caller's to check. Frees state. */
	int (*end)(struct export_ctx *c, void *state);
};

extern const struct export_format export_flamegraph, export_folded, export_speedscope, export_timeline;
/* NULL-terminated. */
extern const struct export_format *const export_formats[];
const struct export_format *export__find(const char *name);

#endif
