/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/holders.h"
#include "model/fields.h"
#include "model/words.h"
#include "report/files.h"
#include "report/doc.h"
#include "report/filter.h"

void report_csv__field(FILE *out, const char *s)
{
	fputc(',', out);
	csv__put(out, s);
}

void report_csv__header(FILE *out, bool segments, uint32_t fields)
{
	bool first = true;

	if (segments) {
		fputs("address,size,allocated,free,stuck,largest_gap,blocks,recording,device,"
		      "stream,pool,kind,expandable,"
		      "foreign,taken_at,taken_file,taken_line,taken_function,held_file,held_line,"
		      "held_function,held_bytes,held_by\r\n",
		      out);
		return;
	}
	for (int i = 0; report_columns_csv[i]; i++) {
		if (fields && !(fields & UINT32_C(1) << i))
			continue;
		fprintf(out, "%s%s", first ? "" : ",", report_columns_csv[i]);
		first = false;
	}
	fputs("\r\n", out);
}

/* Returns the frames from the root on, with ";" between them, as in folded stacks; for free(). NULL
 * on ENOMEM. */
static char *stack_text(const struct dict *d, const struct row *r)
{
	struct dict_stack s = dict__get_stack(d, r->stack);
	char frame[REPORT_TEXT], *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	for (uint32_t i = s.n; i-- > 0;)
		fprintf(f, "%s%s", words__frame(frame, d, s.frames[i]), i ? ";" : "");
	if (row__has_leaf(r))
		fprintf(f, "%s%s", s.n ? ";" : "", r->node_class);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

int report_csv__stack(FILE *out, const struct dict *d, const struct row *r)
{
	char *text = stack_text(d, r);

	if (!text)
		return -ENOMEM;
	report_csv__field(out, text);
	free(text);
	return 0;
}

/* Fields of a CSV line that struct row does not have. NULL: the field is empty. */
struct other_fields {
	const char *recording, *device, *stack, *holder; /* holder: as in struct holder */
};

/* Writes the row's field of this name; a value that is not known or does not apply is empty.
 * groups: bits 1 << BY_*, the properties that the row has. */
static void put_value(FILE *out, const char *name, const struct row *r, unsigned groups,
		      const struct other_fields *other)
{
	enum row_field field = row_field__of(name);
	struct row_value value;

	if (field < ROW_FIELDS) {
		value = row_field__get(field, r, groups);
		if (value.applies && value.known && !value.text)
			fprintf(out, "%" PRIu64, value.number);
		else
			csv__put(out, value.applies ? value.text : NULL);
	} else if (!strcmp(name, "recording")) {
		csv__put(out, other->recording);
	} else if (!strcmp(name, "device")) {
		csv__put(out, other->device);
	} else if (!strcmp(name, "stack")) {
		csv__put(out, other->stack);
	} else if (!strcmp(name, "holder")) {
		csv__put(out, other->holder);
	}
}

/* Writes a line of the chosen fields. holder: NULL: none. Returns 0 or -ENOMEM. */
static int put_row(FILE *out, const struct report_doc *doc, const char *device, const struct row *r,
		   const char *holder)
{
	unsigned groups = words__row_properties(doc->by, doc->split);
	bool stacks = (groups & 1U << BY_STACK) && !r->before_attach, first = true;
	char *stack = stacks ? stack_text(doc->dict, r) : NULL;
	const struct other_fields other = { doc->name, device, stack, holder };

	if (stacks && !stack)
		return -ENOMEM;
	for (unsigned n = 0; report_columns_csv[n]; n++) {
		if (doc->fields && !(doc->fields & UINT32_C(1) << n))
			continue;
		if (!first)
			fputc(',', out);
		put_value(out, report_columns_csv[n], r, groups, &other);
		first = false;
	}
	fputs("\r\n", out);
	free(stack);
	return 0;
}

void report_csv__place(FILE *out, const struct row *r)
{
	char line[16] = "";

	if (r && r->file && r->line)
		snprintf(line, sizeof(line), "%u", r->line);
	report_csv__field(out, r ? r->file : NULL);
	report_csv__field(out, line);
	report_csv__field(out, r ? r->func : NULL);
}

static void put_segment(FILE *out, const struct report_doc *doc, const char *device,
			const struct segment *segment)
{
	char text[48];

	fprintf(out,
		"0x%" PRIx64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
		",%" PRIu64,
		segment->addr, segment->size, segment->allocated, segment->free, segment->stuck,
		segment->largest_gap, segment->blocks);
	report_csv__field(out, doc->name);
	report_csv__field(out, device);
	snprintf(text, sizeof(text), "0x%" PRIx64, segment->cuda_stream);
	report_csv__field(out, segment->stream_known ? text : NULL);
	snprintf(text, sizeof(text), "%" PRIu64 ":%" PRIu64, segment->pool[0], segment->pool[1]);
	report_csv__field(out, segment->pool_known ? text : NULL);
	report_csv__field(out, words__segment_kind(segment));
	report_csv__field(out, segment->expandable ? "true" : "false");
	report_csv__field(out, segment->foreign ? "true" : "false");
	snprintf(text, sizeof(text), "%.9f", (double)segment->time / 1e9);
	report_csv__field(out, segment->seen ? text : NULL);
	report_csv__place(out, &segment->taken);
	report_csv__place(out, segment->npins ? &segment->pins[0] : NULL);
	snprintf(text, sizeof(text), "%" PRIu64, segment->npins ? segment->pins[0].bytes : 0);
	report_csv__field(out, text);
	snprintf(text, sizeof(text), "%" PRIu64, segment->npins + segment->more_pins);
	report_csv__field(out, text);
	fputs("\r\n", out);
}

/* Writes the rows of --by segment; none for the CPU. Returns 0 or -ENOMEM. */
static int put_segments(FILE *out, const struct report_doc *doc)
{
	struct model_segments segments;
	struct model_device d;
	int err = model__segments(doc->model, doc->device, ROWS_AT_MARK, doc->which_line,
				  &segments);

	if (err)
		return err == -EINVAL ? 0 : err; /* the CPU has no segments */
	model__device(doc->model, doc->device, &d);
	for (size_t i = 0; i < segments.n && (!doc->top || i < doc->top); i++)
		put_segment(out, doc, d.name, &segments.all[i]);
	model__free_segments(&segments);
	return 0;
}

int report_csv__rows(FILE *out, const struct report_doc *doc)
{
	struct row_opts opts = { .by = doc->by,
				 .split = doc->split,
				 .when = ROWS_AT_MARK,
				 .which_line = doc->which_line };
	struct model_device device;
	struct row *rows, sum = {
		.source = "filtered", .module = "", .module_class = "", .before_attach = true
	};
	struct holders holders = { 0 };
	bool by_name = !doc->split && doc->by == BY_LINE; /* rows have names */
	size_t n, kept;
	int err;

	if (doc->device < 0)
		return 0;
	if (doc->segments)
		return put_segments(out, doc);
	report_select__apply(doc->select, &opts);
	err = model__rows(doc->model, doc->device, &opts, &rows, &n);
	if (err)
		return err;
	model__device(doc->model, doc->device, &device);
	kept = report_select__kept(rows, n, &sum.bytes, &sum.count);
	if (by_name)
		err = holders__of_rows(rows, kept, /*by_role=*/false, &holders);
	for (size_t i = 0; i < kept && !err && (!doc->top || i < doc->top); i++)
		err = put_row(out, doc, device.name, &rows[i],
			      by_name && holders.holder_of[i] != HOLDERS_NONE
				      ? holders.all[holders.holder_of[i]].name
				      : NULL);
	if (kept < n && !err && (doc->split || doc->by != BY_LAYER)) {
		sum.cumulative = rows[n - 1].cumulative;
		err = put_row(out, doc, device.name, &sum, /*holder=*/NULL);
	}
	holders__free(&holders);
	free(rows);
	return err;
}
