/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by python.c and pythread.c. */
#include "inspect/elf.h"
#include "inspect/proc.h"
#include "inspect/python.h"

/* A file in the target that defines symbols of the interpreter. */
struct pyfile {
	struct elf *elf;
	uint64_t bias;
	char *path;
};

struct python {
	const struct proc *proc;
	/* [0] defines _PyRuntime. [1] is libpython if an executable linked to it has a copy of
	 * _PyRuntime. */
	struct pyfile file[2];
	size_t nr_files;
	uint64_t runtime; /* address of _PyRuntime */
	struct pylayout layout;
	int major, minor, micro;
};

/* Sets *why to a formatted text in a thread-local buffer, valid until the next call. Returns
 * err. */
int python__refuse(const char **why, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Checks the layout against PyCode_Type. 0 or -errno with *why set. */
int python__cross_check(const struct python *py, const char **why);
