/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Devices of the ranks of one job: their own, and those of other ranks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "base/text.h"
#include "model/words.h"
#include "report/ranks/ranks.h"

#define MOST_SHARED 8

/* The device with the rank's number on its host, otherwise the one with the largest peak. */
static const struct rank_device *own_device(const struct rank *k)
{
	const struct rank_device *own = NULL;

	for (size_t i = 0; i < k->neach; i++) {
		const struct rank_device *d = &k->each[i];

		if ((k->has_local || k->has_number) &&
		    d->device.index == (k->has_local ? k->local : k->number))
			return d;
		if (!own || d->peak > own->peak)
			own = d;
	}
	return own;
}

static int cmp_host(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

static int cmp_place(const struct device_use *x, const struct device_use *y,
		     const struct rank *ranks)
{
	const struct device *p = &x->device->device, *q = &y->device->device;
	int c = cmp_host(ranks[x->recording].host, ranks[y->recording].host);

	if (c)
		return c;
	if (p->type != q->type)
		return p->type < q->type ? -1 : 1;
	return p->index < q->index ? -1 : p->index > q->index;
}

static int cmp_use(const void *a, const void *b, void *ctx)
{
	const struct device_use *x = a, *y = b;
	int c = cmp_place(x, y, ctx);

	return c ? c : x->recording < y->recording ? -1 : x->recording > y->recording;
}

static int list_uses(const struct rank *ranks, size_t n, struct shared_devices *s)
{
	size_t room = 0;

	for (size_t i = 0; i < n; i++) {
		const struct rank_device *own = own_device(&ranks[i]);

		for (size_t k = 0; k < ranks[i].neach && !ranks[i].worker; k++) {
			const struct rank_device *d = &ranks[i].each[k];

			if (d != own && !d->bytes)
				continue;
			if (array__grow(&s->uses, &room, s->n_uses + 1, sizeof(*s->uses)))
				return -ENOMEM;
			s->uses[s->n_uses++] = (struct device_use){ (uint32_t)i, d, own };
		}
	}
	return 0;
}

int shared_devices__find(const struct rank *ranks, size_t n, struct shared_devices *ret)
{
	size_t room = 0, end;
	int err = list_uses(ranks, n, ret);

	if (err || !ret->n_uses)
		return err;
	qsort_r(ret->uses, ret->n_uses, sizeof(*ret->uses), cmp_use, (void *)(uintptr_t)ranks);
	for (size_t i = 0; i < ret->n_uses; i = end) {
		struct shared_device d = { .first = (uint32_t)i };

		for (end = i;
		     end < ret->n_uses && !cmp_place(&ret->uses[i], &ret->uses[end], ranks);
		     end++) {
			d.n++;
			d.guests += ret->uses[end].device != ret->uses[end].own;
		}
		/* Without a rank whose own it is, the ranks share out devices in another way. */
		if (!d.guests || d.guests == d.n)
			continue;
		if (array__grow(&ret->all, &room, ret->n + 1, sizeof(*ret->all)))
			return -ENOMEM;
		ret->all[ret->n++] = d;
	}
	return 0;
}

void shared_devices__free(struct shared_devices *s)
{
	free(s->all);
	free(s->uses);
	*s = (struct shared_devices){ 0 };
}

bool shared_devices__guest(const struct shared_devices *s, size_t recording, const char *device)
{
	for (size_t i = 0; i < s->n; i++)
		for (size_t k = s->all[i].first; k < (size_t)s->all[i].first + s->all[i].n; k++)
			if (s->uses[k].recording == recording &&
			    s->uses[k].device != s->uses[k].own &&
			    !strcmp(s->uses[k].device->name, device))
				return true;
	return false;
}

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
