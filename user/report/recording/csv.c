/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/holders.h"
#include "model/fields.h"
#include "model/words.h"
#include "model/csv.h"
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

static void put_value(FILE *out, const char *name, const struct row *r, unsigned groups,
		      const struct other_fields *o)
{
	enum row_field f = row_field__of(name);
	struct row_value v;

	if (f < ROW_FIELDS) {
		v = row_field__get(f, r, groups);
		if (v.applies && v.known && !v.text)
			fprintf(out, "%" PRIu64, v.number);
		else
			csv__put(out, v.applies ? v.text : NULL);
	} else if (!strcmp(name, "recording")) {
		csv__put(out, o->recording);
	} else if (!strcmp(name, "device")) {
		csv__put(out, o->device);
	} else if (!strcmp(name, "stack")) {
		csv__put(out, o->stack);
	} else if (!strcmp(name, "holder")) {
		csv__put(out, o->holder);
	}
}

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
			const struct segment *s)
{
	char text[48];

	fprintf(out,
		"0x%" PRIx64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
		",%" PRIu64,
		s->addr, s->size, s->allocated, s->free, s->stuck, s->largest_gap, s->blocks);
	report_csv__field(out, doc->name);
	report_csv__field(out, device);
	snprintf(text, sizeof(text), "0x%" PRIx64, s->cuda_stream);
	report_csv__field(out, s->stream_known ? text : NULL);
	snprintf(text, sizeof(text), "%" PRIu64 ":%" PRIu64, s->pool[0], s->pool[1]);
	report_csv__field(out, s->pool_known ? text : NULL);
	report_csv__field(out, words__segment_kind(s));
	report_csv__field(out, s->expandable ? "true" : "false");
	report_csv__field(out, s->foreign ? "true" : "false");
	snprintf(text, sizeof(text), "%.9f", (double)s->time / 1e9);
	report_csv__field(out, s->seen ? text : NULL);
	report_csv__place(out, &s->taken);
	report_csv__place(out, s->npins ? &s->pins[0] : NULL);
	snprintf(text, sizeof(text), "%" PRIu64, s->npins ? s->pins[0].bytes : 0);
	report_csv__field(out, text);
	snprintf(text, sizeof(text), "%" PRIu64, s->npins + s->more_pins);
	report_csv__field(out, text);
	fputs("\r\n", out);
}

static int put_segments(FILE *out, const struct report_doc *doc)
{
	struct model_segments s;
	struct model_device d;
	int err = model__segments(doc->model, doc->device, ROWS_AT_MARK, doc->which_line, &s);

	if (err)
		return err == -EINVAL ? 0 : err; /* the CPU has no segments */
	model__device(doc->model, doc->device, &d);
	for (size_t i = 0; i < s.n && (!doc->top || i < doc->top); i++)
		put_segment(out, doc, d.name, &s.all[i]);
	model__free_segments(&s);
	return 0;
}

int report_csv__rows(FILE *out, const struct report_doc *doc)
{
	struct row_opts o = { .by = doc->by,
			      .split = doc->split,
			      .when = ROWS_AT_MARK,
			      .which_line = doc->which_line };
	struct model_device d;
	struct row *rows, sum = {
		.source = "filtered", .module = "", .module_class = "", .before_attach = true
	};
	struct holders h = { 0 };
	bool by_name = !doc->split && doc->by == BY_LINE; /* rows have names */
	size_t n, kept;
	int err;

	if (doc->device < 0)
		return 0;
	if (doc->segments)
		return put_segments(out, doc);
	report_select__apply(doc->select, &o);
	err = model__rows(doc->model, doc->device, &o, &rows, &n);
	if (err)
		return err;
	model__device(doc->model, doc->device, &d);
	kept = report_select__kept(rows, n, &sum.bytes, &sum.count);
	if (by_name)
		err = holders__of_rows(rows, kept, false, &h);
	for (size_t i = 0; i < kept && !err && (!doc->top || i < doc->top); i++)
		err = put_row(out, doc, d.name, &rows[i],
			      by_name && h.holder_of[i] != HOLDERS_NONE ? h.all[h.holder_of[i]].name
									: NULL);
	if (kept < n && !err && (doc->split || doc->by != BY_LAYER)) {
		sum.cumulative = rows[n - 1].cumulative;
		err = put_row(out, doc, d.name, &sum, NULL);
	}
	holders__free(&h);
	free(rows);
	return err;
}
