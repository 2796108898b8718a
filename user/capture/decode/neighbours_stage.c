/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/decode/neighbours_stage.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "capture/decode/cuda_calls_internal.h"
#include "inspect/gpu_holders.h"
#include "record/ending.h"
#include "record/neighbours.h"

#define MS UINT64_C(1000000)
#define ANSWER_WITHIN (600 * MS) /* then NVML's last answer has to do; below FLIGHT_AFTER */
#define NAMES_WITHIN (300 * MS)	 /* then processes have no names */
#define PAUSE (250 * MS)	 /* between two questions */
#define LAST_WITHIN (300 * MS)
#define WAITING_MAX 16

/* A failed allocation, or the end of the process, without its fact so far. */
struct waiting {
	uint64_t number; /* as in neighbours__add() */
	uint64_t time;	 /* ns since start */
	unsigned device;
};

struct neighbours_stage {
	struct waiting waiting[WAITING_MAX];
	size_t n;
	uint64_t failures; /* so far */
	uint64_t next;	   /* earliest time of the next question; all times are ns since start */
	bool asked;	   /* a question is open */
	bool any_answer;   /* an answer to an earlier question will do */
	uint64_t ticket;   /* of the question, as nvml__ask() */
	uint64_t asked_at; /* when the question was asked */
	/* The answer, while the names are read: for the first `covered` that wait, if they are of
	 * this device. */
	struct holder_names *names;
	uint64_t named_at; /* when the thread for the names was started */
	/* Earlier names that did not come in time. Their thread may wait forever: no other one is
	 * started before it has ended. */
	struct holder_names *late;
	unsigned device;
	size_t covered;
	struct nvml_other v[NEIGHBOURS_MAX];
	size_t n_v, all;
	uint64_t read; /* when NVML was asked */
};

void neighbours_stage__free(struct neighbours_stage *s)
{
	if (!s)
		return;
	holder_names__free(s->names);
	holder_names__free(s->late);
	free(s);
}

/* Returns the stage; NULL: out of memory. */
static struct neighbours_stage *get_stage(struct decoder *d)
{
	if (!d->neighbours)
		d->neighbours = calloc(1, sizeof(*d->neighbours));
	return d->neighbours;
}

/* True if NVML has figures of other processes. */
static bool can_ask(const struct decoder *d)
{
	return d->calls && d->calls->smi && !nvml__is_dry_run(d->calls->smi);
}

/* Adds to those that wait; the latest one has to go if there is no room. */
static void add_waiting(struct neighbours_stage *s, struct waiting w)
{
	if (s->n == WAITING_MAX)
		s->n--;
	if (s->covered > s->n)
		s->covered = s->n;
	s->waiting[s->n++] = w;
}

int neighbours_stage__failed(struct decoder *d, struct device device, uint64_t time)
{
	struct neighbours_stage *s;

	if (!can_ask(d) || device.type != DEVICE_CUDA || device.index >= NVML_DEVICES_MAX)
		return 0;
	s = get_stage(d);
	if (!s)
		return -ENOMEM;
	add_waiting(s, (struct waiting){ s->failures++, time, device.index });
	return 0;
}

static struct neighbour describe(const struct nvml_other *o, const struct holder_process *p)
{
	struct neighbour ret = { .pid = (uint32_t)o->pid,
				 .bytes_known = o->used != UINT64_MAX,
				 .bytes = o->used,
				 .user = "",
				 .command = "",
				 .container = "" };

	if (!p || p->state == 'X')
		return ret;
	ret.uid_known = true;
	ret.uid = p->uid;
	ret.user = p->user;
	ret.command = p->command;
	ret.container = *p->pod ? p->pod : p->container;
	return ret;
}

/* Sets the facts of those that the answer covers. names: NULL, not known. 0 or -ENOMEM. */
static int set_facts(struct decoder *d, const struct holder_process *names)
{
	struct neighbours_stage *s = d->neighbours;
	struct neighbours v = { .n = s->n_v, .all = s->all, .read = s->read };
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < s->n_v; i++)
		v.v[i] = describe(&s->v[i], names ? &names[i] : NULL);
	for (size_t i = 0; i < s->n; i++) {
		const struct waiting w = s->waiting[i];

		if (i >= s->covered || w.device != s->device)
			s->waiting[kept++] = w;
		else if (neighbours__add(d->facts, w.number, w.time, w.device, &v) == -ENOMEM)
			err = -ENOMEM;
	}
	s->n = kept;
	if (!names && s->names)
		s->late = s->names;
	else
		holder_names__free(s->names);
	s->names = NULL;
	return err;
}

