/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf fetch: the same window of one job from many hosts, through their `serve`. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "cmd/commands.h"
#include "cmd/report_args.h"
#include "cmd/usage.h"
#include "model/analysis.h"
#include "serve/fetch.h"
#include "serve/secret.h"

#define MILLISECOND UINT64_C(1000000) /* ns */
#define SECOND UINT64_C(1000000000)   /* ns */
#define PARALLEL_MOST 1024	      /* --parallel */

struct fetch_args {
	struct report_args shown;
	struct fetch_opts o;
	const char *files[16], *token_file;
	size_t n_files;
	char **hosts;
	size_t n_hosts;
	bool insecure, http, slurm;
	const char *nodes, *selector, *namespace;
};

enum {
	OPT_HOSTS = OPT_COMMANDS_OWN,
	OPT_SLURM,
	OPT_KUBERNETES,
	OPT_NAMESPACE,
	OPT_TARGET,
	OPT_WHEN,
	OPT_STEPS,
	OPT_LEAD,
	OPT_TOKEN,
	OPT_CA,
	OPT_HTTP,
	OPT_INSECURE,
	OPT_TIMEOUT,
	OPT_PARALLEL,
	OPT_HOST_MEMORY,
	OPT_MAX_EVENTS,
	OPT_MAX_SIZE
};

static const struct argp_option options[] = {
	{ NULL, 0, NULL, 0, "Which hosts", 1 },
	{ "hosts", OPT_HOSTS, "FILE", 0,
	  "File of hosts: on each line HOST[:PORT] or URL, and a name; \"-\": standard input; "
	  "repeatable",
	  1 },
	{ "slurm", OPT_SLURM, "NODES", OPTION_ARG_OPTIONAL,
	  "The nodes of this Slurm job, or NODES, as in node[1-8]", 1 },
	{ "kubernetes", OPT_KUBERNETES, "SELECTOR", 0,
	  "Pods with these labels, through the memtrace-bpf pod of each node", 1 },
	{ "kubernetes-namespace", OPT_NAMESPACE, "NAME", OPTION_RARE,
	  "Namespace of the memtrace-bpf pods (default memtrace-bpf)", 1 },
	{ "target", OPT_TARGET, "NAME", 0, "Only processes of this target of serve (default: all)",
	  1 },
	{ "token-file", OPT_TOKEN, "FILE", 0, "Token of the servers", 1 },
	{ "ca", OPT_CA, "FILE", 0, "Trust these authorities (PEM) instead of the system's", 1 },
	{ "http", OPT_HTTP, NULL, OPTION_RARE, "Hosts without a scheme have HTTP, not HTTPS", 1 },
	{ "insecure", OPT_INSECURE, NULL, OPTION_RARE,
	  "Also send the token over http, where others can read it", 1 },
	{ NULL, 0, NULL, 0, "Which window", 2 },
	{ "duration", 'd', "TIME", 0, "Length (default 10s, with --steps at most 1m)", 2 },
	{ "steps", OPT_STEPS, "N", 0, "End after N whole steps", 2 },
	{ "at", OPT_WHEN, "/TIME", 0,
	  "Begin at the next multiple of TIME on the clock, as in /10s (default: soon)", 2 },
	{ "lead", OPT_LEAD, "TIME", OPTION_RARE,
	  "Time that hosts have to attach before the window begins (default 5s)", 2 },
	{ "host-memory", OPT_HOST_MEMORY, NULL, 0,
	  "Also record all memory that the processes map, by line, as record --host", 2 },
	{ "max-events", OPT_MAX_EVENTS, "N", OPTION_RARE,
	  "End after N allocations and frees (default: as serve has it)", 2 },
	{ "output", 'o', "FOLDER", 0, "Folder of the recordings", OPTIONS_OUTPUT },
	{ "force", 'f', NULL, OPTION_RARE, "Use a folder with other files in it", OPTIONS_OUTPUT },
	{ "timeout", OPT_TIMEOUT, "TIME", 0, "How long a host may take to answer (default 30s)",
	  OPTIONS_OUTPUT },
	{ "parallel", OPT_PARALLEL, "N", OPTION_RARE, "Requests at the same time (default 64)",
	  OPTIONS_OUTPUT },
	{ "max-size", OPT_MAX_SIZE, "SIZE", OPTION_RARE, "Refuse larger recordings (default 4G)",
	  OPTIONS_OUTPUT },
	{ "format", OPT_FORMAT, "text|json", 0, "Format of the list at the end (default text)",
	  OPTIONS_OUTPUT },
	{ 0 },
};

