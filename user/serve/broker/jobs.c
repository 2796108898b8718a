/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Workers read recordings without rights, with limits of memory and time. `dump` reads a process,
 * `ps` the processes of all GPUs. A worker writes to a pipe, and the broker copies its output to a
 * file. Clients get the file only if the worker succeeds. A process that took over the pipe cannot
 * read or change the file. */
#include "serve/broker/jobs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/io.h"
#include "base/text.h"
#include "export/export.h"
#include "serve/broker/ask.h"
#include "serve/broker/broker.h"
#include "serve/broker/processes.h"
#include "serve/broker/store.h"
#include "serve/broker/trace.h"
#include "serve/broker/users.h"

#define SECOND UINT64_C(1000000000)
#define MEMORY (UINT64_C(4) << 30)	   /* limit of the address space, in bytes */
#define DOCUMENT_MAX (UINT64_C(256) << 20) /* limit of a document in memory, in bytes */
#define CPU_SECONDS 300			   /* limit of a worker */
#define WORKER_TIME (600 * SECOND)	   /* time limit of a worker, in ns */
#define DUMP_TIME (60 * SECOND)		   /* time limit of `dump`, in ns */
#define DEVICES_TIME (30 * SECOND)	   /* time limit of `ps --device`, in ns */
#define ENDS_WITHIN 2000		   /* ms, time for a killed JOB_DEVICES to end */
#define DEVICES_LATE                                                                               \
	"the look at the processes on all GPUs has taken 30 s: a process does not let itself be "  \
	"read, or the driver hangs"
#define PIPE_SIZE (1 << 20) /* size of a worker's pipe, in bytes */
#define TAKEN_AT_ONCE 8	    /* full pipes read from a worker at a time */
#define NICE 5		    /* priority of workers: captures go first */
#define CANNOT_RUN 126	    /* exit code of a worker that could not be started; others are higher */
#define COMPARED_MAX 16	    /* most traces of one comparison */

/* ---- formats: names of files and their content types ---- */

static const struct {
	const char *ending, *type;
} types[] = {
	{ ".mtr", "application/octet-stream" },
	{ ".json", "application/json" },
	{ ".html", "text/html; charset=utf-8" },
	{ ".csv", "text/csv; charset=utf-8" },
	{ ".ndjson", "application/x-ndjson" },
	{ ".om.txt", "application/openmetrics-text; version=1.0.0; charset=utf-8" },
	{ ".txt", "text/plain; charset=utf-8" },
};

const char *jobs__content_type(const char *file)
{
	size_t len = strlen(file);

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		size_t n = strlen(types[i].ending);

		if (len >= n && !strcmp(file + len - n, types[i].ending))
			return types[i].type;
	}
	return "application/octet-stream";
}

/* Writes the part of a file name after the trace's id: "_events.csv". Returns buf. */
static char *format_suffix(const struct export_format *f, char *buf, size_t size)
{
	size_t len = strlen(f->name);

	if (!strcmp(f->name, "speedscope"))
		snprintf(buf, size, "_flamegraph.json");
	else if (!strcmp(f->name, "html"))
		snprintf(buf, size, "_page.html");
	else if (!strcmp(f->suffix + 1, f->name)) /* csv and ndjson contain every event */
		snprintf(buf, size, "_events%s", f->suffix);
	else if (!strncmp(f->suffix + 1, f->name, len))
		snprintf(buf, size, "_%s", f->suffix + 1);
	else
		snprintf(buf, size, "_%s%s", f->name, f->suffix);
	return buf;
}

json_t *jobs__formats(void)
{
	json_t *list = json_array();
	char buf[96];

	for (size_t i = 0; export_formats[i]; i++) {
		const struct export_format *f = export_formats[i];

		format_suffix(f, buf, sizeof(buf));
		json_array_append_new(list,
				      json_pack("{s:s,s:s,s:s,s:s}", "name", f->name, "suffix", buf,
						"type", jobs__content_type(buf), "help", f->help));
	}
	return list;
}

/* ---- the list ---- */

/* Frees a job, and kills its worker. */
static void free_job(struct job *j)
{
	int status;

	/* A file system may hold this one in a wait that SIGKILL does not end. */
	if (j->kind == JOB_DEVICES) {
		subprocess__signal(&j->run.process, SIGKILL);
		if (!subprocess__wait(&j->run.process, ENDS_WITHIN, &status))
			j->run.process = (struct subprocess){ 0 };
	}
	spawned__close(&j->run);
	if (j->out >= 0)
		close(j->out);
	if (j->from >= 0)
		close(j->from);
	for (size_t i = 0; i < j->n_argv; i++)
		free(j->argv[i]);
	free(j);
}

/* Removes the incomplete file of an export or import, and the file that is imported. */
static void remove_part(struct broker *b, struct job *j)
{
	if (*j->part)
		store__remove(&b->store, j->part);
	if (*j->source)
		store__remove(&b->store, j->source);
	*j->part = *j->source = '\0';
}

