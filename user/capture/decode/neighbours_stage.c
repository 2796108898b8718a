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
#include "record/oom.h"

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

void neighbours_stage__free(struct neighbours_stage *stage)
{
	if (!stage)
		return;
	holder_names__free(stage->names);
	holder_names__free(stage->late);
	free(stage);
}

/* Returns the stage; NULL: out of memory. */
static struct neighbours_stage *get_stage(struct decoder *decoder)
{
	if (!decoder->neighbours)
		decoder->neighbours = calloc(1, sizeof(*decoder->neighbours));
	return decoder->neighbours;
}

/* True if NVML has figures of other processes. */
static bool can_ask(const struct decoder *decoder)
{
	return decoder->calls && decoder->calls->smi && !nvml__is_dry_run(decoder->calls->smi);
}

/* Adds to those that wait; the latest one has to go if there is no room. */
static void add_waiting(struct neighbours_stage *stage, struct waiting w)
{
	if (stage->n == WAITING_MAX)
		stage->n--;
	if (stage->covered > stage->n)
		stage->covered = stage->n;
	stage->waiting[stage->n++] = w;
}

int neighbours_stage__failed(struct decoder *decoder, struct device device, uint64_t time)
{
	struct neighbours_stage *stage;

	if (!can_ask(decoder) || device.type != DEVICE_CUDA || device.index >= NVML_DEVICES_MAX)
		return 0;
	stage = get_stage(decoder);
	if (!stage)
		return -ENOMEM;
	add_waiting(stage, (struct waiting){ stage->failures++, time, device.index });
	return 0;
}

/* Describes a process. process: NULL, or an ended process: only what the driver says. */
static struct neighbour describe(const struct nvml_other *other,
				 const struct holder_process *process)
{
	struct neighbour ret = { .pid = (uint32_t)other->pid,
				 .bytes_known = other->used != UINT64_MAX,
				 .bytes = other->used,
				 .user = "",
				 .command = "",
				 .container = "" };

	if (!process || process->state == 'X')
		return ret;
	ret.uid_known = true;
	ret.uid = process->uid;
	ret.user = process->user;
	ret.command = process->command;
	ret.container = *process->pod ? process->pod : process->container;
	return ret;
}

/* Sets the facts of those that the answer covers. names: NULL, not known. 0 or -ENOMEM. */
static int set_facts(struct decoder *decoder, const struct holder_process *names)
{
	struct neighbours_stage *stage = decoder->neighbours;
	struct neighbours list = { .n = stage->n_v, .all = stage->all, .read = stage->read };
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < stage->n_v; i++)
		list.v[i] = describe(&stage->v[i], names ? &names[i] : NULL);
	for (size_t i = 0; i < stage->n; i++) {
		const struct waiting waiting = stage->waiting[i];

		if (i >= stage->covered || waiting.device != stage->device)
			stage->waiting[kept++] = waiting;
		else if (neighbours__add(decoder->facts, waiting.number, waiting.time,
					 waiting.device, &list) == -ENOMEM)
			err = -ENOMEM;
	}
	stage->n = kept;
	if (!names && stage->names)
		stage->late = stage->names;
	else
		holder_names__free(stage->names);
	stage->names = NULL;
	return err;
}

/* Drops those that wait on this device: NVML does not have it. */
static void drop(struct neighbours_stage *stage, unsigned device)
{
	size_t kept = 0;

	for (size_t i = 0; i < stage->n; i++)
		if (stage->waiting[i].device != device)
			stage->waiting[kept++] = stage->waiting[i];
	stage->n = kept;
}

/* Starts to read the names of the answer's processes. False: they stay unknown. */
static bool ask_names(struct neighbours_stage *stage)
{
	pid_t pid[NEIGHBOURS_MAX];
	size_t n;

	if (stage->late && !holder_names__get(stage->late, &n))
		return false;
	holder_names__free(stage->late);
	stage->late = NULL;
	for (size_t i = 0; i < stage->n_v; i++)
		pid[i] = stage->v[i].pid;
	stage->names = holder_names__new(pid, stage->n_v);
	return stage->names != NULL;
}

