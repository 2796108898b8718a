/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/columns.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/text.h"

const char *const report_columns_csv[] = { "bytes",	"count",      "median",	      "cumulative",
					   "recording", "device",     "file",	      "line",
					   "function",	"module",     "module_class", "phase",
					   "category",	"source",     "thread",	      "stack",
					   "name",	"node_class", "holder",	      NULL };

/* A name of the list: its column of text, and its fields of CSV with spaces between. */
static const struct {
	const char *name;
	int column; /* -1: only in CSV */
	const char *fields;
} names[] = {
	{ "size", COL_SIZE, "bytes" },
	{ "percent", COL_PERCENT, "bytes" },
	{ "blocks", COL_BLOCKS, "count" },
	{ "cumulative", COL_CUMULATIVE, "cumulative" },
	{ "median", COL_MEDIAN, "median" },
	{ "requested", COL_REQUESTED, "" },
	{ "role", COL_ROLE, "category" },
	{ "phase", COL_PHASE, "phase" },
	{ "thread", COL_THREAD, "thread" },
	{ "module", COL_MODULE, "module module_class" },
	{ "location", COL_WHERE, "file line function name holder" },
	{ "bytes", COL_SIZE, "bytes" },
	{ "count", COL_BLOCKS, "count" },
	{ "category", COL_ROLE, "category" },
};

#define NAMES (sizeof(names) / sizeof(*names))

/* Returns the bit of a CSV field; 0: there is none. */
static uint32_t field(const char *name, size_t len)
{
	for (int i = 0; report_columns_csv[i]; i++)
		if (strlen(report_columns_csv[i]) == len &&
		    !strncmp(report_columns_csv[i], name, len))
			return UINT32_C(1) << i;
	return 0;
}

static uint32_t fields(const char *list)
{
	uint32_t bits = 0;

	for (size_t len; *list; list += len + (list[len] != '\0')) {
		len = strcspn(list, " ");
		bits |= field(list, len);
	}
	return bits;
}

static int parse_name(const char *s, size_t len, uint32_t *text, uint32_t *csv)
{
	for (size_t i = 0; i < NAMES; i++)
		if (strlen(names[i].name) == len && !strncmp(names[i].name, s, len)) {
			*text |= 1U << names[i].column;
			*csv |= fields(names[i].fields);
			return 0;
		}
	*csv |= field(s, len);
	return field(s, len) ? 0 : -EINVAL;
}

static void say_names(char *why, size_t size, const char *word, size_t len)
{
	char clean[128];
	size_t at;

	text__clean(clean, sizeof(clean), word, len);
	at = (size_t)snprintf(why, size, "unknown column '%s'; use", clean);
	for (size_t i = 0; names[i].column != COL_WHERE && at < size; i++)
		at += (size_t)snprintf(why + at, size - at, " %s,", names[i].name);
	if (at < size)
		snprintf(why + at, size - at, " location, or a field of CSV");
}

int report_columns__parse(const char *list, uint32_t *text, uint32_t *csv, char *why, size_t size)
{
	uint32_t t = 0, c = 0;

	if (*list == '+') {
		t = COLUMNS_DEFAULT;
		c = CSV_DEFAULT;
		list++;
	}
	for (;;) {
		size_t len = strcspn(list, ",");

		if (parse_name(list, len, &t, &c)) {
			say_names(why, size, list, len);
			return -EINVAL;
		}
		list += len;
		if (!*list)
			break;
		list++;
	}
	*text = t;
	*csv = c;
	return 0;
}
