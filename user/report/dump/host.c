/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map64.h"
#include "base/text.h"
#include "inspect/census.h"
#include "inspect/proc.h"
#include "inspect/python.h"
#include "model/words.h"
#include "record/stream.h"

#define LIMIT_NS 10000000000ull /* longest reading of tensors: 10 s */
#define MAX_CHILDREN 256
#define SAMPLED_STACKS 10 /* most stacks of malloc's sampler that have names */

/* Reads the CPU storages of the program's tensors. Returns 0 and *ret, for free(), with their
 * number in *n, which is 0 before; or -errno with the reason in *why. */
static int read_tensors(const struct python *py, struct host_storage **ret, size_t *n,
			const char **why)
{
	struct census_opts opts = { .limit_ns = LIMIT_NS };
	struct census_state state;
	struct census *census;
	int err;

	*why = "no Python";
	if (!py)
		return -ENOENT;
	census = census__open(py, /*need_torch=*/true, CENSUS_WITHIN_NS, why);
	if (!census)
		return -errno;
	err = census__read(census, &opts, &state, why);
	census__free(census);
	if (err)
		return err;
	*ret = calloc(state.ntensors + 1, sizeof(**ret));
	for (size_t i = 0; *ret && i < state.ntensors; i++)
		if (state.tensors[i].device_type == DEVICE_CPU)
			(*ret)[(*n)++] = (struct host_storage){ state.tensors[i].addr,
								state.tensors[i].size };
	census_state__free(&state);
	return *ret ? 0 : -ENOMEM;
}

/* True for a mapping of a file of shared memory; the ledger's shared memory has more than these. */
static bool is_shared_file(const struct map *m)
{
	return m->shared && m->inode &&
	       (text__starts(m->path, "/dev/shm/") || text__starts(m->path, "/memfd:") ||
		text__starts(m->path, "/SYSV") || !strcmp(m->path, "/dev/zero"));
}

/* Adds the shared files that a process maps, each once with the largest size that a process maps.
 * Returns 0 or -ENOMEM. */
static int add_shared_files(struct dump_shared *s, const struct maps *m)
{
	uint64_t key, bytes, old;
	bool had;

	if (!s->seen)
		s->seen = map64__new();
	for (size_t i = 0; s->seen && i < m->n; i++) {
		const struct map *map = &m->v[i];

		if (!is_shared_file(map))
			continue;
		key = map->inode ^
		      ((uint64_t)map->dev_major << 52 | (uint64_t)map->dev_minor << 32);
		bytes = map->end - map->start;
		if (map64__get(s->seen, key, &old) && old >= bytes)
			continue;
		if (map64__swap(s->seen, key, bytes, &had, &old))
			return -ENOMEM;
		s->files += !had;
		s->bytes += bytes - (had ? old : 0);
	}
	return s->seen ? 0 : -ENOMEM;
}

int dump_host__read(const struct proc *p, const struct python *py,
		    const struct dump_host_opts *opts, struct dump_host_process *ret)
{
	struct host_opts host_opts = { .proportional = opts->proportional, .brief = opts->brief };
	struct hostmem *hostmem = hostmem__new(p, py);
	struct host_storage *storages = NULL;
	const char *why = "";
	int err;

	memset(ret, 0, sizeof(*ret));
	ret->pid = proc__pid(p);
	snprintf(ret->comm, sizeof(ret->comm), "%s", proc__comm(p));
	if (!hostmem)
		return -ENOMEM;
	err = opts->no_tensors ? 0 : read_tensors(py, &storages, &host_opts.n, &why);
	/* After -ENOENT and -EAGAIN the storages are known, too: the process has no tensors. */
	host_opts.storages_known = !opts->no_tensors && (!err || err == -ENOENT || err == -EAGAIN);
	if (err && !host_opts.storages_known)
		snprintf(ret->why, sizeof(ret->why), "%s", why);
	host_opts.storages = storages;
	host_opts.samples = &ret->samples;
	for (size_t i = 0; i < host_opts.n; i++)
		ret->tensors += storages[i].size;
	if (err != -ENOMEM && err != -ESRCH)
		err = hostmem__read(hostmem, &host_opts, &ret->ledger);
	if (err)
		host_samples__free(&ret->samples);
	else
		ret->names = host_samples__name(&ret->samples, p, SAMPLED_STACKS);
	hostmem__free(hostmem);
	free(storages);
	return err;
}

