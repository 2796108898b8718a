/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "estimate/runs/ranks.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "capture/preload.h"
#include "estimate/store/tcp_store.h"

#define MAX_PROCESSES (1u << 20) /* largest number that a launcher's option may have */
#define MACHINE 8u		 /* default of ranks per machine */
#define RANKS_LIST 1024u	 /* most entries of a list; each takes a run */

/* ---- command lines of launchers ---- */

/* An option of a launcher, with '-' in its name; '_' means the same. */
struct option_of {
	const char *name;
	char letter; /* short form; 0: none */
	bool value;  /* it has a value */
	void (*take)(struct launch *l, const char *value);
	bool refused; /* true: the option would change how the script runs, and the parser does not
			 support it */
};

/* The number that text is; 0: it is none, or too large. */
static unsigned number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	return isdigit((unsigned char)text[0]) && !*end && n <= MAX_PROCESSES ? (unsigned)n : 0;
}

/* "2", or "1:4" for a range; its maximum counts. */
static void take_nodes(struct launch *l, const char *value)
{
	const char *colon = strchr(value, ':');

	l->nodes = number(colon ? colon + 1 : value);
}

/* "8"; words such as "gpu" and "auto" stand for an unknown number. */
static void take_processes(struct launch *l, const char *value)
{
	l->processes = number(value);
}

static void take_all(struct launch *l, const char *value)
{
	l->all = number(value);
}

static void take_role(struct launch *l, const char *value)
{
	l->role = value;
}

static void take_run_id(struct launch *l, const char *value)
{
	l->run_id = value;
}

static void take_precision(struct launch *l, const char *value)
{
	l->mixed_precision = value;
}

static void take_accumulation(struct launch *l, const char *value)
{
	l->accumulation = value;
}

/* Options that read_options() recognizes by name. */
#define MODULE "module"
#define NO_PYTHON "no-python"
#define USE_ENV "use-env"

static const struct option_of torchrun_options[] = {
	{ "nnodes", 0, true, take_nodes, false },
	{ "nproc-per-node", 0, true, take_processes, false },
	{ "role", 0, true, take_role, false },
	{ "rdzv-id", 0, true, take_run_id, false },
	{ MODULE, 'm', false, NULL, false },
	{ NO_PYTHON, 0, false, NULL, false },
	{ USE_ENV, 0, false, NULL, false },
	{ "run-path", 0, false, NULL, false },
	{ "standalone", 0, false, NULL, false },
	{ "virtual-local-rank", 0, false, NULL, true },
	{ "rdzv-backend", 0, true, NULL, false },
	{ "rdzv-endpoint", 0, true, NULL, false },
	{ "rdzv-conf", 0, true, NULL, false },
	{ "max-restarts", 0, true, NULL, false },
	{ "monitor-interval", 0, true, NULL, false },
	{ "start-method", 0, true, NULL, false },
	{ "event-log-handler", 0, true, NULL, false },
	{ "log-dir", 0, true, NULL, false },
	{ "redirects", 'r', true, NULL, false },
	{ "tee", 't', true, NULL, false },
	{ "log-line-prefix-template", 0, true, NULL, false },
	{ "local-ranks-filter", 0, true, NULL, false },
	{ "duplicate-stdout-filters", 0, true, NULL, false },
	{ "duplicate-stderr-filters", 0, true, NULL, false },
	{ "node-rank", 0, true, NULL, false },
	{ "master-addr", 0, true, NULL, false },
	{ "master-port", 0, true, NULL, false },
	{ "local-addr", 0, true, NULL, false },
	{ "logs-specs", 0, true, NULL, false },
	{ "numa-binding", 0, true, NULL, false },
	{ "signals-to-handle", 0, true, NULL, false },
	{ "shutdown-timeout", 0, true, NULL, false },
	{ NULL, 0, false, NULL, false },
};