/* Takes a job off the list and frees it. */
static void remove_job(struct broker *b, struct job *j)
{
	for (struct job **at = &b->jobs; *at; at = &(*at)->next) {
		if (*at == j) {
			*at = j->next;
			break;
		}
	}
	remove_part(b, j);
	free_job(j);
}

/* A job without arguments, for a request (p NULL: none). NULL: no memory. */
static struct job *new_job(enum job_kind kind, struct peer *p, json_int_t id)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->kind = kind;
	j->peer = p;
	j->id = id;
	j->out = j->from = j->run.err_fd = -1;
	return j;
}

/* Adds an argument of the command. Without memory for it, the job must not start: it would give the
 * result of another command. */
static __attribute__((format(printf, 2, 3))) void put_argument(struct job *j, const char *fmt, ...)
{
	char *text;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n >= 0 && j->n_argv < SPAWN_ARGS) {
		j->argv[j->n_argv++] = text;
		return;
	}
	if (n >= 0)
		free(text);
	j->lacks_argument = true;
}

/* Adds the job to the end of the list. */
static void append_job(struct broker *b, struct job *j)
{
	struct job **at = &b->jobs;

	while (*at)
		at = &(*at)->next;
	*at = j;
}

/* Queues a worker for the trace's report. Returns 0 or -errno. */
static int queue_report(struct broker *b, struct trace *t)
{
	struct job *j = new_job(JOB_REPORT, NULL, 0);

	if (!j)
		return -ENOMEM;
	put_argument(j, "report");
	put_argument(j, "--format=json");
	put_argument(j, "--by=line");
	put_argument(j, "%s", t->file);
	j->traces[j->n_traces++] = t;
	append_job(b, j);
	return 0;
}

void trace__finish(struct broker *b, struct trace *t)
{
	int err;

	t->state = TRACE_FINISHING;
	trace__tell(b, t, /*soft=*/false);
	trace__note(b, t);
	err = queue_report(b, t);
	if (err)
		trace__fail(b, t, 503, strerror(-err));
}

/* Names the snapshot in its worker as the client did, because frameworks put the rank into the
 * name. Other characters than those of simple file names are replaced. */
static void name_import(struct job *j, const struct trace *t)
{
	size_t n = (size_t)snprintf(j->imported, sizeof(j->imported), "upload.%s", t->name);

	for (size_t i = 0; i < n && j->imported[i]; i++)
		if (!isalnum((unsigned char)j->imported[i]) && !strchr("._-", j->imported[i]))
			j->imported[i] = '_';
}

int jobs__import(struct broker *b, struct trace *t, const char *file)
{
	struct job *j = new_job(JOB_IMPORT, NULL, 0);

	if (!j)
		return -ENOMEM;
	put_argument(j, "import");
	put_argument(j, "--output=-");
	name_import(j, t);
	put_argument(j, "%s", j->imported);
	snprintf(j->source, sizeof(j->source), "%s", file);
	snprintf(j->part, sizeof(j->part), ".%s.part-import", t->id);
	j->traces[j->n_traces++] = t;
	append_job(b, j);
	return 0;
}

/* Whether the job ends a trace, and answers no request. */
static bool ends_trace(const struct job *j)
{
	return j->kind == JOB_REPORT || j->kind == JOB_IMPORT;
}

/* Whether the job's output is a file of the folder, and no document. */
static bool writes_file(const struct job *j)
{
	return j->kind == JOB_EXPORT || j->kind == JOB_IMPORT;
}

/* Number of requests that wait: for a look at all devices, or for a worker. */
static size_t count_waiting(const struct broker *b, bool devices)
{
	size_t n = 0;

	for (const struct job *j = b->jobs; j; j = j->next)
		n += !j->running && !ends_trace(j) && (j->kind == JOB_DEVICES) == devices;
	return n;
}

/* Drops a job whose request wants no answer any more. A running JOB_DEVICES goes on for others: its
 * end may take long, and the broker does not wait for it. */
static void drop_job(struct broker *b, struct job *j)
{
	if (j->kind == JOB_DEVICES && j->running)
		j->peer = NULL;
	else
		remove_job(b, j);
}

void jobs__forget_peer(struct broker *b, const struct peer *p)
{
	struct job *next;

	for (struct job *j = b->jobs; j; j = next) {
		next = j->next;
		if (j->peer == p)
			drop_job(b, j);
	}
}

/* True if a job reads the recording of this trace. */
static bool uses_trace(const struct job *j, const struct trace *t)
{
	for (size_t i = 0; i < j->n_traces; i++)
		if (j->traces[i] == t)
			return true;
	return false;
}

void jobs__forget_trace(struct broker *b, const struct trace *t)
{
	struct job *next;

	for (struct job *j = b->jobs; j; j = next) {
		next = j->next;
		if (!uses_trace(j, t))
			continue;
		if (j->peer)
			ask__refuse(j->peer, j->id, 404, "trace_id",
				    "Trace %s not found: it was deleted during the request", t->id);
		remove_job(b, j);
	}
}

