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
static void add_other(struct others *o, pid_t pid)
{
	uint64_t rss = pid > 0 ? resident(pid) : 0;
	size_t i;

	if (!rss)
		return;
	o->all++;
	for (i = o->n; i && o->top[i - 1].rss < rss; i--) {
		if (i < OTHERS)
			o->top[i] = o->top[i - 1];
	}
	if (i == OTHERS)
		return;
	o->top[i] = (struct other){ .pid = pid, .rss = rss };
	if (o->n < OTHERS)
		o->n++;
}

static void read_name(struct other *p)
{
	char text[64];
	ssize_t n = io__text_of_process(p->pid, "comm", text, sizeof(text));

	if (n > 0 && text[n - 1] == '\n')
		n--;
	text__clean(p->name, sizeof(p->name), text, n > 0 ? (size_t)n : 0);
}

static size_t list_pids(pid_t *pids)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	size_t n = 0;

	while (d && n < MOST && (e = readdir(d))) {
		if (e->d_name[0] > '0' && e->d_name[0] <= '9')
			pids[n++] = atoi(e->d_name);
	}
	if (d)
		closedir(d);
	return n;
}

/* Reads the processes of a cgroup and below it; m NULL: of the machine. At most MOST processes. */
static void others__read(struct others *o, const struct memcg *m)
{
	pid_t *pids = calloc(MOST, sizeof(*pids));
	size_t n = 0;

	*o = (struct others){ .of_cgroup = m, .time = clock__kernel() };
	if (pids)
		n = m ? memcg__pids(m, pids, MOST) : list_pids(pids);
	for (size_t i = 0; i < n; i++)
		add_other(o, pids[i]);
	for (size_t i = 0; i < o->n; i++)
		read_name(&o->top[i]);
	free(pids);
}

#define READ_EVERY UINT64_C(1000000000) /* ns between two periodic readings */
/* ns: readings from so shortly before a fatal signal are kept, for two signals in a row */
#define GRACE UINT64_C(100000000)

