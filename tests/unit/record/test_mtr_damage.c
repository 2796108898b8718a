/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Torn, damaged and forged recordings: valid blocks are read, damage is reported, nothing
 * crashes. */
#include "unit/cmocka.h"
#include "mtr_util.h"
#include "record/mtr/mtr_format.h"
#include "record/varint.h"

/* A recording with several blocks of each type, some compressed, and the ends of its blocks. */
struct sample {
	struct events l;
	uint8_t *data;
	size_t len;
	struct {
		size_t end;
		size_t events; /* number in blocks up to here */
	} blocks[64];
	size_t n;
};

static struct sample sample__new(void)
{
	struct sample s = { 0 };
	struct world w = world__new();
	struct gen g = { .rng = 99 };
	int fd = memory_file();
	size_t at = 16;

	for (int i = 0; i < 90; i++)
		add_random(&w, &g, &s.l);
	for (int i = 0; i < 60; i++) /* blocks of these events compress */
		events__add(&s.l, &(struct event){ .kind = EVENT_STEP, .time = (uint64_t)i });
	write_events(&w, fd, &s.l, 30);
	s.data = file_bytes(fd, &s.len);
	while (at < s.len) {
		size_t before = s.n ? s.blocks[s.n - 1].events : 0;

		at += 24 + le32(s.data + at + 8);
		assert_true(s.n < 64);
		s.blocks[s.n].end = at;
		s.blocks[s.n++].events = before;
	}
	/* Each event block has 30 events. */
	at = 16;
	for (size_t i = 0, events = 0; i < s.n; i++) {
		events += le32(s.data + at) == MTR_EVENTS ? 30 : 0;
		s.blocks[i].events = events;
		at = s.blocks[i].end;
	}
	assert_int_equal(at, s.len);
	assert_int_equal(s.blocks[s.n - 1].events, s.l.n);
	close(fd);
	world__free(&w);
	return s;
}

static void sample__free(struct sample *s)
{
	events__free(&s->l);
	free(s->data);
}

/* Number of events in whole blocks within the first len bytes; *end: the end of those blocks. */
static size_t whole(const struct sample *s, size_t len, size_t *end)
{
	size_t events = 0;

	*end = 16;
	for (size_t i = 0; i < s->n && s->blocks[i].end <= len; i++) {
		events = s->blocks[i].events;
		*end = s->blocks[i].end;
	}
	return events;
}

static void test_torn_everywhere(void **state)
{
	struct sample s = sample__new();

	for (size_t len = 0; len <= s.len; len++) {
		int fd = file_of(s.data, len);
		struct events got = { 0 };
		struct mtr_reader *r;
		const char *why = NULL;
		uint64_t offset;
		size_t end, n = whole(&s, len, &end);

		if (len < 16) {
			assert_null(open_fd(fd, &why));
			assert_int_equal(errno, EINVAL);
			assert_non_null(why);
			close(fd);
			continue;
		}
		r = read_all(fd, &got);
		assert_int_equal(mtr_reader__end(r, &offset, &why),
				 len == s.len ? MTR_COMPLETE : MTR_TRUNCATED);
		assert_non_null(why);
		assert_int_equal(offset, end);
		assert_int_equal(got.n, n);
		for (size_t i = 0; i < n; i++)
			assert_event(&got.e[i], &s.l.e[i]);
		/* After the end, the reader returns the end again. */
		assert_int_equal(mtr_reader__next(r, &(struct event){ 0 }), 0);
		mtr_reader__free(r);
		events__free(&got);
		close(fd);
	}
	sample__free(&s);
}

/* byte: value at that offset. */
static void check_flip(const struct sample *s, int fd, size_t at, uint8_t byte)
{
	bool older = at == 8 && byte && byte < MTR_VERSION;
	struct events got = { 0 };
	struct mtr_reader *r = open_fd(fd, NULL);
	struct event e;
	uint64_t offset;
	size_t end, n = whole(s, at, &end);
	int rc;

	if (at < 16 && !older) {
		assert_null(r);
		assert_true(errno == EINVAL || errno == ENOTSUP);
		return;
	}
	assert_non_null(r);
	while ((rc = mtr_reader__next(r, &e)) == 1)
		events__add(&got, &e);
	assert_int_equal(rc, 0);
	/* Checksums detect each changed bit and its place. A changed version number may give a
	 * valid file with fewer fields. */
	assert_int_equal(mtr_reader__end(r, &offset, NULL), MTR_DAMAGED);
	if (older)
		assert_true(got.n < s->l.n);
	else
		assert_int_equal(got.n, n);
	assert_true(older || offset == end);
	for (size_t i = 0; i < got.n; i++)
		assert_event(&got.e[i], &s->l.e[i]);
	if (at % 8 == 0)
		check_ahead(fd, r, &got);
	mtr_reader__free(r);
	events__free(&got);
}

