/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The push process: receives state from the broker and sends it to other servers at intervals. */
#include "serve/push/push.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"

#define TIMEOUT_S 30	/* time limit of a post */
#define BACKOFF_MS 1000 /* before the second attempt */
#define ATTEMPTS 6	/* to send a post */
#define SECOND UINT64_C(1000000000)
/* Default intervals. Profiles are rarer because each needs a capture. */
#define FIGURES_EVERY (15 * SECOND)
#define PROFILES_EVERY (300 * SECOND)
#define PROFILE_TAKES (5 * SECOND) /* default length of a capture for a profile */
#define END_TIMEOUT (3 * SECOND)   /* time for pending posts after SIGTERM */

struct push {
	const struct serve_args *args;
	struct link *link;
	struct state state;
	struct sender *sender;
	struct profiles *profiles; /* rounds of profiles; NULL: not pushed */
	char *otlp_url;		   /* URL for metrics; NULL: not pushed */
	char *profiles_url;	   /* URL for OTLP profiles; NULL: not pushed */
	char host[256];
	int signals;
	uint64_t last_id;		    /* ID of the last request to the broker */
	uint64_t now;			    /* monotonic, ns */
	uint64_t figures_due, profiles_due; /* next push in ns, monotonic; UINT64_MAX: never */
	bool gone;			    /* the broker has ended */
	bool ending;			    /* a signal ends this process */
	/* counts last reported; initially invalid, so that zeroes are reported too */
	struct push_counts reported[PUSH_NR];
};

/* For link__pump(): takes an event or an answer of the broker. */
static void on_message(void *ctx, json_t *msg, int fd)
{
	struct push *p = ctx;
	struct state_trace *trace;

	if (json_object_get(msg, "event"))
		serve_state__take(&p->state, msg, fd, &trace);
	else if ((!p->profiles || !profiles__answered(p->profiles, msg, fd, p->now)) && fd >= 0)
		close(fd);
}

/* Queues the present figures of all processes. */
static void push_figures(struct push *p)
{
	json_t *doc = otlp__metrics(&p->state, *p->host ? p->host : NULL,
				    clock__read(CLOCK_REALTIME));
	char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;

	if (text)
		sender__post(p->sender, PUSH_OTLP, p->otlp_url, "application/json", text,
			     strlen(text));
	json_decref(doc);
}

/* Counts of a server's posts. Profiles that could not be made count for each server of profiles. */
static struct push_counts counts_of(struct push *p, enum push_to to)
{
	struct push_counts c = sender__counts(p->sender, to);

	if ((to == PUSH_PYROSCOPE && p->args->push_pyroscope) ||
	    (to == PUSH_OTLP_PROFILES && p->args->push_otlp_profiles))
		c.failed += profiles__failed(p->profiles);
	return c;
}

static json_t *counts_json(const struct push_counts *c)
{
	return json_pack("{s:I, s:I, s:I}", "sent", (json_int_t)c->sent, "failed",
			 (json_int_t)c->failed, "dropped", (json_int_t)c->dropped);
}

/* Reports changed counts to the broker, for /metrics. */
static void report_counts(struct push *p)
{
	struct push_counts now[PUSH_NR];
	json_t *msg;

	for (int i = 0; i < PUSH_NR; i++)
		now[i] = counts_of(p, i);
	if (!memcmp(now, p->reported, sizeof(now)))
		return;
	memcpy(p->reported, now, sizeof(now));
	msg = json_pack("{s:I, s:s}", "id", (json_int_t)++p->last_id, "do", "pushed");
	if (p->args->push_pyroscope)
		json_object_set_new(msg, "pyroscope", counts_json(&now[PUSH_PYROSCOPE]));
	if (p->profiles_url)
		json_object_set_new(msg, "otlp_profiles", counts_json(&now[PUSH_OTLP_PROFILES]));
	if (p->otlp_url)
		json_object_set_new(msg, "otlp", counts_json(&now[PUSH_OTLP]));
	link__send(p->link, msg, /*fd=*/-1);
}

