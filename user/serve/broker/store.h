/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The server's folder. Names of files come from the broker, never from a request. Files are opened
 * relative to the folder's descriptor, not through links, and must be regular. They belong to the
 * user behind sudo or to our user, and have mode 0600. */
#include <stdbool.h>
#include <stdint.h>

struct store {
	int dir; /* descriptor of the folder */
	char path[4096];
	bool own; /* created by this server, and removed at its end */
};

/* Opens or creates the folder. path NULL: creates a temporary folder in TMPDIR or /var/tmp. A given
 * folder must belong to our user, and no other server may use it. Returns 0, or -errno with the
 * reason in why (256 bytes). */
int store__open(struct store *s, const char *path, char *why);
/* Closes the folder. Removes a temporary folder with its files. */
void store__close(struct store *s);

/* Creates a file for writing and reading. Returns the descriptor or -errno; -EEXIST: the file
 * exists. */
int store__create(const struct store *s, const char *name);
/* Opens a file for reading; *size in bytes. Returns the descriptor or -errno; -EINVAL: not a
 * regular file, or it has several names. */
int store__open_file(const struct store *s, const char *name, uint64_t *size);
/* Renames a file. Returns 0 or -errno; -EEXIST: a file has the name `to`. */
int store__rename(const struct store *s, const char *from, const char *to);
void store__remove(const struct store *s, const char *name);
bool store__has(const struct store *s, const char *name);
/* Size of all files, in bytes. */
uint64_t store__used(const struct store *s);
/* Calls fn for each file in the folder, also for files that the server did not make. */
void store__each(const struct store *s, void (*fn)(void *ctx, const char *name), void *ctx);
