/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/ending/scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/text.h"
#include "capture/ending/hooks.h"
#include "record/stream.h"

/* The file of /proc/PID that figures are from: status or smaps_rollup. */
enum scene_from { SCENE_STATUS, SCENE_SMAPS };

/* Memory of the process, bytes; 0: not known. */
struct scene_memory {
	enum scene_from from;
	uint64_t time; /* CLOCK_MONOTONIC, ns; 0: no reading */
	uint64_t rss, anon, file, shmem, swap, virt, page_tables;
	uint64_t pss, own; /* only from smaps: proportional share, and private to the process */
};

#define OTHERS 10 /* processes in a list of those with the most memory */

/* The processes with the most memory. */
struct others {
	bool of_cgroup; /* processes of a cgroup; false: of the machine, as far as visible */
	uint64_t time;	/* time of this reading, CLOCK_MONOTONIC, ns; 0: none */
	size_t n;	/* entries of top */
	size_t all;	/* processes that were compared */
	struct other {
		pid_t pid;
		uint64_t rss; /* bytes */
		char name[64];
	} top[OTHERS]; /* most memory first */
};

struct scene {
	pid_t pid;
	int smaps, status;	   /* descriptors of files in /proc/PID; negative: none */
	uint64_t next;		   /* time of the next periodic reading, ns */
	struct scene_memory last;  /* the last periodic reading */
	struct scene_memory exact; /* reading at the end */
	bool has_cgroup, has_limit, has_after; /* cgroup, limiting, after are set */
	bool of_oom;	       /* limiting is the cgroup whose limit the OOM killer enforced */
	struct memcg cgroup;   /* of the process */
	struct memcg limiting; /* the cgroup whose limit counts: that one or one above */
	struct memcg_figures before; /* figures of `limiting` when the capture began */
	struct memcg_figures after;  /* figures of `limiting` at the end */
	uint64_t after_time;	     /* as of scene_memory.time */
	struct others others;
	struct oom_report report; /* constraint "": none */
};

#define MOST 4096 /* processes to compare, at most */

/* Resident bytes of a process; 0: it has ended, or is the kernel's. */
static uint64_t resident(pid_t pid)
{
	char text[128], *end;

	if (io__text_of_process(pid, "statm", text, sizeof(text)) <= 0)
		return 0;
	strtoull(text, &end, 10);
	return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Counts a process, and adds it to the list if it has more memory than the last one there. */
static void add_other(struct others *others, pid_t pid)
{
	uint64_t rss = pid > 0 ? resident(pid) : 0;
	size_t i;

	if (!rss)
		return;
	others->all++;
	for (i = others->n; i && others->top[i - 1].rss < rss; i--) {
		if (i < OTHERS)
			others->top[i] = others->top[i - 1];
	}
	if (i == OTHERS)
		return;
	others->top[i] = (struct other){ .pid = pid, .rss = rss };
	if (others->n < OTHERS)
		others->n++;
}

/* Reads the process's name without control characters; "": it has ended. */
static void read_name(struct other *process)
{
	char text[64];
	ssize_t len = io__text_of_process(process->pid, "comm", text, sizeof(text));

	if (len > 0 && text[len - 1] == '\n')
		len--;
	text__clean(process->name, sizeof(process->name), text, len > 0 ? (size_t)len : 0);
}

/* Lists the processes of the machine, at most MOST. */
static size_t list_pids(pid_t *pids)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	size_t n = 0;

	while (dir && n < MOST && (entry = readdir(dir))) {
		if (entry->d_name[0] > '0' && entry->d_name[0] <= '9')
			pids[n++] = atoi(entry->d_name);
	}
	if (dir)
		closedir(dir);
	return n;
}

/* Reads the processes of a cgroup and below it; cgroup NULL: of the machine. At most MOST
 * processes. */
static void others__read(struct others *others, const struct memcg *cgroup)
{
	pid_t *pids = calloc(MOST, sizeof(*pids));
	size_t n = 0;

	*others = (struct others){ .of_cgroup = cgroup, .time = clock__kernel() };
	if (pids)
		n = cgroup ? memcg__pids(cgroup, pids, MOST) : list_pids(pids);
	for (size_t i = 0; i < n; i++)
		add_other(others, pids[i]);
	for (size_t i = 0; i < others->n; i++)
		read_name(&others->top[i]);
	free(pids);
}

#define READ_EVERY UINT64_C(1000000000) /* ns between two periodic readings */
/* ns: readings from so shortly before a fatal signal are kept, for two signals in a row */
#define GRACE UINT64_C(100000000)

