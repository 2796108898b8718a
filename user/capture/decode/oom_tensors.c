/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/oom_tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "capture/decode/decode_ctx.h"
#include "capture/decode/symbolizer.h"
#include "capture/target.h"
#include "inspect/pyobj.h"
#include "inspect/pytensor.h"
#include "record/dict.h"
#include "record/oom.h"

#define MAX_COPIES (4u * MT_LOCAL_TENSORS) /* of threads that fail at the same time */

struct oom_copies {
	struct pytensors *tensors;
	struct mt_rec_tensor *v;
	size_t n, cap;
	uint64_t events; /* events with tensors so far */
};

/* A tensor with a name, and the memory for its texts. */
struct named_tensor {
	struct oom_tensor t;
	char name[256], dtype[16];
};

_Static_assert(PYTENSOR_DIMS == OOM_DIMS, "a shape is kept as it is read");

void oom_tensors__free(struct oom_copies *c)
{
	if (!c)
		return;
	pytensors__free(c->tensors);
	free(c->v);
	free(c);
}

static struct oom_copies *oom_copies__new(const struct target *t)
{
	struct oom_copies *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->tensors = pytensors__new(t->proc);
	if (c->tensors)
		return c;
	free(c);
	return NULL;
}

int oom_tensors__record(struct decoder *d, const struct mt_rec_tensor *r)
{
	struct oom_copies *c = d->oom;

	if (!c)
		d->oom = c = oom_copies__new(d->target);
	if (!c)
		return -ENOMEM;
	if (c->n == MAX_COPIES)
		c->n = 0; /* their own records were lost */
	if (array__grow(&c->v, &c->cap, c->n + 1, sizeof(*c->v)))
		return -ENOMEM;
	c->v[c->n++] = *r;
	return 0;
}

/* Reads the name of the variable. The code object was read before its stack was decoded. False: it
 * may be another one by now, or the variable is not the program's own. */
static bool read_name(struct decoder *d, const struct mt_rec_tensor *r, struct dict_loc *loc,
		      char *name, size_t size)
{
	const struct python *py = d->target->python;
	uint32_t firstlineno;
	struct pycode now;
	bool same;

	if (!py || !symbolizer__place(d->names, r->code, r->epoch, r->at, loc, &firstlineno) ||
	    pylocals__name(py, r->code, r->number, name, size) || pyobj__code(py, r->code, &now))
		return false;
	same = now.firstlineno == firstlineno &&
	       !strncmp(now.name, dict__str(d->dict, loc->func), sizeof(now.name));
	pycode__free(&now);
	/* The argument of "<listcomp>" and names made by tools are no variables of the program. */
	return same && name[0] && name[0] != '.';
}

/* False: the copy is not of a tensor, or the variable has no name. */
static bool name_copy(struct decoder *d, const struct mt_rec_tensor *r, struct named_tensor *ret)
{
	struct pytensor t;
	struct dict_loc loc;
	uint64_t bits;

	if (pytensors__of_copy(d->oom->tensors, r, &t, ret->t.shape, &ret->t.sized) ||
	    !read_name(d, r, &loc, ret->name, sizeof(ret->name)))
		return false;
	bits = pytensor__dtype_bits(t.dtype);
	if (__builtin_mul_overflow(bits, t.numel, &bits))
		return false;
	ret->t.impl = r->impl_at;
	ret->t.bytes = bits / 8 + (bits % 8 != 0);
	ret->t.storage = t.state == PYTENSOR_OK ? t.size : 0;
	ret->t.depth = r->depth;
	ret->t.line = loc.line;
	ret->t.device = (struct device){ .type = t.device_type, .index = t.device_index };
	ret->t.ndim = t.ndim;
	ret->t.dtype = pytensor__dtype(t.dtype, ret->dtype, sizeof(ret->dtype));
	ret->t.name = ret->name;
	ret->t.func = dict__str(d->dict, loc.func);
	ret->t.file = dict__str(d->dict, loc.file);
	return true;
}

/* Sets the fact for the tensors of the thread's event, of which there are some. */
static int add_fact(struct decoder *d, const struct mt_hdr *h, uint64_t time,
		    struct named_tensor *named, struct oom_tensor *tensors)
{
	struct oom_copies *c = d->oom;
	size_t n = 0;
	int err;

	for (size_t i = 0; i < c->n && n < OOM_TENSORS; i++) {
		if (c->v[i].h.tid != h->tid || c->v[i].h.time != h->time ||
		    !name_copy(d, &c->v[i], &named[n]))
			continue;
		tensors[n] = named[n].t;
		n++;
	}
	log_debug("out of memory: %zu of %zu tensors in variables have names", n, c->n);
	if (!n)
		return 0;
	err = oom__add(d->facts, c->events, time, tensors, n);
	c->events += !err;
	return err == -ENOMEM ? err : 0;
}

int oom_tensors__failed(struct decoder *d, const struct mt_hdr *h, uint64_t time)
{
	struct oom_copies *c = d->oom;
	struct named_tensor *named;
	struct oom_tensor *tensors;
	size_t kept = 0;
	int err = -ENOMEM;

	if (!c || !c->n)
		return 0;
	named = calloc(OOM_TENSORS, sizeof(*named));
	tensors = calloc(OOM_TENSORS, sizeof(*tensors));
	if (named && tensors)
		err = add_fact(d, h, time, named, tensors);
	free(named);
	free(tensors);
	for (size_t i = 0; i < c->n; i++) {
		if (c->v[i].h.tid != h->tid)
			c->v[kept++] = c->v[i];
	}
	c->n = kept;
	return err;
}