void jobs__cancel(struct broker *b, const struct peer *p, json_int_t id)
{
	for (struct job *j = b->jobs; j; j = j->next) {
		if (j->peer != p || j->id != id)
			continue;
		if (!j->running || j->kind != JOB_EXPORT)
			drop_job(b, j);
		return;
	}
}

void jobs__free(struct broker *b)
{
	while (b->jobs)
		remove_job(b, b->jobs);
}

/* ---- exported files ---- */

/* The exported file for these options, now marked as most recently used. NULL: none. */
static const struct trace_export *use_export(struct trace *t, const char *key)
{
	for (size_t i = 0; i < t->n_exports; i++) {
		struct trace_export e = t->exports[i];

		if (strcmp(e.key, key) != 0)
			continue;
		memmove(&t->exports[i], &t->exports[i + 1], (t->n_exports - i - 1) * sizeof(e));
		t->exports[t->n_exports - 1] = e;
		return &t->exports[t->n_exports - 1];
	}
	return NULL;
}

static bool is_running_export(const struct job *j)
{
	return j->running && j->kind == JOB_EXPORT;
}

/* True if a worker already makes the file of this job. */
static bool is_being_made(const struct broker *b, const struct job *wanted)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (is_running_export(j) && j->traces[0] == wanted->traces[0] &&
		    !strcmp(j->key, wanted->key))
			return true;
	return false;
}

/* Answers a request with an exported file. */
static void answer_export(struct peer *p, json_int_t id, const struct trace_export *e)
{
	ask__answer(p, id,
		    json_pack("{s:s,s:I,s:s}", "file", e->file, "size", (json_int_t)e->size, "type",
			      e->type),
		    /*fd=*/-1);
}

/* True if no file has this name and no job will create it. */
static bool is_free_name(const struct broker *b, const char *file)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (!strcmp(j->file, file))
			return false;
	return !store__has(&b->store, file);
}

/* Names the file: the trace's ID, a number if needed, "_flamegraph.json". The number is needed for
 * a special moment or device, or if the name is used. */
static void name_export(const struct broker *b, struct job *j)
{
	struct trace *t = j->traces[0];
	bool plain = j->plain;
	char end[96], file[200];

	format_suffix(j->format, end, sizeof(end));
	snprintf(file, sizeof(file), "%s%s", t->id, end);
	/* Takes a number while the name is used; a file that is not plain gets one in any case. */
	for (; !plain || !is_free_name(b, file); plain = true)
		snprintf(file, sizeof(file), "%s_%u%s", t->id, ++t->named, end);
	snprintf(j->file, sizeof(j->file), "%s", file);
	snprintf(j->part, sizeof(j->part), ".%s.part-%d-%lld", j->file, (int)j->peer->kind,
		 (long long)j->id);
}

/* ---- running ---- */

/* Number of worker processes, without the one that looks at the devices. */
static size_t count_running(const struct broker *b)
{
	size_t n = 0;

	for (const struct job *j = b->jobs; j; j = j->next)
		n += j->running && j->kind != JOB_DEVICES;
	return n;
}

uint64_t jobs__reserved(const struct broker *b)
{
	uint64_t sum = 0;

	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->running && writes_file(j))
			sum += j->max_size - j->size;
	return sum;
}

/* Bytes of the folder for a new file: an equal share of the unreserved bytes for each worker that
 * may still start. 0: nothing is left. */
static uint64_t export_share(const struct broker *b)
{
	uint64_t used = store__used(&b->store) + traces__reserved(b) + jobs__reserved(b);
	size_t n = b->args->max_workers - count_running(b);

	return used < b->args->max_disk ? (b->args->max_disk - used) / n : 0;
}

/* Opens j->out, a document in memory or the file of an export, and sets its limit. Returns 0,
 * -EDQUOT (the folder is full) or another -errno. */
static int open_output(struct broker *b, struct job *j)
{
	if (!writes_file(j)) {
		j->max_size = DOCUMENT_MAX;
		j->out = memfd_create("document", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		return j->out < 0 ? -errno : 0;
	}
	j->max_size = export_share(b);
	if (!j->max_size)
		return -EDQUOT;
	if (j->kind == JOB_EXPORT)
		name_export(b, j);
	j->out = store__create(&b->store, j->part);
	return j->out < 0 ? j->out : 0;
}

/* Makes the worker's output pipe. Returns the worker's end or -errno. */
static int open_pipe(struct job *j)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	/* The pipe keeps its default size if the system allows less. */
	fcntl(fds[0], F_SETPIPE_SZ, PIPE_SIZE);
	j->from = fds[0];
	return fds[1];
}

/* Copies a worker's output from the pipe to the file, at most `most` bytes, so that endless output
 * does not block the broker. Kills the worker if its output is too large or cannot be written. */
