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
#include "base/log.h"
#include "base/text.h"
#include "inspect/proc.h"
#include "record/cond.h"

#define SCAN_EVERY UINT64_C(3000000000) /* interval of scans for new processes, in ns */
/* Interval for growth rules, in ns, short enough to see the lows of steps; longer with many
 * processes. */
#define GROWTH_EVERY UINT64_C(100000000)
/* Time after which a rule's unknown figure is reported, once, in ns. */
#define UNKNOWN_AFTER UINT64_C(30000000000)
/* A rule that fired is normal when it has not held for 10 s, so that a figure near its limit does
 * not fire again and again. */
#define NORMAL_AFTER UINT64_C(10000000000)
#define GROWTH_PROCESSES 8 /* processes read per GROWTH_EVERY */

/* ---- series: growth is measured per device ---- */

/* Reserves a place for the growth of a device. COND_SERIES: none is free; its growth is not
 * known. */
static unsigned take_series(struct watch *w)
{
	for (unsigned i = 0; i < COND_SERIES; i++) {
		if (w->series[i])
			continue;
		w->series[i] = 1;
		return i;
	}
	return COND_SERIES;
}

/* Gives a series back, and makes all rules forget it. COND_SERIES is fine. */
static void drop_series(struct watch *w, unsigned series)
{
	if (series >= COND_SERIES)
		return;
	w->series[series] = 0;
	for (size_t i = 0; i < w->n_rules; i++)
		cond__forget(w->rules[i].cond, series);
}

/* ---- targets ---- */

/* Appends the rules that need the CUDA allocator, which cannot be read: "; 2 of 3 rules need it:
 * ooms>0, retries>0". */
static void add_idle_rules(const struct watch *w, char *text, size_t size)
{
	size_t len = strlen(text), idle = 0, n = 0;

	for (size_t i = 0; i < w->n_rules; i++)
		idle += !w->rules[i].is_per_process;
	if (idle)
		len += (size_t)snprintf(text + len, size - len,
					"; %zu of %zu rules need it: ", idle, w->n_rules);
	for (size_t i = 0; i < w->n_rules && len < size; i++)
		if (!w->rules[i].is_per_process)
			len += (size_t)snprintf(text + len, size - len, "%s%s", n++ ? ", " : "",
						cond__text(w->rules[i].cond));
}

/* Reports a new target after its first readings, including what cannot be read. */
static void report_target(struct watch *w, struct watch_target *t)
{
	char text[2 * WATCH_TEXT], why[200];
	const char *probes = "";

	if (t->reported)
		return;
	t->reported = true;
	if (t->alloc && cudaalloc__calibrated(t->alloc)) {
		if (w->wants_steps && t->attached)
			probes = ", and steps by a probe";
		else if (!w->args.on_kill)
			probes = "; no probe";
		snprintf(text, sizeof(text), "watching the CUDA allocator and resident memory%s%s",
			 w->host_needs.parts ? " with its parts" : "", probes);
	} else {
		snprintf(text, sizeof(text), "watching resident memory%s only: %s",
			 w->host_needs.parts ? " and its parts" : "",
			 text__clean(why, sizeof(why), t->alloc_why, strlen(t->alloc_why)));
		add_idle_rules(w, text, sizeof(text));
	}
	if (w->args.on_kill) {
		size_t len = strlen(text);

		snprintf(text + len, sizeof(text) - len,
			 "; a recorder keeps its last minutes (--on-kill)");
	}
	watch_say__target(w, "watching", t, text);
	if (t->steps_failed)
		watch_say__target(w, "no steps", t, t->steps_why);
}

/* Stops to count the rules that hold for this device. */
static void forget_rules(struct watch *w, const struct watch_device *d)
{
	for (size_t i = 0; i < w->n_rules; i++)
		w->rules[i].holding -= d->state[i].holds;
}

