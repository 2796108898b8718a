/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/kernel/programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Younger than Debian 12's headers: include/uapi/linux/bpf.h */
#define TRACE_UPROBE_MULTI 48
#define TRACE_UPROBE_SESSION 57
#define PROGRAMS_MAX 32
#define THREADS_MAX 4

/* Some of the programs, which one thread loads into an object of their own. */
struct part {
	const struct programs *owner;
	const char *names[PROGRAMS_MAX];
	size_t n;
	struct bpf_object *obj; /* NULL: could not be loaded */
	int err;
	pthread_t thread;
	bool has_thread;
};

struct programs {
	const struct bpf_object *maps; /* arguments of programs__new() */
	const void *elf;
	size_t size;
	bool multi;
	struct bpf_object *objs[PROGRAMS_MAX];
	size_t n_objs;
	/* What programs__begin() loads: */
	const char *names[PROGRAMS_MAX];
	size_t n_names;
	pthread_t thread;
	bool under_way; /* the thread exists and must be joined */
	bool done;	/* set by the thread at its end */
	int err;	/* the thread's result */
};

struct programs *programs__new(const struct bpf_object *maps, const void *elf, size_t size,
			       bool multi)
{
	struct programs *programs = calloc(1, sizeof(*programs));

	if (!programs)
		return NULL;
	programs->maps = maps;
	programs->elf = elf;
	programs->size = size;
	programs->multi = multi;
	return programs;
}

void programs__free(struct programs *programs)
{
	if (!programs)
		return;
	if (programs->under_way)
		pthread_join(programs->thread, NULL);
	for (size_t i = 0; i < programs->n_objs; i++)
		bpf_object__close(programs->objs[i]);
	free(programs);
}

struct bpf_program *programs__get(const struct programs *programs, const char *name)
{
	for (size_t i = 0; i < programs->n_objs; i++) {
		struct bpf_program *prog = bpf_object__find_program_by_name(programs->objs[i],
									    name);

		if (prog && bpf_program__autoload(prog))
			return prog;
	}
	return NULL;
}

/* Makes an object use the maps that are loaded already. 0 or -errno. */
static int share_maps(const struct programs *programs, struct bpf_object *obj)
{
	struct bpf_map *map;
	int err = 0;

	bpf_object__for_each_map(map, obj)
	{
		int fd = bpf_object__find_map_fd_by_name(programs->maps, bpf_map__name(map));

		err = fd < 0 ? fd : bpf_map__reuse_fd(map, fd);
		if (err)
			break;
	}
	return err;
}

/* How a program for uprobe.multi links is attached. */
static int attach_type(const struct bpf_program *prog)
{
	return strcmp(bpf_program__name(prog), PROGRAMS_SESSION) ? TRACE_UPROBE_MULTI
								 : TRACE_UPROBE_SESSION;
}

/* Makes an object load the part's programs and no others. 0 or -ENOENT. */
static int select_programs(const struct part *part, struct bpf_object *obj)
{
	struct bpf_program *prog;

	bpf_object__for_each_program(prog, obj)
	{
		bpf_program__set_autoload(prog, false);
		if (part->owner->multi && bpf_program__type(prog) == BPF_PROG_TYPE_KPROBE)
			bpf_program__set_expected_attach_type(prog, attach_type(prog));
	}
	for (size_t i = 0; i < part->n; i++) {
		prog = bpf_object__find_program_by_name(obj, part->names[i]);
		if (!prog)
			return -ENOENT;
		bpf_program__set_autoload(prog, true);
	}
	return 0;
}

/* Thread: loads the programs of one part. Sets part->obj, or part->err. */
static void *load_part(void *arg)
{
	struct part *part = arg;
	/* with the name of the maps' object: names of maps for variables begin with it */
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = bpf_object__name(part->owner->maps));
	struct bpf_object *obj = bpf_object__open_mem(part->owner->elf, part->owner->size, &opts);

	part->err = obj ? share_maps(part->owner, obj) : -errno;
	if (!part->err)
		part->err = select_programs(part, obj);
	if (!part->err)
		part->err = bpf_object__load(obj);
	if (!part->err)
		part->obj = obj;
	else
		bpf_object__close(obj);
	return NULL;
}