static const struct option_of accelerate_options[] = {
	{ "num-processes", 0, true, take_all, false },
	{ "num-machines", 0, true, take_nodes, false },
	{ "mixed-precision", 0, true, take_precision, false },
	{ "gradient-accumulation-steps", 0, true, take_accumulation, false },
	{ MODULE, 'm', false, NULL, false },
	{ NO_PYTHON, 0, false, NULL, false },
	{ "multi-gpu", 0, false, NULL, false },
	{ "quiet", 'q', false, NULL, false },
	{ "same-network", 0, false, NULL, false },
	{ "machine-rank", 0, true, NULL, false },
	{ "main-process-ip", 0, true, NULL, false },
	{ "main-process-port", 0, true, NULL, false },
	{ "gpu-ids", 0, true, NULL, false },
	{ "num-cpu-threads-per-process", 0, true, NULL, false },
	{ "rdzv-backend", 0, true, NULL, false },
	{ "rdzv-conf", 0, true, NULL, false },
	{ "max-restarts", 0, true, NULL, false },
	{ "monitor-interval", 0, true, NULL, false },
	{ "role", 0, true, take_role, false },
	{ "config-file", 0, true, NULL, true },
	{ "use-fsdp", 0, false, NULL, true },
	{ "use-deepspeed", 0, false, NULL, true },
	{ "use-megatron-lm", 0, false, NULL, true },
	{ "cpu", 0, false, NULL, true },
	{ NULL, 0, false, NULL, false },
};

/* The part of a path after the last slash. */
static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* True for "python", "python3", "/usr/bin/python3.12", ... */
static bool is_python(const char *path)
{
	const char *s = file_name(path);

	const char *version = s + strlen("python");

	if (strncmp(s, "python", strlen("python")) != 0)
		return false;
	return !version[strspn(version, "0123456789.")];
}

/* Sets why to "LAUNCHER: WHAT OF". Returns -EINVAL. */
static int refuse(char *why, const struct launch *l, const char *what, const char *of)
{
	char shown[96];

	text__clean(shown, sizeof(shown), of, strlen(of));
	snprintf(why, LAUNCH_WHY, "%s: %s%s", l->name, what, shown);
	return -EINVAL;
}

/* Finds a program in PATH, as a shell does. False: it is not there. */
static bool in_path(const char *name, char *buf, size_t size)
{
	const char *at = getenv("PATH") ?: "", *end;

	if (strchr(name, '/')) {
		snprintf(buf, size, "%s", name);
		return true;
	}
	for (; *at; at = *end ? end + 1 : end) {
		end = at + strcspn(at, ":");
		if (snprintf(buf, size, "%.*s/%s", (int)(end - at), at, name) < (int)size &&
		    io__is_program(buf))
			return true;
	}
	return false;
}

/* The interpreter of a Python script, from its first line. If that path is too long for the kernel,
 * installers use a shell; then the interpreter is the one in the script's folder. The caller frees
 * it; NULL: no memory. */
static char *interpreter_of(const char *program)
{
	char path[PATH_MAX], line[PATH_MAX + 3] = "", *end;

	if (!in_path(program, path, sizeof(path)))
		return strdup("python3");
	io__text(path, line, sizeof(line));
	end = line + strcspn(line, "\n");
	*end = '\0';
	line[strcspn(line, " \t\r")] = '\0';
	if (text__starts(line, "#!/") && is_python(line + 2) && io__is_program(line + 2))
		return strdup(line + 2);
	end = strrchr(path, '/');
	if (!end)
		return strdup("python3");
	snprintf(end, sizeof(path) - (size_t)(end - path), "/python");
	return strdup(io__is_program(path) ? path : "python3");
}

