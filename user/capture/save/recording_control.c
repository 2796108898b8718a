/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/recording_control.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "capture/control.h"
#include "capture/pick.h"
#include "capture/recording.h"
#include "capture/save/windows.h"
#include "capture/session.h"

/* Returns the first attached process from o on. */
static struct output *attached_from(struct output *o)
{
	while (o && !session__attached(o->session))
		o = o->next;
	return o;
}

#define for_each(o, r)                                                                             \
	for (struct output *o = attached_from((r)->outputs); o; o = attached_from(o->next))

static const char *why_not(int err)
{
	switch (err) {
	case -EBUSY:
		return "a window is open already, or as many windows as requested are written";
	case -EALREADY:
		return "no window is being written";
	case -ENXIO:
		return "no process is attached at the moment";
	case -EPERM:
		return "this capture has no windows to start or stop: record with --wait or "
		       "another option for windows";
	default:
		return strerror(-err);
	}
}

/* ctl and signals cannot begin or end the windows of --on-oom. */
static bool has_windows(const struct recording *r)
{
	return r->kind == OUTPUT_WINDOWS && !r->args.oom.on && !r->args.oom.kill;
}

/* Calls fn for the windows of each process. Returns 0 if it worked for at least one process. who:
 * "ctl" or "signal". */
static int to_all(struct recording *r, int (*fn)(struct windows *w, const char *who),
		  const char *who, struct json *j)
{
	int err = -ENXIO, one;

	if (j)
		json__open_array(j, "processes");
	for_each(at, r)
	{
		/* Events up to now belong before the change. */
		one = has_windows(r) ? session__drain(at->session) ?: fn(at->windows, who) : -EPERM;
		if (j) {
			json__open_object(j, NULL);
			json__int(j, "pid", at->pid);
			json__bool(j, "ok", !one);
			if (!one && fn != windows__start)
				json__string(j, "file", windows__last(at->windows));
			if (one)
				json__string(j, "error", why_not(one));
			json__close_object(j);
		}
		err = err && one ? one : 0;
	}
	if (j)
		json__close_array(j);
	if (j && err)
		json__string(j, "error", why_not(err));
	return err;
}

static int mark(struct recording *r, const char *name, struct json *j)
{
	int err = -ENXIO;

	if (!*name || strlen(name) >= 128) {
		json__string(j, "error", "a mark has a name of 1 to 127 bytes");
		return -EINVAL;
	}
	for_each(at, r) err = session__mark(at->session, name);
	if (err)
		json__string(j, "error", why_not(err));
	else
		json__string(j, "mark", name);
	return err;
}

static int status(struct recording *r, struct json *j)
{
	json__string(j, "writes",
		     r->args.oom.kill		 ? "kill"
		     : r->args.oom.on		 ? "out of memory"
		     : r->kind == OUTPUT_WINDOWS ? "windows"
						 : "all");
	json__int(j, "capturer", getpid());
	json__open_array(j, "processes");
	for_each(at, r)
	{
		json__open_object(j, NULL);
		if (at->windows) {
			windows__tell(at->windows, j);
		} else {
			json__int(j, "pid", at->pid);
			json__seconds(j, "time", session__now(at->session), 3);
			json__uint(j, "steps", session__steps(at->session));
		}
		json__uint(j, "captured", session__events(at->session));
		json__uint(j, "lost", session__lost(at->session));
		json__close_object(j);
	}
	json__close_array(j);
	if (!attached_from(r->outputs)) {
		char who[512], text[560];

		pick__title(r->loop.pick, who, sizeof(who));
		snprintf(text, sizeof(text), "%s%s%s", strncmp(who, "PID", 3) ? "a " : "", who,
			 r->loop.args.pid ? " to import torch" : "");
		json__string(j, "waiting_for", text);
	}
	return 0;
}

static int handle(void *ctx, const char *word, const char *argument, struct json *j)
{
	struct recording *r = ctx;

	if (!strcmp(word, "mark"))
		return mark(r, argument, j);
	if (!strcmp(word, "start"))
		return to_all(r, windows__start, "ctl", j);
	if (!strcmp(word, "stop"))
		return to_all(r, windows__stop, "ctl", j);
	if (!strcmp(word, "save"))
		return to_all(r, windows__save, "ctl", j);
	if (!strcmp(word, "status"))
		return status(r, j);
	return -ENOTSUP;
}

bool recording_control__signal(struct recording *r, int number)
{
	int err;

	if (!has_windows(r) || (number != SIGUSR1 && number != SIGUSR2))
		return false;
	err = to_all(r, number == SIGUSR1 ? windows__start : windows__stop, "signal", NULL);
	if (err)
		log_warn("%s: %s", number == SIGUSR1 ? "SIGUSR1" : "SIGUSR2", why_not(err));
	return true;
}

static void on_control(void *ctx)
{
	struct recording *r = ctx;

	control__pump(r->control);
}

static void on_signal(void *ctx)
{
	struct recording *r = ctx;
	struct signalfd_siginfo si;

	while (read(r->signals, &si, sizeof(si)) == sizeof(si))
		recording_control__signal(r, (int)si.ssi_signo);
}

static void add_source(struct recording *r, int fd, void (*ready)(void *ctx))
{
	if (r->loop.n_sources < LOOP_SOURCES)
		r->loop.sources[r->loop.n_sources++] = (struct loop_source){ .fd = fd,
									     .ready = ready,
									     .ctx = r };
}

void recording_control__open(struct recording *r)
{
	pid_t target = r->loop.args.pid ? r->loop.args.pid : getpid();
	int err = control__open(target, NULL, handle, r, &r->control);
	sigset_t set;

	if (err)
		log_debug("memtrace-bpf ctl will not work: cannot make its socket: %s",
			  strerror(-err));
	else
		add_source(r, control__fd(r->control), on_control);
	r->signals = -1;
	if (!has_windows(r) || r->loop.command) /* `run` has its own signalfd */
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (r->signals >= 0)
		add_source(r, r->signals, on_signal);
}

void recording_control__close(struct recording *r)
{
	control__close(r->control);
	r->control = NULL;
	if (r->signals >= 0)
		close(r->signals);
	r->signals = -1;
	r->loop.n_sources = 0;
}
