/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: decoding of the kernel side's records, on a saved interpreter's memory. Records
 * are well-formed as from the kernel side, but their values are the target's: addresses, ids,
 * stacks, sizes, in any order. The first byte chooses the interpreter. Each record has 16 bytes.
 */

#include "base/log.h"
#include "capture/decode/autograd.h"
#include "capture/decode/code_cache.h"
#include "capture/decode/decoder.h"
#include "capture/decode/modules.h"
#include "capture/decode/symbolizer.h"
#include "capture/probes.h"
#include "capture/session.h"
#include "capture/target.h"
#include "record/dict.h"
#include "saved_python.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* No kernel side: stubs of its functions. */
int __wrap_probes__add_root(struct probes *p, uint32_t number, uint64_t self);
void __wrap_probes__clear_roots(struct probes *p, uint32_t number);
void __wrap_probes__bump_epoch(struct probes *p);
bool __wrap_probes__attached(const struct probes *p, enum hook_id id);
int __wrap_probes__set_module_type(struct probes *p, uint32_t number, uint64_t type,
				   enum mt_module_type is);
void __wrap_probes__set_node_layout(struct probes *p, uint32_t number,
				    const struct mt_node_layout *layout);
uint64_t __wrap_probes__both_until(const struct probes *p);
static unsigned roots;

int __wrap_probes__add_root(struct probes *p, uint32_t number, uint64_t self)
{
	return ++roots % 8 ? 0 : -E2BIG;
}

void __wrap_probes__clear_roots(struct probes *p, uint32_t number)
{
}

void __wrap_probes__bump_epoch(struct probes *p)
{
}

bool __wrap_probes__attached(const struct probes *p, enum hook_id id)
{
	return true;
}

int __wrap_probes__set_module_type(struct probes *p, uint32_t number, uint64_t type,
				   enum mt_module_type is)
{
	return type & 16 ? -E2BIG : 0;
}

void __wrap_probes__set_node_layout(struct probes *p, uint32_t number,
				    const struct mt_node_layout *layout)
{
}

static uint64_t both_until;

uint64_t __wrap_probes__both_until(const struct probes *p)
{
	return both_until;
}

/* Checks what the stream promises its sink. */
static struct decoder *current;

static int on_event(struct sink *sink, const struct event *e)
{
	struct dict_counts n = dict__counts(current->dict);

	if (e->kind < EVENT_ALLOC || e->kind >= EVENT_KINDS || e->stack >= n.stacks ||
	    e->thread >= n.threads || e->module >= n.modules || e->node >= n.nodes ||
	    e->walk >= MT_WALK_NR)
		abort();
	return 0;
}

static uint64_t value(const uint8_t *d)
{
	if (d[0] & 0x80)
		return saved.head.root[(d[0] & 0x7f) % saved.head.n_roots].addr +
		       (d[1] & 0x18) * (d[1] >> 7);
	return ((uint64_t)d[0] | (uint64_t)d[1] << 8 | (uint64_t)d[2] << 16) << (d[3] & 0x3f);
}

static int stack_record(struct decoder *dec, struct mt_hdr h, uint64_t id, const uint8_t *d)
{
	struct {
		struct mt_rec_stack s;
		struct mt_frame f[8];
	} r = { .s = { .h = h, .stack = id, .epoch = d[3] & 7, .n = d[2] & 7 } };
	int err;

	for (size_t i = 0; i < r.s.n; i++)
		r.f[i] = (struct mt_frame){ .addr = value(d + 4 + i % 3 * 4),
					    .at = (int8_t)d[5 + i],
					    .kind = i && d[4 + i] & 1 ? MT_FRAME_MODULE
								      : MT_FRAME_CODE };
	code_cache__read_until(symbolizer__codes(dec->names), d[3] & 7);
	err = symbolizer__prefetch(dec->names, &r.s);
	if (err)
		return err;
	if (d[1] & 0x40)
		code_cache__confirm(symbolizer__codes(dec->names));
	return decoder__record(dec, &r, sizeof(r.s) + r.s.n * sizeof(r.f[0]));
}

/* A copy whose words are all chosen by the 16 bytes. */
static int tensor_record(struct decoder *dec, struct mt_hdr h, const uint8_t *d)
{
	struct mt_rec_tensor r = { .h = h,
				   .epoch = d[3] & 7,
				   .code = value(d + 4),
				   .at = (int8_t)d[12],
				   .depth = d[13] & 3,
				   .number = d[13] >> 2,
				   .object = value(d + 8),
				   .impl_at = d[14] & 7,
				   .storage_at = d[15] };
	uint64_t word = value(d + 8);

	for (size_t i = 0; i + 8 <= sizeof(r.impl); i += 8) {
		word = d[14] & 1 ? word * 0x9e3779b97f4a7c15ull : word;
		memcpy(r.impl + i, &word, sizeof(word));
		memcpy(r.storage + i % sizeof(r.storage), &word, sizeof(word));
	}
	return decoder__record(dec, &r, sizeof(r));
}

