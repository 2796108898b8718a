/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/user.h"
#include "inspect/machine.h"

/* Parses /proc/PID/status. False: a kernel thread or a zombie, which have no memory. */
static bool parse_status(const char *text, struct machine_process *process)
{
	char name[128];
	unsigned uid;
	const char *at;

	if (!memory__field(text, "\nRssAnon:", &process->anon))
		return false;
	memory__field(text, "\nRssFile:", &process->file);
	memory__field(text, "\nRssShmem:", &process->shmem);
	memory__field(text, "\nVmSwap:", &process->swap);
	if (sscanf(text, "Name: %127[^\n]", name) == 1)
		text__clean(process->command, sizeof(process->command), name, strlen(name));
	at = strstr(text, "\nUid:");
	if (at && sscanf(at, "\nUid: %*u %u", &uid) == 1)
		process->uid = uid;
	return true;
}

/* Puts a process into its place, if it is one of the largest. */
static void insert(struct machine_processes *s, const struct machine_process *process)
{
	size_t i = s->n;

	while (i > 0 && s->v[i - 1].anon + s->v[i - 1].swap < process->anon + process->swap)
		i--;
	if (i == MACHINE_TOP)
		return;
	s->n += s->n < MACHINE_TOP;
	memmove(&s->v[i + 1], &s->v[i], (s->n - 1 - i) * sizeof(*process));
	s->v[i] = *process;
}

/* Sets the user's name, if possible from another row: a look-up may start a program. */
static void set_user(struct machine_processes *s, size_t i)
{
	struct machine_process *process = &s->v[i];
	struct user user;
	char id[16];

	for (size_t k = 0; k < i; k++) {
		if (s->v[k].uid != process->uid)
			continue;
		memcpy(process->user, s->v[k].user, sizeof(process->user));
		return;
	}
	snprintf(id, sizeof(id), "%u", process->uid);
	if (user__named(&user, id))
		snprintf(process->user, sizeof(process->user), "%s", id);
	else
		text__clean(process->user, sizeof(process->user), user.name, strlen(user.name));
}

int machine_processes__read(struct machine_processes *ret)
{
	struct machine_process p;
	DIR *dir = opendir("/proc");
	bool init = false; /* process 1 is there */
	char text[8192];
	struct dirent *entry;

	*ret = (struct machine_processes){ 0 };
	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		p = (struct machine_process){ .pid = atoi(entry->d_name) };
		init |= p.pid == 1;
		if (io__text_of_process(p.pid, "status", text, sizeof(text)) <= 0 ||
		    !parse_status(text, &p))
			continue;
		ret->count++;
		insert(ret, &p);
	}
	closedir(dir);
	ret->hidden = !init;
	for (size_t i = 0; i < ret->n; i++)
		set_user(ret, i);
	return 0;
}

void machine_processes__refresh(struct machine_processes *p)
{
	char text[8192];
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++) {
		struct machine_process *to = &p->v[n];

		*to = p->v[i];
		if (io__text_of_process(to->pid, "status", text, sizeof(text)) > 0)
			n += parse_status(text, to);
	}
	p->n = n;
}