/* Takes the processes on the device of the first one that waits, from an answer to the question
 * `ticket` or later, and starts to read their names. -EAGAIN: there is no such answer. */
static int take_answer(struct decoder *decoder, uint64_t ticket)
{
	struct neighbours_stage *stage = decoder->neighbours;
	uint64_t began = 0;
	int n;

	stage->device = stage->waiting[0].device;
	n = nvml__others(decoder->calls->smi, stage->device, ticket, stage->v, NEIGHBOURS_MAX,
			 &stage->all, &began);
	if (n == -EAGAIN)
		return n;
	stage->asked = false;
	if (n < 0) {
		log_debug("the driver does not list the processes on the process's device %u",
			  stage->device);
		drop(stage, stage->device);
		return 0;
	}
	stage->n_v = (size_t)n;
	stage->read = decoder__since(decoder, began);
	stage->covered = stage->n;
	stage->named_at = decoder__now(decoder);
	return ask_names(stage) ? 0 : set_facts(decoder, NULL);
}

/* Sets the facts once the names are read, or after NAMES_WITHIN without them. */
static int take_names(struct decoder *decoder)
{
	struct neighbours_stage *stage = decoder->neighbours;
	const struct holder_process *names;
	size_t n;

	names = holder_names__get(stage->names, &n);
	if (!names && decoder__now(decoder) - stage->named_at < NAMES_WITHIN)
		return 0;
	return set_facts(decoder, names);
}

int neighbours_stage__tick(struct decoder *decoder)
{
	struct neighbours_stage *stage = decoder->neighbours;
	uint64_t now = decoder__now(decoder);
	int err;

	if (!stage || !stage->n || !can_ask(decoder))
		return 0;
	if (stage->names)
		return take_names(decoder);
	if (!stage->asked) {
		if (now < stage->next)
			return 0;
		stage->ticket = stage->any_answer ? 0 : nvml__ask_others(decoder->calls->smi);
		stage->asked = true;
		stage->asked_at = now;
		stage->next = now + PAUSE;
	}
	err = take_answer(decoder, stage->ticket);
	if (err != -EAGAIN)
		return err;
	if (now - stage->asked_at < ANSWER_WITHIN)
		return 0;
	/* NVML is late: an earlier answer is better than none. */
	err = take_answer(decoder, /*ticket=*/0);
	if (err != -EAGAIN)
		return err;
	stage->asked = false;
	stage->n = 0; /* NVML has never answered */
	return 0;
}

/* Adds the end of the process on each device that it has memory on. */
static int add_end(struct decoder *decoder)
{
	enum ending_reason how = ending__reason(decoder->facts);
	uint64_t devices = can_ask(decoder) ? decoder->calls->in_use : 0;

	if (!devices || how == ENDING_UNKNOWN || how == ENDING_GOOD)
		return 0;
	if (!get_stage(decoder))
		return -ENOMEM;
	for (unsigned i = 0; i < NVML_DEVICES_MAX; i++)
		if (devices >> i & 1)
			add_waiting(decoder->neighbours,
				    (struct waiting){ NEIGHBOURS_AT_END, decoder__now(decoder),
						      i });
	return 0;
}

int neighbours_stage__last(struct decoder *decoder)
{
	bool failed = decoder->neighbours && decoder->neighbours->n;
	int err = add_end(decoder);
	struct neighbours_stage *stage = decoder->neighbours;
	uint64_t until = decoder__now(decoder) + LAST_WITHIN;

	if (err || !stage)
		return err;
	stage->next = 0;
	/* At an end alone: a later answer would lack what the end has freed. */
	stage->any_answer = !failed;
	while (!err && stage->n && decoder__now(decoder) < until) {
		err = neighbours_stage__tick(decoder);
		poll(NULL, 0, 2);
	}
	while (!err && stage->n)
		err = stage->names ? set_facts(decoder, NULL) : take_answer(decoder, 0);
	return err == -EAGAIN ? 0 : err;
}
