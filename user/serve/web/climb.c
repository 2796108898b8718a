/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/web/climb.h"

#include "model/trend.h"
#include "serve/server/state.h"

#define VALUES 32 /* most values of the curve */
/* Less growth is flat: bytes, and the part of the last value. The C heap makes resident memory
 * uneven. */
#define LEAST_OF_DEVICES (UINT64_C(1) << 20)
#define LEAST_OF_HOST (UINT64_C(16) << 20)
#define LEAST_PART 500

/* Bytes until the fullest device is full. UINT64_MAX: not known. */
static uint64_t room_of(const struct state_process *p)
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

static json_t *curve_of(const struct lows *l)
{
	json_t *values = json_array();
	size_t each = (l->n + VALUES - 1) / VALUES;

	for (size_t i = l->n % (each ? each : 1); i < l->n; i += each)
		json_array_append_new(values, json_integer((json_int_t)l->v[i]));
	return values;
}

json_t *climb__of_process(const struct state_process *p)
{
	const struct lows *l = &p->lows;
	struct trend_opts opts = { .min_growth = p->lows_of_host ? LEAST_OF_HOST
								 : LEAST_OF_DEVICES };
	uint64_t room = p->lows_of_host ? UINT64_MAX : room_of(p);
	struct trend t;
	double per_second;
	json_t *o;

	if (!l->n)
		return NULL;
	if (l->v[l->n - 1] / LEAST_PART > opts.min_growth)
		opts.min_growth = l->v[l->n - 1] / LEAST_PART;
	trend__judge(l->v, l->n, &opts, &t);
	per_second = l->to > l->from ? t.slope * (double)l->n / (l->to - l->from) : 0;
	o = json_pack("{s:s, s:s, s:f, s:o}", "of", p->lows_of_host ? "host" : "devices", "verdict",
		      trend__verdict(t.verdict), "seconds", l->to - l->from, "values", curve_of(l));
	if (!o || !trend__counts(&t, TREND_MEDIUM) || per_second <= 0)
		return o;
	json_object_set_new(o, "confidence", json_string(trend__confidence(t.confidence)));
	json_object_set_new(o, "bytes_per_minute", json_real(per_second * 60));
	if (room != UINT64_MAX)
		json_object_set_new(o, "full_s", json_real((double)room / per_second));
	return o;
}
