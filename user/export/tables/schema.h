/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
#include "export/tables/parquet.h"

enum table { TABLE_EVENTS, TABLE_BLOCKS, TABLE_ROWS, TABLE_STEPS, TABLE_DEVICES, TABLE_NR };

struct table_schema {
	const char *name;
	const struct column *columns; /* the first TABLE_COMMON are the same in all tables */
	size_t n;
};

#define TABLE_COMMON 4

extern const struct table_schema table_schemas[TABLE_NR];