/* Reads a descendant. Returns 0 or a negative errno. */
static int read_child(pid_t pid, struct dump_host_process *ret, struct dump_shared *shared)
{
	struct proc *proc = proc__open(pid);
	struct python *py = NULL;
	struct maps maps = { 0 };
	const char *why;
	int err;

	if (!proc)
		return -errno;
	err = proc__maps(proc, &maps);
	if (err)
		goto out;
	py = python__open(proc, &maps, &why);
	err = dump_host__read(proc, py, &(struct dump_host_opts){ .proportional = true }, ret);
	if (!err)
		err = add_shared_files(shared, &maps);
out:
	python__free(py);
	maps__free(&maps);
	proc__free(proc);
	return err;
}

int dump_host__read_all(const struct proc *p, const struct python *py, bool tree,
			struct dump_host *ret)
{
	pid_t pids[MAX_CHILDREN], parents[MAX_CHILDREN];
	size_t n = tree ? descendants__list(proc__pid(p), pids, parents, MAX_CHILDREN) : 0;
	struct dump_host dump = { .tree = tree };
	struct maps maps = { 0 };
	int err;

	dump.v = calloc(n + 1, sizeof(*dump.v));
	if (!dump.v)
		return -ENOMEM;
	dump.n = 1;
	err = dump_host__read(p, py, &(struct dump_host_opts){ .proportional = tree }, &dump.v[0]);
	if (!err && !proc__maps(p, &maps))
		err = add_shared_files(&dump.shared, &maps);
	maps__free(&maps);
	for (size_t i = 0; i < n && !err; i++) {
		int child_err = read_child(pids[i], &dump.v[dump.n], &dump.shared);

		if (child_err == -ENOMEM)
			err = child_err;
		else if (child_err)
			dump.skipped++;
		else
			dump.n++;
	}
	if (err) {
		dump_host__free(&dump);
		return err;
	}
	if (!tree)
		dump.sum = dump.v[0].ledger;
	for (size_t i = 0; i < dump.n && tree; i++)
		host_ledger__add(&dump.sum, &dump.v[i].ledger);
	*ret = dump;
	return 0;
}

void dump_host__free(struct dump_host *d)
{
	for (size_t i = 0; i < d->n; i++)
		host_samples__free(&d->v[i].samples);
	free(d->v);
	map64__free(d->shared.seen);
	*d = (struct dump_host){ 0 };
}

/* ---- printing ---- */

/* Prints the sums of glibc's malloc. */
static void print_malloc(FILE *out, const struct host_malloc *m, size_t columns)
{
	char arena[24], free_bytes[24], mapped[24], arenas[48], more[64] = "";

	if (!m->known)
		return;
	if (m->free_known)
		snprintf(more, sizeof(more), ", %s of it free",
			 text__bytes(free_bytes, sizeof(free_bytes), m->free));
	text__paragraph(out, columns, "", "  ",
			"malloc: %s with %s%s, and %s in chunks with their own mappings",
			text__counted(arenas, sizeof(arenas), m->arenas, "arena"),
			text__bytes(arena, sizeof(arena), m->arena), more,
			text__bytes(mapped, sizeof(mapped),
				    m->mapped_known ? m->mapped : m->mapped_found));
}

/* Returns the word for the pieces of an allocator that struct host_allocator counts as arenas. */
static const char *noun_of_arenas(const char *name)
{
	static const char *const nouns[][2] = {
		{ "mimalloc", "segment" },
		{ "musl", "group" },
		{ "tcmalloc", "thread cache" },
	};

	for (size_t i = 0; i < sizeof(nouns) / sizeof(*nouns); i++)
		if (!strcmp(nouns[i][0], name))
			return nouns[i][1];
	return "arena";
}

