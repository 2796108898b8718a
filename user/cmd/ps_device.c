/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/ps_device.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/grid.h"
#include "base/json.h"
#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"
#include "cmd/gpu_look.h"
#include "model/words.h"
#include "record/cond.h"
#include "watch/ps.h"

#define COMMAND_WANTED 24 /* least width of the last column, in characters */

/* One look at all GPUs. */
struct look {
	const struct ps_device_args *args;
	struct gpu_look *gpus;
};

static bool is_wanted(const struct look *l, unsigned gpu)
{
	const char *device = l->args->device;
	char number[16];

	snprintf(number, sizeof(number), "%u", gpu);
	if (!device || !strcmp(device, number))
		return true;
	return l->gpus->by_driver && strlen(device) > 4 &&
	       text__starts(gpus__get(gpu)->uuid, device);
}

/* True if --idle and --orphans leave the row in. */
static bool is_shown(const struct ps_device_args *a, const struct gpu_holder *h)
{
	if (a->orphans && !h->left_over)
		return false;
	return !a->idle || (h->idle_known && h->idle >= a->idle);
}

/* ---- text ---- */

enum column_id {
	COL_PID,
	COL_USER,
	COL_HELD,
	COL_RESERVED,
	COL_ALLOCATED,
	COL_IDLE,
	COL_AGE,
	COL_STATE,
	COL_PLACE,
	COL_JOB,
	COL_NR
};

static const char *state_name(char state)
{
	switch (state) {
	case 'R':
		return "running";
	case 'D':
		return "uninterruptible";
	case 'T':
	case 't':
		return "stopped";
	case 'Z':
		return "zombie";
	case 'X':
		return "gone";
	default:
		return "sleeping";
	}
}

static void put_bytes(struct grid *g, enum column_id column, bool known, uint64_t bytes)
{
	char text[24];

	grid__put(g, column, known ? text__bytes(text, sizeof(text), bytes) : "-", NULL);
}

static void put_time(struct grid *g, enum column_id column, bool known, uint64_t ns)
{
	char text[24] = "0 s";

	if (ns >= UINT64_C(1000000000))
		text__time(text, sizeof(text), ns);
	grid__put(g, column, known ? text : "-", NULL);
}

static bool has_age(const struct look *l, const struct gpu_holder *h)
{
	return h->process->state != 'X' && l->gpus->boottime >= h->process->started;
}

static void put_row(struct grid *g, const struct look *l, const struct gpu_holder *h)
{
	const struct holder_process *p = h->process;
	char text[32];

	grid__row(g);
	snprintf(text, sizeof(text), "%d", (int)p->pid);
	grid__put(g, COL_PID, text, NULL);
	grid__put(g, COL_USER, p->user, NULL);
	put_bytes(g, COL_HELD, h->bytes_known, h->bytes);
	put_bytes(g, COL_RESERVED, h->torch_known, h->reserved);
	put_bytes(g, COL_ALLOCATED, h->torch_known, h->allocated);
	put_time(g, COL_IDLE, h->idle_known, h->idle);
	put_time(g, COL_AGE, has_age(l, h), l->gpus->boottime - p->started);
	grid__put(g, COL_STATE, state_name(p->state), NULL);
	grid__put(g, COL_PLACE, *p->pod ? p->pod : p->container, NULL);
	grid__put(g, COL_JOB, p->job, NULL);
}

/* Adds a row that is no process: it has only the bytes, if they are known. */
static void add_part_row(struct grid *g, bool known, uint64_t bytes)
{
	grid__row(g);
	put_bytes(g, COL_HELD, known, bytes);
}

/* The last column of a row: what it is. */
static void describe_row(const struct gpu_holder *h, char *buf, size_t size)
{
	const struct holder_process *p = h->process;
	char inner[48] = "", slice[32] = "";

	if (p->inner > 0 && p->inner != p->pid)
		snprintf(inner, sizeof(inner), " (PID %d in its namespace)", (int)p->inner);
	if (h->slice != GPUS_NO_SLICE)
		snprintf(slice, sizeof(slice), "[slice %u] ", h->slice);
	snprintf(buf, size, "%s%s%s", slice, p->state == 'X' ? "(no such process)" : p->command,
		 inner);
}

