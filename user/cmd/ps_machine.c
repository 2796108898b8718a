/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/ps_machine.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
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
#include "inspect/machine.h"
#include "inspect/nvml.h"
#include "model/words.h"

#define TEXT 512
#define READY_WITHIN 3000		 /* ms for NVML to name its GPUs */
#define CUDA_EVERY UINT64_C(10000000000) /* ns between two questions to CUDA */
#define LAST_WANTED 20			 /* least width of the last column, in characters */

/* One look at the machine. */
struct look {
	struct machine_readings readings;
	struct machine_ledger ledger;
	struct machine_processes processes;
	struct machine_scan scan;
	struct machine_groups groups;
	struct gpus_cuda cuda; /* GPUs that share the host's memory */
	uint64_t cuda_asked;   /* CLOCK_MONOTONIC, ns; 0: never */
};

/* Whether a GPU seems to use the host's memory: NVML has no figure for its own, or it is Jetson's,
 * which NVML may not know. */
static bool has_unified_memory(uint64_t host)
{
	unsigned n = gpus__wait_count(READY_WITHIN);

	for (unsigned i = 0; i < n; i++)
		if (gpus__get(i)->total == host)
			return true;
	return !n && !access("/dev/nvmap", F_OK);
}

/* Asks CUDA, if a GPU shares the host's memory. Not often: a question takes a CUDA context. */
static void ask_cuda(struct look *l)
{
	uint64_t now = clock__monotonic();

	if (l->cuda_asked && now - l->cuda_asked < CUDA_EVERY)
		return;
	l->cuda_asked = now;
	if (has_unified_memory(l->readings.total))
		gpus_cuda__read(&l->cuda);
}

static int take_look(struct look *l)
{
	int err = machine_processes__read(&l->processes);

	if (!err)
		err = machine_scan__run(&l->scan, &l->processes);
	if (err)
		return err;
	machine_groups__read(&l->groups);
	err = machine_readings__read(&l->readings);
	if (err)
		return err;
	ask_cuda(l);
	l->readings.tmpfs = l->scan.tmpfs;
	machine_ledger__make(&l->readings, &l->ledger);
	return 0;
}

/* ---- text: the ledger ---- */

/* Appends a clause to buf, which has TEXT bytes. */
static void add_clause(char *buf, const char *bytes, const char *what)
{
	size_t len = strlen(buf);

	snprintf(buf + len, TEXT - len, "%s%s %s", len ? ", " : "", bytes, what);
}

static void add_bytes(char *buf, uint64_t bytes, const char *what)
{
	char size[24];

	add_clause(buf, text__bytes(size, sizeof(size), bytes), what);
}

static void describe_processes(const struct look *l, char *buf)
{
	char count[32];

	snprintf(buf, TEXT, "private, of %s process%s, shared pages once",
		 text__count(count, sizeof(count), l->processes.count),
		 l->processes.count == 1 ? "" : "es");
}

static void describe_unexplained(const struct look *l, char *buf)
{
	bool twice = l->ledger.line[MACHINE_UNEXPLAINED].bytes < 0;

	snprintf(buf, TEXT, "%s",
		 twice ? "counted twice by the kernel" : "pages of drivers, buffers of sockets");
}

/* Writes what the last column of a line says. */
static void describe_line(const struct look *l, enum machine_line_id id, char *buf)
{
	const struct machine_line *line = &l->ledger.line[id];

	*buf = '\0';
	if (id == MACHINE_PROCESSES)
		describe_processes(l, buf);
	if (id == MACHINE_UNEXPLAINED)
		describe_unexplained(l, buf);
	for (size_t i = 0; i < line->parts; i++)
		if (line->part[i].bytes)
			add_bytes(buf, line->part[i].bytes, line->part[i].name);
}

enum ledger_column { LEDGER_SIZE, LEDGER_SHARE, LEDGER_NAME, LEDGER_NR };

static void put_line(struct grid *g, int64_t bytes, uint64_t total, const char *name)
{
	char size[24], text[32], share[8];
	uint64_t n = (uint64_t)(bytes < 0 ? -bytes : bytes);

	snprintf(text, sizeof(text), "%s%s", bytes < 0 ? "-" : "",
		 text__bytes(size, sizeof(size), n));
	grid__row(g);
	grid__put(g, LEDGER_SIZE, text, NULL);
	grid__put(g, LEDGER_SHARE, bytes < 0 ? "" : text__percent(share, n, total), NULL);
	grid__put(g, LEDGER_NAME, name, NULL);
}

