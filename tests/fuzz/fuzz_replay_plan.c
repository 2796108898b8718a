/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* libFuzzer target: a recording made into a replay plan, which the replayer must accept. */
#include <sys/mman.h>

#include "estimate/replay/plan.h"
#include "record/mtr.h"
#include "recording_file.h"
#include "replay_plan_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan(struct mtr_reader *r, int fd)
{
	struct replay_plan_maker *p = replay_plan__new(fd, 0, 1 << 30);
	struct replay_plan_info info;
	uint64_t index = 0;
	struct event e;
	int err = p ? 0 : -1;
	char *text;

	while (!err && mtr_reader__next(r, &e) == 1)
		err = replay_plan__event(p, &e, index++, e.stack);
	if (!err && !replay_plan__finish(p, &info)) {
		text = plan_text(fd);
		if (!text)
			abort();
		free(text);
	}
	replay_plan__free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mtr_reader *r;
	int fd;

	if (!size)
		return 0;
	r = mtr_reader__open(recording_file(data, size), NULL);
	fd = r ? memfd_create("plan", MFD_CLOEXEC) : -1;
	if (fd >= 0) {
		plan(r, fd);
		close(fd);
	}
	mtr_reader__free(r);
	return 0;
}
