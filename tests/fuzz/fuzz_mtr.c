/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The recording reader on hostile input. First byte even: the rest is a file as it is. Odd: the rest is
 * {type, flags, length (2 bytes), payload} again and again, made into blocks with right checksums, since a
 * fuzzer does not find those by itself.
 *
 *	clang -g -O1 -fsanitize=fuzzer,address,undefined -std=gnu11 -D_GNU_SOURCE -Iuser -Ibpf \
 *		tests/fuzz/fuzz_mtr.c user/record/?*.c user/lib/{hash,map64,text}.c -lzstd -o fuzz_mtr
 */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "record/crc32c.h"
#include "record/dict.h"
#include "record/mtr.h"
#include "record/mtr_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_all(int fd, const void *data, size_t len)
{
	if (write(fd, data, len) != (ssize_t)len)
		abort();
}

static void put_header(int fd)
{
	uint8_t h[MTR_FILE_HEADER];

	memcpy(h, MTR_MAGIC, MTR_MAGIC_SIZE);
	put_le32(h + 8, MTR_VERSION);
	put_le32(h + 12, MTR_BYTE_ORDER);
	put_all(fd, h, sizeof(h));
}

static void put_blocks(int fd, const uint8_t *p, size_t size)
{
	put_header(fd);
	while (size >= 4) {
		uint8_t h[MTR_BLOCK_HEADER];
		size_t len = (size_t)p[2] | (size_t)p[3] << 8;

		if (len > size - 4)
			len = size - 4;
		put_le32(h, p[0]);
		put_le32(h + 4, p[1]);
		put_le32(h + 8, (uint32_t)len);
		/* A compressed block has to say its length: the zstd frame's own, if it is told there. */
		put_le32(h + 12, p[1] & MTR_ZSTD && len > 8 ? p[4 + 5] : (uint32_t)len);
		put_le32(h + 16, crc32c(p + 4, len));
		put_le32(h + 20, crc32c(h, 20));
		put_all(fd, h, sizeof(h));
		put_all(fd, p + 4, len);
		p += 4 + len;
		size -= 4 + len;
	}
}

/* Whatever comes out must be fit for those who believe the reader. */
static void check_event(const struct mtr_reader *r, const struct event *e)
{
	struct dict_counts n = dict__counts(mtr_reader__dict(r));

	if (e->kind < EVENT_ALLOC || e->kind >= EVENT_KINDS || e->how >= MEM_HOW_NR || e->stack >= n.stacks || e->thread >= n.threads ||
	    e->module >= n.modules || e->node >= n.nodes || e->name >= n.strings || e->category >= CATEGORY_NR)
		abort();
}

static void check_dict(const struct dict *d)
{
	struct dict_counts n = dict__counts(d);

	for (uint32_t i = 0; i < n.stacks; i++) {
		struct dict_stack s = dict__get_stack(d, i);

		for (uint32_t k = 0; k < s.n; k++) {
			if (s.frames[k].loc >= n.locs || s.frames[k].module >= n.modules)
				abort();
		}
	}
	for (uint32_t i = 0; i < n.nodes; i++) {
		struct dict_node node = dict__get_node(d, i);

		if (node.cls >= n.strings || node.stack >= n.stacks || node.name >= n.strings || node.module >= n.modules)
			abort();
	}
	for (uint32_t i = 0; i < n.strings; i++) {
		if (strlen(dict__str(d, i)) > DICT_MAX_STRING)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct mtr_reader *r;
	struct event e;
	char path[32];

	if (!size)
		return 0;
	if (fd < 0)
		fd = memfd_create("fuzz", 0);
	if (fd < 0 || ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET))
		abort();
	if (data[0] & 1)
		put_blocks(fd, data + 1, size - 1);
	else
		put_all(fd, data + 1, size - 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = mtr_reader__open(path, NULL);
	if (!r)
		return 0;
	while (mtr_reader__next(r, &e) == 1)
		check_event(r, &e);
	check_dict(mtr_reader__dict(r));
	mtr_reader__free(r);
	return 0;
}
