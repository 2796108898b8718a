/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "base/user.h"
#include "inspect/proc.h"

#define CUDA "libcuda.so.1"
#define NVML "libnvidia-ml.so.1"
#define MAX_ENV 64 /* variables of the command, at most */

struct dryrun {
	char dir[PATH_MAX];	  /* folder with the libraries */
	char *cache;		  /* folder for caches; owned */
	struct subprocess keeper; /* process that removes the folder for caches */
	int done;		  /* a byte makes the keeper remove the folder */
	char *env[MAX_ENV + 1];
	size_t n_env;
};

/* True if the folder has both libraries. */
static bool has_both(const char *dir)
{
	static const char *const names[] = { CUDA, NVML };
	char path[PATH_MAX + 32];
	size_t i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		if (access(path, R_OK))
			return false;
	}
	return true;
}

bool preload__find(const char *const places[2], bool (*is_there)(const char *path),
		   char ret[PATH_MAX])
{
	char exe[PATH_MAX], path[PATH_MAX + 64], *slash;
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	exe[n > 0 ? n : 0] = '\0';
	slash = strrchr(exe, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < 2 && slash; i++) {
		snprintf(path, sizeof(path), "%s/%s", exe, places[i]);
		if (realpath(path, ret) && is_there(ret))
			return true;
	}
	strcpy(ret, exe);
	return false;
}

int dryrun__find(char *buf, size_t size)
{
	static const char *const places[] = { "dryrun", "../lib/memtrace-bpf/dryrun" };
	char found[PATH_MAX];

	if (!preload__find(places, has_both, found)) {
		snprintf(buf, size, "%s/%s or %s/%s", found, places[0], found, places[1]);
		return -ENOENT;
	}
	if (strlen(found) >= size)
		return -ENAMETOOLONG;
	strcpy(buf, found);
	return strpbrk(found, ": \t\n") ? -EINVAL : 0;
}

/* For nftw(): removes a file or an empty folder. Returns 0: goes on in any case. */
static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	remove(path);
	return 0;
}

/* Arguments of the keeper process. */
struct keeping {
	const struct dryrun *dryrun;
	const struct user *user;
	int done; /* read end of the pipe */
};

/* The keeper process: removes the folder once memtrace-bpf writes a byte. If the pipe closes
 * without one, memtrace-bpf was killed: leaves the folder, which the command may still use.
 * Returns 0. */
