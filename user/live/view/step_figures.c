/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/step_figures.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "base/text.h"
#include "capture/session.h"
#include "inspect/proc.h"
#include "live/rows/proc.h"
#include "live/view/step_messages.h"
#include "model/growth_summary.h"
#include "model/model.h"
#include "record/host.h"

/*
 * The first steps wait until their numbers are known, or for HOLD_NS: a forward call may belong to
 * an optimizer's step, and the optimizer's own count may not have been read yet.
 */
#define HOLD_NS UINT64_C(20000000000)
#define HELD 512	  /* steps that wait at most */
#define SCOPES_OF_STEP 32 /* scopes in a message, or messages about scopes at a time, at most */
#define RUNS_NS UINT64_C(1000000000) /* time between two messages about a scope without steps */
#define SCOPES_TEXT 32768	     /* bytes of a message beyond which no further scope is added */
#define SCOPE_PATH 256		     /* bytes of a scope's name, with those around it */

struct held {
	bool is_call; /* not an optimizer's step */
	uint64_t n;   /* number of the step in the recording, from 1 */
	char *body;   /* members of the message, without braces */
};

struct step_process {
	struct step_figures *figures;
	struct session *session;
	struct live_proc *live;
	pid_t pid;
	bool user_known;
	uid_t uid;
	uint64_t start;	    /* ns since 1970; 0: not known */
	bool are_calls;	    /* the steps counted in `steps` are calls */
	uint64_t steps;	    /* steps that were noted */
	bool told;	    /* the message "process" was sent */
	bool begun;	    /* steps do not wait any longer */
	uint64_t runs_told; /* when send_runs() was called, ns since the attach */
	struct held *held;
	size_t nheld, room_held;
	struct step_process *next;
};

struct step_figures {
	struct recording_figures calls;
	struct step_process *processes;
	struct step_messages *messages;
};

/* ---- JSON ---- */

/* A text that JSON is written into. */
struct paper {
	char *text;
	size_t size;
	FILE *out;
	struct json *json;
};

/* Opens an object. 0 or -ENOMEM. */
static int paper__open(struct paper *paper)
{
	*paper = (struct paper){ .text = NULL };
	paper->out = open_memstream(&paper->text, &paper->size);
	if (!paper->out)
		return -ENOMEM;
	paper->json = json__new(paper->out, false);
	if (!paper->json) {
		fclose(paper->out);
		free(paper->text);
		return -ENOMEM;
	}
	json__open_object(paper->json, NULL);
	return 0;
}

/* Closes the object and returns its text without the end of the line, for the caller to free. NULL:
 * no memory. */
static char *paper__close(struct paper *paper)
{
	json__close_object(paper->json);
	json__free(paper->json);
	if (fclose(paper->out)) {
		free(paper->text);
		return NULL;
	}
	if (paper->size && paper->text[paper->size - 1] == '\n')
		paper->text[paper->size - 1] = '\0';
	return paper->text;
}

/* ---- a step ---- */

static void put_growth(struct json *j, const struct growth_summary *growth)
{
	if (!growth || growth->clock == GROWTH_TIME || !growth_summary__is_known(growth))
		return;
	json__double(j, "growth_per_step",
		     growth->verdict == GROWTH_VERDICT_GROWS ? growth->per_step : 0,
		     /*decimals=*/1);
}

/* Adds the device i with its bytes in the last step. Returns 0 or -ENOMEM. */
static int put_device(struct json *j, struct live_proc *live, size_t i)
{
	struct model_device d;
	struct model_step step;
	int err;

	model__device(live->model, i, &d);
	if (d.device.type == DEVICE_HOST || !model__last_step(live->model, i, &step))
		return 0;
	err = live_proc__judge(live, i);
	json__open_object(j, NULL);
	json__string(j, "device", d.name);
	json__uint(j, "allocated", step.end_allocated);
	json__uint(j, "peak_allocated", step.peak);
	if (d.has_totals)
		json__uint(j, "reserved", d.reserved);
	put_growth(j, live_proc__growth(live, d.device));
	json__close_object(j);
	return err;
}

