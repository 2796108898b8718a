/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A thread's saved Python stack, for running the kernel side's walk in user space: a head, then
 * saved memory (image_memory.h). Include after bpf_host.h.
 */
#include "capture/target.h"
#include "image_memory.h"
#include "inspect/python/pyinternal.h"

struct image_head {
	uint8_t minor, slot, free_threaded;
	uint8_t pad[5];
	int64_t off1, off2; /* struct pyslot, with slot */
	uint64_t thread;    /* thread pointer */
	uint64_t type_cell;
	uint64_t module_code[MT_MAX_MODULE_CODES];
};

/* The programs' constants for an interpreter, as in user/capture. */
static struct mt_py_layout image_layout(const struct pylayout *l, struct pyslot slot,
					uint64_t type_cell)
{
	struct python python = { .layout = *l };
	struct target t = { .python = &python, .has_slot = true, .slot = slot };
	struct mt_py_layout k = target__layout(&t);

	k.type_cell = type_cell;
	return k;
}

/* Resets the host and loads the image. Returns the image's length in bytes; 0: invalid. */
static inline size_t image_load(const uint8_t *data, size_t size)
{
	struct mt_py_layout layout;
	const struct pylayout *l;
	struct image_head h;
	size_t at;

	host_reset();
	image_clear();
	if (size < sizeof(h))
		return 0;
	memcpy(&h, data, sizeof(h));
	l = pylayout__find(3, h.minor, h.free_threaded);
	if (!l)
		return 0;
	layout = image_layout(l, (struct pyslot){ h.slot % 3, h.off1, h.off2 }, h.type_cell);
	memcpy((void *)&py, &layout, sizeof(py));
	memcpy(module_code, h.module_code, sizeof(module_code));
	host.task.thread.fsbase = h.thread;
	at = sizeof(h) + image_parse(data + sizeof(h), size - sizeof(h));
	for (size_t i = 0; i < image.n && i < HOST_REGIONS; i++)
		host_add(image.addr[i], IMAGE_PAGE, image.pages[i]);
	return at;
}
