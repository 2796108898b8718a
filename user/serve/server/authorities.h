/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The certificates that a client of ours trusts. */
#include <stddef.h>

/* Writes the path of the host's certificates, as Debian, Red Hat, SUSE and Alpine have them, for a
 * libcurl that was built without a path of its own. "": libcurl has one, or none was found. */
void authorities__find(char *buf, size_t size);
