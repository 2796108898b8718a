/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/estimate.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "base/user.h"
#include "capture/session.h"
#include "estimate/replay.h"

/* Additional steps of later runs: a run short of memory may repeat later than the first run. */
#define TRY_STEPS 8
#define TRIES 16 /* runs of a search, at most */

/* True if the run ended normally: its steps repeated or grew evenly, it reached the requested
 * steps, or the script succeeded. */
static bool is_whole(const struct estimate_run *run)
{
	switch (run->end) {
	case RUN_REPEATED:
	case RUN_STEPS:
	case RUN_GROWS:
		return true;
	default:
		return run->end == RUN_ENDED && !run->wait_status;
	}
}

/* Writes the path of a file in the folder of the runs. Returns buf. */
static const char *join_path(const struct estimate *e, const char *name, char *buf, size_t size)
{
	snprintf(buf, size, "%s/%s", e->dir, name);
	return buf;
}

/* True if the script runs as another user, who is then *user. run_command__record() reports a wrong
 * user name. */
static bool is_other_user(const struct estimate *e, struct user *user)
{
	bool other = false;

	if (e->args->run.user)
		return !geteuid() && !user__named(user, e->args->run.user);
	return !user__behind_sudo(user, &other) && other;
}

/* Creates the log file of the script, because the script may run as another user. Returns 0 or
 * -errno. */
