/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The facts about the end of a process: docs/reference/mtr.md. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "capture/ending/scene_internal.h"
#include "capture/hooks.h"
#include "record/stream.h"

struct setting {
	struct facts *facts;
	uint64_t start;
	int err; /* first error */
};

static void set_text(struct setting *s, const char *key, const char *value)
{
	if (!s->err)
		s->err = facts__set(s->facts, key, value);
}

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

static void set_time(struct setting *s, const char *key, uint64_t time)
{
	set(s, key, time > s->start ? time - s->start : 0);
}

static void set_name(struct setting *s, const char *key, const char comm[MT_COMM])
{
	char clean[4 * MT_COMM];

	set_text(s, key, text__clean(clean, sizeof(clean), comm, strnlen(comm, MT_COMM)));
}

static uint64_t bytes(uint64_t pages)
{
	uint64_t size = (uint64_t)sysconf(_SC_PAGESIZE), all;

	return __builtin_mul_overflow(pages, size, &all) || all >= UINT64_C(1) << 62 ? MEMCG_NONE
										     : all;
}

static void set_signal(struct setting *s, const struct mt_rec_ending *r)
{
	const char *name = sigabbrev_np((int)r->signal);

	set(s, "end_signal", r->signal);
	if (name && !s->err)
		s->err = facts__setf(s->facts, "end_signal_name", "SIG%s", name);
	if (r->status & 0x80)
		set_text(s, "end_core", "1");
	if (!r->sent)
		return; /* it was not seen when it was sent */
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

/* The same from the kernel's log. */
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

#define MUCH_LATER UINT64_C(1000000000) /* ns */

/* True if the kernel's counters are the best figures. A signal that was blocked ends the process
 * long after it was sent. Not after the OOM killer, which takes the memory of a process that still
 * runs. */
static bool kernels_count(const struct scene *scene, const struct mt_rec_ending *r)
{
	return r && r->flags & MT_ENDING_HAS_MEMORY &&
	       (r->flags & MT_ENDING_VICTIM || !scene ||
		scene->last.time < r->memory.time + MUCH_LATER);
}

/* The kernel's own counters, otherwise the last periodic reading. */
static void set_memory(struct setting *s, const struct scene *scene, const struct mt_rec_ending *r)
{
	struct scene_memory m = { 0 };
	bool kernel = kernels_count(scene, r);

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

int scene__set_facts(const struct scene *scene, struct facts *f, const struct mt_rec_ending *r,
		     uint64_t start)
{
	struct setting s = { .facts = f, .start = start };

	if (r) {
		set_time(&s, "end_time", r->time);
		set_text(&s, "end_reason",
			 r->flags & MT_ENDING_VICTIM ? "oom killer"
			 : r->signal		     ? "signal"
						     : "exit");
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
