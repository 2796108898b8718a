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

/* In the order of JSON. */
enum row_field {
	ROW_BYTES,
	ROW_COUNT,
	ROW_MEDIAN,
	ROW_CUMULATIVE,
	ROW_REQUESTED,
	ROW_FILE,
	ROW_LINE,
	ROW_FUNCTION,
	ROW_MODULE,
	ROW_MODULE_CLASS,
	ROW_MODULE_ROOT,
	ROW_PHASE,
	ROW_THREAD,
	ROW_TID,
	ROW_CATEGORY,
	ROW_NAME,
	ROW_SOURCE,
	ROW_NODE_CLASS,
	ROW_FIELDS /* number of fields; row_field__of() returns it for "no such field" */
};

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
