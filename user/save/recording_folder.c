/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "save/recording_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive/folder.h"
#include "capture/session.h"
#include "follow/tracees.h"
#include "lib/clock.h"
#include "lib/exit.h"
#include "lib/text.h"
#include "log/log.h"
#include "process/proc.h"
#include "save/recording.h"

static const char *fact(const struct recording *r, const char *key)
{
	const char *value = facts__get(session__facts(r->loop.session), key);

	return value ? value : "";
}

/* Of all processes together, and not of this one. */
static const struct recording *whole(const struct recording *r)
{
	return r->of ? r->of : r;
}

bool recording_folder__wanted(const struct recording *r)
{
	return (r->loop.args.children || capture_loop__many(&r->loop)) && !r->args.windows.given &&
	       r->args.output && strcmp(r->args.output, "-") != 0 && folder__wanted(r->args.output);
}

int recording_folder__open(struct recording *r)
{
	int err;

	r->made_folder = access(r->args.output, F_OK);
	err = folder__create(r->args.output, r->args.force, &r->folder);
	if (!err)
		return EXIT_OK;
	log_err("%s: %s", r->args.output, folder__why(err));
	return EXIT_FAILED;
}

/* ---- names ---- */

/* "train.py" of "python -u /a/train.py --lr 1", "torch.distributed.run" of "python -m
 * torch.distributed.run": the command's, or its module's. */
static const char *program_of(const char *args, size_t len)
{
	const char *end = args + len, *p = args, *base = strrchr(args, '/');

	base = base ? base + 1 : args;
	if (strncmp(base, "python", 6) != 0)
		return base;
	for (p += strlen(p) + 1; p < end; p += strlen(p) + 1) {
		if (!strcmp(p, "-c"))
			break;
		if (*p == '-' && strcmp(p, "-m") != 0)
			continue;
		if (*p == '-' && p + 3 >= end)
			break;
		p += *p == '-' ? 3 : 0;
		return strrchr(p, '/') ? strrchr(p, '/') + 1 : p;
	}
	return base;
}

/* "rank-0"; what it forks has its environment, and with it its rank: "rank-0-worker-4711";
 * "train-4711". */
static void stem_of(const struct recording *r, char *buf, size_t size)
{
	const struct proc *proc = session__proc(r->loop.session);
	const char *rank = fact(r, "rank"), *args, *name;
	bool forked = !strcmp(fact(r, "attached_at"), "fork");
	bool worker = !strncmp(proc__comm(proc), "pt_data_worker", 14);
	char of_rank[32] = "";
	size_t len, n;

	if (*rank)
		snprintf(of_rank, sizeof(of_rank), "rank-%s", rank);
	if (*rank && !forked) {
		snprintf(buf, size, "%s", of_rank);
	} else if (*rank || worker) {
		snprintf(buf, size, "%s%s%s-%d", of_rank, *rank ? "-" : "",
			 worker ? "worker" : "child", (int)proc__pid(proc));
	} else {
		args = proc__cmdline(proc, &len);
		name = len ? program_of(args, len) : proc__comm(proc);
		n = strlen(name);
		if (n > 3 && !strcmp(name + n - 3, ".py"))
			n -= 3;
		snprintf(buf, size, "%.*s-%d", n > 100 ? 100 : (int)n, name, (int)proc__pid(proc));
	}
}

/* ---- entries ---- */

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

static void set_numbers(struct recording *r, struct folder_entry *e)
{
	uint64_t steps = session__steps(r->loop.session);

	e->events = session__events(r->loop.session);
	e->lost = session__lost(r->loop.session);
	e->rank = *fact(r, "rank") ? (int64_t)strtoul(fact(r, "rank"), NULL, 10) : -1;
	e->first_step = steps ? 0 : -1;
	e->last_step = (int64_t)steps - 1;
	copy(e->comm, sizeof(e->comm), fact(r, "comm"));
	copy(e->container, sizeof(e->container),
	     *fact(r, "container.name") ? fact(r, "container.name") : fact(r, "container"));
	copy(e->pod, sizeof(e->pod), fact(r, "pod"));
}

