/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: a memory snapshot of PyTorch, as a pickle of any protocol, as JSON, or
 * compressed. A snapshot that is read gives a recording that the writer takes, and that has the
 * same number of events.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "record/dict.h"
#include "record/mtr.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_events(struct mtr_reader *r)
{
	const struct mtr_writer_opts no_bounds = { 0 };
	static int fd = -1;
	struct mtr_writer *w;
	uint64_t counted = 0, told;
	struct event e;
	int n;

	if (fd < 0)
		fd = memfd_create("out", 0);
	if (fd < 0 || ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET))
		abort();
	w = mtr_writer__new(fd, mtr_reader__dict(r), mtr_reader__facts(r), &no_bounds);
	while (w && (n = mtr_reader__next(r, &e)) == 1) {
		if (mtr_writer__event(w, &e))
			abort();
		counted += event__counts(&e);
	}
	if (!w || n)
		abort();
	if (!facts__number(mtr_reader__facts(r), "events", &told) || told != counted)
		abort();
	if (mtr_writer__close(w))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *why = NULL;
	struct mtr_reader *r = mtr_reader__open(memory_file__of(data, size), &why);

	if (r && mtr_reader__is_snapshot(r))
		read_events(r);
	else if (!r && (!why || (errno != EBADMSG && errno != EINVAL && errno != ENOTSUP)))
		abort();
	mtr_reader__free(r);
	return 0;
}
