/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* memtrace-bpf serve: the HTTP API, its dashboard, and metrics for fleets. */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "base/user.h"
#include "capture/capture_args.h"
#include "capture/pick.h"
#include "capture/preload.h"
#include "cmd/commands.h"
#include "cmd/usage.h"
#include "serve/secret.h"
#include "serve/serve.h"

#define SECOND UINT64_C(1000000000)

enum {
	OPT_LISTEN = 0x8000,
	OPT_TOKEN,
	OPT_CERT,
	OPT_KEY,
	OPT_HOST,
	OPT_TARGET,
	OPT_COMMAND,
	OPT_ALL,
	OPT_USER,
	OPT_COMMAND_USER,
	OPT_EVENTS,
	OPT_TRACES,
	OPT_CAPTURES,
	OPT_DURATION,
	OPT_COST,
	OPT_DISK,
	OPT_FIGURES,
	OPT_WORKERS,
	OPT_RATE,
	OPT_INTERVAL,
	OPT_VRAM,
	OPT_DEVICES,
	OPT_NO_DRY_RUN,
	OPT_PYROSCOPE,
	OPT_OTLP,
	OPT_OTLP_PROFILES,
	OPT_PUSH_EVERY,
	OPT_PUSH_PROFILE,
	OPT_PUSH_TOKEN,
	OPT_PUSH_CA,
	OPT_PUSH_INSECURE,
	OPT_COMMAND_ENV,
	OPT_TARGET_USER
};

