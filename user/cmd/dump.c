/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf dump -p PID: the live tensors of a process, read from outside without probes or
 * BPF. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "capture/kernel.h"
#include "capture/target.h"
#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "model/words.h"
#include "report/dump.h"

#define LIMIT_NS 10000000000ull /* time for reading the tensors, ns */
#define TOP 40			/* rows of text without --top */
#define MAX_CHILDREN 255	/* descendants that are read */

enum { OPT_CHILDREN = OPT_COMMANDS_OWN };

struct dump_args {
	struct report_args shown;
	struct dump_opts o;
	bool host, children;
};

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "This process", OPTIONS_PROCESS },
	{ "device", OPT_DEVICE, "host", 0,
	  "Show the parts of the host memory (RSS) instead of the tensors", OPTIONS_SHOW },
	{ "children", OPT_CHILDREN, NULL, 0,
	  "Also its child processes, with sums; with --device host, shared pages count once",
	  OPTIONS_PROCESS },
	{ "by", OPT_BY, "holder|tensor|module|role", 0,
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
		capture_args__parse_only_pid(state, arg, "; --children adds its child processes",
					     &a->o.pid);
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
		if (a->host && (a->shown.by >= 0 || a->shown.top_given))
			argp_error(state, "--device host has no rows for --by and --top");
		break;
	default:
		return report_args__parse(key, arg, state, &a->shown);
	}
	return 0;
}

/* Sets *f to the reason why a process cannot be read. Returns err. */
static int explain_unreadable(struct failure *f, int pid, int err, const char *why)
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

/* State for reading a process. The result is in *process. */
struct seen {
	struct target target;
	struct census *census;
	struct cudaalloc *alloc;
	char command[1024];
	struct dump_process *process; /* borrowed */
	struct failure failure;
};

/* Frees what read_process() has opened, and the result. */
static void free_reading(struct seen *s)
{
	dump__free(&s->process->dump);
	cudaalloc__free(s->alloc);
	census__free(s->census);
	target__close(&s->target);
}

/* Reads the tensors of s->process->pid. 0, or negative with s->failure and process->why. Call
 * free_reading() in any case. */
static int read_process(struct seen *s, const struct dump_opts *o)
{
	struct dump_process *p = s->process;
	struct target *t = &s->target;
	struct dump_opts *own = &p->o;
	const char *why = "its memory cannot be read", *cmdline;
	char name[64];
	size_t len;
	int err = target__open(p->pid, t, &s->failure);

	*own = *o;
	own->pid = p->pid;
	own->torch = &t->torch;
	own->comm = "";
	own->command = s->command;
	if (err) {
		snprintf(p->why, sizeof(p->why), "%s", strerror(-err));
		return err;
	}
	own->comm = proc__comm(t->proc);
	cmdline = proc__cmdline(t->proc, &len);
	words__arguments(s->command, sizeof(s->command), cmdline, len);
	err = proc__maps(t->proc, &t->maps);
	if (err)
		goto fail;
	t->python = python__open(t->proc, &t->maps, &why);
	if (!t->python) {
		err = -errno;
		goto fail;
	}
	if (!pynames__process(t->python, name, sizeof(name)))
		text__clean(p->name, sizeof(p->name), name, strlen(name));
	python__version_text(t->python, own->python, sizeof(own->python));
	torch__info(t->proc, &t->maps, &t->torch);
	s->census = census__open(t->python, /*need_torch=*/true, CENSUS_WITHIN_NS, &why);
	if (!s->census) {
		err = -errno;
		goto fail;
	}
	if (t->torch.cuda)
		s->alloc = cudaalloc__open(t->proc, &t->maps, &why);
	err = dump__read(s->census, s->alloc, LIMIT_NS, &p->dump, &why);
	if (!err)
		return 0;
fail:
	snprintf(p->why, sizeof(p->why), "%s", *why ? why : strerror(-err));
	return explain_unreadable(&s->failure, p->pid, err, why);
}

/* Prints the tensors of one process. Returns 0 or a negative error. */
static int print(const struct dump_args *a, struct dump *d)
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

/* Prints the tensors of the process. 0, or negative with *f. */
static int dump_one(struct dump_args *a, struct failure *f)
{
	struct dump_process p = { .pid = a->o.pid };
	struct seen s = { .process = &p };
	int err = read_process(&s, &a->o);

	if (err) {
		*f = s.failure;
	} else {
		a->o = p.o;
		err = print(a, &p.dump);
		if (err)
			failure__set(f, EXIT_FAILED, err, "cannot print: %s", strerror(-err));
	}
	free_reading(&s);
	return err;
}

