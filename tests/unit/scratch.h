/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Temporary folders of tests. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int scratch__remove_one(const char *path, const struct stat *st, int type,
				      struct FTW *at)
{
	return remove(path);
}

/* Removes a folder and its files. 0, or -1 with errno. */
static inline int scratch__remove(const char *folder)
{
	return nftw(folder, scratch__remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The folder between scratch__make() and scratch__drop(), setup and teardown of cmocka. */
static inline char *scratch__path(void)
{
	static char path[64];

	return path;
}

static inline int scratch__make(void **state)
{
	strcpy(scratch__path(), "/tmp/memtrace-test-XXXXXX");
	return mkdtemp(scratch__path()) ? 0 : -1;
}

static inline int scratch__drop(void **state)
{
	return scratch__remove(scratch__path());
}

/* Writes a text file; after cmocka's header. */
static inline void scratch__write(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}
