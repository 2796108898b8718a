/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/fields.h"

#include <string.h>

#define OF(member) offsetof(struct model_device, member)

const struct device_value device_values[] = {
	{ "allocated",
	  OF(allocated),
	  0,
	  { "device_allocated_bytes", "gauge", "bytes", "Allocated at the end." } },
	{ "reserved",
	  OF(reserved),
	  VALUE_OF_TOTALS,
	  { "device_reserved_bytes", "gauge", "bytes", "Reserved at the end." } },
	{ "peak_allocated",
	  OF(peak_allocated),
	  0,
	  { "device_peak_allocated_bytes", "gauge", "bytes", "Allocated at most." } },
	{ "peak_reserved",
	  OF(peak_reserved),
	  VALUE_OF_TOTALS,
	  { "device_peak_reserved_bytes", "gauge", "bytes", "Reserved at most." } },
	{ "peak_step", OF(peak_step), 0, { 0 } }, /* from 0: for older readers */
	{ "peak_step_number", OF(peak_step), VALUE_FROM_ONE, { 0 } },
	{ "before_attach",
	  OF(before_attach_start),
	  VALUE_OF_BEFORE,
	  { "device_before_attach_bytes", "gauge", "bytes", "Allocated before the first event." } },
	{ "before_attach_left", OF(before_attach), VALUE_OF_BEFORE | VALUE_LEFT_OUT, { 0 } },
	{ "drift",
	  OF(drift),
	  VALUE_OF_TOTALS,
	  { "device_drift_bytes", "gauge", "bytes",
	    "Largest difference from the allocator's own total." } },
	{ "drift_events", OF(drift_events), VALUE_OF_TOTALS | VALUE_LEFT_OUT, { 0 } },
	{ "live_blocks", OF(live_blocks), 0, { 0 } },
	{ "allocs", OF(allocs), 0, { "device_allocations", "counter", NULL, "Allocations seen." } },
	{ "frees", OF(frees), 0, { "device_frees", "counter", NULL, "Frees seen." } },
	{ "frees_unknown", OF(frees_unknown), 0, { 0 } },
	{ "frees_missed", OF(overwritten), 0, { 0 } },
	{ "ooms", OF(ooms), 0, { "device_ooms", "counter", NULL, "Out-of-memory events." } },
	{ "total_allocated",
	  OF(total_allocated),
	  0,
	  { "device_allocation_bytes", "counter", "bytes", "Bytes of all allocations seen." } },
	{ "total_freed", OF(total_freed), 0, { 0 } },
	/* JSON has the moment's values in the document, not in the device. */
	{ NULL,
	  OF(mark_allocated),
	  VALUE_OF_MOMENT,
	  { "moment_allocated_bytes", "gauge", "bytes",
	    "Allocated memory at the chosen moment." } },
	{ NULL,
	  OF(mark_reserved),
	  VALUE_OF_MOMENT | VALUE_OF_TOTALS,
	  { "moment_reserved_bytes", "gauge", "bytes", "Reserved memory at the chosen moment." } },
};
const size_t device_values_n = sizeof(device_values) / sizeof(*device_values);

bool device_value__get(const struct device_value *v, const struct model_device *d, uint64_t *ret)
{
	memcpy(ret, (const char *)d + v->offset, sizeof(*ret));
	*ret += v->flags & VALUE_FROM_ONE ? 1 : 0;
	return !((v->flags & VALUE_OF_TOTALS) && !d->has_totals) &&
	       !((v->flags & VALUE_OF_BEFORE) && !d->before_known) &&
	       !((v->flags & VALUE_OF_MOMENT) && !d->marked);
}
