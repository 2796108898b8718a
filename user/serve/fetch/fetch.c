/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "serve/fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "serve/fetch/internal.h"

/* ---- names ---- */

static int by_rank(const void *a, const void *b)
{
	const struct fetch_process *x = *(struct fetch_process *const *)a,
				   *y = *(struct fetch_process *const *)b;

	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Names recordings after their ranks, and those whose rank is not known, or not theirs alone, after
 * host and PID. The ranks are the hosts' word until the recordings are here. */
static int name_all(struct fetch *f)
{
	struct fetch_process **all = calloc(f->processes + 1, sizeof(*all));
	size_t n = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++)
			all[n++] = &f->hosts[i].processes[k];
	qsort(all, n, sizeof(*all), by_rank);
	for (size_t i = 0; i < n; i++) {
		bool alone = all[i]->rank >= 0 && (!i || all[i - 1]->rank != all[i]->rank) &&
			     (i + 1 == n || all[i + 1]->rank != all[i]->rank);

		if (alone)
			snprintf(all[i]->stem, sizeof(all[i]->stem), "rank-%" PRId64, all[i]->rank);
		else
			snprintf(all[i]->stem, sizeof(all[i]->stem), "%s-%" PRId64,
				 all[i]->host->is->name, all[i]->pid);
	}
	free(all);
	return 0;
}

/* ---- phases ---- */

static int set_up(struct fetch *f)
{
	const struct http_opts http = { .token = f->o->token,
					.ca = f->o->ca,
					.parallel = f->o->parallel,
					.patience = f->o->timeout };

	sigemptyset(&f->signals);
	sigaddset(&f->signals, SIGINT);
	sigaddset(&f->signals, SIGTERM);
	sigaddset(&f->signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &f->signals, NULL);
	f->n = f->o->hosts->n;
	f->hosts = calloc(f->n + 1, sizeof(*f->hosts));
	f->http = http__new(&http);
	if (!f->hosts || !f->http)
		return -ENOMEM;
	for (size_t i = 0; i < f->n; i++)
		f->hosts[i] = (struct fetch_host){ .f = f,
						   .is = &f->o->hosts->all[i],
						   .error = UINT64_MAX };
	return 0;
}

/* The moment of all windows. */
static void appoint(struct fetch *f)
{
	uint64_t now = clock__read(CLOCK_REALTIME), begin = now + f->o->lead;
	char date[40], time[24];

	if (f->o->align)
		begin = (begin / f->o->align + 1) * f->o->align;
	/* To the millisecond, as the API has it. */
	f->begin = begin / FETCH_MS * FETCH_MS;
	f->begin_monotonic = clock__monotonic() + (f->begin - now);
	f->until = f->begin_monotonic + f->o->duration + f->o->timeout + 10 * FETCH_SECOND;
	log_info("%zu processes on %zu hosts; the window of %s%s begins at %s", f->processes, f->n,
		 f->o->steps ? "at most " : "", text__time(time, sizeof(time), f->o->duration),
		 text__date(date, sizeof(date), f->begin));
}

static int work(struct fetch *f)
{
	f->until = clock__monotonic() + f->o->timeout;
	f->progress = progress__begin("asking hosts", f->n, "processes");
	fetch_ask__all(f);
	progress__end(&f->progress);
	if (f->no_memory || name_all(f))
		return -ENOMEM;
	if (f->processes && !f->interrupted) {
		appoint(f);
		f->progress = progress__begin("fetching", f->processes, "recordings");
		fetch_take__all(f);
		progress__end(&f->progress);
	}
	for (size_t i = 0; i < f->n; i++)
		if (!f->hosts[i].answered && !*f->hosts[i].why)
			snprintf(f->hosts[i].why, sizeof(f->hosts[i].why), "interrupted");
	return f->no_memory ? -ENOMEM : fetch_keep__index(f);
}

static int status_of(const struct fetch *f)
{
	size_t kept = fetch__count(f, FETCH_KEPT);
	bool missing = kept < f->processes;

	for (size_t i = 0; i < f->n; i++)
		missing |= *f->hosts[i].why != '\0';
	return missing ? EXIT_UNUSABLE : EXIT_OK;
}

int fetch__run(const struct fetch_opts *o, FILE *out)
{
	struct fetch f = { .o = o };
	int err = folder__create(o->folder, o->force, &f.folder), status = EXIT_FAILED;

	if (err) {
		log_err("%s: %s", o->folder, folder__why(err));
		return EXIT_FAILED;
	}
	err = set_up(&f);
	if (!err)
		err = work(&f);
	if (err == -ENOMEM)
		log_err("out of memory");
	if (!err) {
		fetch_result__print(&f, out);
		status = status_of(&f);
	}
	http__free(f.http);
	for (size_t i = 0; f.hosts && i < f.n; i++) {
		for (size_t k = 0; k < f.hosts[i].n; k++)
			outfile__discard(f.hosts[i].processes[k].file);
		free(f.hosts[i].processes);
	}
	free(f.hosts);
	folder__free(f.folder);
	return status;
}
