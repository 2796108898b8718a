/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The numbers of a device in all outputs: JSON of report and of the live view, and OpenMetrics. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/openmetrics.h"
#include "model/model.h"

enum device_value_flag {
	VALUE_OF_TOTALS = 1, /* known if the allocator carries totals */
	VALUE_OF_BEFORE = 2, /* known if memory from before attach is known */
	VALUE_OF_MOMENT = 4, /* known if the moment that the model was made for came */
	VALUE_LEFT_OUT = 8,  /* in JSON, left out if it is not known; otherwise null */
};

struct device_value {
	const char *key;		  /* in JSON; NULL: not there */
	size_t offset;			  /* offset of a uint64_t in struct model_device */
	unsigned flags;			  /* enum device_value_flag */
	struct openmetrics_family family; /* name NULL: not in OpenMetrics */
};

/* In the order of the outputs. */
extern const struct device_value device_values[];
extern const size_t device_values_n;

/* False: the value is not known of this device. */
bool device_value__get(const struct device_value *v, const struct model_device *d, uint64_t *ret);