/* Prints the tensors of a process and its descendants. 0 if those of at least one process could be
 * read; otherwise negative with *f. */
static int dump_tree(struct dump_args *a, struct failure *f)
{
	pid_t pids[MAX_CHILDREN + 1] = { a->o.pid }, parents[MAX_CHILDREN + 1] = { 0 };
	size_t n = 1 + descendants__list(a->o.pid, pids + 1, parents + 1, MAX_CHILDREN), n_read = 0;
	struct seen *seen = calloc(n, sizeof(*seen));
	struct dump_process *v = calloc(n, sizeof(*v));
	int err = seen && v ? 0 : -ENOMEM;

	if (err) {
		free(seen);
		free(v);
		return failure__set(f, EXIT_FAILED, err, "out of memory");
	}
	if (n > MAX_CHILDREN)
		log_warn("PID %d has %d or more descendants; the first %d are read", a->o.pid,
			 MAX_CHILDREN, MAX_CHILDREN);
	for (size_t i = 0; i < n; i++) {
		v[i].pid = pids[i];
		v[i].parent = parents[i];
		seen[i].process = &v[i];
		n_read += !read_process(&seen[i], &a->o);
	}
	if (!n_read) {
		*f = seen[0].failure;
		err = -ENOENT;
	} else {
		err = a->shown.format ? dump_tree__json(stdout, v, n)
				      : dump_tree__text(stdout, v, n);
		if (err)
			failure__set(f, EXIT_FAILED, err, "cannot print: %s", strerror(-err));
	}
	for (size_t i = 0; i < n; i++)
		free_reading(&seen[i]);
	free(seen);
	free(v);
	return err;
}

/* Prints the parts of a process's host memory. Python and tensors are optional: without them,
 * their memory is unknown. 0, or negative with *f. */
static int dump_host(struct dump_args *a, struct failure *f)
{
	const char *why = "", *cmdline;
	char command[1024];
	struct dump_host d;
	struct target t;
	size_t len;
	int err = target__open(a->o.pid, &t, f);

	if (err)
		return err;
	err = proc__maps(t.proc, &t.maps);
	if (err) {
		explain_unreadable(f, a->o.pid, err, "its maps cannot be read");
		goto out;
	}
	t.python = python__open(t.proc, &t.maps, &why);
	cmdline = proc__cmdline(t.proc, &len);
	words__arguments(command, sizeof(command), cmdline, len);
	err = dump_host__read_all(t.proc, t.python, a->children, &d);
	if (err) {
		explain_unreadable(f, a->o.pid, err, "its host memory cannot be read");
		goto out;
	}
	err = a->shown.format ? dump_host__json(stdout, &d) : dump_host__text(stdout, &d, command);
	if (err)
		failure__set(f, EXIT_FAILED, err, "cannot print: %s", strerror(-err));
	dump_host__free(&d);
out:
	target__close(&t);
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
	int err;

	usage__parse(&command_dump, argc, argv, 0, &a);
	/* Programs that read the JSON expect single tensors. */
	a.o.by = a.shown.format ? DUMP_BY_TENSOR : DUMP_BY_HOLDER;
	if (a.shown.by >= 0)
		a.o.by = (enum dump_by)a.shown.by;
	a.o.top = a.shown.top_given || a.shown.format ? a.shown.top : TOP;
	if (a.host)
		err = dump_host(&a, &f);
	else
		err = a.children ? dump_tree(&a, &f) : dump_one(&a, &f);
	if (err)
		log_err("%s", f.text);
	return err ? f.status : EXIT_OK;
}

const struct command command_dump = {
	.name = "dump",
	.summary = "list the tensors of a process, without attaching",
	.group = COMMANDS_LOOK,
	.argp = &argp,
	.examples = "sudo memtrace-bpf dump -p 4242\n"
		    "sudo memtrace-bpf dump -p 4242 --by module\n"
		    "sudo memtrace-bpf dump -p 4242 --children\n"
		    "sudo memtrace-bpf dump -p 4242 --device host",
	.status = STATUS_ATTACH,
	.run = cmd_dump,
};