static int make_log(const struct estimate *e)
{
	struct user user;
	bool other = is_other_user(e, &user);
	char path[128];
	int fd;

	fd = open(join_path(e, "log", path, sizeof(path)),
		  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (other && fchown(fd, user.uid, user.gid)) {
		close(fd);
		return -errno;
	}
	close(fd);
	return 0;
}

/* Makes the folder of the runs, with the log. Returns 0 or an exit code, logged. */
static int make_dir(struct estimate *e)
{
	const char *tmp = getenv("TMPDIR");
	int err;

	if (!tmp || tmp[0] != '/' || strlen(tmp) > sizeof(e->dir) - 32)
		tmp = "/tmp";
	snprintf(e->dir, sizeof(e->dir), "%s/memtrace-estimate-XXXXXX", tmp);
	/* Search permission only: the script must be able to open the log in it. */
	if (!mkdtemp(e->dir) || chmod(e->dir, 0711))
		err = -errno;
	else
		err = make_log(e);
	if (!err)
		return EXIT_OK;
	log_err("cannot make a folder for the recording: %s; set TMPDIR to another folder",
		strerror(-err));
	return EXIT_FAILED;
}

/* Removes the folder and all files that runs leave there. */
static void remove_dir(const struct estimate *e)
{
	static const char *const names[] = { "named.mtr", "full.mtr", "try.mtr", "try.txt", "log" };
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlink(join_path(e, names[i], path, sizeof(path)));
	rmdir(e->dir);
}

/* Runs the script, as one rank of many if requested. Returns 0 or an exit code, logged. */
static int run_ranked(struct estimate *e, struct estimate_run_opts *o,
		      struct run_command_args *args, struct estimate_run *ret)
{
	struct estimate_ranks_args ra = e->args->ranks;
	struct user user;
	struct estimate_ranks *r;
	const char *missing_key;
	int status;

	ra.command = args->command;
	if (!estimate_ranks__wanted(&ra))
		return estimate_run(o, ret);
	r = estimate_ranks__new(&ra, is_other_user(e, &user) ? &user : NULL, &status);
	if (!r)
		return status;
	e->of_ranks = true;
	e->rank = r->rank;
	e->world_size = r->world_size;
	e->local_world_size = r->local_world_size;
	args->command = r->command;
	args->dryrun.env = (const char *const *)r->env;
	if (args->dryrun.devices < e->local_world_size)
		args->dryrun.devices = e->local_world_size;
	status = estimate_run(o, ret);
	missing_key = estimate_ranks__end(r);
	free(e->missing_key);
	e->missing_key = missing_key ? strdup(missing_key) : NULL;
	estimate_ranks__free(r);
	return status;
}

/* Runs the script with vram bytes of memory and records it under this name. lean: without names,
 * until a request is refused. Returns 0 or an exit code, logged. */
static int run_once_more(struct estimate *e, const char *name, uint64_t vram, bool lean,
			 struct estimate_run *ret)
{
	struct run_command_args args = e->args->run;
	char path[128], log[128], quiet[128];
	struct estimate_run_opts o = {
		.args = &args,
		.path = join_path(e, name, path, sizeof(path)),
		.steps = e->args->steps,
		.max_time = e->args->max_time,
		.max_host_memory = e->args->max_host_memory,
		.lean = lean,
		.until_oom = lean,
		/* Later runs repeat the output of the first. */
		.quiet = e->run.time ? join_path(e, "try.txt", quiet, sizeof(quiet)) : NULL,
	};

	unlink(path);
	args.dryrun.vram = vram;
	/* Later runs look for the need, whatever is free now. */
	if (ret != &e->run)
		args.dryrun.held = NULL;
	args.dryrun.context_given = true;
	args.dryrun.context = e->args->context.bytes;
	args.dryrun.log = lean ? NULL : join_path(e, "log", log, sizeof(log));
	if (!lean && make_log(e)) {
		log_err("%s: cannot write: %s", log, strerror(errno));
		return EXIT_FAILED;
	}
	if (e->run.time)
		o.steps_at_most = e->run.steps * 2 + TRY_STEPS;
	*ret = (struct estimate_run){ 0 };
	return run_ranked(e, &o, &args, ret);
}

/* ---- the smallest memory that the script runs with: each try runs it ---- */

struct search {
	struct estimate *e;
	uint64_t fails, fits; /* granules: largest size known or assumed to fail, smallest known or
				 assumed to fit */
	bool fails_run, fits_run;
	const char *why; /* why the search cannot go on; NULL: it can */
};

/* Runs the script. Returns 0 or an exit code, logged. *fits: it ended normally without a refused
 * request. */
static int try_size(struct search *s, uint64_t granules, bool *fits)
{
	struct estimate_smallest *r = &s->e->smallest;
	uint64_t vram = granules * ESTIMATE_GRANULE;
	struct estimate_run run;
	char size[24];
	int status;

	log_info("trying %s", text__bytes(size, sizeof(size), vram));
	status = run_once_more(s->e, "try.mtr", vram, /*lean=*/true, &run);
	if (status)
		return status;
	r->runs++;
	*fits = run.attached && !run.ooms && is_whole(&run);
	if (!*fits && !run.ooms && run.end == RUN_INTERRUPTED)
		s->why = "it was interrupted";
	else if (!*fits && !run.ooms)
		s->why = estimate__failed(&run)
				 ? "the script failed in a run with less memory, but not because "
				   "memory ran out"
				 : "a run with less memory was stopped before it ended";
	if (*fits) {
		s->fits = granules;
		s->fits_run = true;
	} else if (run.ooms) {
		s->fails = granules;
		s->fails_run = true;
	}
	return EXIT_OK;
}

/* True if there are sizes left to try, no run failed for another reason, and TRIES are not over. */
static bool goes_on(const struct search *s)
{
	return !s->why && s->fails + 1 < s->fits && s->e->smallest.runs < TRIES;
}

/* Searches outwards from a guess until one size fails and one fits. guess: in granules. Returns 0
 * or an exit code, logged. */
static int search_around(struct search *s, uint64_t guess)
{
	uint64_t step = 1, at = guess;
	bool fits, up;
	int status;

	if (guess <= s->fails || guess > s->fits)
		return EXIT_OK;
	status = try_size(s, at, &fits);
	up = !fits;
	while (!status && goes_on(s)) {
		if (up)
			at = guess + step;
		else
			at = guess > step ? guess - step : 0;
		step *= 4;
		if (at <= s->fails || at >= s->fits)
			break;
		status = try_size(s, at, &fits);
		if (fits == up)
			break;
	}
	return status;
}

/* Searches between the bounds, then runs the bounds that were only assumed. Returns 0 or an exit
 * code, logged. */
static int bisect(struct search *s)
{
	int status = EXIT_OK;
	bool fits;

	while (!status && goes_on(s))
		status = try_size(s, s->fails + (s->fits - s->fails) / 2, &fits);
	/* Run the assumed bounds, too. */
	if (!status && !s->why && !s->fits_run)
		status = try_size(s, s->fits, &fits);
	if (!status && !s->why && s->fits_run && !s->fails_run && s->fits > 1)
		status = try_size(s, s->fits - 1, &fits);
	return status;
}

/* Guesses the smallest size by a replay through PyTorch's allocator, which is much faster than a
 * run of the script. The script may behave differently with less memory. Returns bytes; 0: no
 * guess. */
static uint64_t guess_by_replay(const struct estimate *e)
{
	struct replay_opts o = { .path = e->full->path,
				 .alloc_conf = e->args->run.dryrun.alloc_conf,
				 .own = true };
	struct user user;
	struct replay_result result;
	struct model_device d;
	struct replay *r;
	struct failure f;
	uint64_t vram = 0;

	model__device(e->full->model, (size_t)e->device, &d);
	o.device = d.device.index;
	o.user = is_other_user(e, &user) ? &user : NULL;
	r = replay__open(&o, &f);
	if (!r || replay__smallest(r, &o, &vram, &result, &f)) {
		log_debug("no guess by a replay: %s", f.text);
		vram = 0;
	}
	replay__close(r);
	return vram;
}

/* Fills e->smallest from the full run. Returns 0 or an exit code, logged. */
static int find_smallest(struct estimate *e)
{
	struct estimate_smallest *r = &e->smallest;
	struct search s = { .e = e };
	int status;

	if (!e->full_is_whole || e->full_run.ooms) {
		r->why = "no run ended without a refused allocation";
		return EXIT_OK;
	}
	/* The peak of reserved bytes always fits; less than the peak of allocated bytes
	 * never does. */
	s.fits = granule__up(e->parts.needs) / ESTIMATE_GRANULE;
	s.fails = granule__down(e->parts.allocated + e->parts.bytes[PART_OUTSIDE] +
				e->parts.bytes[PART_CONTEXT]) /
		  ESTIMATE_GRANULE;
	s.fails -= s.fails != 0;
	if (s.fails < DRYRUN_VRAM_MIN / ESTIMATE_GRANULE)
		s.fails = DRYRUN_VRAM_MIN / ESTIMATE_GRANULE - 1;
	if (s.fits <= s.fails)
		s.fits = s.fails + 1;
	r->guess = guess_by_replay(e);
	status = r->guess ? search_around(&s, r->guess / ESTIMATE_GRANULE) : EXIT_OK;
	if (!status && !s.why)
		status = bisect(&s);
	if (status)
		return status;
	r->found = !s.why && s.fits_run;
	r->vram = s.fits * ESTIMATE_GRANULE;
	r->less_refused = s.fails_run && s.fails + 1 == s.fits;
	r->why = s.why ? s.why : "no run with less memory than the unlimited run ended";
	return EXIT_OK;
}

/* ---- the estimate ---- */

/* Runs the recording through the model. Returns 0 or an exit code, logged. */
static int analyse(struct estimate *e, const char *name, struct analysis **ret)
{
	static const struct model_opts opts = { .at = AT_PEAK };
	char path[128];
	int status = analysis__open(join_path(e, name, path, sizeof(path)), &opts, ret);

	if (status)
		return status;
	(*ret)->doing = "estimating";
	advisor__free(e->advisor);
	e->advisor = advisor__new((*ret)->model, (*ret)->dict, (*ret)->facts);
	if (e->advisor)
		return analysis__run(*ret, advisor__event, e->advisor);
	log_err("out of memory");
	return EXIT_FAILED;
}

const struct estimate_gpu *estimate__gpu(const struct estimate *e, size_t device)
{
	const struct estimate_here *here = e->args->here;
	struct model_device d;

	model__device(e->full->model, device, &d);
	if (!here || d.device.index >= here->n)
		return NULL;
	return &here->gpu[d.device.index];
}

uint64_t estimate__room(const struct estimate *e, size_t device)
{
	const struct estimate_gpu *g = estimate__gpu(e, device);

	return g ? g->free : e->args->vram;
}

/* Chooses the CUDA device that needs most, compared with its memory. Returns 0 or an exit code,
 * logged. */
static int choose_device(struct estimate *e)
{
	const struct model *m = e->full->model;
	struct estimate_parts p;
	struct model_device d;
	int64_t left, least = INT64_MAX;

	e->device = -1;
	for (size_t i = 0; i < model__devices(m); i++) {
		model__device(m, i, &d);
		if (device__on_host(d.device) || !d.allocs)
			continue;
		if (estimate_parts(m, i, e->args->context.bytes, &p)) {
			log_err("out of memory");
			return EXIT_FAILED;
		}
		left = estimate_parts__left(estimate__room(e, i), &p);
		if (e->device >= 0 && left >= least)
			continue;
		least = left;
		e->device = (int)i;
		e->parts = p;
	}
	return EXIT_OK;
}

/* Sets e->context: a figure reported for another CUDA version counts as assumed. */
static void set_context_source(struct estimate *e)
{
	const struct estimate_args *a = e->args;
	struct device_figure f;
	int cuda;

	e->context = a->context;
	if (!a->kind || a->run.dryrun.context_given || !e->full)
		return;
	cuda = device_kind__cuda_version(facts__get(e->full->facts, "torch"));
	if (device_kind__context(a->kind, cuda, &f) && f.bytes == a->context.bytes)
		e->context = f;
}

#define TAIL 2048 /* bytes shown from the end of a script's hidden output */

/* Logs the last lines of the script's hidden output. */
static void show_tail(const struct estimate *e)
{
	char path[128], buf[TAIL + 1], clean[4 * TAIL + 1], *line, *at;
	FILE *f = fopen(join_path(e, "try.txt", path, sizeof(path)), "re");
	size_t n;

	if (!f)
		return;
	if (fseek(f, -TAIL, SEEK_END))
		rewind(f);
	n = fread(buf, 1, TAIL, f);
	fclose(f);
	buf[n] = '\0';
	for (at = buf; (line = strsep(&at, "\n"));)
		if (*line)
			log_info("  %s", text__clean(clean, sizeof(clean), line, strlen(line)));
}

/* Runs the script with unlimited memory after it did not fit. Returns 0 or an exit code, logged. */
static int run_full(struct estimate *e)
{
	int status;

	log_info("it does not fit: running it once more without a memory limit");
	e->full_vram = DRYRUN_VRAM_MAX;
	status = run_once_more(e, "full.mtr", e->full_vram, /*lean=*/false, &e->full_run);
	if (status || !e->full_run.attached || estimate__failed(&e->full_run))
		show_tail(e);
	if (status || !e->full_run.attached) {
		log_err("the run without a memory limit failed");
		return status ? status : EXIT_FAILED;
	}
	return analyse(e, "full.mtr", &e->full);
}

/* Sets the advice and the growth of the device. Returns 0 or an exit code, logged. */
static int judge(struct estimate *e)
{
	const struct analysis *a = e->full;
	size_t device = (size_t)e->device;

	if (!advisor__advise(e->advisor, device, a->duration, &e->advice) &&
	    !growth_summary__of(a->model, a->facts, device, a->duration, &e->growth))
		return EXIT_OK;
	log_err("out of memory");
	return EXIT_FAILED;
}

int estimate__run(struct estimate *e)
{
	char path[128];
	int status = make_dir(e);

	e->device = -1;
	/* The run on the device that the user names. Only if it does not fit, another one without a
	 * limit tells what the script needs. */
	if (!status)
		status = run_once_more(e, "named.mtr", e->args->vram, /*lean=*/false, &e->run);
	if (status || !e->run.attached)
		return status;
	status = analyse(e, "named.mtr", &e->named);
	if (status)
		return status;
	e->verdict = verdict__of(is_whole(&e->run), e->run.ooms);
	e->full = e->named;
	e->full_run = e->run;
	e->full_vram = e->args->vram;
	if (e->verdict == VERDICT_DOES_NOT_FIT && e->run.end != RUN_INTERRUPTED) {
		e->full = NULL;
		status = run_full(e);
	}
	if (status)
		return status;
	e->full_is_whole = is_whole(&e->full_run);
	set_context_source(e);
	if (known__read(join_path(e, "log", path, sizeof(path)), &e->known))
		log_warn("cannot read the log of the dry run: the estimate does not list unknown "
			 "values");
	status = choose_device(e);
	if (e->device < 0 && e->verdict == VERDICT_FITS)
		e->verdict = VERDICT_UNKNOWN; /* the script allocated nothing */
	if (!status && e->device >= 0)
		status = judge(e);
	e->smallest.asked = e->args->min_vram ||
			    (e->verdict == VERDICT_DOES_NOT_FIT && !e->args->no_search);
	if (!status && e->smallest.asked && e->device >= 0)
		status = find_smallest(e);
	return status;
}

void estimate__free(struct estimate *e)
{
	growth_summary__free(&e->growth);
	if (e->full != e->named)
		analysis__free(e->full);
	analysis__free(e->named);
	advisor__free(e->advisor);
	advice__free_list(&e->advice);
	free(e->missing_key);
	known__free(&e->known);
	if (*e->dir)
		remove_dir(e);
}

const char *estimate__bound(const struct estimate *e, size_t i, char *buf, size_t size)
{
	const struct estimate_run *run = &e->full_run;
	const char *reasons[8];
	char bytes[24];
	size_t count = 0;
	struct model_device d = { 0 };

	*buf = '\0';
	if (run->end == RUN_TIME)
		reasons[count++] = "it was stopped after --max-time, before its steps repeated";
	else if (run->end == RUN_HOST_MEMORY)
		snprintf(buf, size,
			 "it was stopped when it used %s of this machine's memory "
			 "(--max-host-memory)",
			 text__bytes(bytes, sizeof(bytes), run->host_memory));
	else if (run->end == RUN_GROWS)
		reasons[count++] = "memory grows from step to step, and later steps need more";
	else if (run->end == RUN_INTERRUPTED)
		reasons[count++] = "it was interrupted";
	else if (estimate__failed(run))
		reasons[count++] = "it failed";
	if (*buf)
		reasons[count++] = buf;
	if (e->missing_key)
		reasons[count++] = "it waited for a value that only another rank sets";
	if (e->known.kinds[KNOWN_DATA_DEPENDENT])
		reasons[count++] = "sizes of some results depend on values that were not computed";
	if (e->device >= 0)
		model__device(e->full->model, (size_t)e->device, &d);
	/* The counter shows losses after the last step, for which the recording has no event. */
	if (d.peak_is != FIGURE_EXACT || facts__get(e->full->facts, "counter.reports_unseen"))
		reasons[count++] = "events were lost";
	else if (d.drift)
		reasons[count++] =
			"some allocations were missed: the allocator's own totals differ";
	if (i >= count)
		return NULL;
	return reasons[i];
}

/* Logs how the script ended, if it failed. */
static void log_failed(const struct estimate *e)
{
	const struct estimate_run *run = e->full ? &e->full_run : &e->run;
	int status = run->wait_status;
	char ending[96];

	if (!estimate__failed(run))
		return;
	if (WIFEXITED(status))
		snprintf(ending, sizeof(ending), "ended with exit status %d", WEXITSTATUS(status));
	else
		snprintf(ending, sizeof(ending), "was ended by signal %d (%s)", WTERMSIG(status),
			 sigdescr_np(WTERMSIG(status)));
	log_err("the command %s: the recording up to that point is no estimate", ending);
}

/* Logs that the script never imported PyTorch. */
static void log_no_torch(const struct estimate *e)
{
	static const char *const ends[] = {
		[RUN_ENDED] = "the command ended",
		[RUN_TIME] = "the command was stopped after --max-time",
		[RUN_HOST_MEMORY] = "the command was stopped when it used more of this machine's "
				    "memory than --max-host-memory allows",
		[RUN_INTERRUPTED] = "the command was interrupted",
	};
	size_t end = e->run.end;

	if (end >= sizeof(ends) / sizeof(*ends) || !ends[end])
		end = RUN_ENDED;
	log_err("%s before its first process imported PyTorch: there is nothing to estimate%s",
		ends[end], e->run.killed_workers ? "; give the Python command that it starts" : "");
}

int estimate__status(const struct estimate *e)
{
	if (e->verdict == VERDICT_DOES_NOT_FIT)
		return EXIT_HELD;
	return e->verdict == VERDICT_FITS && e->device >= 0 ? EXIT_OK : EXIT_UNUSABLE;
}

void estimate__complain(const struct estimate *e)
{
	if (!e->full)
		log_no_torch(e);
	log_failed(e);
	if (e->full && e->device < 0 && !estimate__failed(&e->full_run))
		log_err("PyTorch allocated nothing on a CUDA device: does the script choose the "
			"CPU?");
}
