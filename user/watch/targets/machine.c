/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The recorder of the machine's memory: a look a second, on the disk before the next one. */
#include "watch/watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "inspect/machine.h"
#include "inspect/nvml.h"
#include "record/machine_log.h"

#define LIST_EVERY UINT64_C(30000000000) /* ns between two lists of all processes */
#define UNLISTED_SHARE 64 /* memory of unlisted processes that grew by 1/64 of all: list at once */
#define NORMAL_AFTER UINT64_C(10000000000)  /* ns that a rule is false before it may fire again */
#define UNKNOWN_AFTER UINT64_C(30000000000) /* ns that the driver may take for its first answer */
#define SUBJECTS (1 + GPUS_MAX)		    /* the machine, and each GPU */

struct rule {
	struct cond *cond;
	bool of_gpus; /* it is judged for each GPU */
	bool judged;  /* it could be judged at least once */
	bool holds[SUBJECTS], said_unknown[SUBJECTS];
	uint64_t held[SUBJECTS]; /* time when it held last, CLOCK_MONOTONIC, ns */
	char why[WATCH_TEXT];	 /* why it could not be judged last */
};

struct machine_watch {
	struct watch *w; /* for the lines of events and --exec */
	struct rule rules[WATCH_RULES];
	struct machine_log *log; /* NULL: no folder was given */
	bool failed;		 /* the last write failed, and that was logged */
	uint64_t lost;		 /* looks that could not be written */
	struct machine_readings readings;
	struct machine_ledger ledger;
	struct machine_processes processes;
	uint64_t begin;	    /* CLOCK_MONOTONIC, ns */
	uint64_t next_list; /* time of the next list of processes, CLOCK_MONOTONIC, ns */
	int64_t unlisted;   /* bytes of processes that the last list left out */
	char boot[40];
	struct machine_row row;
};

/* ---- rules ---- */

/* Parses a rule, which may only have figures of the machine and of GPUs. 0 or an exit code. */
static int open_rule(struct rule *rule, const char *text)
{
	char *why = NULL;
	int err = cond__parse(text, &rule->cond, &why);

	if (err) {
		log_err("--rule: %s", why ? why : strerror(-err));
		free(why);
		return err == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
	}
	for (int f = 0; f < COND_NR; f++) {
		if (!cond__needs(rule->cond, f) || cond__is_of_machine(f) || f == COND_FREE)
			continue;
		log_err("--rule '%s': %s is a figure of a process; with --machine there are "
			"machine_free, machine_available, machine_cache and free (of a GPU)",
			text, cond__figure_name(f));
		return EXIT_USAGE;
	}
	rule->of_gpus = cond__needs(rule->cond, COND_FREE);
	return 0;
}

static int open_rules(struct machine_watch *m)
{
	int status = 0;

	for (size_t i = 0; i < m->w->args.n_rules && !status; i++)
		status = open_rule(&m->rules[i], m->w->args.rules[i]);
	return status;
}

static void put_value(struct cond_values *v, enum cond_figure f, uint64_t value, uint64_t whole)
{
	v->v[f] = (struct cond_value){ value != MACHINE_NONE, value, whole };
	v->why[f] = "the kernel does not tell";
}

/* Says that a rule began or ceased to hold, for which it runs --exec, or that it cannot be judged.
 * subject: 0, or 1 + number of a GPU. */
static void say_rule(struct machine_watch *m, const struct rule *rule, const char *event,
		     size_t subject, const char *text)
{
	struct watch_shot *s = calloc(1, sizeof(*s));

	if (!s)
		return;
	s->rank = -1;
	if (subject)
		snprintf(s->device, sizeof(s->device), "gpu:%zu", subject - 1);
	snprintf(s->rule, sizeof(s->rule), "%s", cond__text(rule->cond));
	snprintf(s->text, sizeof(s->text), "%s%s%s", s->device, subject ? ": " : "", text);
	watch_say__shot(m->w, event, s, s->text);
	if (!strcmp(event, "fired"))
		watch_exec__run(m->w, event, s);
	free(s);
}

/* Says once that a rule cannot be judged. The driver may still be starting. */
static void on_unknown(struct machine_watch *m, struct rule *rule, size_t subject, uint64_t now,
		       const char *why)
{
	bool starts = rule->of_gpus && !gpus__answer() && !*gpus__why() &&
		      now - m->begin < UNKNOWN_AFTER;
	char text[WATCH_TEXT];

	snprintf(rule->why, sizeof(rule->why), "%s", why);
	if (rule->said_unknown[subject] || starts)
		return;
	rule->said_unknown[subject] = true;
	snprintf(text, sizeof(text), "rule '%.180s' cannot be judged: %.290s",
		 cond__text(rule->cond), why);
	say_rule(m, rule, "unknown", subject, text);
}

