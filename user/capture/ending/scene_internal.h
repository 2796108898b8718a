/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by scene.c (reading) and scene_facts.c (facts). */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/memcg.h"
#include "capture/ending/oom_log.h"
#include "capture/ending/others.h"
#include "capture/ending/scene.h"

enum scene_from { SCENE_STATUS, SCENE_SMAPS };

/* Memory of the process, bytes; 0: not known. */
struct scene_memory {
	enum scene_from from;
	uint64_t time; /* CLOCK_MONOTONIC, ns; 0: no reading */
	uint64_t rss, anon, file, shmem, swap, virt, page_tables;
	uint64_t pss, own; /* SCENE_SMAPS: proportional, and of this process alone */
};

struct scene {
	pid_t pid;
	int smaps, status;
	uint64_t next;		   /* time of the next periodic reading, ns */
	struct scene_memory last;  /* the last periodic reading */
	struct scene_memory exact; /* reading at the end */
	bool has_cgroup, has_limit, has_after, of_oom;
	struct memcg cgroup;   /* of the process */
	struct memcg limiting; /* the one whose limit counts */
	struct memcg_figures before, after;
	uint64_t after_time; /* as of scene_memory.time */
	struct others others;
	struct oom_report report; /* constraint "": none */
};
