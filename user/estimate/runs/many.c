/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Estimates several ranks of a job, one run each. Prints a row per rank, and the full answer for
 * the rank that needs most. */
#include "estimate/estimate.h"

#include <errno.h>
#include <stdlib.h>

#include "base/exit.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

struct many {
	FILE *out;
	struct estimate_args *args;
	struct json *json;    /* JSON writer; NULL: text output */
	struct estimate most; /* rank that needs most, among those with figures */
	bool have_most;
	int status;
};

static const char *bytes(char buf[24], uint64_t n)
{
	return text__bytes(buf, 24, n);
}

/* Prints the row of a rank. */
static void put_row(const struct many *m, const struct estimate *e)
{
	static const char *const verdicts[] = {
		[VERDICT_FITS] = "fits",
		[VERDICT_DOES_NOT_FIT] = "does not fit",
		[VERDICT_UNKNOWN] = "not known",
	};
	char a[24], b[24], c[24], why[256];

	fprintf(m->out, "%6u  %-12s", e->rank, e->full ? verdicts[e->verdict] : "not known");
	if (e->full && e->device >= 0)
		fprintf(m->out, "  %10s  %10s  %10s%s", bytes(a, e->parts.allocated),
			bytes(b, e->parts.reserved), bytes(c, e->parts.needs),
			estimate__bound(e, 0, why, sizeof(why)) ? "  at least" : "");
	fputc('\n', m->out);
	fflush(m->out);
}

/* The more important exit code: "does not fit" first, then "unknown". */
static int worse_status(int a, int b)
{
	if (a == EXIT_HELD || b == EXIT_HELD)
		return EXIT_HELD;
	return a ? a : b;
}

/* True if the rank has figures, and needs more than those before it. */
static bool needs_most(const struct many *m, const struct estimate *e)
{
	if (!e->full || e->device < 0)
		return false;
	return !m->have_most || e->parts.needs > m->most.parts.needs;
}

/* Prints e, then keeps it if it needs most, or frees it. Returns 0 or -ENOMEM. */
static int finish_rank(struct many *m, struct estimate *e)
{
	int err = 0;

	if (m->json)
		err = estimate_json__put(m->json, e);
	else
		put_row(m, e);
	estimate__complain(e);
	m->status = worse_status(m->status, e->full ? estimate__status(e) : EXIT_UNUSABLE);
	if (m->json || !needs_most(m, e)) {
		estimate__free(e);
		return err;
	}
	if (m->have_most)
		estimate__free(&m->most);
	m->most = *e;
	m->have_most = true;
	return err;
}

/* Estimates n ranks, one after the other. Returns 0 or an exit code, logged. */
static int run_all(struct many *m, const unsigned *ranks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct estimate e = { .args = m->args };
		int status;

		m->args->ranks.rank = ranks[i];
		log_info("rank %u (%zu of %zu)", ranks[i], i + 1, n);
		status = estimate__run(&e);
		if (status) {
			estimate__free(&e);
			return status;
		}
		if (e.run.end == RUN_INTERRUPTED)
			n = i + 1; /* skip the other ranks */
		if (finish_rank(m, &e)) {
			log_err("out of memory");
			return EXIT_FAILED;
		}
	}
	return EXIT_OK;
}

/* Parses the list of ranks. Returns 0 or an exit code, logged. *n: their number. */
static int choose_ranks(const struct estimate_args *args, unsigned **ranks, size_t *n)
{
	const char *why = "expected numbers as 0,1,63 or 0-3 or all";
	struct estimate_ranks_args ra = args->ranks;
	unsigned world, local;
	int err;

	ra.command = args->run.command;
	if (estimate_ranks__size(&ra, &world, &local))
		return EXIT_USAGE;
	err = estimate_ranks__parse(args->rank_list, world, ranks, n);
	if (!err)
		return EXIT_OK;
	if (err == -ERANGE)
		why = "the job has fewer ranks; --world-size sets their number";
	else if (err == -E2BIG)
		why = "at most 1024 ranks are possible";
	else if (err == -ENOMEM)
		why = "out of memory";
	log_err("--rank: '%s': %s", args->rank_list, why);
	return err == -ENOMEM ? EXIT_FAILED : EXIT_USAGE;
}

int estimate_many(FILE *out, struct estimate_args *args)
{
	struct many m = { .out = out, .args = args };
	unsigned *ranks;
	size_t n;
	int status = choose_ranks(args, &ranks, &n), err = 0;

	if (status)
		return status;
	if (args->format == ESTIMATE_JSON) {
		m.json = json__new(out, true);
		if (!m.json) {
			free(ranks);
			log_err("out of memory");
			return EXIT_FAILED;
		}
		json__open_object(m.json, NULL);
		json__open_array(m.json, "ranks");
	} else {
		fputs("  Rank                 Allocated    Reserved      In all\n", out);
	}
	status = run_all(&m, ranks, n);
	if (m.json) {
		json__close_array(m.json);
		json__close_object(m.json);
		json__free(m.json);
	} else if (m.have_most) {
		fprintf(out, "\nRank %u, which needs most:\n", m.most.rank);
		err = status ? 0 : estimate_text(out, &m.most);
	}
	if (m.have_most)
		estimate__free(&m.most);
	free(ranks);
	if (err)
		log_err("out of memory");
	if (status)
		return status;
	return err ? EXIT_FAILED : m.status;
}
