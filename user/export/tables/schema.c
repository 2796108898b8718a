/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/tables/schema.h"

#define INT(key)                                                                                   \
	{                                                                                          \
		key, COLUMN_INT                                                                    \
	}
#define TIME(key)                                                                                  \
	{                                                                                          \
		key, COLUMN_TIME                                                                   \
	}
#define DOUBLE(key)                                                                                \
	{                                                                                          \
		key, COLUMN_DOUBLE                                                                 \
	}
#define BOOL(key)                                                                                  \
	{                                                                                          \
		key, COLUMN_BOOL                                                                   \
	}
#define TEXT(key)                                                                                  \
	{                                                                                          \
		key, COLUMN_TEXT                                                                   \
	}
/* The first columns of all tables. job and date are in the path of the file. */
#define COMMON TEXT("recording"), TEXT("host"), INT("rank"), INT("pid")
#define PLACE                                                                                      \
	TEXT("phase"), TEXT("module"), TEXT("module_class"), TEXT("file"), INT("line"),            \
		TEXT("function"), TEXT("source"), TEXT("category"), TEXT("name")

static const struct column events[] = {
	COMMON,		  INT("number"),    TIME("time"),    INT("elapsed_ns"),
	TEXT("event"),	  TEXT("device"),   INT("address"),  INT("size"),
	INT("requested"), INT("allocated"), INT("reserved"), INT("tid"),
	TEXT("thread"),	  INT("step"),	    PLACE,	     INT("lifetime_ns"),
	TEXT("call"),
};
static const struct column blocks[] = {
	COMMON,		 TEXT("device"),     INT("address"),
	INT("size"),	 INT("requested"),   INT("allocated_ns"),
	INT("freed_ns"), INT("lifetime_ns"), BOOL("before_attach"),
	PLACE,
};
static const struct column rows[] = {
	COMMON,	      TEXT("moment"), INT("moment_ns"), TEXT("device"),	       INT("bytes"),
	INT("count"), INT("median"),  INT("requested"), BOOL("before_attach"), TEXT("module_root"),
	PLACE,
};
static const struct column steps[] = {
	COMMON,
	TEXT("device"),
	INT("step"),
	INT("job_step"),
	INT("start_ns"),
	INT("end_ns"),
	INT("duration_ns"),
	TIME("end_time"),
	INT("peak_allocated"),
	INT("end_allocated"),
};
static const struct column devices[] = {
	COMMON,
	TEXT("device"),
	TEXT("gpu"),
	INT("capacity"),
	TIME("start"),
	INT("duration_ns"),
	INT("events"),
	INT("lost"),
	BOOL("complete"),
	INT("steps"),
	INT("step_time_ns"),
	TEXT("command"),
	TEXT("torch"),
	TEXT("python"),
	INT("allocated"),
	INT("reserved"),
	INT("peak_allocated"),
	INT("peak_reserved"),
	INT("peak_ns"),
	INT("peak_step"),
	TEXT("peak_phase"),
	TEXT("peak_is"),
	DOUBLE("fragmentation"),
	DOUBLE("avg_fragmentation"),
	INT("before_attach"),
	INT("drift"),
	INT("allocs"),
	INT("frees"),
	INT("ooms"),
	INT("total_allocated"),
	TEXT("growth"),
	DOUBLE("growth_bytes_per_step"),
	TEXT("growth_confidence"),
	TEXT("growth_file"),
	INT("growth_line"),
	TEXT("growth_text"),
	TEXT("reduced_detail"),
};

#define TABLE(word)                                                                                \
	{                                                                                          \
#word, word, sizeof(word) / sizeof(*(word))                                        \
	}

const struct table_schema table_schemas[TABLE_NR] = {
	[TABLE_EVENTS] = TABLE(events),	  [TABLE_BLOCKS] = TABLE(blocks),
	[TABLE_ROWS] = TABLE(rows),	  [TABLE_STEPS] = TABLE(steps),
	[TABLE_DEVICES] = TABLE(devices),
};
