/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The process that parses files of the target: see native.h. */

/* Main function of the helper, for base/subprocess.h. fd: its end of the socket. Returns when the
 * other end is closed. Exit code 0, or 2: it could not be confined. */
int helper__run(int fd);
