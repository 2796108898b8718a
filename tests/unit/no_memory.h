/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Makes the n-th allocation fail, for every n of a piece of work, and checks that the work
 * returns -ENOMEM and keeps nothing. The program is linked with --wrap for the functions below
 * (tests/build.mk). Allocations inside libc and other libraries do not fail.
 */
#include "unit/cmocka.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
void __real_free(void *p);

#define NO_MEMORY_LIVE 65536 /* blocks at once */

static struct {
	bool on;
	bool all_later; /* all allocations after the first failing one fail, too */
	/* Set by a test whose work has caches: it may succeed without one, and then checks its
	 * results itself. */
	bool caches;
	size_t left; /* allocations until the first that fails */
	bool failed;
	void *live[NO_MEMORY_LIVE];
	size_t n_live;
} no_memory;

static bool no_memory__fails(void)
{
	if (!no_memory.on)
		return false;
	if (no_memory.failed)
		return no_memory.all_later;
	no_memory.failed = !no_memory.left--;
	return no_memory.failed;
}

static void no_memory__add(void *p)
{
	if (!p || !no_memory.on)
		return;
	assert_true(no_memory.n_live < NO_MEMORY_LIVE);
	no_memory.live[no_memory.n_live++] = p;
}

static void no_memory__remove(void *p)
{
	for (size_t i = no_memory.n_live; p && i-- > 0;) {
		if (no_memory.live[i] == p) {
			no_memory.live[i] = no_memory.live[--no_memory.n_live];
			return;
		}
	}
}

static void *no_memory__none(void)
{
	errno = ENOMEM;
	return NULL;
}

void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	void *p = no_memory__fails() ? no_memory__none() : __real_malloc(size);

	no_memory__add(p);
	return p;
}

void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	void *p = no_memory__fails() ? no_memory__none() : __real_calloc(n, size);

	no_memory__add(p);
	return p;
}

void *__wrap_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	/* A block that shrinks stays in its place: that does not fail. */
	bool grows = !p || n * size > malloc_usable_size(p);
	void *bigger = grows && no_memory__fails() ? no_memory__none()
						   : __real_reallocarray(p, n, size);

	if (bigger) {
		no_memory__remove(p);
		no_memory__add(bigger);
	}
	return bigger;
}

void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	return __wrap_reallocarray(p, 1, size);
}

char *__wrap_strdup(const char *s);
char *__wrap_strdup(const char *s)
{
	size_t size = strlen(s) + 1;
	char *p = __wrap_malloc(size);

	return p ? memcpy(p, s, size) : NULL;
}

char *__wrap_strndup(const char *s, size_t most);
char *__wrap_strndup(const char *s, size_t most)
{
	size_t len = strnlen(s, most);
	char *p = __wrap_malloc(len + 1);

	if (!p)
		return NULL;
	p[len] = '\0';
	return memcpy(p, s, len);
}

void __wrap_free(void *p);
void __wrap_free(void *p)
{
	no_memory__remove(p);
	__real_free(p);
}

/*
 * Runs work(ctx) once for each allocation that it makes, with that one failing, then with that one
 * and all later ones failing. work() returns 0 or -errno and frees what it made. Returns the number
 * of allocations.
 */
static size_t no_memory__try(int (*work)(void *ctx), void *ctx)
{
	size_t n;
	int err;

	for (n = 0;; n++) {
		for (int all = 0; all < 2; all++) {
			no_memory.on = true;
			no_memory.all_later = all;
			no_memory.left = n;
			no_memory.failed = false;
			no_memory.n_live = 0;
			err = work(ctx);
			no_memory.on = false;
			if (no_memory.n_live)
				fail_msg("%zu blocks are left when allocation %zu fails",
					 no_memory.n_live, n);
			if (no_memory.failed && err != -ENOMEM && !(no_memory.caches && !err))
				fail_msg("%d is returned when allocation %zu fails", err, n);
			if (!no_memory.failed)
				assert_int_equal(err, 0);
		}
		if (!no_memory.failed)
			return n;
	}
}
