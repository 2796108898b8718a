/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the readers of Python objects on saved memory of CPython 3.8 to 3.13 (tests/data/objects-3.N.bin), damaged.
 * The input: which image, what to read, then steps of 8 bytes, each a word that is overwritten: which piece, where in it, with
 * what. A threads' list, a dict, a name of a gigabyte, a module that holds itself: all are a few such words away.
 */
#include <stdio.h>
#include <unistd.h>

#include "fake_process.h"
#include "image_memory.h"
#include "object_readers.h"
#include "target/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
uint64_t __wrap_python__symbol(const struct python *py, const char *name);
void __real_pymem__init(struct pymem *m, const struct python *py, bool paging);
void __wrap_pymem__init(struct pymem *m, const struct python *py, bool paging);

#define FIRST 8
#define IMAGES 6
#define MAX_FILE (1 << 17)
#define MAX_STEPS 64

static struct {
	uint8_t bytes[MAX_FILE];
	size_t size;
} files[IMAGES];
static struct object_head head;
static struct proc *self;
static int loaded = -1;
static bool pages;

static struct {
	uint8_t *at;
	uint64_t was;
} undo[MAX_STEPS];
static size_t n_undo;

static size_t fake_memory(void *dst, size_t size, uint64_t addr)
{
	return image_read(dst, size, addr);
}

uint64_t __wrap_python__symbol(const struct python *py, const char *name)
{
	(void)py;
	for (size_t i = 0; i < SYMBOLS; i++) {
		if (!strcmp(symbol_names[i], name))
			return head.symbol[i];
	}
	return 0;
}

/* With pages it is the same at a tenth of the speed. */
void __wrap_pymem__init(struct pymem *m, const struct python *py, bool paging)
{
	__real_pymem__init(m, py, paging && pages);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char path[64];
	FILE *f;

	(void)argc;
	(void)argv;
	for (int i = 0; i < IMAGES; i++) {
		snprintf(path, sizeof(path), "tests/data/objects-3.%d.bin", FIRST + i);
		f = fopen(path, "r");
		if (!f) {
			fprintf(stderr, "%s is not here: run it at the top of the tree\n", path);
			exit(1);
		}
		files[i].size = fread(files[i].bytes, 1, MAX_FILE, f);
		fclose(f);
	}
	self = proc__open(getpid());
	return self ? 0 : 1;
}

static void load(int i)
{
	if (loaded == i)
		return;
	image_clear();
	memcpy(&head, files[i].bytes, sizeof(head));
	image_parse(files[i].bytes + sizeof(head), files[i].size - sizeof(head));
	loaded = i;
}

static uint64_t value(const uint8_t *d)
{
	const struct image_piece *p = &image.piece[(d[0] | (size_t)d[1] << 8) % image.n_pieces];

	if (d[3] & 0x80) /* somewhere else in there */
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
	struct python py = { .proc = self, .major = 3, .nr_files = 1, .file = { { .path = (char *)"python" } } };
	const char *why = "";

	if (size < 2)
		return 0;
	load(data[0] % IMAGES);
	pages = data[0] > 0xf0;
	py.minor = head.minor;
	py.runtime = head.runtime;
	py.layout = *pylayout__find(3, head.minor);
	for (size_t i = 2; i + 8 <= size && n_undo < MAX_STEPS; i += 8)
		damage(data + i);
	if (data[1] % (head.n_roots + 2u) < head.n_roots) {
		read_object(&py, head.root[data[1] % (head.n_roots + 2u)].kind, head.root[data[1] % (head.n_roots + 2u)].addr);
	} else if (data[1] % (head.n_roots + 2u) == head.n_roots) {
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