/* Prints a line of the ledger. Clauses that do not fit into its last column follow below. */
static void print_line(const struct grid *g, size_t row, size_t room, size_t indent, char *text)
{
	char margin[128], *rest = NULL;

	if (text__width(text) > room)
		for (char *at = strstr(text, ", "); at && (size_t)(at - text) < room;
		     at = strstr(at + 1, ", "))
			rest = at + 1;
	if (rest)
		*rest++ = '\0';
	grid__print(g, stdout, row, room ? words__cut(text, room) : "");
	if (!rest)
		return;
	snprintf(margin, sizeof(margin), "%*s", (int)indent, "");
	text__paragraph(stdout, indent + room, margin, margin, "%s", rest);
}

/* Prints the ledger as a table. Lines without any page are left out. The last column has the parts
 * of each line; a narrow terminal has no room for it. 0 or -ENOMEM. */
static int print_ledger(const struct look *l)
{
	static const struct column columns[LEDGER_NR] = {
		[LEDGER_SIZE] = { .title = "Size", .right = true, .least = 10 },
		[LEDGER_SHARE] = { .title = "%", .right = true, .least = 3 },
		[LEDGER_NAME] = { .title = "Memory" },
	};
	const struct machine_ledger *m = &l->ledger;
	struct grid *g = grid__new(columns, LEDGER_NR);
	size_t room, row = 0; /* room: characters that the last column has; 0: it is left out */
	char text[TEXT];
	int err;

	if (!g)
		return -ENOMEM;
	for (int i = 0; i < MACHINE_LINES; i++)
		if (m->line[i].bytes)
			put_line(g, m->line[i].bytes, m->total, m->line[i].name);
	put_line(g, (int64_t)m->total, m->total, "all");
	grid__last_goes(g, /*goes=*/1);
	room = grid__fit(g, text__columns(stdout), LAST_WANTED, /*goes=*/1);
	err = grid__error(g);
	if (!err)
		grid__print_titles(g, stdout, text__colour(stdout), room ? "Of it" : "");
	for (int i = 0; i < MACHINE_LINES && !err; i++) {
		if (!m->line[i].bytes)
			continue;
		describe_line(l, i, text);
		print_line(g, row++, room, text__columns(stdout) - room, text);
	}
	if (!err)
		grid__print(g, stdout, row, room ? "MemTotal" : "");
	grid__free(g);
	return err;
}

/* Appends a figure to a title of TEXT bytes. */
static void add_figure(char *title, uint64_t bytes, const char *what)
{
	size_t len = strlen(title);
	char size[24];

	snprintf(title + len, TEXT - len, "%s%s %s", text__dot(),
		 text__bytes(size, sizeof(size), bytes), what);
}

static void print_title(const struct look *l)
{
	const struct machine_readings *r = &l->readings;
	char size[24], text[TEXT];

	snprintf(text, sizeof(text), "memory of this machine: %s",
		 text__bytes(size, sizeof(size), r->total));
	add_figure(text, (uint64_t)l->ledger.line[MACHINE_FREE].bytes, "free");
	if (r->available != MACHINE_NONE)
		add_figure(text, r->available, "available");
	text__paragraph(stdout, text__columns(stdout), "", "  ", "%s", text);
	printf("\n");
}

static void print_swap(const struct machine_readings *r)
{
	char total[24], used[24], text[TEXT] = "";

	if (r->swap_total == MACHINE_NONE || r->swap_free > r->swap_total)
		return;
	if (!r->swap_total) {
		puts("\nswap: none");
		return;
	}
	snprintf(text, sizeof(text), "%s of %s in use",
		 text__bytes(used, sizeof(used), r->swap_total - r->swap_free),
		 text__bytes(total, sizeof(total), r->swap_total));
	if (r->zram_data != MACHINE_NONE && r->zram_data)
		add_bytes(text, r->zram_data, "of them in zram");
	if (r->zram_used != MACHINE_NONE && r->zram_used)
		add_bytes(text, r->zram_used, "after compression");
	printf("\n");
	text__paragraph(stdout, text__prose(text__columns(stdout)), "swap: ", "  ", "%s", text);
}

