/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/ending/others.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "base/memcg.h"

#define MOST 4096

/* Resident bytes of a process; 0: it has ended, or is the kernel's. */
static uint64_t resident(pid_t pid)
{
	char text[128], *end;

	if (io__text_of_process(pid, "statm", text, sizeof(text)) <= 0)
		return 0;
	strtoull(text, &end, 10);
	return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void add(struct others *o, pid_t pid)
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

static void name(struct other *p)
{
	char text[64];
	ssize_t n = io__text_of_process(p->pid, "comm", text, sizeof(text));

	if (n > 0 && text[n - 1] == '\n')
		n--;
	text__clean(p->name, sizeof(p->name), text, n > 0 ? (size_t)n : 0);
}

static size_t all_pids(pid_t *pids)
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

void others__read(struct others *o, const struct memcg *m)
{
	pid_t *pids = calloc(MOST, sizeof(*pids));
	size_t n = 0;

	*o = (struct others){ .of_cgroup = m, .time = clock__kernel() };
	if (pids)
		n = m ? memcg__pids(m, pids, MOST) : all_pids(pids);
	for (size_t i = 0; i < n; i++)
		add(o, pids[i]);
	for (size_t i = 0; i < o->n; i++)
		name(&o->top[i]);
	free(pids);
}
