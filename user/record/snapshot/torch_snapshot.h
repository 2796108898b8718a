/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads a PyTorch memory snapshot as the events of a recording: docs/guide/snapshots.md. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct torch_snapshot;

/* True if a file that begins with these bytes may be a snapshot: a pickle, JSON, or compressed. */
bool torch_snapshot__is(const uint8_t *first, size_t n);
/* Reads a whole snapshot, with progress on a terminal. path: for the progress. fd stays the
 * caller's. at: its position for pread(), UINT64_MAX: use read(). size: bytes of the file for the
 * progress; 0: not known. first, n: its first bytes, already read. Adds to d and f, which must
 * outlive the snapshot. Returns 0 and *ret, or -errno; -EBADMSG sets *why to a static text. */
int torch_snapshot__read(const char *path, int fd, uint64_t at, uint64_t size, const uint8_t *first,
			 size_t n, struct dict *d, struct facts *f, struct torch_snapshot **ret,
			 const char **why);
void torch_snapshot__free(struct torch_snapshot *s); /* NULL is fine */
/* Gets up to `most` events. Returns their number, 0 at the end, or -ENOMEM. */
int torch_snapshot__some(struct torch_snapshot *s, struct event *e, int most);
/* Entries of traces that the events so far are from, and in all. */
uint64_t torch_snapshot__position(const struct torch_snapshot *s);
uint64_t torch_snapshot__size(const struct torch_snapshot *s);
