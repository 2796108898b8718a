/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures the recorder's cost of windows on a recording's events, in ns per event: between
 * windows, in a window, with look-back, and plain recording. window_cost RECORDING:
 * docs/internals/OVERHEAD.md.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "record/dict.h"
#include "record/flight.h"
#include "record/mtr.h"

static struct event *events;
static size_t n;
static int null;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int open_null(void *ctx, unsigned int number)
{
	return null;
}

static int done(void *ctx, const struct flight_report *r, int err)
{
	return err;
}

static void say(const char *what, double ns)
{
	printf("%-28s %6.1f ns an event\n", what, ns / (double)n);
}

static int fly(struct dict *d, const struct facts *f, const char *what, uint64_t window, bool open)
{
	const struct flight_opts o = {
		.window = window, .no_oom = true, .open = open_null, .done = done
	};
	struct flight *fl = flight__new(d, f, &o);
	double begin = now();
	int err = fl && open ? flight__begin(fl, 0, false, "") : fl ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && !err; i++)
		err = flight__event(fl, &events[i]);
	if (!err && open)
		err = flight__end(fl, "", "");
	say(what, now() - begin);
	flight__free(fl);
	return err;
}

static int write_plainly(struct dict *d, const struct facts *f)
{
	struct mtr_writer *w = mtr_writer__new(null, d, f, NULL);
	double begin = now();
	int err = w ? 0 : -errno;

	for (size_t i = 0; i < n && !err; i++)
		err = mtr_writer__event(w, &events[i]);
	mtr_writer__close(w);
	say("recording all", now() - begin);
	return err;
}

int main(int argc, char **argv)
{
	const char *why = "";
	struct mtr_reader *r = argc == 2 ? mtr_reader__open(argv[1], &why) : NULL;
	size_t room = 0;
	struct event e;
	int err = 0;

	null = open("/dev/null", O_WRONLY);
	if (!r || null < 0) {
		fprintf(stderr, "window_cost RECORDING: %s\n", why);
		return 1;
	}
	while (mtr_reader__next(r, &e) == 1) {
		if (n == room) {
			room = room ? room * 2 : 1 << 16;
			events = reallocarray(events, room, sizeof(*events));
			if (!events)
				return 1;
		}
		events[n++] = e;
	}
	if (!n)
		return 1;
	/* The cast is safe: the writer adds nothing that the dict lacks. */
	for (int i = 0; i < 3 && !err; i++) {
		struct dict *d = (struct dict *)mtr_reader__dict(r);
		const struct facts *f = mtr_reader__facts(r);

		err = write_plainly(d, f);
		err = err ? err : fly(d, f, "between windows", 0, false);
		err = err ? err : fly(d, f, "between, --before 30s", UINT64_C(30000000000), false);
		err = err ? err : fly(d, f, "in a window", 0, true);
	}
	if (err)
		fprintf(stderr, "%s\n", strerror(-err));
	mtr_reader__free(r);
	free(events);
	return err ? 1 : 0;
}
