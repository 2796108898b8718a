/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/broker/processes.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "inspect/proc.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/peers.h"
#include "serve/serve.h"

#define SCAN_WITHIN UINT64_C(3000000000) /* longest wait for a search, ns */

/* The reported process with this PID; NULL: none. */
static struct broker_process *find_process(struct broker *b, pid_t pid)
{
	for (size_t i = 0; i < b->processes.n; i++)
		if (b->processes.v[i].pid == pid)
			return &b->processes.v[i];
	return NULL;
}

/* The target with this name, "" excluded; NULL: none. */
static const struct serve_target *find_target(const struct broker *b, const char *name)
{
	for (size_t i = 0; i < b->args->n_targets; i++)
		if (*b->args->targets[i].name && !strcmp(b->args->targets[i].name, name))
			return &b->args->targets[i];
	return NULL;
}

/* The only current process of a target. NULL: refused. */
static struct broker_process *find_only_process(struct peer *p, json_int_t id,
						const struct serve_target *t)
{
	const json_t *pids = NULL, *o;
	size_t i, n;

	json_array_foreach(json_object_get(p->b->processes.targets, "targets"), i, o) {
		const char *name = json_string_value(json_object_get(o, "name"));

		if (name && !strcmp(name, t->name))
			pids = json_object_get(o, "pids");
	}
	n = json_array_size(pids);
	if (n > 1) {
		ask__refuse(p, id, 409, "model_name",
			    "target '%s' has %zu processes now: choose one by its pid", t->name, n);
		return NULL;
	}
	if (n == 1) {
		struct broker_process *q = find_process(
			p->b, (pid_t)json_integer_value(json_array_get(pids, 0)));

		if (q)
			return q;
	}
	ask__refuse(p, id, 404, "model_name", "target '%s' has no process now", t->name);
	return NULL;
}

/* True if the PID still belongs to the reported process. */
static bool is_alive(const struct broker_process *q)
{
	struct proc *proc = proc__open(q->pid);
	bool alive = proc && proc__alive(proc) && proc__started(proc) == q->boot_ns;

	proc__free(proc);
	return alive;
}

/* The named target that a process was found for; NULL: none. */
static const struct serve_target *target_of(const struct broker *b, const struct broker_process *q)
{
	const char *name = json_string_value(json_object_get(q->msg, "target"));

	return name ? find_target(b, name) : NULL;
}

/* The process with this PID; NULL: refused, because none of the targets' has it. */
static struct broker_process *find_by_pid(struct peer *p, json_int_t id, pid_t pid)
{
	struct broker_process *q = find_process(p->b, pid);

	if (!q)
		ask__refuse(p, id, 404, "pid",
			    "Process %d not found among those of the targets; GET /api/targets "
			    "lists them",
			    (int)pid);
	return q;
}

/* *target is NULL wherever the request is refused. */
struct broker_process *processes__find(struct peer *p, json_int_t id, json_t *msg,
				       const struct serve_target **target)
{
	static const struct field fields[] = { ASK_COUNT("pid", 1, INT32_MAX),
					       ASK_TEXT("model_name"),
					       { 0 } };
	struct broker *b = p->b;
	struct broker_process *q;
	const char *name;
	uint64_t pid;
	char clean[300];

	*target = NULL;
	if (!ask__fits(p, msg, fields))
		return NULL;
	pid = ask__count(msg, "pid", 0);
	name = ask__text(msg, "model_name");
	if (!pid && !name) {
		ask__refuse(p, id, 422, "model_name", "model_name or pid: one is required");
		return NULL;
	}
	if (!b->can_trace) {
		ask__refuse(p, id, 503, /*field=*/NULL, "cannot trace on this host: %s", b->why);
		return NULL;
	}
	*target = name ? find_target(b, name) : NULL;
	if (name && !*target) {
		ask__refuse(p, id, 404, "model_name",
			    "Target %s not found; GET /api/targets lists them",
			    text__clean(clean, sizeof(clean), name, strlen(name)));
		return NULL;
	}
	if (!pid && (*target)->kind == TARGET_COMMAND)
		return NULL; /* with *target: not refused */
	q = pid ? find_by_pid(p, id, (pid_t)pid) : find_only_process(p, id, *target);
	if (q && !is_alive(q)) {
		ask__refuse(p, id, 404, pid ? "pid" : "model_name",
			    "PID %d has ended or cannot be traced", (int)q->pid);
		q = NULL;
	}
	if (!q)
		*target = NULL;
	else if (!*target)
		*target = target_of(b, q);
	return q;
}

/* ---- requests about new processes ---- */

