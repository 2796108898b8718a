/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf dump -p PID: the live tensors of a process, read from outside without probes or
 * BPF. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/caps.h"
#include "capture/target.h"
#include "cmd/commands.h"
#include "cmd/schema_args.h"
#include "cmd/log_args.h"
#include "cmd/usage.h"
#include "cmd/report_args.h"
#include "dump/dump.h"
#include "dump/host.h"
#include "follow/capture_args.h"
#include "lib/exit.h"
#include "lib/failure.h"
#include "labels/words.h"
#include "log/log.h"
#include "process/proc.h"

#define LIMIT_NS 10000000000ull
#define TOP 40

enum { OPT_CHILDREN = OPT_COMMANDS_OWN };

struct dump_args {
	struct report_args shown;
	struct dump_opts o;
	bool host, children;
	char command[1024];
};

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "This process", OPTIONS_PROCESS },
	{ "device", OPT_DEVICE, "host", 0,
	  "Show the parts of the host memory (RSS) instead of the tensors", OPTIONS_SHOW },
	{ "children", OPT_CHILDREN, NULL, 0,
	  "With --device host: add child processes, shared pages once", OPTIONS_PROCESS },
	{ "by", OPT_BY, "holder|tensor|module|category", 0,
	  "Group rows (default in text holder: a list, a dict, a module; in json tensor)",
	  OPTIONS_SHOW },
	{ "top", OPT_TOP, "N", 0,
	  "Print N rows for each device; 0: all (default 40 in text, all in json)", OPTIONS_SHOW },
	{ "format", OPT_FORMAT, "text|json", 0, "Format (default text)", OPTIONS_OUTPUT },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct dump_args *a = state->input;

	switch (key) {
	case 'p':
		a->o.pid = capture_args__parse_pid(state, arg);
		break;
	case OPT_DEVICE:
		if (strcmp(arg, "host"))
			argp_error(state, "--device %s: dump can select host only", arg);
		a->host = true;
		break;
	case OPT_CHILDREN:
		a->children = true;
		break;
	case ARGP_KEY_ARG:
		usage__unexpected(state, arg, "choose the process with -p PID");
		break;
	case ARGP_KEY_END:
		if (!a->o.pid)
			argp_error(state, "no process given; choose it with -p PID");
		if (a->children && !a->host)
			argp_error(state, "--children needs --device host");
		if (a->host && (a->shown.by >= 0 || a->shown.top_given))
			argp_error(state, "--device host has no rows for --by and --top");
		break;
	default:
		return report_args__parse(key, arg, state, &a->shown);
	}
	return 0;
}

static int unreadable(struct failure *f, int pid, int err, const char *why)
{
	if (err == -EPERM || err == -EACCES)
		return failure__set(
			f, EXIT_NOT_PERMITTED, err,
			"not permitted to read the memory of PID %d: %s needed; run it with sudo",
			pid, *caps__missing_to_read() ? caps__missing_to_read() : "CAP_SYS_PTRACE");
	if (err == -ESRCH)
		return failure__set(f, EXIT_UNUSABLE, err, "PID %d ended during the reading", pid);
	if (err == -EAGAIN)
		return failure__set(f, EXIT_UNUSABLE, err, "PID %d: %s; try again later", pid, why);
	if (err == -ENOTSUP || err == -ENOENT || err == -EBADMSG)
		return failure__set(f, EXIT_UNUSABLE, err,
				    "PID %d: %s; `memtrace-bpf check -p %d` shows what works", pid,
				    why, pid);
	return failure__set(f, EXIT_FAILED, err, "PID %d: %s (%s)", pid,
			    why && *why ? why : "cannot be read", strerror(-err));
}

static int print(struct dump *d, struct dump_args *a)
{
	struct dump_row *rows;
	size_t n;
	int err;

	err = dump__group(d, a->o.by, &rows, &n);
	if (err)
		return err;
	if (a->shown.format)
		err = dump__json(stdout, d, rows, n, &a->o);
	else
		err = dump__text(stdout, d, rows, n, &a->o);
	free(rows);
	return err;
}