/* Prints an allocator other than glibc's malloc. */
static void print_allocator(FILE *out, const struct host_allocator *a, size_t columns)
{
	char name[64], live[24], blocks[24], pages[24], lazy[24] = "", bytes[24], arenas[48],
							more[64] = "";
	char file[128];

	text__clean(file, sizeof(file), a->file, strlen(a->file));
	if (!a->known) {
		text__paragraph(
			out, columns, "", "  ",
			"%s (%s) replaces malloc: memtrace-bpf could not read its tables, so "
			"its memory is unknown",
			a->name, file);
		return;
	}
	snprintf(name, sizeof(name), "%s%s%s", a->name, *a->version ? " " : "", a->version);
	text__counted(arenas, sizeof(arenas), a->arenas, noun_of_arenas(a->name));
	if (a->muzzy)
		snprintf(lazy, sizeof(lazy), ", %s muzzy",
			 text__bytes(bytes, sizeof(bytes), a->muzzy));
	if (a->retained)
		snprintf(more, sizeof(more), ", and %s of addresses without memory",
			 text__bytes(bytes, sizeof(bytes), a->retained));
	if (a->free_known)
		text__paragraph(out, columns, "", "  ",
				"%s (%s): %s live; free inside: %s in blocks, %s in whole pages, "
				"which a purge returns%s; %s%s",
				name, file, text__bytes(live, sizeof(live), a->live),
				text__bytes(blocks, sizeof(blocks), a->free_blocks),
				text__bytes(pages, sizeof(pages), a->purgeable), lazy, arenas,
				more);
	else
		text__paragraph(out, columns, "", "  ",
				"%s (%s): %s free in whole pages, which a purge returns%s; %s%s",
				name, file, text__bytes(pages, sizeof(pages), a->purgeable), lazy,
				arenas, more);
}

/* Prints the sums of Python's allocator of small objects. */
static void print_python(FILE *out, const struct host_python *p, size_t columns)
{
	char arena[24], used[24], n[2][48];

	if (!p->known || !p->used_known)
		return;
	text__paragraph(out, columns, "", "  ",
			"small Python objects: %s with %s in %s of %s in all",
			text__counted(n[0], sizeof(n[0]), p->blocks, "block"),
			text__bytes(used, sizeof(used), p->used),
			text__counted(n[1], sizeof(n[1]), p->arenas, "arena"),
			text__bytes(arena, sizeof(arena), p->arena));
}

static void print_processes(FILE *out, const struct dump_host *d, size_t columns)
{
	char bytes[24], comm[256], line[2048];

	fprintf(out, "\nProcesses, shared pages by share:\n");
	for (size_t i = 0; i < d->n; i++) {
		const struct dump_host_process *p = &d->v[i];

		text__clean(comm, sizeof(comm), p->comm, strlen(p->comm));
		fprintf(out, "%10s  PID %d  %s: %s\n",
			text__bytes(bytes, sizeof(bytes), p->ledger.sheet.part[HOST_TOTAL].bytes),
			p->pid, comm,
			host_words__line(line, sizeof(line), &p->ledger.sheet, sizeof(line)));
	}
	if (d->skipped)
		text__paragraph(out, columns, "", "  ",
				"%zu child process%s ended or could not be read", d->skipped,
				d->skipped == 1 ? "" : "es");
}

/* Writes a frame of a sampled stack, clean: "function (file:line)". Returns buf. */
static char *sampled_frame(char *buf, size_t size, const struct host_sample_frame *f)
{
	const char *file = map__base_name(*f->file ? f->file : f->module);
	char name[128], where[128], line[16] = "";

	text__clean(name, sizeof(name), f->function, strlen(f->function));
	text__clean(where, sizeof(where), file, strlen(file));
	if (*f->file && f->line)
		snprintf(line, sizeof(line), ":%u", f->line);
	if (*name)
		snprintf(buf, size, "%s (%s%s)", name, where, line);
	else
		snprintf(buf, size, "%s", *where ? where : "(no name)");
	return buf;
}

