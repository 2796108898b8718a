/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Numbers in few columns, with a nearly constant width. */
#include <stdint.h>

/* "61.2 GiB", "512 B": at most 9 characters; buf of 24 bytes. */
char *live__bytes(char *buf, uint64_t bytes);
/* "+61.2 GiB", "-3.0 KiB", "0": at most 10 characters. */
char *live__change(char *buf, int64_t bytes);
/* "12.4k", "7.0", "1.2M": at most 6 characters. */
char *live__rate(char *buf, double per_second);
/* "100%", "12.3%", "<0.1%", "0": at most 5 characters. */
char *live__share(char *buf, uint64_t part, uint64_t whole);
/* Elapsed time, "00:03:12" or "3d 04:05". */
char *live__clock(char *buf, uint64_t ns);
/* Age at the start of a time axis: "45s ago", "2m 14s ago", "3h 05m ago". */
char *live__ago(char *buf, uint64_t ns);
/* The value at the top of a memory axis for values up to v, at least 1 KiB. It changes rarely as v
 * grows, and it and half of it have few digits. */
uint64_t live__scale(uint64_t v);
