/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The main loop of `watch` and its rules. */
#include "watch/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/target.h"
#include "inspect/proc.h"
#include "record/cond.h"
#include "watch/targets/black_box.h"

#define SCAN_EVERY UINT64_C(3000000000) /* interval of scans for new processes, in ns */
/* Interval for growth rules, in ns, short enough to see the lows of steps; longer with many
 * processes. */
#define GROWTH_EVERY UINT64_C(100000000)
/* Time after which a rule's unknown figure is reported, once, in ns. */
#define UNKNOWN_AFTER UINT64_C(30000000000)
#define GROWTH_PROCESSES 8 /* processes read per GROWTH_EVERY */

/* ---- rules ---- */

static void make_shot(struct watch_shot *s, const struct watch_target *t,
		      const struct watch_device *d, const char *rule, const struct cond_result *r)
{
	watch_shot__of(s, t, rule);
	watch_device__name(t, d, s->device);
	snprintf(s->text, sizeof(s->text), "%s", r->text);
	s->growth = r->figure >= COND_GROWTH;
}

static void capture(struct watch *w, struct watch_target *t, const struct watch_shot *s,
		    uint64_t now)
{
	char text[160], time[24];

	if (!w->captures)
		return;
	if (now < t->cooldown) {
		snprintf(text, sizeof(text),
			 "not captured: the last capture of this process was %s ago (--cooldown)",
			 text__time(time, sizeof(time), w->args.cooldown - (t->cooldown - now)));
	} else if (!watch_capture__begin(w->captures, s)) {
		t->cooldown = now + w->args.cooldown;
		return;
	} else {
		snprintf(text, sizeof(text), "not captured: another capture is running");
	}
	w->skipped++;
	watch_say__shot(w, "skipped", s, text);
}

static void fire(struct watch *w, size_t i, struct watch_target *t, struct watch_device *d,
		 const struct cond_result *r, uint64_t now)
{
	struct watch_shot s;

	w->rules[i].fired++;
	watch_say__rule(w, "fired", t, d, cond__text(w->rules[i].cond), r);
	make_shot(&s, t, d, cond__text(w->rules[i].cond), r);
	watch_exec__run(w, "fired", &s);
	capture(w, t, &s, now);
}

static void judge(struct watch *w, size_t i, struct watch_target *t, struct watch_device *d,
		  struct cond_values *v, uint64_t now)
{
	struct watch_rule *rule = &w->rules[i];
	struct watch_state *st = &d->state[i];
	struct cond_result r;

	/* Count from the last report of this rule. */
	v->v[COND_OOMS].value = d->ooms - (d->ooms < st->ooms ? d->ooms : st->ooms);
	v->v[COND_RETRIES].value = d->retries -
				   (d->retries < st->retries ? d->retries : st->retries);
	if (cond__eval(rule->cond, v, &r))
		return; /* no memory: try again later */
	if (r.verdict == COND_HOLDS && !st->holds) {
		st->holds = true;
		rule->holding++;
		fire(w, i, t, d, &r, now);
	} else if (r.verdict == COND_NO && st->holds) {
		st->holds = false;
		rule->holding--;
		watch_say__rule(w, "normal", t, d, cond__text(rule->cond), &r);
	}
	if (r.verdict == COND_UNKNOWN && !st->reported_unknown && now - t->since >= UNKNOWN_AFTER) {
		st->reported_unknown = true;
		watch_say__rule(w, "unknown", t, d, cond__text(rule->cond), &r);
	}
	if (st->holds) {
		st->ooms = d->ooms;
		st->retries = d->retries;
	}
}

static void judge_target(struct watch *w, struct watch_target *t, uint64_t now)
{
	struct cond_values v;

	/* Rules without a device are judged once; others per device, or once if there is no
	 * device. */
	watch_target__values(t, NULL, now, &v);
	watch_host__values(w, t, &v);
	v.v[COND_RSS].of = w->ram;
	for (size_t i = 0; i < w->n_rules; i++)
		if (w->rules[i].of_process || !t->n_devices)
			judge(w, i, t, &t->self, &v, now);
	for (size_t k = 0; k < t->n_devices; k++) {
		struct watch_device *d = &t->devices[k];

		if (!d->now.peak_reserved && !d->now.reserved)
			continue;
		if (d->series >= COND_SERIES)
			d->series = watch_targets__take_series(w);
		watch_target__values(t, d, now, &v);
		watch_host__values(w, t, &v);
		v.v[COND_RSS].of = w->ram;
		for (size_t i = 0; i < w->n_rules; i++)
			if (!w->rules[i].of_process)
				judge(w, i, t, d, &v, now);
	}
}

static bool is_of_process(const struct cond *c)
{
	for (int f = 0; f < COND_NR; f++)
		if (f != COND_RSS && f != COND_RSS_GROWTH && f != COND_STEP_TIME &&
		    f != COND_HOST_CGROUP && !host_figures__is_part(f) && cond__needs(c, f))
			return false;
	return true;
}

