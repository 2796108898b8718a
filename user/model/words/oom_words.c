/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/model.h"
#include "model/words.h"
#include "record/oom.h"

#define PLACE_COLUMNS 35 /* of a library's line: it stays whole on terminals of 40 columns */

static int by_bytes(const void *a, const void *b)
{
	const struct oom_tensor *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return (x->order > y->order) - (x->order < y->order);
}

/* Keeps a tensor, in place of one that is the same: the outer variable is nearer to the line that
 * the reader knows. */
static void keep(struct oom_tensors *t, const struct oom_tensor *tensor)
{
	for (size_t i = 0; i < t->n; i++) {
		if (t->v[i].impl != tensor->impl)
			continue;
		if (tensor->depth > t->v[i].depth)
			t->v[i] = *tensor;
		return;
	}
	t->v[t->n++] = *tensor;
}

int words__oom_tensors(const struct model *m, const struct facts *f, const struct model_oom *o,
		       enum frame_choice which_line, struct oom_tensors *ret)
{
	int err = oom__read(f, o->time, ret);
	size_t n = ret->n;

	ret->n = 0;
	for (size_t i = 0; i < n; i++) {
		const struct oom_tensor tensor = ret->v[i];
		const struct row_frame place = { .file = tensor.file,
						 .func = tensor.func,
						 .line = tensor.line };

		if (model__stack_leads(m, o->stack, which_line, &place))
			keep(ret, &tensor);
	}
	qsort(ret->v, ret->n, sizeof(ret->v[0]), by_bytes);
	return err;
}

char *words__shape(char buf[WORDS_SHAPE], const struct oom_tensor *t)
{
	size_t len = 1;

	if (!t->sized) {
		snprintf(buf, WORDS_SHAPE, "[%u dimensions]", t->ndim);
		return buf;
	}
	strcpy(buf, "[");
	for (size_t i = 0; i < t->ndim && i < OOM_DIMS; i++)
		len += (size_t)snprintf(buf + len, WORDS_SHAPE - len, "%s%" PRIu64, i ? ", " : "",
					t->shape[i]);
	snprintf(buf + len, WORDS_SHAPE - len, t->ndim > OOM_DIMS ? ", ...]" : "]");
	return buf;
}

char *words__oom_tensor(char buf[WORDS_TENSOR], const struct oom_tensor *t, const char *device)
{
	char name[96], dtype[32], shape[WORDS_SHAPE], bytes[24], on[DEVICE_NAME];
	size_t len;

	len = (size_t)snprintf(buf, WORDS_TENSOR, "%s %s %s",
			       text__clean(name, sizeof(name), t->name, strlen(t->name)),
			       text__clean(dtype, sizeof(dtype), t->dtype, strlen(t->dtype)),
			       words__shape(shape, t));
	if (t->bytes)
		len += (size_t)snprintf(buf + len, WORDS_TENSOR - len, " %s",
					text__bytes(bytes, sizeof(bytes), t->bytes));
	if (t->storage > t->bytes + t->bytes / 64)
		len += (size_t)snprintf(buf + len, WORDS_TENSOR - len, ", view of %s",
					text__bytes(bytes, sizeof(bytes), t->storage));
	if (strcmp(device__name(t->device, on, sizeof(on)), device) != 0)
		snprintf(buf + len, WORDS_TENSOR - len, ", on %s", on);
	return buf;
}

/* ---- other processes ---- */

#define COMMAND 80 /* characters of a command line */

char *words__neighbour(char buf[WORDS_NEIGHBOUR], const struct neighbour *n)
{
	char command[256], user[64], container[64], bytes[24] = "";
	size_t len;

	text__clean(command, sizeof(command), n->command, strlen(n->command));
	text__clean(user, sizeof(user), n->user, strlen(n->user));
	text__clean(container, sizeof(container), n->container, strlen(n->container));
	words__cut(command, COMMAND);
	if (n->bytes_known)
		text__bytes(bytes, sizeof(bytes), n->bytes);
	len = (size_t)snprintf(buf, WORDS_NEIGHBOUR, "%s (PID %" PRIu32,
			       *command ? command : "no such process", n->pid);
	if (*user)
		len += (size_t)snprintf(buf + len, WORDS_NEIGHBOUR - len, ", user %s", user);
	if (*container)
		len += (size_t)snprintf(buf + len, WORDS_NEIGHBOUR - len, ", container %s",
					container);
	snprintf(buf + len, WORDS_NEIGHBOUR - len, ")%s%s", *bytes ? " " : "", bytes);
	return buf;
}

bool words__neighbours_of(const struct model *m, const struct facts *f, size_t device,
			  struct neighbours *ret)
{
	struct model_device d;
	struct model_oom oom;

	model__device(m, device, &d);
	if (model__oom(m, device, 0, &oom))
		return neighbours__read(f, oom.time, d.device, ret);
	return neighbours__read_end(f, d.device, ret);
}

const char *words__oom_inside(char buf[REPORT_TEXT], const struct model *m, const struct facts *f,
			      const struct model_oom *o)
{
	static const char preposition[] = " in ";
	struct row_frame line, inner;
	struct row row = { .module = "", .module_class = "", .source = "frame" };

	*buf = '\0';
	if (!model__stack_line(m, o->stack, FRAMES_USER, &line) ||
	    !model__stack_line(m, o->stack, FRAMES_ALL, &inner) || !inner.file ||
	    (line.file && !strcmp(line.file, inner.file)))
		return buf;
	row.file = inner.file;
	row.func = inner.func;
	row.line = inner.line;
	memcpy(buf, preposition, sizeof(preposition));
	words__location(buf + sizeof(preposition) - 1, &row, facts__get(f, "cwd"), PLACE_COLUMNS);
	return buf;
}
