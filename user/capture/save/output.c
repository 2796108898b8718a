/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/output.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/text.h"
#include "capture/recording.h"
#include "capture/session.h"
#include "inspect/proc.h"

char *output__path_with(const char *path, const char *more)
{
	int len = (int)strlen(path);
	const char *end = "";
	char *name;

	if (len > 4 && !strcmp(path + len - 4, ".mtr")) {
		end = ".mtr";
		len -= 4;
	}
	return asprintf(&name, "%.*s%s%s", len, path, more, end) < 0 ? NULL : name;
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
	return facts__get(session__facts(o->session), key) ?: "";
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
	bool worker = !strncmp(proc__comm(proc), "pt_data_worker", 14);
	char of_rank[32] = "";
	size_t len, n;

	if (*rank && !session__is_forked(o->session)) {
		snprintf(buf, size, "rank-%.24s", rank);
		return;
	}
	if (*rank || worker) {
		if (*rank)
			snprintf(of_rank, sizeof(of_rank), "rank-%.24s-", rank);
		snprintf(buf, size, "%s%s-%d", of_rank, worker ? "worker" : "child",
			 (int)proc__pid(proc));
		return;
	}
	args = proc__cmdline(proc, &len);
	name = given_name(o);
	if (!*name)
		name = len ? program_of(args, len) : proc__comm(proc);
	n = strlen(name);
	if (n > 3 && !strcmp(name + n - 3, ".py"))
		n -= 3;
	snprintf(buf, size, "%.*s-%d", n > 100 ? 100 : (int)n, name, (int)proc__pid(proc));
}

void output__say_next(const char *command, const char *path)
{
	char word[PATH_MAX];

	log_info("next: memtrace-bpf %s %s", command,
		 text__shell(word, sizeof(word), path) ?: path);
}
