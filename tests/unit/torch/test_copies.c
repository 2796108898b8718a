/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Tensors from copies that were made when an allocation failed, in the layouts of all PyTorchs. */
#include "unit/cmocka.h"

#include <errno.h>
#include <unistd.h>

#include "fake_tensors.h"
#include "inspect/proc.h"
#include "inspect/pytensor.h"

#define N_LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))
#define GPU_ADDR 0x7f0000001000ULL

static struct pytensors *tensors;
static uint64_t shape[PYTENSOR_DIMS];
static struct pytensor tensor;
static bool known;

static int read_fake(struct fake *f)
{
	struct mt_rec_tensor copy = copy_fake(f);

	return pytensors__of_copy(tensors, &copy, &tensor, shape, &known);
}

/* Makes it a tensor of a GPU. */
static void move_to_gpu(const struct layout *l, struct fake *f, uint8_t index)
{
	uint8_t *device = (uint8_t *)f->impl + l->sizes + 88 + 18;

	memcpy(device, l->flag_first ? (uint8_t[]){ 1, 1, index } : (uint8_t[]){ 1, index, 1 }, 3);
	put(f->storage, l->data, GPU_ADDR);
	put(f->storage, l->data + 24, 1 | index << 8);
}

static void every_layout(void **state)
{
	for (size_t k = 0; k < N_LAYOUTS; k++) {
		const struct layout *l = &layouts[k];
		struct fake *f = &fakes[0];

		make_fake(l, f, 1, &grads[0]); /* float32 [3, 8] */
		assert_int_equal(read_fake(f), 0);
		assert_int_equal(tensor.state, PYTENSOR_OK);
		assert_true(tensor.ndim == 2 && shape[0] == 3 && shape[1] == 8 && known);
		assert_true(tensor.dtype == 6 && tensor.numel == 24 && tensor.size == 96);
		assert_true(tensor.device_type == 0 && tensor.device_index == 0);
		move_to_gpu(l, f, 1);
		assert_int_equal(read_fake(f), 0);
		assert_true(tensor.device_type == 1 && tensor.device_index == 1);
		assert_true(tensor.addr == GPU_ADDR && tensor.size == 96);
		/* a view of the first column, and a storage that is too small for the tensor */
		put(f->impl, l->sizes + 16, 1);
		put(f->impl, l->sizes + 88 + 8, 3);
		assert_int_equal(read_fake(f), 0);
		assert_true(shape[0] == 3 && shape[1] == 1 && tensor.numel == 3 &&
			    tensor.size == 96);
		put(f->storage, l->data + 32, 64);
		assert_int_equal(read_fake(f), 0);
		assert_int_equal(tensor.state, PYTENSOR_NO_STORAGE);
	}
}

static void not_tensors(void **state)
{
	const struct layout *l = &layouts[3];
	struct fake *f = &fakes[0];

	make_fake(l, f, 1, NULL);
	put(f->impl, l->pyobj, at(f->obj) + 16); /* another object's */
	assert_int_equal(read_fake(f), -EBADMSG);
	make_fake(l, f, 1, NULL);
	put(f->impl, l->sizes + 88 + 8, 23); /* not the product of the sizes */
	assert_int_equal(read_fake(f), -EBADMSG);
	make_fake(l, f, 1, NULL);
	put(f->impl, 0, vptr(&storage_type));
	assert_int_equal(read_fake(f), -EBADMSG);
	put(f->impl, 0, 0);
	assert_int_equal(read_fake(f), -EBADMSG);
	make_fake(l, f, 1, NULL);
	put(f->storage, 0, vptr(&tensor_type)); /* no storage */
	assert_int_equal(read_fake(f), 0);
	assert_int_equal(tensor.state, PYTENSOR_NO_STORAGE);
}

/* More sizes than a TensorImpl has room for are a copy of their own. */
static void many_dimensions(void **state)
{
	static const uint64_t sizes[] = { 1, 2, 3, 1, 2, 1, 1, 1 };
	const struct layout *l = &layouts[3];
	struct fake *f = &fakes[0];

	make_fake(l, f, 1, NULL); /* 24 elements */
	memcpy(f->meta, sizes, sizeof(sizes));
	put(f->impl, l->sizes, 10);
	assert_int_equal(read_fake(f), 0);
	assert_true(known && tensor.ndim == 10 && shape[1] == 2 && shape[2] == 3 && shape[4] == 2);
	f->meta[2] = 5;
	assert_int_equal(read_fake(f), 0);
	assert_true(!known && tensor.ndim == 10 && tensor.numel == 24);
	put(f->impl, l->sizes, 8);
	f->meta[2] = 3;
	assert_int_equal(read_fake(f), 0);
	assert_false(known); /* 12 elements */
	f->meta[7] = 2;
	assert_int_equal(read_fake(f), 0);
	assert_true(known);
	memset(f->meta, 0, sizeof(f->meta)); /* could not be read */
	assert_int_equal(read_fake(f), 0);
	assert_false(known);
	put(f->impl, l->sizes, 65);
	assert_int_equal(read_fake(f), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_layout),
		cmocka_unit_test(not_tensors),
		cmocka_unit_test(many_dimensions),
	};
	struct proc *self = proc__open(getpid());
	int failed;

	tensors = self ? pytensors__new(self) : NULL;
	failed = tensors ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
	pytensors__free(tensors);
	proc__free(self);
	return failed;
}
