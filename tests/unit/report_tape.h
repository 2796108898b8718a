/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Generated recordings, and the output of `memtrace-bpf report` for them. Include after
 * cmocka.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/commands.h"
#include "memtrace.h"
#include "record/dict.h"
#include "record/mtr.h"

#define MS UINT64_C(1000000)
#define MIB (UINT64_C(1) << 20)
#define SP "/usr/lib/python3.12/site-packages/torch/"
#define CUDA ((struct device){ .type = DEVICE_CUDA })
#define CPU ((struct device){ .type = DEVICE_CPU })

struct tape {
	struct dict *d;
	struct facts *f;
	struct mtr_writer *w;
	uint64_t time, total, reserved;
	uint32_t thread, native;
	int fd;
};

static inline uint32_t str(struct tape *t, const char *s)
{
	return dict__string(t->d, s, strlen(s));
}

static inline struct tape tape__new(const char *path)
{
	struct tape t = { .d = dict__new(),
			  .f = facts__new(),
			  .fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) };

	assert_true(t.fd >= 0);
	facts__set(t.f, "pid", "4242");
	facts__set(t.f, "comm", "python");
	facts__set(t.f, "cmdline", "[\"/usr/bin/python\", \"train.py\"]");
	facts__set(t.f, "python", "3.12.1");
	facts__set(t.f, "torch", "2.11.0+cu130");
	facts__set(t.f, "cwd", "/home/u/gemma");
	facts__set(t.f, "version", "1.2.3");
	facts__set(t.f, "start", "2026-01-02T03:04:05.000Z");
	facts__set(t.f, "attached_at", "live");
	t.w = mtr_writer__new(t.fd, t.d, t.f, &(struct mtr_writer_opts){ 0 });
	assert_non_null(t.w);
	t.thread = dict__thread(t.d,
				(struct dict_thread){ .tid = 4242, .name = str(&t, "python") });
	t.native = dict__thread(t.d, (struct dict_thread){ .tid = 4300,
							   .name = str(&t, "pt_autograd_0") });
	return t;
}

/* why: the fact stop_reason. */
static inline void tape__close_as(struct tape *t, const char *why)
{
	facts__set(t->f, "duration_ns", "31400000000");
	facts__set(t->f, "stop_reason", why);
	assert_int_equal(mtr_writer__close(t->w), 0);
	close(t->fd);
	dict__free(t->d);
	facts__free(t->f);
}

static inline void tape__close(struct tape *t)
{
	tape__close_as(t, "signal");
}

static inline struct dict_frame frame(struct tape *t, const char *file, const char *func,
				      uint32_t line, const char *module)
{
	struct dict_loc loc = { str(t, file), str(t, func), line };
	struct dict_module mod = { module ? str(t, module) : 0,
				   str(t, module && *module ? "Attention" : "Gemma"),
				   str(t, "Gemma") };

	return (struct dict_frame){ .loc = dict__loc(t->d, loc),
				    .module = module ? dict__module(t->d, mod) : 0 };
}

static inline void put(struct tape *t, struct event e)
{
	e.time = t->time += 100 * MS;
	if (!e.thread)
		e.thread = t->thread;
	if (e.kind == EVENT_ALLOC && e.device.type == DEVICE_CUDA)
		t->total += e.size;
	if (e.kind == EVENT_FREE && e.device.type == DEVICE_CUDA)
		t->total -= e.size;
	if (e.device.type == DEVICE_CUDA) {
		e.totals = true;
		e.allocated = t->total;
		e.reserved = t->reserved;
	}
	assert_int_equal(mtr_writer__event(t->w, &e), 0);
}

static inline void alloc(struct tape *t, struct device d, uint64_t addr, uint64_t size,
			 uint32_t stack)
{
	put(t,
	    (struct event){
		    .kind = EVENT_ALLOC, .device = d, .addr = addr, .size = size, .stack = stack });
}

struct output {
	int status;
	char out[262144], err[8192];
};

static inline void read_back(int fd, char *buf, size_t size)
{
	ssize_t n;

	lseek(fd, 0, SEEK_SET);
	n = read(fd, buf, size - 1);
	assert_true(n >= 0 && (size_t)n < size - 1);
	buf[n] = '\0';
	close(fd);
}

/* Runs a command in a child: argp exits on wrong usage. */
static inline struct output *run_command(int (*command)(int, char **), const char *name,
					 const char *first, va_list ap)
{
	static struct output o;
	char *argv[24] = { (char *)(uintptr_t)name };
	FILE *out = tmpfile(), *err = tmpfile();
	int argc = 1, status;
	pid_t pid;

	for (const char *a = first; a; a = va_arg(ap, const char *))
		argv[argc++] = (char *)(uintptr_t)a;
	assert_true(out && err);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		dup2(fileno(out), 1);
		dup2(fileno(err), 2);
		status = command(argc, argv);
		fflush(stdout);
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	o.status = WEXITSTATUS(status);
	read_back(dup(fileno(out)), o.out, sizeof(o.out));
	read_back(dup(fileno(err)), o.err, sizeof(o.err));
	fclose(out);
	fclose(err);
	return &o;
}

/* `memtrace-bpf report ARGS` */
static inline struct output *report(const char *first, ...)
{
	struct output *o;
	va_list ap;

	va_start(ap, first);
	o = run_command(command_report.run, "memtrace-bpf report", first, ap);
	va_end(ap);
	return o;
}

/* `memtrace-bpf leaks ARGS` */
static inline struct output *leaks(const char *first, ...)
{
	struct output *o;
	va_list ap;

	va_start(ap, first);
	o = run_command(command_leaks.run, "memtrace-bpf leaks", first, ap);
	va_end(ap);
	return o;
}
