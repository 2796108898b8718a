/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/rlimit.h"

#include <sys/resource.h>

void rlimit__raise_files(uint64_t wanted)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= wanted)
		return;
	l.rlim_cur = l.rlim_max < wanted ? l.rlim_max : wanted;
	setrlimit(RLIMIT_NOFILE, &l);
}