/* Forgets the process: its rules, series and place. */
static void drop_target(struct watch *w, size_t i)
{
	struct watch_target *t = w->targets[i];

	drop_series(w, t->self.series);
	forget_rules(w, &t->self);
	for (size_t k = 0; k < WATCH_DEVICES; k++) {
		forget_rules(w, &t->devices[k]);
		drop_series(w, t->devices[k].series);
	}
	owner__drop(t->owner);
	watch_target__free(t);
	w->targets[i] = w->targets[--w->n_targets];
}

/* Makes room for a process of this owner. False: others have no more than their share; logged
 * once. */
static bool make_room(struct watch *w, struct owner *owner, pid_t pid)
{
	struct place places[WATCH_TARGETS];
	char text[WATCH_TEXT];
	struct owner *largest;
	size_t i;

	for (i = 0; i < w->n_targets; i++)
		places[i] = (struct place){ .owner = w->targets[i]->owner,
					    .came = w->targets[i]->came };
	if (w->n_targets < WATCH_TARGETS)
		return true;
	i = w->n_evicted < WATCH_TARGETS ? shares__choose(places, w->n_targets, owner, 0)
					 : SHARES_NONE;
	if (i != SHARES_NONE) {
		snprintf(text, sizeof(text),
			 "no longer watched: %d processes are, the most at a time, and %s gets its "
			 "share of them",
			 WATCH_TARGETS, owner->name);
		watch_say__target(w, "left out", w->targets[i], text);
		w->evicted[w->n_evicted++] = w->targets[i]->pid;
		drop_target(w, i);
		return true;
	}
	largest = shares__largest(places, w->n_targets);
	if (!owner->said)
		log_warn("PID %d and maybe more of %s are not watched: %d processes are, the most "
			 "at a time, and %zu of them are of %s. Choose fewer: a longer --name, or "
			 "--container",
			 (int)pid, owner->name, WATCH_TARGETS, largest->places, largest->name);
	owner->said = true;
	return false;
}

/* For watch_find__scan(). Returns true if the process is watched now. */
static bool add_target(void *ctx, const struct pick_process *p)
{
	struct watch *w = ctx;
	struct owner *owner = owners__of(&w->owners, p);
	struct watch_target *t;
	int err = -ENOMEM;

	t = owner && make_room(w, owner, p->pid) ? watch_target__new(p, w->args.pick.all, &err)
						 : NULL;
	if (!t) {
		owner__drop(owner);
		if (err == -EPERM || err == -EACCES)
			log_warn("not permitted to read PID %d: %s; run it with sudo", (int)p->pid,
				 strerror(-err));
		return false;
	}
	t->owner = owner;
	t->came = ++w->came;
	t->since = clock__monotonic();
	t->self.series = take_series(w);
	for (size_t i = 0; i < WATCH_DEVICES; i++)
		t->devices[i].series = COND_SERIES;
	w->targets[w->n_targets++] = t;
	return true;
}

/* Looks for new processes. Those that lost their place are offered again in later scans. */
static void scan_targets(struct watch *w)
{
	watch_find__scan(w->find, add_target, w);
	while (w->n_evicted)
		watch_find__ended(w->find, w->evicted[--w->n_evicted], clock__monotonic());
}

/* Reports that a process has ended, or runs another program (replaced), and removes it. */
static void remove_target(struct watch *w, size_t i, bool replaced)
{
	struct watch_target *t = w->targets[i];

	watch_say__target(w, "ended", t,
			  replaced ? "the process runs another program now"
				   : "the process has ended");
	if (replaced) /* the new program may match, too */
		w->next_scan = 0;
	else if (w->args.on_kill)
		watch_capture__expect(w->captures, t);
	watch_find__ended(w->find, t->pid, clock__monotonic());
	drop_target(w, i);
}

/* ---- rules ---- */

