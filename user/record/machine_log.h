/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The recording of a machine's memory that survives a reset: a folder with two text files, each
 * look at the machine a line of JSON, which is on the disk before the next look. When the newer
 * file has half of the allowed size, it replaces the older one. A reader skips lines that are
 * damaged or cut.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MACHINE_ROW_LINES 16
#define MACHINE_ROW_GPUS 16
#define MACHINE_ROW_PROCESSES 10

/* One look. Texts of a file are hostile: clean them before printing. */
struct machine_row {
	uint64_t time;	 /* ns since 1970 */
	uint64_t uptime; /* CLOCK_BOOTTIME, ns */
	uint64_t every;	 /* time between two looks, ns */
	char boot[40];	 /* ID of the machine's start */
	bool end;	 /* the recorder ended by itself: no look follows */
	/* Bytes. large: in free blocks of at least 2 MiB. */
	uint64_t total, available, large, swap;
	struct {
		char key[24]; /* key of a struct machine_line: "page_cache" */
		int64_t bytes;
	} line[MACHINE_ROW_LINES];
	size_t lines;
	struct {
		char name[96];
		uint64_t total, free;
	} gpu[MACHINE_ROW_GPUS];
	size_t gpus;
	struct {
		pid_t pid;
		char command[64];
		uint64_t bytes; /* private, also swapped out */
	} process[MACHINE_ROW_PROCESSES];
	size_t processes;
	bool all; /* no other process had memory when the list was made */
};

struct machine_log;

/* Opens a folder for writing, and creates it if necessary (mode 0700, owned by the user behind
 * sudo). Looks of an older recording stay. most: bytes of both files together. 0 or -errno: -EBUSY:
 * another recorder writes there; -EPERM: the folder is another user's; -ELOOP: a link. */
int machine_log__open(const char *folder, uint64_t most, struct machine_log **ret);
/* Writes a row and waits until the disk has it. 0 or -errno. */
int machine_log__write(struct machine_log *l, const struct machine_row *row);
void machine_log__close(struct machine_log *l); /* NULL is fine */

/* True if the path is a folder with such a recording. */
bool machine_log__is(const char *path);
/* Calls fn() for each row, the oldest first. *damaged: number of lines that were skipped; *running:
 * a recorder writes there now. 0 or -errno. */
int machine_log__read(const char *folder, void (*fn)(void *ctx, const struct machine_row *row),
		      void *ctx, uint64_t *damaged, bool *running);