/* Why CUDA has less for programs than the kernel. Returns "" if it does not. */
static char *say_difference(const struct look *l, uint64_t left, char *buf)
{
	const struct machine_readings *r = &l->readings;
	char less[24], clean[24], slab[24];
	uint64_t cache = l->ledger.line[MACHINE_CACHE].part[0].bytes;

	*buf = '\0';
	if (r->available == MACHINE_NONE || left + r->total / 100 >= r->available)
		return buf;
	snprintf(buf, TEXT,
		 "; that is %s less than the kernel could make available: it can take back %s of "
		 "clean "
		 "page cache and %s of slab, which CUDA does not count as free. To return the "
		 "cache: "
		 "sync; echo 1 | sudo tee /proc/sys/vm/drop_caches",
		 text__bytes(less, sizeof(less), r->available - left),
		 text__bytes(clean, sizeof(clean), cache),
		 text__bytes(slab, sizeof(slab), r->slab_reclaimable));
	return buf;
}

static void print_cuda(const struct look *l)
{
	unsigned width = text__prose(text__columns(stdout));
	char left[24], total[24], name[96], why[TEXT];

	for (uint32_t i = 0; i < l->cuda.n; i++) {
		text__clean(name, sizeof(name), l->cuda.device[i].name,
			    strlen(l->cuda.device[i].name));
		text__bytes(left, sizeof(left), l->cuda.device[i].free);
		text__bytes(total, sizeof(total), l->cuda.device[i].total);
		say_difference(l, l->cuda.device[i].free, why);
		printf("\n");
		text__paragraph(stdout, width, "", "  ", "CUDA on %s: %s of %s free%s", name, left,
				total, why);
	}
}

/* ---- text: who has it ---- */

/* Rows of less than a thousandth of the machine are left out. */
static bool is_small(const struct look *l, uint64_t bytes)
{
	return bytes < l->readings.total / 1000;
}

static void put_bytes(struct grid *g, int column, uint64_t bytes)
{
	char text[24];

	grid__put(g, (size_t)column,
		  bytes == MACHINE_NONE ? "-" : text__bytes(text, sizeof(text), bytes), NULL);
}

/* Prints a table, whose last column is cut with cut(): last(l, i) is its text in row i. Frees g. 0
 * or -ENOMEM. */
static int print_table(struct grid *g, const char *title, const char *last_title, size_t n,
		       const char *(*last)(const struct look *l, size_t i), const struct look *l,
		       char *(*cut)(char *s, size_t columns))
{
	size_t room;
	char text[TEXT];
	int err;

	if (!g)
		return -ENOMEM;
	room = grid__fit(g, text__columns(stdout), LAST_WANTED, /*goes=*/9);
	err = grid__error(g);
	if (!err) {
		printf("\n");
		text__paragraph(stdout, text__columns(stdout), "", "  ", "%s", title);
		grid__print_titles(g, stdout, text__colour(stdout), last_title);
	}
	for (size_t i = 0; i < n && !err; i++) {
		snprintf(text, sizeof(text), "%s", last(l, i));
		grid__print(g, stdout, i, cut(text, room));
	}
	grid__free(g);
	return err;
}

static const char *command_of(const struct look *l, size_t i)
{
	return l->processes.v[i].command;
}

static int print_processes(const struct look *l)
{
	enum { PID, USER, ANON, FILES, SHARED, SWAP, NR };
	static const struct column columns[NR] = {
		[PID] = { .title = "PID", .right = true, .least = 7 },
		[USER] = { .title = "User", .goes = 2 },
		[ANON] = { .title = "Private", .right = true, .least = 10 },
		[FILES] = { .title = "Files", .right = true, .goes = 4, .least = 10 },
		[SHARED] = { .title = "Shared", .right = true, .goes = 3, .least = 10 },
		[SWAP] = { .title = "Swapped", .right = true, .goes = 1, .least = 10 },
	};
	struct grid *g = grid__new(columns, NR);
	char text[24];
	size_t n = 0;

	for (; g && n < l->processes.n; n++) {
		const struct machine_process *p = &l->processes.v[n];

		if (n && is_small(l, p->anon + p->swap))
			break;
		grid__row(g);
		snprintf(text, sizeof(text), "%d", (int)p->pid);
		grid__put(g, PID, text, NULL);
		grid__put(g, USER, p->user, NULL);
		put_bytes(g, ANON, p->anon);
		put_bytes(g, FILES, p->file);
		put_bytes(g, SHARED, p->shmem);
		put_bytes(g, SWAP, p->swap);
	}
	if (g)
		grid__show(g, SWAP,
			   l->readings.swap_total != MACHINE_NONE && l->readings.swap_total);
	return print_table(g, "Processes with most private memory:", "Command", n, command_of, l,
			   words__cut);
}

