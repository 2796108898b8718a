/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Each recording in the folder has a JSON file with facts of its trace. Its values are checked. */
#include "serve/broker/saved.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/exit.h"
#include "base/passed_files.h"
#include "base/io.h"
#include "base/text.h"
#include "base/log.h"
#include "serve/broker/broker.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"
#include "serve/server/link.h"

#define NOTES_MOST 65536 /* limit of a JSON file, in bytes */

/* ---- files with facts ---- */

static void take_text(const json_t *o, const char *key, char *buf, size_t size)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (s)
		text__clean(buf, size, s, strlen(s));
}

static uint64_t take_count(const json_t *o, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(o, key));

	return n > 0 ? (uint64_t)n : 0;
}

static double take_number(const json_t *o, const char *key)
{
	double d = json_number_value(json_object_get(o, key));

	return d > 0 && d < 1e12 ? d : 0;
}

static void take_facts(struct trace *t, const json_t *o)
{
	const json_t *shape = json_object_get(o, "input_shape"), *v;
	size_t i;

	take_text(o, "model_name", t->model, sizeof(t->model));
	take_text(o, "process", t->name, sizeof(t->name));
	take_text(o, "stop_reason", t->stop_reason, sizeof(t->stop_reason));
	take_text(o, "error", t->error, sizeof(t->error));
	t->pid = (pid_t)(take_count(o, "pid") & INT32_MAX);
	t->begun = take_number(o, "begun");
	t->seconds = take_number(o, "seconds");
	t->duration_s = take_number(o, "duration_s");
	t->events = take_count(o, "events");
	t->lost = take_count(o, "lost");
	t->steps = take_count(o, "steps");
	t->max_events = take_count(o, "max_events");
	t->steps_wanted = take_count(o, "steps_wanted");
	t->batch_size = take_count(o, "batch_size");
	t->fragmentation = json_is_true(json_object_get(o, "enable_fragmentation"));
	t->host = json_is_true(json_object_get(o, "host"));
	if (json_is_integer(json_object_get(o, "exit_status")))
		t->exit_status = (int)(take_count(o, "exit_status") & 255);
	json_array_foreach(shape, i, v) if (t->n_shape < TRACE_SHAPE && json_is_integer(v) &&
					    json_integer_value(v) > 0)
		t->shape[t->n_shape++] = json_integer_value(v);
}

/* Reads the facts of a trace. False: the recording must not outlive its server. */
static bool read_facts(struct broker *b, struct trace *t)
{
	bool keep;
	uint64_t size = 0;
	char name[128], *text;
	json_t *o = NULL;
	int fd;

	t->fragmentation = true;
	snprintf(name, sizeof(name), "%s.json", t->id);
	fd = store__open_file(&b->store, name, &size);
	text = fd >= 0 && size && size <= NOTES_MOST ? malloc(size) : NULL;
	if (text && read(fd, text, size) == (ssize_t)size)
		o = json_loadb(text, size, 0, NULL);
	if (json_is_object(o))
		take_facts(t, o);
	keep = !json_is_false(json_object_get(o, "keep"));
	json_decref(o);
	free(text);
	if (fd >= 0)
		close(fd);
	return keep;
}

/* ---- the folder ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct symbolizer {
	char **v;
	size_t n, room;
};

/* True for "trace_1705536000000.mtr". Exported files do not count: they are made again on
 * request. */
static bool is_recording(const char *name)
{
	size_t len = strlen(name);

	return len > 10 && len < 64 && passed_files__good_name(name) &&
	       !strncmp(name, "trace_", 6) && !strcmp(name + len - 4, ".mtr");
}

static void note_name(void *ctx, const char *name)
{
	struct symbolizer *names = ctx;

	if (!is_recording(name))
		return;
	if (array__grow(&names->v, &names->room, names->n + 1, sizeof(*names->v)))
		return;
	names->v[names->n] = strdup(name);
	names->n += names->v[names->n] != NULL;
}

/* Removes an empty recording, left by a killed server. */
static void drop_empty(const struct broker *b, const char *name)
{
	char facts[128];

	store__remove(&b->store, name);
	snprintf(facts, sizeof(facts), "%.*s.json", (int)strlen(name) - 4, name);
	store__remove(&b->store, facts);
}

/* Removes complete and partial exports of an earlier server. */
static void drop_made(void *ctx, const char *name)
{
	struct broker *b = ctx;
	size_t len = strlen(name);
	char recording[128];
	const char *digits = name + 6, *end;

	if (!strncmp(name, ".trace_", 7) && strstr(name, ".part-")) {
		store__remove(&b->store, name);
		return;
	}
	if (strncmp(name, "trace_", 6) != 0 || !passed_files__good_name(name) || is_recording(name))
		return;
	for (end = digits; isdigit((unsigned char)*end); end++)
		;
	if (end == digits || end - name > 60)
		return;
	snprintf(recording, sizeof(recording), "%.*s.mtr", (int)(end - name), name);
	if (*end == '_' || (len > 5 && !strcmp(end, ".json") && !store__has(&b->store, recording)))
		store__remove(&b->store, name);
}