static int open_rules(struct watch *w)
{
	static const enum cond_figure of_driver[] = { COND_USED, COND_OTHER, COND_USED_GROWTH,
						      COND_OTHER_GROWTH };
	char *why;

	for (size_t i = 0; i < w->args.n_rules; i++) {
		struct watch_rule *r = &w->rules[i];
		int err = cond__parse(w->args.rules[i], &r->cond, &why);

		if (err) {
			log_err("--rule: %s", why ? why : strerror(-err));
			free(why);
			return err == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
		}
		w->n_rules++;
		if (cond__needs(r->cond, COND_LOST) || cond__needs(r->cond, COND_LEAKS)) {
			log_err("--rule '%s': lost and leaks need a recording; use memtrace-bpf "
				"report --fail-if",
				w->args.rules[i]);
			return EXIT_USAGE;
		}
		r->of_process = is_of_process(r->cond);
		w->wants_steps |= cond__needs_steps(r->cond);
		w->wants_growth |= cond__needs_growth(r->cond);
		w->wants_rss_growth |= cond__needs(r->cond, COND_RSS_GROWTH);
		w->wants_cgroup |= cond__needs(r->cond, COND_HOST_CGROUP);
		for (int f = 0; f < COND_FIGURES; f++)
			w->wants_host |= host_figures__is_part(f) && cond__needs(r->cond, f);
		for (size_t k = 0; k < sizeof(of_driver) / sizeof(*of_driver); k++)
			w->wants_used |= cond__needs(r->cond, of_driver[k]);
	}
	return 0;
}

/* ---- the loop ---- */

static void look(struct watch *w, uint64_t now)
{
	for (size_t i = 0; i < w->n_targets;) {
		struct watch_target *t = w->targets[i];

		int err = watch_target__look(t, now, w->wants_steps, w->wants_used);

		if (err) {
			watch_targets__remove(w, i, err == -ESTALE);
			continue;
		}
		watch_targets__report(w, t);
		judge_target(w, t, now);
		i++;
	}
}

/* Reads the values of growth rules between two ticks. */
static void read_growth(struct watch *w, uint64_t now)
{
	struct cond_values v;

	for (size_t i = 0; i < w->n_targets; i++) {
		struct watch_target *t = w->targets[i];

		if (!watch_target__read_growth(t, w->wants_rss_growth))
			continue;
		for (size_t k = 0; k <= t->n_devices; k++) {
			struct watch_device *d = k < t->n_devices ? &t->devices[k] : NULL;

			if (d && d->series >= COND_SERIES)
				continue;
			watch_target__values(t, d, now, &v);
			for (size_t r = 0; r < w->n_rules; r++)
				if (cond__needs_growth(w->rules[r].cond) &&
				    (!d == w->rules[r].of_process || !t->n_devices))
					cond__feed(w->rules[r].cond, &v);
		}
	}
}

static uint64_t pause_of(const struct watch *w)
{
	uint64_t glances = GROWTH_EVERY * (1 + w->n_targets / GROWTH_PROCESSES);

	return w->wants_growth && glances < w->args.every ? glances : w->args.every;
}

static void tick(struct watch *w, uint64_t now)
{
	if (now >= w->next_scan) {
		watch_targets__scan(w);
		w->next_scan = watch_find__open_ended(w->find) ? now + SCAN_EVERY : UINT64_MAX;
	}
	look(w, now);
	if (w->captures)
		watch_capture__pump(w->captures, now);
	if (w->box)
		black_box__pump(w->box, now);
	if (w->host)
		watch_host__pump(w->host, now);
	watch_exec__pump(now);
	if (w->args.metrics)
		watch_metrics__write(w);
	if (fflush(stdout) || ferror(stdout)) {
		log_warn("cannot write to standard output: no more events are printed");
		clearerr(stdout);
	}
}

/* Opens a signalfd; returns it, or -1. before: gets the original signal mask. Resets SIGCHLD,
 * because the parent process may have set it to be ignored. */
static int open_signals(sigset_t *before)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, before);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The interval varies, to avoid running in step with a program. */
static void set_timer(int fd, uint64_t ns)
{
	struct itimerspec it = { .it_value = { .tv_sec = (time_t)(ns / 1000000000),
					       .tv_nsec = (long)(ns % 1000000000) } };

	timerfd_settime(fd, 0, &it, NULL);
}

/* True if a signal asks to end. */
static bool read_signals(int fd)
{
	struct signalfd_siginfo si;
	bool end = false;

	while (read(fd, &si, sizeof(si)) == sizeof(si))
		end |= si.ssi_signo != SIGCHLD;
	return end;
}

