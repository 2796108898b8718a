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

#define FOLDER_DEVICES 16 /* most devices in an entry of the index */
#define FOLDER_MAX 65536  /* most recordings, gaps and missing recordings in an index, each */

struct folder_device {
	char name[16];				/* device name, such as "cuda:0" or "cpu" */
	uint64_t peak_allocated, peak_reserved; /* peaks within the recording, bytes */
	uint64_t allocated, reserved;		/* bytes at the recording's end */
};

/* The index entry of a recording. Texts are UTF-8 from the file; clean them before printing. A text
 * that is "" and a number that is -1 are unknown. */
struct folder_entry {
	char file[256]; /* name within the folder */
	/* "window"; "process"; "segment" for a part of a rolling recording; "rolling" for the
	 * folder of a rolling recording */
	char kind[16];
	char name[128]; /* name for people: the command compare prints it */
	char comm[64], container[128], pod[128];
	char host[128]; /* name of the machine, if the folder has recordings of several machines */
	int64_t pid, rank;
	char begin[40], end[40]; /* times of the recording's begin and end, RFC 3339 */
	uint64_t from, to;	 /* the same times in ns since the capture's start */
	/* The first and the last step that are whole in the recording; the capture's first step is
	 * 0. */
	int64_t first_step, last_step;
	char began[160], ended[160];  /* reasons of the recording's begin and end, for people */
	uint64_t events, lost, bytes; /* numbers of events and of lost events; size of the file */
	struct folder_device devices[FOLDER_DEVICES];
	size_t n_devices;
};

/* A period of the capture without a recording, for example because its recording was removed. */
struct folder_gap {
	uint64_t from, to; /* ns since the capture's start */
	uint64_t events, bytes;
	char why[160];
};

/* A recording that `fetch` could not get from its server. A text that is "" and a number that is -1
 * are unknown. */
struct folder_missing {
	char host[128];
	int64_t pid, rank;
	char why[256];
};

struct event;
struct facts;
struct folder;

/* True if an output path means a folder: it ends in "/", or it is an existing folder of the caller
 * or of the user behind sudo. A symbolic link and another user's folder count only with the "/". */
bool folder__wanted(const char *path);
/* True if the path is a folder with an index. */
bool folder__is(const char *path);
/* Opens a folder for writing. Creates it if necessary (mode 0700, owned by the user behind sudo)
 * and keeps existing entries. force: accept a folder that has files but no index. Returns 0 and
 * sets *ret, or returns -errno, for which folder__why() has a text. -ENOTEMPTY: the folder has
 * files but no index; -EBADMSG: bad index; -EPROTONOSUPPORT: a newer program's index; -ELOOP or
 * -EPERM: a link or another user's folder, without a "/" at the end.
 */
int folder__create(const char *path, bool force, struct folder **ret);
/* Opens a folder for reading. Returns 0 and sets *ret, or returns -errno. -ENOENT: no index;
 * -EBADMSG: bad index; -EPROTONOSUPPORT: a newer program's index. If why is not NULL, -EBADMSG sets
 * *why to a static text. */
int folder__read(const char *path, struct folder **ret, const char **why);
/* Reads the index again and replaces the entries. Returns 0 or -errno as folder__read(). */
int folder__read_again(struct folder *f);
void folder__free(struct folder *f); /* NULL is fine; writes nothing */
/* Returns the text, for people, for an error of the functions in this file. */
const char *folder__why(int err);

/* The entries as of the last reading or change, ordered by begin, then by from; and the gaps and
 * missing recordings. f owns the arrays. */
const struct folder_entry *folder__entries(const struct folder *f, size_t *n);
const struct folder_gap *folder__gaps(const struct folder *f, size_t *n);
const struct folder_missing *folder__missing(const struct folder *f, size_t *n);
const char *folder__path(const struct folder *f);

/* Returns the path of a file that does not exist yet in the folder. With the suffix ".mtr" it is
 * STEM.mtr, otherwise STEM-2.mtr and so on. Characters that a file name should not have become "_".
 * The caller frees the path. NULL if memory is short. */
char *folder__new_path(const struct folder *f, const char *stem, const char *suffix);
/* Sets the entry's rank, comm, container and pod from the facts of its recording. */
void folder_entry__describe(struct folder_entry *e, const struct facts *f);
/* Updates the totals and the peaks of the event's device in the entry. */
void folder_entry__event(struct folder_entry *e, const struct event *event);
/* Adds an entry to the index, or replaces the entry of the same file. Returns 0 or -errno; -EINVAL:
 * bad file name; -E2BIG: too many entries. */
int folder__add(struct folder *f, const struct folder_entry *e);
/* As folder__add() for many entries, and adds missing recordings. Writes the index once. */
int folder__add_all(struct folder *f, const struct folder_entry *e, size_t n,
		    const struct folder_missing *missing, size_t n_missing);
/* Removes a recording and its entry. Adds a gap, if gap is not NULL; a gap that continues the last
 * one is merged with it. Returns 0 or -errno. */
int folder__drop(struct folder *f, const char *file, const struct folder_gap *gap);
/* Reads the member `key` of a JSON object, a whole number from 0 on. Returns false if o has no such
 * member. */
bool folder__count(const json_t *o, const char *key, uint64_t *ret);
