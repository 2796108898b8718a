/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/save/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "capture/capture_loop.h"
#include "capture/recording.h"
#include "capture/session.h"
#include "record/folder.h"
#include "record/mtr.h"

#define FLUSH_EVERY UINT64_C(1000000000) /* ns between two flushes of the file */

/* Opens path and takes ownership of it. Returns 0 or a negative error, logged. */
static int output_file__open(struct output_file *file, char *path)
{
	const struct recording *recording = file->output.recording;
	int err = path ? outfile__create(path, OUTFILE_DIRECT, recording->args.force, &file->file)
		       : -ENOMEM;

	file->path = path;
	file->failed = true;
	if (err) {
		log_err("%s: %s", path ? path : "a recording", outfile__why(err));
		return err;
	}
	file->writer = mtr_writer__new(outfile__fd(file->file), session__dict(file->output.session),
				       session__facts(file->output.session),
				       &recording->args.bounds);
	if (!file->writer) {
		err = -errno;
		log_err("%s: cannot write: %s", outfile__name(file->file), outfile__why(err));
		return err;
	}
	file->failed = false;
	return 0;
}

/* Removes the file that -f replaces. Called only after the attach: a capture that never attaches
 * must not delete the old file. */
static int replace(struct output_file *file)
{
	int err = outfile__replace(file->file);

	if (!err)
		return 0;
	log_err("%s: %s", outfile__name(file->file), outfile__why(err));
	file->failed = true;
	return err;
}

static int on_attached(struct output *output)
{
	struct output_file *file = (struct output_file *)output;

	return file->writer && replace(file) ? EXIT_FAILED : EXIT_OK;
}

static int output_file__event(struct output_file *file, const struct event *event)
{
	file->write_err = mtr_writer__event(file->writer, event);
	return file->write_err;
}

/* Writes an event. The file is opened with the first one, unless output_file__new() has opened
 * it. */
static int on_event(struct output *output, const struct event *event)
{
	struct output_file *file = (struct output_file *)output;
	int err;

	if (!file->writer) {
		err = output_file__open(file, output__path(output));
		err = err ? err : replace(file);
		if (err)
			return err;
	}
	return output_file__event(file, event);
}

/* Also the callback of a file in a folder, whose struct begins with a struct output_file. */
static int on_tick(struct output *output, uint64_t now)
{
	struct output_file *file = (struct output_file *)output;

	if (!file->writer || now - file->flushed < FLUSH_EVERY)
		return 0;
	file->flushed = now;
	file->write_err = mtr_writer__flush(file->writer);
	return file->write_err;
}

static const char *output_file__full(struct output *output)
{
	const struct output_file *file = (struct output_file *)output;
	const char *reason;

	return file->writer && mtr_writer__full(file->writer, &reason) ? reason : NULL;
}

/* Logs a summary, and warnings about losses. dropped: events beyond --max-size or --max-events. */
static void say_written(const struct output_file *file, const char *reason, uint64_t bytes,
			uint64_t dropped)
{
	uint64_t events = session__events(file->output.session);
	uint64_t lost = session__lost(file->output.session);
	uint64_t lost_elsewhere = session__lost_with_room(file->output.session),
		 no_room = lost - lost_elsewhere;
	const char *name = outfile__name(file->file);
	char counted[32], lost_text[32], size[24];

	log_event(LOG_INFO, "recorded",
		  LOG_FIELDS(LOG_STRING("path", name), LOG_INT("target", file->output.pid),
			     LOG_UINT("events", events), LOG_UINT("lost", lost),
			     LOG_UINT("bytes", bytes), LOG_UINT("dropped", dropped),
			     LOG_UINT("steps", session__steps(file->output.session)),
			     LOG_STRING("reason", reason)),
		  "%s: %s, %s lost, %s (%.1f bytes an event)", name,
		  text__counted(counted, sizeof(counted), events, "event"),
		  text__count(lost_text, sizeof(lost_text), lost),
		  text__bytes(size, sizeof(size), bytes), events ? (double)bytes / events : 0.0);
	if (no_room)
		log_warn("%s lost because the buffer was full: blocks may be missing, "
			 "or shown after they were freed (totals of GPUs are still exact); try "
			 "--ring-size 64M",
			 text__counted(lost_text, sizeof(lost_text), no_room, "event"));
	if (lost_elsewhere)
		log_warn("%s lost that no probe recorded: blocks may be missing, or shown after "
			 "they were freed",
			 text__counted(lost_text, sizeof(lost_text), lost_elsewhere, "event"));
	if (dropped)
		log_warn("--%s was reached: the file lacks %s after that", reason,
			 text__counted(counted, sizeof(counted), dropped, "event"));
	if (!events)
		log_warn("nothing was allocated while attached");
	else if (file->output.recording->kind == OUTPUT_FILE && strcmp(name, "standard output"))
		output__say_next("report", name);
}