static void take_output(struct job *j, size_t most)
{
	char buf[65536];

	while (j->from >= 0 && most) {
		ssize_t n = read(j->from, buf, most < sizeof(buf) ? most : sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n > 0) {
			most -= (size_t)n;
			j->write_err = (uint64_t)n > j->max_size - j->size
					       ? -EFBIG
					       : io__write(j->out, buf, (size_t)n);
			j->size += j->write_err ? 0 : (uint64_t)n;
		}
		if (n > 0 && !j->write_err)
			continue;
		close(j->from);
		j->from = -1;
		if (j->write_err)
			subprocess__signal(&j->run.process, SIGKILL);
	}
}

/* Longest time of a worker, in ns. */
static uint64_t time_limit(enum job_kind kind)
{
	switch (kind) {
	case JOB_DUMP:
		return DUMP_TIME;
	case JOB_DEVICES:
		return DEVICES_TIME;
	default:
		return WORKER_TIME;
	}
}

/* Starts the worker. Returns 0 or -errno as open_output(). */
static int start_job(struct broker *b, struct job *j)
{
	struct spawn_file files[SPAWN_FILES];
	size_t n = 0;
	uint64_t size;
	int err, out;

	if (j->lacks_argument)
		return -ENOMEM;
	err = open_output(b, j);
	if (err)
		return err;
	out = open_pipe(j);
	if (out < 0)
		return out;
	users__new(b, &j->uid, &j->gid);
	for (; n < j->n_traces; n++) {
		bool import = j->kind == JOB_IMPORT;
		int fd = import ? store__open_file(&b->store, j->source, &size)
				: trace__open(b, j->traces[n], &size);

		if (fd < 0) {
			err = fd;
			goto close_files;
		}
		files[n] = (struct spawn_file){ .fd = fd,
						.name = import ? j->imported : j->traces[n]->file };
	}
	err = spawn__self(&(struct spawn_opts){ .argv = (const char *const *)j->argv,
						.out = out,
						.keep = -1,
						.files = files,
						.n_files = n,
						.nice_by = NICE,
						.drop = j->kind != JOB_DUMP &&
							j->kind != JOB_DEVICES,
						.uid = j->uid,
						.gid = j->gid,
						.memory = MEMORY,
						.cpu_seconds = CPU_SECONDS },
			  &j->run);
	j->running = !err;
	j->deadline = clock__monotonic() + time_limit(j->kind);
close_files:
	while (n-- > 0)
		close(files[n].fd);
	close(out);
	return err;
}

/* ---- results ---- */

/* Makes a read-only descriptor of the output at offset 0. Returns it or -errno. */
static int open_sealed(const struct job *j, uint64_t *size)
{
	char name[48];
	struct stat st;
	int fd;

	if (fstat(j->out, &st))
		return -errno;
	*size = (uint64_t)st.st_size;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", j->out);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Keeps the output from changing. 0 or -errno. */
static int seal(const struct job *j)
{
	return fcntl(j->out, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
		       ? -errno
		       : 0;
}

/* Seals the output, and opens it as open_sealed(). */
static int seal_output(const struct job *j, uint64_t *size)
{
	return seal(j) ?: open_sealed(j, size);
}

/* True if the kernel ended the worker because of a limit: of time, or of memory. */
static bool hit_limit(int status)
{
	return WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL);
}

/* True if a message says that memory or the disk is full: the request may succeed later. */
static bool lacks_room(const char *why)
{
	return strstr(why, "out of memory") || strstr(why, "not enough memory") ||
	       strstr(why, "cannot write") || strstr(why, "disk is full");
}

/* The HTTP status of a failed job, with the reason in why. */
static int explain_failure(const struct job *j, int status, char *why, size_t size)
{
	spawned__last_message(&j->run, why, size);
	if (j->write_err) {
		if (j->write_err != -EFBIG)
			snprintf(why, size, "cannot write the file: %s", strerror(-j->write_err));
		else
			snprintf(why, size, "%s",
				 writes_file(j)
					 ? "the file would be larger than its share of the space "
					   "left by --max-disk"
					 : "the answer would be larger than the limit of 256 MiB");
		return 503;
	}
	if (j->late || hit_limit(status)) {
		snprintf(why, size, "the request took more time (%d s) or memory than allowed",
			 CPU_SECONDS);
		return 503;
	}
	if (WIFSIGNALED(status)) {
		snprintf(why, size, "signal %d (%s) ended the worker", WTERMSIG(status),
			 sigdescr_np(WTERMSIG(status)));
		return 503;
	}
	if (!*why)
		snprintf(why, size, "the worker ended with status %d", WEXITSTATUS(status));
	/* Only messages of EXIT_FAILED are searched. Others may contain text of the request, such
	 * as the name of a mark. */
	if (WEXITSTATUS(status) >= CANNOT_RUN)
		return 503;
	if (WEXITSTATUS(status) == EXIT_FAILED && lacks_room(why))
		return 503;
	if (j->kind == JOB_DUMP && WEXITSTATUS(status) == EXIT_UNUSABLE)
		return 404;
	if (j->kind == JOB_DUMP || j->kind == JOB_DEVICES)
		return WEXITSTATUS(status) == EXIT_USAGE ? 422 : 503;
	/* 404: the request is valid, but the device or moment does not exist. */
	return strstr(why, "no device '") || strstr(why, "no out-of-memory") ||
			       strstr(why, "no mark '")
		       ? 404
		       : 422;
}

/* Names the members of the request instead of the worker's options: "at" for "--at". Returns the
 * first member that the message names; NULL: none. */
static const char *name_members(char *why)
{
	static const char *const keys[] = { "at", "by", "device", "filter", "frames", "top" };
	const char *first = NULL;
	size_t len;

	for (char *p = why; (p = strstr(p, "--")); p++)
		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
			len = strlen(keys[i]);
			if (strncmp(p + 2, keys[i], len) || isalpha((unsigned char)p[2 + len]))
				continue;
			memmove(p, p + 2, strlen(p + 2) + 1);
			first = first ? first : keys[i];
			break;
		}
	return first;
}

