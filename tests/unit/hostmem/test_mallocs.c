/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Where malloc's functions are probed: inspect/hostmem.h. The C library is this program's own. */
#include "unit/cmocka.h"

#include <string.h>
#include <unistd.h>

#include "inspect/elf.h"
#include "inspect/hostmem.h"
#include "inspect/proc.h"

static const struct malloc_site *find(const struct malloc_file *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++)
		if (!strcmp(f->site[i].name, name))
			return &f->site[i];
	return NULL;
}

/* The C library has the functions. */
static void check_library(const struct malloc_file *f)
{
	const struct malloc_site *again = find(f, "realloc"), *product = find(f, "calloc");

	assert_non_null(find(f, "malloc"));
	assert_int_equal(find(f, "malloc")->how, 1);
	assert_int_equal(find(f, "free")->how, 0);
	assert_int_equal(product->how, 1 | 2 << MT_MALLOC_COUNT_AT);
	assert_int_equal(again->how & ~MT_MALLOC_FORWARDS, 2 | MT_MALLOC_OLD);
	assert_true(f->n_own >= 3); /* those three that give blocks */
	assert_null(f->refused);
	assert_false(f->has_new);
}

static void own_library(void **state)
{
	struct proc *p = proc__open(getpid());
	struct maps maps;
	size_t libraries = 0;

	assert_non_null(p);
	assert_int_equal(proc__maps(p, &maps), 0);
	for (size_t i = 0; i < maps.n; i++) {
		const struct map *m = &maps.v[i];
		struct malloc_file f;

		if (!m->x || !m->inode || m->path[0] != '/' || mallocs__look(p, &maps, m, &f) ||
		    !f.elf)
			continue;
		assert_null(strstr(m->path, "ld-linux"));
		if (!strncmp(map__base_name(m->path), "libc.so", 7)) {
			check_library(&f);
			libraries++;
		}
		elf__free(f.elf);
	}
	assert_int_equal(libraries, 1);
	maps__free(&maps);
	proc__free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(own_library) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
