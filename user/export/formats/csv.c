/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Events as CSV (RFC 4180) with a header line. Unknown values are empty. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "export/export.h"
#include "export/formats/events.h"
#include "model/words.h"

/* Writes the value of a field; nothing if it is unknown. */
static void put_field(FILE *out, const struct event_field *f)
{
	if (!f->known)
		return;
	switch (f->type) {
	case FIELD_TEXT:
		csv__put(out, f->text);
		break;
	case FIELD_NUMBER:
		fprintf(out, "%" PRIu64, f->number);
		break;
	case FIELD_NS:
		fprintf(out, "%" PRIu64 ".%09" PRIu64, f->number / 1000000000,
			f->number % 1000000000);
		break;
	case FIELD_ADDRESS:
		fprintf(out, "0x%" PRIx64, f->number);
		break;
	}
}

/* For events.put: writes the row of an event. */
static int put_event(struct export_ctx *c, void *state, const struct event_row *t)
{
	struct event_field fields[EVENT_FIELDS];

	(void)state;
	events__fields(t, fields);
	for (size_t i = 0; i < EVENT_FIELDS; i++) {
		if (i)
			fputc(',', c->out);
		put_field(c->out, &fields[i]);
	}
	fputs("\r\n", c->out);
	return 0;
}

/* Writes the header line and creates the state. Returns 0 or -ENOMEM. */
static int csv_begin(struct export_ctx *c, void **state)
{
	struct event_field fields[EVENT_FIELDS];
	struct events *ev = calloc(1, sizeof(*ev));

	if (!ev)
		return -ENOMEM;
	ev->put = put_event;
	/* An empty event suffices for the names of the fields. */
	events__fields(&(struct event_row){ .event = &(struct event){ 0 } }, fields);
	for (size_t i = 0; i < EVENT_FIELDS; i++)
		fprintf(c->out, "%s%s", i ? "," : "", fields[i].name);
	fputs("\r\n", c->out);
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