static void test_every_bit(void **state)
{
	struct sample s = sample__new();
	int fd = file_of(s.data, s.len);

	for (size_t at = 0; at < s.len; at++) {
		for (int bit = 0; bit < 8; bit++) {
			uint8_t byte = s.data[at] ^ (uint8_t)(1 << bit);

			assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
			check_flip(&s, fd, at, byte);
		}
		assert_int_equal(pwrite(fd, s.data + at, 1, (off_t)at), 1);
	}
	close(fd);
	sample__free(&s);
}

static void test_not_a_recording(void **state)
{
	struct sample s = sample__new();
	const char *why = NULL;
	int fd = file_of("%!PS-Adobe-3.0 and so on\n", 25);

	assert_null(open_fd(fd, &why));
	assert_int_equal(errno, EINVAL);
	assert_string_equal(why, "not a memtrace-bpf recording, and no memory snapshot of PyTorch");
	close(fd);
	assert_null(mtr_reader__open("/nonexistent/file.mtr", &why));
	assert_int_equal(errno, ENOENT);
	assert_null(mtr_reader__open("/", &why));
	assert_int_equal(errno, EISDIR);
	s.data[8] = MTR_VERSION + 1;
	fd = file_of(s.data, s.len);
	assert_null(open_fd(fd, &why));
	assert_int_equal(errno, ENOTSUP);
	close(fd);
	sample__free(&s);
}

/* ---- forged files with valid checksums ---- */

struct forged {
	uint8_t data[65536];
	size_t len;
};

static void forge_header(struct forged *f)
{
	memcpy(f->data, MTR_MAGIC, 8);
	put_le32(f->data + 8, MTR_VERSION);
	put_le32(f->data + 12, MTR_BYTE_ORDER);
	f->len = 16;
}

static void forge(struct forged *f, uint32_t type, uint32_t flags, uint32_t raw,
		  const void *payload, size_t len)
{
	uint8_t *h = f->data + f->len;

	put_le32(h, type);
	put_le32(h + 4, flags);
	put_le32(h + 8, (uint32_t)len);
	put_le32(h + 12, raw);
	put_le32(h + 16, crc32c(payload, len));
	put_le32(h + 20, crc32c(h, 20));
	memcpy(h + 24, payload, len);
	f->len += 24 + len;
}

/* Writes a valid dictionary, a block and the end. Returns how reading ends; sets the number of
 * events. */
static enum mtr_end forged_end(uint32_t type, uint32_t flags, uint32_t raw, const void *payload,
			       size_t len, size_t *n_events)
{
	/* Strings 1, 2; location 1; module 1; stack 1; thread 1; node 1. */
	static const char dict[] = "\x01\x01\x02\x01"
				   "a"
				   "\x01"
				   "b"
				   "\x02\x01\x01\x01\x02\x07"
				   "\x03\x01\x01\x01\x02\x02"
				   "\x04\x01\x01\x00\x01\x01\x01"
				   "\x05\x01\x01\x07\x01"
				   "\x06\x01\x01\x01\x01\x02\x01";
	struct forged *f = malloc(sizeof(*f));
	struct events got = { 0 };
	struct mtr_reader *r;
	enum mtr_end end;
	int fd;

	forge_header(f);
	forge(f, MTR_DICT, 0, sizeof(dict) - 1, dict, sizeof(dict) - 1);
	forge(f, type, flags, raw, payload, len);
	forge(f, MTR_END, 0, 1, "\0", 1);
	fd = file_of(f->data, f->len);
	r = read_all(fd, &got);
	end = mtr_reader__end(r, NULL, NULL);
	*n_events = got.n;
	mtr_reader__free(r);
	events__free(&got);
	close(fd);
	free(f);
	return end;
}