/* Parses a time from 1 ms to `most` ns. Calls argp_error() for anything else. */
static uint64_t parse_time(struct argp_state *state, const char *option, const char *arg,
			   uint64_t most)
{
	uint64_t ns = 0;
	char text[24];

	if (text__parse_time(arg, &ns) || ns < MILLISECOND || ns > most)
		argp_error(state, "%s: '%s' is not a time between 1ms and %s; try 10s", option, arg,
			   text__time(text, sizeof(text), most));
	return ns;
}

/* Calls argp_error() if hosts or the folder are missing. Sets the default of --duration. */
static void check_args(struct fetch_args *a, struct argp_state *state)
{
	if (!a->n_files && !a->n_hosts && !a->slurm && !a->selector)
		argp_error(state, "no host given: --hosts FILE, --slurm, --kubernetes SELECTOR, or "
				  "hosts as arguments");
	if (!a->o.folder)
		argp_error(state, "no folder given: -o FOLDER/");
	if (!a->o.duration)
		a->o.duration = a->o.steps ? 60 * SECOND : 10 * SECOND;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct fetch_args *a = state->input;
	uint64_t n;

	switch (key) {
	case OPT_HOSTS:
		if (a->n_files == sizeof(a->files) / sizeof(*a->files))
			argp_error(state, "--hosts: at most 16 files");
		else
			a->files[a->n_files++] = arg;
		break;
	case OPT_SLURM:
		a->slurm = true;
		a->nodes = arg;
		break;
	case OPT_KUBERNETES:
		a->selector = arg;
		break;
	case OPT_NAMESPACE:
		if (!*arg || *arg == '-')
			argp_error(state,
				   "--kubernetes-namespace: '%s' is not the name of a namespace; "
				   "kubectl get namespaces lists them",
				   arg);
		a->namespace = arg;
		break;
	case OPT_TARGET:
		a->o.target = arg;
		break;
	case OPT_TOKEN:
		a->token_file = arg;
		break;
	case OPT_CA:
		a->o.ca = arg;
		break;
	case OPT_HTTP:
		a->http = true;
		break;
	case OPT_INSECURE:
		a->insecure = true;
		break;
	case 'd':
		a->o.duration = parse_time(state, "--duration", arg, 3600 * SECOND);
		break;
	case OPT_STEPS:
		a->o.steps = capture_args__parse_count(state, "--steps", arg, /*min=*/1);
		break;
	case OPT_WHEN:
		if (*arg != '/')
			argp_error(state, "--at: '%s' is not /TIME, as in /10s", arg);
		a->o.align = parse_time(state, "--at", arg + (*arg == '/'), 600 * SECOND);
		break;
	case OPT_LEAD:
		a->o.lead = parse_time(state, "--lead", arg, 600 * SECOND);
		break;
	case OPT_HOST_MEMORY:
		a->o.host = true;
		break;
	case OPT_MAX_EVENTS:
		a->o.max_events = capture_args__parse_count(state, "--max-events", arg, /*min=*/1);
		break;
	case 'o':
		a->o.folder = arg;
		break;
	case 'f':
		a->o.force = true;
		break;
	case OPT_TIMEOUT:
		a->o.timeout = parse_time(state, "--timeout", arg, 3600 * SECOND);
		break;
	case OPT_PARALLEL:
		n = capture_args__parse_count(state, "--parallel", arg, /*min=*/1);
		a->o.parallel = n > PARALLEL_MOST ? PARALLEL_MOST : (unsigned)n;
		break;
	case OPT_MAX_SIZE:
		if (text__parse_size(arg, &a->o.max_size) || a->o.max_size < 65536)
			argp_error(state, "--max-size: '%s' is not a size of at least 64K; try 1G",
				   arg);
		break;
	case ARGP_KEY_ARGS:
		a->hosts = state->argv + state->next;
		a->n_hosts = (size_t)(state->argc - state->next);
		break;
	case ARGP_KEY_END:
		check_args(a, state);
		break;
	default:
		return report_args__parse(key, arg, state, &a->shown);
	}
	return 0;
}

