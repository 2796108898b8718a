/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "model/model.h"

const char *const report_columns_csv[] = {
	"bytes",  "count",    "median", "cumulative",	"recording", "device",	 "file",
	"line",	  "function", "module", "module_class", "phase",     "category", "source",
	"thread", "stack",    "name",	"node_class",	"holder",    "scope",	 NULL
};

#define COLUMN_NAME(id, name, title, fields, groups) { name, COL_##id, fields },

/* Names for --columns: the column of text, and the fields of CSV with spaces between. */
static const struct {
	const char *name;
	int column;
	const char *fields;
} names[] = {
	REPORT_COLUMNS(COLUMN_NAME)
	/* other words for them */
	{ "bytes", COL_SIZE, "bytes" },
	{ "count", COL_BLOCKS, "count" },
	{ "category", COL_ROLE, "category" },
};

#define NAMES (sizeof(names) / sizeof(*names))

/* Returns the bit of a CSV field; 0: unknown name. */
static uint32_t field_bit(const char *name, size_t len)
{
	for (int i = 0; report_columns_csv[i]; i++)
		if (strlen(report_columns_csv[i]) == len &&
		    !strncmp(report_columns_csv[i], name, len))
			return UINT32_C(1) << i;
	return 0;
}

/* Returns the bits of the CSV fields in a list with spaces. */
static uint32_t field_bits(const char *list)
{
	uint32_t bits = 0;

	for (size_t len; *list; list += len + (list[len] != '\0')) {
		len = strcspn(list, " ");
		bits |= field_bit(list, len);
	}
	return bits;
}

bool report_columns__is_of(int column, unsigned groups)
{
#define COLUMN_GROUPS(id, name, title, fields, groups) groups,
	static const unsigned needed_groups[COL_NR] = { REPORT_COLUMNS(COLUMN_GROUPS) };

	return !needed_groups[column] || (needed_groups[column] & groups);
}

/* Returns the index in names, or NAMES. */
static size_t find_name(const char *word, size_t len)
{
	size_t i = 0;

	while (i < NAMES &&
	       (!len || strlen(names[i].name) != len || strncmp(names[i].name, word, len) != 0))
		i++;
	return i;
}

/* Returns the bits that a name stands for. csv: fields of CSV; otherwise the column of a table of
 * these groups. 0: the report has no such column. */
static uint32_t parse_name(const char *word, size_t len, bool csv, unsigned groups)
{
	size_t named = find_name(word, len);

	if (csv)
		return named < NAMES ? field_bits(names[named].fields) : field_bit(word, len);
	if (named == NAMES || !report_columns__is_of(names[named].column, groups))
		return 0;
	return UINT32_C(1) << names[named].column;
}

/* Writes the message for a word that is no column of this form, with the columns that are. */
static void say_names(char *why, size_t size, bool csv, unsigned groups, const char *word,
		      size_t len)
{
	bool known = find_name(word, len) < NAMES || field_bit(word, len);
	const char *name, *comma = "";
	char clean[128];
	size_t used;

	text__clean(clean, sizeof(clean), word, len);
	used = (size_t)snprintf(why, size, "%s '%s'; use",
				known ? "this report has no column" : "unknown column", clean);
	for (size_t i = 0; used < size; i++) {
		if (!csv && i == COL_NR) /* synonyms follow */
			break;
		name = csv ? report_columns_csv[i] : names[i].name;
		if (!name)
			break;
		if (!csv && (!*name || !report_columns__is_of(names[i].column, groups)))
			continue;
		used += (size_t)snprintf(why + used, size - used, "%s %s", comma, name);
		comma = ",";
	}
}

int report_columns__parse(const char *list, bool csv, unsigned groups, uint32_t *ret, char *why,
			  size_t size)
{
	uint32_t all = 0, bits;

	if (*list == '+') {
		all = csv ? CSV_DEFAULT : COLUMNS_DEFAULT;
		list++;
	}
	for (;;) {
		size_t len = strcspn(list, ",");

		bits = parse_name(list, len, csv, groups);
		if (!bits) {
			say_names(why, size, csv, groups, list, len);
			return -EINVAL;
		}
		all |= bits;
		list += len;
		if (!*list)
			break;
		list++;
	}
	*ret = all;
	return 0;
}
