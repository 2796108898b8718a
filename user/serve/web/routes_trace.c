/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls about traces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/grammar.h"
#include "serve/server/summary.h"
#include "serve/web/state_public.h"
#include "serve/web/validate.h"
#include "serve/web/web.h"

/* ---- parameters ---- */

static const struct field memory_body[] = {
	{ .name = "model_name",
	  .type = FIELD_STRING,
	  .shortest = 1,
	  .longest = 64,
	  .help = "The name of a target.",
	  .example = "\"my_model\"" },
	{ .name = "pid",
	  .type = FIELD_INTEGER,
	  .min = 1,
	  .max = 2147483647,
	  .help = "A process of a target, instead of model_name.",
	  .example = "4242" },
	{ .name = "duration_s",
	  .type = FIELD_NUMBER,
	  .min = 0.001,
	  .max = 604800,
	  .help = "Seconds to capture." },
	{ .name = "steps",
	  .type = FIELD_INTEGER,
	  .min = 1,
	  .max = 1000000000,
	  .help = "Training steps to capture." },
	{ .name = "max_events",
	  .type = FIELD_INTEGER,
	  .min = 1,
	  .max = 1e12,
	  .help = "Maximum number of allocations and frees to capture.",
	  .example = "10000" },
	{ .name = "start_at",
	  .type = FIELD_NUMBER,
	  .min = 0,
	  .max = 9e9,
	  .help = "When the capture starts, in seconds since 1970 by this host's clock, at most "
		  "as far from now as a capture may last. A moment that has passed: at once." },
	{ .name = "align_s",
	  .type = FIELD_NUMBER,
	  .min = 0.1,
	  .max = 604800,
	  .help = "Start at the next multiple of so many seconds by this host's clock, unless "
		  "start_at is given." },
	{ .name = "clock_offset_ns",
	  .type = FIELD_INTEGER,
	  .min = -9e15,
	  .max = 9e15,
	  .help = "This host's clock minus the client's, as the client measured it. It goes into "
		  "the recording." },
	{ .name = "clock_offset_error_ns",
	  .type = FIELD_INTEGER,
	  .max = 9e15,
	  .help = "How far clock_offset_ns may be off." },
	{ .name = "enable_fragmentation",
	  .type = FIELD_BOOLEAN,
	  .help = "Whether to compute average fragmentation; otherwise it is null." },
	{ .name = "host",
	  .type = FIELD_BOOLEAN,
	  .help = "Whether to record also all memory that the process maps on the host, by line, "
		  "as record --host. Reports then have the device host." },
	{ .name = "input_shape",
	  .type = FIELD_INTEGERS,
	  .min = 1,
	  .max = 2147483647,
	  .shortest = 1,
	  .longest = 16,
	  .help = "For a command target: MEMTRACE_INPUT_SHAPE in its environment.",
	  .example = "[8, 3, 224, 224]" },
	{ .name = "batch_size",
	  .type = FIELD_INTEGER,
	  .min = 1,
	  .max = 2147483647,
	  .help = "For a command target: MEMTRACE_BATCH_SIZE in its environment.",
	  .example = "8" },
	{ .name = "wait",
	  .type = FIELD_BOOLEAN,
	  .help = "false: answers at once with the started trace instead of the result." },
	{ 0 },
};

static const char *const formats[] = { WORD_ARRAY(EXPORT_WORDS) NULL };
static const char *const groups[] = { WORD_ARRAY(GROUP_WORDS) NULL };
static const char *const leak_groups[] = { WORD_ARRAY(LEAK_GROUP_WORDS) NULL };

/* Parameters of several calls. */
#define AT                                                                                         \
	{                                                                                          \
		.name = "at", .type = FIELD_STRING, .pattern = PATTERN_AT,                         \
		.help = "The moment: " HELP_AT "."                                                 \
	}
#define DEVICE                                                                                     \
	{                                                                                          \
		.name = "device", .type = FIELD_STRING, .pattern = PATTERN_DEVICE,                 \
		.help = "The device, such as cuda:0, cpu or host."                                 \
	}
#define TOP                                                                                        \
	{                                                                                          \
		.name = "top", .type = FIELD_INTEGER, .max = 1000000,                              \
		.help = "Number of rows; the remaining rows are summed in one more. 0: all."       \
	}

