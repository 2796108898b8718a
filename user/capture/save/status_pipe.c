/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/status_pipe.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/recording.h"
#include "capture/save/output_file.h"
#include "capture/session.h"
#include "record/mtr.h"

#define EVERY UINT64_C(500000000) /* ns between two lines */

static json_t *parts_of(const struct host_sheet *s)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		if (host_part__adds_up(i) && s->part[i].known)
			json_object_set_new(o, host_part__name(i),
					    json_integer((json_int_t)s->part[i].bytes));
	return o;
}

/* Lines are shorter than PIPE_BUF: the pipe takes a whole line or none. */
void status_pipe__tell(struct recording *r, const struct output *output, const char *state,
		       const char *reason)
{
	const struct session *s = output ? output->session : NULL;
	bool attached = s && session__now(s); /* attached now or before */
	const struct mtr_writer *w = output && r->kind == OUTPUT_FILE
					     ? ((const struct output_file *)output)->writer
					     : NULL;
	json_t *o = r->args.tell
			    ? json_pack("{s:s,s:i}", "state", state, "pid", (int)r->loop.args.pid)
			    : NULL;
	char *text;

	if (o && attached) {
		json_object_set_new(o, "seconds", json_real((double)session__now(s) / 1e9));
		json_object_set_new(o, "events", json_integer((json_int_t)session__events(s)));
		json_object_set_new(o, "lost", json_integer((json_int_t)session__lost(s)));
		json_object_set_new(o, "steps", json_integer((json_int_t)session__steps(s)));
	}
	if (o && attached && w) {
		json_object_set_new(o, "bytes", json_integer((json_int_t)mtr_writer__bytes(w)));
		json_object_set_new(o, "dropped", json_integer((json_int_t)mtr_writer__dropped(w)));
	}
	if (o && r->has_ledger)
		json_object_set_new(o, "host", parts_of(&r->ledger));
	if (o && reason)
		json_object_set_new(o, "reason", json_string(reason));
	text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	if (text) {
		size_t len = strlen(text);

		text[len] = '\n'; /* replaces the NUL */
		if (write(r->args.tell, text, len + 1) < 0 && errno != EAGAIN && errno != EINTR)
			r->args.tell = 0; /* the reader is gone */
	}
	free(text);
	json_decref(o);
}

void status_pipe__event(struct recording *r, const struct event *e)
{
	if (!r->args.tell || e->kind != EVENT_HOST || !host_sheet__take(&r->reading, e))
		return;
	r->ledger = r->reading;
	r->has_ledger = true;
	r->reading = (struct host_sheet){ 0 };
}

void status_pipe__drained(struct recording *r, const struct output *o)
{
	uint64_t now = r->args.tell ? session__now(o->session) : 0;

	if (!r->args.tell || now - r->told < EVERY)
		return;
	r->told = now;
	status_pipe__tell(r, o, "capturing", NULL);
}