/* Keeps the file of an export, removes the least recently used one if there are too many, and
 * answers the request. */
static void keep_export(struct broker *b, struct job *j)
{
	struct trace *t = j->traces[0];
	struct trace_export *v = reallocarray(t->exports, t->n_exports + 1, sizeof(*v)), *e;
	int err = -ENOMEM;

	if (v) {
		t->exports = v;
		err = store__rename(&b->store, j->part, j->file);
	}
	if (err) {
		ask__refuse(j->peer, j->id, 503, /*field=*/NULL, "cannot keep the file: %s",
			    strerror(-err));
		return;
	}
	*j->part = '\0';
	if (t->n_exports == TRACE_EXPORTS) {
		store__remove(&b->store, t->exports[0].file);
		memmove(&t->exports[0], &t->exports[1], --t->n_exports * sizeof(*e));
	}
	e = &t->exports[t->n_exports++];
	*e = (struct trace_export){ .size = j->size, .type = jobs__content_type(j->file) };
	snprintf(e->key, sizeof(e->key), "%s", j->key);
	snprintf(e->file, sizeof(e->file), "%s", j->file);
	answer_export(j->peer, j->id, e);
}

/* Keeps the recording that was made of a snapshot. */
static void keep_import(struct broker *b, struct job *j)
{
	struct trace *t = j->traces[0];
	int err = store__rename(&b->store, j->part, t->file);

	if (err) {
		trace__fail(b, t, 503, strerror(-err));
		return;
	}
	*j->part = '\0';
	t->bytes = j->size;
	remove_part(b, j);
	trace__finish(b, t);
}

/* True if a JOB_DEVICES that has ended, or takes too long, answers this one. */
static bool shares_answer(const struct job *j, const struct job *ended)
{
	return j->kind == JOB_DEVICES && (j == ended || !j->running) && j->peer && !j->answered;
}

/* Answers all requests for the devices: with the output of a job, or if status is not 0 with an
 * error. */
static void answer_devices(struct broker *b, struct job *ended, int status, const char *why)
{
	for (struct job *j = b->jobs; j; j = j->next) {
		uint64_t size = 0;
		int fd;

		if (!shares_answer(j, ended))
			continue;
		fd = status ? -1 : open_sealed(ended, &size);
		if (status)
			ask__refuse(j->peer, j->id, status, /*field=*/NULL, "%s", why);
		else if (fd < 0)
			ask__refuse(j->peer, j->id, 503, /*field=*/NULL,
				    "cannot send the answer: %s", strerror(-fd));
		else
			ask__answer(j->peer, j->id, json_pack("{s:I}", "size", (json_int_t)size),
				    fd);
		j->answered = true;
	}
}

/* Removes the requests that answer_devices() has answered, but for the running job. */
static void remove_answered(struct broker *b)
{
	struct job *next;

	for (struct job *j = b->jobs; j; j = next) {
		next = j->next;
		if (j->answered && !j->running)
			remove_job(b, j);
	}
}

/* Hands on the output of a successful job: to the exported files, to its trace or to its peer. */
static void deliver_output(struct broker *b, struct job *j)
{
	uint64_t size = 0;
	int fd;

	if (j->kind == JOB_IMPORT) {
		keep_import(b, j);
		return;
	}
	if (j->kind == JOB_EXPORT) {
		keep_export(b, j);
		return;
	}
	if (j->kind == JOB_DEVICES) {
		fd = seal(j);
		answer_devices(b, j, fd ? 503 : 0, strerror(-fd));
		return;
	}
	fd = seal_output(j, &size);
	if (fd < 0 && j->kind == JOB_REPORT)
		trace__fail(b, j->traces[0], 503, strerror(-fd));
	else if (fd < 0)
		ask__refuse(j->peer, j->id, 503, /*field=*/NULL, "cannot send the answer: %s",
			    strerror(-fd));
	else if (j->kind == JOB_REPORT)
		trace__done(b, j->traces[0], fd);
	else
		ask__answer(j->peer, j->id, json_pack("{s:I}", "size", (json_int_t)size), fd);
}

