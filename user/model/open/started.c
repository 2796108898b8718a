/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/open/started.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/mtr.h"
#include "record/stream.h"

#define NAMES_MOST 65536 /* files of the folder that are looked at */
#define STARTED_MOST 1024
#define ANCESTORS_MOST 8 /* as docs/reference/mtr.md has it */

struct process {
	uint64_t pid, started;
};

void started__free(struct started *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->paths[i]);
	free(s->paths);
	*s = (struct started){ 0 };
}

/* ---- names ---- */

/* A path in parts: "job/run.mtr" is "job/", "run" and ".mtr". */
struct name_parts {
	const char *base, *extension;
	size_t folder_len, stem_len;
};

/* Splits a path; only ".mtr" counts as an extension. */
static struct name_parts split_path(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct name_parts parts = { .base = path, .extension = "" };

	if (slash)
		parts.base = slash + 1;
	parts.folder_len = (size_t)(parts.base - path);
	parts.stem_len = strlen(parts.base);
	if (parts.stem_len > strlen(".mtr") &&
	    !strcmp(parts.base + parts.stem_len - strlen(".mtr"), ".mtr")) {
		parts.extension = ".mtr";
		parts.stem_len -= strlen(".mtr");
	}
	return parts;
}

/* True for STEM.PID and STEM.PID-2, with the extension. */
static bool is_name_of_started(const struct name_parts *p, const char *name)
{
	const char *rest = name + p->stem_len;

	if (strncmp(name, p->base, p->stem_len) || *rest++ != '.' || !isdigit((unsigned char)*rest))
		return false;
	rest += strspn(rest, "0123456789");
	if (*rest == '-')
		rest += 1 + strspn(rest + 1, "0123456789");
	return !strcmp(rest, p->extension);
}

/* ---- recordings ---- */

/* Opens a regular file, and reads its first events, which come after the facts of its process.
 * *has_first: there is one. */
static struct mtr_reader *open_regular(const char *path, struct event *first, bool *has_first)
{
	struct mtr_reader *r = mtr_reader__is_recording(path) ? mtr_reader__open(path, NULL) : NULL;

	if (r)
		*has_first = mtr_reader__next(r, first) == 1;
	return r;
}

static bool is_memory(const struct event *e)
{
	return e->kind == EVENT_ALLOC || e->kind == EVENT_BLOCK || e->kind == EVENT_SEGMENT ||
	       e->kind == EVENT_CUDA_ALLOC;
}

/* Reads which process a recording is of, and whether it had memory (*has_memory). False: not
 * known. */
static bool read_process(const char *path, struct process *ret, bool *has_memory)
{
	struct event e;
	bool more = false, known;
	struct mtr_reader *r = open_regular(path, &e, &more);

	if (!r)
		return false;
	known = facts__number(mtr_reader__facts(r), "pid", &ret->pid) &&
		facts__number(mtr_reader__facts(r), "process_started", &ret->started);
	*has_memory = false;
	while (more && !*has_memory) {
		*has_memory = is_memory(&e);
		more = mtr_reader__next(r, &e) == 1;
	}
	mtr_reader__free(r);
	return known;
}

/* True if the fact "ancestors" names the process. */
static bool has_ancestor(const char *fact, const struct process *p)
{
	json_t *list = fact ? json_loads(fact, JSON_REJECT_DUPLICATES, NULL) : NULL, *o;
	bool found = false;
	size_t i;

	json_array_foreach(list, i, o) {
		json_int_t pid = json_integer_value(json_object_get(o, "pid"));
		json_int_t started = json_integer_value(json_object_get(o, "started"));

		if (i == ANCESTORS_MOST)
			break;
		found |= pid == (json_int_t)p->pid && started == (json_int_t)p->started;
	}
	json_decref(list);
	return found;
}

/* True if the recording is of a process that the process or a descendant started. */
static bool is_of_descendant(const char *path, const struct process *p)
{
	struct event e;
	bool has_event, found;
	struct mtr_reader *r = open_regular(path, &e, &has_event);

	if (!r)
		return false;
	found = has_ancestor(facts__get(mtr_reader__facts(r), "ancestors"), p);
	mtr_reader__free(r);
	return found;
}

/* ---- the folder ---- */

static int compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the path of a file in the folder of `path`. Returns 0 or -ENOMEM. */
static int add_path(struct started *s, const char *path, const struct name_parts *p,
		    const char *name)
{
	char **paths = reallocarray(s->paths, s->n + 1, sizeof(*paths));

	if (!paths)
		return -ENOMEM;
	s->paths = paths;
	if (asprintf(&paths[s->n], "%.*s%s", (int)p->folder_len, path, name) < 0)
		return -ENOMEM;
	s->n++;
	return 0;
}

/* Finds the files whose names fit. Returns 0 or -ENOMEM. */
static int find_names(const char *path, struct started *s)
{
	struct name_parts parts = split_path(path);
	char *folder = strndup(path, parts.folder_len);
	const struct dirent *entry;
	int err = 0;
	DIR *dir;

	if (!folder)
		return -ENOMEM;
	dir = opendir(*folder ? folder : ".");
	free(folder);
	if (!dir)
		return 0;
	for (size_t i = 0; i < NAMES_MOST && s->n < STARTED_MOST && !err && (entry = readdir(dir));
	     i++)
		if (is_name_of_started(&parts, entry->d_name))
			err = add_path(s, path, &parts, entry->d_name);
	closedir(dir);
	return err;
}

/* Removes the recordings of other processes. */
static void keep_descendants(struct started *s, const struct process *p)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (is_of_descendant(s->paths[i], p))
			s->paths[kept++] = s->paths[i];
		else
			free(s->paths[i]);
	}
	s->n = kept;
}

int started__find(const char *path, struct started *ret)
{
	struct process process;
	bool has_memory;
	int err;

	*ret = (struct started){ 0 };
	err = find_names(path, ret);
	if (err || !ret->n || !read_process(path, &process, &has_memory)) {
		started__free(ret);
		return err;
	}
	ret->launcher = !has_memory;
	keep_descendants(ret, &process);
	qsort(ret->paths, ret->n, sizeof(*ret->paths), compare_paths);
	return 0;
}