/* Adds the resident memory of the last reading, with those parts of it that are known. */
static void put_host(struct json *j, const struct model *m)
{
	const struct model_host *host = model__host(m);

	if (!host || !host->last.sheet.part[HOST_TOTAL].known)
		return;
	json__open_object(j, "host");
	json__uint(j, "resident", host->last.sheet.part[HOST_TOTAL].bytes);
	json__close_object(j);
}

/* Adds the runs of a scope that ended since the last message about it. Returns the number of the
 * last one in its scope, from 1; 0: no device has figures of them. */
static uint64_t put_scope(struct json *j, const struct model *m, size_t i)
{
	struct model_scope scope;
	char path[SCOPE_PATH];
	uint64_t run = 0;

	model__scope(m, i, &scope);
	json__string(j, "scope", text__clean(path, sizeof(path), scope.path, strlen(scope.path)));
	json__uint(j, "runs", model__scope_recent_runs(m, i));
	json__open_array(j, "devices");
	for (size_t d = 0; d < model__devices(m); d++) {
		struct model_scope_level level;
		struct model_device device;

		if (!model__scope_recent(m, i, d, &level))
			continue;
		run = level.run;
		model__device(m, d, &device);
		json__open_object(j, NULL);
		json__string(j, "device", device.name);
		json__uint(j, "peak_allocated", level.peak);
		if (level.peak_reserved)
			json__uint(j, "peak_reserved", level.peak_reserved);
		json__uint(j, "end", level.end);
		if (level.kept_known)
			json__uint(j, "kept", level.kept);
		json__close_object(j);
	}
	json__close_array(j);
	return run;
}

/* Adds the scopes that ran in this step. Those that find no room come with a later step. */
static void put_scopes(struct paper *paper, struct model *m)
{
	size_t put = 0;

	if (!model__scopes(m))
		return;
	json__open_array(paper->json, "scopes");
	for (size_t i = 0; i < model__scopes(m) && put < SCOPES_OF_STEP; i++) {
		if (!model__scope_recent_runs(m, i))
			continue;
		if (ftell(paper->out) > SCOPES_TEXT)
			break;
		json__open_object(paper->json, NULL);
		put_scope(paper->json, m, i);
		json__close_object(paper->json);
		model__scope_forget_recent(m, i);
		put++;
	}
	json__close_array(paper->json);
}

/* Writes the members of the message about the last step. NULL: no memory. They are shorter than
 * 64 KiB, which readers take: devices have LIVE_DEVICES times at most 200 bytes, a scope about
 * 5,000. */
static char *write_step(struct step_process *p)
{
	struct model *m = p->live->model;
	struct model_step step = { 0 };
	struct paper paper;
	size_t kept = model__steps(m);
	int err = paper__open(&paper);
	char *text, *body;

	if (err)
		return NULL;
	kept = kept > 4096 ? 4096 : kept;
	model__step(m, kept - 1, &step);
	json__seconds(paper.json, "start", step.start, /*decimals=*/9);
	json__seconds(paper.json, "end", step.end, /*decimals=*/9);
	if (p->start)
		json__seconds(paper.json, "time", p->start + step.end, /*decimals=*/3);
	/* The beginning of the step that was under way at the attach was not seen. */
	json__bool(paper.json, "whole", p->steps > 1 || model__whole_steps(m) == p->steps);
	json__uint(paper.json, "lost", session__lost(p->session));
	json__open_array(paper.json, "devices");
	for (size_t i = 0; i < model__devices(m) && i < LIVE_DEVICES && !err; i++)
		err = put_device(paper.json, p->live, i);
	json__close_array(paper.json);
	put_host(paper.json, m);
	put_scopes(&paper, m);
	text = paper__close(&paper);
	if (!text || err) {
		free(text);
		return NULL;
	}
	body = strndup(text + 1, strlen(text) - 2);
	free(text);
	return body;
}

/* ---- a process ---- */

