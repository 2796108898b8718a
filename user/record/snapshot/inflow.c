/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/snapshot/inflow.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define ROOM (4u << 20)	  /* most bytes that wait to be taken */
#define PACKED (1u << 18) /* most compressed bytes that are read at once */
#define GZIP_HEADER 16	  /* for inflateInit2(): the input has a gzip header */
/* A compressed input may have so many times its own bytes, beyond the first ones. Snapshots reach
 * 60 : 1. */
#define MAX_RATIO 1000u
#define FREE_BYTES (64u << 20)

enum packing { PLAIN, GZIP, ZSTD };

struct inflow_source {
	int fd;
	uint64_t at;	   /* for pread(); UINT64_MAX: read() */
	uint8_t first[64]; /* bytes of the file that were read before */
	size_t n_first;
	bool ended; /* of the file */
	enum packing packing;
	z_stream gzip;
	bool gzip_open;
	ZSTD_DCtx *zstd;
	uint8_t *buf;	 /* ROOM bytes */
	uint8_t *packed; /* PACKED bytes; NULL: the input is not compressed */
	size_t packed_at, packed_end;
	uint64_t unpacked; /* bytes after decompression */
};

static const uint8_t GZIP_MAGIC[] = { 0x1f, 0x8b };
static const uint8_t ZSTD_MAGIC[] = { 0x28, 0xb5, 0x2f, 0xfd };

/* Reads at most n bytes with one call, for which it waits. Returns their number, 0 at the end, or
 * -errno. */
static ssize_t read_once(struct inflow_source *s, void *dst, size_t n)
{
	for (;;) {
		ssize_t got = s->at == UINT64_MAX ? read(s->fd, dst, n)
						  : pread(s->fd, dst, n, (off_t)s->at);
		struct pollfd p = { .fd = s->fd, .events = POLLIN };

		if (got >= 0)
			return got;
		if (errno == EAGAIN && poll(&p, 1, -1) < 0 && errno != EINTR)
			return -errno;
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
	}
}

/* Reads at most n bytes of the file. Returns their number, 0 at its end, or -errno. */
static ssize_t read_file(struct inflow *in, uint8_t *dst, size_t n)
{
	struct inflow_source *s = in->source;
	ssize_t got;

	if (s->n_first) {
		got = (ssize_t)(s->n_first < n ? s->n_first : n);
		memcpy(dst, s->first, (size_t)got);
		memmove(s->first, s->first + got, s->n_first - (size_t)got);
		s->n_first -= (size_t)got;
		return got;
	}
	if (s->ended)
		return 0;
	got = read_once(s, dst, n);
	if (got <= 0) {
		s->ended = true;
		return got;
	}
	in->position += (uint64_t)got;
	if (s->at != UINT64_MAX)
		s->at += (uint64_t)got;
	return got;
}

int inflow__open(struct inflow *in, int fd, uint64_t at, const uint8_t *first, size_t n)
{
	struct inflow_source *s = calloc(1, sizeof(*s));
	bool ready;

	*in = (struct inflow){ .source = s, .position = n };
	if (!s)
		return -ENOMEM;
	s->fd = fd;
	s->at = at;
	s->n_first = n < sizeof(s->first) ? n : sizeof(s->first);
	memcpy(s->first, first, s->n_first);
	if (n >= sizeof(GZIP_MAGIC) && !memcmp(first, GZIP_MAGIC, sizeof(GZIP_MAGIC)))
		s->packing = GZIP;
	if (n >= sizeof(ZSTD_MAGIC) && !memcmp(first, ZSTD_MAGIC, sizeof(ZSTD_MAGIC)))
		s->packing = ZSTD;
	s->buf = malloc(ROOM);
	s->packed = s->packing == PLAIN ? NULL : malloc(PACKED);
	if (s->packing == ZSTD)
		s->zstd = ZSTD_createDCtx();
	if (s->packing == GZIP)
		s->gzip_open = inflateInit2(&s->gzip, GZIP_HEADER + MAX_WBITS) == Z_OK;
	in->at = in->end = s->buf;
	ready = s->buf != NULL;
	if (s->packing != PLAIN)
		ready &= s->packed && (s->packing == ZSTD ? s->zstd != NULL : s->gzip_open);
	if (ready)
		return 0;
	inflow__close(in);
	return -ENOMEM;
}

