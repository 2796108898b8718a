/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Prints the dumps of a process and its descendants together: a router, its engine and workers. */
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "report/dump.h"

struct dump_process {
	pid_t pid, parent;  /* parent: 0 for the first process */
	struct dump dump;   /* empty if why is not "" */
	struct dump_opts o; /* borrows its texts */
	char name[64];	    /* pyprocess__name(), clean; "": not known */
	char why[256];	    /* why it was not read, such as "torch is not imported (yet)" */
};

/* A table of the processes with their devices and the sums, then dump__text() of each that was
 * read. cuda:0 is the first device that a process sees. Returns 0 or -ENOMEM. */
int dump_tree__text(FILE *out, struct dump_process *v, size_t n);
/* One document, with dump__json()'s of each process. Returns 0 or -ENOMEM. */
int dump_tree__json(FILE *out, struct dump_process *v, size_t n);
