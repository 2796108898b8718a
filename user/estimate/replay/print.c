/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "record/stream.h"

/* Allocator settings for people, cleaned into buf; "" are PyTorch's defaults. */
static const char *settings(const char *conf, char *buf, size_t size)
{
	return *conf ? text__clean(buf, size, conf, strlen(conf)) : "PyTorch's defaults";
}

/* Prints what was recorded, and whose allocator repeats it. */
static void print_about(FILE *out, const struct replay_about *a)
{
	char b[4][32], clean[600];

	fprintf(out, "cuda:%d  %s, peak %s allocated, %s reserved as recorded", a->device,
		text__counted(b[0], sizeof(b[0]), a->events, "event"),
		text__bytes(b[1], sizeof(b[1]), a->peak_allocated),
		text__bytes(b[2], sizeof(b[2]), a->peak_reserved));
	if (a->before)
		fprintf(out, "; %s were there before", text__bytes(b[3], sizeof(b[3]), a->before));
	fprintf(out, "\nPyTorch's allocator of %s (%s)\n",
		*a->lib_torch ? text__clean(clean, 64, a->lib_torch, strlen(a->lib_torch))
			      : "a version not known",
		text__clean(clean + 64, sizeof(clean) - 64, a->lib, strlen(a->lib)));
	if (a->alloc_conf)
		fprintf(out, "recorded with %s\n", settings(a->alloc_conf, clean, sizeof(clean)));
	else
		fprintf(out, "recorded with unknown settings: using PyTorch's defaults\n");
}

/* Prints how often memory ran out when it was recorded. */
static void print_ooms(FILE *out, const struct replay_found *f)
{
	char b[32];

	if (!f->about->ooms)
		return;
	fprintf(out, "Memory ran out %s when it was recorded%s\n",
		text__counted(b, sizeof(b), f->about->ooms, "time"),
		f->vram ? "; the replay repeats what the program did then."
			: ": the replay grants the refused requests.");
}

/* Prints how well a replay under the recording's own settings agrees with the recording. */
static void print_truth(FILE *out, const struct replay_truth *t)
{
	char b[3][32];

	if (t->equal) {
		fprintf(out,
			"Under its own settings: reserved memory equals the recording at each of "
			"%s events.\n",
			text__count(b[0], sizeof(b[0]), t->events));
		return;
	}
	if (t->first == REPLAY_NOWHERE)
		fprintf(out,
			"Approximate: a replay under its own settings cannot be compared with the "
			"recording (%s).\n",
			t->why);
	else
		fprintf(out,
			"Approximate: under its own settings a replay first differs at event "
			"%" PRIu64 " (%s reserved instead of %s), by up to %s "
			"(%s).\n",
			t->first, text__bytes(b[0], sizeof(b[0]), t->first_replayed),
			text__bytes(b[1], sizeof(b[1]), t->first_recorded),
			text__bytes(b[2], sizeof(b[2]), t->largest), t->why);
}

/* Prints the request that did not fit. */
static void print_oom(FILE *out, const struct replay_oom *o)
{
	char b[4][32];

	fprintf(out,
		"    runs out of memory at event %" PRIu64
		" (%s): %s requested, %s allocated, %s reserved",
		o->event, text__time(b[0], sizeof(b[0]), o->time),
		text__bytes(b[1], sizeof(b[1]), o->asked),
		text__bytes(b[2], sizeof(b[2]), o->allocated),
		text__bytes(b[3], sizeof(b[3]), o->reserved));
	if (*o->where)
		fprintf(out, "\n    at %s", o->where);
	if (*o->module)
		fprintf(out, " in %s", o->module);
	fputc('\n', out);
}

/* Prints the row of a try. */
static void print_row(FILE *out, const struct replay_tried *t)
{
	const struct replay_result *r = &t->result;
	char b[4][32], clean[200];

	if (t->failed) {
		fprintf(out, "%10s %10s %7s %6s %8s  %s\n", "-", "-", "-", "-", "-",
			settings(t->alloc_conf, clean, sizeof(clean)));
		fprintf(out, "    %s\n", t->why);
		return;
	}
	snprintf(b[2], sizeof(b[2]), "%.1f %%", 100 * r->fragmentation);
	if (r->segments)
		snprintf(b[3], sizeof(b[3]), "%" PRIu64, r->segments);
	else
		strcpy(b[3], "-");
	fprintf(out, "%10s %10s %7s %6s %8" PRIu64 "  %s%s",
		text__bytes(b[0], sizeof(b[0]), r->peak_reserved),
		text__bytes(b[1], sizeof(b[1]), r->peak_allocated), b[2], b[3], r->retries,
		settings(t->alloc_conf, clean, sizeof(clean)), t->own ? " (its own)" : "");
	fputs(r->oom.there ? ": OUT OF MEMORY\n" : "\n", out);
}

/* Prints the recommendation of a search. */
static void print_verdict(FILE *out, const struct replay_found *f)
{
	char clean[200];

	if (!f->best) {
		fprintf(out, "\nRecommended: %s.\n", f->verdict);
		return;
	}
	fprintf(out, "\nRecommended: PYTORCH_CUDA_ALLOC_CONF=%s: %s.\n",
		*f->best->alloc_conf ? settings(f->best->alloc_conf, clean, sizeof(clean)) : "\"\"",
		f->verdict);
	if (*f->best->costs)
		fprintf(out, "    It costs: %s.\n", f->best->costs);
}