static enum mtr_end end_of(uint32_t type, const void *payload, size_t len)
{
	size_t n;

	return forged_end(type, 0, (uint32_t)len, payload, len, &n);
}

#define END_OF(type, bytes) end_of(type, bytes, sizeof(bytes) - 1)

static void test_forged_dictionary(void **state)
{
	assert_int_equal(END_OF(MTR_DICT, ""), MTR_COMPLETE);
	assert_int_equal(END_OF(MTR_DICT, "\x01\x03\x01\x01"
					  "c"),
			 MTR_COMPLETE);
	/* Wrong number; a repeated entry; "" again. */
	assert_int_equal(END_OF(MTR_DICT, "\x01\x04\x01\x01"
					  "c"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x01\x03\x01\x01"
					  "a"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x01\x03\x01\x00"), MTR_DAMAGED);
	/* Not UTF-8; a NUL; longer than the payload; fewer than announced; unknown kind. */
	assert_int_equal(END_OF(MTR_DICT, "\x01\x03\x01\x01\xff"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x01\x03\x01\x01\x00"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x01\x03\x01\x7f"
					  "c"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x01\x03\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
					  "c"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x01\x03\xff\xff\xff\xff\x0f\x01"
					  "c"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x06\x02\x00"), MTR_COMPLETE);
	assert_int_equal(END_OF(MTR_DICT, "\x07\x01\x00"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x00\x01\x00"), MTR_DAMAGED);
	/* References to missing entries. */
	assert_int_equal(END_OF(MTR_DICT, "\x02\x02\x01\x01\x03\x07"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x02\x02\x01\x03\x01\x07"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x03\x02\x01\x00\x00\x03"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x04\x02\x01\x00\x01\x02\x00"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x04\x02\x01\x00\x01\x00\x02"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x05\x02\x01\x08\x03"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x06\x02\x01\x02\x01\x02\x01"), MTR_COMPLETE);
	assert_int_equal(END_OF(MTR_DICT, "\x06\x02\x01\x03\x01\x02\x01"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x06\x02\x01\x02\x02\x02\x01"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x06\x02\x01\x02\x01\x03\x01"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x06\x02\x01\x02\x01\x02\x02"), MTR_DAMAGED);
	/* Unknown outcome; too many frames; a number above 32 bits. */
	assert_int_equal(END_OF(MTR_DICT, "\x04\x02\x01\x0a\x00"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x04\x02\x01\x00\x81\x08"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_DICT, "\x02\x02\x01\x01\x02\x80\x80\x80\x80\x10"), MTR_DAMAGED);
}

static void test_forged_facts(void **state)
{
	assert_int_equal(END_OF(MTR_FACTS, "\x00"), MTR_COMPLETE);
	assert_int_equal(END_OF(MTR_FACTS, "\x01\x01"
					   "k"
					   "\x01"
					   "v"),
			 MTR_COMPLETE);
	assert_int_equal(END_OF(MTR_FACTS, "\x01\x01"
					   "k"
					   "\x01"
					   "v"
					   "\x00"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_FACTS, "\x02\x01"
					   "k"
					   "\x01"
					   "v"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_FACTS, "\x01\x00\x01"
					   "v"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_FACTS, "\x01\x01 \x01"
					   "v"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_FACTS, "\x01\x01"
					   "k"
					   "\x01\xff"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_FACTS, "\x01\x01"
					   "k"
					   "\x7f"
					   "v"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_FACTS, ""), MTR_DAMAGED);
}

/* Columns as strings: tag, time, address, size, stack, rest. */
static enum mtr_end end_of_events(const char *head, size_t head_len, const char *const cols[6],
				  const size_t lens[6], size_t *n)
{
	uint8_t payload[256];
	size_t len = head_len;

	memcpy(payload, head, head_len);
	for (int i = 0; i < 6; i++)
		payload[len++] = (uint8_t)lens[i];
	for (int i = 0; i < 6; i++) {
		memcpy(payload + len, cols[i], lens[i]);
		len += lens[i];
	}
	return forged_end(MTR_EVENTS, 0, (uint32_t)len, payload, len, n);
}

#define EVENTS(head, tag, time, addr, size, stack, rest)                                           \
	end_of_events(head, sizeof(head) - 1,                                                      \
		      (const char *const[]){ tag, time, addr, size, stack, rest },                 \
		      (const size_t[]){ sizeof(tag) - 1, sizeof(time) - 1, sizeof(addr) - 1,       \
					sizeof(size) - 1, sizeof(stack) - 1, sizeof(rest) - 1 },   \
		      &n)

static void test_forged_events(void **state)
{
	size_t n;

	/* Valid, except for the end block, which counts no events. */
	assert_int_equal(EVENTS("\0\1\0", "\x1c", "\0", "", "", "\0", "\0\0\1\0"), MTR_DAMAGED);
	assert_int_equal(n, 1);
	assert_int_equal(EVENTS("\0\1\0", "\x8f\x43", "\0", "\0", "", "", "\0\0\1\0\1\1"),
			 MTR_DAMAGED);
	assert_int_equal(n, 1);
	assert_int_equal(EVENTS("\0\1\0", "\x98\1", "\0", "\0\2", "", "", "\0\0\1\0"), MTR_DAMAGED);
	assert_int_equal(n, 1);
	assert_int_equal(EVENTS("\0\1\0", "\x9b\x40", "\0", "", "", "\0", "\0\0\1\0\2"),
			 MTR_DAMAGED);
	assert_int_equal(n, 1);
	assert_int_equal(EVENTS("\0\1\0", "\xbf\3", "\0", "\0", "", "", "\0\0\1\0\4\2\7"),
			 MTR_DAMAGED);
	assert_int_equal(n, 1);
	assert_int_equal(EVENTS("\0\0\0", "", "", "", "", "", ""), MTR_COMPLETE);
	assert_int_equal(EVENTS("\0\0\0", "", "", "", "", "", "\0"), MTR_DAMAGED);
	/* From here on no event may be returned. Missing thread, stack, module. */
#define NONE(...)                                                                                  \
	do {                                                                                       \
		assert_int_equal(EVENTS(__VA_ARGS__), MTR_DAMAGED);                                \
		assert_int_equal(n, 0);                                                            \
	} while (0)
	NONE("\0\1\0", "\x1c", "\0", "", "", "\0", "\2\0\1\0");
	NONE("\0\1\0", "\x1c", "\0", "", "", "\2", "\0\0\1\0");
	NONE("\0\1\0", "\x1d", "\0", "", "", "\0", "\0\0\1\0\2");
	/* Wrong device number; truncated. */
	NONE("\0\1\0", "\x1c", "\0", "", "", "\0", "\0\1\1\0");
	NONE("\0\1\0", "\x1c", "\0", "", "", "\0", "\0\0\1");
	/* Unknown kind; the first event as "same as before"; bits invalid for the kind; bits
	 * invalid for all. */
	NONE("\0\1\0", "\xcf\3", "\0", "\0", "", "\0", "\0\0\1\0");
	NONE("\0\1\0", "\xff\3", "\0", "\0", "", "\0", "\0\0\1\0");
	NONE("\0\1\0", "\x04", "\0", "", "", "\0", "");
	NONE("\0\1\0", "\x5c", "\0", "", "\0\1", "\0", "\0\0\1\0");
	NONE("\0\1\0", "\x9c\1", "\0", "\0", "", "\0", "\0\0\1\0");
	NONE("\0\1\0", "\x9c\4", "\0", "", "", "\0", "\0\0\1\0");
	/* An address of an event that does not exist; a size likewise; no address; invalid
	 * totals. */
	NONE("\0\1\0", "\x1a", "\0", "\0", "", "", "\0\0\1\0");
	NONE("\0\1\0", "\xda\1", "\0", "\2", "\1", "", "\0\0\1\0");
	NONE("\0\1\0", "\x9a\1", "\0", "", "", "", "\0\0\1\0");
	NONE("\0\1\0", "\x3c", "\0", "", "", "\0", "\0\0\1\0\2");
	NONE("\0\1\0", "\x9c\2", "\0", "", "", "\0", "\0\0\1\0\x0a");
	/* Requested size: without an allocation, of a missing block, without address; an
	 * invalid bit. */
	NONE("\0\1\0", "\x18", "\0", "", "", "", "\0\0\1\0");
	NONE("\0\1\0", "\x98\1", "\0", "\1", "", "", "\0\0\1\0");
	NONE("\0\1\0", "\x98\1", "\0", "\0", "", "", "\0\0\1\0");
	NONE("\0\1\0", "\xb8\1", "\0", "\0\0", "", "", "\0\0\1\0");
	NONE("\0\1\0", "\x98\x05", "\0", "\0\0", "", "", "\0\0\1\0\0\0");
	/* A free with an unknown `how`, with flags above a byte, without an address. */
	NONE("\0\1\0", "\x8f\x43", "\0", "\0", "", "", "\0\0\1\0\x09\0");
	NONE("\0\1\0", "\x8f\x43", "\0", "\0", "", "", "\0\0\1\0\1\x80\2");
	NONE("\0\1\0", "\x8f\x43", "\0", "", "", "", "\0\0\1\0\1\1");
	/* Nodes: for a kind without nodes; missing; before the first; none. Then names of blocks:
	 * name, module, category. */
	NONE("\0\1\0", "\x9c\x40", "\0", "", "", "\0", "\0\0\1\0\2");
	NONE("\0\1\0", "\x9b\x40", "\0", "", "", "\0", "\0\0\1\0\4");
	NONE("\0\1\0", "\x9b\x40", "\0", "", "", "\0", "\0\0\1\0\1");
	NONE("\0\1\0", "\x9b\x40", "\0", "", "", "\0", "\0\0\1\0\0");
	NONE("\0\1\0", "\xbf\3", "\0", "\0", "", "", "\0\0\1\0\6\0\0");
	NONE("\0\1\0", "\xbf\3", "\0", "\0", "", "", "\0\0\1\0\1\0\0");
	NONE("\0\1\0", "\xbf\3", "\0", "\0", "", "", "\0\0\1\0\0\4\0");
	NONE("\0\1\0", "\xbf\3", "\0", "\0", "", "", "\0\0\1\0\0\0\x09");
	NONE("\0\1\0", "\xbf\3", "\0", "\0", "", "", "\0\0\1\0\0\0");
	/* Extra bytes; more events than bytes; a wrong first event number; a number that is
	 * too long. */
	NONE("\0\1\0", "\x1c", "\0\0", "", "", "\0", "\0\0\1\0");
	NONE("\0\x7f\0", "\x1c", "\0", "", "", "\0", "\0\0\1\0");
	NONE("\1\1\0", "\x1c", "\0", "", "", "\0", "\0\0\1\0");
	NONE("\0\1\0", "\x1c", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "", "", "\0",
	     "\0\0\1\0");
	/* Columns longer than the payload. */
	assert_int_equal(END_OF(MTR_EVENTS, "\0\1\0\1\1\0\0\1\x7f\x1c\0\0\0\0\1\0"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_EVENTS,
				"\0\1\0\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0\1\4\x1c\0"),
			 MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_EVENTS, ""), MTR_DAMAGED);
#undef NONE
}

/* An events block with a step on each of n devices. Returns the number of events that are read. */
static size_t read_steps_of_devices(unsigned int n)
{
	uint8_t rest[5 * (MTR_MAX_BLOCK_DEVICES + 1)], *r = rest, payload[4096] = { 0 },
						       *p = payload;
	size_t got;

	for (unsigned int i = 0; i < n; i++) { /* thread, number, type and index */
		*r++ = 0;
		r = varint__put(r, i);
		*r++ = 1;
		*r++ = (uint8_t)i;
	}
	*p++ = 0;
	p = varint__put(p, n);
	*p++ = 0;
	for (int column = 0; column < MTR_COLS; column++)
		p = varint__put(p, column == MTR_COL_ADDR || column == MTR_COL_SIZE ? 0
				   : column == MTR_COL_REST ? (uint64_t)(r - rest)
							    : n);
	memset(p, 0x1c, n);
	p += 3 * n; /* times and stacks are 0 */
	memcpy(p, rest, (size_t)(r - rest));
	p += r - rest;
	assert_true(p <= payload + sizeof(payload));
	assert_int_equal(forged_end(MTR_EVENTS, 0, (uint32_t)(p - payload), payload,
				    (size_t)(p - payload), &got),
			 MTR_DAMAGED); /* the end block counts no events */
	return got;
}

static void test_too_many_devices(void **state)
{
	assert_int_equal(read_steps_of_devices(MTR_MAX_BLOCK_DEVICES), MTR_MAX_BLOCK_DEVICES);
	assert_int_equal(read_steps_of_devices(MTR_MAX_BLOCK_DEVICES + 1), MTR_MAX_BLOCK_DEVICES);
}

static void test_forged_blocks(void **state)
{
	struct forged *f = malloc(sizeof(*f));
	struct mtr_reader *r;
	size_t n;
	int fd;

	/* A future type is skipped, with any flags and lengths. */
	assert_int_equal(forged_end(77, 0, 3, "xyz", 3, &n), MTR_COMPLETE);
	assert_int_equal(forged_end(77, 0xf0, 9, "xyz", 3, &n), MTR_COMPLETE);
	/* Known types: unknown flags, contradictory lengths, invalid zstd, too long. */
	assert_int_equal(forged_end(MTR_FACTS, 2, 1, "\0", 1, &n), MTR_DAMAGED);
	assert_int_equal(forged_end(MTR_FACTS, 0, 2, "\0", 1, &n), MTR_DAMAGED);
	assert_int_equal(forged_end(MTR_FACTS, MTR_ZSTD, 1, "\0", 1, &n), MTR_DAMAGED);
	assert_int_equal(forged_end(MTR_FACTS, MTR_ZSTD, 0xffffffff, "\0", 1, &n), MTR_DAMAGED);
	/* An end block with wrong counts or without counts. */
	assert_int_equal(END_OF(MTR_END, "\1"), MTR_DAMAGED);
	assert_int_equal(END_OF(MTR_END, ""), MTR_DAMAGED);
	/* A header that announces 4 GiB allocates nothing. */
	forge_header(f);
	forge(f, MTR_FACTS, 0, 1, "\0", 1);
	put_le32(f->data + 16 + 8, 0xfffffff0);
	put_le32(f->data + 16 + 20, crc32c(f->data + 16, 20));
	fd = file_of(f->data, f->len);
	r = read_all(fd, NULL);
	assert_int_equal(mtr_reader__end(r, NULL, NULL), MTR_DAMAGED);
	mtr_reader__free(r);
	close(fd);
	free(f);
}

static void test_checksum(void **state)
{
	uint8_t data[64];

	assert_int_equal(crc32c("123456789", 9), 0xe3069283);
	assert_int_equal(crc32c("", 0), 0);
	memset(data, 0, 32);
	assert_int_equal(crc32c(data, 32), 0x8a9136aa);
	memset(data, 0xff, 32);
	assert_int_equal(crc32c(data, 32), 0x62a8ab43);
}

static void test_varints(void **state)
{
	uint8_t buf[2 * VARINT_MAX];

	memset(buf, 0xff, sizeof(buf));
	for (int shift = 0; shift < 64; shift++) {
		for (int64_t add = -1; add <= 1; add++) {
			uint64_t v = (UINT64_C(1) << shift) + (uint64_t)add, got = 0;
			uint8_t *end = varint__put(buf, v);
			const uint8_t *p = buf;

			assert_true(end - buf <= VARINT_MAX);
			assert_true(varint__get(&p, end, &got));
			assert_true(got == v && p == end);
			p = buf; /* the payload plus extra bytes */
			got = 0;
			assert_true(varint__get(&p, buf + sizeof(buf), &got));
			assert_true(got == v && p == end);
			p = buf; /* the payload truncated */
			assert_false(varint__get(&p, end - 1, &got));
			assert_ptr_equal(p, buf);
			assert_true(unzigzag(zigzag(v)) == v);
		}
	}
	assert_true(zigzag(0) == 0 && zigzag(UINT64_MAX) == 1 && zigzag(1) == 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_torn_everywhere),	 cmocka_unit_test(test_every_bit),
		cmocka_unit_test(test_not_a_recording),	 cmocka_unit_test(test_forged_dictionary),
		cmocka_unit_test(test_forged_facts),	 cmocka_unit_test(test_forged_events),
		cmocka_unit_test(test_too_many_devices), cmocka_unit_test(test_forged_blocks),
		cmocka_unit_test(test_checksum),	 cmocka_unit_test(test_varints),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