/* Keeps an earlier error as the first part of the message, because it may explain this one. */
static void fail_report(struct broker *b, struct trace *t, const char *why)
{
	char both[sizeof(t->error) + 512];

	snprintf(both, sizeof(both), "%s%s%s", t->error, *t->error ? "; " : "", why);
	trace__fail(b, t, t->uploaded ? 422 : 503, both);
}

/* True if the output of a worker is complete. EXIT_HELD is the status of a diagnosis that found a
 * fault, EXIT_UNUSABLE that of `ps --device` with an empty list. */
static bool has_succeeded(const struct job *j, int status)
{
	if (!WIFEXITED(status) || j->write_err)
		return false;
	if (WEXITSTATUS(status) == EXIT_HELD)
		return j->kind == JOB_DOCUMENT;
	if (WEXITSTATUS(status) == EXIT_UNUSABLE && j->size)
		return j->kind == JOB_DEVICES;
	return WEXITSTATUS(status) == EXIT_OK;
}

/* A message of an import, without the name that the file has in its worker. */
static const char *after_name(const struct job *j, const char *why)
{
	size_t n = strlen(j->imported);

	return strncmp(why, j->imported, n) || !text__starts(why + n, ": ") ? why : why + n + 2;
}

/* The worker has ended with this status: delivers its output, or answers with an error. */
static void end_job(struct broker *b, struct job *j, int status)
{
	const char *member;
	char why[500];
	int code;

	take_output(j, PIPE_SIZE);
	if (has_succeeded(j, status)) {
		deliver_output(b, j);
		return;
	}
	code = explain_failure(j, status, why, sizeof(why));
	member = name_members(why);
	remove_part(b, j); /* before the answer, so that a client finds no leftover file */
	if (j->kind == JOB_REPORT)
		fail_report(b, j->traces[0], why);
	else if (j->kind == JOB_IMPORT)
		trace__fail(b, j->traces[0], code, after_name(j, why));
	else if (j->kind == JOB_DEVICES)
		answer_devices(b, j, code, why);
	else
		ask__refuse(j->peer, j->id, code, code == 422 ? member : NULL, "%s", why);
}

/* Answers a job that could not be started. err: of start_job(). */
static void refuse_start(struct broker *b, struct job *j, int err)
{
	const char *why = err == -EDQUOT
				  ? "the server's folder is full (--max-disk): delete some traces"
				  : strerror(-err);

	if (ends_trace(j))
		trace__fail(b, j->traces[0], 503, why);
	else
		ask__refuse(j->peer, j->id, err == -EDQUOT ? 429 : 503, /*field=*/NULL, "%s", why);
}

/* The job to start next; NULL: none can start. Jobs that end traces go first: clients wait for
 * them, and they are few. A second export of the same file waits. */
static struct job *next_job(const struct broker *b)
{
	struct job *first = NULL;

	for (struct job *j = b->jobs; j; j = j->next) {
		if (j->running || j->kind == JOB_DEVICES)
			continue;
		if (j->kind == JOB_EXPORT && is_being_made(b, j))
			continue;
		if (ends_trace(j))
			return j;
		first = first ? first : j;
	}
	return first;
}

/* Answers waiting exports whose file another job has made. */
static void answer_waiting_exports(struct broker *b)
{
	struct job *next;

	for (struct job *j = b->jobs; j; j = next) {
		const struct trace_export *e = j->running || j->kind != JOB_EXPORT
						       ? NULL
						       : use_export(j->traces[0], j->key);

		next = j->next;
		if (!e)
			continue;
		answer_export(j->peer, j->id, e);
		remove_job(b, j);
	}
}

/* The look at all devices that runs; NULL: none. */
static struct job *running_devices(const struct broker *b)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->running && j->kind == JOB_DEVICES)
			return j;
	return NULL;
}

/* The first request for a look at all devices; NULL: none waits, or one has begun. */
static struct job *next_devices(const struct broker *b)
{
	if (running_devices(b))
		return NULL;
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_DEVICES)
			return j;
	return NULL;
}

/* Starts a job, or answers that it cannot start. */
static void try_to_start(struct broker *b, struct job *j)
{
	int err = start_job(b, j);

	if (!err)
		return;
	refuse_start(b, j, err);
	remove_job(b, j);
}

/* First ends jobs, so that their workers' places are free for the next ones. */
void jobs__pump(struct broker *b, uint64_t now)
{
	struct job *next, *j;
	int status;

	for (j = b->jobs; j; j = next) {
		next = j->next;
		if (!j->running)
			continue;
		spawned__read(&j->run);
		take_output(j, TAKEN_AT_ONCE * PIPE_SIZE);
		if (spawned__ended(&j->run, &status)) {
			end_job(b, j, status);
			remove_job(b, j);
			continue;
		}
		if (now >= j->deadline && !j->late) {
			j->late = true;
			subprocess__signal(&j->run.process, SIGKILL);
			if (j->kind == JOB_DEVICES)
				answer_devices(b, j, /*status=*/503, DEVICES_LATE);
		}
	}
	remove_answered(b);
	answer_waiting_exports(b);
	while (count_running(b) < b->args->max_workers && (j = next_job(b)))
		try_to_start(b, j);
	while ((j = next_devices(b)))
		try_to_start(b, j);
}

