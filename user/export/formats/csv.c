/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Events as CSV (RFC 4180) with a header line. Unknown values are empty. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "export/export.h"
#include "export/formats/events.h"
#include "model/csv.h"

static void field(FILE *out, const char *s)
{
	fputc(',', out);
	csv__put(out, s);
}

static void number(FILE *out, bool known, uint64_t v)
{
	if (known)
		fprintf(out, ",%" PRIu64, v);
	else
		fputc(',', out);
}

static void seconds(FILE *out, uint64_t ns)
{
	fprintf(out, "%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);
}

static int put(struct export_ctx *c, void *state, const struct event_row *t)
{
	const struct event *e = t->event;
	FILE *out = c->out;

	(void)state;
	fprintf(out, "%" PRIu64 ",", t->number);
	seconds(out, e->time);
	field(out, t->kind);
	field(out, t->device);
	if (e->addr)
		fprintf(out, ",0x%" PRIx64, e->addr);
	else
		fputc(',', out);
	number(out, t->size, t->size);
	number(out, t->requested, t->requested);
	number(out, t->has_totals, t->allocated);
	number(out, t->has_reserved, t->reserved);
	number(out, t->tid, t->tid);
	field(out, t->thread);
	number(out, true, t->step);
	field(out, t->phase);
	field(out, t->module);
	field(out, t->module_class);
	field(out, t->file);
	number(out, t->line, t->line);
	field(out, t->function);
	field(out, t->source);
	field(out, t->category);
	field(out, t->name);
	fputc(',', out);
	if (t->has_lifetime)
		seconds(out, t->lifetime);
	field(out, t->how);
	fputs("\r\n", out);
	return 0;
}

static int csv_begin(struct export_ctx *c, void **state)
{
	struct events *ev = calloc(1, sizeof(*ev));

	if (!ev)
		return -ENOMEM;
	ev->put = put;
	fputs("number,time,event,device,address,size,requested,allocated,reserved,tid,thread,step,"
	      "phase,module,module_class,file,"
	      "line,function,source,category,name,lifetime,call\r\n",
	      c->out);
	*state = ev;
	return 0;
}

static int csv_event(struct export_ctx *c, void *state, const struct event *e)
{
	return events__pass(c, state, NULL, e);
}

static int csv_end(struct export_ctx *c, void *state)
{
	return events__end(c, state, NULL);
}

const struct export_format export_csv = {
	.name = "csv",
	.suffix = ".csv",
	.whole = true,
	.looks_ahead = true,
	.help = "every event as one CSV row, for pandas or a spreadsheet",
	.next = "pandas.read_csv() reads it, and so does any spreadsheet",
	.begin = csv_begin,
	.event = csv_event,
	.end = csv_end,
	.release = free,
};