static bool is_over(const struct watch *w)
{
	if (w->args.duration && clock__monotonic() - w->start >= w->args.duration)
		return true;
	return !w->n_targets && w->next_scan == UINT64_MAX &&
	       !(w->captures && watch_capture__busy(w->captures)) &&
	       !(w->box && black_box__busy(w->box));
}

/* True if a watched process has ended. */
static bool any_has_ended(const struct pollfd *fds, size_t n)
{
	for (size_t i = 2; i < n; i++)
		if (fds[i].revents)
			return true;
	return false;
}

static int loop(struct watch *w, int signals, int timer)
{
	struct pollfd fds[2 + WATCH_TARGETS] = { { .fd = signals, .events = POLLIN },
						 { .fd = timer, .events = POLLIN } };
	uint64_t ticks;

	set_timer(timer, 1);
	for (;;) {
		uint64_t now;
		size_t n = 2;

		for (size_t i = 0; i < w->n_targets; i++)
			fds[n++] = (struct pollfd){ .fd = proc__pidfd(w->targets[i]->proc),
						    .events = POLLIN };
		if (poll(fds, n, -1) < 0 && errno != EINTR)
			return -errno;
		if (fds[0].revents && read_signals(signals))
			return 0;
		if (fds[1].revents && read(timer, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
			return -errno;
		now = clock__monotonic();
		if (fds[0].revents || now >= w->next_tick || any_has_ended(fds, n)) {
			w->next_tick = now + w->args.every;
			tick(w, now);
		} else {
			read_growth(w, now);
		}
		if (is_over(w))
			return 0;
		set_timer(timer, pause_of(w) - pause_of(w) / 8 + now % (pause_of(w) / 4));
	}
}

/* Rejects given PIDs that are not Python processes, such as mistyped ones: they would be watched
 * forever. Denied access is reported later. */
static int check_pids(const struct watch *w)
{
	const struct pick_args *p = &w->args.pick;
	int status = EXIT_OK;

	for (size_t i = 0; i < p->n_pids && !status; i++) {
		struct failure f;
		struct target t;

		if (target__open(p->pids[i], &t, &f))
			continue;
		if (target__look(&t, &f) == -ENOEXEC) {
			log_err("%s", f.text);
			status = f.status;
		}
		target__close(&t);
	}
	return status;
}

static int begin(struct watch *w)
{
	char title[256];
	int status = check_pids(w);

	if (status)
		return status;
	watch_targets__scan(w);
	w->next_scan = watch_find__open_ended(w->find) ? clock__monotonic() + SCAN_EVERY
						       : UINT64_MAX;
	w->next_tick = clock__monotonic();
	if (w->n_targets)
		return 0;
	watch_find__title(w->find, title, sizeof(title));
	if (w->next_scan == UINT64_MAX) {
		log_err("nothing to watch: %s does not run, or only root can read it", title);
		return EXIT_UNUSABLE;
	}
	watch_say__target(w, "waiting", NULL, title);
	return 0;
}

static void end(struct watch *w)
{
	black_box__free(w->box);
	watch_capture__free(w->captures);
	watch_host__free(w->host);
	watch_exec__finish();
	for (size_t i = 0; i < w->n_targets; i++)
		watch_target__free(w->targets[i]);
	owners__free(&w->owners);
	watch_find__free(w->find);
	for (size_t i = 0; i < w->n_rules; i++)
		cond__free(w->rules[i].cond);
	free(w);
}

static int run(struct watch *w)
{
	struct sysinfo si;
	sigset_t before;
	int signals, timer, status, err = 0;

	w->ram = sysinfo(&si) ? 0 : (uint64_t)si.totalram * si.mem_unit;
	w->start = clock__monotonic();
	w->find = watch_find__new(&w->args.pick);
	if (!w->find) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	if (w->args.output) {
		w->captures = watch_capture__new(&w->args, w);
		if (!w->captures)
			return EXIT_FAILED;
	}
	w->box = w->args.on_kill ? black_box__new(w) : NULL;
	w->host = w->wants_host ? watch_host__new(w) : NULL;
	if ((w->args.on_kill && !w->box) || (w->wants_host && !w->host)) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	signals = open_signals(&before);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (signals < 0 || timer < 0) {
		log_err("cannot make a timer: %s", strerror(errno));
		status = EXIT_FAILED;
	} else {
		status = begin(w);
		err = status ? 0 : loop(w, signals, timer);
	}
	if (err) {
		log_err("watching failed: %s", strerror(-err));
		status = EXIT_FAILED;
	}
	if (signals >= 0)
		close(signals);
	if (timer >= 0)
		close(timer);
	return status;
}

int watch__run(const struct watch_args *args)
{
	struct watch *w = calloc(1, sizeof(*w));
	int status;

	if (!w) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	w->args = *args;
	status = open_rules(w);
	if (!status)
		status = run(w);
	end(w);
	return status;
}
