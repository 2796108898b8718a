/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* libFuzzer target: the memory that a program writes its phases to, in up to 8 states one after
 * another. Each is a piece of the input at a place that the input chooses. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture/decode/phases.h"
#include "record/stream.h"

#define ROOM 64
#define AREA ((1 + ROOM) * sizeof(struct phase_record))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A record as it should be, with some bytes of the input over it. */
static size_t write_record(int fd, const uint8_t *data, size_t size)
{
	struct phase_record r = { .other = 1, .what = SCOPE_BEGIN, .name = "phase" };
	size_t used = size < 4 ? size : 4, more = size - used;
	uint8_t head[4] = { 0 };
	uint64_t at;

	memcpy(head, data, used);
	r.number = r.again = (uint64_t)head[0] << (head[2] & 63) | head[1];
	at = (1 + r.number % ROOM) * sizeof(r);
	if (head[3] & 1) {
		more = more < 16 ? more : 16;
		memcpy((uint8_t *)&r + (head[3] >> 1) % (sizeof(r) - 16), data + used, more);
		used += more;
	}
	if (pwrite(fd, &r, sizeof(r), (off_t)at) != sizeof(r))
		abort();
	return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t good[32] = { 'M', 'T', 'P', 'H', 'A', 'S', 'E', 0,	  1,
					  0,   0,   0,	 128, 0,   0,	0,   ROOM };
	struct phase_record r[16];
	struct phase_page page;
	uint64_t now = 0;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, AREA) || pwrite(fd, good, sizeof(good), 0) != sizeof(good))
		abort();
	/* One input in 16 also has its own head. */
	if (size > 32 && data[0] < 16) {
		if (pwrite(fd, data + 1, 24, 0) != 24)
			abort();
		data += 25;
		size -= 25;
	}
	if (phase_page__open(&page, fd))
		return 0;
	while (size) {
		size_t used = write_record(fd, data, size);
		uint64_t next = page.next;
		int n;

		data += used;
		size -= used;
		now += 300000000;
		n = phase_page__read(&page, now, r, 16);
		if (n < 0 || n > 16 || page.lost > STREAM_MOST || page.next - next < (uint64_t)n)
			abort();
		for (int i = 0; i < n; i++)
			if (r[i].number != r[i].again || r[i].number <= next ||
			    (i && r[i].number <= r[i - 1].number))
				abort();
	}
	close(page.fd);
	return 0;
}
