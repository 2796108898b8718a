/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Copies of tensors in the variables of a failed allocation's frames (bpf/oom.bpf.h), on saved
 * stacks of all CPythons. Variables of these stacks are replaced by tensors made here. */
#include "unit/cmocka.h"

#include <stdio.h>

#include "bpf_host.h"
#include "walk_image.h"

static const char *const images[] = { "3.8",  "3.9",  "3.10",  "3.11", "3.12",
				      "3.13", "3.14", "3.14t", "3.15" };
#define NR_IMAGES (sizeof(images) / sizeof(images[0]))

#define WORLD 0x600000000000ULL
#define OBJECT (WORLD + 0x100)
#define CELL (WORLD + 0x200)
#define IMPL (WORLD + 0x400)
#define STORAGE (WORLD + 0x600)
#define SIZES (WORLD + 0x680)
#define TUPLE (WORLD + 0x700)
#define CLASS(i) (WORLD + 0x1000 + 0x400 * (i)) /* 0: the object's class; 2: TensorBase; 3: cell */
#define NAME(i) (CLASS(i) + 0x300)
#define N_CLASSES 4

static uint8_t world[0x3000], file[1 << 16];

/* The frames of the saved stack, innermost first. */
static struct {
	uint64_t code, self; /* self: object that is variable 0, 0: unknown */
	int at;
} frame[MT_MAX_FRAMES];
static size_t frames;

static void put(uint64_t addr, uint64_t v)
{
	const struct host_region *r = host_find(addr);

	if (!r) {
		uint8_t *page = image_page(addr, true);

		assert_non_null(page);
		host_add(addr & ~(uint64_t)(IMAGE_PAGE - 1), IMAGE_PAGE, page);
		r = host_find(addr);
	}
	memcpy(r->data + (addr - r->addr), &v, sizeof(v));
}

static void read_frames_of(const char *version)
{
	char path[64], line[256];
	unsigned long addr;
	FILE *f;

	frames = 0;
	snprintf(path, sizeof(path), "tests/data/walk-%s.txt", version);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "self %lx", &addr) == 1) {
			frame[frames - 1].self = addr;
			continue;
		}
		frame[frames].self = 0;
		assert_int_equal(sscanf(line, "%lx %d", &addr, &frame[frames].at), 2);
		frame[frames++].code = addr;
	}
	fclose(f);
}

static void make_class(unsigned i, const char *name, unsigned base)
{
	put(CLASS(i) + py.tp_name, NAME(i));
	put(CLASS(i) + py.tp_base, base ? CLASS(base) : 0);
	memcpy(world + (NAME(i) - WORLD), name, strlen(name) + 1);
}

/* Loads a saved stack, and makes a tensor. flagged: its object as in PyTorch 2.0 to 2.9. */
static void load(const char *version, bool flagged)
{
	char path[64];
	size_t size;
	FILE *f;

	snprintf(path, sizeof(path), "tests/fuzz/corpus/walk/python-%s", version);
	f = fopen(path, "r");
	assert_non_null(f);
	size = fread(file, 1, sizeof(file), f);
	fclose(f);
	assert_int_equal(image_load(file, size), size);
	read_frames_of(version);
	memset(world, 0, sizeof(world));
	host_add(WORLD, sizeof(world), world);
	make_class(0, "Parameter", 1);
	make_class(1, "Tensor", 2);
	make_class(2, "torch._C.TensorBase", 0);
	make_class(3, "cell", 0);
	put(OBJECT + py.ob_type, CLASS(0));
	put(OBJECT + py.ob_type + 8, flagged ? 1 : IMPL);
	put(OBJECT + py.ob_type + 16, flagged ? IMPL : 0);
	put(CELL + py.ob_type, CLASS(3));
	put(CELL + py.ob_type + 8, OBJECT);
	for (size_t i = 0; i < MT_TENSOR_IMPL; i += 8)
		put(IMPL + i, 0x100 + i);
	put(IMPL + 16, flagged ? 1 : STORAGE);
	put(IMPL + 24, STORAGE);
	put(IMPL + 56, OBJECT | 1); /* with flags of PyTorch's own */
	put(IMPL + 64, 6);
	put(IMPL + 72, SIZES);
	for (size_t i = 0; i < MT_TENSOR_SIZES; i++)
		put(SIZES + 8 * i, 7 + i);
	for (size_t i = 0; i < MT_TENSOR_STORAGE; i += 8)
		put(STORAGE + i, 0x200 + i);
	put(TUPLE + py.ob_size, 1);
	if (py.type_cell) /* for variables that are in cells already */
		put(py.type_cell + py.tp_name, NAME(3));
	for (size_t i = 0; i < frames; i++)
		put(frame[i].code + py.code_names, TUPLE);
}

