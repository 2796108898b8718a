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
	uint64_t events;  /* events with tensors so far */
	uint64_t no_room; /* copies dropped so far because MAX_COPIES waited */
};

/* A tensor with a name, and the memory for its texts. */
struct named_tensor {
	struct oom_tensor tensor;
	char name[256], dtype[16];
};

_Static_assert(PYTENSOR_DIMS == OOM_DIMS, "a shape is kept as it is read");

void oom_tensors__free(struct oom_copies *copies)
{
	if (!copies)
		return;
	pytensors__free(copies->tensors);
	free(copies->v);
	free(copies);
}

/* NULL: memory is short. */
static struct oom_copies *oom_copies__new(const struct target *target)
{
	struct oom_copies *copies = calloc(1, sizeof(*copies));

	if (!copies)
		return NULL;
	copies->tensors = pytensors__new(target->proc);
	if (copies->tensors)
		return copies;
	free(copies);
	return NULL;
}

uint64_t oom_tensors__no_room(const struct decoder *decoder)
{
	return decoder->oom ? decoder->oom->no_room : 0;
}

int oom_tensors__record(struct decoder *decoder, const struct mt_rec_tensor *record)
{
	struct oom_copies *copies = decoder->oom;

	if (!copies)
		decoder->oom = copies = oom_copies__new(decoder->target);
	if (!copies)
		return -ENOMEM;
	if (copies->n == MAX_COPIES) { /* the events of some of them may be lost */
		copies->no_room += copies->n;
		copies->n = 0;
	}
	if (array__grow(&copies->v, &copies->cap, copies->n + 1, sizeof(*copies->v)))
		return -ENOMEM;
	copies->v[copies->n++] = *record;
	return 0;
}

/* Reads the name of the variable. The code object was read before its stack was decoded. False: it
 * may be another one by now, or the variable is not the program's own. */
static bool read_name(struct decoder *decoder, const struct mt_rec_tensor *record,
		      struct dict_loc *loc, char *name, size_t size)
{
	const struct python *py = decoder->target->python;
	uint32_t firstlineno;
	struct pycode now;
	bool same;

	if (!py ||
	    !symbolizer__place(decoder->names, record->code, record->epoch, record->at, loc,
			       &firstlineno) ||
	    pylocals__name(py, record->code, record->number, name, size) ||
	    pyobj__code(py, record->code, &now))
		return false;
	same = now.firstlineno == firstlineno &&
	       !strncmp(now.name, dict__str(decoder->dict, loc->func), sizeof(now.name));
	pycode__free(&now);
	/* The argument of "<listcomp>" and names made by tools are no variables of the program. */
	return same && name[0] && name[0] != '.';
}

/* False: the copy is not of a tensor, or the variable has no name. */
static bool name_copy(struct decoder *decoder, const struct mt_rec_tensor *record,
		      struct named_tensor *ret)
{
	struct pytensor tensor;
	struct dict_loc loc;
	uint64_t bits;

	if (pytensors__of_copy(decoder->oom->tensors, record, &tensor, ret->tensor.shape,
			       &ret->tensor.sized) ||
	    !read_name(decoder, record, &loc, ret->name, sizeof(ret->name)))
		return false;
	bits = pytensor__dtype_bits(tensor.dtype);
	if (__builtin_mul_overflow(bits, tensor.numel, &bits))
		return false;
	ret->tensor.impl = record->impl_at;
	ret->tensor.bytes = bits / 8 + (bits % 8 != 0);
	ret->tensor.storage = tensor.state == PYTENSOR_OK ? tensor.size : 0;
	ret->tensor.depth = record->depth;
	ret->tensor.line = loc.line;
	ret->tensor.device = (struct device){ .type = tensor.device_type,
					      .index = tensor.device_index };
	ret->tensor.ndim = tensor.ndim;
	ret->tensor.dtype = pytensor__dtype(tensor.dtype, ret->dtype, sizeof(ret->dtype));
	ret->tensor.name = ret->name;
	ret->tensor.func = dict__str(decoder->dict, loc.func);
	ret->tensor.file = dict__str(decoder->dict, loc.file);
	return true;
}

/* Sets the fact for the tensors of the thread's event, of which there are some. */
static int add_fact(struct decoder *decoder, const struct mt_hdr *header, uint64_t time,
		    struct named_tensor *named, struct oom_tensor *tensors)
{
	struct oom_copies *copies = decoder->oom;
	size_t n = 0;
	int err;

	for (size_t i = 0; i < copies->n && n < OOM_TENSORS; i++) {
		if (copies->v[i].h.tid != header->tid || copies->v[i].h.time != header->time ||
		    !name_copy(decoder, &copies->v[i], &named[n]))
			continue;
		tensors[n] = named[n].tensor;
		n++;
	}
	log_debug("out of memory: %zu of %zu tensors in variables have names", n, copies->n);
	if (!n)
		return 0;
	err = oom__add(decoder->facts, copies->events, time, tensors, n);
	copies->events += !err;
	return err == -ENOMEM ? err : 0;
}

int oom_tensors__failed(struct decoder *decoder, const struct mt_hdr *header, uint64_t time)
{
	struct oom_copies *copies = decoder->oom;
	struct named_tensor *named;
	struct oom_tensor *tensors;
	size_t kept = 0;
	int err = -ENOMEM;

	if (!copies || !copies->n)
		return 0;
	named = calloc(OOM_TENSORS, sizeof(*named));
	tensors = calloc(OOM_TENSORS, sizeof(*tensors));
	if (named && tensors)
		err = add_fact(decoder, header, time, named, tensors);
	free(named);
	free(tensors);
	for (size_t i = 0; i < copies->n; i++) {
		if (copies->v[i].h.tid != header->tid)
			copies->v[kept++] = copies->v[i];
	}
	copies->n = kept;
	return err;
}