static const struct field export_body[] = {
	{ .name = "trace_id",
	  .type = FIELD_STRING,
	  .required = true,
	  .shortest = 1,
	  .longest = STATE_ID - 1,
	  .help = "Which trace.",
	  .example = "\"trace_1705536000000\"" },
	{ .name = "format",
	  .type = FIELD_STRING,
	  .required = true,
	  .choices = formats,
	  .help = "Which format.",
	  .example = "\"speedscope\"" },
	AT,
	DEVICE,
	{ 0 },
};

static const struct field trace_path[] = {
	{ .name = "trace_id",
	  .type = FIELD_STRING,
	  .required = true,
	  .help = "Which trace.",
	  .example = "\"trace_1705536000000\"" },
	{ 0 },
};

static const struct field upload_query[] = {
	{ .name = "name",
	  .type = FIELD_STRING,
	  .longest = 200,
	  .help = "The file's name, which is shown for the trace.",
	  .example = "\"oom_rank3.pickle\"" },
	{ 0 },
};

static const struct field file_path[] = {
	{ .name = "file",
	  .type = FIELD_STRING,
	  .required = true,
	  .help = "A file name from the end of download_url.",
	  .example = "\"trace_1705536000000_flamegraph.json\"" },
	{ 0 },
};

static const char *const which_frames[] = { "user", "all", "native", NULL };
static const struct field report_query[] = {
	AT,
	{ .name = "by",
	  .type = FIELD_STRING,
	  .pattern = PATTERN_GROUPS,
	  .help = "What a row is: " HELP_GROUPS ".",
	  .example = "\"line\"" },
	DEVICE,
	TOP,
	{ .name = "filter",
	  .type = FIELD_STRING,
	  .shortest = 1,
	  .help = "Only matching rows, as with report --filter." },
	{ .name = "frames",
	  .type = FIELD_STRING,
	  .choices = which_frames,
	  .help = "Which line an allocation counts for: the innermost of user code, of all "
		  "code, or of compiled code." },
	{ 0 },
};

static const struct field diff_query[] = {
	{ .name = "old",
	  .type = FIELD_STRING,
	  .required = true,
	  .shortest = 1,
	  .longest = STATE_ID - 1,
	  .help = "A trace.",
	  .example = "\"trace_1705536000000\"" },
	{ .name = "new",
	  .type = FIELD_STRING,
	  .required = true,
	  .shortest = 1,
	  .longest = STATE_ID - 1,
	  .help = "The trace to compare with it.",
	  .example = "\"trace_1705536100000\"" },
	{ .name = "by", .type = FIELD_STRING, .choices = groups, .help = "What a row is." },
	{ .name = "at",
	  .type = FIELD_STRING,
	  .pattern = PATTERN_AT_PAIR,
	  .longest = 2 * VALIDATE_STRING,
	  .help = "The moment: " HELP_AT_PAIR ".",
	  .example = "\"0,end\"" },
	DEVICE,
	TOP,
	{ 0 },
};

static const struct field leaks_query[] = {
	{ .name = "by", .type = FIELD_STRING, .choices = leak_groups, .help = "What a row is." },
	DEVICE,
	TOP,
	{ 0 },
};

static const struct field compare_query[] = {
	{ .name = "traces",
	  .type = FIELD_STRINGS,
	  .required = true,
	  .shortest = 2,
	  .longest = 16,
	  .help = "Trace ids, separated by commas.",
	  .example = "\"trace_1705536000000,trace_1705536100000\"" },
	DEVICE,
	{ 0 },
};

static const struct field ranks_query[] = {
	{ .name = "traces",
	  .type = FIELD_STRINGS,
	  .shortest = 1,
	  .longest = 64,
	  .help = "Trace ids, separated by commas. Without it: the finished traces, of each rank "
		  "the last.",
	  .example = "\"trace_1705536000000,trace_1705536100000\"" },
	{ .name = "job",
	  .type = FIELD_STRING,
	  .shortest = 1,
	  .longest = 64,
	  .help = "Only traces of this target, or with this `folder`. Not with `traces`." },
	AT,
	{ .name = "by",
	  .type = FIELD_STRING,
	  .pattern = PATTERN_GROUPS_TOGETHER,
	  .help = "What a row is: " HELP_GROUPS_TOGETHER "." },
	DEVICE,
	{ 0 },
};

/* ---- handlers ---- */