size_t jobs__poll(const struct broker *b, struct pollfd *fds, size_t room)
{
	size_t n = 0;

	for (const struct job *j = b->jobs; j && n + 3 <= room; j = j->next) {
		if (!j->running)
			continue;
		fds[n++] = (struct pollfd){ .fd = j->run.process.pidfd, .events = POLLIN };
		if (j->run.err_fd >= 0)
			fds[n++] = (struct pollfd){ .fd = j->run.err_fd, .events = POLLIN };
		if (j->from >= 0)
			fds[n++] = (struct pollfd){ .fd = j->from, .events = POLLIN };
	}
	return n;
}

/* ---- jobs for requests ---- */

/* Adds --KEY=VALUE for each member of the table, in one argument, so that a text cannot become an
 * option. */
static void put_options(struct job *j, const json_t *msg, const struct field *options)
{
	for (const struct field *f = options; f->name; f++) {
		const json_t *v = json_object_get(msg, f->name);

		if (json_is_string(v))
			put_argument(j, "--%s=%s", f->name, json_string_value(v));
		else if (json_is_integer(v))
			put_argument(j, "--%s=%" JSON_INTEGER_FORMAT, f->name,
				     json_integer_value(v));
	}
}

/* Adds a trace; t NULL: the one in the member `key`. False: the request has been refused. */
static bool add_trace(struct job *j, struct peer *p, json_t *msg, const char *key, struct trace *t)
{
	t = t ? t : trace__asked(p, msg, key);
	if (!t)
		return false;
	if (t->state != TRACE_DONE && t->state != TRACE_FINISHING) {
		ask__refuse(p, j->id, 409, key,
			    t->state == TRACE_FAILED ? "%s: %s failed, and nothing was recorded"
						     : "%s: %s still captures",
			    key, t->id);
		return false;
	}
	if (j->n_traces == SPAWN_FILES) {
		ask__refuse(p, j->id, 422, key, "%s: %d at most", key, SPAWN_FILES);
		return false;
	}
	j->traces[j->n_traces++] = t;
	put_argument(j, "%s", t->file);
	return true;
}

/* Adds the request's `least` to `most` traces. False: the request has been refused. */
static bool add_traces(struct job *j, struct peer *p, json_t *msg, size_t least, size_t most)
{
	const json_t *list = json_object_get(msg, "traces"), *v;
	char clean[300];
	size_t i;

	if (json_array_size(list) < least || json_array_size(list) > most) {
		ask__refuse(p, j->id, 422, "traces",
			    "traces: must be an array of %zu to %zu trace ids", least, most);
		return false;
	}
	json_array_foreach(list, i, v) {
		const char *id = json_string_value(v);
		struct trace *t = id ? trace__find(p->b, id) : NULL;

		if (!t) {
			id = id ? id : "";
			ask__refuse(p, j->id, 404, "traces", "Trace %s not found",
				    text__clean(clean, sizeof(clean), id, strlen(id)));
			return false;
		}
		if (!add_trace(j, p, msg, "traces", t))
			return false;
	}
	return true;
}

/* The add_ functions add the recordings that the request names, and further arguments. False: the
 * request has been answered. */
static bool add_named_trace(struct job *j, struct peer *p, json_t *msg)
{
	return add_trace(j, p, msg, "trace_id", NULL);
}

static bool add_old_and_new(struct job *j, struct peer *p, json_t *msg)
{
	return add_trace(j, p, msg, "old", NULL) && add_trace(j, p, msg, "new", NULL);
}

static bool add_compared(struct job *j, struct peer *p, json_t *msg)
{
	return add_traces(j, p, msg, /*least=*/2, COMPARED_MAX);
}

/* Refuses a request that would have to wait for a look which does not end. */
static bool may_look(struct job *j, struct peer *p, json_t *msg)
{
	const struct job *running = running_devices(p->b);

	(void)msg;
	if (p->b->can_trace && !(running && running->late))
		return true;
	if (running)
		ask__refuse(p, j->id, 503, NULL, DEVICES_LATE);
	else
		ask__refuse(p, j->id, 503, /*field=*/NULL, "cannot look at processes: %s",
			    p->b->why);
	return false;
}

static bool add_ranks(struct job *j, struct peer *p, json_t *msg)
{
	return add_traces(j, p, msg, /*least=*/1, SPAWN_FILES);
}

/* Adds the arguments for the process that the request names. False: the request has been refused. */
static bool put_process_argument(struct job *j, struct peer *p, json_t *msg)
{
	const struct serve_target *target;
	struct broker_process *q = processes__find(p, j->id, msg, &target);

	if (!q) {
		/* processes__find() has refused the request, unless it names a command. */
		if (target)
			ask__refuse(p, j->id, 422, "model_name",
				    "model_name: '%s' is a command, which runs only while it is "
				    "captured",
				    target->name);
		return false;
	}
	put_argument(j, "-p");
	put_argument(j, "%d", (int)q->pid);
	return true;
}

