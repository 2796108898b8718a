/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Words and JSON for the devices of the ranks of one job: their own, and those of other ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "model/words.h"
#include "report/ranks/ranks.h"

#define MOST_SHARED 8

char *rank__devices(char *buf, size_t size, const struct rank *k)
{
	uint64_t first = 0, last = 0;
	char numbers[160] = "";
	const char *s = k->devices, *colon = strchr(s, ':');
	size_t kind = colon ? (size_t)(colon - s) + 1 : 0, len = 0;

	snprintf(buf, size, "%s", s);
	if (!colon || !strchr(s, ' '))
		return buf;
	for (bool any = false; s; s = strchr(s, ' ')) {
		uint64_t number;

		s += *s == ' ';
		if (strncmp(s, k->devices, kind) != 0)
			return buf;
		number = strtoull(s + kind, NULL, 10);
		if (any && number != last + 1)
			len = ranks__add_range(numbers, sizeof(numbers), len, first, last);
		if (!any || number != last + 1)
			first = number;
		last = number;
		any = true;
	}
	ranks__add_range(numbers, sizeof(numbers), len, first, last);
	snprintf(buf, size, "%.*s%s", (int)kind, k->devices, numbers);
	return buf;
}

/* The place of a device's largest row: " (train.py:9)"; "" if it has no line and no name. */
static const char *at(char *buf, size_t size, const struct rank_device *d, const char *cwd)
{
	char *where = malloc(REPORT_TEXT);

	*buf = '\0';
	if (where && (d->most.file || d->most.name))
		snprintf(buf, size, " (%.200s)",
			 d->most.file ? words__place(where, d->most.file, d->most.line, cwd)
				      : words__where(where, &d->most, BY_LINE, cwd, 80));
	free(where);
	return buf;
}

static void print_shared(FILE *out, const struct ranks *r, const struct shared_device *s,
			 const struct device_use *uses, size_t width)
{
	const struct device_use *most = NULL;
	const struct rank *k;
	char bytes[24], one[24], where[256], guests[512], all[32];
	bool *in = calloc(ranks__count(r) + 1, sizeof(*in));
	uint64_t sum = 0;

	for (uint32_t i = 0; i < s->n && in; i++) {
		const struct device_use *u = &uses[s->first + i];

		if (u->device == u->own)
			continue;
		in[u->recording] = true;
		sum += u->device->bytes;
		if (!most || u->device->bytes > most->device->bytes)
			most = u;
	}
	if (most) {
		ranks__list(r, in, guests, sizeof(guests));
		k = ranks__at(r, most->recording);
		at(where, sizeof(where), most->device, k->cwd);
		text__bytes(bytes, sizeof(bytes), sum);
		text__count(all, sizeof(all), s->n);
		if (s->guests == 1)
			text__paragraph(out, width, "", "  ",
					"%s has %s on %s%s besides its own %s%s. GPU %u%s holds "
					"memory of %s ranks.",
					guests, bytes, most->device->name, k->on, most->own->name,
					where, most->device->device.index, k->on, all);
		else
			text__paragraph(out, width, "", "  ",
					"%s have %s on %s%s besides their own devices, most of it "
					"%s with %s%s. GPU %u%s holds memory of %s ranks.",
					guests, bytes, most->device->name, k->on, k->label,
					text__bytes(one, sizeof(one), most->device->bytes), where,
					most->device->device.index, k->on, all);
	}
	free(in);
}

void ranks__print_shared(FILE *out, const struct ranks *r, size_t width)
{
	const struct shared_devices *s = ranks__shared(r);
	char more[32];

	if (!s->n)
		return;
	fputc('\n', out);
	for (size_t i = 0; i < s->n && i < MOST_SHARED; i++)
		print_shared(out, r, &s->all[i], s->uses, width);
	if (s->n > MOST_SHARED)
		fprintf(out, "+ %s more devices with memory of several ranks\n",
			text__count(more, sizeof(more), s->n - MOST_SHARED));
	text__paragraph(out, width, "", "  ",
			"Each of these ranks has a CUDA context there, too. Call "
			"torch.cuda.set_device(local_rank) before anything uses CUDA, and load "
			"checkpoints with torch.load(..., map_location='cpu').");
}

static void put_use(struct json *j, const struct device_use *u)
{
	const struct row *row = &u->device->most;

	json__open_object(j, NULL);
	json__uint(j, "recording", u->recording);
	json__uint(j, "allocated", u->device->bytes);
	json__string(j, "own", u->own->name);
	json__string(j, "file", row->file);
	json__uint_or_null(j, "line", row->file && row->line, row->line);
	json__string(j, "name", row->name);
	json__close_object(j);
}

void ranks_json__shared(struct json *j, const struct ranks *r)
{
	const struct shared_devices *s = ranks__shared(r);

	json__open_array(j, "shared_devices");
	for (size_t i = 0; i < s->n; i++) {
		const struct device_use *u = &s->uses[s->all[i].first];

		json__open_object(j, NULL);
		json__string(j, "device", u->device->name);
		json__string(j, "host", ranks__at(r, u->recording)->host);
		json__open_array(j, "ranks");
		for (uint32_t k = 0; k < s->all[i].n; k++)
			put_use(j, &u[k]);
		json__close_array(j);
		json__close_object(j);
	}
	json__close_array(j);
}