/* The trace with this ID. NULL: there is none, and the request was answered with 404. */
static struct state_trace *find_trace(struct request *r, const char *id)
{
	struct state_trace *t = serve_state__trace(request__state(r), id);

	if (!t)
		request__error(r, 404, /*field=*/NULL, "Trace %.80s not found", id);
	return t;
}

/* For request__ask(): sends the JSON document that the broker made. */
static void send_document(struct request *r, json_t *answer, int fd)
{
	(void)answer;
	request__whole(r, "application/json", NULL, fd);
}

/* The functions below answer the requests of their names; an on_ function goes on when the broker
 * has answered. */
static void list_traces(struct request *r)
{
	struct state *s = request__state(r);
	json_t *ids = json_array();
	json_t *traces = json_array();

	for (size_t i = 0; i < s->n_traces; i++) {
		json_array_append_new(ids, json_string(s->traces[i]->id));
		json_array_append_new(traces, state_public__trace(s->traces[i]));
	}
	request__json(r, 200,
		      json_pack("{s:o, s:I, s:o}", "active_traces", ids, "count",
				(json_int_t)s->n_traces, "traces", traces));
}

/* Sends the result from a new report: the state has no summary of the trace, or one without layers.
 */
static void on_report(struct request *r, json_t *answer, int fd)
{
	struct state_trace *t = serve_state__trace(request__state(r), request__kept(r));
	json_t *report = fd >= 0 ? summary__read(fd) : NULL;
	json_t *summary = t && report ? summary__make(t->facts, report) : NULL;

	(void)answer;
	if (fd >= 0)
		close(fd);
	json_decref(report);
	if (!summary)
		request__error(r, 503, NULL, "the trace has ended, but its report is unreadable");
	else
		request__json(r, 200, summary);
}

/* Answers with the trace's result if the trace has ended; otherwise the request waits on. */
static void wait_for_end(struct request *r)
{
	const char *id = request__kept(r);
	struct state_trace *t = find_trace(r, id);
	const char *error;
	json_int_t status;

	if (!t || !serve_state__trace_ended(t))
		return;
	request__wait(r, NULL);
	if (!strcmp(serve_state__trace_state(t), "failed")) {
		error = json_string_value(json_object_get(t->facts, "error"));
		status = json_integer_value(json_object_get(t->facts, "status"));
		if (status != 404 && status != 422)
			status = 503;
		request__error(r, (int)status, /*field=*/NULL, "%s",
			       error ? error : "the capture failed for an unknown reason");
	} else if (t->summary && json_object_get(t->summary, "layer_stats")) {
		request__json(r, 200, json_incref(t->summary));
	} else {
		request__ask(r, json_pack("{s:s, s:s}", "do", "report", "trace_id", id), on_report);
	}
}

struct state_trace *routes_trace__take(struct request *r, json_t *answer)
{
	json_t *msg = json_pack("{s:s, s:O*}", "event", "trace", "trace",
				json_object_get(answer, "trace"));
	struct state_trace *t = NULL;

	if (msg && serve_state__take(request__state(r), msg, /*fd=*/-1, &t))
		t = NULL;
	json_decref(msg);
	return t;
}

void routes_trace__answer_at_end(struct request *r, const char *id)
{
	request__keep(r, strdup(id), free);
	if (!request__kept(r)) {
		request__error(r, 503, NULL, "no memory");
		return;
	}
	request__wait(r, wait_for_end);
	wait_for_end(r);
}

static void on_capture(struct request *r, json_t *answer, int fd)
{
	struct state_trace *t = routes_trace__take(r, answer);

	if (fd >= 0)
		close(fd);
	if (!t) {
		request__error(r, 503, NULL, "the capture started, but its result is unknown");
		return;
	}
	if (json_is_false(json_object_get(request__body(r), "wait"))) {
		request__json(r, 200, state_public__trace(t));
		return;
	}
	routes_trace__answer_at_end(r, t->id);
}

/* All of the file has arrived: request.kept is the trace's ID. */
static void end_upload(struct request *r)
{
	char *id = strdup(request__kept(r));

	if (id)
		routes_trace__answer_at_end(r, id);
	else
		request__error(r, 503, NULL, "no memory");
	free(id);
}

/* Checks the name against the known targets, if there are any, to spare the broker a request. The
 * broker checks it again. */
