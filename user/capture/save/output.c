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
	const char *extension = "";
	char *name;

	if (len > 4 && !strcmp(path + len - 4, ".mtr")) {
		extension = ".mtr";
		len -= 4;
	}
	return asprintf(&name, "%.*s%s%s", len, path, more, extension) < 0 ? NULL : name;
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

const char *output__main_path(struct recording *recording)
{
	if (recording->args.output)
		return recording->args.output;
	if (!recording->path[0])
		default_path(recording->path, recording->loop.args.pid);
	return recording->path;
}

char *output__path(const struct output *output)
{
	bool has_default_path = !output->recording->args.output &&
				!output->recording->loop.args.pid;
	char suffix[32] = "", default_name[64];
	size_t len = 0;

	if (has_default_path)
		default_path(default_name, output->pid);
	else if (output->times)
		len = (size_t)snprintf(suffix, sizeof(suffix), ".%d", (int)output->pid);
	if (output->times > 1)
		snprintf(suffix + len, sizeof(suffix) - len, "-%u", output->times);
	return output__path_with(
		has_default_path ? default_name : output__main_path(output->recording), suffix);
}

const char *output__fact(const struct output *output, const char *key)
{
	return facts__get(session__facts(output->session), key) ?: "";
}

/* Returns the program's name in a command line: "train.py" for "python -u /a/train.py --lr 1",
 * "torch.distributed.run" for "python -m torch.distributed.run". args: NUL-separated arguments, len
 * bytes. */
static const char *find_program(const char *args, size_t len)
{
	const char *end = args + len, *arg = args, *base = strrchr(args, '/');

	base = base ? base + 1 : args;
	if (!text__starts(base, "python"))
		return base;
	for (arg += strlen(arg) + 1; arg < end; arg += strlen(arg) + 1) {
		if (!strcmp(arg, "-c"))
			break;
		if (*arg == '-' && strcmp(arg, "-m") != 0)
			continue;
		if (*arg == '-' && arg + 3 >= end)
			break;
		arg += *arg == '-' ? 3 : 0; /* after "-m" */
		return strrchr(arg, '/') ? strrchr(arg, '/') + 1 : arg;
	}
	return base;
}

/* Returns the name that the program gave to the process, or the name of a spawned process, whose
 * command line says nothing. "": no name, or one that multiprocessing made for a forked process. */
static const char *find_given_name(const struct output *output)
{
	const char *name = output__fact(output, "process_name");

	return !text__starts(name, "Process-") && !text__starts(name, "ForkProcess-") ? name : "";
}

/* A forked process inherits its parent's environment, and with it the rank: so rank-N is only the
 * name of a process that was not forked. */
void output__stem(const struct output *output, char *buf, size_t size)
{
	const struct proc *proc = session__proc(output->session);
	const char *rank = output__fact(output, "rank"), *args, *name;
	bool is_worker = text__starts(proc__comm(proc), "pt_data_worker");
	char rank_prefix[32] = "";
	size_t len, n;

	if (*rank && !session__is_forked(output->session)) {
		snprintf(buf, size, "rank-%.24s", rank);
		return;
	}
	if (*rank || is_worker) {
		if (*rank)
			snprintf(rank_prefix, sizeof(rank_prefix), "rank-%.24s-", rank);
		snprintf(buf, size, "%s%s-%d", rank_prefix, is_worker ? "worker" : "child",
			 (int)proc__pid(proc));
		return;
	}
	args = proc__cmdline(proc, &len);
	name = find_given_name(output);
	if (!*name)
		name = len ? find_program(args, len) : proc__comm(proc);
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
