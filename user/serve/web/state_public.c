/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/state_public.h"

#include "model/trend.h"
#include "serve/server/state.h"
#include "serve/server/summary.h"

#define VALUES 32 /* most values of a process's curve */
/* Growth below a limit in bytes, or below 1/MIN_GROWTH_PART of the last value, counts as none. The
 * limit for RSS is higher, because the C heap makes RSS uneven. */
#define MIN_GROWTH_OF_DEVICES (UINT64_C(1) << 20)
#define MIN_GROWTH_OF_HOST (UINT64_C(16) << 20)
#define MIN_GROWTH_PART 500

/* ---- growth of a process ---- */

/* Bytes that the process can still allocate on the fullest of its devices, with memory that PyTorch
 * has reserved and not allocated. UINT64_MAX: not known. */
static uint64_t find_least_room(const struct state_process *p)
{
	const unsigned needed = 1u << FIG_TOTAL | 1u << FIG_USED | 1u << FIG_RESERVED |
				1u << FIG_ALLOCATED;
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < p->n_devices; i++) {
		const struct state_device *d = &p->devices[i];
		const uint64_t *f = d->figures;
		uint64_t room;

		if ((d->has & needed) != needed || f[FIG_USED] > f[FIG_TOTAL])
			continue;
		room = f[FIG_TOTAL] - f[FIG_USED];
		if (f[FIG_RESERVED] > f[FIG_ALLOCATED])
			room += f[FIG_RESERVED] - f[FIG_ALLOCATED];
		least = room < least ? room : least;
	}
	return least;
}

/* At most VALUES of the lows, at equal distances, oldest first. */
static json_t *values_of(const struct lows *l)
{
	json_t *values = json_array();
	size_t step = (l->n + VALUES - 1) / VALUES;

	for (size_t i = l->n % (step ? step : 1); i < l->n; i += step)
		json_array_append_new(values, json_integer((json_int_t)l->v[i]));
	return values;
}

json_t *state_public__growth(const struct state_process *p)
{
	const struct lows *l = &p->lows;
	struct trend_opts opts = { .min_growth = p->lows_of_host ? MIN_GROWTH_OF_HOST
								 : MIN_GROWTH_OF_DEVICES };
	uint64_t room = p->lows_of_host ? UINT64_MAX : find_least_room(p);
	struct trend t;
	double per_second;
	json_t *o;

	if (!l->n)
		return NULL;
	if (l->v[l->n - 1] / MIN_GROWTH_PART > opts.min_growth)
		opts.min_growth = l->v[l->n - 1] / MIN_GROWTH_PART;
	trend__judge(l->v, l->n, &opts, &t);
	/* the slope is in bytes per low */
	per_second = l->to > l->from ? t.slope * (double)l->n / (l->to - l->from) : 0;
	o = json_pack("{s:s, s:s, s:f, s:o}", "of", p->lows_of_host ? "host" : "devices", "verdict",
		      trend__verdict(t.verdict), "seconds", l->to - l->from, "values",
		      values_of(l));
	if (!o || !trend__counts(&t, TREND_MEDIUM) || per_second <= 0)
		return o;
	json_object_set_new(o, "confidence", json_string(trend__confidence(t.confidence)));
	json_object_set_new(o, "bytes_per_minute", json_real(per_second * 60));
	if (room != UINT64_MAX)
		json_object_set_new(o, "full_s", json_real((double)room / per_second));
	return o;
}

/* ---- processes and traces ---- */

json_t *state_public__trace(const struct state_trace *t)
{
	json_t *ret = json_copy(t->facts);

	if (!t->summary)
		return ret;
	if (json_is_true(json_object_get(ret, "given")) ||
	    json_is_true(json_object_get(ret, "uploaded"))) {
		/* The recording was given on the command line, or a client sent it, so these facts
		 * come from its report. */
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
	json_t *o = state_public__process(p);
	json_t *growth = state_public__growth(p);
	json_t *devices = json_array();

	for (size_t i = 0; i < p->n_devices; i++) {
		const struct state_device *d = &p->devices[i];
		json_t *device = json_pack("{s:s}", "device", d->name);

		for (size_t k = 0; k < FIG_NR; k++)
			if (d->has & 1u << k)
				json_object_set_new(device, device_figures[k].json,
						    json_integer((json_int_t)d->figures[k]));
		json_array_append_new(devices, device);
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
