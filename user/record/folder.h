/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * A folder of recordings with an index: the windows of a job, the processes of a process group, the
 * parts of a long capture. The file index.json describes each recording, so that commands can list
 * and compare them. Each change replaces the index atomically; several captures may write to one
 * folder. The reader checks all input.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/io.h"

#define FOLDER_DEVICES 16
#define FOLDER_MAX 65536 /* most entries of a folder */

struct folder_device {
	char name[16];				/* device name, such as "cuda:0" or "cpu" */
	uint64_t peak_allocated, peak_reserved; /* peaks within the recording */
	uint64_t allocated, reserved;		/* bytes at the recording's end */
};

/* The index entry of a recording. Text is UTF-8 from the file; clean it before printing. "" and -1:
 * unknown. */
struct folder_entry {
	char file[256]; /* name within the folder */
	char kind[16];	/* kind: "window", "process", "segment", or "rolling" for a folder */
	char name[128]; /* name for people, as compare prints it */
	char comm[64], container[128], pod[128];
	char host[128]; /* name of the machine, if the folder has recordings of several */
	int64_t pid, rank;
	char begin[40], end[40]; /* times in RFC 3339 */
	uint64_t from, to;	 /* ns since the capture's start */
	/* First and last whole step in the recording, as numbers of the capture from 0. */
	int64_t first_step, last_step;
	char began[160], ended[160]; /* reasons of begin and end, as text */
	uint64_t events, lost, bytes;
	struct folder_device devices[FOLDER_DEVICES];
	size_t n_devices;
};

/* A period that has no recording, or no longer has one. */
struct folder_gap {
	uint64_t from, to; /* ns since the capture's start */
	uint64_t events, bytes;
	char why[160];
};

/* A recording that a fetch did not get. "" and -1: unknown. */
struct folder_missing {
	char host[128];
	int64_t pid, rank;
	char why[256];
};

struct event;
struct facts;
struct folder;

/* True if the path asks for a folder. It ends in "/", or it is an existing folder of the caller or
 * of the user behind sudo. A symbolic link, or another user's folder, needs the "/". */
bool folder__wanted(const char *path);
/* True if the path is a folder with an index. */
bool folder__is(const char *path);
/*
 * Opens a folder for writing. Creates it if necessary (mode 0700, for the user behind sudo) and
 * keeps existing entries. force: accept a folder with files but no index. Returns 0 and *ret, or
 * -errno; folder__why() has the text. -ENOTEMPTY: force is needed; -EBADMSG: bad index;
 * -EPROTONOSUPPORT: a newer program's index; -ELOOP, -EPERM: a link or another user's folder,
 * without a "/" at the end.
 */
int folder__create(const char *path, bool force, struct folder **ret);
/* Opens a folder for reading. Returns 0 and *ret, or -errno. -ENOENT: no index; -EBADMSG: bad
 * index, and *why (may be NULL) is a static text; -EPROTONOSUPPORT: a newer program's index. */
int folder__read(const char *path, struct folder **ret, const char **why);
/* Reads the index again, as folder__read(). */
int folder__read_again(struct folder *f);
void folder__free(struct folder *f); /* NULL is fine; writes nothing */
const char *folder__why(int err);

/* Entries and gaps as of the last reading or change, by begin, then by from. f owns them. */
const struct folder_entry *folder__entries(const struct folder *f, size_t *n);
const struct folder_gap *folder__gaps(const struct folder *f, size_t *n);
const struct folder_missing *folder__missing(const struct folder *f, size_t *n);
const char *folder__path(const struct folder *f);

/* Returns the path of a new file in the folder: STEM.mtr, or STEM-2.mtr ..., if
 * suffix is ".mtr", with "_" for unsuitable characters. The caller frees it. NULL if memory is
 * short. */
char *folder__new_path(const struct folder *f, const char *stem, const char *suffix);
/* Sets rank, comm, container and pod from the facts of a recording. */
void folder_entry__describe(struct folder_entry *e, const struct facts *f);
/* Keeps the last totals and the peaks of the event's device in the entry. */
void folder_entry__event(struct folder_entry *e, const struct event *event);
/* Adds an entry, or replaces the one of the same file. Returns 0 or -errno; -EINVAL: bad name;
 * -E2BIG: too many entries. */
int folder__add(struct folder *f, const struct folder_entry *e);
/* Adds many entries in the same way, and the recordings that are missing, with one change of the
 * index. */
int folder__add_all(struct folder *f, const struct folder_entry *e, size_t n,
		    const struct folder_missing *missing, size_t n_missing);
/* Removes a recording and its entry. Adds gap (may be NULL), merged with an adjacent last gap.
 * Returns 0 or -errno. */
int folder__drop(struct folder *f, const char *file, const struct folder_gap *gap);
/* Reads a member of an index that is a number from 0 on. False: o has no such member. */
bool folder__count(const json_t *o, const char *key, uint64_t *ret);
