/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds evaluation without torch.no_grad(): calls of the model that keep their activations for a
 * backward that does not run. A recording has the memory of each call. The recorder counts the
 * calls whose forward made no node of autograd: if there are fewer of these than calls that keep
 * their activations, the others made a graph. */
#include "report/advice/internal.h"

/* Calls below which there is no finding: a few may be a warm-up. */
#define LEAST_CALLS 8

/* Counts a call that kept a graph without a backward, when a later call takes its place. Calls
 * under no_grad() do not count: they free intermediate results early, and never have most of them
 * at once. */
static void retire(struct track *t, struct model_call *call)
{
	if (call->number && call->thrown && call->most >= call->allocated / 2) {
		t->thrown.calls++;
		if (call->most > t->thrown.kept) {
			t->thrown.kept = call->most;
			t->thrown.stack = call->stack;
		}
	}
	*call = (struct model_call){ .number = 0 };
}

/* Notes that backward runs. Calls that still have a block, such as the input of a small head, may
 * be its forward: what they freed before was no graph. */
static void begin_backward(struct track *t)
{
	t->backward_call = t->call;
	for (int i = 0; i < CALLS_KEPT; i++)
		if (t->calls[i].live)
			t->calls[i].thrown = false;
}

void thrown_graphs__took(struct track *t, struct ablock *b)
{
	struct model_call *call = &t->calls[t->call % CALLS_KEPT];

	if (b->phase == PHASE_BACKWARD)
		begin_backward(t);
	if (b->phase != PHASE_FORWARD || !t->call)
		return;
	if (call->number != t->call)
		retire(t, call);
	b->call = call->number = t->call;
	call->thrown = false;
	call->allocated += b->size;
	call->live += b->size;
	if (call->live > call->most)
		call->most = call->live;
	if (b->size > call->largest) {
		call->largest = b->size;
		call->stack = b->stack;
	}
}

/* A call is thrown away once it has freed nine tenths of its most memory, and no backward has run
 * since it began. */
void thrown_graphs__freed(struct track *t, const struct ablock *b)
{
	struct model_call *call = &t->calls[b->call % CALLS_KEPT];

	if (!b->call || call->number != b->call)
		return;
	call->live -= b->size;
	if (call->live <= call->most / 10 && call->number > t->backward_call)
		call->thrown = true;
}

/* Returns the calls so far, also those that no later call has replaced yet. */
static struct thrown_graphs count_calls(const struct track *t)
{
	struct track at_end = { .thrown = t->thrown };

	for (int i = 0; i < CALLS_KEPT; i++) {
		struct model_call call = t->calls[i];

		retire(&at_end, &call);
	}
	return at_end.thrown;
}

bool advisor__thrown_graphs(const struct advisor *v, size_t device, struct thrown_graphs *ret)
{
	struct model_device d;
	uint64_t graphless;

	*ret = (struct thrown_graphs){ .calls = 0 };
	model__device(v->model, device, &d);
	for (uint32_t i = 0; i < v->ntracks; i++)
		if (device__same(v->tracks[i]->device, d.device))
			*ret = count_calls(v->tracks[i]);
	return facts__number(v->facts, "counter.autograd.graphless", &graphless) &&
	       ret->calls >= LEAST_CALLS && graphless <= ret->calls / 2;
}
