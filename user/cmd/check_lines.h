/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The lines of `memtrace-bpf check`: a fact each. The verdict is printed before them. */
#include <stdbool.h>
#include <stdio.h>

#include "capture/target.h"

struct check_lines {
	FILE *out;	/* memory; printed after the verdict */
	bool details;	/* -v: also facts about the inside of PyTorch and Python */
	bool explain;	/* --explain: each probe */
	char why[1024]; /* first line that says NO, without its mark */
	int status;	/* exit code of that line; 0: none says NO */
};

/* Adds a line. ok: the fact is good. Otherwise status is the exit code that it causes, or 0 for a
 * fact that only limits what works. text may contain names of the target. */
void check_lines__add(struct check_lines *lines, bool ok, const char *what, const char *text,
		      int status);
/* Adds the facts about this host; check_host.c. */
void check_lines__host(struct check_lines *lines);
/* Adds the facts about a process that target__look() looked at; check_process.c. */
void check_lines__process(struct check_lines *lines, struct target *t);