static bool is_target(const struct state *s, const char *name)
{
	const json_t *t;
	size_t i;

	json_array_foreach(s->targets, i, t)
		if (!strcmp(json_string_value(json_object_get(t, "name")), name))
			return true;
	return !s->targets;
}

static void capture_memory(struct request *r)
{
	json_t *body = request__body(r), *msg;
	const char *name = json_string_value(json_object_get(body, "model_name"));

	/* exactly one of the two must be given */
	if (!json_object_get(body, "pid") == !json_object_get(body, "model_name")) {
		request__error(r, 422, "model_name", "model_name: %s",
			       json_object_get(body, "pid") ? "cannot be combined with pid"
							    : "is missing; give it or pid");
		return;
	}
	if (name && !is_target(request__state(r), name)) {
		request__error(r, 404, "model_name",
			       "Target %s not found; GET /api/targets lists them", name);
		return;
	}
	msg = json_copy(body);
	json_object_del(msg, "wait");
	json_object_set_new(msg, "do", json_string("capture"));
	request__ask(r, msg, on_capture);
}

static void on_trace(struct request *r, json_t *answer, int fd)
{
	struct state_trace *t = routes_trace__take(r, answer);

	if (fd >= 0)
		close(fd);
	if (t)
		request__json(r, 200, state_public__trace(t));
	else
		request__error(r, 503, NULL, "the trace no longer exists");
}

static void stop_trace(struct request *r)
{
	const char *id = request__path(r, "trace_id");

	if (find_trace(r, id))
		request__ask(r, json_pack("{s:s, s:s}", "do", "stop", "trace_id", id), on_trace);
}

static void on_deleted(struct request *r, json_t *answer, int fd)
{
	char message[128];

	if (fd >= 0)
		close(fd);
	snprintf(message, sizeof(message), "Trace %s deleted successfully",
		 request__path(r, "trace_id"));
	request__json(r, 200,
		      json_pack("{s:s, s:I}", "message", message, "remaining_traces",
				json_integer_value(json_object_get(answer, "remaining"))));
}

static void delete_trace(struct request *r)
{
	const char *id = request__path(r, "trace_id");

	if (find_trace(r, id))
		request__ask(r, json_pack("{s:s, s:s}", "do", "delete", "trace_id", id),
			     on_deleted);
}

/* Adds the query's parameters listed in `fields` to msg. */
static json_t *add_query(struct request *r, json_t *msg, const struct field *fields)
{
	double v;

	for (const struct field *f = fields; f->name; f++) {
		const char *text = request__query(r, f->name);

		if (text && f->type == FIELD_INTEGER && request__number(r, f->name, &v))
			json_object_set_new(msg, f->name, json_integer((json_int_t)v));
		else if (text)
			json_object_set_new(msg, f->name, json_string(text));
	}
	return msg;
}

static void send_report(struct request *r)
{
	const char *id = request__path(r, "trace_id");

	if (find_trace(r, id))
		request__ask(r,
			     add_query(r, json_pack("{s:s, s:s}", "do", "report", "trace_id", id),
				       report_query),
			     send_document);
}

static void send_leaks(struct request *r)
{
	const char *id = request__path(r, "trace_id");

	if (find_trace(r, id))
		request__ask(r,
			     add_query(r, json_pack("{s:s, s:s}", "do", "leaks", "trace_id", id),
				       leaks_query),
			     send_document);
}

static void send_diagnosis(struct request *r)
{
	const char *id = request__path(r, "trace_id");

	if (find_trace(r, id))
		request__ask(r, json_pack("{s:s, s:s}", "do", "diagnose", "trace_id", id),
			     send_document);
}

static void send_diff(struct request *r)
{
	if (find_trace(r, request__query(r, "old")) && find_trace(r, request__query(r, "new")))
		request__ask(r, add_query(r, json_pack("{s:s}", "do", "diff"), diff_query),
			     send_document);
}

/* The IDs in a list with commas, as an array. NULL: a trace does not exist, and the request was
 * answered with 404. */