/* Opens a file of /proc/PID. Returns a descriptor, or -1. */
static int open_file_of(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

struct scene *scene__new(pid_t pid)
{
	struct scene *scene = calloc(1, sizeof(*scene));

	if (!scene)
		return NULL;
	scene->pid = pid;
	scene->smaps = open_file_of(pid, "smaps_rollup");
	scene->status = open_file_of(pid, "status");
	scene->has_cgroup = !memcg__find(pid, &scene->cgroup);
	scene->has_limit = scene->has_cgroup && memcg__limiting(&scene->cgroup, &scene->limiting);
	if (scene->has_cgroup)
		memcg__read(scene->has_limit ? &scene->limiting : &scene->cgroup, &scene->before);
	return scene;
}

void scene__free(struct scene *scene)
{
	if (!scene)
		return;
	if (scene->smaps >= 0)
		close(scene->smaps);
	if (scene->status >= 0)
		close(scene->status);
	free(scene);
}

/* The figure of the line "NAME:  123 kB", in bytes; 0: no such line. */
static uint64_t kilobytes(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, name, len) && line[len] == ':')
			return strtoull(line + len + 1, NULL, 10) * 1024;
	}
	return 0;
}

/* Reads a file of /proc from its beginning. False: it is empty or cannot be read; buf is "". */
static bool read_text(int fd, char *buf, size_t size)
{
	ssize_t n = fd < 0 ? -1 : io__pread(fd, buf, size - 1, 0);

	buf[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* Reads the exact figures. False: the process has released its memory, or they cannot be read. */
static bool read_smaps(struct scene *scene)
{
	struct scene_memory memory = { .time = clock__kernel(), .from = SCENE_SMAPS };
	char text[4096];

	if (!read_text(scene->smaps, text, sizeof(text)))
		return false;
	memory.rss = kilobytes(text, "Rss");
	memory.anon = kilobytes(text, "Anonymous");
	memory.pss = kilobytes(text, "Pss");
	memory.own = kilobytes(text, "Private_Clean") + kilobytes(text, "Private_Dirty");
	memory.swap = kilobytes(text, "Swap");
	if (memory.rss)
		scene->exact = memory;
	return memory.rss;
}

void scene__tick(struct scene *scene, uint64_t now)
{
	struct scene_memory memory = { .time = now, .from = SCENE_STATUS };
	char text[4096];

	if (now < scene->next)
		return;
	scene->next = now + READ_EVERY;
	if (!read_text(scene->status, text, sizeof(text)))
		return;
	memory.anon = kilobytes(text, "RssAnon");
	memory.file = kilobytes(text, "RssFile");
	memory.shmem = kilobytes(text, "RssShmem");
	memory.rss = memory.anon + memory.file + memory.shmem;
	memory.swap = kilobytes(text, "VmSwap");
	memory.virt = kilobytes(text, "VmSize");
	memory.page_tables = kilobytes(text, "VmPTE");
	if (memory.rss)
		scene->last = memory;
}

/* Reads the figures of a cgroup into `after`. Keeps older ones if the cgroup is gone. */
static void read_figures(struct scene *scene, const struct memcg *m)
{
	struct memcg_figures figures;

	memcg__read(m, &figures);
	if (figures.usage == MEMCG_NONE && scene->has_after)
		return;
	scene->after = figures;
	scene->after_time = clock__kernel();
	scene->has_after = true;
}

/* Reads the cgroup's figures, of the one with the lowest limit. */
static void read_cgroup(struct scene *scene)
{
	struct memcg at;

	if (!scene->has_cgroup)
		return;
	/* Limits may have changed since the beginning. */
	if (memcg__limiting(&scene->cgroup, &at)) {
		scene->limiting = at;
		scene->has_limit = true;
	}
	read_figures(scene, scene->has_limit ? &scene->limiting : &scene->cgroup);
}

/* The OOM killer enforced the limit of this cgroup: reads the figures and the processes of it. */
static void set_limiting(struct scene *scene, const struct memcg *at)
{
	bool same = scene->has_limit && !strcmp(at->dir, scene->limiting.dir);

	scene->of_oom = true;
	if (same && scene->has_after)
		return;
	scene->limiting = *at;
	scene->has_limit = true;
	scene->has_after = false;
	read_figures(scene, at);
	others__read(&scene->others, at);
}

/* When the end began: when the fatal signal was sent, otherwise a second before the end.
 * CLOCK_MONOTONIC, ns. The process survived earlier signals. */
static uint64_t begin_of_end(const struct mt_rec_ending *record)
{
	uint64_t end = record ? record->time : clock__kernel();

	if (record && record->sent)
		return record->sent;
	return end > READ_EVERY ? end - READ_EVERY : 0;
}

/* Drops readings from before this time. Those shortly before it stay until newer ones replace them:
 * a process that gets two signals in a row may be gone at the second. */
static void forget_before(struct scene *scene, uint64_t time)
{
	if (scene->exact.time + GRACE < time)
		scene->exact = (struct scene_memory){ 0 };
	if (scene->after_time + GRACE < time)
		scene->has_after = scene->of_oom = false;
	if (scene->others.time + GRACE < time)
		scene->others = (struct others){ 0 };
}

void scene__read(struct scene *scene, const struct mt_rec_ending *record)
{
	uint64_t begin = begin_of_end(record);
	bool cgroup, others;
	struct memcg at;

	forget_before(scene, begin);
	cgroup = !scene->has_after || scene->after_time < begin;
	others = !scene->others.n || scene->others.time < begin;
	/* Read the cgroup first: it may be removed as soon as the process has ended. Reading smaps
	 * may take long: if it drops the last reference to the memory, it has to free the memory. */
	if (cgroup)
		read_cgroup(scene);
	if (others && scene->has_limit)
		others__read(&scene->others, &scene->limiting);
	if (!scene->exact.rss || scene->exact.time < begin)
		read_smaps(scene);
	if (others && !scene->has_limit)
		others__read(&scene->others, /*cgroup=*/NULL);
	if (record && record->oom.cgroup && !scene->of_oom && scene->has_cgroup &&
	    memcg__with_inode(&scene->cgroup, record->oom.cgroup, &at))
		set_limiting(scene, &at);
}

void scene__take_report(struct scene *scene, const struct oom_report *report)
{
	struct memcg at;

	scene->report = *report;
	if (scene->of_oom) /* the record said whose limit it was */
		return;
	if (report->cgroup[0] && scene->has_cgroup &&
	    memcg__with_path(&scene->cgroup, report->cgroup, &at))
		set_limiting(scene, &at);
}

/* ---- facts: docs/reference/mtr.md ---- */

/* The facts to set. Functions do nothing after the first error. */
struct setting {
	struct facts *facts;
	uint64_t start; /* start of the stream, CLOCK_MONOTONIC, ns */
	int err;	/* first error */
};

static void set_text(struct setting *setting, const char *key, const char *value)
{
	if (!setting->err)
		setting->err = facts__set(setting->facts, key, value);
}

/* Sets a fact to a number; nothing if the number is MEMCG_NONE. */
static void set(struct setting *setting, const char *key, uint64_t value)
{
	if (!setting->err && value != MEMCG_NONE)
		setting->err = facts__setf(setting->facts, key, "%" PRIu64, value);
}

static void set_signed(struct setting *setting, const char *key, int64_t value)
{
	if (!setting->err)
		setting->err = facts__setf(setting->facts, key, "%" PRId64, value);
}

/* Sets a fact to a time (CLOCK_MONOTONIC, ns), as ns since the start. */
static void set_time(struct setting *setting, const char *key, uint64_t time)
{
	set(setting, key, time > setting->start ? time - setting->start : 0);
}

static void set_name(struct setting *setting, const char *key, const char comm[MT_COMM])
{
	char clean[4 * MT_COMM];

	set_text(setting, key, text__clean(clean, sizeof(clean), comm, strnlen(comm, MT_COMM)));
}

/* Converts pages to bytes. MEMCG_NONE: so many that it means "no limit", or not known. */
static uint64_t bytes(uint64_t pages)
{
	uint64_t size = (uint64_t)sysconf(_SC_PAGESIZE), all;

	return __builtin_mul_overflow(pages, size, &all) || all >= UINT64_C(1) << 62 ? MEMCG_NONE
										     : all;
}

/* Sets the facts end_signal_*: the signal that ended the process, and who sent it if that is known.
 */
static void set_signal(struct setting *setting, const struct mt_rec_ending *record)
{
	const char *name = sigabbrev_np((int)record->signal);

	set(setting, "end_signal", record->signal);
	if (name && !setting->err)
		setting->err = facts__setf(setting->facts, "end_signal_name", "SIG%s", name);
	if (record->status & 0x80) /* WCOREDUMP() */
		set_text(setting, "end_core", "1");
	if (!record->sent)
		return; /* no program saw the signal when it was sent */
	set_signed(setting, "end_signal_code", record->code);
	if (record->flags & MT_ENDING_HAS_ADDRESS && !setting->err)
		setting->err = facts__setf(setting->facts, "end_signal_addr", "0x%" PRIx64,
					   (uint64_t)record->address);
	if (record->flags & MT_ENDING_BY_KERNEL) {
		set_text(setting, "end_signal_from", "kernel");
		return;
	}
	if (record->flags & MT_ENDING_BY_SELF)
		set_text(setting, "end_signal_from", "self");
	else if (record->from)
		set(setting, "end_signal_from", record->from);
	else
		set_text(setting, "end_signal_from", "outside");
	set_name(setting, "end_signal_from_name", record->from_comm);
	set(setting, "end_signal_from_uid", record->from_uid);
}

/* Sets the facts oom_* from the kernel's log. */
static void set_oom_report(struct setting *setting, const struct oom_report *report)
{
	char clean[sizeof(report->cgroup)];

	if (!report->constraint[0])
		return;
	set_text(setting, "oom_constraint", report->constraint);
	if (!report->cgroup[0])
		return;
	set_text(setting, "oom_cgroup",
		 text__clean(clean, sizeof(clean), report->cgroup, strlen(report->cgroup)));
	set(setting, "oom_cgroup_limit", report->limit);
	set(setting, "oom_cgroup_usage", report->usage);
	set(setting, "oom_cgroup_swap_limit", report->swap_limit);
	set(setting, "oom_cgroup_swap_usage", report->swap_usage);
}

/* Sets the facts oom_* from the record of the OOM killer's victim, or from the kernel's log if the
 * record does not have them. scene may be NULL. */
static void set_oom(struct setting *setting, const struct mt_rec_ending *record,
		    const struct scene *scene)
{
	static const char *const constraints[] = { "machine", "cpuset", "memory policy", "cgroup" };
	const struct mt_ending_oom *oom = &record->oom;

	if (oom->pid)
		set(setting, "oom_asked_by", oom->pid);
	set_name(setting, "oom_asked_by_name", oom->comm);
	set_signed(setting, "oom_score_adj", record->score_adj);
	set(setting, "oom_uid", record->uid);
	if (!(record->flags & MT_ENDING_CONTEXT)) {
		if (scene)
			set_oom_report(setting, &scene->report);
		return;
	}
	if (oom->constraint < sizeof(constraints) / sizeof(constraints[0]))
		set_text(setting, "oom_constraint", constraints[oom->constraint]);
	set(setting, "oom_badness", (uint64_t)(oom->points > 0 ? oom->points : 0));
	set(setting, "oom_total", bytes(oom->pages));
	if (oom->order >= 0 && oom->order < 64)
		set(setting, "oom_asked", bytes(UINT64_C(1) << oom->order));
	if (!oom->cgroup)
		return;
	if (scene && scene->has_limit && scene->of_oom)
		set_text(setting, "oom_cgroup", memcg__path(&scene->limiting));
	set(setting, "oom_cgroup_limit", bytes(oom->max));
	set(setting, "oom_cgroup_usage", bytes(oom->usage));
	set(setting, "oom_cgroup_swap_limit", bytes(oom->swap_max));
	set(setting, "oom_cgroup_swap_usage", bytes(oom->swap_usage));
}

/* ns: a periodic reading so much later than the signal is better than the counters at the signal */
#define MUCH_LATER UINT64_C(1000000000)

/* True if the kernel's counters, read with the signal, are the best figures. They are too old if a
 * blocked signal ended the process long after it was sent. For a victim of the OOM killer they are
 * always best: later readings miss the memory that the OOM killer took from the running process. */
static bool prefers_kernel(const struct scene *scene, const struct mt_rec_ending *record)
{
	return record && record->flags & MT_ENDING_HAS_MEMORY &&
	       (record->flags & MT_ENDING_VICTIM || !scene ||
		scene->last.time < record->memory.time + MUCH_LATER);
}

/* Sets the facts end_* about memory from the kernel's own counters, or from the last periodic
 * reading; those named end_smaps_* are from smaps. */
static void set_memory(struct setting *setting, const struct scene *scene,
		       const struct mt_rec_ending *record)
{
	struct scene_memory memory = { 0 };
	bool kernel = prefers_kernel(scene, record);

	if (kernel)
		memory = (struct scene_memory){ .time = record->memory.time,
						.anon = bytes(record->memory.anon),
						.file = bytes(record->memory.file),
						.shmem = bytes(record->memory.shmem),
						.swap = bytes(record->memory.swap),
						.virt = bytes(record->memory.virt),
						.page_tables = record->memory.page_tables };
	else if (scene)
		memory = scene->last;
	if (memory.time) {
		set_text(setting, "end_memory_from", kernel ? "kernel" : "status");
		set_time(setting, "end_memory_time", memory.time);
		set(setting, "end_rss", memory.anon + memory.file + memory.shmem);
		set(setting, "end_rss_anon", memory.anon);
		set(setting, "end_rss_file", memory.file);
		set(setting, "end_rss_shmem", memory.shmem);
		set(setting, "end_swap", memory.swap);
		set(setting, "end_vm", memory.virt);
		set(setting, "end_page_tables", memory.page_tables);
	}
	if (!scene || !scene->exact.time)
		return;
	set_time(setting, "end_smaps_time", scene->exact.time);
	set(setting, "end_smaps_rss", scene->exact.rss);
	set(setting, "end_smaps_anon", scene->exact.anon);
	set(setting, "end_smaps_pss", scene->exact.pss);
	set(setting, "end_smaps_private", scene->exact.own);
	set(setting, "end_smaps_swap", scene->exact.swap);
}

/* Sets the facts cgroup_*. */
static void set_cgroup(struct setting *setting, const struct scene *scene)
{
	const struct memcg_figures *figures = &scene->after;

	if (!scene->has_after)
		return;
	set_text(setting, "cgroup_memory",
		 memcg__path(scene->has_limit ? &scene->limiting : &scene->cgroup));
	set_text(setting, "cgroup_version", scene->cgroup.v2 ? "2" : "1");
	set_time(setting, "cgroup_time", scene->after_time);
	set(setting, "cgroup_limit", figures->limit);
	set(setting, "cgroup_usage", figures->usage);
	set(setting, "cgroup_peak", figures->peak);
	set(setting, "cgroup_swap_limit", figures->swap_limit);
	set(setting, "cgroup_swap_usage", figures->swap_usage);
	set(setting, "cgroup_anon", figures->anon);
	set(setting, "cgroup_file", figures->file);
	set(setting, "cgroup_kernel", figures->kernel);
	set(setting, "cgroup_sock", figures->sock);
	set(setting, "cgroup_oom_kills", figures->oom_kills);
	if (figures->oom_kills != MEMCG_NONE && scene->before.oom_kills != MEMCG_NONE &&
	    figures->oom_kills >= scene->before.oom_kills)
		set(setting, "cgroup_oom_kills_new", figures->oom_kills - scene->before.oom_kills);
}

/* Sets the facts end_process*: the processes with the most memory. */
static void set_others(struct setting *setting, const struct others *others)
{
	char key[48];

	if (!others->n)
		return;
	for (size_t i = 0; i < others->n && !setting->err; i++) {
		snprintf(key, sizeof(key), "end_process.%zu", i + 1);
		setting->err = facts__setf(setting->facts, key, "%d:%" PRIu64 ":%s",
					   (int)others->top[i].pid, others->top[i].rss,
					   others->top[i].name);
	}
	set_text(setting, "end_processes_of", others->of_cgroup ? "cgroup" : "machine");
	set(setting, "end_processes_all", others->all);
	set_time(setting, "end_processes_time", others->time);
}

static const char *reason_of(const struct mt_rec_ending *record)
{
	if (record->flags & MT_ENDING_VICTIM)
		return "oom killer";
	return record->signal ? "signal" : "exit";
}

int scene__set_facts(const struct scene *scene, struct facts *facts,
		     const struct mt_rec_ending *record, uint64_t start)
{
	struct setting setting = { .facts = facts, .start = start };

	if (record) {
		set_time(&setting, "end_time", record->time);
		set_text(&setting, "end_reason", reason_of(record));
		if (record->signal)
			set_signal(&setting, record);
		else
			set(&setting, "end_status", record->status >> 8 & 0xff);
		if (record->flags & MT_ENDING_VICTIM)
			set_oom(&setting, record, scene);
	}
	if (record && !record->status)
		return setting.err; /* a normal end */
	set_memory(&setting, scene, record);
	if (scene) {
		set_cgroup(&setting, scene);
		set_others(&setting, &scene->others);
	}
	return setting.err;
}
