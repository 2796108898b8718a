/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The live view of a running capture: processes, keyboard, clock, messages, actions and end. */
#include "live/args.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "capture/capture_loop.h"
#include "capture/control.h"
#include "capture/kernel.h"
#include "capture/session.h"
#include "export/export.h"
#include "live/rows/state.h"
#include "live/rows/words.h"
#include "live/screen/keys.h"
#include "live/screen/screen.h"
#include "live/screen/tty.h"
#include "live/view/plain.h"
#include "record/dict.h"
#include "record/flight.h"
#include "record/stream.h"
#include "report/text.h"

#define KEPT UINT64_C(300000000000) /* events of the last 5 min are kept for saving, ns */
#define NAMES 100		    /* names that are tried for a file */
#define NICE 10			    /* nice value of an export */
#define BUDGET 100		    /* refreshing uses at most 1/BUDGET of the time */
#define KEYS_AT_ONCE 64		    /* keys that are handled before other work goes on */
#define FEW_PROCESSES 4		    /* each so many further processes, one has fewer kept events */
/* Bytes of events kept for saving of one process; fewer if there are many processes. */
#define KEPT_BYTES (UINT64_C(64) << 20)
#define ENDED_KEPT 32 /* processes kept after their end */
/* The first refreshes come early: after 50, 100, 200, 400 ... ms. */
#define EARLY UINT64_C(50000000) /* ns */
#define EARLY_REFRESHES 6
/* Refresh intervals if none is given, ns. */
#define SCREEN_INTERVAL UINT64_C(1000000000)
#define PLAIN_INTERVAL UINT64_C(2000000000)

/* ---- saving ---- */

struct live_save {
	struct sink sink; /* must come first; never returns an error: write_save() reports it */
	struct flight *flight;
	pid_t pid;
	int err; /* error that ended saving, negative */
	struct outfile *file;
	char path[64], last[64]; /* last: path of the last complete file; "": none */
	struct flight_report written;
};

/* For flight_opts.open: makes memtrace-PID-TIME.mtr in the current folder, with -2, -3 ... if that
 * exists. Returns its descriptor or a negative error. */
static int open_file(void *ctx, unsigned int number)
{
	struct live_save *s = ctx;
	time_t now = time(NULL);
	char when[32], more[16] = "";
	struct tm tm;
	int err = -EEXIST;

	(void)number;
	localtime_r(&now, &tm);
	strftime(when, sizeof(when), "%Y%m%dT%H%M%S", &tm);
	for (int i = 1; i < NAMES && err == -EEXIST; i++) {
		if (i > 1)
			snprintf(more, sizeof(more), "-%d", i);
		snprintf(s->path, sizeof(s->path), "memtrace-%d-%s%s.mtr", (int)s->pid, when, more);
		err = outfile__create(s->path, OUTFILE_RENAME, /*force=*/false, &s->file);
	}
	return err ? err : outfile__fd(s->file);
}

/* For flight_opts.done: keeps the complete file, or removes it after an error. Returns 0 or a
 * negative error. */
static int file_done(void *ctx, const struct flight_report *r, int err)
{
	struct live_save *s = ctx;

	if (err)
		outfile__discard(s->file);
	else
		err = outfile__commit(s->file);
	s->file = NULL;
	if (!err) {
		memcpy(s->last, s->path, sizeof(s->last));
		s->written = *r;
	}
	return err;
}

/* Keeps an event for saving. Errors end saving only, not the live view. */
static int on_event(struct sink *sink, const struct event *e)
{
	struct live_save *s = (struct live_save *)sink;

	if (!s->err)
		s->err = flight__event(s->flight, e);
	if (s->err == -EINVAL) /* a recording cannot contain this event */
		s->err = 0;
	return 0;
}

/* Tells the flight recorder the time, ns since the start of the capture. */
static int keep_tick(struct sink *sink, uint64_t now)
{
	struct live_save *s = (struct live_save *)sink;

	if (!s->err)
		s->err = flight__tick(s->flight, now);
	return 0;
}

/* Creates a buffer of the latest events. Borrows dict and facts, which must outlive it. bytes: its
 * size, at least 64 KiB. NULL: no memory. */