static json_t *read_trace_ids(struct request *r, const char *list)
{
	json_t *ids = json_array();
	char id[STATE_ID];

	for (;; list++) {
		size_t len = strcspn(list, ",");

		snprintf(id, sizeof(id), "%.*s", (int)(len < STATE_ID ? len : STATE_ID - 1), list);
		if (len >= STATE_ID || !serve_state__trace(request__state(r), id)) {
			request__error(r, 404, NULL, "Trace %.*s not found",
				       (int)(len < 80 ? len : 80), list);
			json_decref(ids);
			return NULL;
		}
		json_array_append_new(ids, json_string(id));
		list += len;
		if (!*list)
			break;
	}
	return ids;
}

static void send_comparison(struct request *r)
{
	json_t *ids = read_trace_ids(r, request__query(r, "traces")), *msg;

	if (!ids)
		return;
	msg = add_query(r, json_pack("{s:s}", "do", "compare"), compare_query);
	json_object_set_new(msg, "traces", ids);
	request__ask(r, msg, send_document);
}

/* Facts that decide whether a finished trace is the last of its rank. */
struct finished {
	const struct state_trace *trace;
	const char *job;
	json_int_t rank; /* -1: not known */
	double begun, ended;
};

/* The job of a trace: its target or, for a given recording, its folder. "": neither. */
static const char *job_of(const json_t *facts)
{
	const char *name = json_string_value(json_object_get(facts, "model_name"));

	if (!name || !*name)
		name = json_string_value(json_object_get(facts, "folder"));
	return name ? name : "";
}

/* How long the trace lasted by its report, otherwise by the broker. */
static double find_seconds(const struct state_trace *t)
{
	double by_report = json_number_value(json_object_get(t->summary, "tracing_time_ms")) / 1000;

	return by_report > 0 ? by_report : json_number_value(json_object_get(t->facts, "seconds"));
}

/* The facts of a trace that has ended. */
static struct finished describe_finished(const struct state_trace *t)
{
	const json_t *rank = json_object_get(json_object_get(t->report, "target"), "rank");
	struct finished ret = { .trace = t,
				.job = job_of(t->facts),
				.rank = json_is_integer(rank) ? json_integer_value(rank) : -1,
				.begun = json_number_value(json_object_get(t->facts, "begun")) };

	ret.ended = ret.begun + find_seconds(t);
	return ret;
}

/* True if a trace of the same rank and job began after all[i] had ended. all: n traces by their
 * beginning. Traces of one rank that overlap in time are of its process and its child processes,
 * and all count. An unknown rank is never superseded. */
static bool is_superseded(const struct finished *all, size_t n, size_t i)
{
	for (size_t k = i + 1; k < n && all[i].rank >= 0; k++) {
		bool is_of_rank = all[k].rank == all[i].rank && !strcmp(all[k].job, all[i].job);

		if (is_of_rank && all[k].begun >= all[i].ended)
			return true;
	}
	return false;
}

json_t *routes_trace__last_of_job(const struct state *s, const char *job)
{
	struct finished *all = calloc(s->n_traces + 1, sizeof(*all));
	json_t *ids = all ? json_array() : NULL;
	size_t n = 0;

	for (size_t i = 0; i < s->n_traces && ids; i++) {
		if (strcmp(serve_state__trace_state(s->traces[i]), "done") ||
		    json_is_false(json_object_get(s->traces[i]->facts, "keep")))
			continue;
		/* The next trace overwrites one of another job. */
		all[n] = describe_finished(s->traces[i]);
		n += !job || !strcmp(all[n].job, job);
	}
	for (size_t i = 0; i < n && ids; i++)
		if (!is_superseded(all, n, i))
			json_array_append_new(ids, json_string(all[i].trace->id));
	free(all);
	return ids;
}

static void send_ranks(struct request *r)
{
	const char *given = request__query(r, "traces");
	const char *job = request__query(r, "job");
	json_t *ids, *msg;

	if (given && job) {
		request__error(r, 422, "job", "job: cannot be combined with traces");
		return;
	}
	ids = given ? read_trace_ids(r, given) : routes_trace__last_of_job(request__state(r), job);
	if (!ids && !given)
		request__error(r, 503, NULL, "no memory");
	if (!ids)
		return;
	if (!json_array_size(ids)) {
		if (job)
			request__error(r, 404, /*field=*/NULL,
				       "There is no finished trace of job %.80s", job);
		else
			request__error(r, 404, NULL, "There is no finished trace");
		json_decref(ids);
		return;
	}
	msg = add_query(r, json_pack("{s:s}", "do", "ranks"), ranks_query);
	json_object_del(msg, "job");
	json_object_set_new(msg, "traces", ids);
	request__ask(r, msg, send_document);
}

