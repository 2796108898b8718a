/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Replays a plan (user/estimate/replay/wire.h) through PyTorch's allocator once and writes the
 * result. memtrace-bpf starts this program with the dry run preloaded and the settings in the
 * environment. Descriptors: 3 the plan, 4 a pipe for the result, 5 the folder of PyTorch's
 * libraries.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replayer.h"

static const struct replay_plan *map_plan(struct replayer *r)
{
	struct stat st;
	const struct replay_plan *p;

	if (fstat(REPLAY_PLAN_FD, &st) || st.st_size < (off_t)sizeof(*p))
		return NULL;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, REPLAY_PLAN_FD, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (p->magic != REPLAY_MAGIC || p->slots > REPLAY_MAX_SLOTS ||
	    p->takes > REPLAY_MAX_SLOTS || p->pools > REPLAY_MAX_POOLS || p->ops_end < sizeof(*p) ||
	    p->ops_end > (uint64_t)st.st_size ||
	    p->segments > ((uint64_t)st.st_size - p->ops_end) / sizeof(uint32_t))
		return NULL;
	r->at = (const uint8_t *)(p + 1);
	r->end = (const uint8_t *)p + p->ops_end;
	r->pool_of = r->end;
	return p;
}

static bool send_all(const void *message, size_t size)
{
	const char *p = message;

	while (size) {
		ssize_t n = write(REPLAY_ANSWER_FD, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		size -= (size_t)n;
	}
	return true;
}

void replayer__point(struct replayer *r)
{
	struct replay_point p = { REPLAY_POINT, r->event, r->time, r->allocated, r->reserved };

	if (r->n_points == sizeof(r->points) / sizeof(*r->points)) {
		if (!send_all(r->points, sizeof(r->points)))
			_exit(1); /* the reader has closed the pipe */
		r->n_points = 0;
	}
	r->points[r->n_points++] = p;
}

/* After this, a hostile plan can only lead to calls of the allocator. */
static void drop_rights(void)
{
	struct rlimit none = { 0, 0 };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	setrlimit(RLIMIT_FSIZE, &none);
	setrlimit(RLIMIT_CORE, &none);
}

int main(int argc, char **argv)
{
	static struct replayer r;
	char lib[64];
	struct allocator_slots slots;
	const struct replay_plan *plan;

	if (argc != REPLAY_ARGS || !(plan = map_plan(&r))) {
		fprintf(stderr, "this is for memtrace-bpf replay\n");
		return 2;
	}
	slots = (struct allocator_slots){ (unsigned)atoi(argv[REPLAY_ARG_RAW_ALLOC]),
					  (unsigned)atoi(argv[REPLAY_ARG_RAW_DELETE]),
					  (unsigned)atoi(argv[REPLAY_ARG_INIT]),
					  (unsigned)atoi(argv[REPLAY_ARG_EMPTY_CACHE]),
					  (unsigned)atoi(argv[REPLAY_ARG_SET_FRACTION]) };
	r.plan = plan;
	r.flags = (unsigned)atoi(argv[REPLAY_ARG_FLAGS]);
	drop_rights();
	snprintf(lib, sizeof(lib), "/proc/self/fd/%d/" REPLAY_LIBRARY, REPLAY_LIB_FD);
	if (!allocator__open(&r.allocator, lib, &slots) || !replayer__run(&r)) {
		fprintf(stderr, "%s\n", r.allocator.why[0] ? r.allocator.why : "the plan is wrong");
		return 1;
	}
	if (!send_all(r.points, r.n_points * sizeof(*r.points)) ||
	    !send_all(&r.answer, sizeof(r.answer)))
		return 1;
	/* Skip the destructors of CUDA libraries. */
	_exit(0);
}
