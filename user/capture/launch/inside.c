/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/preload.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "capture/probes/probes_inside.h"

#define PRELOAD "LD_PRELOAD="

struct inside {
	struct inside_memory *memory;
	char *preload, *shared_memory_env; /* strings in env */
	const char **env;
};

static bool is_readable(const char *path)
{
	return !access(path, R_OK);
}

/* Finds the library: inside/ next to the program, or ../lib/memtrace-bpf/inside/ when installed.
 * Returns 0, or -errno with the reason in why. */
static int find_library(char *path, size_t size, char *why, size_t why_size)
{
	static const char *const places[] = { "inside/" MT_INSIDE_LIBRARY,
					      "../lib/memtrace-bpf/inside/" MT_INSIDE_LIBRARY };
	char found[PATH_MAX];

	if (!preload__find(places, is_readable, found)) {
		snprintf(why, why_size,
			 "its library is not there (" MT_INSIDE_LIBRARY
			 " in %s/inside or %s/../lib/memtrace-bpf/inside): `make` builds it, `make "
			 "install` installs it",
			 found, found);
		return -ENOENT;
	}
	if (strlen(found) >= size || strpbrk(found, ": \t\n")) {
		snprintf(why, why_size,
			 "%s: cannot be preloaded from a folder whose name is too long or has a "
			 "space or a colon: install it elsewhere",
			 found);
		return -EINVAL;
	}
	strcpy(path, found);
	return 0;
}

/* Yama's restriction of ptrace. -1: no Yama. */
static int ptrace_scope(void)
{
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = -1;

	if (file && fscanf(file, "%d", &scope) != 1)
		scope = -1;
	if (file)
		fclose(file);
	return scope;
}

/* 0 if this host lets us read a child process; otherwise -EPERM with the reason. */
static int may_ptrace(char *why, size_t size)
{
	int scope = ptrace_scope();

	/* 2: only with CAP_SYS_PTRACE; 3: never */
	if (scope < 2 || (scope == 2 && !geteuid()))
		return 0;
	snprintf(why, size,
		 "this host does not allow reading a child process (kernel.yama.ptrace_scope is "
		 "%d); set it to 1",
		 scope);
	return -EPERM;
}

int inside__can(char *buf, size_t size)
{
	char path[PATH_MAX];
	int err = find_library(path, sizeof(path), buf, size);

	return err ?: may_ptrace(buf, size);
}

/* Makes the command's environment: env, with our library before those of LD_PRELOAD. 0 or
 * -ENOMEM. */
static int make_env(struct inside *inside, const char *library, const char *const *env)
{
	const char *other_preloads = getenv("LD_PRELOAD") ?: "";
	struct stat st;
	size_t n = 0, n_env = 0;

	while (env && env[n])
		n++;
	inside->env = calloc(n + 3, sizeof(*inside->env)); /* with two variables of ours and NULL */
	if (!inside->env || fstat(inside->memory->fd, &st))
		return -ENOMEM;
	for (n = 0; env && env[n]; n++) {
		if (strncmp(env[n], PRELOAD, strlen(PRELOAD)))
			inside->env[n_env++] = env[n];
		else
			other_preloads = env[n] + strlen(PRELOAD);
	}
	if (asprintf(&inside->preload, PRELOAD "%s%s%s", library, *other_preloads ? ":" : "",
		     other_preloads) < 0 ||
	    asprintf(&inside->shared_memory_env, MT_INSIDE_ENV "=%d:%" PRIu64 ":%" PRIu64,
		     inside->memory->fd, (uint64_t)st.st_dev, (uint64_t)st.st_ino) < 0)
		return -ENOMEM;
	inside->env[n_env++] = inside->preload;
	inside->env[n_env++] = inside->shared_memory_env;
	return 0;
}

struct inside *inside__new(const char *const *env, size_t ring_bytes, const struct user *user,
			   int *status)
{
	char library[PATH_MAX], why[PATH_MAX + 256];
	struct inside *inside = calloc(1, sizeof(*inside));

	*status = EXIT_FAILED;
	if (!inside) {
		log_err("out of memory");
		return NULL;
	}
	if (inside__can(why, sizeof(why)) ||
	    find_library(library, sizeof(library), why, sizeof(why))) {
		*status = EXIT_NOT_PERMITTED;
		log_err("recording from inside: %s", why);
		goto fail;
	}
	inside->memory = inside_memory__new(ring_bytes, user);
	if (!inside->memory) {
		log_err("recording from inside: cannot make shared memory: %s", strerror(errno));
		goto fail;
	}
	if (!make_env(inside, library, env))
		return inside;
	log_err("out of memory");
fail:
	inside__free(inside);
	return NULL;
}

const char *const *inside__env(const struct inside *inside)
{
	return inside->env;
}

struct inside_memory *inside__memory(const struct inside *inside)
{
	return inside->memory;
}

void inside__free(struct inside *inside)
{
	if (!inside)
		return;
	inside_memory__free(inside->memory);
	free(inside->preload);
	free(inside->shared_memory_env);
	free(inside->env);
	free(inside);
}