static void stream_trace(struct request *r)
{
	request__stream(r, request__path(r, "trace_id"));
}

/* ---- files ---- */

#define FILE_NAME_MOST 128 /* bytes */

/* True for a file name as the broker makes them: letters, digits, '.', '_' and '-', no leading dot.
 */
static bool is_file_name(const char *name)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

	if (!name || !*name || *name == '.')
		return false;
	return strlen(name) <= FILE_NAME_MOST && strspn(name, letters) == strlen(name);
}

static void on_exported(struct request *r, json_t *answer, int fd)
{
	const char *file = json_string_value(json_object_get(answer, "file"));
	char url[192];

	if (fd >= 0)
		close(fd);
	if (!is_file_name(file)) {
		request__error(r, 503, NULL, "cannot make the file");
		return;
	}
	snprintf(url, sizeof(url), "/api/trace/download/%s", file);
	request__json(r, 200,
		      json_pack("{s:O, s:O, s:s, s:I, s:s}", "trace_id",
				json_object_get(request__body(r), "trace_id"), "format",
				json_object_get(request__body(r), "format"), "download_url", url,
				"file_size_bytes",
				json_integer_value(json_object_get(answer, "size")), "file", file));
}

static void export_file(struct request *r)
{
	json_t *msg;

	if (!find_trace(r, json_string_value(json_object_get(request__body(r), "trace_id"))))
		return;
	msg = json_copy(request__body(r));
	json_object_set_new(msg, "do", json_string("export"));
	request__ask(r, msg, on_exported);
}

static void on_opened(struct request *r, json_t *answer, int fd)
{
	const char *type = json_string_value(json_object_get(answer, "type"));

	request__whole(r, type && strlen(type) < 100 ? type : "application/octet-stream",
		       request__kept(r), fd);
}

/* Asks the broker for the file. then() finds its name by request__kept(). */
static void open_file(struct request *r, const char *name,
		      void (*then)(struct request *r, json_t *answer, int fd))
{
	request__keep(r, strdup(name), free);
	request__ask(r, json_pack("{s:s, s:s}", "do", "open", "file", name), then);
}

static void send_download(struct request *r)
{
	const char *name = request__path(r, "file");

	if (!is_file_name(name))
		request__error(r, 404, /*field=*/NULL, "no such file: %.80s", name);
	else
		open_file(r, name, on_opened);
}

static void send_recording(struct request *r)
{
	struct state_trace *t = find_trace(r, request__path(r, "trace_id"));
	const char *name = t ? json_string_value(json_object_get(t->facts, "file")) : NULL;

	if (t && (!is_file_name(name) || !serve_state__trace_ended(t)))
		request__error(r, 409, /*field=*/NULL, "Trace %s has no recording yet", t->id);
	else if (t)
		open_file(r, name, on_opened);
}

static void on_page(struct request *r, json_t *answer, int fd)
{
	(void)answer;
	/* The page contains data from a recording. The sandbox lets its scripts run without our
	 * origin and without network access. */
	request__header(
		r, "Content-Security-Policy",
		"sandbox allow-scripts allow-downloads; default-src 'none'; script-src "
		"'unsafe-inline'; style-src 'unsafe-inline'; "
		"img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'");
	request__whole(r, "text/html; charset=utf-8", NULL, fd);
}

static void on_page_made(struct request *r, json_t *answer, int fd)
{
	const char *file = json_string_value(json_object_get(answer, "file"));

	if (fd >= 0)
		close(fd);
	if (is_file_name(file))
		open_file(r, file, on_page);
	else
		request__error(r, 503, NULL, "cannot make the page");
}

static void send_page(struct request *r)
{
	const char *id = request__path(r, "trace_id");

	if (find_trace(r, id))
		request__ask(r,
			     json_pack("{s:s, s:s, s:s}", "do", "export", "trace_id", id, "format",
				       "html"),
			     on_page_made);
}

/* ---- the table ---- */

#define NOT_THERE                                                                                  \
	{                                                                                          \
		404, JSON, "Error", "No such trace, or it has no such device or moment."           \
	}
#define NOT_YET                                                                                    \
	{                                                                                          \
		409, JSON, "Error", "The trace has not got that far yet."                          \
	}
