/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_EXPORT_EXPORT_H
#define MT_EXPORT_EXPORT_H
/*
 * One format, one file. A format either looks at the finished model (flame graph, folded,
 * speedscope) or wants every event as it passes (timeline); the table says which.
 */
#include <stdbool.h>
#include <stdio.h>

#include "lib/grammar.h"
#include "model/model.h"
#include "record/stream.h"

struct json;

struct export_ctx {
	FILE *out;
	const struct dict *dict;
	const struct facts *facts;
	struct model *model;
	const struct model *ahead; /* of formats that look ahead: all of the recording; NULL where
				      it cannot be read twice */
	uint64_t ahead_duration;   /* ns; 0 without ahead */
	int device; /* index into the model's devices; -1: all of them, where the format can */
	const char *name;   /* what to call it: the recording's file name */
	const char *moment; /* what the model's marked moment is called: "peak", "end", "oom", "12.8
			       s" */
	/* --device as given, NULL: all. For formats that stream, since the devices are not known
	 * before the end. */
	const char *device_name;
	uint64_t duration; /* ns; valid in end() */
	bool complete;	   /* the recording is whole; valid in end() */
};

struct export_format {
	const char *name;   /* "speedscope" */
	const char *suffix; /* ".speedscope.json": memtrace-<recording><suffix> */
	const char *help;   /* one line for --help: file, and who reads it */
	bool looks_ahead;   /* what it writes of an event depends on later ones */
	bool of_end; /* it shows the end unless --at says otherwise, and looks ahead to any other
			moment */
	const char *next; /* what to do with the file, for the message after it was written */
	/* For formats that want every event: called before the model has seen it, and once at the
	 * start. May be NULL. */
	int (*begin)(struct export_ctx *c, void **state);
	int (*event)(struct export_ctx *c, void *state, const struct event *e);
	/*
	 * Writes the document (what is left of it). 0 or -errno: -ENOENT the moment never came,
	 * -ENODATA there is nothing to show; errors of c->out are the caller's to check.
	 */
	int (*end)(struct export_ctx *c, void *state);
	/* Frees state, whether end() was called or not. NULL where there is no begin(). */
	void (*release)(void *state);
};

#define DECLARE_FORMAT(word) extern const struct export_format export_##word;
EXPORT_WORDS(DECLARE_FORMAT, DECLARE_FORMAT)
/* NULL-terminated. */
extern const struct export_format *const export_formats[];
const struct export_format *export__find(const char *name);

#endif
