/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Declarations shared by rolling_view.c, which reads, and rolling_view_print.c. */
#include <jansson.h>

#include "model/rolling_view.h"
#include "record/folder.h"

#define RING_DEVICES 64

/* Totals of a device over the whole run. */
struct ring_device {
	char name[16];
	uint64_t allocated, reserved, peak_allocated, peak_time, peak_step, peak_reserved;
	uint64_t allocs, frees, total_allocated, ooms;
};

struct rolling_view {
	struct folder *folder;
	const struct folder_entry *entries;
	size_t n;
	json_t *totals;
	uint64_t events, lost, steps, last; /* last: time of the last event, ns */
	struct ring_device devices[RING_DEVICES];
	size_t n_devices;
	/* The chosen moment, device and part. */
	const struct ring_device *device; /* chosen device; NULL: none */
	enum moment at;
	size_t picked;
	char *segment;
	bool peak_gone;
};

/* Returns NULL if the recording has no data of the device. */
const struct folder_device *rolling_view__device_of(const struct folder_entry *e, const char *name);