/* Logs why the recording failed: the file, or otherwise err from the capture. */
static void say_failed(const struct output_file *file, int err)
{
	if (file->write_err)
		log_err("%s: cannot write: %s. The part written before is readable",
			outfile__name(file->file), outfile__why(file->write_err));
	else
		log_err("the capture broke off: %s", strerror(-err));
}

/*
 * Completes the file, or removes it if no event was recorded. *bytes: size of the file. Returns an
 * exit code, logged.
 */
static int output_file__close(struct output_file *file, const char *reason, int err,
			      uint64_t *bytes)
{
	int status = err || file->failed ? EXIT_FAILED : EXIT_OK, close_err;
	bool was_attached = session__now(file->output.session); /* without an attach, no event */
	uint64_t dropped;

	if (err && !file->failed)
		say_failed(file, err);
	if (file->writer) {
		dropped = mtr_writer__dropped(file->writer);
		err = file->write_err ? 0 : mtr_writer__flush(file->writer);
		*bytes = mtr_writer__bytes(file->writer);
		close_err = mtr_writer__close(file->writer);
		if (!err && !file->write_err)
			err = close_err;
		if (err) {
			log_err("%s: cannot write: %s", outfile__name(file->file),
				outfile__why(err));
			status = EXIT_FAILED;
		}
		if (!status && was_attached)
			say_written(file, reason, *bytes, dropped);
	}
	if (!file->writer || !was_attached) {
		outfile__discard(file->file);
	} else {
		err = outfile__commit(file->file);
		if (err && !status) {
			log_err("%s: cannot write: %s", file->path, outfile__why(err));
			status = EXIT_FAILED;
		}
	}
	free(file->path);
	return status;
}

static int on_end(struct output *output, const char *reason, int err)
{
	struct output_file *file = (struct output_file *)output;
	uint64_t bytes;
	int status = output_file__close(file, reason, err, &bytes);

	free(file);
	return status;
}

struct output *output_file__new(const struct output *process)
{
	struct output_file *file = calloc(1, sizeof(*file));

	if (!file) {
		log_err("out of memory");
		return NULL;
	}
	file->output = *process;
	file->output.event = on_event;
	file->output.tick = on_tick;
	file->output.attached = on_attached;
	file->output.full = output_file__full;
	file->output.end = on_end;
	if (!file->output.times && output_file__open(file, output__path(&file->output))) {
		on_end(&file->output, NULL, 0);
		return NULL;
	}
	return &file->output;
}

/* A .mtr file in a folder with an index. */
struct output_folder {
	struct output_file file;   /* first: the output is cast to this struct */
	struct folder_entry entry; /* entry of the file in the index */
};

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

/* Fills in the entry's events, losses and steps, and the container's name. */
static void set_numbers(const struct output *output, struct folder_entry *entry)
{
	uint64_t steps = session__steps(output->session);
	const char *name = output__fact(output, "container.name");

	entry->events = session__events(output->session);
	entry->lost = session__lost(output->session);
	entry->first_step = steps ? 0 : -1;
	entry->last_step = (int64_t)steps - 1;
	folder_entry__describe(entry, session__facts(output->session));
	if (*name)
		copy(entry->container, sizeof(entry->container), name);
}

