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
	uint8_t *shown; /* written stacks, by number */
	size_t nshown;
};

static void put_string(struct json *j, const char *key, const char *value)
{
	if (value)
		json__string(j, key, value);
}

static void put_uint(struct json *j, const char *key, bool known, uint64_t value)
{
	if (known)
		json__uint(j, key, value);
}

static void put_time(struct json *j, const char *key, uint64_t ns)
{
	json__seconds(j, key, ns, 9);
}

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

static void put_body(struct json *j, const struct event_row *t)
{
	const struct event *e = t->event;
	char address[24];

	json__uint(j, "number", t->number);
	put_time(j, "time", e->time);
	json__string(j, "event", t->kind);
	put_string(j, "device", t->device);
	snprintf(address, sizeof(address), "0x%" PRIx64, e->addr);
	put_string(j, "address", e->addr ? address : NULL);
	put_uint(j, "size", t->size, t->size);
	put_uint(j, "requested", t->requested, t->requested);
	put_uint(j, "allocated", t->has_totals, t->allocated);
	put_uint(j, "reserved", t->has_reserved, t->reserved);
	put_uint(j, "tid", t->tid, t->tid);
	put_string(j, "thread", t->thread);
	json__uint(j, "step", t->step);
	put_string(j, "phase", t->phase);
	put_string(j, "module", t->module);
	put_string(j, "module_class", t->module_class);
	put_string(j, "file", t->file);
	put_uint(j, "line", t->line, t->line);
	put_string(j, "function", t->function);
	put_string(j, "source", t->source);
	put_string(j, "category", t->category);
	put_string(j, "name", t->name);
	if (t->has_lifetime)
		put_time(j, "lifetime", t->lifetime);
	put_string(j, "call", t->how);
	put_uint(j, "stack", t->stack, t->stack);
}

static int put(struct export_ctx *c, void *state, const struct event_row *t)
{
	int err = show_stack(c, state, t->stack);
	struct json *j = err ? NULL : json__new(c->out, false);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	put_body(j, t);
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
	n->events.put = put;
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
