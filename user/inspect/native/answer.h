/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The helper's answer, which may be anything: it parsed hostile files. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inspect/native/wire.h"

/* Paths of the modules by number; owned by the caller. */
struct answer_modules {
	const char *(*path)(const void *ctx, uint32_t module);
	const void *ctx;
	size_t n;
};

/* Checks an answer of len bytes and sets *ret, whose text belongs to a and m. False: not valid. */
bool answer__read(const struct wire_frames *a, size_t len, const struct answer_modules *m,
		  struct native_frames *ret);
