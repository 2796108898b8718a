/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reads a recording and makes the plan: first chooses the device, then converts the events. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/failure.h"
#include "capture/session.h"
#include "estimate/replay/internal.h"
#include "model/analysis.h"
#include "model/model.h"
#include "record/mtr.h"

#define TOTAL_MAX (1ULL << 50)

/* Creates an unnamed file whose descriptor is above the numbers that the replayer uses. */
static int temporary(struct failure *f)
{
	const char *dir = getenv("TMPDIR");
	char path[PATH_MAX];
	int fd, high;

	if (!dir || dir[0] != '/')
		dir = "/tmp";
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 &&
	    (size_t)snprintf(path, sizeof(path), "%s/memtrace-replay-XXXXXX", dir) < sizeof(path)) {
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);
	if (fd >= 0)
		close(fd);
	if (high < 0)
		failure__set(
			f, EXIT_FAILED, -errno,
			"%s: cannot make a temporary file there: %s; set TMPDIR to another folder",
			dir, strerror(errno));
	return high;
}

static int spool(struct replay *r, struct failure *f)
{
	char buf[1 << 16];
	ssize_t n;

	r->spool = temporary(f);
	if (r->spool < 0)
		return -EIO;
	while ((n = read(STDIN_FILENO, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || write(r->spool, buf, (size_t)n) != n)
			return failure__set(f, EXIT_FAILED, -errno, "standard input: %s",
					    strerror(errno));
	}
	return 0;
}

static struct mtr_reader *open_reader(const struct replay *r, const char *path, struct failure *f)
{
	char self[64];
	const char *why = NULL;
	struct mtr_reader *reader;

	if (r->spool >= 0) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", r->spool);
		path = self;
	}
	reader = mtr_reader__open(path, &why);
	if (!reader)
		analysis__open_failure(r->spool >= 0 ? "-" : path, errno, why, f);
	return reader;
}

static int fail(const struct replay_opts *opts, int err, struct failure *f)
{
	char why[256];

	return failure__set(f, EXIT_FAILED, err, "%s: %s", opts->path,
			    err == -EFBIG			? "too many live blocks to replay"
			    : err == -ENOBUFS || err == -ENOMEM ? room__why(why, sizeof(why), err)
								: strerror(-err));
}

/* Reads the recording once and sets about.device and about.vram. The device is the requested one,
 * or the one with the largest peak of allocated bytes (-1: none). Returns 0, or -errno and *f. */
static int survey(struct replay *r, const struct replay_opts *opts, struct failure *f)
{
	struct mtr_reader *reader = open_reader(r, opts->path, f);
	uint64_t live[256] = { 0 }, peak[256] = { 0 }, events = 0;
	struct event e;
	int best = -1, got, err;
	char key[32];

	if (!reader)
		return -EINVAL;
	while ((got = mtr_reader__next(reader, &e)) == 1) {
		uint8_t i = e.device.index;

		events++;
		if (e.device.type != DEVICE_CUDA || (e.kind != EVENT_ALLOC && e.kind != EVENT_FREE))
			continue;
		if (e.totals)
			live[i] = e.allocated;
		else if (e.kind == EVENT_ALLOC)
			live[i] += e.size;
		else
			live[i] -= e.size < live[i] ? e.size : live[i];
		if (live[i] > peak[i])
			peak[i] = live[i];
		if (best < 0 || peak[i] > peak[best])
			best = i;
	}
	r->about.device = opts->device >= 0 ? opts->device : best;
	snprintf(key, sizeof(key), "device.%d.total", r->about.device);
	facts__number(mtr_reader__facts(reader), key, &r->about.vram);
	if (r->about.vram > TOTAL_MAX)
		r->about.vram = 0;
	err = got < 0 ? fail(opts, got, f) : analysis__end_failure(opts->path, reader, events, f);
	mtr_reader__free(reader);
	return err;
}

static int plan_events(struct replay *r, struct replay_plan_maker *p)
{
	struct event e, charged;
	uint64_t index = 0;
	int got, err = 0;

	while (!err && (got = mtr_reader__next(r->reader, &e)) != 0) {
		if (got < 0)
			return got;
		charged = e;
		if (e.kind == EVENT_ALLOC || e.kind == EVENT_OOM)
			model__charge(r->resolver, &charged);
		err = replay_plan__event(p, &e, index++, charged.stack);
	}
	return err;
}

int replay_read__plan(struct replay *r, const struct replay_opts *opts, struct failure *f)
{
	struct replay_plan_maker *p;
	int err = !strcmp(opts->path, "-") ? spool(r, f) : 0;

	if (err)
		return err;
	err = survey(r, opts, f);
	if (err)
		return err;
	if (r->about.device < 0 || r->about.device > 254)
		return failure__set(f, EXIT_UNUSABLE, -ENODATA,
				    "%s: the recording has no CUDA allocations", opts->path);
	r->reader = open_reader(r, opts->path, f);
	if (!r->reader)
		return -EINVAL;
	r->plan = temporary(f);
	if (r->plan < 0)
		return -EIO;
	r->resolver = model__new(mtr_reader__dict(r->reader), mtr_reader__facts(r->reader),
				 &(struct model_opts){ .at = AT_PEAK });
	p = r->resolver ? replay_plan__new(r->plan, (uint8_t)r->about.device, r->about.vram) : NULL;
	err = p ? plan_events(r, p) : -ENOMEM;
	if (!err)
		err = replay_plan__finish(p, &r->info);
	replay_plan__free(p);
	if (err)
		return fail(opts, err, f);
	if (!r->info.events)
		return failure__set(f, EXIT_UNUSABLE, -ENODATA,
				    "%s: the recording has no allocations on cuda:%d", opts->path,
				    r->about.device);
	return 0;
}