/* Adds the rows after the processes, up to the sum, with their texts. */
static size_t add_parts(struct grid *g, const struct look *l, const struct gpu_table *t,
			char parts[5][160])
{
	uint64_t filtered = 0, rest = t->unexplained < 0 ? 0 : (uint64_t)t->unexplained;
	size_t n = 0, left = 0;
	char count[48];

	for (size_t i = 0; i < t->n; i++) {
		if (is_shown(l->args, &t->v[i]))
			continue;
		filtered += t->v[i].bytes;
		left++;
	}
	if (left) {
		add_part_row(g, /*known=*/true, filtered);
		snprintf(parts[n++], sizeof(parts[0]), "+ %s more process%s",
			 text__count(count, sizeof(count), left), left == 1 ? "" : "es");
	}
	add_part_row(g, t->reserved_known, t->reserved);
	snprintf(parts[n++], sizeof(parts[0]), "driver's reserve");
	if (t->n_hidden) {
		add_part_row(g, /*known=*/true, t->hidden);
		snprintf(parts[n++], sizeof(parts[0]), "%s process%s not shown by this host",
			 text__count(count, sizeof(count), t->n_hidden),
			 t->n_hidden == 1 ? "" : "es");
	}
	add_part_row(g, t->used_known, rest);
	if (t->unexplained < 0)
		snprintf(parts[n++], sizeof(parts[0]), "not explained: the rows have %s too many",
			 text__bytes(count, sizeof(count), (uint64_t)-t->unexplained));
	else
		snprintf(parts[n++], sizeof(parts[0]), "not explained");
	add_part_row(g, t->used_known, t->used);
	snprintf(parts[n++], sizeof(parts[0]), "in use");
	return n;
}

static void print_title(const struct look *l, unsigned gpu)
{
	const struct gpu_table *t = &l->gpus->table[gpu];
	char name[128] = "", used[24], total[24], left[24];

	if (l->gpus->by_driver)
		text__clean(name, sizeof(name), gpus__get(gpu)->name, strlen(gpus__get(gpu)->name));
	printf("GPU %u%s%s", gpu, *name ? ": " : "", name);
	if (t->used_known)
		printf(", %s of %s in use, %s free", text__bytes(used, sizeof(used), t->used),
		       text__bytes(total, sizeof(total), t->total),
		       text__bytes(left, sizeof(left), t->total - t->used));
	if (l->gpus->by_driver && gpus__get(gpu)->mig)
		printf(", multi-instance mode");
	putchar('\n');
	if (l->gpus->by_driver && gpus__get(gpu)->vgpu)
		printf("  virtual GPU: its profile limits the memory to %s\n",
		       t->used_known ? text__bytes(total, sizeof(total), t->total) : "a part");
}

static void print_slices(const struct look *l, unsigned gpu)
{
	char used[24], total[24], uuid[128];

	for (uint32_t i = 0; l->gpus->answer && i < l->gpus->answer->n_slices; i++) {
		const struct gpus_slice *s = &l->gpus->answer->slice[i];

		if (s->gpu != gpu)
			continue;
		text__clean(uuid, sizeof(uuid), s->uuid, strlen(s->uuid));
		printf("  slice %u: ", s->number);
		if (s->total)
			printf("%s of %s in use", text__bytes(used, sizeof(used), s->used),
			       text__bytes(total, sizeof(total), s->total));
		printf("  %s\n", uuid);
	}
}

/* The words before a row's end_all. */
static const char *end_all_title(const struct gpu_holder *h)
{
	if (!*h->end_all)
		return "";
	if (text__starts(h->end_all, "scancel"))
		return ". To end its whole job: ";
	if (text__starts(h->end_all, "kubectl"))
		return ". To end its whole pod: ";
	return ". To end its whole container: ";
}

static void print_reason(const struct gpu_holder *h, unsigned width)
{
	static const char indent[] = "          ";
	const char *verdict = h->left_over ? "probably left over: " : "";
	const char *end = *h->command ? ". To end it: " : "";

	if (*h->reason)
		text__paragraph(stdout, text__prose(width), indent, indent, "%s%s%s%s%s%s", verdict,
				h->reason, end, h->command, end_all_title(h), h->end_all);
}

