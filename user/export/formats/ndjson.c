/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Events as JSON objects, one per line. A stack is a separate line before its first use; events
 * refer to its number. Unknown values are left out. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "export/export.h"
#include "export/formats/events.h"
#include "record/dict.h"

struct ndjson {
	struct events events;
	uint8_t *shown; /* by stack number: 1 if the stack's line is written */
	size_t nshown;
};

/* Writes the line of a stack. Returns 0 or -ENOMEM. */
static int put_frames(struct export_ctx *c, uint32_t stack)
{
	struct dict_stack s = dict__get_stack(c->dict, stack);
	struct json *j = json__new(c->out, false);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__string(j, "event", "stack");
	json__uint(j, "stack", stack);
	json__open_array(j, "frames"); /* innermost first */
	for (uint32_t i = 0; i < s.n; i++) {
		struct dict_loc l = dict__get_loc(c->dict, s.frames[i].loc);
		struct dict_module m = dict__get_module(c->dict, s.frames[i].module);

		json__open_object(j, NULL);
		json__string(j, "function", dict__str(c->dict, l.func));
		json__string(j, "file", dict__str(c->dict, l.file));
		json__uint(j, "line", l.line);
		if (s.frames[i].module)
			json__string(j, "module", dict__str(c->dict, m.name));
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
	json__free(j);
	return 0;
}

/* Writes the line of a stack before its first use. Returns 0 or -ENOMEM. */
static int show_stack(struct export_ctx *c, struct ndjson *n, uint32_t stack)
{
	if (!stack || stack >= dict__counts(c->dict).stacks)
		return 0;
	if (array__grow_zero(&n->shown, &n->nshown, (size_t)stack + 1, 1))
		return -ENOMEM;
	if (n->shown[stack])
		return 0;
	n->shown[stack] = 1;
	return put_frames(c, stack);
}

/* Writes a field as a member; nothing if it is unknown. */
static void put_field(struct json *j, const struct event_field *f)
{
	char address[24];

	if (!f->known)
		return;
	switch (f->type) {
	case FIELD_TEXT:
		json__string(j, f->name, f->text);
		break;
	case FIELD_NUMBER:
		json__uint(j, f->name, f->number);
		break;
	case FIELD_NS:
		json__seconds(j, f->name, f->number, /*decimals=*/9);
		break;
	case FIELD_ADDRESS:
		snprintf(address, sizeof(address), "0x%" PRIx64, f->number);
		json__string(j, f->name, address);
		break;
	}
}

/* For events.put: writes the line of an event. Returns 0 or -ENOMEM. */
static int put_event(struct export_ctx *c, void *state, const struct event_row *t)
{
	struct event_field fields[EVENT_FIELDS];
	int err = show_stack(c, state, t->stack);
	struct json *j = err ? NULL : json__new(c->out, false);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	events__fields(t, fields);
	for (size_t i = 0; i < EVENT_FIELDS; i++)
		put_field(j, &fields[i]);
	if (t->stack)
		json__uint(j, "stack", t->stack);
	json__close_object(j);
	json__free(j);
	return 0;
}

static int ndjson_begin(struct export_ctx *c, void **state)
{
	struct ndjson *n = calloc(1, sizeof(*n));

	(void)c;
	if (!n)
		return -ENOMEM;
	n->events.put = put_event;
	*state = n;
	return 0;
}

static int ndjson_event(struct export_ctx *c, void *state, const struct event *e)
{
	return events__pass(c, &((struct ndjson *)state)->events, state, e);
}

static int ndjson_end(struct export_ctx *c, void *state)
{
	return events__end(c, &((struct ndjson *)state)->events, state);
}

static void ndjson_release(void *state)
{
	struct ndjson *n = state;

	if (!n)
		return;
	free(n->shown);
	free(n);
}

const struct export_format export_ndjson = {
	.name = "ndjson",
	.suffix = ".ndjson",
	.whole = true,
	.looks_ahead = true,
	.help = "every event with its stack, as one JSON object a line",
	.next = "jq and pandas.read_json(lines=True) read it",
	.begin = ndjson_begin,
	.event = ndjson_event,
	.end = ndjson_end,
	.release = ndjson_release,
};