static void say_began(const struct recording *r, struct folder_entry *e)
{
	const char *how = fact(r, "attached_at");

	if (!strcmp(how, "fork"))
		snprintf(e->began, sizeof(e->began), "forked by PID %s", fact(r, "parent"));
	else
		snprintf(e->began, sizeof(e->began), "attached %s",
			 !strcmp(how, "start") ? "before PyTorch's first allocation"
					       : "while it ran");
}

int recording_folder__note(struct recording *r)
{
	int err;

	if (!whole(r)->folder)
		return 0;
	set_numbers(r, r->entry);
	say_began(r, r->entry);
	err = folder__add(whole(r)->folder, r->entry);
	if (err)
		log_err("%s: %s", whole(r)->args.output, folder__why(err));
	return err;
}

int recording_folder__begin(struct recording *r)
{
	struct folder *f = whole(r)->folder;
	struct folder_entry *e = calloc(1, sizeof(*e));
	const char *base;

	if (!e)
		return -ENOMEM;
	stem_of(r, e->name, sizeof(e->name));
	free(r->child_path);
	r->child_path = folder__new_path(f, e->name);
	if (!r->child_path) {
		free(e);
		log_err("out of memory");
		return -ENOMEM;
	}
	r->entry = e;
	base = strrchr(r->child_path, '/');
	copy(e->file, sizeof(e->file), base ? base + 1 : r->child_path);
	copy(e->kind, sizeof(e->kind), "process");
	e->pid = r->loop.args.pid;
	e->from = e->to = tracees__now(whole(r)->loop.tracees);
	text__date(e->begin, sizeof(e->begin), clock__read(CLOCK_REALTIME));
	return 0;
}

/* The allocator's own totals, where it has any. */
void recording_folder__event(struct recording *r, const struct event *e)
{
	struct folder_device *d = NULL;
	char name[16];
	size_t i;

	if (!e->totals)
		return;
	device__name(e->device, name, sizeof(name));
	for (i = 0; i < r->entry->n_devices && !d; i++)
		d = strcmp(r->entry->devices[i].name, name) ? NULL : &r->entry->devices[i];
	if (!d && r->entry->n_devices == FOLDER_DEVICES)
		return;
	if (!d) {
		d = &r->entry->devices[r->entry->n_devices++];
		copy(d->name, sizeof(d->name), name);
	}
	d->allocated = e->allocated;
	d->reserved = e->reserved;
	d->peak_allocated = e->allocated > d->peak_allocated ? e->allocated : d->peak_allocated;
	d->peak_reserved = e->reserved > d->peak_reserved ? e->reserved : d->peak_reserved;
}

int recording_folder__end(struct recording *r, uint64_t bytes)
{
	struct folder_entry *e = r->entry;

	e->bytes = bytes;
	e->to = tracees__now(whole(r)->loop.tracees);
	text__date(e->end, sizeof(e->end), clock__read(CLOCK_REALTIME));
	copy(e->ended, sizeof(e->ended), r->loop.stop_reason ? r->loop.stop_reason : "");
	return recording_folder__note(r) ? EXIT_FAILED : EXIT_OK;
}

/* Of one that we made. Where somebody has put something into it, it stays. */
static void remove_folder(const char *path)
{
	char *index;

	if (asprintf(&index, "%s/" FOLDER_INDEX, path) < 0)
		return;
	unlink(index);
	rmdir(path);
	free(index);
}

void recording_folder__close(struct recording *r, int status)
{
	size_t n = 0;

	if (r->folder && !r->of) {
		folder__entries(r->folder, &n);
		if (n)
			log_info("next: memtrace-bpf report %s", folder__path(r->folder));
		else if (status == EXIT_OK)
			log_warn("nothing was written: no process that was recorded allocated a "
				 "tensor");
		if (!n && r->made_folder)
			remove_folder(folder__path(r->folder));
		folder__free(r->folder);
	}
	free(r->entry);
	r->folder = NULL;
	r->entry = NULL;
}