static int print_table(const struct look *l, unsigned gpu)
{
	static const struct column columns[COL_NR] = {
		[COL_PID] = { .title = "PID", .right = true, .least = 7 },
		[COL_USER] = { .title = "User", .goes = 6 },
		[COL_HELD] = { .title = "Held", .right = true, .least = 10 },
		[COL_RESERVED] = { .title = "Reserved", .right = true, .goes = 4 },
		[COL_ALLOCATED] = { .title = "Allocated", .right = true, .goes = 3 },
		[COL_IDLE] = { .title = "Idle", .right = true, .goes = 5 },
		[COL_AGE] = { .title = "Age", .right = true, .goes = 2 },
		[COL_STATE] = { .title = "State", .goes = 1 },
		[COL_PLACE] = { .title = "Container", .goes = 7 },
		[COL_JOB] = { .title = "Job", .goes = 8 },
	};
	const struct gpu_table *t = &l->gpus->table[gpu];
	struct grid *g = grid__new(columns, COL_NR);
	unsigned width = text__columns(stdout);
	bool torch = false, idle = false, place = false, job = false;
	char parts[5][160], text[512];
	size_t rows = 0, n, room;
	int err;

	if (!g)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++) {
		const struct gpu_holder *h = &t->v[i];

		if (!is_shown(l->args, h))
			continue;
		put_row(g, l, h);
		torch |= h->torch_known;
		idle |= h->idle_known;
		place |= *h->process->container || *h->process->pod;
		job |= *h->process->job != '\0';
	}
	n = add_parts(g, l, t, parts);
	grid__show(g, COL_RESERVED, torch);
	grid__show(g, COL_ALLOCATED, torch);
	grid__show(g, COL_IDLE, idle);
	grid__show(g, COL_PLACE, place);
	grid__show(g, COL_JOB, job);
	room = grid__fit(g, width, COMMAND_WANTED, COL_NR);
	err = grid__error(g);
	if (!err)
		grid__print_titles(g, stdout, text__colour(stdout), "Command");
	for (size_t i = 0; i < t->n && !err; i++) {
		if (!is_shown(l->args, &t->v[i]))
			continue;
		describe_row(&t->v[i], text, sizeof(text));
		grid__print(g, stdout, rows++, words__cut(text, room));
		print_reason(&t->v[i], width);
	}
	for (size_t i = 0; i < n && !err; i++)
		grid__print(g, stdout, rows++, words__cut(parts[i], room));
	grid__free(g);
	return err;
}

/* Number of processes whose memory or files did not answer in time. */
static size_t count_unanswered(const struct holder_processes *p)
{
	size_t n = p->not_read;

	for (size_t i = 0; i < p->n; i++)
		n += p->v[i].unanswered;
	return n;
}

/* Says which processes the tables lack, or know little of. */
static void print_missing(const struct look *l)
{
	const struct holder_processes *p = l->gpus->processes;
	size_t unanswered = count_unanswered(p);
	unsigned width = text__prose(text__columns(stdout));
	char count[48];

	if (p->closed)
		text__paragraph(stdout, width, "", "  ",
				"%s process%s could not be searched for open devices; run it %s",
				text__count(count, sizeof(count), p->closed),
				p->closed == 1 ? "" : "es", words__see_all());
	if (p->left_out)
		text__paragraph(stdout, width, "", "  ",
				"%s more process%s left out: memtrace-bpf lists at most %d",
				text__count(count, sizeof(count), p->left_out),
				p->left_out == 1 ? "" : "es", HOLDER_PROCESSES);
	if (unanswered)
		text__paragraph(stdout, width, "", "  ",
				"%s process%s did not answer within half a second: command line, "
				"job and container's name are missing",
				text__count(count, sizeof(count), unanswered),
				unanswered == 1 ? "" : "es");
}

static int print_text(const struct look *l)
{
	unsigned width = text__prose(text__columns(stdout));
	bool any = false;
	int err = 0;

	for (unsigned i = 0; i < l->gpus->n && !err; i++) {
		if (!is_wanted(l, i))
			continue;
		if (any)
			putchar('\n');
		any = true;
		print_title(l, i);
		print_slices(l, i);
		err = print_table(l, i);
		if (*l->gpus->table[i].why)
			text__paragraph(stdout, width, "figures are missing: ", "  ", "%s",
					l->gpus->table[i].why);
	}
	print_missing(l);
	return err;
}

/* ---- JSON ---- */

static void put_text(struct json *j, const char *key, const char *text)
{
	json__string(j, key, *text ? text : NULL);
}

static void put_seconds(struct json *j, const char *key, bool known, uint64_t ns)
{
	if (known)
		json__seconds(j, key, ns, /*decimals=*/3);
	else
		json__null(j, key);
}

static void put_kinds(struct json *j, uint32_t kinds)
{
	json__open_array(j, "kinds");
	if (kinds & GPUS_COMPUTE)
		json__string(j, NULL, "compute");
	if (kinds & GPUS_GRAPHICS)
		json__string(j, NULL, "graphics");
	if (kinds & GPUS_MPS)
		json__string(j, NULL, "mps");
	json__close_array(j);
}

