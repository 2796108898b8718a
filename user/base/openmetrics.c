/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/openmetrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Returns what the format adds to the name of a family of this type. */
static const char *suffix(const struct openmetrics_family *f)
{
	if (!strcmp(f->type, "counter"))
		return "_total";
	return !strcmp(f->type, "info") ? "_info" : "";
}

void openmetrics__name(FILE *out, const struct openmetrics_family *f)
{
	fprintf(out, "memtrace_%s%s", f->name, suffix(f));
}

void openmetrics__head(FILE *out, const struct openmetrics_family *f, bool openmetrics)
{
	const char *end = openmetrics ? "" : suffix(f);
	const char *type = !openmetrics && !strcmp(f->type, "info") ? "gauge" : f->type;

	fprintf(out, "# TYPE memtrace_%s%s %s\n", f->name, end, type);
	if (f->unit && openmetrics)
		fprintf(out, "# UNIT memtrace_%s %s\n", f->name, f->unit);
	fprintf(out, "# HELP memtrace_%s%s %s\n", f->name, end, f->help);
}

void openmetrics__label(FILE *out, const char *key, const char *value, bool more)
{
	size_t size = 4 * strlen(value) + 1;
	char *clean = malloc(size);

	fprintf(out, "%s%s=\"", more ? "," : "", key);
	if (clean) {
		text__clean(clean, size, value, strlen(value));
		for (const char *p = clean; *p; p++) {
			if (*p == '\\' || *p == '"')
				fputc('\\', out);
			fputc(*p, out);
		}
	}
	fputc('"', out);
	free(clean);
}

const struct device_figure_names device_figures[FIG_NR] = {
	[FIG_ALLOCATED] = { "allocated",
			    { "allocated_bytes", "gauge", "bytes", "Memory that tensors hold." },
			    "memtrace.allocated",
			    "By" },
	[FIG_RESERVED] = { "reserved",
			   { "reserved_bytes", "gauge", "bytes",
			     "Memory that PyTorch's allocator reserved on the device." },
			   "memtrace.reserved",
			   "By" },
	[FIG_PEAK_ALLOCATED] = { "peak_allocated",
				 { "peak_allocated_bytes", "gauge", "bytes",
				   "Peak of allocated memory, as the allocator counts it." },
				 "memtrace.peak_allocated",
				 "By" },
	[FIG_TOTAL] = { "total",
			{ "device_memory_bytes", "gauge", "bytes", "Total memory of the device." },
			"memtrace.device_memory",
			"By" },
	[FIG_USED] = { "used",
		       { "device_used_bytes", "gauge", "bytes",
			 "Device memory of the process, as the driver reports it." },
		       "memtrace.device_used",
		       "By" },
	[FIG_FREE] = { "free",
		       { "device_free_bytes", "gauge", "bytes",
			 "Free memory of the device, counting all processes." },
		       "memtrace.device_free",
		       "By" },
	[FIG_OOMS] = { "ooms",
		       { "ooms", "counter", NULL,
			 "Out-of-memory errors since the process started." },
		       "memtrace.ooms",
		       "{event}" },
	[FIG_RETRIES] = { "retries",
			  { "alloc_retries", "counter", NULL,
			    "Allocations retried after the allocator emptied its cache." },
			  "memtrace.alloc_retries",
			  "{retry}" },
};
