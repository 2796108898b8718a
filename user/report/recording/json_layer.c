/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Figures of a layer (calls of a module), with the same keys in report, page and timeline. */
#include "base/json.h"
#include "model/model.h"
#include "report/doc.h"

static void put_sums(struct json *j, const struct model_layer_sums *l, bool calls, bool reserved)
{
	json__uint(j, "peak_allocated", l->peak_allocated);
	json__uint_or_null(j, "peak_reserved", reserved, l->peak_reserved);
	json__uint(j, "total_allocations", l->allocs);
	json__uint(j, "total_deallocations", l->frees);
	if (reserved)
		json__double(j, "avg_fragmentation", l->avg_fragmentation, 6);
	else
		json__null(j, "avg_fragmentation");
	json__double(j, "duration_ms", (double)l->duration / 1e6, 6);
	json__uint_or_null(j, "calls", calls, l->calls);
}

void report_json__layer(struct json *j, const struct model_layer *l, bool reserved)
{
	put_sums(j, &l->all, l->calls_known, reserved);
	json__open_object(j, "forward");
	put_sums(j, &l->forward, l->calls_known, reserved);
	json__close_object(j);
	json__open_object(j, "backward");
	put_sums(j, &l->backward, l->calls_known, reserved);
	json__close_object(j);
}