/* Deals those of the n programs that are not loaded out to the parts, in turn. Returns how many
 * they are, or -E2BIG. */
static int deal_out(const struct programs *programs, struct part *parts, size_t n_parts,
		    const char *const *names, size_t n)
{
	size_t dealt = 0;

	for (size_t i = 0; i < n; i++) {
		struct part *part = &parts[dealt % n_parts];

		if (programs__get(programs, names[i]))
			continue;
		if (part->n == PROGRAMS_MAX || programs->n_objs + n_parts > PROGRAMS_MAX)
			return -E2BIG;
		part->names[part->n++] = names[i];
		dealt++;
	}
	return (int)dealt;
}

/* Returns the number of threads that load programs at the same time. */
static size_t thread_count(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (n < 1)
		return 1;
	return n > THREADS_MAX ? THREADS_MAX : (size_t)n;
}

/* Loads programs in n_parts threads: this one, and others that it starts. 0 or -errno: none is
 * loaded. */
static int load(struct programs *programs, const char *const *names, size_t n, size_t n_parts)
{
	struct part parts[THREADS_MAX] = { 0 };
	size_t i;
	int dealt = deal_out(programs, parts, n_parts, names, n), err = 0;

	if (dealt < 0)
		return dealt;
	for (i = 0; i < n_parts && i < (size_t)dealt; i++) {
		parts[i].owner = programs;
		parts[i].has_thread = i &&
				      !pthread_create(&parts[i].thread, NULL, load_part, &parts[i]);
	}
	for (i = 0; i < n_parts && i < (size_t)dealt; i++) {
		if (parts[i].has_thread)
			pthread_join(parts[i].thread, NULL);
		else
			load_part(&parts[i]);
		err = err ?: parts[i].err;
	}
	for (i = 0; i < n_parts; i++) {
		if (err)
			bpf_object__close(parts[i].obj);
		else if (parts[i].obj)
			programs->objs[programs->n_objs++] = parts[i].obj;
	}
	return err;
}

int programs__load(struct programs *programs, const char *const *names, size_t n)
{
	return load(programs, names, n, thread_count());
}

/* Thread: loads all programs, one after the other. */
static void *load_all(void *arg)
{
	struct programs *programs = arg;

	programs->err = load(programs, programs->names, programs->n_names, /*n_parts=*/1);
	__atomic_store_n(&programs->done, true, __ATOMIC_RELEASE);
	return NULL;
}

int programs__begin(struct programs *programs, const char *const *names, size_t n)
{
	int err;

	if (n > PROGRAMS_MAX)
		return -E2BIG;
	memcpy(programs->names, names, n * sizeof(*names));
	programs->n_names = n;
	programs->done = false;
	err = pthread_create(&programs->thread, NULL, load_all, programs);
	programs->under_way = !err;
	return -err;
}

int programs__poll(struct programs *programs)
{
	if (programs->under_way && !__atomic_load_n(&programs->done, __ATOMIC_ACQUIRE))
		return -EINPROGRESS;
	if (programs->under_way)
		pthread_join(programs->thread, NULL);
	programs->under_way = false;
	return programs->err;
}

/* ---- hits without a run ---- */

uint64_t programs__skipped_of(const int *fds, size_t n, programs_info_fn info)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		struct bpf_prog_info prog_info = { 0 };
		uint32_t len = sizeof(prog_info);

		/* An older kernel fills less of `prog_info`; the rest stays 0. */
		if (fds[i] >= 0 && !info(fds[i], &prog_info, &len))
			sum += prog_info.recursion_misses;
	}
	return sum;
}

uint64_t programs__skipped(const struct programs *programs)
{
	struct bpf_program *prog;
	int fds[PROGRAMS_MAX];
	uint64_t sum = 0;
	size_t n;

	if (!programs || programs->under_way) /* a thread changes the objects */
		return 0;
	for (size_t i = 0; i < programs->n_objs; i++) {
		n = 0;
		bpf_object__for_each_program(prog, programs->objs[i])
		{
			if (n < PROGRAMS_MAX && bpf_program__autoload(prog))
				fds[n++] = bpf_program__fd(prog);
		}
		sum += programs__skipped_of(fds, n, bpf_obj_get_info_by_fd);
	}
	return sum;
}
