/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A recording as tables for engines: events, blocks, rows, steps and devices, a Parquet file each.
 * docs/reference/tables.md has the columns. */
#include <stdbool.h>

#include "export/export.h"

/* Writes TABLE/job=JOB/date=DATE/NAME.parquet in the folder of the export; for export__run(). */
extern const struct export_format tables_parquet;
