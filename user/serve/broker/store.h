/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_BROKER_STORE_H
#define MT_SERVE_BROKER_STORE_H
/*
 * The server's folder. All names in it are made here or by the broker, never by a request; each
 * file is opened relative to the folder's descriptor, through no link, and is a regular one. Files
 * are of the user behind sudo, else of ours, for nobody else to read.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct store {
	int dir;
	char path[4096];
	bool own; /* made by us: it goes with us */
};

/*
 * path NULL: one of our own, in TMPDIR or /var/tmp. Else it is made if it is not there; it has to
 * be ours, and no other server's. 0, or -errno and why (256 bytes) says what is wrong.
 */
int store__open(struct store *s, const char *path, char *why);
/* One of our own is removed with all that is in it. */
void store__close(struct store *s);

/* For writing and reading, exclusively; -EEXIST. The descriptor or -errno. */
int store__create(const struct store *s, const char *name);
/* For reading; *size in bytes. The descriptor or -errno; -EINVAL: not a regular file, or one with
 * several names. */
int store__open_file(const struct store *s, const char *name, uint64_t *size);
int store__rename(const struct store *s, const char *from,
		  const char *to); /* never over another file */
int store__replace(const struct store *s, const char *from,
		   const char *to); /* over an older one of ours */
void store__remove(const struct store *s, const char *name);
bool store__has(const struct store *s, const char *name);
/* Bytes of all that is in it. */
uint64_t store__used(const struct store *s);
/* Calls fn for each file that is in it, whose name may be any. */
void store__each(const struct store *s, void (*fn)(void *ctx, const char *name), void *ctx);

#endif
