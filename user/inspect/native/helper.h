/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The process that parses files of the target: see native.h. */
#include <stddef.h>
#include <stdint.h>

struct wire_frames;

/* Main function of the helper, for base/subprocess.h. fd: its end of the socket. Returns when the
 * other end is closed. Exit code 0, or 2: it could not be confined. */
int helper__run(int fd);

/* ---- for unwind.c ---- */

/* Sends a request for a file and waits for it. A descriptor or -1. */
int helper__file(int fd, unsigned kind, uint32_t candidate, uint32_t module,
		 const uint8_t *build_id, size_t build_id_len, const char *name);