/* True if the n characters of arg are the option's name or its beginning, with '-' or '_'. */
static bool name_begins(const struct option_of *o, const char *arg, size_t n)
{
	if (strlen(o->name) < n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (o->name[i] != (arg[i] == '_' ? '-' : arg[i]))
			return false;
	return true;
}

/* Finds an option by its name or a unique beginning. NULL: none. */
static const struct option_of *find_option(const struct option_of *all, const char *arg)
{
	const struct option_of *found = NULL;
	size_t n;

	if (arg[1] != '-') {
		for (; all->name; all++) {
			if (all->letter == arg[1])
				return all;
		}
		return NULL;
	}
	n = strcspn(arg + 2, "=");
	for (; all->name; all++) {
		if (!name_begins(all, arg + 2, n))
			continue;
		if (all->name[n] == '\0')
			return all;
		if (found)
			return NULL;
		found = all;
	}
	return found;
}

struct how {
	bool module, no_python, use_env;
};

/* Reads options up to the script and leaves *at there. Returns 0, or -EINVAL and why. */
static int read_options(struct launch *l, char ***at, const struct option_of *all, struct how *how,
			char *why)
{
	char **arg;

	for (arg = *at; *arg && (*arg)[0] == '-'; arg++) {
		const char *value = NULL, *given = *arg;
		const struct option_of *o;

		if (!strcmp(given, "--")) {
			arg++;
			break;
		}
		o = given[1] ? find_option(all, given) : NULL;
		if (!o)
			return refuse(why, l, "unknown option of the launcher: ", given);
		if (o->refused)
			return refuse(why, l, "estimate does not support the launcher's option ",
				      given);
		if (o->value) {
			const char *equals = strchr(given, '=');

			if (given[1] != '-' && given[2])
				value = given + 2;
			else
				value = equals ? equals + 1 : *++arg;
			if (!value)
				return refuse(why, l, "no value for ", given);
		}
		if (o->take)
			o->take(l, value);
		how->module |= !strcmp(o->name, MODULE);
		how->no_python |= !strcmp(o->name, NO_PYTHON);
		how->use_env |= !strcmp(o->name, USE_ENV);
	}
	*at = arg;
	return *arg ? 0 : refuse(why, l, "no script", "");
}

/* Builds: interpreter FLAGS -u [-m] SCRIPT [--local-rank=N] ARGUMENTS. Returns 0 or -ENOMEM. */
static int make_command(struct launch *l, char **flags, size_t n_flags, char **script,
			const struct how *how)
{
	size_t n = 0;

	while (script[n])
		n++;
	l->command = calloc(n + n_flags + 6, sizeof(*l->command));
	if (!l->command)
		return -ENOMEM;
	n = 0;
	if (!how->no_python) {
		l->command[n++] = l->interpreter;
		for (size_t i = 0; i < n_flags; i++)
			l->command[n++] = flags[i];
		l->command[n++] = (char *)"-u";
		if (how->module)
			l->command[n++] = (char *)"-m";
	}
	l->command[n++] = *script++;
	if (l->launcher == LAUNCHER_LAUNCH && !how->use_env)
		l->local_rank_at = n++;
	while (*script)
		l->command[n++] = *script++;
	return l->local_rank_at ? launch__set_local_rank(l, 0) : 0;
}

int launch__set_local_rank(struct launch *l, unsigned local_rank)
{
	char *text;

	if (!l->local_rank_at)
		return 0;
	if (asprintf(&text, "--local-rank=%u", local_rank) < 0)
		return -ENOMEM;
	free(l->local_rank);
	l->local_rank = l->command[l->local_rank_at] = text;
	return 0;
}

/* Recognizes a launcher by the name of a program or, with `module`, of a Python module, and moves
 * *argv past it. */
static void find_launcher(struct launch *l, char ***argv, bool module)
{
	static const struct {
		const char *name;
		enum launcher launcher;
		bool module;
	} all[] = {
		{ "torchrun", LAUNCHER_TORCHRUN, false },
		{ "torch.distributed.run", LAUNCHER_TORCHRUN, true },
		{ "torch.distributed.launch", LAUNCHER_LAUNCH, true },
		{ "accelerate.commands.launch", LAUNCHER_ACCELERATE, true },
		{ "deepspeed", LAUNCHER_OTHER, false },
		{ "mpirun", LAUNCHER_OTHER, false },
		{ "mpiexec", LAUNCHER_OTHER, false },
		{ "srun", LAUNCHER_OTHER, false },
		{ "horovodrun", LAUNCHER_OTHER, false },
	};
	const char *name = module ? **argv : file_name(**argv);

	if (!module && !strcmp(name, "accelerate") && (*argv)[1] && !strcmp((*argv)[1], "launch")) {
		l->launcher = LAUNCHER_ACCELERATE;
		l->name = "accelerate launch";
		*argv += 2;
		return;
	}
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (all[i].module == module && !strcmp(all[i].name, name)) {
			l->launcher = all[i].launcher;
			l->name = all[i].name;
			++*argv;
			return;
		}
	}
}