/* Prepares everything. Returns 0 or -errno; stop_push() is needed in any case. */
static int start_push(struct push *p, int link_fd)
{
	struct sender_opts o = { .token = p->args->secrets.push_token,
				 .ca = p->args->secrets.ca,
				 .timeout = TIMEOUT_S,
				 .backoff = BACKOFF_MS,
				 .attempts = ATTEMPTS };
	sigset_t set;

	serve_state__init(&p->state);
	p->link = link__new(link_fd);
	if (gethostname(p->host, sizeof(p->host) - 1))
		*p->host = '\0';
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	p->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (p->signals < 0)
		return -errno;
	if (!p->link || curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	p->sender = sender__new(&o);
	if (!p->sender)
		return -errno;
	if (p->args->push_otlp && !(p->otlp_url = otlp__url(p->args->push_otlp, OTLP_METRICS)))
		return -ENOMEM;
	if (p->args->push_otlp_profiles &&
	    !(p->profiles_url = otlp__url(p->args->push_otlp_profiles, OTLP_PROFILES)))
		return -ENOMEM;
	if (p->args->push_pyroscope || p->profiles_url) {
		uint64_t takes = p->args->push_profile ?: PROFILE_TAKES;
		struct profiles_opts po = { .pyroscope = p->args->push_pyroscope,
					    .otlp = p->profiles_url,
					    .host = *p->host ? p->host : NULL,
					    .seconds = (double)takes / 1e9,
					    .link = p->link,
					    .state = &p->state,
					    .sender = p->sender,
					    .last_id = &p->last_id };

		p->profiles = profiles__new(&po);
		if (!p->profiles)
			return -ENOMEM;
	}
	return 0;
}

static void stop_push(struct push *p)
{
	profiles__free(p->profiles);
	sender__free(p->sender);
	link__free(p->link);
	serve_state__release(&p->state);
	free(p->otlp_url);
	free(p->profiles_url);
	if (p->signals >= 0)
		close(p->signals);
	curl_global_cleanup();
}

/* Starts pushes that are due. The first starts when a process is known. */
static void push_due(struct push *p)
{
	uint64_t every = p->args->push_every;

	if (p->ending || !p->state.n_processes)
		return;
	if (p->now >= p->figures_due) {
		p->figures_due = p->now + (every ? every : FIGURES_EVERY);
		push_figures(p);
	}
	if (p->now >= p->profiles_due) {
		p->profiles_due = p->now + (every ? every : PROFILES_EVERY);
		profiles__begin(p->profiles);
	}
}

/* Milliseconds until the next push, at most ms. Without processes, a due push waits 1 s. */
static int limit_wait(const struct push *p, int ms)
{
	uint64_t due = p->figures_due < p->profiles_due ? p->figures_due : p->profiles_due;
	uint64_t left = p->state.n_processes ? 0 : 1000;

	if (due > p->now)
		left = (due - p->now) / 1000000 + 1;
	return left < (uint64_t)ms ? (int)left : ms;
}

/* Waits for something to do and does it. */
static void run_once(struct push *p)
{
	struct pollfd fds[2] = { { p->signals, POLLIN, 0 },
				 { link__fd(p->link), link__events(p->link), 0 } };
	struct signalfd_siginfo info;

	sender__turn(p->sender, fds, /*n=*/2, limit_wait(p, sender__sleep(p->sender, p->now)));
	p->now = clock__read(CLOCK_MONOTONIC);
	if (link__pump(p->link, on_message, p))
		p->gone = true;
	if (p->profiles && !p->ending)
		profiles__step(p->profiles, p->now);
	push_due(p);
	report_counts(p);
	while (read(p->signals, &info, sizeof(info)) == sizeof(info))
		p->ending = true;
}

int push__run(const struct serve_args *args, int link_fd)
{
	struct push p = {
		.args = args, .signals = -1, .figures_due = UINT64_MAX, .profiles_due = UINT64_MAX
	};
	uint64_t last;
	int err = start_push(&p, link_fd);

	if (args->push_otlp)
		p.figures_due = 0;
	if (args->push_pyroscope || args->push_otlp_profiles)
		p.profiles_due = 0;
	if (err) {
		log_err("push: %s", strerror(-err));
		stop_push(&p);
		return EXIT_FAILED;
	}
	memset(p.reported, 0xff, sizeof(p.reported));
	p.now = clock__read(CLOCK_MONOTONIC);
	while (!p.gone && !p.ending)
		run_once(&p);
	last = clock__read(CLOCK_MONOTONIC) + END_TIMEOUT;
	while (!p.gone && sender__waiting(p.sender) && p.now < last)
		run_once(&p);
	stop_push(&p);
	return 0;
}