static const char *file_of(const struct look *l, size_t i)
{
	return l->scan.file[i].path;
}

static const char *shared_file_of(const struct look *l, size_t i)
{
	return l->scan.shared[i].path;
}

static int print_files(const struct look *l, bool shared)
{
	enum { CACHED, DIRTY, SIZE, PID, NR };
	static const struct column columns[NR] = {
		[CACHED] = { .title = "In memory", .right = true, .least = 10 },
		[DIRTY] = { .title = "Dirty", .right = true, .goes = 2, .least = 10 },
		[SIZE] = { .title = "Size", .right = true, .goes = 3, .least = 10 },
		[PID] = { .title = "PID", .right = true, .goes = 4, .least = 7 },
	};
	const struct machine_file *v = shared ? l->scan.shared : l->scan.file;
	size_t all = shared ? l->scan.shared_files : l->scan.files, n = 0;
	uint64_t sum = shared ? l->scan.shared_cached : l->scan.cached;
	struct grid *g;
	char text[24], title[128], size[24];

	while (n < all && (v[n].named || !is_small(l, v[n].cached)))
		n++;
	if (!n)
		return 0;
	g = grid__new(columns, NR);
	for (size_t i = 0; g && i < n; i++) {
		grid__row(g);
		put_bytes(g, CACHED, v[i].cached);
		put_bytes(g, DIRTY, v[i].dirty);
		put_bytes(g, SIZE, v[i].size);
		snprintf(text, sizeof(text), "%d", (int)v[i].pid);
		grid__put(g, PID, v[i].pid ? text : "-", NULL);
	}
	if (g)
		grid__show(g, DIRTY, !shared);
	snprintf(title, sizeof(title), "Files in %s (%s in all that were found):",
		 shared ? "shared memory" : "the page cache", text__bytes(size, sizeof(size), sum));
	return print_table(g, title, "File", n, shared ? shared_file_of : file_of, l,
			   words__cut_front);
}

static const char *group_of(const struct look *l, size_t i)
{
	return l->groups.v[i].path;
}

static int print_groups(const struct look *l)
{
	enum { USED, ANON, CACHE, KERNEL, LIMIT, NR };
	static const struct column columns[NR] = {
		[USED] = { .title = "Memory", .right = true, .least = 10 },
		[ANON] = { .title = "Private", .right = true, .goes = 4, .least = 10 },
		[CACHE] = { .title = "Page cache", .right = true, .goes = 3, .least = 10 },
		[KERNEL] = { .title = "Kernel", .right = true, .goes = 1, .least = 10 },
		[LIMIT] = { .title = "Limit", .right = true, .goes = 2, .least = 10 },
	};
	size_t n = l->groups.n < MACHINE_TOP ? l->groups.n : MACHINE_TOP;
	struct grid *g;

	if (!n)
		return 0;
	g = grid__new(columns, NR);
	for (size_t i = 0; g && i < n; i++) {
		const struct machine_group *p = &l->groups.v[i];

		grid__row(g);
		put_bytes(g, USED, p->used);
		put_bytes(g, ANON, p->anon);
		put_bytes(g, CACHE, p->cache);
		put_bytes(g, KERNEL, p->kernel);
		put_bytes(g, LIMIT, p->limit);
	}
	return print_table(g, "Control groups:", "Group", n, group_of, l, words__cut_front);
}

/* ---- what is missing ---- */