static int open_file_of(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

struct scene *scene__new(pid_t pid)
{
	struct scene *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->pid = pid;
	s->smaps = open_file_of(pid, "smaps_rollup");
	s->status = open_file_of(pid, "status");
	s->has_cgroup = !memcg__find(pid, &s->cgroup);
	s->has_limit = s->has_cgroup && memcg__limiting(&s->cgroup, &s->limiting);
	if (s->has_cgroup)
		memcg__read(s->has_limit ? &s->limiting : &s->cgroup, &s->before);
	return s;
}

void scene__free(struct scene *s)
{
	if (!s)
		return;
	if (s->smaps >= 0)
		close(s->smaps);
	if (s->status >= 0)
		close(s->status);
	free(s);
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

static bool read_smaps(struct scene *s)
{
	struct scene_memory m = { .time = clock__kernel(), .from = SCENE_SMAPS };
	char text[4096];

	if (!read_text(s->smaps, text, sizeof(text)))
		return false;
	m.rss = kilobytes(text, "Rss");
	m.anon = kilobytes(text, "Anonymous");
	m.pss = kilobytes(text, "Pss");
	m.own = kilobytes(text, "Private_Clean") + kilobytes(text, "Private_Dirty");
	m.swap = kilobytes(text, "Swap");
	if (m.rss)
		s->exact = m;
	return m.rss;
}

void scene__tick(struct scene *s, uint64_t now)
{
	struct scene_memory m = { .time = now, .from = SCENE_STATUS };
	char text[4096];

	if (now < s->next)
		return;
	s->next = now + READ_EVERY;
	if (!read_text(s->status, text, sizeof(text)))
		return;
	m.anon = kilobytes(text, "RssAnon");
	m.file = kilobytes(text, "RssFile");
	m.shmem = kilobytes(text, "RssShmem");
	m.rss = m.anon + m.file + m.shmem;
	m.swap = kilobytes(text, "VmSwap");
	m.virt = kilobytes(text, "VmSize");
	m.page_tables = kilobytes(text, "VmPTE");
	if (m.rss)
		s->last = m;
}

/* Reads the figures of a cgroup into `after`. Keeps older ones if the cgroup is gone. */
static void read_figures(struct scene *s, const struct memcg *m)
{
	struct memcg_figures f;

	memcg__read(m, &f);
	if (f.usage == MEMCG_NONE && s->has_after)
		return;
	s->after = f;
	s->after_time = clock__kernel();
	s->has_after = true;
}

static void read_cgroup(struct scene *s)
{
	struct memcg at;

	if (!s->has_cgroup)
		return;
	/* Limits may have changed since the beginning. */
	if (memcg__limiting(&s->cgroup, &at)) {
		s->limiting = at;
		s->has_limit = true;
	}
	read_figures(s, s->has_limit ? &s->limiting : &s->cgroup);
}

/* The OOM killer enforced the limit of this cgroup: reads the figures and the processes of it. */
static void set_limiting(struct scene *s, const struct memcg *at)
{
	bool same = s->has_limit && !strcmp(at->dir, s->limiting.dir);

	s->of_oom = true;
	if (same && s->has_after)
		return;
	s->limiting = *at;
	s->has_limit = true;
	s->has_after = false;
	read_figures(s, at);
	others__read(&s->others, at);
}

/* When the end began: when the fatal signal was sent, otherwise a second before the end.
 * CLOCK_MONOTONIC, ns. The process survived earlier signals. */
static uint64_t begin_of_end(const struct mt_rec_ending *r)
{
	uint64_t end = r ? r->time : clock__kernel();

	if (r && r->sent)
		return r->sent;
	return end > READ_EVERY ? end - READ_EVERY : 0;
}

/* Drops readings from before this time. Those shortly before it stay until newer ones replace them:
 * a process that gets two signals in a row may be gone at the second. */
static void forget_before(struct scene *s, uint64_t time)
{
	if (s->exact.time + GRACE < time)
		s->exact = (struct scene_memory){ 0 };
	if (s->after_time + GRACE < time)
		s->has_after = s->of_oom = false;
	if (s->others.time + GRACE < time)
		s->others = (struct others){ 0 };
}

void scene__read(struct scene *s, const struct mt_rec_ending *r)
{
	uint64_t begin = begin_of_end(r);
	bool cgroup, others;
	struct memcg at;

	forget_before(s, begin);
	cgroup = !s->has_after || s->after_time < begin;
	others = !s->others.n || s->others.time < begin;
	/* Read the cgroup first: it may be removed as soon as the process has ended. Reading smaps
	 * may take long: if it drops the last reference to the memory, it has to free the memory. */
	if (cgroup)
		read_cgroup(s);
	if (others && s->has_limit)
		others__read(&s->others, &s->limiting);
	if (!s->exact.rss || s->exact.time < begin)
		read_smaps(s);
	if (others && !s->has_limit)
		others__read(&s->others, NULL);
	if (r && r->oom.cgroup && !s->of_oom && s->has_cgroup &&
	    memcg__with_inode(&s->cgroup, r->oom.cgroup, &at))
		set_limiting(s, &at);
}

void scene__take_report(struct scene *s, const struct oom_report *report)
{
	struct memcg at;

	s->report = *report;
	if (report->cgroup[0] && !s->of_oom && s->has_cgroup &&
	    memcg__with_path(&s->cgroup, report->cgroup, &at))
		set_limiting(s, &at);
}

/* ---- facts: docs/reference/mtr.md ---- */

/* The facts to set. Functions do nothing after the first error. */
struct setting {
	struct facts *facts;
	uint64_t start; /* start of the stream, CLOCK_MONOTONIC, ns */
	int err;	/* first error */
};

static void set_text(struct setting *s, const char *key, const char *value)
{
	if (!s->err)
		s->err = facts__set(s->facts, key, value);
}

/* Sets a fact to a number; nothing if the number is MEMCG_NONE. */
static void set(struct setting *s, const char *key, uint64_t value)
{
	if (!s->err && value != MEMCG_NONE)
		s->err = facts__setf(s->facts, key, "%" PRIu64, value);
}

static void set_signed(struct setting *s, const char *key, int64_t value)
{
	if (!s->err)
		s->err = facts__setf(s->facts, key, "%" PRId64, value);
}

/* Sets a fact to a time (CLOCK_MONOTONIC, ns), as ns since the start. */
static void set_time(struct setting *s, const char *key, uint64_t time)
{
	set(s, key, time > s->start ? time - s->start : 0);
}

static void set_name(struct setting *s, const char *key, const char comm[MT_COMM])
{
	char clean[4 * MT_COMM];

	set_text(s, key, text__clean(clean, sizeof(clean), comm, strnlen(comm, MT_COMM)));
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
static void set_signal(struct setting *s, const struct mt_rec_ending *r)
{
	const char *name = sigabbrev_np((int)r->signal);

	set(s, "end_signal", r->signal);
	if (name && !s->err)
		s->err = facts__setf(s->facts, "end_signal_name", "SIG%s", name);
	if (r->status & 0x80) /* WCOREDUMP() */
		set_text(s, "end_core", "1");
	if (!r->sent)
		return; /* no program saw the signal when it was sent */
	set_signed(s, "end_signal_code", r->code);
	if (r->flags & MT_ENDING_HAS_ADDRESS && !s->err)
		s->err = facts__setf(s->facts, "end_signal_addr", "0x%" PRIx64,
				     (uint64_t)r->address);
	if (r->flags & MT_ENDING_BY_KERNEL) {
		set_text(s, "end_signal_from", "kernel");
		return;
	}
	if (r->flags & MT_ENDING_BY_SELF)
		set_text(s, "end_signal_from", "self");
	else if (r->from)
		set(s, "end_signal_from", r->from);
	else
		set_text(s, "end_signal_from", "outside");
	set_name(s, "end_signal_from_name", r->from_comm);
	set(s, "end_signal_from_uid", r->from_uid);
}

/* Sets the facts oom_* from the kernel's log. */
static void set_oom_report(struct setting *s, const struct oom_report *r)
{
	char clean[sizeof(r->cgroup)];

	if (!r->constraint[0])
		return;
	set_text(s, "oom_constraint", r->constraint);
	if (!r->cgroup[0])
		return;
	set_text(s, "oom_cgroup", text__clean(clean, sizeof(clean), r->cgroup, strlen(r->cgroup)));
	set(s, "oom_cgroup_limit", r->limit);
	set(s, "oom_cgroup_usage", r->usage);
	set(s, "oom_cgroup_swap_limit", r->swap_limit);
	set(s, "oom_cgroup_swap_usage", r->swap_usage);
}

/* Sets the facts oom_* from the record of the OOM killer's victim, or from the kernel's log if the
 * record does not have them. scene may be NULL. */
static void set_oom(struct setting *s, const struct mt_rec_ending *r, const struct scene *scene)
{
	static const char *const constraints[] = { "machine", "cpuset", "memory policy", "cgroup" };
	const struct mt_ending_oom *o = &r->oom;

	if (o->pid)
		set(s, "oom_asked_by", o->pid);
	set_name(s, "oom_asked_by_name", o->comm);
	set_signed(s, "oom_score_adj", r->score_adj);
	set(s, "oom_uid", r->uid);
	if (!(r->flags & MT_ENDING_CONTEXT)) {
		if (scene)
			set_oom_report(s, &scene->report);
		return;
	}
	if (o->constraint < sizeof(constraints) / sizeof(constraints[0]))
		set_text(s, "oom_constraint", constraints[o->constraint]);
	set(s, "oom_badness", (uint64_t)(o->points > 0 ? o->points : 0));
	set(s, "oom_total", bytes(o->pages));
	if (o->order >= 0 && o->order < 64)
		set(s, "oom_asked", bytes(UINT64_C(1) << o->order));
	if (!o->cgroup)
		return;
	if (scene && scene->has_limit && scene->of_oom)
		set_text(s, "oom_cgroup", memcg__path(&scene->limiting));
	set(s, "oom_cgroup_limit", bytes(o->max));
	set(s, "oom_cgroup_usage", bytes(o->usage));
	set(s, "oom_cgroup_swap_limit", bytes(o->swap_max));
	set(s, "oom_cgroup_swap_usage", bytes(o->swap_usage));
}

/* ns: a periodic reading so much later than the signal is better than the counters at the signal */
#define MUCH_LATER UINT64_C(1000000000)

/* True if the kernel's counters, read with the signal, are the best figures. They are too old if a
 * blocked signal ended the process long after it was sent. For a victim of the OOM killer they are
 * always best: later readings miss the memory that the OOM killer took from the running process. */
static bool prefers_kernel(const struct scene *scene, const struct mt_rec_ending *r)
{
	return r && r->flags & MT_ENDING_HAS_MEMORY &&
	       (r->flags & MT_ENDING_VICTIM || !scene ||
		scene->last.time < r->memory.time + MUCH_LATER);
}

/* Sets the facts end_* about memory from the kernel's own counters, or from the last periodic
 * reading; those named end_smaps_* are from smaps. */
static void set_memory(struct setting *s, const struct scene *scene, const struct mt_rec_ending *r)
{
	struct scene_memory m = { 0 };
	bool kernel = prefers_kernel(scene, r);

	if (kernel)
		m = (struct scene_memory){ .time = r->memory.time,
					   .anon = bytes(r->memory.anon),
					   .file = bytes(r->memory.file),
					   .shmem = bytes(r->memory.shmem),
					   .swap = bytes(r->memory.swap),
					   .virt = bytes(r->memory.virt),
					   .page_tables = r->memory.page_tables };
	else if (scene)
		m = scene->last;
	if (m.time) {
		set_text(s, "end_memory_from", kernel ? "kernel" : "status");
		set_time(s, "end_memory_time", m.time);
		set(s, "end_rss", m.anon + m.file + m.shmem);
		set(s, "end_rss_anon", m.anon);
		set(s, "end_rss_file", m.file);
		set(s, "end_rss_shmem", m.shmem);
		set(s, "end_swap", m.swap);
		set(s, "end_vm", m.virt);
		set(s, "end_page_tables", m.page_tables);
	}
	if (!scene || !scene->exact.time)
		return;
	set_time(s, "end_smaps_time", scene->exact.time);
	set(s, "end_smaps_rss", scene->exact.rss);
	set(s, "end_smaps_anon", scene->exact.anon);
	set(s, "end_smaps_pss", scene->exact.pss);
	set(s, "end_smaps_private", scene->exact.own);
	set(s, "end_smaps_swap", scene->exact.swap);
}

static void set_cgroup(struct setting *s, const struct scene *scene)
{
	const struct memcg_figures *f = &scene->after;

	if (!scene->has_after)
		return;
	set_text(s, "cgroup_memory",
		 memcg__path(scene->has_limit ? &scene->limiting : &scene->cgroup));
	set_text(s, "cgroup_version", scene->cgroup.v2 ? "2" : "1");
	set_time(s, "cgroup_time", scene->after_time);
	set(s, "cgroup_limit", f->limit);
	set(s, "cgroup_usage", f->usage);
	set(s, "cgroup_peak", f->peak);
	set(s, "cgroup_swap_limit", f->swap_limit);
	set(s, "cgroup_swap_usage", f->swap_usage);
	set(s, "cgroup_anon", f->anon);
	set(s, "cgroup_file", f->file);
	set(s, "cgroup_kernel", f->kernel);
	set(s, "cgroup_sock", f->sock);
	set(s, "cgroup_oom_kills", f->oom_kills);
	if (f->oom_kills != MEMCG_NONE && scene->before.oom_kills != MEMCG_NONE &&
	    f->oom_kills >= scene->before.oom_kills)
		set(s, "cgroup_oom_kills_new", f->oom_kills - scene->before.oom_kills);
}

static void set_others(struct setting *s, const struct others *o)
{
	char key[48];

	if (!o->n)
		return;
	for (size_t i = 0; i < o->n && !s->err; i++) {
		snprintf(key, sizeof(key), "end_process.%zu", i + 1);
		s->err = facts__setf(s->facts, key, "%d:%" PRIu64 ":%s", (int)o->top[i].pid,
				     o->top[i].rss, o->top[i].name);
	}
	set_text(s, "end_processes_of", o->of_cgroup ? "cgroup" : "machine");
	set(s, "end_processes_all", o->all);
	set_time(s, "end_processes_time", o->time);
}

static const char *reason_of(const struct mt_rec_ending *r)
{
	if (r->flags & MT_ENDING_VICTIM)
		return "oom killer";
	return r->signal ? "signal" : "exit";
}

int scene__set_facts(const struct scene *scene, struct facts *f, const struct mt_rec_ending *r,
		     uint64_t start)
{
	struct setting s = { .facts = f, .start = start };

	if (r) {
		set_time(&s, "end_time", r->time);
		set_text(&s, "end_reason", reason_of(r));
		if (r->signal)
			set_signal(&s, r);
		else
			set(&s, "end_status", r->status >> 8 & 0xff);
		if (r->flags & MT_ENDING_VICTIM)
			set_oom(&s, r, scene);
	}
	if (r && !r->status)
		return s.err; /* a normal end */
	set_memory(&s, scene, r);
	if (scene) {
		set_cgroup(&s, scene);
		set_others(&s, &scene->others);
	}
	return s.err;
}
