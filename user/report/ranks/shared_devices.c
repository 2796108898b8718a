/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Devices that have memory of several ranks of one job. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "report/ranks/ranks.h"

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
