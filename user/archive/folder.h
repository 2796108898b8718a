/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_ARCHIVE_FOLDER_H
#define MT_ARCHIVE_FOLDER_H
/*
 * A folder of recordings with an index: the windows of one job, the processes of a tree, the
 * segments of a long capture. index.json says of each file what is in it, so that many can be
 * listed, ordered and compared without reading them. It is written anew after each change, under a
 * temporary name and in one step; several captures may write into one folder at the same time. What
 * is read from it is not trusted.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FOLDER_INDEX "index.json"
#define FOLDER_DEVICES 16
#define FOLDER_MAX 65536 /* entries */

struct folder_device {
	char name[16];				/* "cuda:0", "cpu" */
	uint64_t peak_allocated, peak_reserved; /* within the recording */
	uint64_t allocated, reserved;		/* at its end */
};

/* Of one recording. Text is UTF-8 as it came: to be cleaned before it is shown. "" and -1: not
 * known. */
struct folder_entry {
	char file[256]; /* within the folder */
	char kind[16];	/* "window" | "process" | "segment" */
	char name[128]; /* for a person: what compare calls it */
	char comm[64], container[128], pod[128];
	int64_t pid, rank;
	char begin[40], end[40]; /* RFC 3339 */
	uint64_t from, to;	 /* ns since the capture's start */
	int64_t first_step,
		last_step; /* whole steps of the capture that are in it, the first one is 0 */
	char began[160], ended[160]; /* why */
	uint64_t events, lost, bytes;
	struct folder_device devices[FOLDER_DEVICES];
	size_t n_devices;
};

/* What is not there any more, or never was. */
struct folder_gap {
	uint64_t from, to; /* ns since the capture's start */
	uint64_t events, bytes;
	char why[160];
};

struct folder;

/*
 * Does the path ask for a folder: a "/" at its end, or a folder of our own (or of the user behind
 * sudo) that is there? One that somebody else has put there, or a link to one, is not taken for
 * what was meant.
 */
bool folder__wanted(const char *path);
/* Is it a folder with an index? */
bool folder__is(const char *path);
/*
 * To write into: made if it is not there (mode 0700, of the user behind sudo); entries that are
 * there stay. force: a folder that has files but no index is taken too. 0 and *ret, or -errno:
 * -ENOTEMPTY: that; -EBADMSG: its index cannot be read; without a "/" at the end -ELOOP: a link,
 * -EPERM: somebody else's. folder__why() has the words.
 */
int folder__create(const char *path, bool force, struct folder **ret);
/* To read. 0 and *ret, or -errno: -ENOENT: no index; -EBADMSG: it makes no sense, and *why (may be
 * NULL) says where, static. */
int folder__read(const char *path, struct folder **ret, const char **why);
int folder__read_again(
	struct folder *f);	     /* what others have changed meanwhile. As folder__read() */
void folder__free(struct folder *f); /* NULL is fine; nothing is written */
const char *folder__why(int err);

/* As of the last reading or change, in order of time: by begin, then by from. Owned by f. */
const struct folder_entry *folder__entries(const struct folder *f, size_t *n);
const struct folder_gap *folder__gaps(const struct folder *f, size_t *n);
const char *folder__path(const struct folder *f);

/*
 * The path of a file in the folder that is not there yet: STEM.mtr, or STEM-2.mtr ...; characters
 * that file names should not have become "_". To be freed; NULL on ENOMEM.
 */
char *folder__new_path(const struct folder *f, const char *stem);
/* An entry more, or in the place of the one of the same file. 0 or -errno; -EINVAL: a name that is
 * none; -E2BIG. */
int folder__add(struct folder *f, const struct folder_entry *e);
/* Removes a recording and its entry; gap (may be NULL) is noted instead, joined with the last one
 * where they meet. 0 or -errno. */
int folder__drop(struct folder *f, const char *file, const struct folder_gap *gap);
/* The same without a file: nothing was recorded there. */
int folder__note_gap(struct folder *f, const struct folder_gap *gap);

#endif
