/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_PYTHON_PYINTERNAL_H
#define MT_PYTHON_PYINTERNAL_H
/* What python.c, pyversion.c and pythread.c share, and nobody else includes. */
#include "process/elf.h"
#include "process/proc.h"
#include "python/pylayout.h"
#include "python/python.h"

/* A file in the target that defines symbols of the interpreter. */
struct pyfile {
	struct elf *elf;
	uint64_t bias;
	char *path;
};

struct python {
	const struct proc *proc;
	/*
	 * [0] defines _PyRuntime. An executable linked to a libpython may hold a copy of that one
	 * object: then [1] is the library, which defines the rest.
	 */
	struct pyfile file[2];
	size_t nr_files;
	uint64_t runtime;
	struct pylayout layout;
	int major, minor, micro;
};

/* Sets *why to a formatted text in a buffer of the thread, valid until its next use; returns err. */
int python__refuse(const char **why, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Fills version and layout from what the file and the process say. 0 or -errno with *why set. */
int python__identify(struct python *py, const char **why);
/* Holds the layout against PyCode_Type. 0 or -errno with *why set. */
int python__cross_check(const struct python *py, const char **why);

#endif
