/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Builds tensors in this process in the layouts of several PyTorch versions: Python object,
 * TensorImpl, StorageImpl and AutogradMeta, each with a C++ class name. For inclusion in one file.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "memtrace.h"

/* Offsets measured from PyTorch's headers. */
struct layout {
	const char *versions;
	unsigned cdata, storage, meta, pyobj, sizes, data, string;
	bool flag_first;
};

static const struct layout layouts[] = {
	{ "2.0 to 2.2", 24, 24, 32, 64, 72, 24, 8, true },
	{ "2.3 to 2.5", 24, 16, 24, 56, 64, 16, 8, false },
	{ "2.6 to 2.9", 24, 16, 24, 56, 64, 16, 32, false },
	{ "2.10 to 2.12", 16, 16, 24, 56, 64, 16, 32, false },
	{ "2.13", 16, 16, 24, 48, 56, 16, 32, false },
};

struct cxx_type {
	uint64_t info[2];   /* {vtable, name} */
	uint64_t vtable[4]; /* {offset to top, type information, functions} */
	char name[64];
};

static struct cxx_type tensor_type = { .name = "N3c1010TensorImplE" },
		       storage_type = { .name = "N3c1011StorageImplE" },
		       meta_type = { .name = "N5torch8autograd12AutogradMetaE" },
		       string_type = { .name = "Ss" };

struct fake {
	uint64_t obj[8], impl[40], storage[16], meta[24];
};

#define N_FAKES 24

static uint64_t at(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static uint64_t vptr(struct cxx_type *t)
{
	t->info[1] = at(t->name);
	t->vtable[1] = at(t->info);
	return at(&t->vtable[2]);
}

static void put(void *to, unsigned offset, uint64_t v)
{
	memcpy((uint8_t *)to + offset, &v, sizeof(v));
}

/* A float32 tensor of shape [rows, cols] with a storage of exactly its size. */
static void put_impl(const struct layout *l, struct fake *f, uint64_t rows, uint64_t cols)
{
	uint8_t *after = (uint8_t *)f->impl + l->sizes + 88;
	uint8_t device[3] = { 0, 0xff, 1 };

	put(f->impl, 0, vptr(&tensor_type));
	put(f->impl, l->storage, at(f->storage));
	put(f->impl, l->pyobj, at(f->obj));
	put(f->impl, l->sizes, 2);
	put(f->impl, l->sizes + 8, rows);
	put(f->impl, l->sizes + 16, cols);
	put(f->impl, l->sizes + 48, cols);
	put(f->impl, l->sizes + 56, 1);
	put(after, 0, 0);
	put(after, 8, rows * cols);
	after[16] = 6;
	after[17] = 0;
	if (l->flag_first)
		memcpy(device, (uint8_t[]){ 1, 0, 0xff }, 3);
	memcpy(after + 18, device, 3);
	put(f->storage, 0, vptr(&storage_type));
	put(f->storage, l->data, 0x7f0000000000 + at(f) % 0x10000000);
	/* DataPtr's context, next to its deleter */
	put(f->storage, l->data + 16, 0x7f0000000000 + at(f) % 0x10000000);
	put(f->storage, l->data + 24, 0xff00);
	put(f->storage, l->data + 32, rows * cols * 4);
}

static void make_fake(const struct layout *l, struct fake *f, size_t i, struct fake *grad)
{
	memset(f, 0, sizeof(*f));
	put(f->obj, l->cdata, at(f->impl));
	put_impl(l, f, i + 2, 3 * i + 5);
	if (!grad)
		return;
	put(f->impl, l->meta, at(f->meta));
	put(f->meta, 0, vptr(&meta_type));
	put(f->meta, 8, l->string == 32 ? at(f->meta) + 24 : at(&string_type));
	memset(grad, 0, sizeof(*grad));
	put_impl(l, grad, i + 2, 3 * i + 5);
	put(f->meta, 8 + l->string, i % 3 ? at(grad->impl) : 0);
}

/* A copy of the tensor as the BPF program makes it (bpf/oom.bpf.h). */
__attribute__((unused)) static struct mt_rec_tensor copy_fake(const struct fake *f)
{
	struct mt_rec_tensor r = { .object = at(f->obj),
				   .impl_at = at(f->impl),
				   .storage_at = at(f->storage) };

	memcpy(r.impl, f->impl, sizeof(r.impl));
	memcpy(r.storage, f->storage, sizeof(r.storage));
	memcpy(r.sizes, f->meta, sizeof(r.sizes)); /* any */
	return r;
}

static struct fake fakes[N_FAKES], grads[N_FAKES];
