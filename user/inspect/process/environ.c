/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/proc.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "inspect/elf.h"

#define VARIABLES_MAX 8192
#define PAGE 4096u
#define NAME_BYTES 128	       /* room for a variable's name, with "=" and NUL */
#define INITIAL_MAX (8u << 20) /* bytes; the kernel allows 6 MiB for environment and arguments */

/* Reads a text up to its NUL, page by page, since the next page may not be mapped. -E2BIG: buf has
 * the first size bytes, without a NUL. */
static int read_text(const struct proc *proc, uint64_t addr, char *buf, size_t size)
{
	size_t len = 0, part;
	int err;

	while (len < size) {
		part = PAGE - (addr + len) % PAGE;
		if (part > size - len)
			part = size - len;
		err = proc__read(proc, addr + len, buf + len, part);
		if (err)
			return err;
		if (memchr(buf + len, '\0', part))
			return 0;
		len += part;
	}
	return -E2BIG;
}

/* Address of the C variable `environ` in a mapped file; 0: the file does not define it. */
static uint64_t environ_in_file(const struct proc *proc, const struct map *map)
{
	uint64_t bias, addr = 0;
	struct elf_sym sym;
	struct elf *elf;

	elf = elf__open_map(proc, map);
	if (!elf)
		return 0;
	if (elf__dynsym(elf, "environ", &sym) == 0 &&
	    elf__bias(elf, map->start, map->offset, &bias) == 0)
		addr = sym.value + bias;
	elf__free(elf);
	return addr;
}

static bool is_libc(const char *path)
{
	const char *base = strrchr(path, '/');

	return base && (text__starts(base, "/libc.so.") || text__starts(base, "/libc-2.") ||
			text__starts(base, "/ld-musl-"));
}

/* Address of the C variable `environ`; 0: not found. An executable that refers to it has its own
 * copy, which the C library uses, too. */
static uint64_t find_environ(const struct proc *proc, const struct maps *maps)
{
	uint64_t addr = 0;
	char exe[4096];
	size_t i;

	proc__exe(proc, exe, sizeof(exe));
	for (i = 0; i < maps->n && !addr; i++)
		if (maps->v[i].inode && !strcmp(maps->v[i].path, exe)) {
			addr = environ_in_file(proc, &maps->v[i]);
			break;
		}
	if (addr)
		return addr;
	for (i = 0; i < maps->n; i++)
		if (maps->v[i].inode && is_libc(maps->v[i].path))
			return environ_in_file(proc, &maps->v[i]);
	return 0;
}

/* Reads the value from memory. -EAGAIN: the program has not set up its environment yet; -ENOTSUP:
 * no mapped file defines `environ`, as before the C library is mapped. Otherwise as
 * environ__get(). */
static int get_current(const struct proc *proc, const struct maps *maps, const char *name,
		       char *buf, size_t size)
{
	uint64_t environ_at = find_environ(proc, maps), variables, variable;
	size_t len = strlen(name), i;
	char head[NAME_BYTES];
	int err;

	if (!environ_at)
		return -ENOTSUP;
	err = proc__read_u64(proc, environ_at, &variables);
	if (!err && !variables)
		return -EAGAIN;
	for (i = 0; !err && i < VARIABLES_MAX; i++) {
		err = proc__read_u64(proc, variables + i * 8, &variable);
		if (err || !variable)
			break;
		/* Only the name is wanted, so the text may not fit. */
		err = read_text(proc, variable, head, len + 1);
		if (err && err != -E2BIG)
			return err;
		err = 0;
		if (!memcmp(head, name, len) && head[len] == '=')
			return read_text(proc, variable + len + 1, buf, size);
	}
	if (err)
		return err;
	return i == VARIABLES_MAX ? -E2BIG : -ENOENT;
}

/* Reads the value from the environment that the program was started with. */
static int get_initial(const struct proc *proc, const char *name, char *buf, size_t size)
{
	size_t len = strlen(name), all;
	char *text, *entry;
	int err = proc__text(proc, "environ", INITIAL_MAX, &text, &all);

	if (err)
		return err;
	err = -ENOENT;
	for (entry = text; entry < text + all; entry += strlen(entry) + 1) {
		if (strncmp(entry, name, len) || entry[len] != '=')
			continue;
		err = strlen(entry + len + 1) < size ? 0 : -E2BIG;
		if (!err)
			strcpy(buf, entry + len + 1);
		break;
	}
	free(text);
	return err;
}

int environ__get(const struct proc *proc, const struct maps *maps, const char *name, char *buf,
		 size_t size)
{
	int err;

	if (strlen(name) + 2 > NAME_BYTES)
		return -ENOTSUP;
	err = get_current(proc, maps, name, buf, size);
	/* Another error does not mean that the variables are still those of the start. */
	if (err == -EAGAIN || err == -ENOTSUP)
		err = get_initial(proc, name, buf, size);
	return err;
}

/* The variables of torchrun: https://pytorch.org/docs/stable/elastic/run.html; Open MPI:
 * "Environment variables set for each process" of mpirun's manual; MPICH and Intel MPI: the Hydra
 * launcher; Slurm: "OUTPUT ENVIRONMENT VARIABLES" of srun's manual; Kubernetes: "Indexed Job". */
static const struct launcher {
	const char *rank, *local, *world;
	bool batch; /* the launcher sets its variables for programs without ranks, too */
} launchers[] = {
	{ "RANK", "LOCAL_RANK", "WORLD_SIZE", false },
	{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", true },
	{ "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", true },
	{ "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", true },
	{ "JOB_COMPLETION_INDEX", NULL, NULL, false },
};

/* Reads a variable as a number. False: not set, or no number that a rank can have. */
static bool read_number(int (*get)(void *ctx, const char *name, char *buf, size_t size), void *ctx,
			const char *name, uint64_t *ret)
{
	char value[24], *end;

	if (!name || get(ctx, name, value, sizeof(value)) || !isdigit((unsigned char)*value))
		return false;
	errno = 0;
	*ret = strtoull(value, &end, 10);
	return !errno && !*end && *ret <= INT64_MAX;
}

/* Takes the first launcher whose variables are set. Those of a batch system count only with a rank
 * and a world of at least two. */
void rank_env__find(int (*get)(void *ctx, const char *name, char *buf, size_t size), void *ctx,
		    struct rank_env *ret)
{
	for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
		const struct launcher *launcher = &launchers[i];

		*ret = (struct rank_env){ 0 };
		ret->has_rank = read_number(get, ctx, launcher->rank, &ret->rank);
		if (launcher->batch && !ret->has_rank)
			continue;
		ret->has_world = read_number(get, ctx, launcher->world, &ret->world);
		if (launcher->batch &&
		    (!ret->has_world || ret->world < 2 || ret->rank >= ret->world))
			continue;
		ret->has_local = read_number(get, ctx, launcher->local, &ret->local);
		if (!(ret->has_rank || ret->has_local || ret->has_world))
			continue;
		ret->from = ret->has_rank ? launcher->rank : NULL;
		return;
	}
	*ret = (struct rank_env){ 0 };
}
