/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The processes that started a recorded one, so that a report can show which process of a service
 * started which. Most of them have no PyTorch and no recording. They end at any time, so each
 * recording has the names of its own ancestors, as of its attach.
 */
#include "capture/follow/tracees_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "capture/pick.h"
#include "capture/session.h"
#include "record/stream.h"

#define ANCESTORS_MAX 8
#define TITLE 256

static bool same_program(pid_t a, pid_t b)
{
	char path[48], exe[2][PATH_MAX];
	ssize_t n[2];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/exe", (int)(i ? b : a));
		n[i] = readlink(path, exe[i], sizeof(exe[i]));
	}
	return n[0] > 0 && n[0] == n[1] && !memcmp(exe[0], exe[1], (size_t)n[0]);
}

/* True if the parent belongs to the program: it is in the capture, or has the same interpreter and
 * session. Shells, terminals and supervisors do not. */
static bool belongs(const struct tracees *r, const struct pick_process *child,
		    const struct pick_process *parent)
{
	return tracees__find(r, parent->pid) ||
	       (getsid(parent->pid) == getsid(child->pid) && getsid(child->pid) > 0 &&
		same_program(parent->pid, child->pid));
}

static void put(struct json *j, const struct pick_process *q)
{
	char title[TITLE];

	json__open_object(j, NULL);
	json__uint(j, "pid", (uint64_t)q->pid);
	json__uint(j, "started", q->started);
	json__string(j, "title", pick_process__title(q, title, sizeof(title)));
	json__close_object(j);
}

/* Writes the ancestors, nearest first. Returns their number. */
static size_t put_all(struct json *j, const struct tracee *p)
{
	struct pick_process child, parent;
	size_t n = 0;

	if (pick_process__read(p->pid, &child))
		return 0;
	/* A process whose parent has ended has another one now. */
	if (p->is_child && p->parent > 0)
		child.parent = p->parent;
	while (n < ANCESTORS_MAX && child.parent > 1 &&
	       !pick_process__read(child.parent, &parent)) {
		/* A younger process has the number of the parent, which has ended. */
		if (parent.started > child.started || !belongs(p->all, &child, &parent)) {
			pick_process__free(&parent);
			break;
		}
		put(j, &parent);
		n++;
		pick_process__free(&child);
		child = parent;
	}
	pick_process__free(&child);
	return n;
}

void tracee__set_ancestors(const struct tracee *p)
{
	char *text = NULL;
	size_t size, n = 0;
	FILE *out = open_memstream(&text, &size);
	struct json *j = out ? json__new(out, false) : NULL;

	if (j) {
		json__open_array(j, NULL);
		n = put_all(j, p);
		json__close_array(j);
	}
	json__free(j);
	if (out && !fclose(out) && n) {
		text[strcspn(text, "\n")] = '\0';
		facts__set(session__facts(p->session), "ancestors", text);
	}
	free(text);
}