/* Drops those that wait on this device: NVML does not have it. */
static void drop(struct neighbours_stage *s, unsigned device)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->n; i++)
		if (s->waiting[i].device != device)
			s->waiting[kept++] = s->waiting[i];
	s->n = kept;
}

/* Starts to read the names of the answer's processes. False: they stay unknown. */
static bool ask_names(struct neighbours_stage *s)
{
	pid_t pid[NEIGHBOURS_MAX];
	size_t n;

	if (s->late && !holder_names__get(s->late, &n))
		return false;
	holder_names__free(s->late);
	s->late = NULL;
	for (size_t i = 0; i < s->n_v; i++)
		pid[i] = s->v[i].pid;
	s->names = holder_names__new(pid, s->n_v);
	return s->names != NULL;
}

/* Takes the processes on the device of the first one that waits, from an answer to the question
 * `ticket` or later, and starts to read their names. -EAGAIN: there is no such answer. */
static int take_answer(struct decoder *d, uint64_t ticket)
{
	struct neighbours_stage *s = d->neighbours;
	uint64_t began = 0;
	int n;

	s->device = s->waiting[0].device;
	n = nvml__others(d->calls->smi, s->device, ticket, s->v, NEIGHBOURS_MAX, &s->all, &began);
	if (n == -EAGAIN)
		return n;
	s->asked = false;
	if (n < 0) {
		log_debug("the driver does not list the processes on the process's device %u",
			  s->device);
		drop(s, s->device);
		return 0;
	}
	s->n_v = (size_t)n;
	s->read = decoder__since(d, began);
	s->covered = s->n;
	s->named_at = decoder__now(d);
	return ask_names(s) ? 0 : set_facts(d, NULL);
}

static int take_names(struct decoder *d)
{
	struct neighbours_stage *s = d->neighbours;
	const struct holder_process *names;
	size_t n;

	names = holder_names__get(s->names, &n);
	if (!names && decoder__now(d) - s->named_at < NAMES_WITHIN)
		return 0;
	return set_facts(d, names);
}

int neighbours_stage__tick(struct decoder *d)
{
	struct neighbours_stage *s = d->neighbours;
	uint64_t now = decoder__now(d);
	int err;

	if (!s || !s->n || !can_ask(d))
		return 0;
	if (s->names)
		return take_names(d);
	if (!s->asked) {
		if (now < s->next)
			return 0;
		s->ticket = s->any_answer ? 0 : nvml__ask_others(d->calls->smi);
		s->asked = true;
		s->asked_at = now;
		s->next = now + PAUSE;
	}
	err = take_answer(d, s->ticket);
	if (err != -EAGAIN || now - s->asked_at < ANSWER_WITHIN)
		return err == -EAGAIN ? 0 : err;
	err = take_answer(d, 0);
	if (err != -EAGAIN)
		return err;
	s->asked = false;
	s->n = 0; /* NVML has never answered */
	return 0;
}

/* Adds the end of the process on each device that it has memory on. */
static int add_end(struct decoder *d)
{
	enum ending_reason how = ending__reason(d->facts);
	uint64_t devices = can_ask(d) ? d->calls->in_use : 0;

	if (!devices || how == ENDING_UNKNOWN || how == ENDING_GOOD)
		return 0;
	if (!get_stage(d))
		return -ENOMEM;
	for (unsigned i = 0; i < NVML_DEVICES_MAX; i++)
		if (devices >> i & 1)
			add_waiting(d->neighbours,
				    (struct waiting){ NEIGHBOURS_AT_END, decoder__now(d), i });
	return 0;
}

int neighbours_stage__last(struct decoder *d)
{
	bool failed = d->neighbours && d->neighbours->n;
	int err = add_end(d);
	struct neighbours_stage *s = d->neighbours;
	uint64_t until = decoder__now(d) + LAST_WITHIN;

	if (err || !s)
		return err;
	s->next = 0;
	/* At an end alone: a later answer would lack what the end has freed. */
	s->any_answer = !failed;
	while (!err && s->n && decoder__now(d) < until) {
		err = neighbours_stage__tick(d);
		poll(NULL, 0, 2);
	}
	while (!err && s->n)
		err = s->names ? set_facts(d, NULL) : take_answer(d, 0);
	return err == -EAGAIN ? 0 : err;
}