/* Finds out whose process it is: who may read its figures. */
static void find_user(struct step_process *p)
{
	char path[32];
	struct stat st;

	if (p->user_known)
		return;
	p->user_known = true;
	p->uid = geteuid();
	snprintf(path, sizeof(path), "/proc/%d", (int)p->pid);
	/* Another process may have got the PID of one that has ended. */
	if (stat(path, &st) || !proc__alive(session__proc(p->session)))
		return;
	p->uid = st.st_uid;
	step_messages__add_user(p->figures->messages, p->uid);
}

/* Adds a fact of the process, if it has it. */
static void put_fact(struct json *j, const struct step_process *p, const char *name)
{
	const char *value = facts__get(p->live->facts, name);

	if (value && *value)
		json__string(j, name, value);
}

/* Sends the message that begins a process, once. */
static void send_process(struct step_process *p)
{
	struct paper paper;
	uint64_t rank;
	char *text;

	if (p->told || paper__open(&paper))
		return;
	p->told = true;
	json__string(paper.json, "kind", "process");
	json__int(paper.json, "pid", p->pid);
	if (facts__number(p->live->facts, "rank", &rank))
		json__uint(paper.json, "rank", rank);
	put_fact(paper.json, p, "comm");
	put_fact(paper.json, p, "container");
	put_fact(paper.json, p, "pod");
	put_fact(paper.json, p, "start");
	text = paper__close(&paper);
	if (text)
		step_messages__add(p->figures->messages, p->uid, text);
}

/* Sends a step, and frees its body. */
static void send_step(struct step_process *p, struct held *step)
{
	char job_step[48] = "", *text;
	uint64_t first;

	if (!step->is_call && model__job_step(p->live->model, &first))
		snprintf(job_step, sizeof(job_step), ",\"job_step\":%llu",
			 (unsigned long long)(first + step->n - 1));
	if (asprintf(&text, "{\"kind\":\"step\",\"pid\":%d,\"by\":\"%s\",\"step\":%llu%s,%s}",
		     (int)p->pid, step->is_call ? "call" : "optimizer", (unsigned long long)step->n,
		     job_step, step->body) >= 0)
		step_messages__add(p->figures->messages, p->uid, text);
	free(step->body);
}

/* Sends the steps that wait. Calls before an optimizer's first step are no steps. */
static void send_held(struct step_process *p)
{
	bool are_calls = model__steps_are_calls(p->live->model);

	send_process(p);
	p->begun = true;
	for (size_t i = 0; i < p->nheld; i++) {
		if (p->held[i].is_call && !are_calls)
			free(p->held[i].body);
		else
			send_step(p, &p->held[i]);
	}
	p->nheld = 0;
}

/* Sends the steps that wait, if they need not wait any longer. now: ns since the attach. */
static void send_if_due(struct step_process *p, uint64_t now)
{
	uint64_t number;
	bool numbered = !model__steps_are_calls(p->live->model) &&
			model__job_step(p->live->model, &number);

	if (p->nheld && (p->begun || numbered || now >= HOLD_NS || p->nheld >= HELD))
		send_held(p);
}

static void find_start(struct step_process *p)
{
	const char *start = facts__get(p->live->facts, "start");

	if (!p->start && start && text__parse_date(start, &p->start))
		p->start = 0;
}

/* Sends the runs of a scope of a process without steps. now: ns since the attach. */
static void send_runs_of(struct step_process *p, size_t i, uint64_t now)
{
	struct paper paper;
	uint64_t run;
	char *text;

	if (paper__open(&paper))
		return;
	json__string(paper.json, "kind", "scope");
	json__int(paper.json, "pid", p->pid);
	if (p->start)
		json__seconds(paper.json, "time", p->start + now, 3);
	run = put_scope(paper.json, p->live->model, i);
	json__uint(paper.json, "run", run);
	text = paper__close(&paper);
	if (text && run)
		step_messages__add(p->figures->messages, p->uid, text);
	else
		free(text);
}

/* Sends the runs of scopes that ended, if the process has no steps, with which they would come.
 * now: ns since the attach. */
static void send_runs(struct step_process *p, uint64_t now)
{
	struct model *m = p->live->model;
	size_t sent = 0;

	if (model__steps(m))
		return;
	p->runs_told = now;
	for (size_t i = 0; i < model__scopes(m) && sent < SCOPES_OF_STEP; i++) {
		if (!model__scope_recent_runs(m, i))
			continue;
		find_start(p);
		send_process(p);
		send_runs_of(p, i, now);
		model__scope_forget_recent(m, i);
		sent++;
	}
}