/* Adds the format and the trace. False: the request has been refused, or answered with a file that
 * exists. */
static bool add_exported(struct job *j, struct peer *p, json_t *msg)
{
	static const struct field fields[] = { ASK_TEXT("format"), { 0 } };
	const char *at = ask__text(msg, "at") ?: "";
	const char *device = ask__text(msg, "device") ?: "";
	const char *format;
	const struct export_format *f;
	const struct trace_export *e;
	struct trace *t;
	char clean[300];

	if (!ask__fits(p, msg, fields))
		return false;
	format = ask__text(msg, "format") ?: "";
	f = export__find(format);
	if (!f) {
		ask__refuse(p, j->id, 422, "format",
			    "format: unknown format '%s'; GET /api/health lists the formats",
			    text__clean(clean, sizeof(clean), format, strlen(format)));
		return false;
	}
	put_argument(j, "-o");
	put_argument(j, "-");
	put_argument(j, "%s", f->name);
	if (!add_trace(j, p, msg, "trace_id", NULL))
		return false;
	t = j->traces[0];
	snprintf(j->key, sizeof(j->key), "%s\n%s\n%s", f->name, at, device);
	e = use_export(t, j->key);
	if (e) {
		answer_export(p, j->id, e);
		return false;
	}
	j->format = f;
	j->plain = !*at && !*device;
	return true;
}

#define TOP ASK_COUNT("top", 0, 1000000)

/* The requests: the command of each, and the members that become options of the same names. */
static const struct request_kind {
	const char *name;
	enum job_kind kind;
	const char *command[5];
	struct field options[7];
	/* Adds the recordings or the process, and further arguments. False: the request has been
	 * answered. */
	bool (*add)(struct job *j, struct peer *p, json_t *msg);
} request_kinds[] = {
	{ "compare",
	  JOB_DOCUMENT,
	  { "compare", "--format=json" },
	  { ASK_TEXT("device") },
	  add_compared },
	{ "devices", JOB_DEVICES, { "ps", "--device", "--format=json" }, { { 0 } }, may_look },
	{ "diagnose", JOB_DOCUMENT, { "diagnose", "--format=json" }, { { 0 } }, add_named_trace },
	{ "diff",
	  JOB_DOCUMENT,
	  { "diff", "--format=json" },
	  { ASK_TEXT("by"), ASK_TEXT("at"), ASK_TEXT("device"), TOP },
	  add_old_and_new },
	{ "dump",
	  JOB_DUMP,
	  { "dump", "--format=json" },
	  { ASK_TEXT("by"), TOP },
	  put_process_argument },
	{ "export", JOB_EXPORT, { "export" }, { ASK_TEXT("at"), ASK_TEXT("device") }, add_exported },
	{ "leaks",
	  JOB_DOCUMENT,
	  { "leaks", "--format=json", "--steps" },
	  { ASK_TEXT("by"), ASK_TEXT("device"), TOP },
	  add_named_trace },
	{ "ranks",
	  JOB_DOCUMENT,
	  { "report", "--format=json", "--together", "--outliers" },
	  { ASK_TEXT("at"), ASK_TEXT("by"), ASK_TEXT("device") },
	  add_ranks },
	{ "report",
	  JOB_DOCUMENT,
	  { "report", "--format=json" },
	  { ASK_TEXT("at"), ASK_TEXT("by"), ASK_TEXT("device"), ASK_TEXT("filter"),
	    ASK_TEXT("frames"), TOP },
	  add_named_trace },
	{ 0 },
};

/* Sets the command of a job from a request. False: the request has been answered. */
static bool fill_job(struct job *j, struct peer *p, json_t *msg, const struct request_kind *s)
{
	if (!ask__fits(p, msg, s->options))
		return false;
	for (size_t i = 0; s->command[i]; i++)
		put_argument(j, "%s", s->command[i]);
	put_options(j, msg, s->options);
	return s->add(j, p, msg);
}

void jobs__asked(struct peer *p, json_t *msg)
{
	const char *action = json_string_value(json_object_get(msg, "do"));
	const struct request_kind *s = request_kinds;
	json_int_t id = ask__id(msg);
	struct job *j;

	if (count_waiting(p->b, action && !strcmp(action, "devices")) >= BROKER_WAITING) {
		ask__refuse(p, id, 429, /*field=*/NULL,
			    "%d requests already wait for a worker: try again in a moment",
			    BROKER_WAITING);
		return;
	}
	while (s->name && strcmp(s->name, action) != 0)
		s++;
	j = s->name ? new_job(s->kind, p, id) : NULL;
	if (!j)
		ask__refuse(p, id, 503, NULL, "out of memory");
	else if (fill_job(j, p, msg, s))
		append_job(p->b, j);
	else
		free_job(j);
}