static int keep(void *ctx)
{
	const struct keeping *keeping = ctx;
	ssize_t n;
	char c;

	do {
		n = read(keeping->done, &c, 1);
	} while (n < 0 && errno == EINTR);
	if (n == 1 && (!keeping->user || !user__become(keeping->user)))
		nftw(keeping->dryrun->cache, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	return 0;
}

/* Starts the process that removes the folder for caches. It keeps only the read end of the pipe.
 * dryrun->done, the write end, is closed with dryrun, also after an error. 0 or -errno. */
static int start_keeper(struct dryrun *dryrun, const struct user *user)
{
	int fds[2], err;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	err = subprocess__start(
		&(struct subprocess_opts){ .main = keep,
					   .ctx = &(struct keeping){ dryrun, user, fds[0] },
					   .fds = &(struct subprocess_fd){ fds[0], fds[0] },
					   .n_fds = 1,
					   .keep_signals = true },
		&dryrun->keeper);
	close(fds[0]);
	dryrun->done = fds[1];
	return err;
}

/* Makes the folder for caches and starts the process that removes it. user: its owner; NULL: this
 * process's. 0 or -errno. */
static int make_cache(struct dryrun *dryrun, const struct user *user)
{
	const char *tmp = getenv("TMPDIR");
	int err;

	if (!tmp || tmp[0] != '/')
		tmp = "/tmp";
	if (asprintf(&dryrun->cache, "%s/memtrace-dryrun-XXXXXX", tmp) < 0) {
		dryrun->cache = NULL;
		return -ENOMEM;
	}
	if (!mkdtemp(dryrun->cache)) {
		err = -errno;
		free(dryrun->cache);
		dryrun->cache = NULL;
		return err;
	}
	if (user && lchown(dryrun->cache, user->uid, user->gid))
		err = -errno;
	else
		err = start_keeper(dryrun, user);
	if (err)
		rmdir(dryrun->cache);
	return err;
}

/* Adds "NAME=VALUE", or "NAME" to remove a variable. 0 or -ENOMEM. */
__attribute__((format(printf, 2, 3))) static int add_variable(struct dryrun *dryrun,
							      const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = dryrun->n_env < MAX_ENV ? vasprintf(&dryrun->env[dryrun->n_env], fmt, ap) : -1;
	va_end(ap);
	if (n < 0) {
		dryrun->env[dryrun->n_env] = NULL;
		return -ENOMEM;
	}
	dryrun->n_env++;
	return 0;
}

/* Adds the sizes that other processes hold, with commas between them. 0 or -ENOMEM. */
static int add_held(struct dryrun *dryrun, const struct dryrun_args *args)
{
	char text[DRYRUN_DEVICES_MAX * 21 + 1];
	size_t at = 0;

	for (unsigned i = 0; args->held && i < args->devices; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%" PRIu64, i ? "," : "",
				       args->held[i]);
	return at ? add_variable(dryrun, "MEMTRACE_DRYRUN_HELD=%s", text) : 0;
}

/* Adds the variables of the dry run's device. Returns 0 or not. */
static int add_device(struct dryrun *dryrun, const struct dryrun_args *args)
{
	int err = 0;

	if (args->name)
		err |= add_variable(dryrun, "MEMTRACE_DRYRUN_NAME=%s", args->name);
	if (args->sm_major)
		err |= add_variable(dryrun, "MEMTRACE_DRYRUN_SM=%d.%d", args->sm_major,
				    args->sm_minor);
	if (args->processors)
		err |= add_variable(dryrun, "MEMTRACE_DRYRUN_PROCESSORS=%u", args->processors);
	if (args->context_given)
		err |= add_variable(dryrun, "MEMTRACE_DRYRUN_CONTEXT=%" PRIu64, args->context);
	if (args->cudnn_workspace_given)
		err |= add_variable(dryrun, "MEMTRACE_DRYRUN_CUDNN_WORKSPACE=%" PRIu64,
				    args->cudnn_workspace);
	if (args->log)
		err |= add_variable(dryrun, "MEMTRACE_DRYRUN_LOG=%s", args->log);
	/* The variable has an old and a new name. */
	if (args->alloc_conf) {
		err |= add_variable(dryrun, "PYTORCH_CUDA_ALLOC_CONF=%s", args->alloc_conf);
		err |= add_variable(dryrun, "PYTORCH_ALLOC_CONF=%s", args->alloc_conf);
	}
	return err;
}

/* Makes the changes of the command's environment. 0 or -ENOMEM. */
static int make_env(struct dryrun *dryrun, const struct dryrun_args *args)
{
	const char *other_preloads = getenv("LD_PRELOAD") ?: "";
	int err = 0;

	/* The CUDA library replaces libcuda.so.1 and also has the functions of the CUDA runtime. */
	err |= add_variable(dryrun, "LD_PRELOAD=%s/" CUDA ":%s/" NVML "%s%s", dryrun->dir,
			    dryrun->dir, *other_preloads ? ":" : "", other_preloads);
	if (args->vram)
		err |= add_variable(dryrun, "MEMTRACE_DRYRUN_VRAM=%" PRIu64, args->vram);
	if (args->paced)
		err |= add_variable(dryrun, "MEMTRACE_DRYRUN_PACED=%d", DRYRUN_PACED);
	if (args->devices)
		err |= add_variable(dryrun, "MEMTRACE_DRYRUN_DEVICES=%u", args->devices);
	err |= add_held(dryrun, args);
	err |= add_device(dryrun, args);
	err |= add_variable(dryrun, "TRITON_LIBCUDA_PATH=%s", dryrun->dir);
	err |= add_variable(dryrun, "TRITON_CACHE_DIR=%s/triton", dryrun->cache);
	err |= add_variable(dryrun, "TORCHINDUCTOR_CACHE_DIR=%s/inductor", dryrun->cache);
	err |= add_variable(dryrun, "CUDA_CACHE_PATH=%s/cuda", dryrun->cache);
	err |= add_variable(dryrun, "VLLM_CACHE_ROOT=%s/vllm", dryrun->cache);
	err |= add_variable(dryrun, "CUPY_CACHE_DIR=%s/cupy", dryrun->cache);
	/* vLLM's second runner reads the number of tokens from a kernel's result, which is always 0
	 * in a dry run: its requests would never end. */
	if (!getenv("VLLM_USE_V2_MODEL_RUNNER"))
		err |= add_variable(dryrun, "VLLM_USE_V2_MODEL_RUNNER=0");
	/* CUDA_VISIBLE_DEVICES refers to the machine's real devices. */
	if (getenv("CUDA_VISIBLE_DEVICES")) {
		log_info("CUDA_VISIBLE_DEVICES is ignored: all devices of a dry run are visible; "
			 "--devices N sets their number");
		err |= add_variable(dryrun, "CUDA_VISIBLE_DEVICES");
	}
	for (const char *const *variable = args->env; variable && *variable; variable++)
		err |= add_variable(dryrun, "%s", *variable);
	return err ? -ENOMEM : 0;
}

struct dryrun *dryrun__new(const struct dryrun_args *args, const struct user *user, int *status)
{
	struct dryrun *dryrun = calloc(1, sizeof(*dryrun));
	int err;

	*status = EXIT_FAILED;
	if (!dryrun) {
		log_err("out of memory");
		return NULL;
	}
	dryrun->done = -1;
	err = dryrun__find(dryrun->dir, sizeof(dryrun->dir));
	if (err == -ENOENT) {
		*status = EXIT_NOT_PERMITTED;
		log_err("the libraries of the dry run are not there (" CUDA ", " NVML
			" in %s): `make` builds them, `make install` "
			"installs them",
			dryrun->dir);
	} else if (err) {
		*status = EXIT_NOT_PERMITTED;
		log_err("%s: the dry run cannot be preloaded from a folder whose name is too long "
			"or has a space or a colon: install it elsewhere",
			dryrun->dir);
	} else {
		err = make_cache(dryrun, user);
		if (err)
			log_err("cannot make a folder for the dry run's caches: %s; set TMPDIR to "
				"another folder",
				strerror(-err));
		else if ((err = make_env(dryrun, args)))
			log_err("out of memory");
	}
	if (!err)
		return dryrun;
	dryrun__free(dryrun);
	return NULL;
}

const char *const *dryrun__env(const struct dryrun *dryrun)
{
	return (const char *const *)dryrun->env;
}

bool dryrun__mapped(const struct dryrun *dryrun, pid_t pid)
{
	struct proc *proc = proc__open(pid);
	struct maps maps;
	bool ret = true;
	size_t i, len = strlen(dryrun->dir);

	if (proc && !proc__maps(proc, &maps)) {
		for (i = 0; i < maps.n; i++) {
			const char *path = maps.v[i].path;

			if (!strncmp(path, dryrun->dir, len) && !strcmp(path + len, "/" CUDA))
				break;
		}
		ret = i < maps.n;
		maps__free(&maps);
	}
	proc__free(proc);
	return ret;
}

pid_t dryrun__keeper(const struct dryrun *dryrun)
{
	return dryrun->keeper.pid;
}

void dryrun__free(struct dryrun *dryrun)
{
	size_t i;
	int status;

	if (!dryrun)
		return;
	if (dryrun->keeper.pid) {
		while (write(dryrun->done, "", 1) < 0 && errno == EINTR)
			;
		subprocess__wait(&dryrun->keeper, /*ms=*/-1, &status);
	}
	if (dryrun->done >= 0)
		close(dryrun->done);
	for (i = 0; i < dryrun->n_env; i++)
		free(dryrun->env[i]);
	free(dryrun->cache);
	free(dryrun);
}
