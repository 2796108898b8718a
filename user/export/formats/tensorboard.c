/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * An event file for TensorBoard (TensorFlow's TFRecord of Event messages): memory at each step's
 * end, peak memory within the step, and both per second. Values are 32-bit floats, so sizes are in
 * MiB, exact to 1 in 16 million.
 */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/text.h"
#include "export/export.h"
#include "export/formats/passing.h"
#include "export/formats/pb.h"
#include "model/words.h"
#include "record/varint.h"

/* Field numbers of TensorFlow's event.proto and summary.proto. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP_NUMBER = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2 };

#define SECOND UINT64_C(1000000000)

struct curve { /* peaks of a device since its last point */
	struct device device;
	uint64_t step_peak, second_peak; /* allocated bytes: in this step, in this second */
};

struct tensorboard {
	struct passing wait;
	struct pb event, summary, value;
	struct curve *curves;
	size_t ncurves, room_curves;
	size_t steps;	 /* number of written steps */
	uint64_t second; /* current second */
	uint64_t start;	 /* start of the capture, ns since 1970 */
	bool begun;	 /* the file's head is written */
	int err;
};

#define MASK_DELTA 0xa282ead8 /* TensorFlow's kMaskDelta */

/* The checksum of TFRecord: a CRC-32C, rotated by 15 bits, plus a constant. */
static uint32_t masked_crc(const void *data, size_t len)
{
	uint32_t crc = crc32c(data, len);

	return ((crc >> 15) | (crc << 17)) + MASK_DELTA;
}

/* Writes a TFRecord: the length and its checksum, the message and its checksum. */
static void put_record(FILE *out, const struct pb *message)
{
	uint64_t len = htole64(message->len);
	uint32_t crc = htole32(masked_crc(&len, sizeof(len)));

	fwrite(&len, sizeof(len), 1, out);
	fwrite(&crc, sizeof(crc), 1, out);
	fwrite(message->data, 1, message->len, out);
	crc = htole32(masked_crc(message->data, message->len));
	fwrite(&crc, sizeof(crc), 1, out);
}

/* Begins an event without values. time: ns since the start of the capture. */
static void begin_event(struct tensorboard *t, uint64_t time)
{
	pb__clear(&t->event);
	pb__clear(&t->summary);
	pb__double(&t->event, EVENT_WALL_TIME, (double)(t->start + time) / 1e9);
}

/* Writes the event with the values that were added to it. step: what TensorBoard shows on the x
 * axis. */
static void put_event(struct export_ctx *c, struct tensorboard *t, uint64_t step)
{
	pb__uint(&t->event, EVENT_STEP_NUMBER, step);
	pb__message(&t->event, EVENT_SUMMARY, &t->summary);
	if (t->event.failed)
		t->err = -ENOMEM;
	else
		put_record(c->out, &t->event);
}

/* Adds a value to the event. Its tag is "PREFIXdevice/what". */
static void add_scalar(struct tensorboard *t, const char *prefix, const char *device,
		       const char *what, double v)
{
	char tag[64];

	snprintf(tag, sizeof(tag), "%s%s/%s", prefix, device, what);
	pb__clear(&t->value);
	pb__string(&t->value, VALUE_TAG, tag);
	pb__float(&t->value, VALUE_SIMPLE, (float)v);
	pb__message(&t->summary, SUMMARY_VALUE, &t->value);
}

static double mib(uint64_t bytes)
{
	return (double)bytes / 1048576;
}

/* Returns the peaks of a device, which it adds on first use. NULL: no memory; sets t->err. */
static struct curve *curve_of(struct tensorboard *t, const struct model_device *d)
{
	for (size_t i = 0; i < t->ncurves; i++)
		if (device__same(t->curves[i].device, d->device))
			return &t->curves[i];
	if (array__grow(&t->curves, &t->room_curves, t->ncurves + 1, sizeof(*t->curves))) {
		t->err = -ENOMEM;
		return NULL;
	}
	t->curves[t->ncurves] = (struct curve){ .device = d->device };
	return &t->curves[t->ncurves++];
}

/* Adds the values of a device to the event. peak: highest allocated bytes since the last event. */
static void add_device(struct tensorboard *t, const char *prefix, const struct model_device *d,
		       uint64_t peak)
{
	add_scalar(t, prefix, d->name, "allocated_MiB", mib(d->allocated));
	add_scalar(t, prefix, d->name, "peak_MiB", mib(peak > d->allocated ? peak : d->allocated));
	if (!d->has_totals)
		return;
	add_scalar(t, prefix, d->name, "reserved_MiB", mib(d->reserved));
	add_scalar(t, prefix, d->name, "fragmentation",
		   words__fragmentation(d->allocated, d->reserved));
}

/* Adds the values of each device in its current state, and begins new peaks. by_step: those of the
 * step; false: of the second. */
