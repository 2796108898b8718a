/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIVE_SAVE_H
#define MT_LIVE_SAVE_H
/*
 * What a live view keeps of a process's stream, in bounded memory: the last of it, and what was
 * live before that. It becomes a recording when the person says so, in the current folder. And what
 * exports that, in a process of its own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "record/stream.h"

struct dict;
struct facts;
struct live_save;

/* Borrows dict and facts, which must outlive it. bytes: of events kept, 64 KiB at least. NULL on
 * ENOMEM. */
struct live_save *live_save__new(pid_t pid, struct dict *dict, const struct facts *facts,
				 uint64_t bytes);
void live_save__free(struct live_save *s); /* NULL is fine */
/* What the stream goes to. An error is the save's alone: nothing is kept any more, and
 * live_save__write() says so. */
struct sink *live_save__sink(struct live_save *s);
/* Writes a file. say: what came of it, for people. 0 or negative. */
int live_save__write(struct live_save *s, char *say, size_t size);
const char *live_save__last(
	const struct live_save *s); /* the file that was written last; "": none */

struct live_export {
	pid_t pid; /* 0: none is under way */
	int fd;	   /* readable when it has ended */
};
/*
 * Begins to export a recording, with less haste and with fewer rights than ours; what it says goes
 * to standard error. 0 or -errno.
 */
int live_export__begin(struct live_export *x, const char *path, const char *format);
/* It has ended, or is to (kill): true if it came to its end. */
bool live_export__end(struct live_export *x, bool kill_it);

#endif