/* Notes the step that has ended with the last event. Returns 0 or -ENOMEM. */
static int note_step(struct step_process *p)
{
	find_user(p);
	find_start(p);
	if (array__grow(&p->held, &p->room_held, p->nheld + 1, sizeof(*p->held)))
		return -ENOMEM;
	p->held[p->nheld] = (struct held){
		.is_call = p->are_calls,
		.n = p->steps,
		.body = write_step(p),
	};
	if (!p->held[p->nheld].body)
		return -ENOMEM;
	p->nheld++;
	return 0;
}

/* Looks whether a step has ended. Returns 0 or -ENOMEM. */
static int look_for_step(struct step_process *p)
{
	const struct model *m = p->live->model;
	bool are_calls = model__steps_are_calls(m);
	uint64_t steps = model__steps(m);

	if (are_calls != p->are_calls) {
		p->are_calls = are_calls;
		p->steps = 0;
	}
	if (steps == p->steps)
		return 0;
	p->steps = steps;
	return note_step(p);
}

static int on_event(void *process, const struct event *e)
{
	struct step_process *p = process;
	int err = p->live->sink.event(&p->live->sink, e);

	if (err)
		return err;
	p->live->now = e->time;
	err = look_for_step(p);
	if (err)
		return err;
	send_if_due(p, e->time);
	return 0;
}

static int on_tick(void *process, uint64_t now)
{
	struct step_process *p = process;

	send_if_due(p, now);
	if (model__scopes(p->live->model))
		find_user(p); /* while it is there */
	if (now >= HOLD_NS && now - p->runs_told >= RUNS_NS)
		send_runs(p, now);
	return 0;
}

static void *begin(void *ctx, struct session *session, pid_t pid)
{
	struct step_figures *figures = ctx;
	struct step_process *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->live = live_proc__new(pid, session__dict(session), session__facts(session));
	if (!p->live) {
		free(p);
		return NULL;
	}
	p->figures = figures;
	p->session = session;
	p->pid = pid;
	p->are_calls = true;
	p->next = figures->processes;
	figures->processes = p;
	return p;
}

static void free_process(struct step_process *p)
{
	struct step_process **at = &p->figures->processes;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	for (size_t i = 0; i < p->nheld; i++)
		free(p->held[i].body);
	free(p->held);
	live_proc__free(p->live);
	free(p);
}

/* Sends the last steps and the reason of the end. */
static void end(void *process, const char *reason, uint64_t duration)
{
	struct step_process *p = process;
	struct paper paper;
	char *text;

	p->live->now = duration;
	send_runs(p, duration);
	live_proc__end(p->live, "has ended"); /* a call that was under way ends, too */
	if (!look_for_step(p) && p->nheld)
		send_held(p);
	if (p->told && !paper__open(&paper)) {
		json__string(paper.json, "kind", "end");
		json__int(paper.json, "pid", p->pid);
		json__string(paper.json, "reason", reason);
		text = paper__close(&paper);
		if (text)
			step_messages__add(p->figures->messages, p->uid, text);
	}
	free_process(p);
}

struct step_figures *step_figures__new(void)
{
	struct step_figures *figures = calloc(1, sizeof(*figures));

	if (!figures)
		return NULL;
	figures->messages = step_messages__new();
	if (!figures->messages) {
		free(figures);
		return NULL;
	}
	figures->calls = (struct recording_figures){
		.begin = begin,
		.event = on_event,
		.tick = on_tick,
		.end = end,
		.feed = { step_messages__users, step_messages__next, figures->messages },
		.ctx = figures,
	};
	return figures;
}

void step_figures__free(struct step_figures *figures)
{
	if (!figures)
		return;
	while (figures->processes)
		free_process(figures->processes);
	step_messages__free(figures->messages);
	free(figures);
}

const struct recording_figures *step_figures__calls(struct step_figures *figures)
{
	return &figures->calls;
}