/* Why PyTorch's figures of a process are not known; "": they are. */
static const char *allocator_why(const struct look *l, const struct gpu_holder *h)
{
	size_t n;
	const struct ps_process *const *v = ps__list(l->gpus->ps, &n);

	if (h->torch_known)
		return "";
	for (size_t i = 0; i < n; i++) {
		if (v[i]->pid != h->process->pid)
			continue;
		return *v[i]->why ? v[i]->why
				  : "it has nothing on this device, or it is not "
				    "certain which GPU its devices are";
	}
	return "no PyTorch was found in it";
}

static const char *idle_source(const struct gpu_holder *h)
{
	if (!h->idle_known)
		return "";
	return h->idle_by_driver ? "driver" : "threads";
}

static void put_holder(struct json *j, const struct look *l, const struct gpu_holder *h)
{
	const struct holder_process *p = h->process;
	bool gone = p->state == 'X';

	json__open_object(j, NULL);
	json__int(j, "pid", p->pid);
	json__uint_or_null(j, "inner_pid", p->inner > 0, (uint64_t)p->inner);
	json__uint_or_null(j, "uid", !gone, p->uid);
	put_text(j, "user", p->user);
	put_text(j, "command", p->command);
	put_text(j, "container", p->container);
	put_text(j, "pod", p->pod);
	json__bool(j, "container_gone", p->container_gone);
	put_text(j, "job", p->job);
	json__bool(j, "unanswered", p->unanswered);
	json__uint_or_null(j, "parent", p->parent > 0, (uint64_t)p->parent);
	put_text(j, "parent_command", p->parent_command);
	json__bool(j, "parent_gone", p->parent_gone);
	json__string(j, "state", state_name(p->state));
	put_seconds(j, "age", has_age(l, h), l->gpus->boottime - p->started);
	put_kinds(j, h->kinds);
	json__uint_or_null(j, "slice", h->slice != GPUS_NO_SLICE, h->slice);
	json__bool(j, "open", h->open);
	json__uint_or_null(j, "bytes", h->bytes_known, h->bytes);
	put_text(j, "why", h->why);
	json__uint_or_null(j, "reserved", h->torch_known, h->reserved);
	json__uint_or_null(j, "allocated", h->torch_known, h->allocated);
	put_text(j, "allocator_why", allocator_why(l, h));
	put_seconds(j, "idle", h->idle_known, h->idle);
	put_text(j, "idle_by", idle_source(h));
	json__bool(j, "left_over", h->left_over);
	put_text(j, "reason", h->reason);
	put_text(j, "end_command", h->command);
	put_text(j, "end_all_command", h->end_all);
	json__close_object(j);
}

