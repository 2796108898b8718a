/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/output.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "capture/recording.h"
#include "capture/session.h"
#include "inspect/proc.h"
#include "record/mtr.h"

char *output__path_with(const char *path, const char *more)
{
	size_t len = strlen(path);
	bool mtr = len > 4 && !strcmp(path + len - 4, ".mtr");
	char *name;

	if (asprintf(&name, "%.*s%s%s", (int)(mtr ? len - 4 : len), path, more, mtr ? ".mtr" : "") <
	    0)
		return NULL;
	return name;
}

/* Makes the default name, memtrace-PID-TIME.mtr. */
static void default_path(char buf[64], pid_t pid)
{
	time_t now = time(NULL);
	char when[32];
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(when, sizeof(when), "%Y%m%dT%H%M%S", &tm);
	snprintf(buf, 64, "memtrace-%d-%s.mtr", (int)pid, when);
}

const char *output__main_path(struct recording *r)
{
	if (r->args.output)
		return r->args.output;
	if (!r->path[0])
		default_path(r->path, r->loop.args.pid);
	return r->path;
}

char *output__path(const struct output *o)
{
	bool alone = !o->r->args.output && !o->r->loop.args.pid;
	char more[32] = "", own[64];
	size_t n = 0;

	if (alone)
		default_path(own, o->pid);
	else if (o->times)
		n = (size_t)snprintf(more, sizeof(more), ".%d", (int)o->pid);
	if (o->times > 1)
		snprintf(more + n, sizeof(more) - n, "-%u", o->times);
	return output__path_with(alone ? own : output__main_path(o->r), more);
}

const char *output__fact(const struct output *o, const char *key)
{
	const char *value = facts__get(session__facts(o->session), key);

	return value ? value : "";
}

/* Returns "train.py" for "python -u /a/train.py --lr 1", "torch.distributed.run" for "python -m
 * torch.distributed.run". */
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

/* The name that the program gave to the process, or that of a spawned one, whose command line says
 * nothing. "": none, or multiprocessing's own name of a forked process. */
static const char *given_name(const struct output *o)
{
	const char *name = output__fact(o, "process_name");

	return strncmp(name, "Process-", 8) && strncmp(name, "ForkProcess-", 12) ? name : "";
}

/* A forked process inherits its parent's environment, and with it the rank. */
void output__stem(const struct output *o, char *buf, size_t size)
{
	const struct proc *proc = session__proc(o->session);
	const char *rank = output__fact(o, "rank"), *args, *name;
	bool forked = session__is_forked(o->session);
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
		name = *given_name(o) ? given_name(o)
		       : len	      ? program_of(args, len)
				      : proc__comm(proc);
		n = strlen(name);
		if (n > 3 && !strcmp(name + n - 3, ".py"))
			n -= 3;
		snprintf(buf, size, "%.*s-%d", n > 100 ? 100 : (int)n, name, (int)proc__pid(proc));
	}
}

void output__say_next(const char *command, const char *path)
{
	char word[PATH_MAX];

	log_info("next: memtrace-bpf %s %s", command,
		 text__shell(word, sizeof(word), path) ?: path);
}

#define EVERY UINT64_C(500000000) /* ns between two lines */

static json_t *parts_of(const struct host_sheet *s)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < HOST_PARTS_END; i++)
		if (host_part__adds_up(i) && s->part[i].known)
			json_object_set_new(o, host_part__name(i),
					    json_integer((json_int_t)s->part[i].bytes));
	return o;
}

/* Lines are shorter than PIPE_BUF: the pipe takes a whole line or none. */
void output__tell_status(struct recording *r, const struct output *output, const char *state,
			 const char *reason)
{
	const struct session *s = output ? output->session : NULL;
	bool attached = s && session__now(s); /* attached now or before */
	const struct mtr_writer *w = output && r->kind == OUTPUT_FILE
					     ? ((const struct output_file *)output)->writer
					     : NULL;
	json_t *o = r->args.tell
			    ? json_pack("{s:s,s:i}", "state", state, "pid", (int)r->loop.args.pid)
			    : NULL;
	char *text;

	if (o && attached) {
		json_object_set_new(o, "seconds", json_real((double)session__now(s) / 1e9));
		json_object_set_new(o, "events", json_integer((json_int_t)session__events(s)));
		json_object_set_new(o, "lost", json_integer((json_int_t)session__lost(s)));
		json_object_set_new(o, "steps", json_integer((json_int_t)session__steps(s)));
	}
	if (o && attached && w) {
		json_object_set_new(o, "bytes", json_integer((json_int_t)mtr_writer__bytes(w)));
		json_object_set_new(o, "dropped", json_integer((json_int_t)mtr_writer__dropped(w)));
	}
	if (o && r->has_ledger)
		json_object_set_new(o, "host", parts_of(&r->ledger));
	if (o && reason)
		json_object_set_new(o, "reason", json_string(reason));
	text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	if (text) {
		size_t len = strlen(text);

		text[len] = '\n'; /* replaces the NUL */
		if (write(r->args.tell, text, len + 1) < 0 && errno != EAGAIN && errno != EINTR)
			r->args.tell = 0; /* the reader is gone */
	}
	free(text);
	json_decref(o);
}

void output__keep_reading(struct recording *r, const struct event *e)
{
	if (!r->args.tell || e->kind != EVENT_HOST || !host_sheet__take(&r->reading, e))
		return;
	r->ledger = r->reading;
	r->has_ledger = true;
	r->reading = (struct host_sheet){ 0 };
}

void output__tell_drained(struct recording *r, const struct output *o)
{
	uint64_t now = r->args.tell ? session__now(o->session) : 0;

	if (!r->args.tell || now - r->told < EVERY)
		return;
	r->told = now;
	output__tell_status(r, o, "capturing", NULL);
}
