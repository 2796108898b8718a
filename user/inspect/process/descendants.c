/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/proc.h"

#include <dirent.h>
#include <errno.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"
#include "inspect/arrival.h"

#define MAX_PROCESSES 1024
#define MAX_THREADS 1024 /* threads of one process that are searched for children */

struct list {
	pid_t pid[MAX_PROCESSES], parent[MAX_PROCESSES];
	size_t n;
};

/* Appends the PIDs in a file "children" of /proc. A file that is gone has none. */
static void add_children_of_thread(const char *path, pid_t parent, struct list *list)
{
	FILE *file = fopen(path, "re");
	long pid;

	if (!file)
		return;
	while (list->n < MAX_PROCESSES && fscanf(file, "%ld", &pid) == 1) {
		if (pid <= 0)
			continue;
		list->parent[list->n] = parent;
		list->pid[list->n++] = pid;
	}
	fclose(file);
}

/* Appends the children of all threads of a process. */
static void add_children(pid_t pid, struct list *list)
{
	char path[64];
	struct dirent *entry;
	size_t threads = 0;
	DIR *dir;
	long tid;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return;
	while (threads < MAX_THREADS && (entry = readdir(dir))) {
		tid = strtol(entry->d_name, NULL, 10);
		if (tid <= 0)
			continue;
		threads++;
		snprintf(path, sizeof(path), "/proc/%d/task/%ld/children", (int)pid, tid);
		add_children_of_thread(path, pid, list);
	}
	closedir(dir);
}

bool descendants__has_torch(pid_t pid)
{
	struct proc *proc = proc__open(pid);
	struct maps maps;
	bool ret = false;

	if (proc && !proc__maps(proc, &maps)) {
		ret = arrival__maps_c10_functions(proc, &maps, /*unreadable=*/false);
		maps__free(&maps);
	}
	proc__free(proc);
	return ret;
}

/* True if a process has its parent's memory, as between vfork() and the program that it executes.
 * False if the kernel does not say. */
static bool shares_memory(pid_t pid, pid_t parent)
{
	return !syscall(SYS_kcmp, pid, parent, KCMP_VM, 0, 0);
}

size_t descendants__with_torch(pid_t pid, pid_t *pids, size_t max)
{
	struct list list = { 0 };
	size_t i, n = 0;

	add_children(pid, &list); /* the loop appends the children of each descendant */
	for (i = 0; i < list.n; i++) {
		if (descendants__has_torch(list.pid[i]) &&
		    !shares_memory(list.pid[i], list.parent[i])) {
			if (n < max)
				pids[n] = list.pid[i];
			n++;
		}
		add_children(list.pid[i], &list);
	}
	return n;
}

size_t descendants__list(pid_t pid, pid_t *pids, pid_t *parents, size_t max)
{
	struct list list = { 0 };
	size_t i;

	add_children(pid, &list); /* the loop appends the children of each descendant */
	for (i = 0; i < list.n && i < max; i++) {
		pids[i] = list.pid[i];
		parents[i] = list.parent[i];
		add_children(list.pid[i], &list);
	}
	return i;
}

bool descendants__exists(pid_t pid)
{
	return !kill(pid, 0) || errno != ESRCH;
}

uint64_t descendants__pages(pid_t pid)
{
	unsigned long long pages = 0;
	char buf[64];

	io__text_of_process(pid, "statm", buf, sizeof(buf));
	return sscanf(buf, "%llu", &pages) == 1 ? pages : 0;
}