/* Calls say() for each figure that this user or this kernel does not have. */
static void each_missing(const struct look *l, void (*say)(void *ctx, const char *text), void *ctx)
{
	const struct machine_scan *s = &l->scan;
	char text[TEXT], count[32];

	if (s->denied) {
		snprintf(text, sizeof(text),
			 "files of %s process%s are not searched: not permitted; run it %s",
			 text__count(count, sizeof(count), s->denied), s->denied == 1 ? "" : "es",
			 words__see_all());
		say(ctx, text);
	}
	if (l->processes.hidden)
		say(ctx, "/proc shows only some processes (hidepid, or a container); run it with "
			 "sudo on the host");
	if (s->no_figures)
		say(ctx, "what is cached of other users' files is not known: not permitted");
	if (s->late)
		say(ctx, "not all files were searched: they are too many; name those you want with "
			 "--files");
	for (size_t i = 0; i < s->n_blocked; i++) {
		snprintf(text, sizeof(text),
			 s->blocked[i] > 0
				 ? "the files of PID %lld do not answer; look at its file systems"
				 : "a folder does not answer; look at its file system",
			 (long long)s->blocked[i]);
		say(ctx, text);
	}
	for (int i = 0; i < MACHINE_LINES; i++) {
		/* few kernels have these two */
		if (l->ledger.line[i].known || i == MACHINE_GPU || i == MACHINE_BALLOON)
			continue;
		snprintf(text, sizeof(text),
			 "%s: this kernel does not tell; it is in \"not explained\"",
			 l->ledger.line[i].name);
		say(ctx, text);
	}
	if (*l->cuda.why) {
		text__clean(text, sizeof(text), l->cuda.why, strlen(l->cuda.why));
		say(ctx, text);
	}
	if (!l->groups.version)
		say(ctx, "no control groups for memory are seen here");
}

static void print_missing(void *ctx, const char *text)
{
	bool *first = ctx;

	if (*first)
		printf("\n");
	*first = false;
	text__paragraph(stdout, text__prose(text__columns(stdout)), "missing: ", "  ", "%s", text);
}

static int print_text(const struct look *l)
{
	bool first = true;
	int err;

	print_title(l);
	err = print_ledger(l);
	if (err)
		return err;
	print_swap(&l->readings);
	print_cuda(l);
	err = print_processes(l);
	err = err ?: print_files(l, /*shared=*/false);
	err = err ?: print_files(l, /*shared=*/true);
	err = err ?: print_groups(l);
	each_missing(l, print_missing, &first);
	return err;
}

/* ---- JSON ---- */

static void put_figure(struct json *j, const char *key, uint64_t bytes)
{
	json__uint_or_null(j, key, bytes != MACHINE_NONE, bytes);
}

