/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <string.h>

#include "record/varint.h"
#include "base/io.h"
#include "estimate/replay/plan_internal.h"

int plan_out__flush(struct plan_out *o)
{
	int err = io__write(o->fd, o->buf, o->n);

	if (err)
		return err;
	o->at += o->n;
	o->n = 0;
	return 0;
}

int plan_out__bytes(struct plan_out *o, const void *data, size_t size)
{
	const uint8_t *p = data;

	while (size) {
		size_t n = sizeof(o->buf) - o->n < size ? sizeof(o->buf) - o->n : size;
		int err = n ? 0 : plan_out__flush(o);

		if (err)
			return err;
		memcpy(o->buf + o->n, p, n);
		o->n += n;
		p += n;
		size -= n;
	}
	return 0;
}

/* Most numbers of an operation, with those of EVENT. */
#define NUMBERS_MAX 8

int plan_out__op(struct plan_out *o, enum replay_op op, const uint64_t *v, size_t n)
{
	uint8_t *p;
	int err = sizeof(o->buf) - o->n < 1 + NUMBERS_MAX * VARINT_MAX ? plan_out__flush(o) : 0;

	if (err)
		return err;
	p = o->buf + o->n;
	*p++ = (uint8_t)op;
	for (size_t i = 0; i < n; i++)
		p = varint__put(p, v[i]);
	o->n = (size_t)(p - o->buf);
	return 0;
}

int plan_out__event(struct plan_out *o, enum replay_op op, uint64_t event, uint64_t time,
		    const uint64_t *v, size_t n)
{
	uint64_t all[NUMBERS_MAX] = { event - o->event, zigzag(time - o->time) };

	if (n)
		memcpy(all + 2, v, n * sizeof(*v));
	o->event = event;
	o->time = time;
	return plan_out__op(o, op, all, n + 2);
}