static const struct argp_option options[] = {
	{ NULL, 0, NULL, 0, "Which processes can be traced", 1 },
	{ "target", OPT_TARGET, "NAME=PID|NAME=PATTERN",
	  0, "This process, or all whose command line matches; NAME is the API's model_name; repeatable",
	  1 },
	{ "target-user", OPT_TARGET_USER, "NAME=USER", OPTION_RARE,
	  "Only processes of USER belong to --target NAME; repeatable", 1 },
	{ "all", OPT_ALL, NULL, 0, "All processes that use PyTorch, by PID", 1 },
	{ "command", OPT_COMMAND, "NAME=COMMAND", 0,
	  "Target NAME: each trace runs this shell command on a simulated GPU", 1 },
	{ "vram", OPT_VRAM, "SIZE", OPTION_RARE,
	  "With --command: memory of each simulated device (default 80G)", 1 },
	{ "devices", OPT_DEVICES, "N", OPTION_RARE,
	  "With --command: number of simulated devices (default 1)", 1 },
	{ "no-dry-run", OPT_NO_DRY_RUN, NULL, OPTION_RARE, "With --command: use the real GPUs", 1 },
	{ "command-user", OPT_COMMAND_USER, "USER", OPTION_RARE,
	  "As root: run commands as USER (default: the user behind sudo, or that of --user)", 1 },
	{ "command-env", OPT_COMMAND_ENV, "NAME,...", OPTION_RARE,
	  "Pass these variables to commands, besides PATH, LANG, TZ and similar ones; \"*\": all",
	  1 },
	{ "interval", OPT_INTERVAL, "TIME", OPTION_RARE,
	  "Polling interval of processes (default 1s)", 1 },
	{ NULL, 0, NULL, 0, "Who can connect", 2 },
	{ "listen", OPT_LISTEN, "ADDRESS", 0,
	  "HOST:PORT, [HOST]:PORT or unix:PATH (default 127.0.0.1:8000); port 0: any free port; "
	  "repeatable",
	  2 },
	{ "token-file", OPT_TOKEN, "FILE", 0,
	  "Require the token in FILE; needed if other machines can connect", 2 },
	{ "tls-cert", OPT_CERT, "FILE", 0,
	  MEMTRACE_HTTPS ? "Use HTTPS with this certificate chain (PEM)"
			 : "Not in this build: put a proxy in front for HTTPS",
	  2 },
	{ "tls-key", OPT_KEY, "FILE", 0, "Key of the certificate (PEM)", 2 },
	{ "allow-host", OPT_HOST, "NAME", OPTION_RARE,
	  "Accept this host name in requests, besides the addresses; repeatable", 2 },
	{ "requests-per-minute", OPT_RATE, "N", OPTION_RARE,
	  "Limit for each client (default 6000; 0: none)", 2 },
	{ "user", OPT_USER, "USER", OPTION_RARE,
	  "As root: user of the unprivileged processes (default: a user ID of its own for each)",
	  2 },
	{ NULL, 0, NULL, 0, "Storage and limits", 3 },
	{ "output", 'o', "FOLDER", 0,
	  "Keep recordings in FOLDER and list those in it (default: a temporary folder)", 3 },
	{ "max-events", OPT_EVENTS, "N", OPTION_RARE, "Events per trace (default 10000000)", 3 },
	{ "max-duration", OPT_DURATION, "TIME", OPTION_RARE, "Length of a capture (default 1h)",
	  3 },
	{ "cost", OPT_COST, "PERCENT", OPTION_RARE,
	  "Record less detail while a capture adds more time: 1% (default: all detail, but 1% for "
	  "profiles)",
	  3 },
	{ "figures", OPT_FIGURES, NULL, OPTION_RARE,
	  "While a capture runs, give step figures to the job's user, as `record --figures` does",
	  3 },
	{ "max-captures", OPT_CAPTURES, "N", OPTION_RARE, "Captures at the same time (default 4)",
	  3 },
	{ "max-traces", OPT_TRACES, "N", OPTION_RARE, "Number of traces to keep (default 100)", 3 },
	{ "max-disk", OPT_DISK, "SIZE", 0, "Size of the folder (default 4G)", 3 },
	{ "max-workers", OPT_WORKERS, "N", OPTION_RARE,
	  "Reports and exports at the same time (default 2)", 3 },
	{ NULL, 0, NULL, 0, "Pushing to other servers", 4 },
	{ "push-pyroscope", OPT_PYROSCOPE, "URL", 0, "Send profiles to a Pyroscope server", 4 },
	{ "push-otlp", OPT_OTLP, "URL", 0, "Send metrics by OTLP over HTTP", 4 },
	{ "push-otlp-profiles", OPT_OTLP_PROFILES, "URL", 0,
	  "Send profiles of live memory by OTLP over HTTP", 4 },
	{ "push-every", OPT_PUSH_EVERY, "TIME", OPTION_RARE,
	  "Interval (default 15s for metrics, 5m for profiles)", 4 },
	{ "push-profile", OPT_PUSH_PROFILE, "TIME", OPTION_RARE,
	  "Length of the capture for a profile (default 5s)", 4 },
	{ "push-token-file", OPT_PUSH_TOKEN, "FILE", OPTION_RARE,
	  "Send the token in FILE; to other machines only over https", 4 },
	{ "push-insecure", OPT_PUSH_INSECURE, NULL, OPTION_RARE,
	  "Also send the token over http, where others can read it", 4 },
	{ "push-ca", OPT_PUSH_CA, "FILE", OPTION_RARE,
	  "Trust these authorities (PEM) instead of the system's", 4 },
	{ 0 },
};

/* ---- targets ---- */

/* True if the len bytes of name can be a target's name. */
static bool is_target_name(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("._-/", name[i]))
			return false;
	return len && len < sizeof(((struct serve_target *)0)->name);
}

/* Makes room for a target. NULL: there are too many, after argp_error(). */
static struct serve_target *new_target(struct serve_args *a, struct argp_state *state)
{
	/* A mask has a bit for each target, so their number is limited. */
	if (a->n_targets == SERVE_TARGETS) {
		argp_error(state, "too many targets; at most %d", SERVE_TARGETS);
		return NULL;
	}
	return &a->targets[a->n_targets++];
}

/* Parses a PID. 0: text is not a PID. */
static pid_t parse_pid(const char *text)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno)
		return 0;
	return n > 0 && n <= INT32_MAX ? (pid_t)n : 0;
}

/* Parses NAME=PID or NAME=PATTERN, or with `command` NAME=COMMAND. Calls argp_error() for anything
 * else, and for a name that is taken. */