#define SAMPLED_CALLS 5 /* most functions that a row of the text has */

/* True if a row of the text has this function: not those of C++'s library and of the start. */
static bool is_own_function(const struct host_sample_frame *f)
{
	static const char *const others[] = { "std::",	"__gnu_cxx::",	"__libc_start",
					      "_start", "start_thread", "clone" };

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (!strncmp(f->function, others[i], strlen(others[i])))
			return false;
	return true;
}

/* Prints a stack: the function that allocated, then its callers. */
static void print_sample(FILE *out, const struct host_sample *sample, uint64_t sum, size_t columns)
{
	static const char *const before[] = { "", " from ", ", " };
	char calls[SAMPLED_CALLS * 320] = "", frame[312], bytes[24], percent[16], head[64];
	size_t len = 0, calls_shown = 0;

	for (size_t i = 0; i < sample->frames && calls_shown < SAMPLED_CALLS; i++) {
		if (!is_own_function(&sample->frame[i]))
			continue;
		sampled_frame(frame, sizeof(frame), &sample->frame[i]);
		len += (size_t)snprintf(calls + len, sizeof(calls) - len, "%s%s",
					before[calls_shown < 2 ? calls_shown : 2], frame);
		calls_shown++;
	}
	snprintf(head, sizeof(head), "%10s %4s %8" PRIu64 "  ",
		 text__bytes(bytes, sizeof(bytes), sample->bytes),
		 text__percent(percent, sample->bytes, sum), sample->samples);
	text__paragraph(out, columns, head, "                            ", "%s",
			calls_shown ? calls : "(no name)");
}

/* Prints the largest stacks of malloc's own sampler. */
static void print_samples(FILE *out, const struct dump_host_process *p, size_t columns)
{
	const struct host_samples *samples = &p->samples;
	char bytes[24], period[24], one_in[48] = "", blocks[48];

	if (!samples->sampler)
		return;
	if (samples->period)
		snprintf(one_in, sizeof(one_in), ", one in %s",
			 text__bytes(period, sizeof(period), samples->period));
	text__paragraph(out, columns, "\n", "",
			"Live memory of PID %d by %s's own sampler: about %s, from %s%s", p->pid,
			samples->sampler, text__bytes(bytes, sizeof(bytes), samples->bytes),
			text__counted(blocks, sizeof(blocks), samples->samples, "block"), one_in);
	if (p->names)
		text__paragraph(out, columns, "", "  ", "functions are not known: %s",
				strerror(-p->names));
	if (samples->n)
		fprintf(out, "      Size    %%  Samples  Location\n");
	for (size_t i = 0; i < samples->n && i < SAMPLED_STACKS; i++)
		print_sample(out, &samples->v[i], samples->bytes, columns);
}

#define UNTOUCHED (UINT64_C(1) << 20) /* least shared memory in no RSS that is printed, bytes */

/* Prints how much shared memory is mapped, if much of it is not resident. */
static void print_shared(FILE *out, const struct dump_host *d, size_t columns)
{
	const char *who = d->n > 1 ? "the processes map" : "the process maps";
	uint64_t resident = 0;
	char mapped[24], bytes[24], files[48];

	for (unsigned i = HOST_SHARED_LOADER; i <= HOST_SHARED; i++)
		resident += d->sum.sheet.part[i].bytes;
	if (d->shared.bytes < resident + UNTOUCHED)
		return;
	text__paragraph(out, columns, "", "  ",
			"shared memory: %s in %s that %s, %s of it resident there. "
			"Pages that a process maps and has not touched, such as tensors from "
			"another process, are in no RSS; the control group counts them.",
			text__bytes(mapped, sizeof(mapped), d->shared.bytes),
			text__counted(files, sizeof(files), d->shared.files, "file"), who,
			text__bytes(bytes, sizeof(bytes), resident));
}

