/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SERVE_SERVE_H
#define MT_SERVE_SERVE_H
/*
 * `serve`: what was asked for on the command line, and where each of its processes begins.
 * docs/SERVE.md, "The processes".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVE_LISTEN 16	  /* addresses */
#define SERVE_HOSTS 32	  /* names of --allow-host */
#define SERVE_TARGETS 64  /* of the command line */
#define SERVE_FILES 256	  /* recordings of the command line */
#define SERVE_TOKEN 1024  /* bytes of a token at most */
#define SERVE_PEM 1048576 /* bytes of a certificate, key or bundle at most */

enum serve_kind { TARGET_PID, TARGET_PATTERN, TARGET_COMMAND, TARGET_ALL };

/* --target, --command, --all. Strings are the caller's. */
struct serve_target {
	char name[64]; /* letters, digits, '.', '_', '-' and '/'; "" of TARGET_ALL */
	enum serve_kind kind;
	pid_t pid;	  /* of TARGET_PID */
	const char *text; /* the pattern, the command; of TARGET_PID as it was given */
	bool has_user;	  /* only processes of `user` count (--target-user) */
	uid_t user;
};

/* What files hold that only the broker can read: read before anybody gives up rights, handed over
 * in memory. NULL: none. All end with a NUL byte. */
struct serve_secrets {
	char *token;	  /* one word, of visible ASCII characters */
	char *cert, *key; /* PEM */
	char *ca;	  /* PEM, for push to https; NULL: what the system trusts */
	char *push_token; /* is sent as "Authorization: Bearer" with what is pushed */
};

struct serve_args {
	const char *listen[SERVE_LISTEN];
	size_t n_listen;
	const char *token_file, *tls_cert, *tls_key;
	const char *hosts[SERVE_HOSTS]; /* that Host may name besides the addresses listened on */
	size_t n_hosts;
	struct serve_target targets[SERVE_TARGETS];
	size_t n_targets;
	const char *target_users[SERVE_TARGETS]; /* NAME=USER, as given */
	size_t n_target_users;
	const char *files[SERVE_FILES];
	size_t n_files;
	const char *folder;	  /* -o; NULL: one of our own, that goes with us */
	const char *user;	  /* that web, push and workers run as; NULL: IDs of their own */
	const char *command_user; /* that commands are run as; NULL: the one behind sudo, else as
				     above. May be root */
	const char *command_env;  /* variables of ours that commands get, as child.h has them; NULL:
				     none */
	/* Limits. */
	uint64_t max_events; /* of a trace; also what a request that says none gets, if that is less
			      */
	unsigned max_traces; /* that are kept */
	unsigned max_captures;	      /* at once */
	uint64_t max_duration;	      /* ns, of a capture */
	uint64_t max_disk;	      /* bytes, of the folder */
	unsigned max_workers;	      /* at once */
	unsigned requests_per_minute; /* of each peer; 0: not limited */
	uint64_t interval;	      /* ns between two looks at each process */
	/* What commands of --command are run on. */
	uint64_t vram;	  /* bytes; 0: as `run --dry-run-cuda` has it */
	unsigned devices; /* 0: likewise */
	bool no_dry_run;  /* on the CUDA that is here */
	/* push. NULL: not wanted. */
	const char *push_pyroscope, *push_otlp; /* URLs */
	uint64_t push_every;			/* ns */
	uint64_t push_profile;			/* ns that each capture for a profile takes */
	const char *push_token_file, *push_ca;
	bool push_insecure; /* the token may go to http URLs of other machines */
	bool verbose;
	struct serve_secrets secrets;
};

/* The broker: opens all, starts the others, runs to the end. Exit code, logged. */
int broker__run(const struct serve_args *args);

/*
 * The others. Each runs in a child of the broker that has given up its rights, with nothing open
 * but what is named here and standard error; both descriptors are the callee's. They return an exit
 * code when the broker is gone (link says so) or asks them to end (SIGTERM).
 */
int web__run(const struct serve_args *args, int link_fd, const int *listen_fds, size_t n_listen);
int push__run(const struct serve_args *args, int link_fd);

#endif
