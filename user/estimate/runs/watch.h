/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The processes of a running script: their memory use and their end. */
#include <stdint.h>
#include <sys/types.h>

/*
 * Bytes of host memory that a process and its descendants hold. The fast sum counts shared pages
 * once per process. If it exceeds `enough`, the function returns the exact sum, if the kernel has
 * it.
 */
uint64_t estimate_watch__memory(pid_t pid, uint64_t enough);
/* Ends a process with SIGTERM, or with SIGKILL if it handles SIGTERM or does not end. Then kills
 * all its descendants, but not process `spare`. Returns the number of killed descendants. */
unsigned estimate_watch__end(pid_t pid, int pidfd, pid_t spare);
