/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Writes a synthetic recording for tests of the exports: make_recording FILE
 * [oom|tiny|leak|healthy|marks] leak keeps 4 MiB a step, healthy nothing; marks is healthy with
 * marks after steps 30, 60 and 90. */
#include <fcntl.h>
#include <unistd.h>

#include "record/mtr.h"
#include "unit/synthetic.h"

struct writer {
	struct sink sink;
	struct mtr_writer *w;
	struct dict *dict;
	bool marks;
	unsigned int steps;
};

static int write_event(struct sink *s, const struct event *e)
{
	static const char *const names[] = { "memory unmapped: 1.20 GiB (sleep)",
					     "memory mapped again: 1.20 GiB (wake-up)",
					     "</script><b>bold</b>" };
	struct writer *to = (struct writer *)s;
	struct event mark = { .kind = EVENT_MARK, .time = e->time };
	int err = mtr_writer__event(to->w, e);

	if (err || !to->marks || e->kind != EVENT_STEP || ++to->steps % 30 || to->steps > 90)
		return err;
	mark.name = dict__string(to->dict, names[to->steps / 30 - 1],
				 strlen(names[to->steps / 30 - 1]));
	return mtr_writer__event(to->w, &mark);
}

int main(int argc, char **argv)
{
	/* tiny: every kind of data once, with exports small enough to keep in the repository */
	bool tiny = argc > 2 && !strcmp(argv[2], "tiny");
	bool leak = argc > 2 && !strcmp(argv[2], "leak");
	bool marks = argc > 2 && !strcmp(argv[2], "marks");
	bool steady = leak || marks || (argc > 2 && !strcmp(argv[2], "healthy"));
	struct synthetic_opts opts = {
		.layers = tiny || steady ? 1 : 12,
		.steps = tiny	  ? 2
			 : steady ? 120
				  : 4,
		.cpu = true,
		.oom = argc > 2 && !steady,
		.steady = steady,
		.leak = leak ? 4 * SYN_MIB : 0,
	};
	struct writer writer = { .sink = { .event = write_event }, .marks = marks };
	struct dict *d = dict__new();
	struct facts *f = facts__new();
	uint64_t duration = 0;
	int fd, err;

	fd = argc > 1 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
	if (fd < 0 || !d || !f) {
		fprintf(stderr, "usage: make_recording FILE [oom|tiny|leak|healthy|marks]\n");
		return 64;
	}
	syn_facts(f);
	writer.dict = d;
	writer.w = mtr_writer__new(fd, d, f, &(struct mtr_writer_opts){ 0 });
	if (!writer.w)
		return 1;
	err = synthetic__run(d, f, &writer.sink, opts, &duration);
	facts__setf(f, "duration_ns", "%llu", (unsigned long long)duration);
	facts__set(f, "stop_reason", "signal");
	err = mtr_writer__close(writer.w) ?: err;
	close(fd);
	dict__free(d);
	facts__free(f);
	return err ? 1 : 0;
}