static void judge(struct machine_watch *m, struct rule *rule, size_t subject,
		  const struct cond_values *v)
{
	struct cond_result r;

	if (cond__eval(rule->cond, v, &r))
		return;
	if (r.verdict == COND_UNKNOWN) {
		on_unknown(m, rule, subject, v->time, r.text);
		return;
	}
	rule->judged = true;
	rule->said_unknown[subject] = false;
	/* A GPU answers: if the driver ends again, that is said again. */
	rule->said_unknown[0] = false;
	if (r.verdict == COND_HOLDS) {
		if (!rule->holds[subject])
			say_rule(m, rule, "fired", subject, r.text);
		rule->holds[subject] = true;
		rule->held[subject] = v->time;
	} else if (rule->holds[subject] && v->time - rule->held[subject] >= NORMAL_AFTER) {
		rule->holds[subject] = false;
		say_rule(m, rule, "normal", subject, r.text);
	}
}

/* Judges the rules about the machine, or those about GPUs, for a subject. */
static void judge_all(struct machine_watch *m, bool of_gpus, size_t subject,
		      const struct cond_values *v)
{
	for (size_t i = 0; i < m->w->args.n_rules; i++)
		if (m->rules[i].of_gpus == of_gpus)
			judge(m, &m->rules[i], subject, v);
}

static void judge_rules(struct machine_watch *m, uint64_t now)
{
	const struct gpus_answer *a = gpus__answer();
	uint64_t total = m->ledger.total;
	struct cond_values v = { .time = now };
	unsigned n = a ? gpus__count() : 0;

	put_value(&v, COND_MACHINE_FREE, (uint64_t)m->ledger.line[MACHINE_FREE].bytes, total);
	put_value(&v, COND_MACHINE_AVAILABLE, m->readings.available, total);
	put_value(&v, COND_MACHINE_CACHE, (uint64_t)m->ledger.line[MACHINE_CACHE].bytes, total);
	judge_all(m, /*of_gpus=*/false, 0, &v);
	if (!n) {
		v.why[COND_FREE] = *gpus__why() ? gpus__why()
						: "the NVIDIA driver has not answered so far";
		judge_all(m, /*of_gpus=*/true, 0, &v);
	}
	for (unsigned k = 0; k < n; k++) {
		bool known = a->has_free >> k & 1;

		put_value(&v, COND_FREE, known ? a->free[k] : MACHINE_NONE, gpus__get(k)->total);
		v.why[COND_FREE] = "the driver does not tell the free memory of this GPU";
		v.series = k + 1;
		judge_all(m, /*of_gpus=*/true, k + 1, &v);
	}
}

/* ---- looks ---- */

static void put_gpus(struct machine_row *row)
{
	const struct gpus_answer *a = gpus__answer();

	row->gpus = 0;
	for (unsigned i = 0; a && i < gpus__count() && row->gpus < MACHINE_ROW_GPUS; i++) {
		const char *name = gpus__get(i)->name;

		if (!(a->has_free >> i & 1))
			continue;
		text__clean(row->gpu[row->gpus].name, sizeof(row->gpu[0].name), name, strlen(name));
		row->gpu[row->gpus].total = gpus__get(i)->total;
		row->gpu[row->gpus++].free = a->free[i];
	}
}

static void fill_row(struct machine_watch *m)
{
	struct machine_row *row = &m->row;
	const struct machine_readings *r = &m->readings;
	uint64_t swap = r->swap_total != MACHINE_NONE && r->swap_free <= r->swap_total
				? r->swap_total - r->swap_free
				: 0;

	row->time = clock__read(CLOCK_REALTIME);
	row->uptime = clock__read(CLOCK_BOOTTIME);
	row->every = m->w->args.every;
	memcpy(row->boot, m->boot, sizeof(row->boot));
	row->total = m->ledger.total;
	row->available = r->available == MACHINE_NONE ? 0 : r->available;
	row->large = m->ledger.large;
	row->swap = swap;
	row->lines = MACHINE_LINES;
	for (int i = 0; i < MACHINE_LINES; i++) {
		snprintf(row->line[i].key, sizeof(row->line[i].key), "%s", m->ledger.line[i].key);
		row->line[i].bytes = m->ledger.line[i].bytes;
	}
	row->processes = m->processes.n;
	row->all = m->processes.count <= MACHINE_TOP;
	for (size_t i = 0; i < m->processes.n; i++) {
		const struct machine_process *p = &m->processes.v[i];

		row->process[i].pid = p->pid;
		snprintf(row->process[i].command, sizeof(row->process[i].command), "%s",
			 p->command);
		row->process[i].bytes = p->anon + p->swap;
	}
	put_gpus(row);
}

/* Writes the row of a look to the log. Warns once for each time that writing begins to fail. */
static void write_row(struct machine_watch *m)
{
	int err = m->log ? machine_log__write(m->log, &m->row) : 0;

	if (err && !m->failed)
		log_warn("%s: %s: looks are missing from here on", m->w->args.output,
			 outfile__why(err));
	m->failed = err != 0;
	m->lost += m->failed;
}

