/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Libraries of ours that a started command preloads: for a dry run (dryrun), and to record itself
 * (inside).
 *
 * Environment of a command for running without a GPU: preloads replacements for the CUDA and NVML
 * libraries (docs/internals/DRYRUN.md). Sets cache folders of its own, so that results compiled for
 * no real device do not get into the user's caches.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct user;
struct dryrun;

/*
 * Finds a file of memtrace-bpf at one of two places, which are relative to the folder of this
 * program. Returns true with the real path in ret if is_there() accepts that path; otherwise false
 * with the folder of this program in ret.
 */
bool preload__find(const char *const places[2], bool (*is_there)(const char *path),
		   char ret[PATH_MAX]);

/* Options, see docs/internals/DRYRUN.md. Strings must outlive struct dryrun. */
struct dryrun_args {
	bool wanted;
	uint64_t vram;		/* bytes per device; 0: default */
	unsigned devices;	/* number of devices; 0: default */
	const uint64_t *held;	/* bytes of each device that other processes hold; NULL: none */
	const char *name;	/* device name reported to PyTorch; NULL: default */
	int sm_major, sm_minor; /* compute capability; 0, 0: default */
	unsigned processors;	/* multiprocessors; 0: default */
	bool context_given, cudnn_workspace_given;
	uint64_t context;	  /* bytes used when a device is first used */
	uint64_t cudnn_workspace; /* bytes of workspace reported for a convolution */
	const char *log;	  /* log file; NULL: none */
	bool paced;		  /* the first DRYRUN_PACED kernels take 3 ms each */
	const char *alloc_conf;	  /* PYTORCH_CUDA_ALLOC_CONF; NULL: unchanged */
	const char *const *env;	  /* further variables as in child.h; NULL: none */
};

/* Defaults of the library. */
#define DRYRUN_VRAM_DEFAULT (80ULL << 30)
#define DRYRUN_CONTEXT_DEFAULT (512ULL << 20)
#define DRYRUN_CUDNN_WORKSPACE_DEFAULT (32ULL << 20)
#define DRYRUN_VRAM_MIN (16ULL << 20) /* limits of the library */
#define DRYRUN_VRAM_MAX (4ULL << 40)
#define DRYRUN_DEVICES_MAX 64
/* Number of kernels that take time with dryrun_args.paced: without it, some steps are shorter than
 * a reading of the program's objects. */
#define DRYRUN_PACED 1000

/*
 * Finds the folder with the libraries: dryrun/ next to the program, or ../lib/memtrace-bpf/dryrun/
 * when installed. Returns 0, -ENOENT (buf gets the searched places) or -EINVAL (the path has a
 * colon or space, which LD_PRELOAD cannot contain).
 */
int dryrun__find(char *buf, size_t size);

/*
 * Creates the cache folder for user (NULL: the current user). NULL: error logged and *status set.
 * Forks a process that removes the folder at the end as that user, because this process may have
 * dropped the right. That process inherits blocked signals.
 */
struct dryrun *dryrun__new(const struct dryrun_args *args, const struct user *user, int *status);
/* Environment for child__new(); owned by dryrun. */
const char *const *dryrun__env(const struct dryrun *dryrun);
/* True if the process has loaded the libraries, or if that cannot be determined. Static and
 * set-user-ID programs do not load them. */
bool dryrun__mapped(const struct dryrun *dryrun, pid_t pid);
/* PID of the child process that removes the folder. */
pid_t dryrun__keeper(const struct dryrun *dryrun);
/* Removes the folder. NULL is fine. */
void dryrun__free(struct dryrun *dryrun);

/*
 * struct inside: environment variables for a command that records itself. LD_PRELOAD loads a
 * library into the command, which runs the BPF programs there and shares memory with this process.
 * For users without privileges: see docs/internals/ESTIMATE.md, "Without privileges". Errors are
 * logged.
 */

struct inside;
struct inside_memory;

/* Checks that the library exists and the machine supports it. Returns 0, or -errno with the
 * reason in buf. */
int inside__can(char *buf, size_t size);
/*
 * env: further variables as for child__new(), may contain LD_PRELOAD; NULL: none; borrowed until
 * inside__free(). ring_bytes: 0 or a power of two. user: the command's user; NULL: the current one.
 * NULL: error logged and *status set.
 */
struct inside *inside__new(const char *const *env, size_t ring_bytes, const struct user *user,
			   int *status);
/* Environment for child__new(): env and our variables. Owned by i. */
const char *const *inside__env(const struct inside *inside);
/* Memory for struct session_opts; owned by i, which must outlive the session. */
struct inside_memory *inside__memory(const struct inside *inside);
void inside__free(struct inside *inside); /* NULL is fine */