static void add_devices(struct export_ctx *c, struct tensorboard *t, bool by_step)
{
	struct model_device d;
	struct curve *curve;
	uint64_t *peak;

	for (size_t i = 0; i < model__devices(c->model); i++) {
		passing__device_at(c, i, &d);
		curve = passing__is_selected(c, d.name) ? curve_of(t, &d) : NULL;
		if (!curve)
			continue;
		peak = by_step ? &curve->step_peak : &curve->second_peak;
		add_device(t, by_step ? "" : "by_second/", &d, *peak);
		*peak = d.allocated;
	}
}

/* Writes the values at the end of a step. steps: number of steps that ended. Several steps may end
 * with one event, as calls on several threads do. They get one point. */
static void put_step(struct export_ctx *c, struct tensorboard *t, uint64_t time, size_t steps)
{
	struct model_step step;
	size_t kept = 0;

	begin_event(t, time);
	add_devices(c, t, /*by_step=*/true);
	while (model__step(c->model, kept, &step))
		kept++;
	/* The first step has no known beginning. */
	if (kept && model__step(c->model, kept - 1, &step) && steps > 1)
		add_scalar(t, "step", "", "seconds", (double)(step.end - step.start) / 1e9);
	put_event(c, t, steps);
	t->steps = steps;
}

/* Writes the values at the end of the current second, and goes on to `second`. */
static void put_second(struct export_ctx *c, struct tensorboard *t, uint64_t second)
{
	uint64_t end = (t->second + 1) * SECOND;

	begin_event(t, end < c->duration || !c->duration ? end : c->duration);
	add_devices(c, t, /*by_step=*/false);
	put_event(c, t, t->second);
	t->second = second;
}

/* Writes the head of the file, once. Call after the first event, because the recording's facts come
 * with it. */
static void put_head(struct export_ctx *c, struct tensorboard *t)
{
	const char *start = facts__get(c->facts, "start");

	if (t->begun)
		return;
	t->begun = true;
	if (start && text__parse_date(start, &t->start))
		t->start = 0;
	begin_event(t, 0);
	/* The only version that readers know. */
	pb__string(&t->event, EVENT_FILE_VERSION, "brain.Event:2");
	if (!t->event.failed)
		put_record(c->out, &t->event);
}

/* Adds the waiting event to the peaks, and writes the step that it ended. The model must have
 * processed it, but no later event. Returns 0 or -ENOMEM. */
static int flush(struct export_ctx *c, struct tensorboard *t)
{
	const struct event *e = &t->wait.event;
	size_t steps = passing__steps(c);
	struct model_device d;
	struct curve *curve;

	if (!t->wait.any)
		return 0;
	t->wait.any = false;
	if (passing__device(c, &t->wait, e->device, &d) && passing__is_selected(c, d.name)) {
		curve = curve_of(t, &d);
		if (curve && d.allocated > curve->step_peak)
			curve->step_peak = d.allocated;
		if (curve && d.allocated > curve->second_peak)
			curve->second_peak = d.allocated;
	}
	if (steps > t->steps)
		put_step(c, t, e->time, steps);
	return t->err;
}

/* Holds e back until the model has processed it. Returns 0 or -ENOMEM. */
static int tensorboard_event(struct export_ctx *c, void *state, const struct event *e)
{
	struct tensorboard *t = state;
	int err;

	put_head(c, t);
	err = flush(c, t);
	/* The model has not processed e, so this is the state at the end of the previous second. */
	if (e->time / SECOND > t->second && e->time < UINT64_MAX - SECOND) {
		if (model__devices(c->model))
			put_second(c, t, e->time / SECOND);
		else
			t->second = e->time / SECOND;
	}
	passing__hold(c, &t->wait, e);
	return err ? err : t->err;
}

static void tensorboard_release(void *state)
{
	struct tensorboard *t = state;

	if (!t)
		return;
	pb__free(&t->event);
	pb__free(&t->summary);
	pb__free(&t->value);
	free(t->curves);
	free(t);
}

static int tensorboard_begin(struct export_ctx *c, void **state)
{
	struct tensorboard *t;

	/* Only the whole recording tells whether steps are optimizer steps or module calls. */
	if (!c->ahead)
		return -ESPIPE;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	*state = t;
	return 0;
}

static int tensorboard_end(struct export_ctx *c, void *state)
{
	struct tensorboard *t = state;
	uint64_t last = t->wait.event.time;
	size_t steps;
	int err;

	put_head(c, t);
	err = flush(c, t);
	if (err)
		return err;
	if (!model__devices(c->model))
		return -ENODATA;
	steps = passing__steps(c); /* calls in progress end with the recording */
	if (steps > t->steps)
		put_step(c, t, last, steps);
	put_second(c, t, 0);
	return t->err;
}

const struct export_format export_tensorboard = {
	.name = "tensorboard",
	.suffix = ".tfevents",
	.whole = true,
	.looks_ahead = true,
	.help = "memory by step and by second, for TensorBoard",
	.next = "\"tensorboard --logdir .\" shows it, as long as its name has \"tfevents\" in it",
	.begin = tensorboard_begin,
	.event = tensorboard_event,
	.end = tensorboard_end,
	.release = tensorboard_release,
};
