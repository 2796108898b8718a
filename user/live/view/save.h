/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Saving from a live view: keeps the end of a process's stream and the blocks that were live before
 * it, in bounded memory. Writes it as a recording to the current folder on request. Also exports
 * recordings in a separate process.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/subprocess.h"
#include "record/stream.h"

struct dict;
struct facts;
struct live_save;

/* Borrows dict and facts, which must outlive the result. bytes: size of the kept events, at
 * least 64 KiB. NULL: no memory. */
struct live_save *live_save__new(pid_t pid, struct dict *dict, const struct facts *facts,
				 uint64_t bytes);
void live_save__free(struct live_save *s); /* NULL is fine */
/* The sink for the stream's events. It never fails: after an error nothing more is kept, and
 * live_save__write() reports the error. */
struct sink *live_save__sink(struct live_save *s);
/* Writes a recording. say: gets the result as a message. Returns 0 or a negative error. */
int live_save__write(struct live_save *s, char *say, size_t size);
/* Path of the last written file; "": none. */
const char *live_save__last(const struct live_save *s);

/* Starts the export of a recording in a process with low priority and fewer rights. Its messages
 * go to standard error. Returns 0 or -errno. */
int live_save__begin_export(struct subprocess *ret, const char *path, const char *format);
/* Waits for the end of an export; end: ends it first. True: it succeeded. */
bool live_save__end_export(struct subprocess *p, bool end);