static void take_folder(struct broker *b)
{
	struct symbolizer names = { 0 };
	size_t skip;

	store__each(&b->store, drop_made, b);
	store__each(&b->store, note_name, &names);
	if (names.n)
		qsort(names.v, names.n, sizeof(*names.v), by_name);
	skip = names.n > b->args->max_traces ? names.n - b->args->max_traces : 0;
	if (skip)
		log_warn("%s: contains %zu recordings; using the last %u (--max-traces)",
			 b->store.path, names.n, b->args->max_traces);
	for (size_t i = 0; i < names.n; i++) {
		struct trace *t = NULL;
		uint64_t size = 0;
		int fd = i >= skip ? store__open_file(&b->store, names.v[i], &size) : -1;

		if (fd >= 0)
			close(fd);
		if (fd >= 0 && !size)
			drop_empty(b, names.v[i]);
		names.v[i][strlen(names.v[i]) - 4] = '\0';
		if (fd >= 0 && size)
			t = trace__new(b, names.v[i]);
		if (t && !read_facts(b, t)) {
			trace__delete(b, t);
		} else if (t) {
			t->bytes = size;
			trace__finish(b, t);
		}
		free(names.v[i]);
	}
	free(names.v);
}

/* ---- the command line ---- */

static void file_of(const char *id, char *buf, size_t size)
{
	snprintf(buf, size, "%s.mtr", id + strlen("trace_"));
}

/* Makes an ID from a path: "runs/big run.mtr" -> "trace_big_run" with the file name "big_run.mtr".
 * A used name gets a number. No name starts with a dash, which a worker would take for an option,
 * or with a dot. */
static void name_given(const struct broker *b, const char *path, char *buf, size_t size)
{
	char file[LINK_ID + 4];
	const char *base = strrchr(path, '/');
	char stem[48];
	size_t n = 0;

	base = base ? base + 1 : path;
	for (; base[n] && n < sizeof(stem) - 1; n++)
		stem[n] = isalnum((unsigned char)base[n]) || strchr("._-", base[n]) ? base[n] : '_';
	stem[n] = '\0';
	if (n > 4 && !strcmp(stem + n - 4, ".mtr"))
		stem[n - 4] = '\0';
	if (*stem == '-' || *stem == '.')
		*stem = '_';
	snprintf(buf, size, "trace_%s", stem);
	file_of(buf, file, sizeof(file));
	for (unsigned k = 2; trace__find(b, buf) || trace__of_recording(b, file); k++) {
		snprintf(buf, size, "trace_%s_%u", stem, k);
		file_of(buf, file, sizeof(file));
	}
}

/* The last part of the path's folder, as it was written; "" if it was not, or is ".". */
static void name_folder(const char *path, char *buf, size_t size)
{
	const char *end = strrchr(path, '/'), *begin;

	while (end && end > path && end[-1] == '/')
		end--;
	begin = end ? memrchr(path, '/', (size_t)(end - path)) : NULL;
	begin = begin ? begin + 1 : path;
	text__clean(buf, size, begin, end ? (size_t)(end - begin) : 0);
	if (!strcmp(buf, "."))
		*buf = '\0';
}

static int take_file(struct broker *b, const char *path)
{
	const char *base = strrchr(path, '/');
	struct trace *t;
	struct stat st;
	char id[LINK_ID], clean[512];
	int fd = io__open_regular(AT_FDCWD, path, LINKS_FOLLOW, &st);

	text__clean(clean, sizeof(clean), path, strlen(path));
	if (fd < 0) {
		log_err("%s: cannot open: %s; give .mtr files, or a folder with -o FOLDER", clean,
			fd == -EINVAL ? "it is not a file" : strerror(-fd));
		return EXIT_UNUSABLE;
	}
	name_given(b, path, id, sizeof(id));
	t = trace__new(b, id);
	if (!t) {
		close(fd);
		log_err("%s: out of memory", clean);
		return EXIT_FAILED;
	}
	file_of(t->id, t->file, sizeof(t->file));
	t->given = fd;
	t->bytes = (uint64_t)st.st_size;
	t->begun = (double)st.st_mtime;
	t->fragmentation = true;
	name_folder(path, t->folder, sizeof(t->folder));
	base = base ? base + 1 : path;
	text__clean(t->name, sizeof(t->name), base, strlen(base));
	trace__finish(b, t);
	return EXIT_OK;
}

int broker_saved__take(struct broker *b)
{
	int status = EXIT_OK;

	if (!b->store.own)
		take_folder(b);
	for (size_t i = 0; i < b->args->n_files && !status; i++)
		status = take_file(b, b->args->files[i]);
	return status;
}