/* Puts an object in place of the variables that have `was`. */
static void replace(uint64_t was, uint64_t object)
{
	size_t n = 0;

	for (size_t p = 0; p < image.n; p++) {
		for (size_t i = 0; i + 8 <= IMAGE_PAGE; i += 8) {
			uint64_t word;

			memcpy(&word, image.pages[p] + i, sizeof(word));
			if ((word & py.tag_mask) != was || !word)
				continue;
			word = object | (word & ~py.tag_mask);
			memcpy(image.pages[p] + i, &word, sizeof(word));
			n++;
		}
	}
	assert_true(n);
}

/* An out of memory. Returns the number of tensors' records, which are the first ones. */
static size_t run_out(bool sleepable)
{
	struct pt_regs regs = { .di = 512, .si = 512, .dx = 1024, .cx = 1 };
	const struct mt_rec_mem *m;
	size_t n = 0;

	host_drop_records();
	host_run(sleepable ? oom_s : oom, &regs);
	assert_int_equal(host.open, 0);
	assert_true(host.records);
	m = host.record[host.records - 1].data;
	assert_int_equal(m->h.type, MT_REC_OOM);
	while (((const struct mt_hdr *)host.record[n].data)->type == MT_REC_TENSOR) {
		assert_int_equal(host.record[n].len, sizeof(struct mt_rec_tensor));
		assert_int_equal(((const struct mt_hdr *)host.record[n].data)->time, m->h.time);
		n++;
	}
	return n;
}

static void check_copy(const struct mt_rec_tensor *r)
{
	assert_true(r->depth < frames && r->number == 0);
	assert_int_equal(r->code, frame[r->depth].code);
	assert_int_equal(r->at, frame[r->depth].at);
	assert_int_equal(r->object, OBJECT);
	assert_int_equal(r->impl_at, IMPL);
	assert_int_equal(r->storage_at, STORAGE);
	assert_memory_equal(r->impl, world + (IMPL - WORLD), MT_TENSOR_IMPL);
	assert_memory_equal(r->storage, world + (STORAGE - WORLD), MT_TENSOR_STORAGE);
	assert_memory_equal(r->sizes, world + (SIZES - WORLD), sizeof(r->sizes));
}

/* True if the n-th frame's variable 0 is among the records. */
static bool has_frame(size_t n, size_t tensors)
{
	for (size_t i = 0; i < tensors; i++)
		if (((const struct mt_rec_tensor *)host.record[i].data)->depth == n)
			return true;
	return false;
}

static void every_cpython(void **state)
{
	for (size_t i = 0; i < 4 * NR_IMAGES; i++) {
		bool in_cell = i / NR_IMAGES & 1;
		size_t n, found = 0;

		load(images[i % NR_IMAGES], i / NR_IMAGES & 2);
		assert_int_equal(run_out(false), 0);
		for (size_t k = 0; k < frames; k++)
			if (frame[k].self)
				replace(frame[k].self, in_cell ? CELL : OBJECT);
		n = run_out(i & 1);
		for (size_t k = 0; k < n; k++)
			check_copy(host.record[k].data);
		for (size_t k = 0; k < frames; k++) {
			/* A variable that was in a cell has a cell in a cell now. */
			if (frame[k].self && !in_cell && !has_frame(k, n))
				fail_msg("%s: frame %zu of %zu, %zu tensors", images[i % NR_IMAGES],
					 k, frames, n);
			found += frame[k].self != 0;
		}
		assert_true(found >= 2 && n);
	}
}

