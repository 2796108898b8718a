/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Fields of all outputs, by name: those of a row of a report (CSV, JSON, tables and the page), and
 * the numbers of a device (JSON of report and of the live view, OpenMetrics). A field has the same
 * name and value in each.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/openmetrics.h"
#include "model/model.h"

/* ---- rows ---- */

/*
 * Fields of a row, in the order of JSON. A new field needs a line here, and a value in struct row.
 *
 *   ROW_*, name, type, member of struct row, groups, optional
 * groups: rows that describe one of these properties have the field; 0: all. optional: JSON leaves
 * the field out if it is 0 or NULL.
 */
#define ROW_FIELD_LIST(FIELD)                                                                      \
	FIELD(BYTES, "bytes", U64, bytes, 0, false)                                                \
	FIELD(COUNT, "count", U64, count, 0, false)                                                \
	FIELD(MEDIAN, "median", U64, median, 0, false)                                             \
	FIELD(CUMULATIVE, "cumulative", U64, cumulative, 0, false)                                 \
	FIELD(REQUESTED, "requested", U64, requested, 0, true)                                     \
	FIELD(FILE, "file", TEXT, file, OF_LINE, false)                                            \
	FIELD(LINE, "line", U32, line, OF_LINE, false)                                             \
	FIELD(FUNCTION, "function", TEXT, func, OF_LINE, false)                                    \
	FIELD(MODULE, "module", TEXT, module, OF_MODULE, false)                                    \
	FIELD(MODULE_CLASS, "module_class", TEXT, module_class, OF_MODULE, false)                  \
	FIELD(MODULE_ROOT, "module_root", TEXT, module_root, OF_MODULE, false)                     \
	FIELD(PHASE, "phase", PHASE, phase, OF_PHASE, true)                                        \
	FIELD(THREAD, "thread", TEXT, thread, 0, true)                                             \
	FIELD(TID, "tid", U32, tid, 0, true)                                                       \
	FIELD(SCOPE, "scope", TEXT, scope, OF_SCOPE, false)                                        \
	FIELD(CATEGORY, "category", TEXT, category, 0, false)                                      \
	FIELD(NAME, "name", TEXT, name, 0, true)                                                   \
	FIELD(SOURCE, "source", TEXT, source, 0, false)                                            \
	FIELD(NODE_CLASS, "node_class", TEXT, node_class, OF_LINE, true)

#define ROW_FIELD_ID(id, name, type, member, groups, optional) ROW_##id,

/* ROW_FIELDS: number of fields; row_field__of() returns it for "no such field". */
enum row_field { ROW_FIELD_LIST(ROW_FIELD_ID) ROW_FIELDS };

struct row_value {
	bool applies;	  /* rows that are grouped this way have the field */
	bool known;	  /* false: null, or left out where the field is optional */
	bool optional;	  /* left out of JSON unless known */
	const char *text; /* borrowed from the row; NULL: number has the value */
	uint64_t number;
};

const char *row_field__name(enum row_field f);
/* Returns the field with this name, or ROW_FIELDS if there is none. */
enum row_field row_field__of(const char *name);
/* properties: what rows describe, as bits 1 << BY_*, from words__row_properties(). */
struct row_value row_field__get(enum row_field f, const struct row *r, unsigned properties);

/* ---- devices ---- */

enum device_value_flag {
	VALUE_OF_TOTALS = 1, /* known if the allocator carries totals */
	VALUE_OF_BEFORE = 2, /* known if memory from before attach is known */
	VALUE_OF_MOMENT = 4, /* known if the device reached the moment in model_opts.at */
	VALUE_LEFT_OUT = 8, /* an unknown value is left out of JSON; without this flag it is null */
	VALUE_FROM_ONE = 16, /* the member counts from 0, the value from 1 */
};

struct device_value {
	const char *key;		  /* JSON key; NULL: the value is not in JSON */
	size_t offset;			  /* offset of a uint64_t in struct model_device */
	unsigned flags;			  /* enum device_value_flag */
	struct openmetrics_family family; /* family.name NULL: the value is not in OpenMetrics */
};

/* In the order of the outputs. */
extern const struct device_value device_values[];
extern const size_t device_values_n;

/* Sets *ret. Returns false if the device's value is not known. */
bool device_value__get(const struct device_value *v, const struct model_device *d, uint64_t *ret);
