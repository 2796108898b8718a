/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Without a terminal: every interval what lives and where it came from, as text; at the end the summary. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/session.h"
#include "capture_loop.h"
#include "lib/exit.h"
#include "lib/log.h"
#include "lib/text.h"
#include "live/args.h"
#include "model/model.h"
#include "relatives.h"
#include "report_text.h"

struct live {
	struct sink sink; /* first: the sink is the view */
	const struct live_args *args;
	struct capture_loop loop;
	struct model *model;
	uint64_t next_block;  /* ns since the start */
	uint64_t last_events, last_time;
	uint64_t last_allocated;
	int write_err; /* of standard output, negative */
};

static int on_event(struct sink *s, const struct event *e)
{
	return model__event(((struct live *)s)->model, e);
}

/* "+3.1 MiB" since the last block. */
static const char *change(char *buf, size_t size, uint64_t now, uint64_t before)
{
	char bytes[24];

	snprintf(buf, size, "%s%s", now >= before ? "+" : "-",
		 text__bytes(bytes, sizeof(bytes), now >= before ? now - before : before - now));
	return buf;
}

static void print_head(struct live *l, const struct model_device *d, uint64_t now)
{
	char time[24], live[24], peak[24], delta[32], reserved[24], step[24], rate[32], lost[32];
	uint64_t events = session__events(l->loop.session), span = now - l->last_time;

	if (l->args->capture.children || pick_args__many(&l->args->capture.pick))
		printf("PID %d  ", (int)l->loop.args.pid);
	printf("%s  %s  allocated %s (%s)", text__time(time, sizeof(time), now), d->name,
	       text__bytes(live, sizeof(live), d->allocated), change(delta, sizeof(delta), d->allocated, l->last_allocated));
	if (d->has_totals)
		printf("  reserved %s", text__bytes(reserved, sizeof(reserved), d->reserved));
	printf("  peak %s", text__bytes(peak, sizeof(peak), d->peak_allocated));
	if (model__steps(l->model))
		printf("  step %zu (%s)", model__steps(l->model),
		       text__time(step, sizeof(step), model__step_time(l->model)));
	printf("\n  %s events/s  %s lost\n",
	       text__count(rate, sizeof(rate), span ? (uint64_t)((events - l->last_events) * 1e9 / span) : 0),
	       text__count(lost, sizeof(lost), session__lost(l->loop.session)));
	l->last_events = events;
	l->last_time = now;
	l->last_allocated = d->allocated;
}

/* 0 or the negative error of standard output, which gets no more then. */
static int flush_output(struct live *l)
{
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		l->write_err = errno ? -errno : -EIO;
		__fpurge(stdout);
		clearerr(stdout);
	}
	return l->write_err;
}

/* Who read us has had enough: no failure. */
static int output_status(const struct live *l)
{
	if (l->write_err == -EPIPE)
		return EXIT_OK;
	log_err("cannot write standard output: %s", strerror(-l->write_err));
	return EXIT_FAILED;
}

static int print_block(struct live *l, uint64_t now)
{
	int i = model__main_device(l->model);
	struct report_text_opts opts = { .by = BY_LINE, .when = ROWS_NOW, .top = l->args->top };
	struct model_device d;

	if (i < 0)
		return 0;
	model__device(l->model, i, &d);
	print_head(l, &d, now);
	report_text__table(stdout, l->model, i, session__dict(l->loop.session), session__facts(l->loop.session), &opts);
	printf("\n");
	return flush_output(l);
}

static int on_tick(struct sink *s, uint64_t now)
{
	struct live *l = (struct live *)s;

	if (now < l->next_block)
		return 0;
	l->next_block = now - now % l->args->interval + l->args->interval;
	return print_block(l, now);
}

/* Facts and dict exist once there is a session; the stream's time begins with attaching. */
static int on_attached(void *ctx)
{
	struct live *l = ctx;

	l->next_block = l->args->interval;
	return 0;
}

static int new_model(struct live *l)
{
	const struct model_opts mo = { .at = AT_PEAK };

	l->model = model__new(session__dict(l->loop.session), session__facts(l->loop.session), &mo);
	return l->model ? 0 : -ENOMEM;
}

static int print_summary(struct live *l)
{
	const struct report_text_opts opts = { .by = BY_LINE, .when = ROWS_AT_MARK, .top = l->args->top };

	model__finish(l->model, session__now(l->loop.session));
	report_text__summary(stdout, l->model, model__main_device(l->model), session__dict(l->loop.session),
			     session__facts(l->loop.session), &opts);
	return flush_output(l);
}

/* ---- the other processes of --children: a view each ---- */

static void *child_begin(void *ctx, struct session *s, pid_t pid, unsigned int number, struct sink **sink)
{
	const struct live *first = ctx;
	struct live *l = calloc(1, sizeof(*l));

	(void)number;
	if (!l)
		return NULL;
	l->sink = (struct sink){ .event = on_event, .tick = on_tick };
	l->args = first->args;
	l->loop.session = s;
	l->loop.args.pid = pid;
	l->next_block = l->args->interval;
	if (new_model(l)) {
		free(l);
		return NULL;
	}
	*sink = &l->sink;
	return l;
}

static const char *child_full(void *output)
{
	(void)output;
	return NULL;
}

static void child_end(void *output, const char *reason, int err)
{
	struct live *l = output;

	(void)reason;
	if (err && err != -EPIPE)
		log_err("the capture of PID %d broke off: %s", (int)l->loop.args.pid, strerror(-err));
	else if (!err && session__events(l->loop.session))
		print_summary(l);
	model__free(l->model);
	free(l);
}

static const struct relatives_output children_output = { child_begin, child_full, child_end };

static int run(struct live *l)
{
	struct sink *sinks[] = { &l->sink };
	int status;

	l->loop.sinks = sinks;
	l->loop.n_sinks = 1;
	status = capture_loop__open(&l->loop);
	if (status)
		return status;
	if (capture_loop__many(&l->loop))
		return capture_loop__run(&l->loop);
	if (new_model(l)) {
		log_err("out of memory");
		return EXIT_FAILED;
	}
	status = capture_loop__run(&l->loop);
	if (l->write_err)
		return output_status(l);
	if (l->loop.err)
		log_err("the capture broke off: %s", strerror(-l->loop.err));
	if (!session__now(l->loop.session))
		return status;
	if (print_summary(l) && !status)
		status = output_status(l);
	return status;
}

int live_plain__run(const struct live_args *args)
{
	struct live l = { .sink = { .event = on_event, .tick = on_tick }, .args = args };
	int status;

	l.loop.args = args->capture;
	l.loop.attached = on_attached;
	l.loop.ctx = &l;
	l.loop.output = &children_output;
	status = run(&l);
	model__free(l.model);
	capture_loop__close(&l.loop);
	return status;
}
