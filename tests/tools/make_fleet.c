/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Writes a folder with the recordings of a made-up job of many ranks: make_fleet FOLDER RANKS
 * [STEPS]. The ranks have four stages, the first with an embedding and the last with a head. Two
 * are different: rank RANKS / 3 keeps 300 MiB more, at odd.py:42, and each step of rank RANKS / 2
 * takes twice as long. Every rank is on the host node<rank / 8>, whose clock is off by as many
 * seconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/folder.h"
#include "record/mtr.h"

#define MIB (UINT64_C(1) << 20)
#define MS UINT64_C(1000000)
#define ZERO UINT64_C(1795500000000000000) /* wall clock at time 0, ns */
#define STAGES 4
#define LAYERS 12
#define BLOCKS 24

struct rank {
	struct dict *d;
	struct facts *f;
	struct mtr_writer *w;
	uint64_t time, allocated, addr, peak;
	uint32_t thread;
	int err;
};

static uint32_t stack(struct rank *r, const char *file, const char *func, uint32_t line)
{
	struct dict_frame frame = { 0 };

	frame.loc = dict__loc(r->d,
			      (struct dict_loc){ dict__string(r->d, file, strlen(file)),
						 dict__string(r->d, func, strlen(func)), line });
	return dict__stack(r->d, &frame, 1, MT_WALK_OK);
}

static void put(struct rank *r, struct event e)
{
	e.time = r->time;
	e.thread = r->thread;
	e.device = (struct device){ DEVICE_CUDA, 0 };
	if (e.kind == EVENT_ALLOC || e.kind == EVENT_FREE) {
		r->allocated += e.kind == EVENT_ALLOC ? e.size : -e.size;
		r->peak = r->allocated > r->peak ? r->allocated : r->peak;
		e.totals = true;
		e.allocated = r->allocated;
		e.reserved = UINT64_C(8) << 30;
	}
	r->err = r->err ? r->err : mtr_writer__event(r->w, &e);
}

static uint64_t keep(struct rank *r, uint64_t size, uint32_t stack)
{
	r->addr += 64 * MIB + size;
	r->time += MS / 10;
	put(r,
	    (struct event){ .kind = EVENT_ALLOC, .addr = r->addr, .size = size, .stack = stack });
	return r->addr;
}

static void one_step(struct rank *r, uint64_t length)
{
	uint64_t begin = r->time, at[BLOCKS];

	for (uint32_t i = 0; i < BLOCKS; i++)
		at[i] = keep(r, (4 + i % 5) * MIB, stack(r, "model.py", "forward", 100 + i));
	for (uint32_t i = BLOCKS; i--;)
		put(r,
		    (struct event){ .kind = EVENT_FREE, .addr = at[i], .size = (4 + i % 5) * MIB });
	r->time = begin + length;
	put(r, (struct event){ .kind = EVENT_STEP });
}

static void write_events(struct rank *r, unsigned rank, unsigned ranks, unsigned steps)
{
	unsigned stage = (unsigned)((uint64_t)rank * STAGES / ranks);

	for (uint32_t i = 0; i < LAYERS; i++)
		keep(r, (16 + 4 * stage) * MIB, stack(r, "model.py", "__init__", 20 + i));
	if (!stage)
		keep(r, 512 * MIB, stack(r, "embed.py", "__init__", 5));
	if (stage == STAGES - 1)
		keep(r, 700 * MIB, stack(r, "head.py", "__init__", 7));
	if (rank == ranks / 3)
		keep(r, 300 * MIB, stack(r, "odd.py", "cache", 42));
	for (unsigned i = 0; i < steps; i++)
		/* Up to 2 % longer or shorter. */
		one_step(r, (rank == ranks / 2 ? 200 : 100) * MS + (rank * 7919 + i * 31) % 4 * MS);
}

static void set_facts(struct rank *r, unsigned rank, unsigned ranks)
{
	struct facts *f = r->f;
	char date[40];

	facts__setf(f, "pid", "%u", 1000 + rank % 8);
	facts__setf(f, "rank", "%u", rank);
	facts__setf(f, "local_rank", "%u", rank % 8);
	facts__setf(f, "world_size", "%u", ranks);
	facts__setf(f, "hostname", "node%u", rank / 8);
	facts__set(f, "comm", "python");
	facts__set(f, "cmdline", "[\"python\",\"train.py\"]");
	facts__set(f, "cwd", "/job");
	facts__set(f, "attached_at", "start");
	facts__set(f, "version", MEMTRACE_VERSION);
	facts__set(f, "start", text__date(date, sizeof(date), ZERO));
	facts__setf(f, "clock_zero_ns", "%llu",
		    (unsigned long long)(ZERO + rank / 8 * UINT64_C(1000000000)));
	facts__setf(f, "clock_offset_ns", "%u000000000", rank / 8);
	facts__set(f, "clock_offset_error_ns", "50000");
	facts__set(f, "stop_reason", "duration");
}

static int write_rank(const char *folder, unsigned rank, unsigned ranks, unsigned steps,
		      struct folder_entry *e)
{
	struct rank r = { .d = dict__new(), .f = facts__new() };
	char path[4096];
	int fd, err;

	*e = (struct folder_entry){
		.kind = "process", .comm = "python", .pid = 1000 + rank % 8, .rank = rank
	};
	snprintf(e->file, sizeof(e->file), "rank-%u.mtr", rank);
	snprintf(e->name, sizeof(e->name), "rank-%u", rank);
	snprintf(e->host, sizeof(e->host), "node%u", rank / 8);
	text__date(e->begin, sizeof(e->begin), ZERO);
	snprintf(path, sizeof(path), "%s/%s", folder, e->file);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || !r.d || !r.f)
		return 1;
	set_facts(&r, rank, ranks);
	r.w = mtr_writer__new(fd, r.d, r.f, &(struct mtr_writer_opts){ 0 });
	if (!r.w)
		return 1;
	r.thread = dict__thread(r.d, (struct dict_thread){ .tid = 1000 });
	r.addr = UINT64_C(1) << 40;
	write_events(&r, rank, ranks, steps);
	facts__setf(r.f, "duration_ns", "%llu", (unsigned long long)r.time);
	err = mtr_writer__close(r.w) ?: r.err;
	e->to = r.time;
	close(fd);
	dict__free(r.d);
	facts__free(r.f);
	return err;
}

int main(int argc, char **argv)
{
	unsigned ranks = argc > 2 ? (unsigned)atoi(argv[2]) : 0,
		 steps = argc > 3 ? (unsigned)atoi(argv[3]) : 6;
	struct folder_entry *e = calloc(ranks + 1, sizeof(*e));
	struct folder *f;

	if (!ranks || ranks > FOLDER_MAX || !e) {
		fprintf(stderr, "usage: make_fleet FOLDER RANKS [STEPS]\n");
		return 64;
	}
	if (folder__create(argv[1], false, &f))
		return 1;
	for (unsigned i = 0; i < ranks; i++)
		if (write_rank(argv[1], i, ranks, steps, &e[i])) {
			fprintf(stderr, "make_fleet: rank %u: %s\n", i, strerror(errno));
			return 1;
		}
	if (folder__add_all(f, e, ranks, NULL, 0))
		return 1;
	folder__free(f);
	free(e);
	return 0;
}