/* Says how the recording began. */
static void set_began(const struct output *output, struct folder_entry *entry)
{
	const char *how = output__fact(output, "attached_at");

	if (!strcmp(how, "fork"))
		snprintf(entry->began, sizeof(entry->began), "forked by PID %s",
			 output__fact(output, "parent"));
	else
		snprintf(entry->began, sizeof(entry->began), "attached %s",
			 !strcmp(how, "start") ? "before PyTorch's first allocation"
					       : "while it ran");
}

int output_file__add_entry(const struct output *output, struct folder_entry *entry)
{
	int err;

	set_numbers(output, entry);
	set_began(output, entry);
	err = folder__add(output->recording->folder, entry);
	if (err)
		log_err("%s: %s", folder__path(output->recording->folder), folder__why(err));
	return err;
}

char *output_file__begin_entry(const struct output *output, const char *kind, const char *suffix,
			       struct folder_entry *entry)
{
	char *path;

	output__stem(output, entry->name, sizeof(entry->name));
	path = folder__new_path(output->recording->folder, entry->name, suffix);
	if (path)
		copy(entry->file, sizeof(entry->file), strrchr(path, '/') + 1);
	copy(entry->kind, sizeof(entry->kind), kind);
	entry->pid = output->pid;
	entry->from = entry->to = tracees__now(output->recording->loop.tracees);
	text__date(entry->begin, sizeof(entry->begin), clock__read(CLOCK_REALTIME));
	return path;
}

int output_file__finish_entry(const struct output *output, struct folder_entry *entry,
			      const char *reason)
{
	entry->to = tracees__now(output->recording->loop.tracees);
	text__date(entry->end, sizeof(entry->end), clock__read(CLOCK_REALTIME));
	copy(entry->ended, sizeof(entry->ended), reason ? reason : "");
	return output_file__add_entry(output, entry);
}

/* Opens the process's file and adds it to the folder's index. 0 or -errno, logged. */
static int open_in_folder(struct output *output)
{
	struct output_folder *in_folder = (struct output_folder *)output;
	char *path = output_file__begin_entry(output, "process", ".mtr", &in_folder->entry);
	int err = output_file__open(&in_folder->file, path);

	if (!err)
		err = output_file__add_entry(output, &in_folder->entry);
	in_folder->file.failed = err;
	return err;
}

/* Adds an event to the process's file. The first one opens the file, so that a process without
 * events has none. */
static int on_folder_event(struct output *output, const struct event *event)
{
	struct output_folder *in_folder = (struct output_folder *)output;

	if (!in_folder->file.writer) {
		int err = open_in_folder(output);

		if (err)
			return err;
	}
	folder_entry__event(&in_folder->entry, event);
	return output_file__event(&in_folder->file, event);
}

/* Completes the file and its entry in the folder. Returns an exit code, logged. */
static int on_folder_end(struct output *output, const char *reason, int err)
{
	struct output_folder *in_folder = (struct output_folder *)output;
	bool opened = in_folder->file.writer;
	int status = output_file__close(&in_folder->file, reason, err, &in_folder->entry.bytes);

	if (opened && output_file__finish_entry(output, &in_folder->entry, reason))
		status = EXIT_FAILED;
	free(in_folder);
	return status;
}

struct output *output_file__new_in_folder(const struct output *process)
{
	struct output_folder *in_folder = calloc(1, sizeof(*in_folder));

	if (!in_folder) {
		log_err("out of memory");
		return NULL;
	}
	in_folder->file.output = *process;
	in_folder->file.output.event = on_folder_event;
	in_folder->file.output.tick = on_tick;
	in_folder->file.output.full = output_file__full;
	in_folder->file.output.end = on_folder_end;
	return &in_folder->file.output;
}
