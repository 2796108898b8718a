/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/ending/scene.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/memcg.h"
#include "capture/ending/others.h"
#include "capture/ending/scene_internal.h"
#include "capture/hooks.h"

#define READ_EVERY UINT64_C(1000000000) /* ns */
#define GRACE UINT64_C(100000000)	/* ns: the first of two signals in a row counts */

static int open_of(pid_t pid, const char *name)
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
	s->smaps = open_of(pid, "smaps_rollup");
	s->status = open_of(pid, "status");
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

/* A figure of "Name:  123 kB", in bytes. */
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

/* Reads the figures of a cgroup. Keeps older ones if it is gone. */
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

/* The OOM killer enforced the limit of this cgroup: all figures are of this one. */
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

/* The beginning of this end. The process survived the signals before it. */
static uint64_t begin_of_end(const struct mt_rec_ending *r)
{
	uint64_t end = r ? r->time : clock__kernel();

	if (r && r->sent)
		return r->sent;
	return end > READ_EVERY ? end - READ_EVERY : 0;
}

/* Drops readings that are older. The latest stay until newer ones replace them, since a process
 * that gets two signals in a row may have ended. */
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
	/* The cgroup first: it may be removed as soon as the process has ended, and whoever drops
	 * the last reference to a process's memory, as the reader of smaps may, has to free it. */
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