/* Fills h with all hosts that the options and arguments name. Returns 0, or an exit code after a
 * message. */
static int read_hosts(struct fetch_args *a, struct hosts *h)
{
	const char *why;
	char clean[256];
	int status = EXIT_OK;

	h->http = a->http;
	for (size_t i = 0; i < a->n_files && !status; i++)
		status = hosts__read(h, a->files[i]);
	for (size_t i = 0; i < a->n_hosts && !status; i++) {
		int err = hosts__add(h, a->hosts[i], NULL, &why);

		if (err)
			log_err("%s: %s",
				text__clean(clean, sizeof(clean), a->hosts[i], strlen(a->hosts[i])),
				err == -ENOMEM ? "out of memory" : why);
		if (err)
			status = err == -ENOMEM ? EXIT_FAILED : EXIT_USAGE;
	}
	if (!status && a->slurm)
		status = hosts__add_slurm(h, a->nodes);
	if (!status && a->selector)
		status = hosts__add_kubernetes(h, a->selector, a->namespace);
	if (!status && !h->n) {
		log_err("the files of --hosts name no host: write one a line, such as node1 "
			"(man memtrace-bpf-fetch)");
		status = EXIT_USAGE;
	}
	if (!status && a->token_file && !a->insecure && hosts__unencrypted(h)) {
		log_err("%s would get the token of --token-file unencrypted: use https, or "
			"--insecure",
			hosts__unencrypted(h));
		status = EXIT_USAGE;
	}
	return status;
}

static const struct argp_child children[] = { SCHEMA_ARGP_CHILD, LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "-o FOLDER/ --hosts FILE\n-o FOLDER/ HOST...",
	.doc = "Record the same window of a job on many hosts, through the `serve` of each, into "
	       "one "
	       "folder for report.",
	.children = children,
};

/* Reads hosts and the token, then fetches. An error of standard output wins. */
static int cmd_fetch(int argc, char **argv)
{
	struct fetch_args args = { .shown.formats = report_args_formats,
				   .namespace = "memtrace-bpf",
				   .o = { .lead = 5 * SECOND,
					  .timeout = 30 * SECOND,
					  .max_size = UINT64_C(4) << 30,
					  .parallel = 64 } };
	struct hosts hosts = { 0 };
	char *token = NULL, why[SECRET_WHY];
	int status;

	usage__parse(&command_fetch, argc, argv, 0, &args);
	status = read_hosts(&args, &hosts);
	if (!status && args.token_file && secret__token(args.token_file, &token, why)) {
		log_err("%s", why);
		status = EXIT_FAILED;
	}
	args.o.hosts = &hosts;
	args.o.token = token;
	args.o.as_json = args.shown.format;
	if (!status)
		status = fetch__run(&args.o, stdout);
	secret__free(token);
	hosts__free(&hosts);
	return analysis__check_output(stdout, "standard output") ? EXIT_FAILED : status;
}

const struct command command_fetch = {
	.name = "fetch",
	.summary = "record the same window of a job on many hosts",
	.group = COMMANDS_RECORD,
	.argp = &argp,
	.examples = "memtrace-bpf fetch --hosts hosts.txt --token-file token -o job/\n"
		    "memtrace-bpf fetch -d 10s --at /10s -o job/ node1 node2\n"
		    "memtrace-bpf fetch --slurm --steps 3 --token-file token -o job/",
	.status = "0 all came, 1 failed, 2 a recording is missing, 64 usage",
	.run = cmd_fetch,
};