int dump_host__text(FILE *out, const struct dump_host *d, const char *command)
{
	const struct host_ledger *ledger = &d->sum;
	size_t columns = text__columns(out);
	size_t prose = text__prose(columns);
	char took[24], more[64] = "";
	struct host_verdict verdict;
	int err;

	if (d->tree)
		snprintf(more, sizeof(more), "%s%zu process%s", text__dot(), d->n,
			 d->n == 1 ? "" : "es");
	host_verdict__judge(&ledger->sheet, NULL, &verdict);
	fprintf(out, "%s%sPID %d%s%sread in %s\n", command, text__dot(), d->v[0].pid, more,
		text__dot(), text__time(took, sizeof(took), ledger->end - ledger->begin));
	host_verdict__text(out, &verdict, prose);
	fprintf(out, "\nResident memory (%s):\n\n", d->tree ? "PSS: shared pages once" : "RSS");
	err = host_words__table(out, &ledger->sheet, columns);
	if (err)
		return err;
	print_shared(out, d, prose);
	if (d->tree) {
		print_processes(out, d, prose);
	} else {
		print_malloc(out, &ledger->malloc, prose);
		print_python(out, &ledger->python, prose);
	}
	for (size_t i = 0; i < ledger->allocators; i++)
		print_allocator(out, &ledger->allocator[i], prose);
	for (size_t i = 0; i < d->n; i++)
		print_samples(out, &d->v[i], columns);
	if (!d->tree && *d->v[0].why)
		text__paragraph(out, prose, "", "  ", "CPU tensors were not read: %s", d->v[0].why);
	return 0;
}

/* ---- JSON ---- */

/* Writes a figure of a control group; null if it is not known. */
static void put_known(struct json *j, const char *key, uint64_t v)
{
	json__uint_or_null(j, key, v != MEMCG_NONE, v);
}

static void put_group(struct json *j, const struct host_group *g)
{
	const struct memcg_figures *figures = &g->figures;

	if (!g->version) {
		json__null(j, "cgroup");
		return;
	}
	json__open_object(j, "cgroup");
	json__string(j, "path", g->path);
	json__uint(j, "version", g->version);
	put_known(j, "current", figures->usage);
	put_known(j, "limit", figures->limit);
	put_known(j, "anon", figures->anon);
	put_known(j, "file", figures->file);
	put_known(j, "swap", figures->swap);
	put_known(j, "kernel", g->kernel);
	put_known(j, "kernel_stack", figures->kernel_stack);
	put_known(j, "slab", figures->slab);
	put_known(j, "sock", figures->sock);
	put_known(j, "page_tables", figures->page_tables);
	put_known(j, "oom_kills", figures->oom_kills);
	json__close_object(j);
}

static void put_allocator(struct json *j, const struct host_allocator *a)
{
	json__open_object(j, NULL);
	json__string(j, "name", a->name);
	json__string(j, "file", a->file);
	json__string(j, "version", *a->version ? a->version : NULL);
	json__uint_or_null(j, "arenas", a->known, a->arenas);
	json__uint_or_null(j, "live", a->free_known, a->live);
	json__uint_or_null(j, "free_blocks", a->free_known, a->free_blocks);
	json__uint_or_null(j, "purgeable", a->known, a->purgeable);
	json__uint_or_null(j, "muzzy", a->known, a->muzzy);
	json__uint_or_null(j, "retained", a->known, a->retained);
	json__uint_or_null(j, "tables", a->known, a->tables);
	json__close_object(j);
}

/* Writes glibc's malloc, other allocators, and Python's allocator of small objects. */
static void put_allocators(struct json *j, const struct host_ledger *l)
{
	const struct host_malloc *glibc = &l->malloc;
	const struct host_python *python = &l->python;

	json__open_object(j, "malloc");
	json__uint_or_null(j, "arenas", glibc->known, glibc->arenas);
	json__uint_or_null(j, "arena_bytes", glibc->known, glibc->arena);
	json__uint_or_null(j, "free", glibc->free_known, glibc->free);
	json__uint_or_null(j, "top", glibc->free_known, glibc->top);
	json__uint_or_null(j, "mapped", glibc->mapped_known, glibc->mapped);
	json__uint_or_null(j, "mapped_found", glibc->known, glibc->mapped_found);
	json__string(j, "replaced_by", l->allocators ? l->allocator[0].file : NULL);
	json__close_object(j);
	json__open_array(j, "allocators");
	for (size_t i = 0; i < l->allocators; i++)
		put_allocator(j, &l->allocator[i]);
	json__close_array(j);
	json__open_object(j, "python");
	json__uint_or_null(j, "arenas", python->known, python->arenas);
	json__uint_or_null(j, "arena_bytes", python->known, python->arena);
	json__uint_or_null(j, "blocks", python->used_known, python->blocks);
	json__uint_or_null(j, "used", python->used_known, python->used);
	json__close_object(j);
}