static struct live_save *new_save(pid_t pid, struct dict *dict, const struct facts *facts,
				  uint64_t bytes)
{
	struct live_save *s = calloc(1, sizeof(*s));
	struct flight_opts opts = { .window = KEPT,
				    .max_bytes = bytes,
				    .no_oom = true,
				    .open = open_file,
				    .done = file_done,
				    .ctx = s };

	if (!s)
		return NULL;
	s->sink = (struct sink){ .event = on_event, .tick = keep_tick };
	s->pid = pid;
	s->flight = flight__new(dict, facts, &opts);
	if (!s->flight) {
		free(s);
		return NULL;
	}
	return s;
}

static void free_save(struct live_save *s)
{
	if (!s)
		return;
	flight__free(s->flight);
	free(s);
}

/* Writes a recording. Puts the result as a message into say. Returns 0 or a negative error. */
static int write_save(struct live_save *s, char *say, size_t size)
{
	char events[32], span[24], bytes[24];
	const struct flight_report *r = &s->written;
	int err = s->err ? s->err : flight__save(s->flight, "the live view");

	if (err && s->err) {
		snprintf(say, size, "saving has failed: %s", strerror(-s->err));
		return err;
	}
	if (err) {
		snprintf(say, size, "%s: %s", s->path, outfile__why(err));
		return err;
	}
	snprintf(say, size, "saved %s: %s of the last %s, %s", s->last,
		 text__counted(events, sizeof(events), r->events, "event"),
		 text__time(span, sizeof(span), r->to > r->from ? r->to - r->from : 0),
		 text__bytes(bytes, sizeof(bytes), r->bytes));
	return 0;
}

/* ---- export ---- */

struct exported {
	const char *path, *format;
};

/* Runs in the exporting process. Closes the view's files, and keeps only the rights to create a
 * file. */
static int run_export(void *ctx)
{
	const struct exported *x = ctx;
	const struct export_job job = { .format = export__find(x->format), .recording = x->path };
	int err;

	log__divert(NULL, NULL);
	log__close();
	err = subprocess__close_others(/*keep=*/NULL, 0);
	caps__only(CAPS_FILES);
	return err ? EXIT_FAILED : export__run(&job);
}

/* Starts the export of a recording in a process with low priority and fewer rights. Its messages
 * go to standard error. Returns 0 or -errno. */
static int begin_export(struct subprocess *ret, const char *path, const char *format)
{
	return subprocess__start(
		&(struct subprocess_opts){
			.main = run_export,
			.ctx = &(struct exported){ path, format },
			.err = SUBPROCESS_INHERIT,
			.keep_all_fds = true, /* run_export() closes them after the log */
			.death_signal = SIGTERM,
			.nice_by = NICE },
		ret);
}

/* Waits for the end of an export. kill: ends the export first. Returns true if it succeeded. */
static bool end_export(struct subprocess *p, bool kill)
{
	int status = 1;

	if (kill)
		subprocess__signal(p, SIGTERM);
	return subprocess__wait(p, /*ms=*/-1, &status) && !status;
}

/* ---- the view ---- */

struct view {
	const struct live_args *args;
	struct tty *tty;
	struct screen *screen;
	struct live_state state;
	struct capture_loop loop;
	int clock, signals;	     /* timerfd of the refreshes; signalfd */
	uint64_t begun;		     /* start of the view, ns, monotonic */
	uint64_t rows_due;	     /* earliest next refresh of the rows, ns, monotonic */
	unsigned refreshes;	     /* number of refreshes by the clock */
	bool gone;		     /* the terminal is gone */
	bool quit;		     /* the user asked to quit */
	bool failed;		     /* a refresh ran out of memory */
	int err;		     /* negative error that ended the capture of a process */
	struct subprocess exporting; /* a running export */
	struct control *control;     /* control socket; NULL: none */
};

struct source {			 /* the capture of a process; live_proc.owner points to it */
	struct session *session; /* NULL: the capture is over */
	struct live_save *save;
	bool first;  /* the process of -p */
	bool listed; /* the process is in live_state.procs */
};

