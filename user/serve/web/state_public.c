/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/state_public.h"

#include "serve/server/state.h"
#include "serve/server/summary.h"
#include "serve/web/climb.h"

json_t *state_public__trace(const struct state_trace *t)
{
	json_t *ret = json_copy(t->facts);

	if (!t->summary)
		return ret;
	if (json_is_true(json_object_get(ret, "given"))) {
		/* The recording was given on the command line, so these facts come from its
		 * report. */
		json_object_set(ret, "events", json_object_get(t->summary, "total_events"));
		json_object_set(ret, "lost", json_object_get(t->summary, "lost"));
		json_object_set(ret, "steps", json_object_get(t->summary, "steps"));
		json_object_set_new(ret, "seconds",
				    json_real(json_number_value(json_object_get(
						      t->summary, "tracing_time_ms")) /
					      1000));
	}
	json_object_set_new(ret, "summary", summary__short(t->summary));
	return ret;
}

json_t *state_public__process(const struct state_process *p)
{
	json_t *o = json_pack("{s:i, s:f, s:s, s:s}", "pid", (int)p->pid, "started", p->started,
			      "target", p->target, "name", p->name);

	if (p->rank >= 0)
		json_object_set_new(o, "rank", json_integer(p->rank));
	if (*p->container)
		json_object_set_new(o, "container", json_string(p->container));
	if (*p->pod)
		json_object_set_new(o, "pod", json_string(p->pod));
	return o;
}

json_t *state_public__process_now(const struct state_process *p)
{
	json_t *o = state_public__process(p), *devices = json_array(),
	       *growth = climb__of_process(p);

	for (size_t i = 0; i < p->n_devices; i++) {
		const struct state_device *d = &p->devices[i];
		json_t *one = json_pack("{s:s}", "device", d->name);

		for (size_t k = 0; k < FIG_NR; k++)
			if (d->has & 1u << k)
				json_object_set_new(one, device_figures[k].json,
						    json_integer((json_int_t)d->figures[k]));
		json_array_append_new(devices, one);
	}
	if (p->time)
		json_object_set_new(o, "time", json_real(p->time));
	if (p->has_rss)
		json_object_set_new(o, "rss", json_integer((json_int_t)p->rss));
	if (*p->why)
		json_object_set_new(o, "why", json_string(p->why));
	json_object_set_new(o, "devices", devices);
	if (growth)
		json_object_set_new(o, "growth", growth);
	return o;
}
