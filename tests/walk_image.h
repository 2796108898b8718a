/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef TESTS_WALK_IMAGE_H
#define TESTS_WALK_IMAGE_H
/*
 * Saved memory of a thread's Python stack, for the walk over it in user space. After the head come pieces: address (8
 * bytes), length (2), bytes; one of length 0 ends them. All little-endian. Loaded as the whole pages that they lie on, zeros
 * elsewhere, since that is what a process has. For inclusion after bpf_host.h.
 */
#include "capture/attach.h"
#include "target/pyinternal.h"

#define IMAGE_PAGE 4096u
#define IMAGE_PAGES 128

struct image_head {
	uint8_t minor, indirect;
	uint8_t pad[6];
	int64_t off1, off2; /* struct pyslot */
	uint64_t thread;    /* the thread pointer */
	uint64_t type_cell;
	uint64_t module_code[MT_MAX_MODULE_CODES];
};

static struct {
	uint8_t pages[IMAGE_PAGES][IMAGE_PAGE];
	size_t n;
	uint64_t addr[IMAGE_PAGES];
} image;

/* The page of an address, made where there is none; NULL where there is no room. */
static uint8_t *image_page(uint64_t addr)
{
	uint64_t base = addr & ~(uint64_t)(IMAGE_PAGE - 1);

	for (size_t i = 0; i < image.n; i++) {
		if (image.addr[i] == base)
			return image.pages[i];
	}
	if (image.n == IMAGE_PAGES || base > UINT64_MAX - IMAGE_PAGE)
		return NULL;
	memset(image.pages[image.n], 0, IMAGE_PAGE);
	image.addr[image.n] = base;
	host_add(base, IMAGE_PAGE, image.pages[image.n]);
	return image.pages[image.n++];
}

static void image_piece(uint64_t addr, const uint8_t *data, size_t len)
{
	uint8_t *page;

	for (size_t i = 0; i < len; i++) {
		page = image_page(addr + i);
		if (page)
			page[(addr + i) % IMAGE_PAGE] = data[i];
	}
}

/* The programs' constants for an interpreter, as user space makes them. */
static struct mt_py_layout image_layout(const struct pylayout *l, struct pyslot slot, uint64_t type_cell)
{
	struct python python = { .layout = *l };
	struct target t = { .python = &python, .has_slot = true, .slot = slot };
	struct mt_py_layout k = target__layout(&t);

	k.type_cell = type_cell;
	return k;
}

/* The host is reset and has the image. Bytes of the file that were its, 0: it is none. */
static inline size_t image_load(const uint8_t *data, size_t size)
{
	struct mt_py_layout layout;
	const struct pylayout *l;
	struct image_head h;
	size_t at = sizeof(h), len;
	uint64_t addr;

	host_reset();
	image.n = 0;
	if (size < sizeof(h))
		return 0;
	memcpy(&h, data, sizeof(h));
	l = pylayout__find(3, h.minor);
	if (!l)
		return 0;
	layout = image_layout(l, (struct pyslot){ h.indirect & 1, h.off1, h.off2 }, h.type_cell);
	memcpy((void *)&py, &layout, sizeof(py));
	memcpy(module_code, h.module_code, sizeof(module_code));
	host.task.thread.fsbase = h.thread;
	while (size - at >= 10) {
		memcpy(&addr, data + at, 8);
		len = (size_t)data[at + 8] | (size_t)data[at + 9] << 8;
		at += 10;
		if (!len)
			break;
		if (len > size - at)
			len = size - at;
		image_piece(addr, data + at, len);
		at += len;
	}
	return at;
}

#endif