static void other_objects(void **state)
{
	static const char *const names[] = { "torch._C.TensorBas", "torch._C.TensorBase2",
					     "torch_C.TensorBase", "TensorBase", "" };

	load("3.12", false);
	for (size_t k = 0; k < frames; k++)
		if (frame[k].self)
			replace(frame[k].self, OBJECT);
	assert_true(run_out(false));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		memset(world + (NAME(2) - WORLD), 0, 32);
		memcpy(world + (NAME(2) - WORLD), names[i], strlen(names[i]));
		assert_int_equal(run_out(false), 0);
	}
	make_class(2, "torch._C._TensorBase", 0);
	assert_true(run_out(false));
	/* classes in a circle */
	make_class(2, "Tensor", 0);
	put(CLASS(2) + py.tp_base, CLASS(1));
	assert_int_equal(run_out(false), 0);
	make_class(2, "torch._C.TensorBase", 0);
	/* no names: no variables */
	put(TUPLE + py.ob_size, 0);
	assert_int_equal(run_out(false), 0);
	put(TUPLE + py.ob_size, UINT64_MAX);
	assert_true(run_out(false) <= MT_LOCAL_TENSORS);
	/* unreadable copies are zeros */
	put(TUPLE + py.ob_size, 1);
	put(OBJECT + py.ob_type + 8, 0x5000);
	assert_true(run_out(false));
	for (size_t i = 0; i < MT_TENSOR_IMPL; i++)
		assert_int_equal(((const struct mt_rec_tensor *)host.record[0].data)->impl[i], 0);
}

/* A full ring loses the tensors, and counts them. */
static void full_ring(void **state)
{
	uint32_t zero = 0;
	const struct counters *c;

	load("3.13", false);
	for (size_t k = 0; k < frames; k++)
		if (frame[k].self)
			replace(frame[k].self, OBJECT);
	host_drop_records();
	host.room = 1;
	host_run(oom, &(struct pt_regs){ .di = 512, .cx = 1 });
	c = bpf_map_lookup_elem(&counters, &zero);
	assert_true(c->c[MT_CNT_HIT + MT_REC_TENSOR] >= 2);
	assert_int_equal(c->c[MT_CNT_RING_LOST + MT_REC_TENSOR],
			 c->c[MT_CNT_HIT + MT_REC_TENSOR] - 1);
	assert_int_equal(c->c[MT_CNT_RING_LOST + MT_REC_OOM], 1);
	assert_int_equal(scratch_claim()->number, 0); /* none is left claimed */
}

/* While other tasks use all scratch memory, the tensors are lost, and count as one record. */
static void no_scratch(void **state)
{
	struct scratch *claimed[MT_SCRATCH_SLOTS];
	uint32_t zero = 0;
	const struct counters *c;
	size_t n = 0;

	load("3.13", false);
	for (size_t k = 0; k < frames; k++)
		if (frame[k].self)
			replace(frame[k].self, OBJECT);
	while (n < MT_SCRATCH_SLOTS && (claimed[n] = scratch_claim()))
		n++;
	assert_true(n);
	assert_int_equal(run_out(false), 0);
	c = bpf_map_lookup_elem(&counters, &zero);
	assert_int_equal(c->c[MT_CNT_HIT + MT_REC_TENSOR], 1);
	assert_int_equal(c->c[MT_CNT_RING_LOST + MT_REC_TENSOR], 1);
	assert_int_equal(c->c[MT_CNT_WALK + MT_WALK_BUSY], 1);
	while (n)
		release_word(&claimed[--n]->busy);
	assert_true(run_out(false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cpython),
		cmocka_unit_test(other_objects),
		cmocka_unit_test(full_ring),
		cmocka_unit_test(no_scratch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
