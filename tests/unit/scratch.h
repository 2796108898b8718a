/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Temporary folders of tests. */
#include <ftw.h>
#include <stdio.h>

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
