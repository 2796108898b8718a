/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * --malloc-probes: a sample of the blocks inside malloc (bpf/malloc.bpf.h). Every call of malloc
 * and free of the process pays for a probe. So the probes first only count: with their number, and
 * the cost of a hit on this host, the session goes on or refuses. Later it looks twice a second and
 * removes the probes when they cost more than the limit.
 */
#include "capture/session/session_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/decode/decoder.h"
#include "inspect/container.h"
#include "inspect/elf.h"
#include "inspect/hostmem.h"
#include "inspect/proc.h"

#define EVERY (512ULL << 10) /* bytes: as tcmalloc and jemalloc */
#define LIMIT 0.05	     /* without --cost: share of a core */
#define COUNTS 250000000ULL  /* ns that the probes only count */
#define EVERY_MAX (1ULL << 31)
#define SAMPLES 1000 /* blocks in a second, above which fewer are chosen */
#define DEAR_LOOKS 4 /* looks in a row above the limit, until the probes are removed */

/* Why malloc of this process cannot be probed, static text; NULL: it can. */
static const char *why_not(const struct session *session)
{
	struct utsname un;

	if (session->opts.group || session->opts.inside)
		return "--malloc-probes takes one process, and the kernel must record it: leave "
		       "out --children and --inside";
	if (probes__everywhere(session->probes))
		return "on this kernel (Linux 6.6 to 6.9) probes for one process miss threads, and "
		       "probes in all processes would slow down the whole machine. Linux 6.10 has "
		       "the fix; as root, memtrace-bpf needs none";
	if (!seccomp__allows_returns(session->target.proc))
		return "it has a seccomp filter, and on this kernel (Linux 6.11 to 6.13) the "
		       "filter "
		       "would end it at the first return probe. Linux 6.12.14, 6.13.3 and 6.14 "
		       "have the fix";
	if (proc__shadow_stack(session->target.proc) &&
	    (uname(&un) || !seccomp__keeps_shadow_stack(un.release)))
		return "it has a shadow stack, and before Linux 6.11 a return probe would end it";
	return NULL;
}

/* Attaches one of the programs of malloc to a file: to its frees with CALL_MALLOC_FREE, otherwise
 * to its other functions. */
static int attach_which(struct session *session, const struct malloc_file *functions,
			const struct call_file *file, enum call_probe which)
{
	struct probe_site sites[MALLOCS_SITES_MAX];
	size_t n = 0;

	for (size_t i = 0; i < functions->n; i++)
		if (!functions->site[i].how == (which == CALL_MALLOC_FREE))
			sites[n++] = (struct probe_site){ .offset = functions->site[i].offset,
							  .cookie = functions->site[i].how };
	return probes__attach_calls(session->probes, proc__pid(session->target.proc), which, file,
				    sites, n);
}

/* Attaches to malloc's functions in a file. Frees come first: no free of a block of the sample is
 * missed. 0 or -errno. */
static int attach_file(struct session *session, const struct map *map,
		       const struct malloc_file *functions)
{
	const struct call_file file = { functions->elf, map->inode, map->dev_major,
					map->dev_minor };
	struct measure *measure = &session->malloc.measure;
	int err = attach_which(session, functions, &file, CALL_MALLOC_FREE);

	if (err)
		return err;
	for (size_t i = 0; i < functions->n_own; i++)
		probes__add_malloc_code(session->probes, functions->own[i][0],
					functions->own[i][1]);
	for (size_t i = 0; i < functions->n; i++)
		measure->stepped[functions->site[i].how ? MT_REC_MALLOC : MT_REC_MALLOC_FREE] |=
			functions->site[i].stepped &&
			(!functions->site[i].how || !strcmp(functions->site[i].name, "malloc"));
	if (probes__has_sessions(session->probes))
		return attach_which(session, functions, &file, CALL_MALLOC);
	measure->returns = true;
	err = attach_which(session, functions, &file, CALL_MALLOC_RETURN);
	return err ? err : attach_which(session, functions, &file, CALL_MALLOC_ENTER);
}

/* Adds the name of a file with malloc to the names for messages and the fact. */
static void add_name(struct session *session, const struct map *map)
{
	char *names = session->malloc.files;
	size_t used = strlen(names);
	const char *base = map__base_name(map->path);
	char name[64];

	text__clean(name, sizeof(name), base, strlen(base));
	snprintf(names + used, sizeof(session->malloc.files) - used, "%s%s", used ? ", " : "",
		 name);
}

