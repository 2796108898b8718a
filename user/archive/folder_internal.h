/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ARCHIVE_FOLDER_INTERNAL_H
#define MT_ARCHIVE_FOLDER_INTERNAL_H
/* What folder.c (what is in it, and who may change it) and folder_index.c (the file) share. */
#include "archive/folder.h"

struct folder {
	char *path;
	int dir;
	bool known; /* an index was there */
	struct folder_entry *entries;
	size_t n_entries;
	struct folder_gap *gaps;
	size_t n_gaps;
};

bool folder__good_name(const char *file);
/* In memory. 0, -EINVAL, -E2BIG, -ENOMEM. */
int folder__put(struct folder *f, const struct folder_entry *e);
int folder__put_gap(struct folder *f, const struct folder_gap *g);
void folder__sort(struct folder *f);
/* 0 or -errno. */
int folder__lock(struct folder *f, bool on);

/* folder_index.c. The index into memory, in the place of what was there: 0, -ENOENT (nothing
 * changed), -EBADMSG and *why, or -errno. */
int folder__load(struct folder *f, const char **why);
int folder__store(struct folder *f);

#endif