static void put_slices(struct json *j, const struct look *l, unsigned gpu)
{
	json__open_array(j, "slices");
	for (uint32_t i = 0; l->gpus->answer && i < l->gpus->answer->n_slices; i++) {
		const struct gpus_slice *s = &l->gpus->answer->slice[i];

		if (s->gpu != gpu)
			continue;
		json__open_object(j, NULL);
		json__uint(j, "slice", s->number);
		put_text(j, "uuid", s->uuid);
		json__uint_or_null(j, "total", s->total, s->total);
		json__uint_or_null(j, "used", s->total, s->used);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_device(struct json *j, const struct look *l, unsigned gpu)
{
	const struct gpu_table *t = &l->gpus->table[gpu];
	const struct gpu *g = l->gpus->by_driver ? gpus__get(gpu) : NULL;
	size_t filtered = 0;

	json__open_object(j, NULL);
	json__uint(j, "device", gpu);
	json__string(j, "name", g && *g->name ? g->name : NULL);
	json__string(j, "uuid", g && *g->uuid ? g->uuid : NULL);
	json__bool(j, "mig", g && g->mig);
	json__bool(j, "vgpu", g && g->vgpu);
	json__uint_or_null(j, "total", t->used_known, t->total);
	json__uint_or_null(j, "used", t->used_known, t->used);
	json__uint_or_null(j, "free", t->used_known, t->total - t->used);
	json__uint_or_null(j, "reserved_by_driver", t->reserved_known, t->reserved);
	json__uint(j, "listed", t->listed);
	json__uint_or_null(j, "hidden", l->gpus->answer, t->hidden);
	json__uint(j, "hidden_processes", t->n_hidden);
	if (t->used_known)
		json__int(j, "not_explained", t->unexplained);
	else
		json__null(j, "not_explained");
	put_text(j, "why", t->why);
	put_slices(j, l, gpu);
	json__open_array(j, "holders");
	for (size_t i = 0; i < t->n; i++) {
		if (is_shown(l->args, &t->v[i]))
			put_holder(j, l, &t->v[i]);
		else
			filtered++;
	}
	json__close_array(j);
	json__uint(j, "filtered", filtered);
	json__close_object(j);
}

static int print_json(const struct look *l)
{
	struct json *j = json__new(stdout, !l->args->watch);
	char date[40];

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__string(j, "time", text__date(date, sizeof(date), clock__read(CLOCK_REALTIME)));
	json__open_array(j, "devices");
	for (unsigned i = 0; i < l->gpus->n; i++)
		if (is_wanted(l, i))
			put_device(j, l, i);
	json__close_array(j);
	put_text(j, "why", l->gpus->n ? "" : l->gpus->why);
	json__uint(j, "not_searched", l->gpus->processes->closed);
	json__uint(j, "left_out", l->gpus->processes->left_out);
	json__uint(j, "unanswered", count_unanswered(l->gpus->processes));
	json__close_object(j);
	json__free(j);
	return 0;
}

/* ---- conditions ---- */

static int judge(const struct look *l, struct cond *c, unsigned gpu)
{
	const struct gpu_table *t = &l->gpus->table[gpu];
	struct cond_values v = { .time = l->gpus->monotonic, .series = gpu, .sampled = true };
	struct cond_result r;

	for (int i = 0; i < COND_FIGURES; i++)
		v.why[i] = "it is no figure of a whole device; use free or used";
	v.v[COND_FREE] = (struct cond_value){ t->used_known, t->total - t->used, t->total };
	v.v[COND_USED] = (struct cond_value){ t->used_known, t->used, t->total };
	v.why[COND_FREE] = v.why[COND_USED] = t->why;
	if (cond__eval(c, &v, &r))
		return EXIT_FAILED;
	if (r.verdict == COND_NO)
		return EXIT_OK;
	if (r.verdict == COND_HOLDS)
		log_err("--fail-if '%s' holds on GPU %u: %s", cond__text(c), gpu, r.text);
	else
		log_err("--fail-if '%s' cannot be judged on GPU %u: %s", cond__text(c), gpu,
			r.text);
	return r.verdict == COND_HOLDS ? EXIT_HELD : EXIT_FAILED;
}

static int judge_all(const struct look *l)
{
	int status = EXIT_OK;

	for (unsigned i = 0; i < l->gpus->n; i++) {
		for (size_t k = 0; k < l->args->n_conds && is_wanted(l, i); k++) {
			int mine = judge(l, l->args->conds[k], i);

			status = mine > status ? mine : status;
		}
	}
	return status;
}

/* ---- */

/* Says why there is no table. Returns the exit code. */
static int no_device(const struct look *l)
{
	if (l->args->device && l->gpus->n)
		log_err("no GPU '%s': this machine has %u, numbered from 0; `nvidia-smi -L` has "
			"their UUIDs",
			l->args->device, l->gpus->n);
	else
		log_err("no GPU: %s, and no process has a device node of NVIDIA open",
			l->gpus->why);
	return EXIT_UNUSABLE;
}

static bool has_table(const struct look *l)
{
	for (unsigned i = 0; i < l->gpus->n; i++)
		if (is_wanted(l, i))
			return true;
	return false;
}

/* Prints once. Returns the exit code of the conditions, or -errno. */
static int print_once(struct look *l, bool first)
{
	int err = gpu_look__read(l->gpus);

	if (err)
		return err;
	if (!has_table(l) && l->args->json && !l->gpus->n)
		err = print_json(l) ?: outfile__flush(stdout);
	if (!has_table(l))
		return err ?: no_device(l);
	if (l->args->json) {
		err = print_json(l);
	} else {
		if (l->args->watch && isatty(STDOUT_FILENO))
			fputs("\033[H\033[J", stdout);
		else if (!first)
			putchar('\n');
		err = print_text(l);
	}
	err = err ?: outfile__flush(stdout);
	return err ?: judge_all(l);
}

static int print_all(struct look *l)
{
	uint64_t n = 0;
	int status;

	do {
		if (n)
			poll(NULL, 0, (int)(l->args->interval / 1000000));
		status = print_once(l, !n);
		n++;
	} while (!status && l->args->watch && (!l->args->count || n < l->args->count));
	return status;
}

int ps_device__run(const struct ps_device_args *args)
{
	struct look l = { .args = args, .gpus = gpu_look__new(/*torch=*/true) };
	int status = -ENOMEM;

	if (l.gpus && args->idle)
		l.gpus->idle = args->idle;
	if (l.gpus)
		status = print_all(&l);
	gpu_look__free(l.gpus);
	if (status >= 0)
		return status;
	log_err("%s", outfile__why(status));
	return EXIT_FAILED;
}