static void parse_target(struct serve_args *a, const char *option, const char *arg, bool command,
			 struct argp_state *state)
{
	const char *equals = strchr(arg, '='), *bad;
	size_t len = equals ? (size_t)(equals - arg) : 0;
	struct serve_target *t;

	if (!equals || !equals[1] || !is_target_name(arg, len)) {
		argp_error(state,
			   "%s: '%s' is not NAME=%s with a NAME of at most 63 letters, digits and "
			   ". _ - /",
			   option, arg, command ? "COMMAND" : "PID or NAME=PATTERN");
		return;
	}
	for (size_t i = 0; i < a->n_targets; i++)
		if (strlen(a->targets[i].name) == len && !strncmp(a->targets[i].name, arg, len))
			argp_error(state, "%s: the target '%.*s' is given twice", option, (int)len,
				   arg);
	t = new_target(a, state);
	if (!t)
		return;
	snprintf(t->name, sizeof(t->name), "%.*s", (int)len, arg);
	t->text = equals + 1;
	t->pid = command ? 0 : parse_pid(t->text);
	t->kind = t->pid ? TARGET_PID : TARGET_PATTERN;
	if (command)
		t->kind = TARGET_COMMAND;
	bad = t->kind == TARGET_PATTERN ? pick__bad_pattern(t->text) : NULL;
	if (bad)
		argp_error(state, "%s: '%s' is not a valid regular expression: %s", option, t->text,
			   bad);
}

/* Adds the target of --all, once. */
static void parse_all(struct serve_args *a, struct argp_state *state)
{
	struct serve_target *t;

	for (size_t i = 0; i < a->n_targets; i++)
		if (a->targets[i].kind == TARGET_ALL)
			return;
	t = new_target(a, state);
	if (t)
		*t = (struct serve_target){ .kind = TARGET_ALL, .text = "" };
}

/* Parses --target-user NAME=USER, after all targets are known. */
static void parse_target_users(struct serve_args *a, struct argp_state *state)
{
	for (size_t i = 0; i < a->n_target_users; i++) {
		const char *arg = a->target_users[i], *equals = strchr(arg, '=');
		size_t len = equals ? (size_t)(equals - arg) : 0, k;
		struct user u;

		for (k = 0; k < a->n_targets; k++)
			if (a->targets[k].kind == TARGET_PATTERN &&
			    strlen(a->targets[k].name) == len &&
			    !strncmp(a->targets[k].name, arg, len))
				break;
		if (!equals || k == a->n_targets)
			argp_error(state,
				   "--target-user: '%s' is not NAME=USER with the NAME of a "
				   "--target NAME=PATTERN",
				   arg);
		else if (user__named(&u, equals + 1))
			argp_error(state, "--target-user: no such user: %s", equals + 1);
		else
			a->targets[k].user = u.uid;
		if (k < a->n_targets)
			a->targets[k].has_user = true;
	}
}

/* ---- the rest ---- */

/* Parses a time of at least `least` ns. Calls argp_error() for anything else. */
static uint64_t parse_time(struct argp_state *state, const char *option, const char *arg,
			   uint64_t least)
{
	uint64_t ns = 0;

	if (text__parse_time(arg, &ns) || ns < least)
		argp_error(state, "%s: '%s' is not a time of at least %g s", option, arg,
			   (double)least / 1e9);
	return ns;
}

/* Parses a size in bytes. Calls argp_error() for one out of bounds. */
static uint64_t parse_size(struct argp_state *state, const char *option, const char *arg,
			   uint64_t least, uint64_t most)
{
	uint64_t bytes = 0;
	char a[24], b[24];

	if (text__parse_size(arg, &bytes) || bytes < least || bytes > most)
		argp_error(state, "%s: '%s' is not a size from %s to %s; try 1G", option, arg,
			   text__bytes(a, sizeof(a), least), text__bytes(b, sizeof(b), most));
	return bytes;
}

