/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* For programs of tests/programs/native: what a probe would see of the calling thread. */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As in user/inspect/native/native.h, then the size of the copy that follows. */
struct snapshot {
	uint64_t ip, sp, fp, lr, size;
};

/* Writes the thread's registers and the top of its stack to standard output. */
int snapshot(int depth);

#ifdef __cplusplus
}
#endif