static int look(struct target *t, struct dump_args *a, struct failure *f)
{
	int pid = a->o.pid, err;
	struct cudaalloc *alloc = NULL;
	const char *why = "", *cmdline;
	struct census *c;
	struct dump d;
	size_t len;

	t->python = python__open(t->proc, &t->maps, &why);
	if (!t->python)
		return unreadable(f, pid, -errno, why);
	python__version_text(t->python, a->o.python, sizeof(a->o.python));
	torch__info(t->proc, &t->maps, &t->torch);
	a->o.torch = &t->torch;
	a->o.comm = proc__comm(t->proc);
	cmdline = proc__cmdline(t->proc, &len);
	a->o.command = words__arguments(a->command, sizeof(a->command), cmdline, len);
	c = census__open(t->python, &why);
	if (!c)
		return unreadable(f, pid, -errno, why);
	if (t->torch.cuda)
		alloc = cudaalloc__open(t->proc, &t->maps, &why);
	err = dump__read(c, alloc, LIMIT_NS, &d, &why);
	if (err) {
		unreadable(f, pid, err, why);
	} else {
		err = print(&d, a);
		if (err)
			failure__set(f, EXIT_FAILED, err, "cannot print: %s", strerror(-err));
		dump__free(&d);
	}
	cudaalloc__free(alloc);
	census__free(c);
	return err;
}

/* The parts of the host memory. Python and tensors are optional: their memory is then unknown. */
static int look_at_host(struct target *t, struct dump_args *a, struct failure *f)
{
	const char *why = "", *cmdline;
	struct dump_host d;
	size_t len;
	int err;

	t->python = python__open(t->proc, &t->maps, &why);
	cmdline = proc__cmdline(t->proc, &len);
	words__arguments(a->command, sizeof(a->command), cmdline, len);
	err = dump_host__read_all(t->proc, t->python, a->children, &d);
	if (err)
		return unreadable(f, a->o.pid, err, "its host memory cannot be read");
	err = a->shown.format ? dump_host__json(stdout, &d)
			      : dump_host__text(stdout, &d, a->command);
	if (err)
		failure__set(f, EXIT_FAILED, err, "cannot print: %s", strerror(-err));
	dump_host__free(&d);
	return err;
}

static const struct argp_child children[] = { SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "-p PID",
	.doc = "List the tensors that a process holds now, with their names. Reads from outside: "
	       "needs no probe and does not stop the process.",
	.children = children,
};

static int cmd_dump(int argc, char **argv)
{
	static const char *const groups[] = { [DUMP_BY_HOLDER] = "holder",
					      [DUMP_BY_TENSOR] = "tensor",
					      [DUMP_BY_MODULE] = "module",
					      [DUMP_BY_CATEGORY] = "category",
					      NULL };
	struct dump_args a = {
		.shown = { .groups = groups, .formats = report_args_formats, .by = -1 }
	};
	struct failure f = { 0 };
	struct target t;
	int err;

	usage__parse(&command_dump, argc, argv, 0, &a);
	/* Programs that read the JSON expect single tensors. */
	a.o.by = a.shown.by >= 0  ? (enum dump_by)a.shown.by
		 : a.shown.format ? DUMP_BY_TENSOR
				  : DUMP_BY_HOLDER;
	a.o.top = a.shown.top_given || a.shown.format ? a.shown.top : TOP;
	err = target__open(a.o.pid, &t, &f);
	if (!err) {
		err = proc__maps(t.proc, &t.maps);
		err = err      ? unreadable(&f, a.o.pid, err, "its maps cannot be read")
		      : a.host ? look_at_host(&t, &a, &f)
			       : look(&t, &a, &f);
		target__close(&t);
	}
	if (err)
		log_err("%s", f.text);
	return err ? f.status : EXIT_OK;
}

const struct command command_dump = {
	.name = "dump",
	.summary = "list the tensors of a process, without attaching",
	.argp = &argp,
	.examples = "sudo memtrace-bpf dump -p 4242\n"
		    "sudo memtrace-bpf dump -p 4242 --by module\n"
		    "sudo memtrace-bpf dump -p 4242 --device host",
	.status = STATUS_ATTACH,
	.run = cmd_dump,
};
