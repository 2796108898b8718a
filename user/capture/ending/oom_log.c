/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/ending/oom_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPORTS 8	/* reports not asked for yet */
#define LINES_MAX 65536 /* lines read at once */

struct oom_log {
	int fd;
	struct oom_report building;
	struct {
		pid_t pid; /* 0: free */
		struct oom_report report;
	} found[REPORTS];
	unsigned int next;
};

static const struct oom_report unknown = {
	.usage = UINT64_MAX, .limit = UINT64_MAX, .swap_usage = UINT64_MAX, .swap_limit = UINT64_MAX
};

struct oom_log *oom_log__open(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct oom_log *l;

	if (fd < 0)
		return NULL;
	l = calloc(1, sizeof(*l));
	if (!l || lseek(fd, 0, SEEK_END) < 0) {
		close(fd);
		free(l);
		return NULL;
	}
	l->fd = fd;
	l->building = unknown;
	return l;
}

void oom_log__close(struct oom_log *l)
{
	if (!l)
		return;
	close(l->fd);
	free(l);
}

/* Reads "usage 716800kB, limit 716800kB". */
static void parse_use(const char *s, uint64_t *usage, uint64_t *limit)
{
	unsigned long long used, most;

	if (sscanf(s, "usage %llukB, limit %llukB", &used, &most) != 2)
		return;
	*usage = used >> 53 ? UINT64_MAX : used * 1024;
	/* no limit: the kernel's largest counter */
	*limit = most >> 52 ? UINT64_MAX : most * 1024;
}

/* Copies the value of "key=value," of the line with the victim. */
static bool value_of(const char *line, const char *key, char *buf, size_t size)
{
	const char *at = strstr(line, key);
	size_t len;

	*buf = '\0';
	if (!at)
		return false;
	at += strlen(key);
	/* A cgroup's path may have commas: the next key ends it. */
	len = strcspn(at, ",");
	if (!strcmp(key, "oom_memcg=")) {
		const char *end = strstr(at, ",task_memcg=");

		len = end ? (size_t)(end - at) : len;
	}
	if (len >= size)
		return false;
	memcpy(buf, at, len);
	buf[len] = '\0';
	return true;
}

static void parse_constraint(const char *line, struct oom_report *r)
{
	static const struct {
		const char *kernel, *ours;
	} names[] = { { "CONSTRAINT_NONE", "machine" },
		      { "CONSTRAINT_CPUSET", "cpuset" },
		      { "CONSTRAINT_MEMORY_POLICY", "memory policy" },
		      { "CONSTRAINT_MEMCG", "cgroup" } };
	char text[64];

	if (!value_of(line, "oom-kill:constraint=", text, sizeof(text)))
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(text, names[i].kernel))
			snprintf(r->constraint, sizeof(r->constraint), "%s", names[i].ours);
	}
}

pid_t oom_log__line(const char *line, struct oom_report *building)
{
	const char *pid = NULL;

	if (strstr(line, " invoked oom-killer: ")) {
		*building = unknown;
	} else if (!strncmp(line, "memory: ", 8)) {
		parse_use(line + 8, &building->usage, &building->limit);
	} else if (!strncmp(line, "memory+swap: ", 13)) {
		parse_use(line + 13, &building->swap_usage, &building->swap_limit);
	} else if (!strncmp(line, "swap: ", 6)) {
		parse_use(line + 6, &building->swap_usage, &building->swap_limit);
	} else if (!strncmp(line, "oom-kill:constraint=", 20)) {
		parse_constraint(line, building);
		if (strcmp(building->constraint, "cgroup") ||
		    !value_of(line, "oom_memcg=", building->cgroup, sizeof(building->cgroup)))
			building->cgroup[0] = '\0';
		/* The task's name comes before its PID, and may have any text: the last one. */
		for (const char *p = line; (p = strstr(p, ",pid=")); p = pid)
			pid = p + 5;
		return pid ? (pid_t)strtol(pid, NULL, 10) : 0;
	}
	return 0;
}

static void read_on(struct oom_log *l)
{
	char text[8192];
	ssize_t n;
	pid_t pid;

	for (int i = 0; i < LINES_MAX; i++) {
		char *line;

		n = read(l->fd, text, sizeof(text) - 1);
		if (n < 0 && errno == EPIPE) /* the kernel has overwritten some lines */
			continue;
		if (n <= 0)
			return;
		text[n] = '\0';
		line = strchr(text, ';');
		if (!line)
			continue;
		line++;
		line[strcspn(line, "\n")] = '\0';
		pid = oom_log__line(line, &l->building);
		if (pid <= 0)
			continue;
		l->found[l->next % REPORTS].pid = pid;
		l->found[l->next++ % REPORTS].report = l->building;
		l->building = unknown;
	}
}

bool oom_log__find(struct oom_log *l, pid_t pid, struct oom_report *ret)
{
	read_on(l);
	for (unsigned int i = 0; i < REPORTS; i++) {
		if (l->found[i].pid != pid)
			continue;
		*ret = l->found[i].report;
		l->found[i].pid = 0;
		return true;
	}
	return false;
}