/* Parses a number from min to max. Calls argp_error() for anything else. */
static unsigned parse_limited(struct argp_state *state, const char *option, const char *arg,
			      uint64_t min, uint64_t max)
{
	uint64_t n = capture_args__parse_count(state, option, arg, min);

	if (n > max)
		argp_error(state, "%s: at most %llu", option, (unsigned long long)max);
	return (unsigned)n;
}

/* Adds the value of an option that may be given `most` times. Calls argp_error() for one more. */
static void add_argument(const char **v, size_t *n, size_t most, const char *arg,
			 const char *option, struct argp_state *state)
{
	if (*n == most)
		argp_error(state, "%s: at most %zu", option, most);
	else
		v[(*n)++] = arg;
}

/* Sets *ret to a URL of HTTP. Calls argp_error() for anything else. */
static void parse_url(struct argp_state *state, const char *option, const char *arg,
		      const char **ret)
{
	if (!text__starts(arg, "http://") && !text__starts(arg, "https://"))
		argp_error(state, "%s: '%s' is not a URL that begins with http:// or https://",
			   option, arg);
	*ret = arg;
}

/* Calls argp_error() if url would get the token unencrypted, so that others can read it on its
 * way. */
static void check_push(const struct serve_args *a, const char *url, const char *option,
		       struct argp_state *state)
{
	bool in_clear = url && !strncmp(url, "http://", strlen("http://"));

	if (!a->push_token_file || a->push_insecure)
		return;
	if (in_clear && !loopback__is(url))
		argp_error(state,
			   "%s: '%s' would get the token of --push-token-file unencrypted: use "
			   "https, or --push-insecure",
			   option, url);
}

/* Calls argp_error() for options that cannot be combined, or need another one. */
static void check_options(const struct serve_args *a, struct argp_state *state)
{
	bool commands = false;

	for (size_t i = 0; i < a->n_targets; i++)
		commands |= a->targets[i].kind == TARGET_COMMAND;
	if (!commands &&
	    (a->vram || a->devices || a->no_dry_run || a->command_user || a->command_env))
		argp_error(state, "--vram, --devices, --no-dry-run, --command-user and "
				  "--command-env need --command NAME=COMMAND");
	if (a->no_dry_run && (a->vram || a->devices))
		argp_error(state, "--vram and --devices cannot be combined with --no-dry-run; they "
				  "describe a simulated GPU");
	if ((a->tls_cert != NULL) != (a->tls_key != NULL))
		argp_error(state, "--tls-cert and --tls-key need each other");
	if (!a->push_pyroscope && !a->push_otlp && !a->push_otlp_profiles &&
	    (a->push_every || a->push_profile || a->push_token_file || a->push_ca ||
	     a->push_insecure))
		argp_error(state,
			   "options --push-... need --push-pyroscope URL, --push-otlp URL or "
			   "--push-otlp-profiles URL");
	if (a->push_insecure && !a->push_token_file)
		argp_error(state, "--push-insecure needs --push-token-file");
	check_push(a, a->push_pyroscope, "--push-pyroscope", state);
	check_push(a, a->push_otlp, "--push-otlp", state);
	check_push(a, a->push_otlp_profiles, "--push-otlp-profiles", state);
}

