/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Declarations shared by folder.c (contents and changes) and folder_index.c (the file). */
#include <jansson.h>

#include "record/folder.h"

struct folder {
	char *path;
	int dir;
	struct folder_entry *entries;
	size_t n_entries;
	struct folder_gap *gaps;
	size_t n_gaps;
	struct folder_missing *missing;
	size_t n_missing;
};

bool folder__good_name(const char *file);
void folder__sort(struct folder *f);

/* folder_index.c: reads the index and replaces the entries in memory. Returns 0, -ENOENT (nothing
 * changed), -EBADMSG and *why, or another -errno. */
int folder__load(struct folder *f, const char **why);
int folder__store(struct folder *f);
/* Reads a member that is a number from 0 on. False: o has no such member. */
bool folder__count(const json_t *o, const char *key, uint64_t *ret);
