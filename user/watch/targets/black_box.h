/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * `watch --on-kill`: one `record --on-kill` for all watched processes, as a separate program. It
 * keeps the last minutes in memory and writes a file into the folder of captures when one of them
 * is killed or fails. memtrace-bpf watch then reads that file as it reads its own captures.
 */
#include <stdbool.h>
#include <stdint.h>

struct black_box;
struct watch;
struct watch_target;

/* Borrows w, which needs a folder of captures. The recorder starts with the first pump. NULL: no
 * memory. */
struct black_box *black_box__new(struct watch *w);
/* Ends the recorder; nothing is written for processes that live on. NULL is fine. */
void black_box__free(struct black_box *b);
/* A watched process has ended: expect a file, unless it ended well. */
void black_box__expect(struct black_box *b, const struct watch_target *t);
/* Starts the recorder if it does not run, and passes on the files that it has written. now:
 * CLOCK_MONOTONIC, ns. */
void black_box__pump(struct black_box *b, uint64_t now);
/* True while files of ended processes are expected. */
bool black_box__busy(const struct black_box *b);
