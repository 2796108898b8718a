/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/runs/ranks.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/log.h"
#include "capture/preload.h"
#include "estimate/runs/launch.h"
#include "estimate/store/tcp_store_serve.h"

#define MAX_ENV 40
#define MACHINE 8u	 /* default of ranks per machine */
#define RANKS_LIST 1024u /* most entries of a list; each takes a run */

struct estimate_ranks {
	unsigned rank, world_size, local_world_size;
	struct launch launch;
	char **command; /* command of the launcher, or as given */
	struct tcp_store_server *server;
	char *env[MAX_ENV + 1];
	size_t n_env;
};

/* Parses the command line. Returns 0, or -EINVAL, logged. */
static int parse_command(const struct estimate_ranks_args *a, struct launch *l)
{
	char why[LAUNCH_WHY];
	int err = launch__parse(a->command, l, why);

	if (err == -EINVAL)
		log_err("%s; give the script itself with --world-size N instead", why);
	else if (err)
		log_err("out of memory");
	else if (l->launcher == LAUNCHER_OTHER && a->world_size) {
		log_err("cannot tell which processes %s starts: give the script itself with "
			"--world-size N, and set the variables that %s would set",
			l->name, l->name);
		return -EINVAL;
	}
	return err ? -EINVAL : 0;
}

bool estimate_ranks__wanted(const struct estimate_ranks_args *a)
{
	struct launch l;
	char why[LAUNCH_WHY];
	bool ret;

	if (a->world_size || a->rank || a->local_world_size)
		return true;
	/* estimate_ranks__new() reports a command line that does not parse. */
	if (launch__parse(a->command, &l, why))
		return true;
	ret = l.launcher != LAUNCHER_NONE && l.launcher != LAUNCHER_OTHER;
	launch__free(&l);
	return ret;
}

/* The largest number of ranks per machine up to 8 that divides the world size. */
static unsigned default_local_size(unsigned world_size)
{
	unsigned n = world_size < MACHINE ? world_size : MACHINE;

	while (world_size % n)
		n--;
	return n;
}

static int find_sizes(const struct estimate_ranks_args *a, const struct launch *l,
		      unsigned *world_size, unsigned *local)
{
	unsigned long long all = a->world_size;
	unsigned processes = a->local_world_size ? a->local_world_size : l->processes;

	if (!all)
		all = l->all;
	if (!all && (l->launcher == LAUNCHER_TORCHRUN || l->launcher == LAUNCHER_LAUNCH)) {
		if (!processes || !l->nodes) {
			log_err("%s: cannot tell how many processes it would start: give "
				"--world-size N and --local-world-size N",
				l->name);
			return -EINVAL;
		}
		all = (unsigned long long)l->nodes * processes;
	}
	if (!all && l->launcher == LAUNCHER_ACCELERATE) {
		log_err("accelerate launch: the number of processes is missing: give "
			"--num_processes N or --world-size N (its configuration file is not read)");
		return -EINVAL;
	}
	if (!all)
		all = a->local_world_size ? a->local_world_size : 1;
	if (all > ESTIMATE_WORLD_MAX) {
		log_err("%llu ranks are too many: at most %u", all, ESTIMATE_WORLD_MAX);
		return -EINVAL;
	}
	*world_size = (unsigned)all;
	if (!processes && l->all && l->nodes && l->all % l->nodes == 0)
		processes = l->all / l->nodes;
	/* The launcher's ranks per machine may not divide the given world size. */
	if (!a->local_world_size &&
	    (!processes || processes > *world_size || *world_size % processes))
		processes = default_local_size(*world_size);
	if (processes > *world_size || *world_size % processes || processes > DRYRUN_DEVICES_MAX) {
		log_err("--local-world-size %u: it must divide the world's %u ranks, and be no "
			"more than %d",
			processes, *world_size, DRYRUN_DEVICES_MAX);
		return -EINVAL;
	}
	*local = processes;
	return 0;
}

int estimate_ranks__size(const struct estimate_ranks_args *a, unsigned *world_size,
			 unsigned *local_world_size)
{
	struct launch l;
	int err = parse_command(a, &l);

	if (err)
		return err;
	err = find_sizes(a, &l, world_size, local_world_size);
	launch__free(&l);
	return err;
}

__attribute__((format(printf, 2, 3))) static void add(struct estimate_ranks *r, const char *fmt,
						      ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (r->n_env < MAX_ENV && vasprintf(&r->env[r->n_env], fmt, ap) >= 0)
		r->n_env++;
	else
		r->env[r->n_env] = NULL;
	va_end(ap);
}

