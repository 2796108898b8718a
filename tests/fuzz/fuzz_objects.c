/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the readers of Python objects on damaged memory of CPython 3.8 to 3.13
 * (tests/data/objects-3.N.bin). The input: image, reader, then steps of 8 bytes that overwrite a
 * word: piece, offset, value. Few words make cycles of threads, huge dicts and names, and modules
 * that contain themselves.
 */
#include "saved_python.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define MAX_STEPS 64

static struct {
	uint8_t *at;
	uint64_t was;
} undo[MAX_STEPS];
static size_t n_undo;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	return saved__init();
}

static uint64_t value(const uint8_t *d)
{
	const struct image_piece *p = &image.piece[(d[0] | (size_t)d[1] << 8) % image.n_pieces];

	if (d[3] & 0x80) /* a pointer to another place in the image */
		return p->addr + (d[2] & 0x7f) % p->len;
	return ((uint64_t)d[0] | (uint64_t)d[1] << 8 | (uint64_t)d[2] << 16) << (d[3] & 0x3f);
}

static void damage(const uint8_t *d)
{
	const struct image_piece *p = &image.piece[(d[0] | (size_t)d[1] << 8) % image.n_pieces];
	uint64_t at = p->addr + ((d[2] | (uint64_t)(d[3] & 0x3f) << 8) % p->len), v = value(d + 4);
	size_t len = d[3] & 0x80 ? 1 : d[3] & 0x40 ? 4 : 8;
	uint8_t *page;

	at -= at % len;
	page = image_page(at, false);
	if (!page)
		return;
	undo[n_undo].at = page + at % IMAGE_PAGE / 8 * 8;
	memcpy(&undo[n_undo].was, undo[n_undo].at, 8);
	n_undo++;
	memcpy(page + at % IMAGE_PAGE, &v, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *why = "";
	struct python py;
	unsigned what;

	if (size < 2)
		return 0;
	saved__load(data[0], &py);
	what = data[1] % (saved.head.n_roots + 2u);
	for (size_t i = 2; i + 8 <= size && n_undo < MAX_STEPS; i += 8)
		damage(data + i);
	if (what < saved.head.n_roots) {
		read_object(&py, saved.head.root[what].kind, saved.head.root[what].addr);
	} else if (what == saved.head.n_roots) {
		if (python__cross_check(&py, &why) && !why[0])
			abort();
		read_interpreter(&py);
	} else {
		read_locals(&py);
	}
	while (n_undo) {
		n_undo--;
		memcpy(undo[n_undo].at, &undo[n_undo].was, 8);
	}
	return 0;
}
