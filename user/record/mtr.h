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

/* Readers also accept older versions. Version 5 ends with the kind EVENT_LEFT, 4 with EVENT_MARK, 3
 * with EVENT_LEAVE, 2 with EVENT_USED and without nodes, 1 with EVENT_LOST. */
#define MTR_VERSION 6

struct dict;
struct mtr_writer;
struct mtr_reader;

struct mtr_writer_opts {
	/*
	 * Bound on the file, bytes; 0: none. At the bound the writer counts and drops events, and
	 * the file grows no further. The writer keeps 16 KiB plus the size of the facts free for
	 * the end of the file.
	 */
	uint64_t max_size;
	/* Bound on events; 0: none. What readings find (segments, blocks, states, tensors, host
	 * memory, the driver's figures) does not count and is kept. */
	uint64_t max_events;
	/* Called before each write with its size. A result other than 0 cancels the write and
	 * becomes its error. May be NULL. */
	int (*room)(void *ctx, uint64_t bytes);
	void *ctx;
};

/*
 * Writes the file header at once, so that a full disk or a closed pipe fails before attaching. The
 * writer borrows fd, d and f, which must outlive it. NULL with errno; EFBIG: max_size is too small
 * for any recording; EPIPE: a pipe without a reader, if SIGPIPE is ignored.
 */
struct mtr_writer *mtr_writer__new(int fd, struct dict *d, const struct facts *f,
				   const struct mtr_writer_opts *opts);
/*
 * Buffers one event and writes full blocks. Returns 0; -EINVAL if the event refers to entries that
 * d lacks (ignored); or -errno of a write. After a failed write every call returns that error and
 * writes nothing.
 *
 * The file stores only some fields of each kind. All kinds: time and thread; all but ENTER, LEAVE
 * and MARK: device. The kinds up to LOST, and STATE: totals. ALLOC, OOM, STEP, CALL, CUDA_ALLOC and
 * BLOCK: stack and walk. ALLOC, FREE, CUDA_ALLOC, CUDA_FREE, SEGMENT, BLOCK, STATE, TENSOR and
 * CENSUS: how and flags. stream.h names the other fields with each kind.
 */
int mtr_writer__event(struct mtr_writer *w, const struct event *e);
/* Writes all buffered events, and the facts with their present values. Call it about once
 * a second. */
int mtr_writer__flush(struct mtr_writer *w);
/* True once a bound is reached; *reason is "max-size" or "max-events". */
bool mtr_writer__full(const struct mtr_writer *w, const char **reason);
uint64_t mtr_writer__bytes(const struct mtr_writer *w);	  /* bytes written so far */
uint64_t mtr_writer__dropped(const struct mtr_writer *w); /* number of events dropped at a bound */
/*
 * Writes the buffered events, the last facts with dropped_events, and the end block. Frees the
 * writer in any case. Returns 0 or -errno; -EFBIG: the file is complete, but some facts did not fit
 * max_size. NULL is fine.
 */
int mtr_writer__close(struct mtr_writer *w);

enum mtr_end {
	MTR_COMPLETE,  /* file has an end block */
	MTR_TRUNCATED, /* file stops early: the writer was killed, or the copy is short */
	MTR_DAMAGED,   /* a block has a wrong CRC or contents; earlier blocks are good */
};

/*
 * Opens a recording. Path "-" is standard input; pipes work. On an error returns NULL, sets errno,
 * and sets *why (if why is not NULL) to a static text. EINVAL: not a recording; ENOTSUP: a newer
 * format; otherwise the error of open or read.
 */
struct mtr_reader *mtr_reader__open(const char *path, const char **why);
void mtr_reader__free(struct mtr_reader *r);
/* Reads the next event. Returns 1 and *e, 0 at the end of the readable part, or -errno. */
int mtr_reader__next(struct mtr_reader *r, struct event *e);
/* Reads up to `most` events at once and stops where dict or facts change. Returns the number of
 * events, otherwise as mtr_reader__next(). */
int mtr_reader__some(struct mtr_reader *r, struct event *e, int most);
/* Both grow while the reader reads; the reader owns them. */
const struct dict *mtr_reader__dict(const struct mtr_reader *r);
const struct facts *mtr_reader__facts(const struct mtr_reader *r);
/* How the file ended, after mtr_reader__next() returned 0. *offset: end of the last whole block;
 * *why: a static text for a message. */
enum mtr_end mtr_reader__end(const struct mtr_reader *r, uint64_t *offset, const char **why);
uint64_t mtr_reader__position(const struct mtr_reader *r); /* bytes read, for progress */
uint64_t mtr_reader__size(const struct mtr_reader *r);	   /* bytes of the file; 0 for a pipe */
uint32_t mtr_reader__version(const struct mtr_reader *r);

/*
 * A bound on the memory of this process while it reads recordings. A file of a few KB can describe
 * millions of allocations that are never freed, and the model keeps each of them. Readers check the
 * bound as they go. Threads may check it after one of them has.
 */

/* Sets a bound in bytes. Without it the bound is half of the memory available at the first check,
 * and 7/8 of RLIMIT_AS. */
void room__set(uint64_t bytes);
/* Returns 0, -ENOBUFS if the process uses more than the bound, or -ENOMEM. Reads /proc. */
int room__check(void);
/* As room__check(), before the process uses `bytes` more. */
int room__check_more(uint64_t bytes);
/* Text for -ENOBUFS and -ENOMEM: the reason and the remedy. buf: 256 bytes. Returns buf. */
char *room__why(char *buf, size_t size, int err);
