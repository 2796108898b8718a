/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* An open folder in memory, for folder.c and for views of a rolling folder. */
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

/* Reads a member that is a number from 0 on. False: o has no such member. */
bool folder__count(const json_t *o, const char *key, uint64_t *ret);
