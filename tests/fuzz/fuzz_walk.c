/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the kernel side's programs in user space, on hostile memory. The input is an
 * image (tests/walk_image.h), then steps of 8 bytes: damage, or a probe hit. At the end, both
 * programs for allocations run, and that for an out of memory.
 */

#include "bpf_host.h"
#include "walk_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_STEPS 64
#define MAX_READS (6 * MT_MAX_VISIT + 2 * MT_MODULE_DEPTH) /* reads of memory per hit */
/* The same for an out of memory, which looks at variables, too. */
#define MAX_OOM_READS (MAX_READS + (3 * TYPE_BASES + 10) * MT_LOCAL_LOOKS)

static const struct {
	int (*run)(struct pt_regs *);
} programs[] = {
	{ report },	   { report_s },    { oom },	     { oom_s },	      { cpu_new },
	{ cpu_new_s },	   { cpu_delete },  { scope_end },   { scope_end_s }, { module_call },
	{ module_bound },  { code_gone },   { evaluate },    { edge },	      { edge_s },
	{ call_enter },	   { call_return }, { set_device },  { asked },	      { malloc_enter },
	{ malloc_return }, { malloc_free }, { scope_begin }, { range_push },  { range_pop },
	{ usdt_scope },
};
#define NR_PROGRAMS (sizeof(programs) / sizeof(programs[0]))

static void check_stack(const struct mt_rec_stack *s, size_t len)
{
	const struct mt_frame *f = (const struct mt_frame *)(s + 1);
	size_t frames = 0;

	if (len < sizeof(*s) || !s->n || s->n > MT_MAX_ENTRIES ||
	    len != sizeof(*s) + s->n * sizeof(*f))
		abort();
	if (s->stack < MT_STACK_WALKS || (s->stack & (MT_STACK_WALKS - 1)) != s->h.walk)
		abort();
	for (size_t i = 0; i < s->n; i++) {
		if (f[i].kind == MT_FRAME_CODE)
			frames++;
		else if (f[i].kind != MT_FRAME_MODULE || !i || f[i - 1].kind != MT_FRAME_CODE)
			abort();
	}
	if (frames > MT_MAX_FRAMES || (s->h.walk == MT_WALK_OK && !frames))
		abort();
}

static void check_record(const struct host_record *r)
{
	static const size_t sizes[] = {
		[MT_REC_REPORT] = sizeof(struct mt_rec_mem),
		[MT_REC_OOM] = sizeof(struct mt_rec_mem),
		[MT_REC_CPU_NEW] = sizeof(struct mt_rec_mem),
		[MT_REC_CPU_DELETE] = sizeof(struct mt_rec_free),
		[MT_REC_CODE_GONE] = sizeof(struct mt_rec_gone),
		[MT_REC_SCOPE_END] = sizeof(struct mt_rec_mark),
		[MT_REC_SCOPE] = sizeof(struct mt_rec_scope),
		[MT_REC_MODULE_CALL] = sizeof(struct mt_rec_enter),
		[MT_REC_CUDA_CALL] = sizeof(struct mt_rec_call),
		[MT_REC_REQUESTED] = sizeof(struct mt_rec_asked),
		[MT_REC_SET_DEVICE] = sizeof(struct mt_rec_call),
		[MT_REC_EDGE] = sizeof(struct mt_rec_node),
		[MT_REC_NODE] = sizeof(struct mt_rec_node),
		[MT_REC_MALLOC] = sizeof(struct mt_rec_malloc),
		[MT_REC_MALLOC_FREE] = sizeof(struct mt_rec_free),
		[MT_REC_MODULE_LEAVE] = sizeof(struct mt_rec_leave),
		[MT_REC_TENSOR] = sizeof(struct mt_rec_tensor),
		[MT_REC_STACK] = 0,
	};
	const struct mt_hdr *h = r->data;

	if (r->len < sizeof(*h) || h->walk >= MT_WALK_NR || h->sleepable > 1 ||
	    h->node > MT_NODE_UNKNOWN)
		abort();
	if (h->type == MT_REC_STACK)
		check_stack(r->data, r->len);
	else if (h->type >= sizeof(sizes) / sizeof(sizes[0]) || r->len != sizes[h->type])
		abort();
}

static void hit(size_t which, struct pt_regs *regs)
{
	size_t records = host.records, reads = host.reads;

	bool failed = programs[which].run == oom || programs[which].run == oom_s;

	if (host_run(programs[which].run, regs) || host.open ||
	    host.records > records + 5 + (failed ? MT_LOCAL_TENSORS : 0) ||
	    host.reads - reads > (failed ? MAX_OOM_READS : MAX_READS))
		abort();
	for (size_t i = records; i < host.records; i++)
		check_record(&host.record[i]);
}

/* An address in the image, or an arbitrary value. */
static uint64_t value(const uint8_t *d)
{
	if (image.n && d[0] & 0x80)
		return image.addr[(d[0] & 0x7f) % image.n] +
		       ((d[1] | (uint64_t)d[2] << 8) & 0xff8) + (d[2] >> 6);
	return ((uint64_t)d[0] | (uint64_t)d[1] << 8) << (d[2] & 0x3f);
}

static void step(const uint8_t *d, struct pt_regs *regs)
{
	uint64_t v = value(d + 4);
	size_t page = host.regions ? d[1] % host.regions : 0;

	switch (d[0] & 7) {
	case 0:
	case 1:
	case 2:
		if (host.regions)
			memcpy(image.pages[page] + ((d[2] | d[3] << 8) & 0xff8), &v, sizeof(v));
		break;
	case 3:
		if (host.regions)
			host.region[page].absent = d[2] & 1;
		break;
	case 4:
		((unsigned long *)regs)[d[1] % (sizeof(*regs) / sizeof(long))] = v;
		break;
	case 5:
		host.task.thread.fsbase = v;
		host_trampoline = d[2] & 1 ? value(d + 5) : 0;
		modules = d[3] & 1;
		host.room = d[3] & 2 ? d[3] >> 2 : HOST_RECORDS / 2;
		break;
	case 6:
		node_layout = (struct mt_node_layout){ d[1], v, d[2], d[3] };
		asked_args[d[1] % MT_ASKED_SITES].arg[d[2] % MT_ASKED_ARGS] = (struct mt_usdt_arg){
			d[3] % sizeof(*regs) & ~7u, 1u << (d[4] & 3), d[5] & 1, (int32_t)v
		};
		break;
	case 7:
		host.cookie = d[4] ? v : MT_CALL_COOKIE(d[2], d[3] & 0x1f);
		hit(d[1] % NR_PROGRAMS, regs);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pt_regs regs = { .di = 0x1000, .si = 512, .dx = 512 };
	size_t at = image_load(data, size);

	if (!at)
		return 0;
	regs.sp = host.task.thread.fsbase;
	malloc_every = 1 << 10;
	for (size_t n = 0; n < MAX_STEPS && size - at >= 8; n++, at += 8)
		step(data + at, &regs);
	regs.si = 512;
	hit(0, &regs);
	hit(1, &regs);
	hit(2, &regs);
	host_drop_records();
	return 0;
}