/* Parses the options about limits. ARGP_ERR_UNKNOWN: key is another option. */
static error_t parse_limit(int key, char *arg, struct argp_state *state)
{
	struct serve_args *a = state->input;

	switch (key) {
	case OPT_EVENTS:
		a->max_events = capture_args__parse_count(state, "--max-events", arg, /*min=*/1);
		if (a->max_events > INT64_MAX / 64)
			argp_error(state, "--max-events: the number is too large");
		break;
	case OPT_TRACES:
		a->max_traces = parse_limited(state, "--max-traces", arg, 1, /*max=*/700);
		break;
	case OPT_CAPTURES:
		a->max_captures = parse_limited(state, "--max-captures", arg, 1, /*max=*/64);
		break;
	case OPT_DURATION:
		a->max_duration = parse_time(state, "--max-duration", arg, SECOND / 100);
		break;
	case OPT_COST:
		(void)capture_args__parse_cost(state, arg);
		a->cost = arg;
		break;
	case OPT_FIGURES:
		a->figures = true;
		break;
	case OPT_DISK:
		a->max_disk = parse_size(state, "--max-disk", arg, 4 << 20, UINT64_C(1) << 50);
		break;
	case OPT_WORKERS:
		a->max_workers = parse_limited(state, "--max-workers", arg, 1, /*max=*/64);
		break;
	case OPT_RATE:
		a->requests_per_minute = parse_limited(state, "--requests-per-minute", arg, 0,
						       /*max=*/1000000000);
		break;
	case OPT_INTERVAL:
		a->interval = parse_time(state, "--interval", arg, SECOND / 20);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* Parses the options about pushing, and those of parse_limit(). */
static error_t parse_push(int key, char *arg, struct argp_state *state)
{
	struct serve_args *a = state->input;

	switch (key) {
	case OPT_PYROSCOPE:
		parse_url(state, "--push-pyroscope", arg, &a->push_pyroscope);
		break;
	case OPT_OTLP:
		parse_url(state, "--push-otlp", arg, &a->push_otlp);
		break;
	case OPT_OTLP_PROFILES:
		parse_url(state, "--push-otlp-profiles", arg, &a->push_otlp_profiles);
		break;
	case OPT_PUSH_EVERY:
		a->push_every = parse_time(state, "--push-every", arg, SECOND / 2);
		break;
	case OPT_PUSH_PROFILE:
		a->push_profile = parse_time(state, "--push-profile", arg, SECOND / 10);
		break;
	case OPT_PUSH_TOKEN:
		a->push_token_file = arg;
		break;
	case OPT_PUSH_CA:
		a->push_ca = arg;
		break;
	case OPT_PUSH_INSECURE:
		a->push_insecure = true;
		break;
	default:
		return parse_limit(key, arg, state);
	}
	return 0;
}

/* Parses the options about commands and users, and those of parse_push(). */
static error_t parse_command(int key, char *arg, struct argp_state *state)
{
	struct serve_args *a = state->input;

	switch (key) {
	case OPT_COMMAND:
		parse_target(a, "--command", arg, /*command=*/true, state);
		break;
	case OPT_VRAM:
		a->vram = parse_size(state, "--vram", arg, DRYRUN_VRAM_MIN, DRYRUN_VRAM_MAX);
		break;
	case OPT_DEVICES:
		a->devices = parse_limited(state, "--devices", arg, 1, DRYRUN_DEVICES_MAX);
		break;
	case OPT_NO_DRY_RUN:
		a->no_dry_run = true;
		break;
	case OPT_COMMAND_USER:
		a->command_user = arg;
		break;
	case OPT_COMMAND_ENV:
		a->command_env = arg;
		break;
	case OPT_TARGET_USER:
		add_argument(a->target_users, &a->n_target_users, SERVE_TARGETS, arg,
			     "--target-user", state);
		break;
	default:
		return parse_push(key, arg, state);
	}
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct serve_args *a = state->input;

	switch (key) {
	case OPT_LISTEN:
		add_argument(a->listen, &a->n_listen, SERVE_LISTEN, arg, "--listen", state);
		break;
	case OPT_TOKEN:
		a->token_file = arg;
		break;
	case OPT_CERT:
		a->tls_cert = arg;
		break;
	case OPT_KEY:
		a->tls_key = arg;
		break;
	case OPT_HOST:
		add_argument(a->hosts, &a->n_hosts, SERVE_HOSTS, arg, "--allow-host", state);
		break;
	case OPT_TARGET:
		parse_target(a, "--target", arg, /*command=*/false, state);
		break;
	case OPT_ALL:
		parse_all(a, state);
		break;
	case OPT_USER:
		a->user = arg;
		break;
	case 'o':
		a->folder = arg;
		break;
	case ARGP_KEY_ARG:
		add_argument(a->files, &a->n_files, SERVE_FILES, arg, "FILE", state);
		break;
	case ARGP_KEY_END:
		parse_target_users(a, state);
		check_options(a, state);
		break;
	default:
		return parse_command(key, arg, state);
	}
	return 0;
}

/* ---- before it runs ---- */

/* Reads the files of tokens and keys. 0 or -errno with why, which has SECRET_WHY bytes, as has
 * warning. */
static int read_secrets(const struct serve_args *a, struct serve_secrets *s, char *warning,
			char *why)
{
	int err = 0;

	if (a->token_file)
		err = secret__token(a->token_file, &s->token, why);
	if (err)
		return err;
	if (a->tls_cert)
		err = secret__tls(a->tls_cert, a->tls_key, &s->cert, &s->key, warning, why);
	if (err)
		return err;
	if (a->push_token_file)
		err = secret__token(a->push_token_file, &s->push_token, why);
	if (err || !a->push_ca)
		return err;
	return secret__read(a->push_ca, SERVE_PEM, 0, &s->ca, why);
}

/* Reads files that only root can read, and checks what must not be served without a token.
 * Returns 0, or an exit code after a message. */
static int prepare(struct serve_args *a)
{
	char why[SECRET_WHY] = "", warning[SECRET_WHY] = "";
	struct serve_secrets *s = &a->secrets;
	int err;

	for (size_t i = 0; i < a->n_listen; i++) {
		bool local;

		if (listen__is_local(a->listen[i], &local, why)) {
			log_err("--listen: %s", why);
			return EXIT_USAGE;
		}
		if (local || a->token_file)
			continue;
		log_err("--listen %s: other machines can reach this address; give --token-file "
			"FILE (required), and --tls-cert and --tls-key (recommended)",
			a->listen[i]);
		return EXIT_USAGE;
	}
	for (size_t i = 0; i < a->n_targets; i++) {
		if (a->targets[i].kind == TARGET_PID && kill(a->targets[i].pid, 0) &&
		    errno == ESRCH) {
			log_err("--target %s: no process with PID %d; `ps -e` lists processes",
				a->targets[i].name, (int)a->targets[i].pid);
			return EXIT_UNUSABLE;
		}
	}
	err = read_secrets(a, s, warning, why);
	if (*warning)
		log_warn("%s", warning);
	if (err)
		log_err("%s", why);
	if (err == -EINVAL)
		return EXIT_USAGE;
	return err ? EXIT_FAILED : EXIT_OK;
}

static const struct argp_child children[] = { LOG_ARGP_CHILD, { 0 } };
static const struct argp argp = {
	.options = options,
	.parser = parse,
	.args_doc = "[FILE...]",
	.doc = "Serve an HTTP API, a dashboard and Prometheus metrics, for live processes and for "
	       "recordings.",
	.children = children,
};

static int cmd_serve(int argc, char **argv)
{
	static struct serve_args args;
	int status;

	args = (struct serve_args){
		.max_events = 10000000,
		.max_traces = 100,
		.max_captures = 4,
		.max_duration = 3600 * SECOND,
		.max_disk = UINT64_C(4) << 30,
		.max_workers = 2,
		.requests_per_minute = 6000,
		.interval = SECOND,
	};
	usage__parse(&command_serve, argc, argv, 0, &args);
	if (!args.n_listen)
		args.listen[args.n_listen++] = "127.0.0.1:8000";
	status = prepare(&args);
	if (!status)
		status = broker__run(&args);
	secret__free(args.secrets.token);
	secret__free(args.secrets.cert);
	secret__free(args.secrets.key);
	secret__free(args.secrets.ca);
	secret__free(args.secrets.push_token);
	return status;
}

const struct command command_serve = {
	.name = "serve",
	.summary = "serve an HTTP API, a dashboard and metrics",
	.group = COMMANDS_RECORD,
	.argp = &argp,
	.examples = "memtrace-bpf serve run.mtr\n"
		    "sudo memtrace-bpf serve --all\n"
		    "sudo memtrace-bpf serve --target train=train.py -o recordings/",
	.status = "0 stopped, 1 failed, 2 not usable, 3 not permitted, 64 usage",
	.run = cmd_serve,
};
