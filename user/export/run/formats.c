/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <string.h>

#include "export/export.h"

#define ADDRESS(word) &export_##word,
const struct export_format *const export_formats[] = { EXPORT_WORDS(ADDRESS, ADDRESS) NULL };

const struct export_format *export__find(const char *name)
{
	for (size_t i = 0; export_formats[i]; i++)
		if (!strcmp(export_formats[i]->name, name))
			return export_formats[i];
	return NULL;
}