static int record(struct decoder *dec, const uint8_t *d)
{
	struct mt_hdr h = { .type = d[0] & 31,
			    .tid = 1000 + (d[1] & 3),
			    .walk = d[1] >> 2 & 7,
			    .node = d[3] % 3,
			    .time = 1000 + d[2] };
	uint64_t a = value(d + 4), b = value(d + 8), id = d[3] & 7 ? 16u * (d[3] & 7) : 0;
	struct mt_rec_scope scope;

	switch (h.type) {
	case MT_REC_STACK:
		return stack_record(dec, h, id, d);
	case MT_REC_CODE_GONE:
		return code_cache__gone(symbolizer__codes(dec->names), a, d[3] & 7)
			       ?: decoder__record(dec, &(struct mt_rec_gone){ h, a, d[3] & 7 },
						  sizeof(struct mt_rec_gone));
	case MT_REC_REPORT:
	case MT_REC_OOM:
	case MT_REC_CPU_NEW:
		return decoder__record(
			dec,
			&(struct mt_rec_mem){ .h = h,
					      .addr = a,
					      .size = (int64_t)b,
					      .allocated = b,
					      .reserved = a,
					      .stack = id,
					      .device = (uint16_t)(d[12] | d[13] << 8) },
			sizeof(struct mt_rec_mem));
	case MT_REC_TENSOR:
		return tensor_record(dec, h, d);
	case MT_REC_CPU_DELETE:
		return decoder__record(dec, &(struct mt_rec_free){ .h = h, .addr = a },
				       sizeof(struct mt_rec_free));
	case MT_REC_MALLOC:
		return decoder__record(dec,
				       &(struct mt_rec_malloc){ .h = h,
								.addr = a,
								.size = b,
								.every = value(d + 12),
								.stack = id,
								.entered = h.time },
				       sizeof(struct mt_rec_malloc));
	case MT_REC_MALLOC_FREE:
		return decoder__record(dec, &(struct mt_rec_free){ .h = h, .addr = a },
				       sizeof(struct mt_rec_free));
	case MT_REC_SCOPE_END:
		return decoder__record(dec, &(struct mt_rec_mark){ .h = h, .stack = id },
				       sizeof(struct mt_rec_mark));
	case MT_REC_SCOPE:
		scope = (struct mt_rec_scope){ .h = h, .source = a, .ends = b & 1 };
		memcpy(scope.name, &id, sizeof(id));
		return decoder__record(dec, &scope, sizeof(scope));
	case MT_REC_MODULE_CALL:
		return decoder__record(dec,
				       &(struct mt_rec_enter){ .h = h,
							       .self = a,
							       .type = b,
							       .stack = id,
							       .sp = value(d + 12),
							       .ret = 1,
							       .depth = d[12],
							       .keep = d[13] & 15 },
				       sizeof(struct mt_rec_enter));
	case MT_REC_MODULE_LEAVE:
		return decoder__record(dec, &(struct mt_rec_leave){ .h = h, .keep = d[12] },
				       sizeof(struct mt_rec_leave));
	case MT_REC_EDGE:
	case MT_REC_NODE:
		return decoder__record(
			dec,
			&(struct mt_rec_node){ .h = h,
					       .node = a,
					       .head = { a, b, value(d + 12), d[12], d[13], b, a },
					       .extra = b,
					       .stack = id },
			sizeof(struct mt_rec_node));
	}
	return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	log__set_level(LOG_ERROR);
	return saved__init();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sink sink = { .event = on_event };
	const struct session_opts opts = { 0 };
	struct target target = { .has_slot = true };
	struct dict *dict;
	struct facts *facts;
	struct decoder *d;
	struct python py;

	if (size < 2)
		return 0;
	saved__load(data[0], &py);
	target.proc = saved.self;
	target.python = &py;
	dict = dict__new();
	facts = facts__new();
	d = dict && facts ? decoder__new(&opts, &target, NULL, dict, facts) : NULL;
	if (!d || modules__open(d) || autograd__attach(d))
		abort();
	d->next = &sink;
	d->same_until = UINT64_MAX;
	both_until = 1000 + data[1];
	current = d;
	for (size_t i = 2; i + 16 <= size && i < 2 + 128 * 16; i += 16) {
		int err = record(d, data + i);

		if (err && err != -EBADMSG && err != -E2BIG)
			abort();
	}
	decoder__free(d);
	facts__free(facts);
	dict__free(dict);
	return 0;
}
