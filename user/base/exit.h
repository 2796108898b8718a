/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Exit codes, the same for every command; part of the interface. */
enum {
	EXIT_OK = 0,		/* success, also if the target ended */
	EXIT_FAILED = 1,	/* I/O, memory, anything else */
	EXIT_UNUSABLE = 2,	/* the target or the file is not usable */
	EXIT_NOT_PERMITTED = 3, /* not permitted, or the kernel lacks what is needed */
	EXIT_HELD = 4,	 /* a condition of --fail-if holds, or the job of `estimate` does not fit */
	EXIT_USAGE = 64, /* wrong usage; argp uses it, too */
};