static void put_ledger(struct json *j, const struct machine_ledger *l)
{
	json__open_array(j, "ledger");
	for (int i = 0; i < MACHINE_LINES; i++) {
		const struct machine_line *line = &l->line[i];

		json__open_object(j, NULL);
		json__string(j, "line", line->key);
		json__int(j, "bytes", line->bytes);
		json__bool(j, "known", line->known);
		json__open_object(j, "parts");
		for (size_t k = 0; k < line->parts; k++)
			json__uint(j, line->part[k].key, line->part[k].bytes);
		json__close_object(j);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_free_blocks(struct json *j, const struct machine_ledger *l)
{
	if (!l->blocks_known) {
		json__null(j, "free_blocks");
		return;
	}
	json__open_object(j, "free_blocks");
	json__uint(j, "large", l->large);
	json__uint(j, "large_blocks", l->large_blocks);
	json__uint(j, "largest", l->largest);
	json__close_object(j);
}

static void put_swap(struct json *j, const struct machine_readings *r)
{
	json__open_object(j, "swap");
	put_figure(j, "total", r->swap_total);
	put_figure(j, "free", r->swap_free);
	put_figure(j, "zram_data", r->zram_data);
	put_figure(j, "zram_used", r->zram_used);
	json__close_object(j);
}

static void put_cuda(struct json *j, const struct gpus_cuda *c)
{
	char name[96];

	json__open_array(j, "unified");
	for (uint32_t i = 0; i < c->n; i++) {
		json__open_object(j, NULL);
		json__string(j, "name",
			     text__clean(name, sizeof(name), c->device[i].name,
					 strlen(c->device[i].name)));
		json__uint(j, "total", c->device[i].total);
		json__uint(j, "free", c->device[i].free);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_processes(struct json *j, const struct machine_processes *p)
{
	json__open_array(j, "processes");
	for (size_t i = 0; i < p->n; i++) {
		const struct machine_process *v = &p->v[i];

		json__open_object(j, NULL);
		json__int(j, "pid", v->pid);
		json__uint(j, "uid", v->uid);
		json__string(j, "user", v->user);
		json__string(j, "command", v->command);
		json__uint(j, "private", v->anon);
		json__uint(j, "files", v->file);
		json__uint(j, "shared", v->shmem);
		json__uint(j, "swapped", v->swap);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_files(struct json *j, const char *key, const struct machine_file *v, size_t n)
{
	json__open_array(j, key);
	for (size_t i = 0; i < n; i++) {
		json__open_object(j, NULL);
		json__string(j, "path", v[i].path);
		json__uint(j, "cached", v[i].cached);
		put_figure(j, "dirty", v[i].dirty);
		json__uint(j, "size", v[i].size);
		json__uint_or_null(j, "pid", v[i].pid, (uint64_t)v[i].pid);
		json__bool(j, "checkpoint", v[i].checkpoint);
		json__bool(j, "deleted", v[i].deleted);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_mounts(struct json *j, const struct machine_scan *s)
{
	json__open_array(j, "tmpfs");
	for (size_t i = 0; i < s->mounts; i++) {
		json__open_object(j, NULL);
		json__string(j, "path", s->mount[i].path);
		json__uint(j, "used", s->mount[i].used);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_groups(struct json *j, const struct machine_groups *g)
{
	json__open_array(j, "groups");
	for (size_t i = 0; i < g->n; i++) {
		const struct machine_group *v = &g->v[i];

		json__open_object(j, NULL);
		json__string(j, "path", v->path);
		put_figure(j, "used", v->used);
		put_figure(j, "limit", v->limit);
		put_figure(j, "private", v->anon);
		put_figure(j, "page_cache", v->cache);
		put_figure(j, "kernel", v->kernel);
		put_figure(j, "swapped", v->swap);
		json__close_object(j);
	}
	json__close_array(j);
}

static void put_missing(void *ctx, const char *text)
{
	json__string(ctx, NULL, text);
}

static int print_json(const struct look *l, bool pretty)
{
	struct json *j = json__new(stdout, pretty);
	char date[40];

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__string(j, "time", text__date(date, sizeof(date), clock__read(CLOCK_REALTIME)));
	json__uint(j, "total", l->readings.total);
	put_figure(j, "available", l->readings.available);
	put_figure(j, "mapped", l->readings.mapped);
	put_ledger(j, &l->ledger);
	put_free_blocks(j, &l->ledger);
	put_swap(j, &l->readings);
	put_cuda(j, &l->cuda);
	json__uint(j, "all_processes", l->processes.count);
	put_processes(j, &l->processes);
	json__uint(j, "files_cached", l->scan.cached);
	put_files(j, "files", l->scan.file, l->scan.files);
	json__uint(j, "shared_files_cached", l->scan.shared_cached);
	put_files(j, "shared_files", l->scan.shared, l->scan.shared_files);
	put_mounts(j, &l->scan);
	put_groups(j, &l->groups);
	json__open_array(j, "missing");
	each_missing(l, put_missing, j);
	json__close_array(j);
	json__close_object(j);
	json__free(j);
	return 0;
}

/* ---- */

static int print(const struct look *l, const struct ps_machine_args *args, uint64_t printed)
{
	int err;

	if (args->json) {
		err = print_json(l, !args->watch);
	} else {
		if (args->watch && isatty(STDOUT_FILENO))
			fputs("\033[H\033[J", stdout);
		else if (printed)
			putchar('\n');
		err = print_text(l);
	}
	return err ?: outfile__flush(stdout);
}

int ps_machine__run(const struct ps_machine_args *args)
{
	struct look *l = calloc(1, sizeof(*l));
	uint64_t printed = 0;
	int err = l ? 0 : -ENOMEM;

	gpus__open();
	if (l) {
		l->scan.paths = args->paths;
		l->scan.n_paths = args->n_paths;
	}
	while (!err) {
		err = take_look(l);
		err = err ?: print(l, args, printed++);
		if (err || !args->watch || printed == args->count)
			break;
		poll(NULL, 0, (int)(args->interval / 1000000));
	}
	gpus__close();
	free(l);
	if (!err)
		return EXIT_OK;
	log_err("%s", err == -ENODATA ? "/proc/meminfo has no figures here" : outfile__why(err));
	return EXIT_FAILED;
}