/* Begins a capture, or says why it does not. */
static void begin_capture(struct watch *w, struct watch_target *t, const struct watch_shot *s,
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

/* Rule i has begun to hold: reports it with what grows, runs --exec and begins a capture. */
static void fire_rule(struct watch *w, size_t i, struct watch_target *t, struct watch_device *d,
		      const struct cond_result *r, uint64_t now)
{
	const char *rule = cond__text(w->rules[i].cond);
	struct host_growth_verdict grown;
	struct cond_result said = *r;
	struct watch_shot s;
	char what_grows[320];
	size_t len = strlen(said.text);
	bool explained = watch_host__explain(t, w->rules[i].cond, r->figure, &grown, what_grows,
					     sizeof(what_grows));

	w->rules[i].fired++;
	if (explained)
		snprintf(said.text + len, sizeof(said.text) - len, "; %s", what_grows);
	watch_say__rule(w, "fired", t, d, rule, &said, explained ? &grown : NULL);
	watch_shot__fill(&s, t, rule);
	watch_device__name(t, d, s.device);
	snprintf(s.text, sizeof(s.text), "%s", said.text);
	s.growth = r->figure >= COND_GROWTH;
	s.host = cond__reads_host(r->figure);
	watch_exec__run(w, "fired", &s);
	begin_capture(w, t, &s, now);
}

/* Reports that a rule does not hold any more, once it has not for NORMAL_AFTER. Counts of errors go
 * up only, and their rules are normal at once. */
static void calm_rule(struct watch *w, size_t i, struct watch_target *t, struct watch_device *d,
		      const struct cond_result *r, uint64_t now)
{
	bool counts = r->figure == COND_OOMS || r->figure == COND_RETRIES;
	struct watch_state *state = &d->state[i];

	if (!state->below_since)
		state->below_since = now;
	if (!counts && now - state->below_since < NORMAL_AFTER)
		return;
	state->holds = false;
	w->rules[i].holding--;
	watch_say__rule(w, "normal", t, d, cond__text(w->rules[i].cond), r, /*grown=*/NULL);
}

/* Judges rule i for a device (t->self: the process). Reports when it begins or ceases to hold. */
static void judge_rule(struct watch *w, size_t i, struct watch_target *t, struct watch_device *d,
		       struct cond_values *values, uint64_t now)
{
	struct watch_rule *rule = &w->rules[i];
	struct watch_state *state = &d->state[i];
	struct cond_result result;

	/* Count from the last report of this rule. */
	values->v[COND_OOMS].value = d->ooms - (d->ooms < state->ooms ? d->ooms : state->ooms);
	values->v[COND_RETRIES].value = d->retries -
					(d->retries < state->retries ? d->retries : state->retries);
	if (cond__eval(rule->cond, values, &result))
		return; /* no memory: try again later */
	if (result.verdict == COND_HOLDS)
		state->below_since = 0;
	if (result.verdict == COND_HOLDS && !state->holds) {
		state->holds = true;
		rule->holding++;
		fire_rule(w, i, t, d, &result, now);
	} else if (result.verdict == COND_NO && state->holds) {
		calm_rule(w, i, t, d, &result, now);
	}
	if (result.verdict == COND_UNKNOWN && !state->reported_unknown &&
	    now - t->since >= UNKNOWN_AFTER) {
		state->reported_unknown = true;
		watch_say__rule(w, "unknown", t, d, cond__text(rule->cond), &result,
				/*grown=*/NULL);
	}
	if (state->holds) {
		state->ooms = d->ooms;
		state->retries = d->retries;
	}
}

/* Judges rules on figures of the process once; others for each device that the process has used, or
 * once if it used none. */
static void judge_target(struct watch *w, struct watch_target *t, uint64_t now)
{
	struct cond_values values;

	watch_target__values(t, NULL, now, &values);
	watch_host__values(w, t, &values);
	for (size_t i = 0; i < w->n_rules; i++)
		if (w->rules[i].is_per_process || !t->n_devices)
			judge_rule(w, i, t, &t->self, &values, now);
	for (size_t k = 0; k < t->n_devices; k++) {
		struct watch_device *d = &t->devices[k];

		if (!d->now.peak_reserved && !d->now.reserved)
			continue;
		if (d->series >= COND_SERIES)
			d->series = take_series(w);
		watch_target__values(t, d, now, &values);
		watch_host__values(w, t, &values);
		for (size_t i = 0; i < w->n_rules; i++)
			if (!w->rules[i].is_per_process)
				judge_rule(w, i, t, d, &values, now);
	}
	t->host.fresh = false;
}

/* True if a process has this figure once, and not for each device. */
static bool is_of_process(enum cond_figure f)
{
	switch ((int)f) {
	case COND_RSS:
	case COND_RSS_GROWTH:
	case COND_STEP_TIME:
	case COND_HOST_CGROUP:
		return true;
	default:
		return cond__reads_host(f);
	}
}

/* True if the condition has figures of the process only, none of a device. */
static bool uses_no_device(const struct cond *c)
{
	for (int f = 0; f < COND_NR; f++)
		if (cond__needs(c, f) && !is_of_process(f))
			return false;
	return true;
}

/* Parses the rules, and notes which figures they need. Returns 0 or an exit code, logged. */
static int open_rules(struct watch *w)
{
	static const enum cond_figure of_driver[] = { COND_USED, COND_OTHER, COND_FREE,
						      COND_USED_GROWTH, COND_OTHER_GROWTH };
	char *why;

	for (size_t i = 0; i < w->args.n_rules; i++) {
		struct watch_rule *rule = &w->rules[i];
		int err = cond__parse(w->args.rules[i], &rule->cond, &why);

		if (err) {
			log_err("--rule: %s", why ? why : strerror(-err));
			free(why);
			return err == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
		}
		w->n_rules++;
		if (cond__needs(rule->cond, COND_LOST) || cond__needs(rule->cond, COND_LEAKS)) {
			log_err("--rule '%s': lost and leaks need a recording; use memtrace-bpf "
				"report --fail-if",
				w->args.rules[i]);
			return EXIT_USAGE;
		}
		for (int f = 0; f < COND_FIGURES; f++) {
			if (!cond__is_of_machine(f) || !cond__needs(rule->cond, f))
				continue;
			log_err("--rule '%s': %s is for watch --machine", w->args.rules[i],
				cond__figure_name(f));
			return EXIT_USAGE;
		}
		rule->is_per_process = uses_no_device(rule->cond);
		w->wants_steps |= cond__needs_steps(rule->cond);
		w->wants_rss_growth |= cond__needs(rule->cond, COND_RSS_GROWTH);
		watch_host__need(w, rule->cond);
		for (int f = COND_GROWTH; f < COND_NR; f++)
			w->wants_growth |= cond__needs(rule->cond, f) && !cond__reads_host(f);
		for (size_t k = 0; k < sizeof(of_driver) / sizeof(*of_driver); k++)
			w->wants_used |= cond__needs(rule->cond, of_driver[k]);
	}
	return 0;
}

/* ---- the loop ---- */

static void look_at_targets(struct watch *w, uint64_t now)
{
	for (size_t i = 0; i < w->n_targets;) {
		struct watch_target *t = w->targets[i];
		int err = watch_target__look(t, now, w->wants_steps, w->wants_used);

		if (err) {
			remove_target(w, i, err == -ESTALE);
			continue;
		}
		report_target(w, t);
		judge_target(w, t, now);
		i++;
	}
}

/* True if judge_target() judges the rule for this device (NULL: for the process without a device). */
static bool is_judged(const struct watch_rule *rule, const struct watch_target *t,
		      const struct watch_device *d)
{
	bool once = rule->is_per_process || !t->n_devices;

	return once ? !d : d != NULL;
}

/* Feeds growth rules between two ticks: they need to see the lows of steps. */
static void read_growth(struct watch *w, uint64_t now)
{
	struct cond_values values;

	for (size_t i = 0; i < w->n_targets; i++) {
		struct watch_target *t = w->targets[i];

		if (!watch_target__read_growth(t, w->wants_rss_growth))
			continue;
		for (size_t k = 0; k <= t->n_devices; k++) { /* the last one: no device */
			struct watch_device *d = k < t->n_devices ? &t->devices[k] : NULL;

			if (d && d->series >= COND_SERIES)
				continue;
			watch_target__values(t, d, now, &values);
			for (size_t r = 0; r < w->n_rules; r++)
				if (cond__needs_growth(w->rules[r].cond) &&
				    is_judged(&w->rules[r], t, d))
					cond__feed(w->rules[r].cond, &values);
		}
	}
}

/* Time until the timer fires again, in ns: growth rules need readings between two ticks. */
static uint64_t timer_interval(const struct watch *w)
{
	uint64_t growth_interval = GROWTH_EVERY * (1 + w->n_targets / GROWTH_PROCESSES);

	return w->wants_growth && growth_interval < w->args.every ? growth_interval : w->args.every;
}

/* Looks for processes if that is due, reads and judges all, and goes on with what runs next to
 * that. */
static void tick(struct watch *w, uint64_t now)
{
	if (now >= w->next_scan) {
		scan_targets(w);
		w->next_scan = watch_find__open_ended(w->find) ? now + SCAN_EVERY : UINT64_MAX;
	}
	look_at_targets(w, now);
	if (w->captures)
		watch_capture__pump(w->captures, now);
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

/* Opens a signalfd; returns it, or -1. Blocks its signals for the rest of the process's life.
 * Resets SIGCHLD, because the parent process may have set it to be ignored. */
static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

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

/* True if the duration is over, or nothing is left to watch, to capture or to wait for. */
static bool is_over(const struct watch *w)
{
	if (w->args.duration && clock__monotonic() - w->start >= w->args.duration)
		return true;
	return !w->n_targets && w->next_scan == UINT64_MAX &&
	       !(w->captures && watch_capture__busy(w->captures));
}

/* True if a watched process has ended. */
static bool any_has_ended(const struct pollfd *fds, size_t n)
{
	for (size_t i = 2; i < n; i++) /* after the signals and the timer: pidfds */
		if (fds[i].revents)
			return true;
	return false;
}

/* The interval, changed by up to an eighth, so that readings do not run in step with a program.
 * now: the clock, whose last digits are as good as random. */
static uint64_t vary(uint64_t interval, uint64_t now)
{
	return interval - interval / 8 + now % (interval / 4);
}

/* Waits for signals, the timer and ends of processes, and ticks. Returns 0 at the end, or -errno. */
static int loop(struct watch *w, int signals, int timer)
{
	struct pollfd fds[2 + WATCH_TARGETS] = { { .fd = signals, .events = POLLIN },
						 { .fd = timer, .events = POLLIN } };
	uint64_t ticks;

	set_timer(timer, 1); /* the first tick is at once */
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
		set_timer(timer, vary(timer_interval(w), now));
	}
}

/* Finds the first processes. Returns 0, or an exit code, logged, if nothing can be watched. */
static int begin(struct watch *w)
{
	char title[256];

	scan_targets(w);
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

/* Opens what w needs and watches until the end. Returns an exit code, logged. The caller frees w
 * and all that it has with end(), also after an error. */
static int run(struct watch *w)
{
	struct sysinfo si;
	int signals, timer, status, err = 0;
	bool reads_host;

	w->ram = sysinfo(&si) ? 0 : (uint64_t)si.totalram * si.mem_unit;
	w->start = clock__monotonic();
	w->find = watch_find__new(&w->args.pick);
	if (!w->find) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	if (w->args.output) {
		w->captures = watch_capture__new(w);
		if (!w->captures)
			return EXIT_FAILED;
	}
	reads_host = w->host_needs.parts || w->host_needs.explains;
	w->host = reads_host ? watch_host__new(w) : NULL;
	if (reads_host && !w->host) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	signals = open_signals();
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (signals < 0 || timer < 0) {
		log_err("cannot create a signalfd or a timerfd: %s", strerror(errno));
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
