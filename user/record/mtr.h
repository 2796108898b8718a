/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The .mtr file; docs/reference/mtr.md specifies its bytes. It is a sequence of blocks with
 * length and CRC-32C, written without seeking. If the writer dies, the file is readable up to its
 * last whole block.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/stream.h"

/* The version of the file format that is written. Older versions are read, too; they lack the newer
 * kinds of events. The last kind is EVENT_HOST in version 6, EVENT_LEFT in 5, EVENT_MARK in 4,
 * EVENT_LEAVE in 3, EVENT_USED in 2 (which has no nodes either), and EVENT_LOST in 1. */
#define MTR_VERSION 7

struct dict;
struct mtr_writer;
struct mtr_reader;

struct mtr_writer_opts {
	/* Bound on the size of the file, bytes; 0: none. At the bound the writer drops further
	 * events and counts them. It keeps 16 KiB plus the size of the facts free for the end of
	 * the file.
	 */
	uint64_t max_size;
	/* Bound on the number of events; 0: none. Events that a reading of the target makes
	 * (segments, blocks, states, tensors, host memory, the driver's figures) do not count and
	 * are never dropped. */
	uint64_t max_events;
	/* Called before each write, with the number of bytes to be written. If it returns an error,
	 * nothing is written, and that is the error of the write. May be NULL. */
	int (*room)(void *ctx, uint64_t bytes);
	void *ctx;
};

/* Makes a writer and writes the file header at once, so that a full disk or a closed pipe is found
 * before the capture attaches. The writer borrows fd, d and f, which must outlive it. Returns NULL
 * and sets errno on an error. EFBIG: max_size is too small for any recording; EPIPE: a pipe without
 * a reader, if SIGPIPE is ignored.
 */
struct mtr_writer *mtr_writer__new(int fd, const struct dict *d, const struct facts *f,
				   const struct mtr_writer_opts *opts);
/* Adds one event to the block in memory, and writes the block when it is full. Returns 0; -EINVAL
 * if the event refers to entries that d lacks, and ignores the event; or -errno of a write. After a
 * failed write every call returns that error and writes nothing.
 *
 * The file stores only some fields of each kind. All kinds: time and thread; all but ENTER, LEAVE,
 * MARK and SCOPE: device. The kinds up to LOST, and STATE: totals. ALLOC, OOM, STEP, CALL,
 * CUDA_ALLOC and BLOCK: stack and walk. ALLOC, FREE, CUDA_ALLOC, CUDA_FREE, SEGMENT, BLOCK, STATE,
 * TENSOR, CENSUS and SCOPE: how and flags. stream.h names the other fields with each kind.
 */
int mtr_writer__event(struct mtr_writer *w, const struct event *e);
/* Writes all events in memory, and the facts with their present values. Call it about once a
 * second. Returns an error as mtr_writer__event(). */
int mtr_writer__flush(struct mtr_writer *w);
/* True once a bound of mtr_writer_opts is reached. Then sets *reason to "max-size" or "max-events".
 */
bool mtr_writer__full(const struct mtr_writer *w, const char **reason);
uint64_t mtr_writer__bytes(const struct mtr_writer *w);	  /* bytes written so far */
uint64_t mtr_writer__dropped(const struct mtr_writer *w); /* number of events dropped at a bound */
/* Writes the events in memory, the last facts with dropped_events, and the end block. Frees the
 * writer in any case. Returns 0 or -errno; -EFBIG: the file is complete, but some facts did not fit
 * max_size. NULL is fine.
 */
int mtr_writer__close(struct mtr_writer *w);

enum mtr_end {
	MTR_COMPLETE,  /* file has an end block */
	MTR_TRUNCATED, /* file stops early: the writer was killed, or the copy is short */
	MTR_DAMAGED,   /* a block has a wrong CRC or contents; earlier blocks are good */
};

/* Opens a recording or a memory snapshot of PyTorch, which may be a pipe. mtr_reader__open()
 * reads a snapshot as a whole, with progress on a terminal. The path "-"
 * means standard input. On an error returns NULL, sets errno, and sets *why (if why is not NULL) to
 * a static text. EINVAL: not a recording; ENOTSUP: a newer version of the format; EBADMSG: a
 * snapshot that is damaged or refused; ENOBUFS: it needs too much memory; otherwise the error of
 * open() or read().
 */
struct mtr_reader *mtr_reader__open(const char *path, const char **why);
void mtr_reader__free(struct mtr_reader *r);
/* True if a regular file begins as a recording does, and not as a snapshot. */
bool mtr_reader__is_recording(const char *path);
/* True if a file's name ends as those of snapshots: ".pickle", also with ".gz" or ".zst". Another
 * name says nothing. */
bool mtr_reader__names_snapshot(const char *name);
/* Reads the next event. Returns 1 and sets *e, returns 0 at the end of the readable part, or
 * -errno. */
int mtr_reader__next(struct mtr_reader *r, struct event *e);
/* Reads up to `most` events at once, all with the same state of dict and facts. Returns their
 * number, 0 at the end of the readable part, or -errno. */
int mtr_reader__some(struct mtr_reader *r, struct event *e, int most);
/* As mtr_reader__some(), but sets *ret to events that stay valid until the next call. */
int mtr_reader__view(struct mtr_reader *r, int most, const struct event **ret);
#define MTR_LARGE (128u << 10) /* bytes of a recording for which a thread pays */
/* If the file is a recording of at least so many bytes, and there are several cores: from now on a
 * thread decodes events before mtr_reader__view() asks for them. Then call only that. */
void mtr_reader__read_ahead(struct mtr_reader *r, uint64_t least);
/* The dict and the facts of the blocks read so far. The reader owns them. */
const struct dict *mtr_reader__dict(const struct mtr_reader *r);
const struct facts *mtr_reader__facts(const struct mtr_reader *r);
/* Returns how the file ended; call it after mtr_reader__next() returned 0. Sets *offset to the end
 * of the last whole block, and *why to a static text for a message; both may be NULL. */
enum mtr_end mtr_reader__end(const struct mtr_reader *r, uint64_t *offset, const char **why);
/* Progress: bytes read, and the file's size (0 for a pipe); of a snapshot, entries of its traces. */
uint64_t mtr_reader__position(const struct mtr_reader *r);
uint64_t mtr_reader__size(const struct mtr_reader *r);
bool mtr_reader__is_snapshot(const struct mtr_reader *r);
uint32_t mtr_reader__version(const struct mtr_reader *r);

/* A bound on the memory of this process while it reads recordings. A file of a few KB can describe
 * millions of allocations that are never freed, and the model keeps each of them. So readers check
 * the bound again and again. The first check must end before several threads check.
 */

/* Sets the bound in bytes. If it is not set, the bound is half of the memory that is available at
 * the first check, and at most 7/8 of RLIMIT_AS. */
void room__set(uint64_t bytes);
/* Returns 0, -ENOBUFS if the process uses more memory than the bound, or another -errno if its
 * memory could not be read from /proc. */
int room__check(void);
/* As room__check(), but adds `bytes` that the process is about to use. */
int room__check_more(uint64_t bytes);
/* Writes the reason for -ENOBUFS or -ENOMEM, and what to do. buf: 256 bytes. Returns buf. */
char *room__why(char *buf, size_t size, int err);
