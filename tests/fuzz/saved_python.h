/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Saved memory of CPython 3.8 to 3.13 (tests/data/objects-3.N.bin) instead of a process's. For
 * inclusion in one file of a program linked with
 * --wrap=process_vm_readv,--wrap=poll,--wrap=python__symbol,--wrap=pymem__init.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fake_process.h"
#include "image_memory.h"
#include "inspect/proc.h"
#include "object_readers.h"

uint64_t __wrap_python__symbol(const struct python *py, const char *name);
void __real_pymem__init(struct pymem *m, const struct python *py, bool paging);
void __wrap_pymem__init(struct pymem *m, const struct python *py, bool paging);

#define SAVED_FIRST 8
#define SAVED_IMAGES 6
#define SAVED_MAX (1 << 17)

static struct {
	struct {
		uint8_t bytes[SAVED_MAX];
		size_t size;
	} files[SAVED_IMAGES];
	struct object_head head;
	struct proc *self;
	int loaded; /* 1 + index of the loaded image */
	bool pages;
} saved;

static size_t fake_memory(void *dst, size_t size, uint64_t addr)
{
	return image_read(dst, size, addr);
}

uint64_t __wrap_python__symbol(const struct python *py, const char *name)
{
	for (size_t i = 0; i < SYMBOLS; i++) {
		if (!strcmp(symbol_names[i], name))
			return saved.head.symbol[i];
	}
	return 0;
}

/* No paging: it gives equal results at a tenth of the speed. */
void __wrap_pymem__init(struct pymem *m, const struct python *py, bool paging)
{
	__real_pymem__init(m, py, paging && saved.pages);
}

/* Returns 0, or ends the process on errors. */
static int saved__init(void)
{
	char path[64];
	FILE *f;

	for (int i = 0; i < SAVED_IMAGES; i++) {
		snprintf(path, sizeof(path), "tests/data/objects-3.%d.bin", SAVED_FIRST + i);
		f = fopen(path, "r");
		if (!f) {
			fprintf(stderr, "%s is not here: run it at the top of the tree\n", path);
			exit(1);
		}
		saved.files[i].size = fread(saved.files[i].bytes, 1, SAVED_MAX, f);
		fclose(f);
	}
	saved.self = proc__open(getpid());
	if (!saved.self)
		exit(1);
	return 0;
}

/* Loads the interpreter that a byte chooses; restores damaged memory. */
static void saved__load(uint8_t which, struct python *py)
{
	int i = which % SAVED_IMAGES;

	saved.pages = which > 0xf0;
	if (saved.loaded != i + 1) {
		image_clear();
		memcpy(&saved.head, saved.files[i].bytes, sizeof(saved.head));
		image_parse(saved.files[i].bytes + sizeof(saved.head),
			    saved.files[i].size - sizeof(saved.head));
		saved.loaded = i + 1;
	}
	*py = (struct python){ .proc = saved.self,
			       .major = 3,
			       .nr_files = 1,
			       .file = { { .path = (char *)"python" } } };
	py->minor = saved.head.minor;
	py->runtime = saved.head.runtime;
	py->layout = *pylayout__find(3, saved.head.minor, false);
}