#define CANNOT                                                                                     \
	{                                                                                          \
		503, JSON, "Error",                                                                \
			"Not possible on this host or at this time; `detail` gives the reason."    \
	}

const struct route trace_routes[] = {
	{ .method = "POST",
	  .path = "/api/trace/memory",
	  .id = "traceMemory",
	  .tag = "traces",
	  .summary = "Capture a process",
	  .help = "Captures until `steps`, `duration_s` or `max_events` is reached or the process "
		  "ends, and answers with the result. Without `steps` and `duration_s`, captures "
		  "for 10 seconds; a command target is captured until it ends.",
	  .in_body = memory_body,
	  .body_extra =
		  "{\"oneOf\": [{\"required\": [\"model_name\"]}, {\"required\": [\"pid\"]}]}",
	  .answers = ANSWERS(
		  { 200, JSON, "TraceResult", "The result; with `wait` false, the started trace." },
		  { 404, JSON, "Error", "No such target, or it has no process." },
		  { 409, JSON, "Error", "The process cannot be captured in its present state." },
		  CANNOT),
	  .flags = ROUTE_CHANGES | ROUTE_COSTLY,
	  .handle = capture_memory },
	{ .method = "POST",
	  .path = "/api/trace/upload",
	  .id = "uploadTrace",
	  .tag = "traces",
	  .summary = "Send a recording or a memory snapshot of PyTorch",
	  .help = "The body is the file, with Content-Length. A snapshot becomes a recording. The "
		  "answer is the result, as of a capture.",
	  .in_query = upload_query,
	  .answers = ANSWERS({ 200, JSON, "TraceResult", "The result." },
			     { 411, JSON, "Error", "The request has no Content-Length." }, CANNOT),
	  .flags = ROUTE_CHANGES | ROUTE_COSTLY | ROUTE_UPLOAD,
	  .handle = end_upload },
	{ .method = "POST",
	  .path = "/api/trace/export",
	  .id = "exportTrace",
	  .tag = "traces",
	  .summary = "Make a file of a trace",
	  .help = "In any format of `export` that is one file, which are all except `parquet`. "
		  "The server keeps the file until the trace is deleted.",
	  .in_body = export_body,
	  .answers = ANSWERS({ 200, JSON, "Export", "The address of the file." }, NOT_THERE,
			     NOT_YET, CANNOT),
	  .flags = ROUTE_CHANGES | ROUTE_COSTLY,
	  .handle = export_file },
	{ .method = "GET",
	  .path = "/api/trace/download/{file}",
	  .id = "downloadFile",
	  .tag = "traces",
	  .summary = "A file made by export",
	  .in_path = file_path,
	  .answers = ANSWERS({ 200, "*/*", NULL, "The file." },
			     { 206, "*/*", NULL, "The part of the recording that Range asked for." },
			     { 404, JSON, "Error", "No such file." },
			     { 409, JSON, "Error", "The file is not written yet." }, CANNOT),
	  .handle = send_download },
	{ .method = "GET",
	  .path = "/api/trace/list",
	  .id = "listTraces",
	  .tag = "traces",
	  .summary = "All traces, oldest first",
	  .answers = ANSWERS({ 200, JSON, "TraceList", "The traces." }),
	  .handle = list_traces },
	{ .method = "GET",
	  .path = "/api/trace/diff",
	  .id = "diffTraces",
	  .tag = "traces",
	  .summary = "Changes between two traces",
	  .in_query = diff_query,
	  .answers = ANSWERS({ 200, JSON, "Document", "The document of `diff --format json`." },
			     NOT_THERE, NOT_YET, CANNOT),
	  .flags = ROUTE_COSTLY,
	  .handle = send_diff },
	{ .method = "GET",
	  .path = "/api/trace/compare",
	  .id = "compareTraces",
	  .tag = "traces",
	  .summary = "Comparison of several traces",
	  .in_query = compare_query,
	  .answers = ANSWERS({ 200, JSON, "Document", "The document of `compare --format json`." },
			     NOT_THERE, NOT_YET, CANNOT),
	  .flags = ROUTE_COSTLY,
	  .handle = send_comparison },
	{ .method = "GET",
	  .path = "/api/trace/ranks",
	  .id = "getRanks",
	  .tag = "traces",
	  .summary = "The ranks of a job",
	  .help = "One report of several traces: the memory, growth and steps of each, and those "
		  "that differ from the others with the rows in which they differ.",
	  .in_query = ranks_query,
	  .answers = ANSWERS({ 200, JSON, "Ranks",
			       "The document of `report --together --outliers --format json`." },
			     NOT_THERE, NOT_YET, CANNOT),
	  .flags = ROUTE_COSTLY,
	  .handle = send_ranks },
	{ .method = "GET",
	  .path = "/api/trace/{trace_id}",
	  .id = "getTrace",
	  .tag = "traces",
	  .summary = "The report on a trace",
	  .in_path = trace_path,
	  .in_query = report_query,
	  .answers = ANSWERS({ 200, JSON, "Report", "The document of `report --format json`." },
			     NOT_THERE, NOT_YET, CANNOT),
	  .flags = ROUTE_COSTLY,
	  .handle = send_report },
	{ .method = "DELETE",
	  .path = "/api/trace/{trace_id}",
	  .id = "deleteTrace",
	  .tag = "traces",
	  .summary = "Delete a trace and its files",
	  .help = "A running capture is stopped first.",
	  .in_path = trace_path,
	  .answers = ANSWERS({ 200, JSON, "Deleted", "It is gone." }, NOT_THERE, CANNOT),
	  .flags = ROUTE_CHANGES,
	  .handle = delete_trace },
	{ .method = "POST",
	  .path = "/api/trace/{trace_id}/stop",
	  .id = "stopTrace",
	  .tag = "traces",
	  .summary = "End a capture now",
	  .help = "Keeps the events recorded so far, as if the capture had ended by itself.",
	  .in_path = trace_path,
	  .answers = ANSWERS({ 200, JSON, "Trace", "The trace." }, NOT_THERE,
			     { 409, JSON, "Error", "The capture has already ended." }, CANNOT),
	  .flags = ROUTE_CHANGES,
	  .handle = stop_trace },
	{ .method = "GET",
	  .path = "/api/trace/{trace_id}/stream",
	  .id = "streamTrace",
	  .tag = "traces",
	  .summary = "Progress of a trace",
	  .help = "Server-sent events: `trace`, `sample`, with --figures `step` and `scope`, and "
		  "finally `end`.",
	  .in_path = trace_path,
	  .answers = ANSWERS({ 200, "text/event-stream", NULL, "The events." }, NOT_THERE),
	  .handle = stream_trace },
	{ .method = "GET",
	  .path = "/api/trace/{trace_id}/leaks",
	  .id = "getLeaks",
	  .tag = "traces",
	  .summary = "What grew",
	  .in_path = trace_path,
	  .in_query = leaks_query,
	  .answers = ANSWERS({ 200, JSON, "Document",
			       "The document of `leaks --steps --format json`." },
			     NOT_THERE, NOT_YET, CANNOT),
	  .flags = ROUTE_COSTLY,
	  .handle = send_leaks },
	{ .method = "GET",
	  .path = "/api/trace/{trace_id}/diagnose",
	  .id = "getDiagnosis",
	  .tag = "traces",
	  .summary = "What is wrong",
	  .in_path = trace_path,
	  .answers = ANSWERS({ 200, JSON, "Document", "The document of `diagnose --format json`." },
			     NOT_THERE, NOT_YET, CANNOT),
	  .flags = ROUTE_COSTLY,
	  .handle = send_diagnosis },
	{ .method = "GET",
	  .path = "/api/trace/{trace_id}/recording",
	  .id = "getRecording",
	  .tag = "traces",
	  .summary = "The recording itself",
	  .in_path = trace_path,
	  .answers = ANSWERS({ 200, "application/octet-stream", NULL,
			       "The recording, for `memtrace-bpf report`." },
			     { 206, "application/octet-stream", NULL,
			       "The part of the recording that Range asked for." },
			     NOT_THERE, NOT_YET, CANNOT),
	  .handle = send_recording },
	{ .method = "GET",
	  .path = "/api/trace/{trace_id}/page",
	  .id = "getPage",
	  .tag = "traces",
	  .summary = "The HTML page of a trace",
	  .help = "The page that `export html` writes.",
	  .in_path = trace_path,
	  .answers = ANSWERS({ 200, "text/html", NULL, "The page." }, NOT_THERE, NOT_YET, CANNOT),
	  .flags = ROUTE_COSTLY,
	  .handle = send_page },
	{ 0 },
};
