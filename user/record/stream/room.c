/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mtr.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "base/text.h"

static uint64_t default_bound; /* bytes; 0: not computed yet */
static uint64_t set_bound;     /* bound of room__set() in bytes; 0: not set */

/* Sets default_bound to half of the available memory, or to 7/8 of RLIMIT_AS if that is less.
 * Returns 0 or -errno. */
static int compute_default_bound(void)
{
	uint64_t bytes, limit = UINT64_MAX;
	struct rlimit l;
	int err = memory__available(&bytes);

	if (err)
		return err;
	bytes = bytes ? bytes / 2 : UINT64_MAX;
	/* RLIMIT_AS also counts addresses without memory. */
	if (!getrlimit(RLIMIT_AS, &l) && l.rlim_cur != RLIM_INFINITY)
		limit = l.rlim_cur - l.rlim_cur / 8;
	default_bound = bytes < limit ? bytes : limit;
	return 0;
}

void room__set(uint64_t bytes)
{
	set_bound = bytes;
}

int room__check_more(uint64_t bytes)
{
	int err = default_bound ? 0 : compute_default_bound();
	uint64_t all;

	if (err)
		return err;
	if (__builtin_add_overflow(memory__own(), bytes, &all))
		return -ENOBUFS;
	if (all > (set_bound ?: default_bound))
		return -ENOBUFS;
	return 0;
}

int room__check(void)
{
	return room__check_more(0);
}

char *room__why(char *buf, size_t size, int err)
{
	char b[24];

	if (err == -ENOMEM)
		snprintf(buf, size, "this recording needs more memory than this process can get");
	else if (set_bound)
		snprintf(buf, size, "this recording needs more memory than %s (--max-memory)",
			 text__bytes(b, sizeof(b), set_bound));
	else
		snprintf(buf, size,
			 "this recording needs more memory than %s, half of the available memory; "
			 "--max-memory allows more",
			 text__bytes(b, sizeof(b), default_bound));
	return buf;
}
