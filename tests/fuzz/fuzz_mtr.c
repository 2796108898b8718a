/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* libFuzzer target: the recording reader, on a file made from the input (recording_file.h). */
#include "record/dict.h"
#include "record/mtr.h"
#include "recording_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Checks what the reader promises its callers. */
static void check_event(const struct mtr_reader *r, const struct event *e)
{
	struct dict_counts n = dict__counts(mtr_reader__dict(r));

	if (e->kind < EVENT_ALLOC || e->kind >= EVENT_KINDS || e->how >= event__how_end(e->kind) ||
	    e->stack >= n.stacks || e->thread >= n.threads || e->module >= n.modules ||
	    e->node >= n.nodes || e->name >= n.strings || e->category >= CATEGORY_NR)
		abort();
}

static void check_dict(const struct dict *d)
{
	struct dict_counts n = dict__counts(d);

	for (uint32_t i = 0; i < n.stacks; i++) {
		struct dict_stack s = dict__get_stack(d, i);

		for (uint32_t k = 0; k < s.n; k++) {
			if (s.frames[k].loc >= n.locs || s.frames[k].module >= n.modules)
				abort();
		}
	}
	for (uint32_t i = 0; i < n.nodes; i++) {
		struct dict_node node = dict__get_node(d, i);

		if (node.cls >= n.strings || node.stack >= n.stacks || node.name >= n.strings ||
		    node.module >= n.modules)
			abort();
	}
	for (uint32_t i = 0; i < n.strings; i++) {
		if (strlen(dict__str(d, i)) > DICT_MAX_STRING)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mtr_reader *r;
	const struct event *e;
	int n;

	if (!size)
		return 0;
	r = mtr_reader__open(recording_file(data, size), NULL);
	if (!r)
		return 0;
	if (size % 4 == 0) /* not always: a thread takes time */
		mtr_reader__read_ahead(r, /*least=*/0);
	while ((n = mtr_reader__view(r, 24, &e)) > 0)
		for (int i = 0; i < n; i++)
			check_event(r, &e[i]);
	check_dict(mtr_reader__dict(r));
	mtr_reader__free(r);
	return 0;
}