/* Probes malloc in one file, and says what cannot be probed. 0 or negative with *fail. */
static int probe_file(struct session *session, const struct map *map,
		      const struct malloc_file *file, struct failure *fail)
{
	int pid = proc__pid(session->target.proc);
	int err;

	if (file->misses_ends)
		return failure__set(fail, EXIT_UNUSABLE, -EOPNOTSUPP,
				    "--malloc-probes: PID %d: no probe is possible on %s in %s, so "
				    "freed blocks would seem to live on; --host alone works",
				    pid, file->refused, map->path);
	err = attach_file(session, map, file);
	if (err)
		return failure__set(fail, EXIT_NOT_PERMITTED, err,
				    "--malloc-probes: PID %d: no probes on malloc in %s: %s", pid,
				    map->path, strerror(-err));
	if (file->refused)
		log_warn("%s: no probe is possible on %s: its blocks have no rows", map->path,
			 file->refused);
	if (file->has_new)
		log_warn(
			"%s has operators new of its own, which are not probed, since an exception "
			"must not pass a return probe: objects made by them have no rows",
			map->path);
	add_name(session, map);
	return 0;
}

/* True if an earlier mapping is code of the same file. */
static bool was_seen(const struct maps *maps, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (maps->v[k].x && map__same_file(&maps->v[k], &maps->v[i]))
			return true;
	return false;
}

/* Probes malloc in all files that the process maps. 0 or negative with *failure. */
static int probe_files(struct session *session, const struct maps *maps, struct failure *failure)
{
	for (size_t i = 0; i < maps->n; i++) {
		const struct map *map = &maps->v[i];
		struct malloc_file file;
		int err;

		if (!map->x || !map->inode || map->path[0] != '/' || was_seen(maps, i) ||
		    mallocs__look(session->target.proc, maps, map, &file) || !file.elf)
			continue;
		err = probe_file(session, map, &file, failure);
		elf__free(file.elf);
		if (err)
			return err;
	}
	if (*session->malloc.files)
		return 0;
	return failure__set(
		failure, EXIT_UNUSABLE, -ENOEXEC,
		"--malloc-probes: PID %d: no file that it maps has functions malloc and "
		"free. Programs in Go and Java have allocators of their own, and a "
		"static program needs its symbols: record it with --host alone",
		(int)proc__pid(session->target.proc));
}

/* Share of a core that the probes took since the last look; negative: not known. Sets *calls to the
 * number of calls so far. */
static double look(struct session *session, uint64_t *calls)
{
	struct measure *measure = &session->malloc.measure;
	uint64_t counters[MT_CNT_NR], now = clock__monotonic(), since = measure->wall;
	double before = measure->added;

	if (probes__counters(session->probes, session->opts.number, counters) ||
	    !proc__alive(session->target.proc))
		return -1;
	*calls = counters[MT_CNT_HIT + MT_REC_MALLOC] + counters[MT_CNT_HIT + MT_REC_MALLOC_FREE];
	measure__look(measure, counters, probes__timed(session->probes), now, now);
	session->malloc.took += since ? now - since : 0;
	return since && now > since ? (measure->added - before) / (double)(now - since) : 0;
}

static void pause_ns(uint64_t ns)
{
	const struct timespec t = { .tv_nsec = (long)ns };

	nanosleep(&t, NULL);
}

/* A limit in percent that a process with this share (0.02: 2 %) stays below, also if it is half as
 * busy again at times. */
static double enough(double share)
{
	double percent = ceil(share * 150); /* 100 for percent, 1.5 for busy moments */

	return percent > 100 ? 100 : percent;
}

/* Lets the probes count for a moment, and tells what they will cost. 0, or negative with *failure:
 * more than the limit. */