/* True if the request means an unknown process that a search may find. */
static bool may_be_new(const struct broker *b, const json_t *msg)
{
	const json_t *pid = json_object_get(msg, "pid");
	const char *name = json_string_value(json_object_get(msg, "model_name"));
	const struct serve_target *t = name ? find_target(b, name) : NULL;
	const json_t *o;
	size_t i;

	if (!b->can_trace || !b->peers[PEER_LOOK].link)
		return false;
	if (json_is_integer(pid))
		return !find_process((struct broker *)b, (pid_t)json_integer_value(pid));
	if (!t || t->kind == TARGET_COMMAND)
		return false;
	json_array_foreach(json_object_get(b->processes.targets, "targets"), i, o) {
		const char *reported = json_string_value(json_object_get(o, "name"));

		if (reported && !strcmp(reported, t->name))
			return !json_array_size(json_object_get(o, "pids"));
	}
	return true;
}

/* Several requests share one search. */
bool processes__hold(struct peer *p, json_t *msg, void (*handle)(struct peer *p, json_t *msg))
{
	struct broker *b = p->b;

	if (b->processes.n_held == BROKER_WAITING || !may_be_new(b, msg))
		return false;
	b->processes.held[b->processes.n_held++] = (struct held){ .peer = p,
								  .msg = json_incref(msg),
								  .handle = handle };
	if (!b->processes.scanning) {
		b->processes.scanning = true;
		b->processes.scan_until = clock__monotonic() + SCAN_WITHIN;
		peer__send(&b->peers[PEER_LOOK], json_pack("{s:s}", "do", "scan"), /*fd=*/-1);
	}
	return true;
}

void processes__forget(struct broker *b, const struct peer *p)
{
	size_t n = 0;

	for (size_t i = 0; i < b->processes.n_held; i++) {
		if (b->processes.held[i].peer == p)
			json_decref(b->processes.held[i].msg);
		else
			b->processes.held[n++] = b->processes.held[i];
	}
	b->processes.n_held = n;
}

void processes__release(struct broker *b)
{
	struct held held[BROKER_WAITING];
	size_t n = b->processes.n_held;

	memcpy(held, b->processes.held, n * sizeof(*held));
	b->processes.n_held = 0;
	b->processes.scanning = false;
	for (size_t i = 0; i < n; i++) {
		held[i].handle(held[i].peer, held[i].msg);
		json_decref(held[i].msg);
	}
}

/* ---- reports ---- */

json_t *processes__target(const struct serve_target *t, json_t *pids)
{
	static const char *const kinds[] = { [TARGET_PID] = "pid",
					     [TARGET_PATTERN] = "pattern",
					     [TARGET_COMMAND] = "command",
					     [TARGET_ALL] = "all" };
	json_t *o = json_pack("{s:s,s:s,s:o}", "name", t->name, "kind", kinds[t->kind], "pids",
			      pids);

	if (o && t->kind == TARGET_PATTERN)
		json_object_set_new(o, "pattern", json_string(t->text));
	return o;
}

/* Removes a process from the table: the last entry moves to its place. */
static void drop_process(struct broker *b, struct broker_process *q)
{
	json_decref(q->msg);
	*q = b->processes.v[--b->processes.n];
	b->processes.v[b->processes.n] = (struct broker_process){ 0 };
}

/* Handles the message `process`: a new process, or one that has ended. */
static void take_process(struct broker *b, json_t *msg)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(msg, "pid"));
	const char *name = json_string_value(json_object_get(msg, "name"));
	struct broker_process *q = find_process(b, pid);

	if (json_is_true(json_object_get(msg, "gone"))) {
		if (q)
			drop_process(b, q);
	} else {
		if (!q && b->processes.n == BROKER_PROCESSES)
			return;
		q = q ? q : &b->processes.v[b->processes.n++];
		json_decref(q->msg);
		*q = (struct broker_process){ .pid = pid,
					      .boot_ns = (uint64_t)json_integer_value(
						      json_object_get(msg, "boot_ns")),
					      .msg = json_incref(msg) };
		snprintf(q->name, sizeof(q->name), "%s", name ? name : "");
	}
	peers__tell(b, json_incref(msg), /*fd=*/-1, /*soft=*/false);
}

/* The new PEER_LOOK process has reported all processes. Drops processes that only its predecessor
 * knew. */
static void drop_stale(struct broker *b)
{
	for (size_t i = b->processes.n; i-- > 0;) {
		struct broker_process *q = &b->processes.v[i];
		json_t *gone;

		if (!q->stale)
			continue;
		gone = json_copy(q->msg);
		json_object_set_new(gone, "gone", json_true());
		peers__tell(b, gone, /*fd=*/-1, /*soft=*/false);
		drop_process(b, q);
	}
}

void processes__report(struct broker *b, json_t *msg)
{
	const char *event = json_string_value(json_object_get(msg, "event"));

	if (!event)
		return;
	if (!strcmp(event, "targets")) {
		drop_stale(b);
		json_decref(b->processes.targets);
		b->processes.targets = json_incref(msg);
		peers__tell(b, json_incref(msg), /*fd=*/-1, /*soft=*/false);
	} else if (!strcmp(event, "scanned")) {
		processes__release(b);
	} else if (!strcmp(event, "process")) {
		take_process(b, msg);
	} else if (!strcmp(event, "sample") || !strcmp(event, "scan")) {
		peers__tell(b, json_incref(msg), /*fd=*/-1, /*soft=*/true);
	}
}
