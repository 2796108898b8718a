/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/formats.h"

#include <stdio.h>
#include <string.h>

#include "export/export.h"

static const char *const speedscope = "speedscope", *const html = "html";

static const struct {
	const char *ending, *type;
} types[] = {
	{ ".mtr", "application/octet-stream" },
	{ ".json", "application/json" },
	{ ".html", "text/html; charset=utf-8" },
	{ ".csv", "text/csv; charset=utf-8" },
	{ ".ndjson", "application/x-ndjson" },
	{ ".om.txt", "application/openmetrics-text; version=1.0.0; charset=utf-8" },
	{ ".txt", "text/plain; charset=utf-8" },
};

const char *broker_formats__content_type(const char *file)
{
	size_t len = strlen(file);

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		size_t n = strlen(types[i].ending);

		if (len >= n && !strcmp(file + len - n, types[i].ending))
			return types[i].type;
	}
	return "application/octet-stream";
}

char *broker_formats__suffix(const struct export_format *f, char *buf, size_t size)
{
	size_t len = strlen(f->name);

	if (!strcmp(f->name, speedscope))
		snprintf(buf, size, "_flamegraph.json");
	else if (!strcmp(f->name, html))
		snprintf(buf, size, "_page.html");
	else if (!strcmp(f->suffix + 1, f->name)) /* csv and ndjson contain every event */
		snprintf(buf, size, "_events%s", f->suffix);
	else if (!strncmp(f->suffix + 1, f->name, len))
		snprintf(buf, size, "_%s", f->suffix + 1);
	else
		snprintf(buf, size, "_%s%s", f->name, f->suffix);
	return buf;
}

json_t *broker_formats__all(void)
{
	json_t *list = json_array();
	char buf[96];

	for (size_t i = 0; export_formats[i]; i++) {
		const struct export_format *f = export_formats[i];

		broker_formats__suffix(f, buf, sizeof(buf));
		json_array_append_new(
			list, json_pack("{s:s,s:s,s:s,s:s}", "name", f->name, "suffix", buf, "type",
					broker_formats__content_type(buf), "help", f->help));
	}
	return list;
}