static void put_sample(struct json *j, const struct host_sample *sample)
{
	json__open_object(j, NULL);
	json__uint(j, "bytes", sample->bytes);
	json__uint(j, "samples", sample->samples);
	json__open_array(j, "frames");
	for (size_t i = 0; i < sample->frames; i++) {
		const struct host_sample_frame *frame = &sample->frame[i];

		json__open_object(j, NULL);
		json__string(j, "function", *frame->function ? frame->function : NULL);
		json__string(j, "file", *frame->file ? frame->file : NULL);
		json__uint_or_null(j, "line", frame->line, frame->line);
		json__string(j, "module", *frame->module ? frame->module : NULL);
		json__close_object(j);
	}
	json__close_array(j);
	json__close_object(j);
}

static void put_samples(struct json *j, const struct host_samples *s)
{
	if (!s->sampler) {
		json__null(j, "samples");
		return;
	}
	json__open_object(j, "samples");
	json__string(j, "sampler", s->sampler);
	json__uint_or_null(j, "period", s->period, s->period);
	json__uint(j, "samples", s->samples);
	json__uint(j, "bytes", s->bytes);
	json__open_array(j, "stacks");
	for (size_t i = 0; i < s->n && i < SAMPLED_STACKS; i++)
		put_sample(j, &s->v[i]);
	json__close_array(j);
	json__close_object(j);
}

static void put_process(struct json *j, const struct dump_host_process *p)
{
	json__open_object(j, NULL);
	json__int(j, "pid", p->pid);
	json__string(j, "comm", p->comm);
	json__uint(j, "rss", p->ledger.sheet.part[HOST_TOTAL].bytes);
	json__uint(j, "status_rss", p->ledger.status_rss);
	json__uint(j, "mappings", p->ledger.mappings);
	json__uint(j, "adjusted", p->ledger.adjusted);
	json__uint(j, "storages", p->tensors);
	json__string(j, "tensors_unknown", *p->why ? p->why : NULL);
	host_words__json(j, &p->ledger.sheet);
	put_allocators(j, &p->ledger);
	put_samples(j, &p->samples);
	json__close_object(j);
}

int dump_host__json(FILE *out, const struct dump_host *d)
{
	struct json *j = json__new(out, true);
	struct host_verdict verdict;

	if (!j)
		return -ENOMEM;
	json__open_object(j, NULL);
	json__open_object(j, "memtrace");
	json__string(j, "version", MEMTRACE_VERSION);
	json__close_object(j);
	json__open_object(j, "host");
	json__seconds(j, "seconds", d->sum.end - d->sum.begin, /*decimals=*/6);
	json__string(j, "total", d->tree ? "pss" : "rss");
	json__uint(j, "bytes", d->sum.sheet.part[HOST_TOTAL].bytes);
	host_verdict__judge(&d->sum.sheet, NULL, &verdict);
	host_verdict__json(j, &verdict);
	host_words__json(j, &d->sum.sheet);
	put_group(j, &d->sum.group);
	json__open_object(j, "shared_mapped");
	json__uint(j, "files", d->shared.files);
	json__uint(j, "bytes", d->shared.bytes);
	json__close_object(j);
	json__close_object(j);
	json__open_array(j, "processes");
	for (size_t i = 0; i < d->n; i++)
		put_process(j, &d->v[i]);
	json__close_array(j);
	json__uint(j, "skipped", d->skipped);
	json__close_object(j);
	json__free(j);
	return 0;
}