/* Counts Python's own options before -m or the script. */
static size_t python_flags(char **argv)
{
	size_t n = 0;

	while (argv[n] && argv[n][0] == '-' && argv[n][1] && strcmp(argv[n], "-m") &&
	       strcmp(argv[n], "-c")) {
		bool value = !strcmp(argv[n], "-X") || !strcmp(argv[n], "-W");

		n += value && argv[n + 1] ? 2 : 1;
	}
	return n;
}

/* Takes torchrun's defaults, and its variables for them. */
static void read_environment(struct launch *l)
{
	const char *nodes = getenv("PET_NNODES");
	const char *processes = getenv("PET_NPROC_PER_NODE");

	l->nodes = l->processes = 1; /* torchrun's defaults */
	if (nodes)
		take_nodes(l, nodes);
	if (processes)
		take_processes(l, processes);
}

int launch__parse(char **argv, struct launch *l, char *why)
{
	char **at = argv, **flags = NULL;
	struct how how = { 0 };
	size_t n_flags = 0;
	int err;

	*l = (struct launch){ .launcher = LAUNCHER_NONE };
	if (!*at)
		return 0;
	if (is_python(*at)) {
		flags = at + 1;
		n_flags = python_flags(flags);
		at = flags + n_flags;
		if (!*at)
			return 0;
		if (strcmp(*at, "-m"))
			find_launcher(l, &at,
				      /*module=*/false); /* as in: python /path/bin/torchrun */
		else if (at[1])
			find_launcher(l, (at++, &at), /*module=*/true);
	} else {
		find_launcher(l, &at, /*module=*/false);
	}
	if (l->launcher == LAUNCHER_NONE || l->launcher == LAUNCHER_OTHER)
		return 0;
	if (l->launcher != LAUNCHER_ACCELERATE)
		read_environment(l);
	err = read_options(
		l, &at, l->launcher == LAUNCHER_ACCELERATE ? accelerate_options : torchrun_options,
		&how, why);
	if (err)
		return err;
	l->interpreter = flags ? strdup(argv[0]) : interpreter_of(argv[0]);
	err = l->interpreter ? make_command(l, flags, n_flags, at, &how) : -ENOMEM;
	if (err)
		launch__free(l);
	return err;
}

void launch__free(struct launch *l)
{
	free(l->command);
	free(l->interpreter);
	free(l->local_rank);
	l->command = NULL;
	l->interpreter = l->local_rank = NULL;
}

/* ---- a rank ---- */

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

/* True if n ranks a machine give whole machines. 0 does not. */
static bool divides(unsigned n, unsigned world_size)
{
	return n && n <= world_size && world_size % n == 0;
}

