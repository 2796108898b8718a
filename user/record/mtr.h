/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_MTR_H
#define MT_RECORD_MTR_H
/*
 * The .mtr file: docs/FORMAT.md lays down its bytes. Append-only blocks with length and CRC-32C,
 * written without seeking, readable up to the last whole block whatever happened to the writer.
 */
#include <stdbool.h>
#include <stdint.h>

#include "record/stream.h"

struct dict;
struct mtr_writer;
struct mtr_reader;

struct mtr_writer_opts {
	/*
	 * Bytes, 0: no bound. When reached, events are counted and dropped. The file never gets
	 * longer; some 20 KiB and what the facts take are kept free for its end.
	 */
	uint64_t max_size;
	uint64_t max_events; /* 0: no bound */
	/*
	 * Asked before so many bytes are written: other than 0 they are not, and that is the error
	 * of the write. NULL: nobody is asked.
	 */
	int (*room)(void *ctx, uint64_t bytes);
	void *ctx;
};

/*
 * Writes the file header at once, so that a full disk or a closed pipe shows before attaching. The
 * writer borrows fd, d and f: all must outlive it. NULL with errno; EFBIG: max_size is too small
 * for a recording of anything. A pipe with no reader gives EPIPE if SIGPIPE is ignored.
 */
struct mtr_writer *mtr_writer__new(int fd, struct dict *d, const struct facts *f,
				   const struct mtr_writer_opts *opts);
/*
 * Buffers one event; flushes a block when enough has come together. 0; -EINVAL for an event that
 * refers to what d does not have (nothing happens); -errno of the write, and from then on of every
 * call: nothing is written after a torn block. Kept are time, thread and device of every kind;
 * totals of the kinds up to LOST and of STATE; stack and walk of ALLOC, OOM, STEP, CALL, TAKE and
 * BLOCK; how and flags of ALLOC, FREE, TAKE, GIVE, SEGMENT, BLOCK, STATE, TENSOR and CENSUS; of all
 * else what stream.h names with the kind.
 */
int mtr_writer__event(struct mtr_writer *w, const struct event *e);
/* Writes out what is buffered and the facts as they are now. Call about once a second. */
int mtr_writer__flush(struct mtr_writer *w);
/* True once a bound was reached; reason is "max-size" or "max-events". */
bool mtr_writer__full(const struct mtr_writer *w, const char **reason);
uint64_t mtr_writer__bytes(const struct mtr_writer *w);	  /* written so far */
uint64_t mtr_writer__dropped(const struct mtr_writer *w); /* events dropped by a bound */
/*
 * Flushes, writes the last facts, dropped_events among them, and the end block: the recording is
 * complete. Frees, whatever happens. 0 or -errno; -EFBIG: complete, but some facts that grew at the
 * end did not fit max_size. NULL is fine.
 */
int mtr_writer__close(struct mtr_writer *w);

enum mtr_end {
	MTR_COMPLETE, /* the end block was there */
	MTR_TRUNCATED, /* the file stops in the middle: the writer was killed, or the copy is short */
	MTR_DAMAGED,   /* a block's CRC or contents are wrong; what precedes it is good */
};

/*
 * Opens a recording; path "-" is standard input; pipes work. On failure NULL, errno, and *why (if
 * not NULL) a static text: EINVAL not a recording; ENOTSUP a newer format; else that of open/read.
 */
struct mtr_reader *mtr_reader__open(const char *path, const char **why);
void mtr_reader__free(struct mtr_reader *r);
/* The next event: 1 and *e, 0 at the end of what can be read, or -errno (I/O error). */
int mtr_reader__next(struct mtr_reader *r, struct event *e);
/* Up to most events at once, none of them from after the next change of dict or facts. As __next,
 * but how many: 1 to most. */
int mtr_reader__some(struct mtr_reader *r, struct event *e, int most);
/* Grow while reading; owned by the reader. */
const struct dict *mtr_reader__dict(const struct mtr_reader *r);
const struct facts *mtr_reader__facts(const struct mtr_reader *r);
/* After __next returned 0: how it ended, at which byte, and a static text for a message. */
enum mtr_end mtr_reader__end(const struct mtr_reader *r, uint64_t *offset, const char **why);
uint64_t mtr_reader__position(const struct mtr_reader *r); /* bytes read, for progress */
uint64_t mtr_reader__size(const struct mtr_reader *r);	   /* of the file; 0 for a pipe */
uint32_t mtr_reader__version(const struct mtr_reader *r);

#endif