void inflow__close(struct inflow *in)
{
	struct inflow_source *s = in->source;

	if (!s)
		return;
	if (s->gzip_open)
		inflateEnd(&s->gzip);
	ZSTD_freeDCtx(s->zstd);
	free(s->buf);
	free(s->packed);
	free(s);
	in->source = NULL;
}

/* ---- decompression ---- */

/* Sets why the input cannot be read. */
static ssize_t bad(struct inflow *in, const char *why)
{
	in->why = why;
	return -EBADMSG;
}

/* Decompresses what is in s->packed, a part of it. Returns the bytes written, or -EBADMSG. */
static ssize_t unpack_gzip(struct inflow *in, uint8_t *dst, size_t n)
{
	struct inflow_source *s = in->source;
	int ret;

	s->gzip.next_in = s->packed + s->packed_at;
	s->gzip.avail_in = (uInt)(s->packed_end - s->packed_at);
	s->gzip.next_out = dst;
	s->gzip.avail_out = (uInt)n;
	ret = inflate(&s->gzip, Z_NO_FLUSH);
	s->packed_at = s->packed_end - s->gzip.avail_in;
	/* A gzip file may have several members, one after the other. */
	if (ret == Z_STREAM_END)
		ret = inflateReset(&s->gzip);
	if (ret != Z_OK && ret != Z_BUF_ERROR)
		return bad(in, "its gzip data are damaged");
	return (ssize_t)(n - s->gzip.avail_out);
}

/* As unpack_gzip(). */
static ssize_t unpack_zstd(struct inflow *in, uint8_t *dst, size_t n)
{
	struct inflow_source *s = in->source;
	ZSTD_inBuffer from = { s->packed, s->packed_end, s->packed_at };
	ZSTD_outBuffer to = { dst, n, 0 };
	size_t ret = ZSTD_decompressStream(s->zstd, &to, &from);

	s->packed_at = from.pos;
	if (ZSTD_isError(ret))
		return bad(in, "its zstd data are damaged");
	return (ssize_t)to.pos;
}

/* Reads and decompresses up to n bytes. Returns as read_file(), or -EBADMSG. */
static ssize_t read_packed(struct inflow *in, uint8_t *dst, size_t n)
{
	struct inflow_source *s = in->source;
	ssize_t got, made = 0;

	while (!made) {
		bool full;

		if (s->packed_at == s->packed_end) {
			got = read_file(in, s->packed, PACKED);
			if (got < 0)
				return got;
			s->packed_at = 0;
			s->packed_end = (size_t)got;
		}
		full = s->packed_at == s->packed_end;
		made = s->packing == GZIP ? unpack_gzip(in, dst, n) : unpack_zstd(in, dst, n);
		if (full && !made)
			return 0;
	}
	if (made < 0)
		return made;
	s->unpacked += (uint64_t)made;
	if (s->unpacked > FREE_BYTES && s->unpacked / MAX_RATIO > in->position)
		return bad(in, "it is compressed more than any snapshot, to exhaust memory");
	return made;
}

bool inflow__fill(struct inflow *in, size_t n)
{
	struct inflow_source *s = in->source;
	size_t left = (size_t)(in->end - in->at);

	if (left >= n)
		return true;
	in->given += (uint64_t)(in->at - s->buf);
	memmove(s->buf, in->at, left);
	in->at = s->buf;
	in->end = s->buf + left;
	while (left < n && !in->err && n <= ROOM) {
		ssize_t got = s->packing == PLAIN ? read_file(in, s->buf + left, ROOM - left)
						  : read_packed(in, s->buf + left, ROOM - left);

		if (got < 0)
			in->err = (int)got;
		if (got <= 0)
			break;
		left += (size_t)got;
		in->end = s->buf + left;
	}
	return left >= n;
}

bool inflow__skip(struct inflow *in, uint64_t n)
{
	while (n) {
		size_t part = n < ROOM / 2 ? (size_t)n : ROOM / 2;

		if (!inflow__take(in, part))
			return false;
		n -= part;
	}
	return true;
}