/* Finds the number of ranks (*world_size), and of those on a machine (*local), from options and
 * launcher. Returns 0, or -EINVAL, logged. */
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
	if (!a->local_world_size && !divides(processes, *world_size))
		processes = default_local_size(*world_size);
	if (!divides(processes, *world_size) || processes > DRYRUN_DEVICES_MAX) {
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

/* Adds a variable. If memory is short, the number of variables is too small then. */
__attribute__((format(printf, 2, 3))) static void add_env(struct estimate_ranks *r, const char *fmt,
							  ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (r->n_env < RANKS_ENV && vasprintf(&r->env[r->n_env], fmt, ap) >= 0)
		r->n_env++;
	else
		r->env[r->n_env] = NULL;
	va_end(ap);
}

/* Sets torchrun's variables, for accelerate also its own. TORCHELASTIC_USE_AGENT_STORE makes rank 0
 * a client, too. Returns 0 or -ENOMEM. */
static int make_env(struct estimate_ranks *r)
{
	const struct launch *l = &r->launch;
	const size_t base = 18; /* variables of torchrun */
	const size_t more = 3;	/* of accelerate */

	add_env(r, "RANK=%u", r->rank);
	add_env(r, "WORLD_SIZE=%u", r->world_size);
	add_env(r, "LOCAL_RANK=%u", r->rank % r->local_world_size);
	add_env(r, "LOCAL_WORLD_SIZE=%u", r->local_world_size);
	add_env(r, "GROUP_RANK=%u", r->rank / r->local_world_size);
	add_env(r, "GROUP_WORLD_SIZE=%u", r->world_size / r->local_world_size);
	add_env(r, "ROLE_RANK=%u", r->rank);
	add_env(r, "ROLE_WORLD_SIZE=%u", r->world_size);
	add_env(r, "ROLE_NAME=%s", l->role ? l->role : "default");
	add_env(r, "MASTER_ADDR=127.0.0.1");
	add_env(r, "MASTER_PORT=%u", tcp_store_server__port(r->server));
	add_env(r, "TORCHELASTIC_RESTART_COUNT=0");
	add_env(r, "TORCHELASTIC_MAX_RESTARTS=0");
	add_env(r, "TORCHELASTIC_RUN_ID=%s", l->run_id ? l->run_id : "none");
	add_env(r, "TORCHELASTIC_USE_AGENT_STORE=True");
	add_env(r, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
	add_env(r, "GLOO_SOCKET_IFNAME=lo");
	/* torchrun sets this if several processes share a machine. */
	add_env(r, "OMP_NUM_THREADS=%s",
		getenv("OMP_NUM_THREADS") ? getenv("OMP_NUM_THREADS") : "1");
	if (r->n_env != base)
		return -ENOMEM;
	if (l->launcher != LAUNCHER_ACCELERATE)
		return 0;
	add_env(r, "ACCELERATE_USE_CUDA=true");
	add_env(r, "ACCELERATE_MIXED_PRECISION=%s", l->mixed_precision ? l->mixed_precision : "no");
	add_env(r, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=%s",
		l->accumulation ? l->accumulation : "1");
	return r->n_env == base + more ? 0 : -ENOMEM;
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
	err = parse_command(a, &r->launch)
		      ?: find_sizes(a, &r->launch, &r->world_size, &r->local_world_size);
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

/* Takes the number of a rank at *text and moves behind it. Returns 0, -EINVAL: no number, or
 * -ERANGE: no such rank. */
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

/* Appends the ranks of "3" or "0-3" to all, which has *n so far, and moves *text behind it. Returns
 * 0, -EINVAL, -ERANGE, or -E2BIG: too many ranks. */
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

/* Reads "0,1,63" or "0-3,7" into all; *n: their number. Returns as take_range(). */
static int take_ranges(const char *text, unsigned world_size, unsigned *all, size_t *n)
{
	int err = take_range(&text, world_size, all, n);

	while (!err && *text == ',') {
		text++;
		err = take_range(&text, world_size, all, n);
	}
	if (err)
		return err;
	return *text ? -EINVAL : 0;
}

int estimate_ranks__parse(const char *text, unsigned world_size, unsigned **ranks, size_t *n)
{
	unsigned *all = calloc(RANKS_LIST, sizeof(*all));
	size_t found = 0, kept = 0;
	int err = 0;

	if (!all)
		return -ENOMEM;
	if (strcmp(text, "all") != 0)
		err = take_ranges(text, world_size, all, &found);
	else if (world_size > RANKS_LIST)
		err = -E2BIG;
	else
		for (; found < world_size; found++)
			all[found] = (unsigned)found;
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
