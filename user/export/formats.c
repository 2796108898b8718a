/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <string.h>

#include "export/export.h"

const struct export_format *const export_formats[] = {
	&export_html,
	&export_flamegraph,
	&export_folded,
	&export_speedscope,
	&export_timeline,
	&export_perfetto,
	&export_pprof,
	&export_snapshot,
	&export_tensorboard,
	&export_openmetrics,
	&export_csv,
	&export_ndjson,
	NULL,
};

const struct export_format *export__find(const char *name)
{
	for (size_t i = 0; export_formats[i]; i++)
		if (!strcmp(export_formats[i]->name, name))
			return export_formats[i];
	return NULL;
}