static int judge_cost(struct session *session, struct failure *failure)
{
	struct session_malloc *state = &session->malloc;
	uint64_t before = 0, after = 0, from = clock__monotonic(), took;
	double share, rate;
	char calls[32];

	look(session, &before);
	pause_ns(COUNTS);
	share = look(session, &after);
	took = clock__monotonic() - from;
	if (share < 0 || took == 0)
		return failure__set(
			failure, EXIT_UNUSABLE, -ESRCH,
			"--malloc-probes: the calls of malloc cannot be counted: PID %d "
			"has ended",
			(int)proc__pid(session->target.proc));
	rate = (double)(after - before) * 1e9 / (double)took;
	text__count(calls, sizeof(calls), (uint64_t)rate);
	if (share <= state->limit) {
		log_info("PID %d calls malloc and free %s times a second: the probes take about "
			 "%.1f %% of a core (%g %% are allowed)",
			 (int)proc__pid(session->target.proc), calls, share * 100,
			 state->limit * 100);
		return 0;
	}
	return failure__set(failure, EXIT_NOT_PERMITTED, -EDQUOT,
			    "--malloc-probes: PID %d calls malloc and free %s times a second: the "
			    "probes would take about %.1f %% of a core, and %g %% are allowed. To "
			    "record it in spite of that, allow more: --cost %.0f%%. Without "
			    "--malloc-probes, --host has lines for the calls that made memory grow",
			    (int)proc__pid(session->target.proc), calls, share * 100,
			    state->limit * 100, enough(share));
}

int session__attach_malloc(struct session *session, struct failure *failure)
{
	struct session_malloc *state = &session->malloc;
	const char *why = session->opts.malloc_probes ? why_not(session) : NULL;
	struct maps maps;
	int err;

	if (!session->opts.malloc_probes)
		return 0;
	if (why)
		return failure__set(failure, EXIT_NOT_PERMITTED, -EOPNOTSUPP,
				    "--malloc-probes: PID %d is not probed: %s",
				    (int)proc__pid(session->target.proc), why);
	state->measure.malloc = true;
	err = probes__hit_cost(HIT_OFTEN, &state->measure.hit);
	if (err)
		return failure__set(failure, EXIT_NOT_PERMITTED, err,
				    "--malloc-probes: the cost of a probe on this host cannot be "
				    "measured: %s",
				    strerror(-err));
	state->limit = session->opts.cost ?: LIMIT;
	if (proc__maps(session->target.proc, &maps))
		return failure__set(failure, EXIT_UNUSABLE, -ESRCH, "PID %d ended while attaching",
				    (int)proc__pid(session->target.proc));
	err = probe_files(session, &maps, failure);
	maps__free(&maps);
	/* A command that begins now says nothing about its later rate. */
	if (err || session->opts.started)
		return err;
	return judge_cost(session, failure);
}

/* One byte in `every` is in the sample from now on. 0 or -ENOMEM. */
static int sample(struct session *session, uint64_t every)
{
	session->malloc.every = every;
	probes__sample_malloc(session->probes, every);
	return facts__setf(session->facts, "malloc.every", "%" PRIu64, every);
}

int session__begin_malloc(struct session *session)
{
	if (!session->opts.malloc_probes)
		return 0;
	session->malloc.on = true;
	return sample(session, EVERY) |
			       facts__set(session->facts, "malloc.files", session->malloc.files)
		       ? -ENOMEM
		       : 0;
}

/* Chooses half as many blocks from now on if there are too many to read all their stacks. 0 or
 * -ENOMEM. */
static int limit_samples(struct session *session, uint64_t since)
{
	struct session_malloc *state = &session->malloc;
	uint64_t n = probes__records(session->probes, session->opts.number, MT_REC_MALLOC),
		 more = n - state->samples;

	state->samples = n;
	if (more * 1000000000 <= SAMPLES * since || state->every >= EVERY_MAX)
		return 0;
	return sample(session, state->every * 2);
}

int session__pump_malloc(struct session *session, uint64_t now)
{
	struct session_malloc *state = &session->malloc;
	uint64_t calls, since;
	double share;

	if (!state->on || session->stopped || now < state->next)
		return 0;
	since = state->looked ? now - state->looked : COST_EVERY;
	state->looked = now;
	state->next = now + COST_EVERY;
	share = look(session, &calls);
	if (share < 0)
		return 0;
	state->dear = share > state->limit ? state->dear + 1 : 0;
	if (facts__setf(session->facts, "malloc.share", "%.6f",
			state->measure.added / (double)(state->took + 1)))
		return -ENOMEM;
	if (state->dear < DEAR_LOOKS)
		return limit_samples(session, since);
	state->on = false;
	probes__sample_malloc(session->probes, 0);
	probes__detach_malloc(session->probes);
	log_warn("PID %d: the probes on malloc take %.1f %% of a core, %g %% are allowed: they "
		 "are removed, and the device \"malloc\" stays as it is now. --cost allows more",
		 (int)proc__pid(session->target.proc), share * 100, state->limit * 100);
	return facts__setf(session->facts, "malloc.removed_ns", "%" PRIu64, now) ? -ENOMEM : 0;
}