/* For log__divert(): shows a message of the program in the view. */
static void on_message(void *ctx, enum log_level level, const char *text)
{
	struct view *v = ctx;

	v->state.now = clock__monotonic() - v->begun;
	live_state__say(&v->state, level, /*own=*/false, "%s", text);
}

/* Shows what was written to standard error past log.h: by libraries, a sanitizer or an export. */
static void take_errors(struct view *v)
{
	static const char ours[] = "memtrace-bpf: ", warning[] = "warning: ";
	char buf[1024], *line, *rest;

	while (tty__read_errors(v->tty, buf, sizeof(buf)) > 0) {
		for (line = strtok_r(buf, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
			/* an export's message has the program's own prefix */
			bool by_export = !strncmp(line, ours, sizeof(ours) - 1);

			line += by_export ? sizeof(ours) - 1 : 0;
			on_message(v,
				   by_export && strncmp(line, warning, sizeof(warning) - 1)
					   ? LOG_INFO
					   : LOG_WARN,
				   line);
		}
	}
}

/* Calls ready(v) from now on when fd is readable. fd -1 is fine: never. */
static void add_source(struct view *v, int fd, void (*ready)(void *ctx))
{
	if (fd >= 0 && v->loop.n_sources < LOOP_SOURCES)
		v->loop.sources[v->loop.n_sources++] = (struct loop_source){ fd, ready, v };
}

/* Undoes add_source(). */
static void drop_source(struct view *v, int fd)
{
	for (size_t i = 0; i < v->loop.n_sources; i++) {
		if (v->loop.sources[i].fd == fd) {
			v->loop.sources[i] = v->loop.sources[--v->loop.n_sources];
			return;
		}
	}
}

/* Shows a message for each new mark, by the user, the program or `memtrace-bpf ctl`. */
static void say_marks(struct view *v)
{
	uint64_t time;

	for (size_t i = 0; i < v->state.nprocs; i++) {
		struct live_proc *p = v->state.procs[i];

		for (; p->marks_said < p->nmarks; p->marks_said++) {
			const char *name = live_proc__mark(p, p->nmarks - 1 - p->marks_said, &time);

			if (name)
				live_state__say(&v->state, LOG_INFO, /*own=*/true, "marked: %s",
						name);
		}
	}
}

/* ---- actions ---- */

/* The process's capture; NULL if p is NULL. */
static struct source *source_of(const struct live_proc *p)
{
	return p ? p->owner : NULL;
}

/* Saves the kept events of a process and shows a message. True on success. */
static bool save_proc(struct view *v, struct live_proc *p)
{
	struct source *from = source_of(p);
	char say[256];
	int err;

	if (!from || !from->save) {
		live_state__say(&v->state, LOG_INFO, true, "there are no events to save");
		return false;
	}
	/* Read pending events first. */
	if (from->session && !p->ended && session__drain(from->session))
		v->failed = v->loop.quit = true;
	err = write_save(from->save, say, sizeof(say));
	/* Keep the message after the view, because it has the path. */
	live_state__say(&v->state, err ? LOG_WARN : LOG_INFO, /*own=*/false, "%s", say);
	return !err;
}

/* The exporting process has ended: shows its messages, and whether it failed. */
static void on_exported(void *ctx)
{
	struct view *v = ctx;

	drop_source(v, v->exporting.pidfd);
	take_errors(v);
	if (!end_export(&v->exporting, /*kill=*/false))
		live_state__say(&v->state, LOG_WARN, true, "the export failed: L shows why");
}

/* Exports the process's last file. Saves a file first if necessary. */
static void export(struct view *v, const char *format)
{
	struct source *from = source_of(live_state__proc(&v->state));
	const char *last = from && from->save ? from->save->last : "";
	int err;

	if (v->exporting.pid) {
		live_state__say(&v->state, LOG_INFO, true,
				"an export is still running: wait for its end");
		return;
	}
	if (!*last && !save_proc(v, live_state__proc(&v->state)))
		return;
	last = from->save->last;
	err = begin_export(&v->exporting, last, format);
	if (err) {
		live_state__say(&v->state, LOG_WARN, /*own=*/true, "cannot export: %s",
				strerror(-err));
		return;
	}
	live_state__say(&v->state, LOG_INFO, true, "exporting %s as %s ...", last, format);
	add_source(v, v->exporting.pidfd, on_exported);
}

/* Writes a mark into the capture of a process and shows a message. True on success. */
static bool mark_proc(struct view *v, struct live_proc *p, const char *name)
{
	struct source *from = source_of(p);

	if (!from || !from->session || p->ended) {
		live_state__say(&v->state, LOG_INFO, /*own=*/true,
				"%s: there is nothing to mark any more", p ? p->end : "no process");
		return false;
	}
	v->state.marks++;
	if (session__mark(from->session, name))
		v->failed = v->loop.quit = true;
	say_marks(v);
	return true;
}

/* ---- memtrace-bpf ctl ---- */

/* True while the process is captured. */
static bool is_captured(const struct live_proc *p)
{
	const struct source *from = source_of(p);

	return from && from->session && !p->ended;
}

/* Adds the error of an action that needs a captured process. Returns -ENXIO. */
static int no_process_error(struct json *j)
{
	json__string(j, "error", "no process is being captured");
	return -ENXIO;
}

/* Action "mark": writes a mark into the capture of each process. Returns 0 or a negative error. */
static int mark_all(struct view *v, const char *name, struct json *j)
{
	bool any = false;

	for (size_t i = 0; i < v->state.nprocs; i++)
		if (is_captured(v->state.procs[i]))
			any |= mark_proc(v, v->state.procs[i], name);
	if (!any)
		return no_process_error(j);
	json__string(j, "mark", name);
	return 0;
}

/* Action "save": writes a recording for each process. Returns 0, or a negative error if none was
 * written. */
static int save_all(struct view *v, struct json *j)
{
	bool any = false;

	json__open_array(j, "processes");
	for (size_t i = 0; i < v->state.nprocs; i++) {
		struct live_proc *p = v->state.procs[i];
		bool done;

		if (!is_captured(p))
			continue;
		done = save_proc(v, p);
		any |= done;
		json__open_object(j, NULL);
		json__int(j, "pid", p->pid);
		json__bool(j, "ok", done);
		if (done)
			json__string(j, "file", source_of(p)->save->last);
		else
			json__string(j, "error", live_state__message(&v->state, 0)->text);
		json__close_object(j);
	}
	json__close_array(j);
	return any ? 0 : no_process_error(j);
}

/* Action "status": lists the captured processes. Returns 0. */
static int put_status(const struct view *v, struct json *j)
{
	json__string(j, "writes", "live view");
	json__int(j, "capturer", getpid());
	json__open_array(j, "processes");
	for (size_t i = 0; i < v->state.nprocs; i++) {
		const struct live_proc *p = v->state.procs[i];

		if (p->ended)
			continue;
		json__open_object(j, NULL);
		json__int(j, "pid", p->pid);
		json__seconds(j, "time", p->now, /*decimals=*/3);
		json__uint(j, "steps", model__whole_steps(p->model));
		json__uint(j, "captured", p->events);
		json__uint(j, "lost", p->lost);
		json__close_object(j);
	}
	json__close_array(j);
	return 0;
}

/* For control__open(): handles an action of `memtrace-bpf ctl`. */
static int handle_request(void *ctx, const char *word, const char *argument, struct json *j)
{
	struct view *v = ctx;

	if (!strcmp(word, "status"))
		return put_status(v, j);
	if (!strcmp(word, "save"))
		return save_all(v, j);
	if (strcmp(word, "mark") != 0)
		return -ENOTSUP;
	if (*argument && strlen(argument) < 128)
		return mark_all(v, argument, j);
	json__string(j, "error", "a mark has a name of 1 to 127 bytes");
	return -EINVAL;
}

static void on_control(void *ctx)
{
	struct view *v = ctx;

	control__pump(v->control);
}

/* Opens the socket for `memtrace-bpf ctl`, if possible. */
static void open_control(struct view *v)
{
	pid_t target = v->loop.args.pid ? v->loop.args.pid : getpid();
	int err = control__open(target, /*folder=*/NULL, handle_request, v, &v->control);

	if (err)
		log_debug("no socket for `memtrace-bpf ctl`: %s", strerror(-err));
	else
		add_source(v, control__fd(v->control), on_control);
}

/* ---- the clock ---- */

/* Sets the next refresh, in ns from now. */
static void set_clock(struct view *v, uint64_t ns)
{
	struct itimerspec it = { .it_value = { .tv_sec = ns / UINT64_C(1000000000),
					       .tv_nsec = ns % UINT64_C(1000000000) } };

	if (v->clock >= 0)
		timerfd_settime(v->clock, 0, &it, NULL);
}

/* Time until the next refresh, ns: the interval, or more if refreshing would take over 1/BUDGET of
 * the time. cost: CPU time of the last one, ns. */
static uint64_t pause_after(struct view *v, uint64_t cost)
{
	uint64_t wanted = v->state.interval;

	v->refreshes++;
	if (v->refreshes < EARLY_REFRESHES)
		wanted = wanted < EARLY << v->refreshes ? wanted : EARLY << v->refreshes;
	return cost * BUDGET > wanted ? cost * BUDGET : wanted;
}

/* Draws the screen from the state as it is. */
static void draw(struct view *v)
{
	v->state.now = clock__monotonic() - v->begun;
	screen__draw(v->screen, &v->state);
}

/* Marks a process as ended, and shows why and when its events ended. */
static void log_end(struct view *v, struct live_proc *p, const char *reason, int err)
{
	char why[96], clock[24];

	live__clock(clock, p->now);
	if (err)
		snprintf(why, sizeof(why), "the capture broke off at %s: %s", clock,
			 strerror(-err));
	else if (!reason || !strcmp(reason, "target exited"))
		snprintf(why, sizeof(why), "PID %d has ended (exit seen at %s)", (int)p->pid,
			 clock);
	else if (!strcmp(reason, "exec"))
		snprintf(why, sizeof(why), "PID %d runs another program since %s", (int)p->pid,
			 clock);
	else
		snprintf(why, sizeof(why), "detached from PID %d at %s (%s)", (int)p->pid, clock,
			 reason);
	live_proc__end(p, why);
	live_state__say(&v->state, err ? LOG_ERROR : LOG_INFO, /*own=*/true, "%s", why);
}

/* Refreshes the rows and sets when they may be refreshed again. With many blocks that is less often
 * than the top lines. */
static void refresh_rows(struct view *v)
{
	uint64_t begin = clock__read(CLOCK_THREAD_CPUTIME_ID), cost;

	if (live_state__refresh(&v->state))
		v->failed = v->loop.quit = true;
	cost = clock__read(CLOCK_THREAD_CPUTIME_ID) - begin;
	v->rows_due = clock__monotonic() + cost * BUDGET;
	v->state.stretched = cost * BUDGET > v->state.interval ? cost * BUDGET : 0;
}

/* Draws the screen after reading what has changed. by_clock: called by the timer, not by a key;
 * then the rows are read only when they are due. */
static void refresh(struct view *v, bool by_clock)
{
	uint64_t begin;

	take_errors(v);
	say_marks(v);
	for (size_t i = 0; by_clock && i < v->state.nprocs; i++)
		live_proc__rates(v->state.procs[i]);
	if (!by_clock || (!v->state.paused && clock__monotonic() >= v->rows_due))
		refresh_rows(v);
	begin = clock__read(CLOCK_THREAD_CPUTIME_ID);
	draw(v);
	if (by_clock)
		set_clock(v, pause_after(v, clock__read(CLOCK_THREAD_CPUTIME_ID) - begin));
}

static void on_clock(void *ctx)
{
	struct view *v = ctx;
	uint64_t n;

	if (read(v->clock, &n, sizeof(n)) > 0)
		refresh(v, /*by_clock=*/true);
}

/* ---- keys and signals ---- */

/* Does what a key asks for. */
static void run_action(struct view *v, enum live_act a)
{
	struct live_proc *p = live_state__proc(&v->state);

	switch (a) {
	case ACT_QUIT:
		v->quit = v->loop.quit = true;
		break;
	case ACT_REDRAW:
		screen__redraw(v->screen);
		draw(v);
		break;
	case ACT_RESET:
		if (p)
			live_proc__reset(p);
		refresh(v, /*by_clock=*/false);
		break;
	case ACT_REFRESH:
		refresh(v, /*by_clock=*/false);
		break;
	case ACT_SAVE:
		save_proc(v, live_state__proc(&v->state));
		draw(v);
		break;
	case ACT_EXPORT:
	case ACT_FLAME:
		export(v, a == ACT_EXPORT ? "html" : "flamegraph");
		draw(v);
		break;
	case ACT_MARK:
		mark_proc(v, live_state__proc(&v->state), v->state.typed);
		draw(v);
		break;
	case ACT_DRAW:
		draw(v);
		break;
	default:
		break;
	}
}

/* Handles the pressed keys. If the terminal is gone, ends the view. */
static void on_key(void *ctx)
{
	struct view *v = ctx;
	int key, n = 0;

	while (n++ < KEYS_AT_ONCE && (key = screen__key(v->screen)) >= 0)
		run_action(v, live_keys__press(&v->state, key, screen__page(v->screen)));
	if (key != -2)
		return;
	v->gone = v->quit = v->loop.quit = true;
	drop_source(v, tty__input(v->tty));
}

/* Ctrl-Z: restores the terminal and stops; returns when continued. */
static void suspend(struct view *v)
{
	screen__suspend(v->screen);
	raise(SIGSTOP);
}

/* Handles the signals of take_signals(). SIGTSTP (Ctrl-Z) stops the process, also before the screen
 * is open; other signals then do nothing. SIGCONT and SIGWINCH (a new size) draw the screen again.
 * Those that end a program (only after the capture) quit the view. */
static void on_signal(void *ctx)
{
	struct view *v = ctx;
	struct signalfd_siginfo si;

	while (read(v->signals, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGTSTP && v->screen) {
			suspend(v);
		} else if (si.ssi_signo == SIGTSTP) {
			raise(SIGSTOP);
		} else if (!v->screen) {
			continue;
		} else if (si.ssi_signo == SIGCONT) {
			screen__resume(v->screen);
			draw(v);
		} else if (si.ssi_signo == SIGWINCH) {
			screen__resized(v->screen);
			draw(v);
		} else {
			v->quit = v->loop.quit = true;
		}
	}
}

/* Blocks n signals and makes a signalfd that reads them. fd: -1, or a signalfd that gets these
 * signals in place of its own. Returns the signalfd; -1 with errno. */
static int take_signals(int fd, const int *all, size_t n)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < n; i++)
		sigaddset(&set, all[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(fd, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Opens the screen, unless it is open. Called after the first attach, so that errors of the attach
 * appear as normal messages. */
static int show(struct view *v)
{
	if (v->screen)
		return 0;
	v->begun = clock__monotonic();
	v->screen = screen__open(
		v->tty,
		report_text__colour(stdout,
				    &(struct report_text_opts){ .colour = v->args->colour }),
		!v->args->no_mouse);
	if (!v->screen) {
		log_err("the terminal cannot show a screen: pipe the output through cat for plain "
			"text");
		return EXIT_FAILED;
	}
	if (!tty__catch_errors(v->tty))
		log__divert(on_message, v);
	v->clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	add_source(v, tty__input(v->tty), on_key);
	add_source(v, v->clock, on_clock);
	open_control(v);
	set_clock(v, EARLY);
	draw(v);
	return 0;
}

/* ---- processes ---- */

/* For the sink of a process: sets its time, in ns since the start, and counts. */
static int on_tick(struct sink *s, uint64_t now)
{
	struct live_proc *p = (struct live_proc *)s;
	const struct source *from = p->owner;

	live_proc__set_time(p, now, session__events(from->session), session__lost(from->session));
	if (p->also)
		p->also->tick(p->also, now);
	return 0;
}

/* Frees what only a running capture of the process needs. */
static void free_source(struct live_proc *p)
{
	struct source *from = source_of(p);

	if (from)
		free_save(from->save);
	free(from);
	p->owner = NULL;
	p->also = NULL;
}

/* For tracees_output.begin: begins a process. Returns NULL if memory is short, logged. */
static void *begin(void *ctx, struct session *s, pid_t pid, unsigned int times, struct sink **sink)
{
	struct view *v = ctx;
	struct live_proc *p = live_proc__new(pid, session__dict(s), session__facts(s));
	struct source *from = calloc(1, sizeof(*from));

	if (from)
		from->save = new_save(pid, session__dict(s), session__facts(s),
				      KEPT_BYTES / (1 + v->state.nprocs / FEW_PROCESSES));
	if (!p || !from || !from->save || live_proc__watch_findings(p)) {
		log_err("out of memory");
		if (from)
			free_save(from->save);
		free(from);
		live_proc__free(p);
		return NULL;
	}
	from->session = s;
	from->first = !times;
	p->sink.tick = on_tick;
	p->owner = from;
	p->also = &from->save->sink;
	p->view = v;
	*sink = &p->sink;
	return p;
}

/* For tracees_output.attached: the process is captured. Lists it, and opens the screen. Returns 0
 * or an exit code, logged. */
static int attached(void *output)
{
	struct live_proc *p = output;
	struct view *v = p->view;

	if (live_state__add(&v->state, p)) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	source_of(p)->listed = true;
	return show(v);
}

static void free_proc(struct live_proc *p)
{
	free_source(p);
	live_proc__free(p);
}

/* Frees processes that ended long ago, to limit memory. */
static void drop_old(struct view *v)
{
	struct live_proc *old;

	while ((old = live_state__remove_ended(&v->state, ENDED_KEPT)))
		free_proc(old);
}

/* For tracees_output.end: ends the capture of a process, but keeps its dict and facts, so that it
 * can still be viewed. err: negative error that ended it. Returns the exit code. */
static int end(void *output, const char *reason, int err)
{
	struct live_proc *p = output;
	struct source *from = p->owner;
	struct session *s = from->session;
	struct view *v = p->view;
	struct dict *dict;
	struct facts *facts;

	if (!from->listed) {
		free_proc(p);
		return EXIT_OK;
	}
	p->now = session__now(s) > p->now ? session__now(s) : p->now;
	live_proc__set_time(p, p->now, session__events(s), session__lost(s));
	session__give_words(s, &dict, &facts);
	p->owns = true;
	from->session = NULL;
	log_end(v, p, reason, err);
	drop_old(v);
	v->err = err ? err : v->err;
	return err ? EXIT_FAILED : EXIT_OK;
}

/* ---- end ---- */

/* Keeps the view open after the capture has ended, until the user quits. */
static void view_after_end(struct view *v)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH };
	struct pollfd fds[LOOP_SOURCES];
	size_t n;

	v->signals = take_signals(v->signals, ends, sizeof(ends) / sizeof(*ends));
	v->state.over = true;
	v->state.paused = false;
	/* The process has freed its memory, so that only the peak is of interest. */
	if (v->state.sort == SORT_LIVE)
		v->state.sort = SORT_PEAK;
	refresh(v, /*by_clock=*/false);
	while (!v->quit && !v->failed) {
		n = v->loop.n_sources;
		for (size_t i = 0; i < n; i++)
			fds[i] = (struct pollfd){ .fd = v->loop.sources[i].fd, .events = POLLIN };
		if (poll(fds, n, -1) < 0 && errno != EINTR)
			break;
		for (size_t i = 0; i < n && i < v->loop.n_sources; i++)
			if (fds[i].revents && fds[i].fd == v->loop.sources[i].fd)
				v->loop.sources[i].ready(v->loop.sources[i].ctx);
	}
}

/* Prints the summary of a process on standard output. */
static void print_summary(const struct view *v, const struct live_proc *p)
{
	const struct report_text_opts opts = {
		.by = BY_LINE,
		.when = ROWS_AT_MARK,
		.top = v->args->top,
		.colour = v->args->colour,
		.duration = p->now,
	};

	report_text__summary(stdout, p->model, model__main_device(p->model), p->dict, p->facts,
			     &opts);
}

/* Restores the terminal, then prints the messages and the summary. */
static void finish_view(struct view *v)
{
	if (v->exporting.pid) {
		end_export(&v->exporting, /*kill=*/true);
		live_state__say(&v->state, LOG_WARN, false,
				"the export was stopped: `memtrace-bpf export` can make it");
	}
	take_errors(v);
	if (v->gone)
		tty__restore(v->tty);
	else
		screen__close(v->screen);
	v->screen = NULL;
	log__divert(NULL, NULL);
	tty__release_errors(v->tty);
	for (size_t i = LIVE_MESSAGES; i-- > 0;) {
		const struct live_message *m = live_state__message(&v->state, i);

		if (m && !m->own)
			log__show(m->level, m->text);
	}
	if (v->gone)
		return;
	for (size_t i = 0; i < v->state.nprocs; i++)
		if (v->state.procs[i]->now &&
		    (source_of(v->state.procs[i])->first || v->state.procs[i]->events))
			print_summary(v, v->state.procs[i]);
}

/* Captures until the end, and shows the view until the user quits. Returns the exit code. */
static int capture(struct view *v)
{
	int status = capture_loop__open(&v->loop);

	if (!status)
		status = capture_loop__run(&v->loop);
	if (!v->screen)
		return status;
	/* End at once after a signal or q. */
	if (v->err || !v->loop.stop_reason || strcmp(v->loop.stop_reason, "signal") != 0)
		view_after_end(v);
	finish_view(v);
	if (v->err)
		log_err("the capture broke off: %s", strerror(-v->err));
	if (v->failed)
		log_err("out of memory");
	return v->failed ? EXIT_FAILED : status;
}

/* Sets the view that the command line asks for. */
static void set_state(struct live_state *s, const struct live_args *a)
{
	static const enum live_view views[LIVE_BY_NR] = { [LIVE_LINE] = VIEW_LINES,
							  [LIVE_FUNCTION] = VIEW_LINES,
							  [LIVE_MODULE] = VIEW_MODULES,
							  [LIVE_CATEGORY] = VIEW_CATEGORIES,
							  [LIVE_LAYER] = VIEW_TREE };
	char why[200];

	s->interval = a->interval;
	s->view = views[a->by];
	s->by_function = a->by == LIVE_FUNCTION;
	s->sort = a->sort;
	s->which_line = a->which_line;
	s->select.hide = a->select.hide;
	s->select.nhide = a->select.nhide;
	if (a->select.expr)
		live_state__set_filter(s, a->select.expr, why, sizeof(why));
}

/* Shows the live view on the terminal until its end. Returns the exit code. */
static int show_screen(const struct live_args *args, struct tty *t)
{
	static const int handled[] = { SIGTSTP, SIGCONT, SIGWINCH };
	static const struct tracees_output outputs = { begin, attached, NULL, end };
	struct view v = { .args = args, .tty = t, .clock = -1, .signals = -1 };
	int status;

	v.loop.args = args->capture;
	v.loop.ctx = &v;
	v.loop.output = &outputs;
	v.loop.writes_later = true;
	set_state(&v.state, args);
	v.begun = clock__monotonic();
	/* on_signal() handles Ctrl-Z also before the screen is open. */
	v.signals = take_signals(-1, handled, sizeof(handled) / sizeof(*handled));
	add_source(&v, v.signals, on_signal);
	status = capture(&v);
	for (size_t i = 0; i < v.state.nprocs; i++)
		free_source(v.state.procs[i]);
	live_state__release(&v.state);
	capture_loop__close(&v.loop);
	control__close(v.control);
	if (v.clock >= 0)
		close(v.clock);
	close(v.signals);
	return status;
}

int live__run(struct live_args *args)
{
	const char *why = NULL;
	struct tty *t = args->format == LIVE_SCREEN && !args->count ? tty__open(&why) : NULL;
	int status;

	if (!args->interval)
		args->interval = t ? SCREEN_INTERVAL : PLAIN_INTERVAL;
	if (!t) {
		if (why)
			log_info("no live view: %s; plain text instead", why);
		return live_plain__run(args);
	}
	status = show_screen(args, t);
	tty__close(t);
	return status;
}
