/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LAUNCH_DRYRUN_H
#define MT_LAUNCH_DRYRUN_H
/*
 * A command's environment for running with no GPU: the two libraries that answer for CUDA and NVML
 * (docs/DRYRUN.md) preloaded, and caches of its own, so that nothing that was compiled for no
 * device enters the user's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct user;
struct dryrun;

/* What docs/DRYRUN.md has under "Options". Strings must outlive the struct dryrun. */
struct dryrun_args {
	bool wanted;
	uint64_t vram;		/* bytes a device, 0: the library's default */
	unsigned devices;	/* 0: the library's default */
	const char *name;	/* what PyTorch says the device is; NULL: the library's default */
	int sm_major, sm_minor; /* 0, 0: likewise */
	unsigned processors;	/* multiprocessors; 0: likewise */
	bool context_given, cudnn_workspace_given;
	uint64_t context;	  /* bytes charged when a device is first used */
	uint64_t cudnn_workspace; /* bytes that a convolution is said to need */
	const char *log;	  /* a file, NULL: none */
	const char *
		alloc_conf; /* settings of PyTorch's allocator; NULL: as the environment has them */
	const char *const *env; /* more of it, as child.h has it; NULL: none */
};

/* What the library takes where nothing is said. */
#define DRYRUN_VRAM_DEFAULT (80ULL << 30)
#define DRYRUN_CONTEXT_DEFAULT (512ULL << 20)
#define DRYRUN_CUDNN_WORKSPACE_DEFAULT (32ULL << 20)
#define DRYRUN_VRAM_MIN (16ULL << 20) /* what the library takes */
#define DRYRUN_VRAM_MAX (4ULL << 40)
#define DRYRUN_DEVICES_MAX 64

/*
 * The folder with the libraries: dryrun/ beside the program, or ../lib/memtrace-bpf/dryrun/ where
 * it is installed. 0; -ENOENT, buf has the places; -EINVAL: the folder's name has a colon or a
 * space in it, which LD_PRELOAD cannot have.
 */
int dryrun__find(char *buf, size_t size);

/*
 * Makes the folder for the caches, the user's own (NULL: as we are). NULL, and *status and the
 * words logged. Forks a process that removes the folder at the end, as that user: we may have given
 * up the right to by then. Signals that are blocked here are in it.
 */
struct dryrun *dryrun__new(const struct dryrun_args *args, const struct user *user, int *status);
/* For child__new(); owned by d. */
const char *const *dryrun__env(const struct dryrun *d);
/* Has the process the libraries in it? A program that is static or set-user-ID has not. True where
 * that cannot be known. */
bool dryrun__mapped(const struct dryrun *d, pid_t pid);
/* The process that removes the folder, a child of ours. */
pid_t dryrun__keeper(const struct dryrun *d);
/* Removes the folder. NULL is fine. */
void dryrun__free(struct dryrun *d);

#endif
