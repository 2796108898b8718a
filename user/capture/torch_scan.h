/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Which processes have PyTorch: the question of scans, which look at processes that anybody may
 * have made. To answer it, a helper process reads the maps and files of a process. Its file system
 * may never answer: then the helper is ended, and the process is left out for a while. So each
 * question takes a bounded time, and an owner (shares.h) has a bounded time in each scan.
 */
#include <stdbool.h>
#include <sys/types.h>

struct pick_process;
struct torch_scan;

enum torch_scan_is {
	TORCH_NO,
	TORCH_YES,
	TORCH_LATER, /* not known: ask in a later scan */
};

/* look: answers in the helper; descendants__has_torch() in everything but tests. NULL: no memory. */
struct torch_scan *torch_scan__new(bool (*look)(pid_t pid));
/* Does not wait for helpers that do not end. NULL is fine. */
void torch_scan__free(struct torch_scan *s);
/* Begins a scan: each owner has its whole time again. */
void torch_scan__begin(struct torch_scan *s);
/* Whether a process has PyTorch. Logs a warning when its files do not answer. */
enum torch_scan_is torch_scan__ask(struct torch_scan *s, const struct pick_process *q);