/* Sets torchrun's variables. TORCHELASTIC_USE_AGENT_STORE makes rank 0 a client, too. */
static int make_env(struct estimate_ranks *r)
{
	const struct launch *l = &r->launch;
	const size_t base = 18;

	add(r, "RANK=%u", r->rank);
	add(r, "WORLD_SIZE=%u", r->world_size);
	add(r, "LOCAL_RANK=%u", r->rank % r->local_world_size);
	add(r, "LOCAL_WORLD_SIZE=%u", r->local_world_size);
	add(r, "GROUP_RANK=%u", r->rank / r->local_world_size);
	add(r, "GROUP_WORLD_SIZE=%u", r->world_size / r->local_world_size);
	add(r, "ROLE_RANK=%u", r->rank);
	add(r, "ROLE_WORLD_SIZE=%u", r->world_size);
	add(r, "ROLE_NAME=%s", l->role ? l->role : "default");
	add(r, "MASTER_ADDR=127.0.0.1");
	add(r, "MASTER_PORT=%u", tcp_store_server__port(r->server));
	add(r, "TORCHELASTIC_RESTART_COUNT=0");
	add(r, "TORCHELASTIC_MAX_RESTARTS=0");
	add(r, "TORCHELASTIC_RUN_ID=%s", l->run_id ? l->run_id : "none");
	add(r, "TORCHELASTIC_USE_AGENT_STORE=True");
	add(r, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
	add(r, "GLOO_SOCKET_IFNAME=lo");
	/* torchrun sets this if several processes share a machine. */
	add(r, "OMP_NUM_THREADS=%s", getenv("OMP_NUM_THREADS") ? getenv("OMP_NUM_THREADS") : "1");
	if (r->n_env != base)
		return -ENOMEM;
	if (l->launcher != LAUNCHER_ACCELERATE)
		return 0;
	add(r, "ACCELERATE_USE_CUDA=true");
	add(r, "ACCELERATE_MIXED_PRECISION=%s", l->mixed_precision ? l->mixed_precision : "no");
	add(r, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=%s",
	    l->accumulation ? l->accumulation : "1");
	return r->n_env == base + 3 ? 0 : -ENOMEM;
}

struct estimate_ranks *estimate_ranks__new(const struct estimate_ranks_args *a,
					   const struct user *user, int *status)
{
	struct estimate_ranks *r = calloc(1, sizeof(*r));
	int err;

	*status = EXIT_FAILED;
	if (!r) {
		log_err("out of memory");
		return NULL;
	}
	r->rank = a->rank;
	err = parse_command(a, &r->launch);
	if (!err)
		err = find_sizes(a, &r->launch, &r->world_size, &r->local_world_size);
	if (!err && r->rank >= r->world_size) {
		log_err("--rank %u: the job has %u ranks, numbered from 0", r->rank, r->world_size);
		err = -EINVAL;
	}
	if (err) {
		*status = EXIT_USAGE;
		goto fail;
	}
	r->command = r->launch.command ? r->launch.command : a->command;
	r->server = tcp_store_server__start(user);
	if (!r->server) {
		log_err("cannot start the process for the job's key-value store: %s",
			strerror(errno));
		goto fail;
	}
	if (make_env(r) || launch__set_local_rank(&r->launch, r->rank % r->local_world_size)) {
		log_err("out of memory");
		goto fail;
	}
	*status = EXIT_OK;
	return r;
fail:
	estimate_ranks__free(r);
	return NULL;
}

char **estimate_ranks__command(const struct estimate_ranks *r)
{
	return r->command;
}

const char *const *estimate_ranks__env(const struct estimate_ranks *r)
{
	return (const char *const *)r->env;
}

unsigned estimate_ranks__rank(const struct estimate_ranks *r)
{
	return r->rank;
}

unsigned estimate_ranks__world_size(const struct estimate_ranks *r)
{
	return r->world_size;
}

unsigned estimate_ranks__local_world_size(const struct estimate_ranks *r)
{
	return r->local_world_size;
}

const char *estimate_ranks__end(struct estimate_ranks *r)
{
	return tcp_store_server__end(r->server);
}

void estimate_ranks__free(struct estimate_ranks *r)
{
	if (!r)
		return;
	tcp_store_server__free(r->server);
	launch__free(&r->launch);
	for (size_t i = 0; i < r->n_env; i++)
		free(r->env[i]);
	free(r);
}

/* ---- lists of ranks ---- */

static int take_number(const char **text, unsigned world_size, unsigned *ret)
{
	char *end;
	unsigned long n;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	errno = 0;
	n = strtoul(*text, &end, 10);
	if (errno || n >= world_size)
		return -ERANGE;
	*text = end;
	*ret = (unsigned)n;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	const unsigned *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Appends "3" or "0-3". */
static int take_range(const char **text, unsigned world_size, unsigned *all, size_t *n)
{
	unsigned from, to;
	int err = take_number(text, world_size, &from);

	to = from;
	if (!err && **text == '-') {
		++*text;
		err = take_number(text, world_size, &to);
	}
	if (err || to < from)
		return err ? err : -EINVAL;
	if (to - from >= RANKS_LIST - *n)
		return -E2BIG;
	for (unsigned i = from; i <= to; i++)
		all[(*n)++] = i;
	return 0;
}

int estimate_ranks__parse(const char *text, unsigned world_size, unsigned **ranks, size_t *n)
{
	unsigned *all = calloc(RANKS_LIST, sizeof(*all));
	size_t found = 0, kept = 0;
	int err = all ? 0 : -ENOMEM;

	if (!err && !strcmp(text, "all")) {
		err = world_size > RANKS_LIST ? -E2BIG : 0;
		for (; !err && found < world_size; found++)
			all[found] = (unsigned)found;
	} else if (!err) {
		err = take_range(&text, world_size, all, &found);
		while (!err && *text == ',') {
			text++;
			err = take_range(&text, world_size, all, &found);
		}
		if (!err && *text)
			err = -EINVAL;
	}
	if (err) {
		free(all);
		return err;
	}
	qsort(all, found, sizeof(*all), by_number);
	for (size_t i = 0; i < found; i++) {
		if (!kept || all[kept - 1] != all[i])
			all[kept++] = all[i];
	}
	*ranks = all;
	*n = kept;
	return 0;
}
