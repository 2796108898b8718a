/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The memory control group of a process: Documentation/admin-guide/cgroup-v2.rst and
 * cgroup-v1/memory.rst. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostmem/internal.h"
#include "lib/io.h"
#include "process/proc.h"

#define NO_LIMIT (UINT64_MAX / 4) /* version 1 writes a number near INT64_MAX for no limit */
#define DEPTH 64

struct group_dir {
	const char *root; /* of the hierarchy */
	char path[256];
};

/* Reads a file with one number. UINT64_MAX: not known, or "max". */
static uint64_t number(const struct group_dir *d, const char *name)
{
	char file[512], text[64];
	uint64_t n;

	snprintf(file, sizeof(file), "%s%s/%s", d->root, d->path, name);
	if (io__text(file, text, sizeof(text)) <= 0 || sscanf(text, "%" SCNu64, &n) != 1)
		return UINT64_MAX;
	return n;
}

/* A line "name 123" of a file that was read into text. */
static uint64_t field(const char *text, const char *name)
{
	size_t len = strlen(name);
	uint64_t n;

	for (const char *at = text; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (!strncmp(at, name, len) && at[len] == ' ' &&
		    sscanf(at + len, "%" SCNu64, &n) == 1)
			return n;
	}
	return UINT64_MAX;
}

static void read_text(const struct group_dir *d, const char *name, char *buf, size_t size)
{
	char file[512];

	snprintf(file, sizeof(file), "%s%s/%s", d->root, d->path, name);
	io__text(file, buf, size); /* "" on failure */
}

/* The lowest limit of the group and the groups above it. */
static uint64_t lowest_limit(const struct group_dir *d, const char *name)
{
	struct group_dir up = *d;
	uint64_t n, lowest = UINT64_MAX;
	char *slash;

	for (unsigned i = 0; i < DEPTH; i++) {
		n = number(&up, name);
		lowest = n < lowest ? n : lowest;
		slash = strrchr(up.path, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
	return lowest < NO_LIMIT ? lowest : UINT64_MAX;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a == UINT64_MAX ? UINT64_MAX : b == UINT64_MAX ? a : a + b;
}

static void read_v2(const struct group_dir *d, struct host_group *g)
{
	char text[16384];

	g->current = number(d, "memory.current");
	g->limit = lowest_limit(d, "memory.max");
	g->swap = number(d, "memory.swap.current");
	read_text(d, "memory.stat", text, sizeof(text));
	g->anon = field(text, "anon");
	g->file = field(text, "file");
	g->kernel_stack = field(text, "kernel_stack");
	g->slab = field(text, "slab");
	g->sock = field(text, "sock");
	g->page_tables = field(text, "pagetables");
	g->kernel = field(text, "kernel"); /* 5.18 and later; sockets are not in it */
	g->kernel = sum(g->kernel, g->sock);
	read_text(d, "memory.events", text, sizeof(text));
	g->oom_kills = field(text, "oom_kill");
}

static void read_v1(const struct group_dir *d, struct host_group *g)
{
	char text[16384];

	g->current = number(d, "memory.usage_in_bytes");
	g->limit = lowest_limit(d, "memory.limit_in_bytes");
	g->kernel = sum(number(d, "memory.kmem.usage_in_bytes"),
			number(d, "memory.kmem.tcp.usage_in_bytes"));
	read_text(d, "memory.stat", text, sizeof(text));
	g->anon = field(text, "total_rss");
	g->file = field(text, "total_cache");
	g->swap = field(text, "total_swap");
	read_text(d, "memory.oom_control", text, sizeof(text));
	g->oom_kills = field(text, "oom_kill");
}

/* The path after `prefix` of a line that begins with a number and a colon: "4:memory:/path". */
static bool path_of(const char *text, const char *key, char *buf, size_t size)
{
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		const char *names, *path;

		line += *line == '\n';
		names = strchr(line, ':');
		path = names ? strchr(names + 1, ':') : NULL;
		if (!path || strcspn(line, "\n") < (size_t)(path - line))
			continue;
		names++;
		for (const char *at = names; at <= path; at += strcspn(at, ",:") + 1) {
			size_t len = strcspn(at, ",:");

			if (len != strlen(key) || strncmp(at, key, len))
				continue;
			len = strcspn(path + 1, "\n");
			if (len >= size)
				return false;
			memcpy(buf, path + 1, len);
			buf[len] = '\0';
			return true;
		}
	}
	return false;
}

void host_group__read(const struct proc *p, struct host_group *ret)
{
	struct host_group g;
	struct group_dir d = { .root = "/sys/fs/cgroup/memory" };
	size_t len;
	char *text;

	memset(&g, 0xff, sizeof(g)); /* all figures unknown */
	g.path[0] = '\0';
	g.version = 0;
	*ret = g;
	if (proc__text(p, "cgroup", 64 << 10, &text, &len))
		return;
	if (path_of(text, "memory", d.path, sizeof(d.path))) {
		read_v1(&d, &g);
		g.version = 1;
	} else if (path_of(text, "", d.path, sizeof(d.path))) {
		d.root = "/sys/fs/cgroup";
		read_v2(&d, &g);
		g.version = 2;
	}
	free(text);
	if (g.current == UINT64_MAX)
		return; /* the group is not visible from here */
	snprintf(g.path, sizeof(g.path), "%s", d.path);
	*ret = g;
}