/* Says what the recorder could not do. Returns the exit code. */
static int say_failures(const struct machine_watch *m)
{
	int status = EXIT_OK;
	char text[48];

	if (m->lost) {
		log_err("%s: %s could not be written", m->w->args.output,
			text__counted(text, sizeof(text), m->lost, "look"));
		status = EXIT_FAILED;
	}
	for (size_t i = 0; i < m->w->args.n_rules; i++) {
		if (m->rules[i].judged)
			continue;
		log_err("--rule '%s' was never judged: %s", cond__text(m->rules[i].cond),
			m->rules[i].why);
		status = EXIT_FAILED;
	}
	return status;
}

/* Bytes of processes that are not among those listed. */
static int64_t unlisted_now(const struct machine_watch *m)
{
	int64_t bytes = m->ledger.line[MACHINE_PROCESSES].bytes;

	for (size_t i = 0; i < m->processes.n; i++)
		bytes -= (int64_t)m->processes.v[i].anon;
	return bytes;
}

/* Reads the largest processes. All are listed each LIST_EVERY, and at once when others than those
 * listed have grown much: a new process may fill the machine in seconds. */
static void read_processes(struct machine_watch *m, uint64_t now)
{
	int64_t much = (int64_t)(m->ledger.total / UNLISTED_SHARE);

	if (now < m->next_list) {
		machine_processes__refresh(&m->processes);
		if (unlisted_now(m) - m->unlisted < much)
			return;
	}
	machine_processes__read(&m->processes);
	m->next_list = now + LIST_EVERY;
	m->unlisted = unlisted_now(m);
}

/* 0 or -errno. */
static int look(struct machine_watch *m, uint64_t now)
{
	unsigned gpus = gpus__count();
	int err = machine_readings__read(&m->readings);

	if (err)
		return err;
	machine_ledger__make(&m->readings, &m->ledger);
	read_processes(m, now);
	fill_row(m);
	write_row(m);
	judge_rules(m, now);
	/* The answer is for the next look: this one does not wait. */
	if (gpus)
		gpus__ask(UINT64_MAX >> (GPUS_MAX - gpus), now);
	return 0;
}

/* ---- the loop ---- */

/* Waits until `until` (CLOCK_MONOTONIC, ns). True: a signal asks to end. */
static bool wait_until(uint64_t until, const sigset_t *signals)
{
	uint64_t now = clock__monotonic(), ns = until > now ? until - now : 0;
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000) };

	return sigtimedwait(signals, NULL, &t) > 0;
}

static void say_begin(const struct machine_watch *m)
{
	char text[WATCH_TEXT] = "this machine's memory";

	if (m->log)
		snprintf(text, sizeof(text), "this machine's memory, recorded in %s",
			 m->w->args.output);
	watch_say__target(m->w, "watching", NULL, text);
	fflush(stdout);
}

static int run(struct machine_watch *m)
{
	const struct watch_args *a = &m->w->args;
	uint64_t next = clock__monotonic();
	sigset_t signals;
	int err;

	m->begin = next;
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	say_begin(m);
	do {
		uint64_t now = clock__monotonic();

		err = look(m, now);
		watch_exec__pump(now);
		fflush(stdout);
		next = next + a->every > now ? next + a->every : now + a->every;
		if (err) {
			log_err("/proc/meminfo: %s", strerror(-err));
			return EXIT_FAILED;
		}
		if (a->duration && next - m->begin > a->duration)
			break;
	} while (!wait_until(next, &signals));
	m->row.end = true;
	fill_row(m);
	write_row(m);
	return say_failures(m);
}

static const char *why_not_open(int err)
{
	if (err == -EBUSY)
		return "another watch --machine writes there; give another folder";
	if (err == -EPERM)
		return "the folder is another user's; give another one";
	return outfile__why(err);
}

/* Opens the folder of -o. Returns 0 or an exit code, logged. */
static int open_log(struct machine_watch *m)
{
	const struct watch_args *a = &m->w->args;
	int err = a->output ? machine_log__open(a->output, a->max_bytes, &m->log) : 0;

	if (!err)
		return 0;
	log_err("%s: %s", a->output, why_not_open(err));
	return EXIT_FAILED;
}

int watch_machine__run(const struct watch_args *args)
{
	struct machine_watch *m = calloc(1, sizeof(*m));
	int status;

	if (m)
		m->w = calloc(1, sizeof(*m->w));
	if (!m || !m->w) {
		free(m);
		log_err("out of memory");
		return EXIT_FAILED;
	}
	m->w->args = *args;
	io__text("/proc/sys/kernel/random/boot_id", m->boot, sizeof(m->boot));
	m->boot[strcspn(m->boot, "\n")] = '\0';
	gpus__open();
	status = open_rules(m);
	status = status ?: open_log(m);
	status = status ?: run(m);
	watch_exec__finish();
	gpus__close();
	machine_log__close(m->log);
	for (size_t i = 0; i < WATCH_RULES; i++)
		cond__free(m->rules[i].cond);
	free(m->w);
	free(m);
	return status;
}