void replay_print__text(FILE *out, const struct replay_found *f)
{
	bool other = false;
	char b[32];

	print_about(out, f->about);
	print_truth(out, &f->about->truth);
	print_ooms(out, f);
	if (f->vram)
		fprintf(out,
			"A device of %s%s; code other than PyTorch uses as much as in the "
			"recording.\n",
			text__bytes(b, sizeof(b), f->vram),
			f->recorded_vram ? ", as recorded (--vram none: unlimited)" : "");
	fprintf(out, "\n%10s %10s %7s %6s %8s  %s\n", "Reserved", "Allocated", "Cached", "Segm.",
		"Retries", "Settings");
	for (size_t i = 0; i < f->n; i++) {
		print_row(out, &f->v[i]);
		other |= !f->v[i].own;
	}
	if (other && !f->about->requested)
		fputs("Requested sizes were not recorded (--requested): the replay uses the "
		      "recorded "
		      "block sizes. With other settings, blocks can be up to\n"
		      "1 MiB smaller.\n",
		      out);
	for (size_t i = 0; i < f->n; i++) {
		if (!f->searched && f->v[i].result.oom.there)
			print_oom(out, &f->v[i].result.oom);
		if (f->v[i].smallest)
			fprintf(out, "    smallest --vram that fits: %" PRIu64 "M\n",
				f->v[i].smallest >> 20);
	}
	if (f->searched)
		print_verdict(out, f);
}

static void json_truth(struct json *j, const struct replay_truth *t)
{
	json__open_object(j, "own_settings");
	json__bool(j, "known", t->settings_known);
	json__uint(j, "events_compared", t->events);
	json__bool(j, "equal", t->equal);
	if (t->first == REPLAY_NOWHERE)
		json__null(j, "first_difference");
	else {
		json__open_object(j, "first_difference");
		json__uint(j, "event", t->first);
		json__seconds(j, "time", t->first_time, /*decimals=*/9);
		json__uint(j, "recorded", t->first_recorded);
		json__uint(j, "replayed", t->first_replayed);
		json__close_object(j);
	}
	json__uint(j, "largest_difference", t->largest);
	json__int(j, "difference_at_peak", t->at_peak);
	json__string(j, "why", *t->why ? t->why : NULL);
	json__close_object(j);
}

static void json_oom(struct json *j, const struct replay_oom *o)
{
	if (!o->there) {
		json__null(j, "oom");
		return;
	}
	json__open_object(j, "oom");
	json__uint(j, "event", o->event);
	json__seconds(j, "time", o->time, /*decimals=*/9);
	json__uint(j, "asked", o->asked);
	json__uint(j, "allocated", o->allocated);
	json__uint(j, "reserved", o->reserved);
	json__string(j, "where", *o->where ? o->where : NULL);
	json__string(j, "module", *o->module ? o->module : NULL);
	json__close_object(j);
}

/* Adds a try. key NULL: in an array. */
static void json_tried(struct json *j, const char *key, const struct replay_tried *t)
{
	const struct replay_result *r = &t->result;

	json__open_object(j, key);
	json__string(j, "alloc_conf", t->alloc_conf);
	json__bool(j, "own", t->own);
	json__string(j, "costs", t->costs && *t->costs ? t->costs : NULL);
	json__string(j, "refused", t->failed ? t->why : NULL);
	if (!t->failed) {
		json__uint(j, "events", r->events);
		json__uint(j, "peak_allocated", r->peak_allocated);
		json__uint(j, "peak_reserved", r->peak_reserved);
		json__uint_or_null(j, "peak_requested", r->peak_requested, r->peak_requested);
		json__uint(j, "peak_reserved_event", r->reserved_event);
		json__seconds(j, "peak_reserved_time", r->reserved_time, /*decimals=*/9);
		json__uint(j, "end_allocated", r->end_allocated);
		json__uint(j, "end_reserved", r->end_reserved);
		json__double(j, "fragmentation", r->fragmentation, /*decimals=*/6);
		json__uint(j, "segments", r->segments);
		json__uint(j, "cuda_mallocs", r->takes);
		json__uint(j, "retries", r->retries);
		json__uint(j, "outside", r->outside);
		json_oom(j, &r->oom);
		if (t->smallest)
			json__uint(j, "smallest_vram", t->smallest);
	}
	json__close_object(j);
}

int replay_print__json(FILE *out, const struct replay_found *f)
{
	const struct replay_about *a = f->about;
	struct json *j = json__new(out, true);
	char name[DEVICE_NAME];

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "recording");
	json__string(j, "torch", *a->torch ? a->torch : NULL);
	json__string(j, "alloc_conf", a->alloc_conf);
	json__uint(j, "events", a->events);
	json__uint(j, "lost", a->lost);
	json__uint(j, "ooms", a->ooms);
	json__uint(j, "peak_allocated", a->peak_allocated);
	json__uint(j, "peak_reserved", a->peak_reserved);
	json__uint(j, "before_attach", a->before);
	json__bool(j, "requested_sizes", a->requested);
	json__uint(j, "pools", a->pools);
	json__close_object(j);
	json__open_object(j, "allocator");
	json__string(j, "torch", *a->lib_torch ? a->lib_torch : NULL);
	json__string(j, "library", a->lib);
	json__close_object(j);
	json__string(j, "device",
		     device__name((struct device){ DEVICE_CUDA, (uint8_t)a->device }, name,
				  sizeof(name)));
	json__uint_or_null(j, "vram", f->vram, f->vram);
	json_truth(j, &a->truth);
	json__open_array(j, "tries");
	for (size_t i = 0; i < f->n; i++)
		json_tried(j, NULL, &f->v[i]);
	json__close_array(j);
	if (f->searched) {
		json__string(j, "recommended", f->best ? f->best->alloc_conf : NULL);
		json__string(j, "verdict", f->verdict);
	}
	json__close_object(j);
	json__free(j);
	return ferror(out) ? -EIO : 0;
}
