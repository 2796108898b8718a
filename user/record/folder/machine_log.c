/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/machine_log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "base/outfile.h"

#define NEWER "machine.log"
#define OLDER "machine.log.1"
#define LINE_MOST (32u << 10) /* bytes of a line */

struct machine_log {
	int folder, file;
	uint64_t size, most;
	bool cut; /* the last write failed, maybe in the middle of a line */
};

/* ---- writing ---- */

/* Opens the folder, and creates it if necessary. Returns a descriptor; -ELOOP: it is a link;
 * -EPERM: it is another user's; or -errno. */
static int open_folder(const char *path)
{
	struct stat st;
	int fd, made = !mkdir(path, 0700);

	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* For a link, the kernel says that it is no folder. */
	if (fd < 0 && errno == ENOTDIR && !lstat(path, &st) && S_ISLNK(st.st_mode))
		return -ELOOP;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !outfile__is_ours(&st)) {
		close(fd);
		return -EPERM;
	}
	if (made)
		outfile__give(fd);
	return fd;
}

/* Opens l->file, the newer file, to append to it, and creates it if necessary. Sets l->size, bytes.
 * Returns 0; -EINVAL: it is not a regular file, or has a second name elsewhere; or -errno. The
 * caller closes l->file, also after an error. */
static int open_file(struct machine_log *l)
{
	struct stat st;

	l->file = openat(l->folder, NEWER,
			 O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (l->file < 0)
		return -errno;
	if (fstat(l->file, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1)
		return -EINVAL;
	l->size = (uint64_t)st.st_size;
	outfile__give(l->file);
	return fsync(l->folder) ? -errno : 0;
}

/* Ends a line that a reset has cut. Returns 0 or -errno. */
static int end_cut_line(struct machine_log *l)
{
	char last;
	int err;

	if (!l->size || (io__pread(l->file, &last, 1, l->size - 1) == 1 && last == '\n'))
		return 0;
	err = io__write(l->file, "\n", 1);
	l->size += !err;
	return err;
}

int machine_log__open(const char *folder, uint64_t most, struct machine_log **ret)
{
	struct machine_log *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	*l = (struct machine_log){ .file = -1, .most = most, .folder = open_folder(folder) };
	err = l->folder < 0 ? l->folder : 0;
	if (!err && flock(l->folder, LOCK_EX | LOCK_NB))
		err = -EBUSY;
	err = err ?: open_file(l);
	err = err ?: end_cut_line(l);
	if (err)
		machine_log__close(l);
	else
		*ret = l;
	return err;
}

void machine_log__close(struct machine_log *l)
{
	if (!l)
		return;
	if (l->file >= 0)
		close(l->file);
	if (l->folder >= 0)
		close(l->folder);
	free(l);
}

static void put_rows(struct json *j, const struct machine_row *r)
{
	json__open_object(j, "lines");
	for (size_t i = 0; i < r->lines; i++)
		json__int(j, r->line[i].key, r->line[i].bytes);
	json__close_object(j);
	json__open_array(j, "gpus");
	for (size_t i = 0; i < r->gpus; i++) {
		json__open_array(j, NULL);
		json__string(j, NULL, r->gpu[i].name);
		json__uint(j, NULL, r->gpu[i].total);
		json__uint(j, NULL, r->gpu[i].free);
		json__close_array(j);
	}
	json__close_array(j);
	json__open_array(j, "top");
	for (size_t i = 0; i < r->processes; i++) {
		json__open_array(j, NULL);
		json__int(j, NULL, r->process[i].pid);
		json__string(j, NULL, r->process[i].command);
		json__uint(j, NULL, r->process[i].bytes);
		json__close_array(j);
	}
	json__close_array(j);
}

/* Writes a row as a line of text to out. 0 or -errno. */
static int put_row(FILE *out, const struct machine_row *r)
{
	struct json *j = json__new(out, false);

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__uint(j, "time", r->time);
	json__uint(j, "uptime", r->uptime);
	json__uint(j, "every", r->every);
	json__string(j, "boot", r->boot);
	json__bool(j, "end", r->end);
	json__bool(j, "all", r->all);
	json__uint(j, "total", r->total);
	json__uint(j, "available", r->available);
	json__uint(j, "large", r->large);
	json__uint(j, "swap", r->swap);
	put_rows(j, r);
	json__close_object(j);
	json__free(j);
	return 0;
}

/* Makes the newer file the older one. 0 or -errno. */
static int turn_over(struct machine_log *l)
{
	if (renameat(l->folder, NEWER, l->folder, OLDER))
		return -errno;
	close(l->file);
	return open_file(l);
}

/* Makes a row a line of text, of *len bytes. 0 or -errno. */
static int print_row(const struct machine_row *row, char *text, size_t *len)
{
	FILE *out = fmemopen(text, LINE_MOST, "w");
	int err = out ? put_row(out, row) : -errno;

	if (!out)
		return err;
	*len = (size_t)ftell(out);
	if (fclose(out) || !*len || *len >= LINE_MOST)
		return -EMSGSIZE;
	return err;
}

/* Makes room for a line of len bytes, behind whole lines. 0 or -errno. */
static int prepare(struct machine_log *l, size_t len)
{
	int err = 0;

	if (l->cut || l->file < 0) {
		if (l->file >= 0)
			close(l->file);
		err = open_file(l);
		err = err ?: end_cut_line(l);
	}
	if (!err && l->size && l->size + len > l->most / 2)
		err = turn_over(l);
	return err;
}

int machine_log__write(struct machine_log *l, const struct machine_row *row)
{
	char text[LINE_MOST];
	size_t len = 0;
	int err = print_row(row, text, &len);

	err = err ?: prepare(l, len);
	err = err ?: io__write(l->file, text, len);
	l->cut = err != 0;
	if (err)
		return err;
	l->size += len;
	return fdatasync(l->file) ? -errno : 0;
}

/* ---- reading ---- */

/* A whole number of the document. False: missing, or no number. */
static bool get_number(const json_t *doc, const char *key, uint64_t *ret)
{
	const json_t *v = json_object_get(doc, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*ret = (uint64_t)json_integer_value(v);
	return true;
}

static void get_text(const json_t *v, char *to, size_t size)
{
	snprintf(to, size, "%s", json_string_value(v) ?: "");
}

static uint64_t count_of(const json_t *v)
{
	return json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : 0;
}

static void get_rows(json_t *doc, struct machine_row *r)
{
	const char *key;
	json_t *v;
	size_t i;

	json_object_foreach(json_object_get(doc, "lines"), key, v) {
		if (r->lines == MACHINE_ROW_LINES)
			break;
		snprintf(r->line[r->lines].key, sizeof(r->line[0].key), "%s", key);
		r->line[r->lines++].bytes = json_integer_value(v);
	}
	json_array_foreach(json_object_get(doc, "gpus"), i, v) {
		if (i == MACHINE_ROW_GPUS)
			break;
		get_text(json_array_get(v, 0), r->gpu[i].name, sizeof(r->gpu[i].name));
		r->gpu[i].total = count_of(json_array_get(v, 1));
		r->gpu[i].free = count_of(json_array_get(v, 2));
		r->gpus++;
	}
	json_array_foreach(json_object_get(doc, "top"), i, v) {
		if (i == MACHINE_ROW_PROCESSES)
			break;
		r->process[i].pid = (pid_t)json_integer_value(json_array_get(v, 0));
		get_text(json_array_get(v, 1), r->process[i].command,
			 sizeof(r->process[i].command));
		r->process[i].bytes = count_of(json_array_get(v, 2));
		r->processes++;
	}
}

/* False: the line is damaged. */
static bool parse_row(const char *text, size_t len, struct machine_row *r)
{
	json_t *doc = json_loadb(text, len, 0, NULL);
	bool good;

	*r = (struct machine_row){ 0 };
	good = get_number(doc, "time", &r->time) && get_number(doc, "uptime", &r->uptime) &&
	       get_number(doc, "every", &r->every) && get_number(doc, "total", &r->total) &&
	       get_number(doc, "available", &r->available) && get_number(doc, "large", &r->large) &&
	       get_number(doc, "swap", &r->swap);
	if (good) {
		get_text(json_object_get(doc, "boot"), r->boot, sizeof(r->boot));
		r->end = json_is_true(json_object_get(doc, "end"));
		r->all = json_is_true(json_object_get(doc, "all"));
		get_rows(doc, r);
	}
	json_decref(doc);
	return good;
}

/* Reads the rows of a file. 0 or -errno; -ENOENT: the file has no rows. */
static int read_file(int folder, const char *name,
		     void (*fn)(void *ctx, const struct machine_row *row), void *ctx,
		     uint64_t *damaged)
{
	int fd = io__open_regular(folder, name, LINKS_NONE, NULL);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char text[LINE_MOST];
	struct machine_row row;
	bool inside = false; /* a line that is too long */

	if (fd < 0)
		return fd;
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	memset(text, 0, sizeof(text));
	while (fgets(text, sizeof(text), f)) {
		size_t len = strlen(text); /* shorter with bytes 0: damaged, too */
		bool whole = len && text[len - 1] == '\n';

		if (!inside && whole && parse_row(text, len, &row))
			fn(ctx, &row);
		else if (!inside && len != 1)
			++*damaged;
		inside = !whole && len == sizeof(text) - 1;
	}
	fclose(f);
	return 0;
}

bool machine_log__is(const char *path)
{
	int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool yes = folder >= 0 && !faccessat(folder, NEWER, F_OK, AT_SYMLINK_NOFOLLOW);

	if (folder >= 0)
		close(folder);
	return yes;
}

int machine_log__read(const char *path, void (*fn)(void *ctx, const struct machine_row *row),
		      void *ctx, uint64_t *damaged, bool *running)
{
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err;

	if (folder < 0)
		return -errno;
	*damaged = 0;
	*running = flock(folder, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
	flock(folder, LOCK_UN); /* a recorder may start meanwhile */
	err = read_file(folder, OLDER, fn, ctx, damaged);
	if (!err || err == -ENOENT)
		err = read_file(folder, NEWER, fn, ctx, damaged);
	close(folder);
	return err;
}
