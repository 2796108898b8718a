/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Options of `serve` and the entry points of its processes. See docs/internals/SERVE.md, "The
 * processes". */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVE_LISTEN 16	  /* listening addresses, at most */
#define SERVE_HOSTS 32	  /* names given with --allow-host, at most */
#define SERVE_TARGETS 64  /* targets given on the command line, at most */
#define SERVE_FILES 700	  /* recordings given on the command line, at most */
#define SERVE_PEM 1048576 /* largest certificate, key or bundle, in bytes */

enum serve_kind { TARGET_PID, TARGET_PATTERN, TARGET_COMMAND, TARGET_ALL };

/* A target from --target, --command or --all. Strings belong to the caller. */
struct serve_target {
	char name[64]; /* letters, digits, '.', '_', '-' and '/'; "" for TARGET_ALL */
	enum serve_kind kind;
	pid_t pid;	  /* process of TARGET_PID */
	const char *text; /* pattern or command; for TARGET_PID the option's text */
	bool has_user;	  /* --target-user is given: only processes of `user` match */
	uid_t user;
};

/* Contents of files that only the broker may read. The broker reads them before any process
 * gives up rights, and passes them on in memory. NUL-terminated; NULL: not given. */
struct serve_secrets {
	char *token;	  /* one word of visible ASCII characters */
	char *cert, *key; /* PEM text */
	char *ca;	  /* PEM text for push to https; NULL: the system's certificates */
	char *push_token; /* sent as "Authorization: Bearer" with each push */
};

struct serve_args {
	const char *listen[SERVE_LISTEN];
	size_t n_listen;
	const char *token_file, *tls_cert, *tls_key;
	const char *hosts[SERVE_HOSTS]; /* names accepted in Host besides the listening addresses */
	size_t n_hosts;
	struct serve_target targets[SERVE_TARGETS];
	size_t n_targets;
	const char *target_users[SERVE_TARGETS]; /* NAME=USER as given */
	size_t n_target_users;
	const char *files[SERVE_FILES];
	size_t n_files;
	const char *folder; /* folder of -o; NULL: a temporary folder, removed at exit */
	/* User that web, push and workers run as. NULL: each gets a user and group ID that no
	 * other process has. */
	const char *user;
	/* User of commands; may be root. NULL: the user behind sudo, otherwise as `user`. */
	const char *command_user;
	/* variables passed to commands, in the format of child.h; NULL: none */
	const char *command_env;
	/* Limits of captures and requests. */
	uint64_t max_events;   /* events per trace; also caps the default of requests */
	unsigned max_traces;   /* stored traces */
	unsigned max_captures; /* captures at the same time */
	uint64_t max_duration; /* longest capture, in ns */
	/* Option --cost of `record` for captures of processes: "1%" or "off". NULL: "off" for
	 * captures that a person starts, CAPTURE_COST for profiles, which programs request
	 * repeatedly. */
	const char *cost;
	bool figures;	      /* captures of processes give step figures to the processes' users */
	uint64_t max_disk;    /* size limit of the folder, in bytes */
	unsigned max_workers; /* workers at the same time */
	unsigned requests_per_minute; /* requests per minute of each peer; 0: no limit */
	uint64_t interval;	      /* time between two samples of each process, in ns */
	/* The simulated CUDA device for commands of --command. */
	uint64_t vram;	  /* device memory in bytes; 0: the default of `run --dry-run-cuda` */
	unsigned devices; /* number of devices; 0: the default of `run --dry-run-cuda` */
	bool no_dry_run;  /* commands use the machine's real CUDA devices instead */
	/* Servers that push sends to. NULL: none. */
	const char *push_pyroscope;		    /* URL of Pyroscope */
	const char *push_otlp, *push_otlp_profiles; /* of OTLP collectors of metrics and profiles */
	uint64_t push_every;			    /* time between two pushes, in ns */
	uint64_t push_profile; /* length of the capture for each profile, in ns */
	const char *push_token_file, *push_ca;
	bool push_insecure; /* the token may be sent to http URLs of other machines */
	struct serve_secrets secrets;
};

#define LISTEN_WHY 256 /* size of an error message about --listen, in bytes, with the NUL */

/* Sets *ret to true if an address as in listen__open() would be local. Opens nothing. Returns 0, or
 * -EINVAL with the error in why, which has LISTEN_WHY bytes. */
int listen__is_local(const char *text, bool *ret, char *why);

/* The broker: opens everything, starts the other processes and runs until the end. Logs errors.
 * Returns the exit code. */
int broker__run(const struct serve_args *args);

/*
 * The other processes. Each runs in a child of the broker that has given up its rights. Only these
 * descriptors and standard error are open; the callee closes them. Both return an exit code after
 * the broker exits (the link closes) or after SIGTERM.
 */
int web__run(const struct serve_args *args, int link_fd, const int *listen_fds, size_t n_listen);
int push__run(const struct serve_args *args, int link_fd);
