/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Fields of a row of a report. CSV, JSON and tables write them from here, by name: a field has the
 * same name and value in each.
 */
#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"

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
	ROW_FIELDS /* number of fields; as a field: none */
};

struct row_value {
	bool is_of;	  /* rows of these groups have the field */
	bool known;	  /* false: null, or left out where the field is optional */
	bool optional;	  /* left out of JSON unless known */
	const char *text; /* borrowed from the row; NULL: the value is the number */
	uint64_t number;
};

const char *row_field__name(enum row_field f);
/* ROW_FIELDS: no field has this name. */
enum row_field row_field__of(const char *name);
/* of: the properties that rows describe, from words__speaks_of(). */
struct row_value row_field__get(enum row_field f, const struct row *r, unsigned of);
