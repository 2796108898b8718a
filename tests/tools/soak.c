/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Feeds generated kernel-side records through a capture's user space: the session's queue, rounds
 * and decoding, its dict; then the rolling recorder, the model and a flight recorder. Generated are
 * the records, their clock and the contents of code objects; everything else is the program's code.
 *
 *   soak [-n EVENTS] [-s FOLDER-SIZE] [-t NS-PER-EVENT] [-c EVENTS-PER-NEW-LINE] [-F] [-w] FOLDER
 *
 * Prints memory and disk use during the run and compares all totals at the end. -F: with the flight
 * recorder. Exits with 1 if a total differs, or if memory grows after the first tenth of the run;
 * -w: ignore memory growth. SIGTERM ends the run early.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "capture/session/session_internal.h"

#include "base/exit.h"
#include "base/text.h"
#include "capture/decode/code_cache.h"
#include "capture/decode/decoder.h"
#include "capture/save/output_rolling.h"
#include "capture/session/stages.h"
#include "model/model.h"
#include "record/dict.h"
#include "record/flight.h"
#include "record/folder.h"
#include "record/mtr.h"
#include "record/mtr_rolling.h"

#define BATCH 4096 /* records per round */
#define GPUS 2
#define DEVICES (GPUS + 1)    /* the CPU is last and has no totals */
#define SLOTS 4000	      /* live blocks per device */
#define LINES 1000	      /* lines that allocate repeatedly */
#define DEPTH 8		      /* frames */
#define STEP_LINE (LINES - 1) /* the line where an optimizer's step ends */
#define STEP_EVENTS 5000
#define CODE UINT64_C(0x7f0000000000)
#define GROWTH 1.10 /* largest factor between memory at a tenth of the run and at the end */

struct slot {
	uint64_t size; /* 0: free */
};

struct device_state {
	struct slot slots[SLOTS];
	uint32_t order[SLOTS]; /* live blocks first */
	uint32_t live;
	uint64_t allocated, reserved, peak, peak_reserved, allocs, frees, total;
};

static struct {
	uint64_t events_max, ns, new_line_every;
	uint64_t rng, time, events, steps, sizes, next_line;
	uint32_t tid, next_tid;
	uint64_t epoch, ends, bumps; /* the kernel side's counters */
	uint64_t sent[LINES];	     /* 1 + epoch of the last time the stack was sent */
	struct device_state d[DEVICES];
	struct code code; /* result of the last lookup */
	struct dict *dict;
	int (*fn)(void *ctx, const void *rec, size_t len);
	void *ctx;
} g;

/* ---- stand-ins for the kernel side and the target's memory ---- */

int __wrap_probes__consume(struct probes *p, int (*fn)(void *ctx, const void *rec, size_t len),
			   void *ctx);
int __wrap_probes__counters(struct probes *p, uint32_t number, uint64_t ret[MT_CNT_NR]);
int __wrap_probes__lost_ends(struct probes *p, uint64_t *ret);
uint64_t __wrap_probes__epoch(struct probes *p);
uint64_t __wrap_probes__bumps(struct probes *p);
uint64_t __wrap_probes__ends(struct probes *p);
void __wrap_probes__bump_epoch(struct probes *p);
uint64_t __wrap_probes__both_until(const struct probes *p);
uint64_t __wrap_probes__taken(const struct probes *p);
uint64_t __wrap_probes__times_forgotten(const struct probes *p);
bool __wrap_code_cache__known(const struct code_cache *c, uint64_t addr);
int __wrap_code_cache__need(struct code_cache *c, uint64_t addr, uint64_t epoch);
const struct code *__wrap_code_cache__find(const struct code_cache *c, uint64_t addr,
					   uint64_t epoch);
int __wrap_proc__open_memory(const struct proc *p, int number);
int __wrap_proc__thread_comm(const struct proc *p, pid_t tid, char *buf, size_t size);
int __wrap_proc__thread_started(const struct proc *p, pid_t tid, uint64_t *ret);
void __wrap_cuda_calls__after_drain(struct decoder *d, bool all);
int __wrap_cuda_calls__used(struct decoder *d, bool last);

int __wrap_probes__counters(struct probes *p, uint32_t number, uint64_t ret[MT_CNT_NR])
{
	memset(ret, 0, MT_CNT_NR * sizeof(*ret));
	return 0;
}

int __wrap_probes__lost_ends(struct probes *p, uint64_t *ret)
{
	*ret = 0;
	return 0;
}

uint64_t __wrap_probes__epoch(struct probes *p)
{
	return g.epoch;
}

uint64_t __wrap_probes__bumps(struct probes *p)
{
	return g.bumps;
}

uint64_t __wrap_probes__ends(struct probes *p)
{
	return g.ends;
}

void __wrap_probes__bump_epoch(struct probes *p)
{
	g.bumps++;
	g.epoch++;
}

uint64_t __wrap_probes__times_forgotten(const struct probes *p)
{
	return 0;
}

bool __wrap_code_cache__known(const struct code_cache *c, uint64_t addr)
{
	return true;
}

uint64_t __wrap_probes__both_until(const struct probes *p)
{
	return 0;
}

uint64_t __wrap_probes__taken(const struct probes *p)
{
	return g.events;
}

int __wrap_code_cache__need(struct code_cache *c, uint64_t addr, uint64_t epoch)
{
	return 0;
}

/* One code object per line. From LINES on: generated source that ran once. */
const struct code *__wrap_code_cache__find(const struct code_cache *c, uint64_t addr,
					   uint64_t epoch)
{
	uint64_t line = (addr - CODE) / 64;
	char name[64];
	int n;

	if (line == STEP_LINE || line == STEP_LINE - 1)
		n = snprintf(name, sizeof(name), "/torch/%s.py",
			     line == STEP_LINE ? "autograd/profiler" : "optim/optimizer");
	else if (line < LINES)
		n = snprintf(name, sizeof(name), "/job/part%02" PRIu64 ".py", line % 40);
	else
		n = snprintf(name, sizeof(name), "<made %" PRIu64 ">", line);
	g.code = (struct code){ .file = dict__string(g.dict, name, (size_t)n),
				.firstlineno = 1 + line % 1000 };
	if (line == STEP_LINE || line == STEP_LINE - 1)
		n = snprintf(name, sizeof(name),
			     line == STEP_LINE ? "record_function.__exit__" : "wrapper");
	else
		n = snprintf(name, sizeof(name), "step%" PRIu64, line < LINES ? line : 0);
	g.code.func = dict__string(g.dict, name, (size_t)n);
	if (g.code.file == UINT32_MAX || g.code.func == UINT32_MAX)
		return NULL; /* the dict is full: the frame has no name */
	return &g.code;
}

int __wrap_proc__open_memory(const struct proc *p, int number)
{
	return -ENOENT;
}

int __wrap_proc__thread_comm(const struct proc *p, pid_t tid, char *buf, size_t size)
{
	snprintf(buf, size, tid == 100 ? "python" : tid == 101 ? "pt_autograd_0" : "worker");
	return 0;
}

int __wrap_proc__thread_started(const struct proc *p, pid_t tid, uint64_t *ret)
{
	*ret = (uint64_t)tid;
	return 0;
}

void __wrap_cuda_calls__after_drain(struct decoder *d, bool all)
{
}

int __wrap_cuda_calls__used(struct decoder *d, bool last)
{
	return 0;
}

/* ---- the records ---- */

static uint64_t draw(void)
{
	g.rng ^= g.rng << 13;
	g.rng ^= g.rng >> 7;
	g.rng ^= g.rng << 17;
	return g.rng;
}

static int emit(const void *rec, size_t len)
{
	return g.fn(g.ctx, rec, len);
}

static struct mt_hdr header(uint8_t type)
{
	g.time += g.ns;
	return (struct mt_hdr){ .type = type, .walk = MT_WALK_OK, .tid = g.tid, .time = g.time };
}

static uint64_t stack_id(uint64_t line, uint64_t epoch)
{
	return ((line + 1) * UINT64_C(0x9e3779b97f4a7c15) ^
		(epoch + 1) * UINT64_C(0xc2b2ae3d27d4eb4f)) |
	       1;
}

/* Sends a stack before its first event in an epoch. */
static int send_stack(uint64_t line, uint64_t *ret)
{
	struct {
		struct mt_rec_stack s;
		struct mt_frame f[DEPTH];
	} rec = { .s = { .h = { .type = MT_REC_STACK,
				.walk = MT_WALK_OK,
				.tid = g.tid,
				.time = g.time },
			 .epoch = g.epoch,
			 .n = DEPTH } };

	*ret = rec.s.stack = stack_id(line, g.epoch);
	if (line < LINES && g.sent[line] == g.epoch + 1)
		return 0;
	if (line < LINES)
		g.sent[line] = g.epoch + 1;
	for (uint32_t i = 0; i < DEPTH; i++)
		rec.f[i] = i == 1 && line == STEP_LINE
				   ? (struct mt_frame){ .addr = CODE + 64 * (line - 1),
							.kind = MT_FRAME_CODE }
				   : (struct mt_frame){ .addr = CODE +
								64 * (i ? (line * 7 + i * 31) %
										      (LINES - 2)
									: line),
							.kind = MT_FRAME_CODE };
	return emit(&rec, sizeof(rec));
}

/* Frees the code object of a line that ran once: all stack ids change. */
static int end_line(uint64_t line)
{
	struct mt_rec_gone rec = { .h = header(MT_REC_CODE_GONE), .code = CODE + 64 * line };

	g.ends++;
	rec.epoch = ++g.epoch;
	return emit(&rec, sizeof(rec));
}

static uint64_t pick_size(uint64_t line)
{
	uint64_t r = draw();

	/* A line allocates a few sizes; one allocation in 50 has a new size. */
	if (r % 50)
		return 512 * (1 + (line * 13 + (r >> 32) % 3) % 64);
	return 512 * (65 + g.sizes++ % (UINT64_C(1) << 24));
}

static int put_mem(unsigned int device, uint64_t addr, int64_t size, uint64_t stack)
{
	struct device_state *d = &g.d[device];
	struct mt_rec_mem rec = { .h = header(device == GPUS ? MT_REC_CPU_NEW : MT_REC_REPORT),
				  .addr = addr,
				  .size = size,
				  .stack = stack };

	if (device < GPUS) {
		rec.allocated = d->allocated;
		rec.reserved = d->reserved;
		rec.device = DEVICE_CUDA | device << 8;
	}
	g.events++;
	return emit(&rec, sizeof(rec));
}

static int take(unsigned int device, uint64_t line)
{
	struct device_state *d = &g.d[device];
	uint32_t slot = d->order[d->live];
	uint64_t size = pick_size(line), stack;
	int err = send_stack(line, &stack);

	d->slots[slot].size = size;
	d->live++;
	d->allocated += size;
	d->total += size;
	d->allocs++;
	if (d->allocated > d->peak)
		d->peak = d->allocated;
	if (device < GPUS && d->allocated > d->reserved)
		d->reserved = (d->allocated + (2 << 20)) & ~((UINT64_C(2) << 20) - 1);
	if (d->reserved > d->peak_reserved)
		d->peak_reserved = d->reserved;
	return err
		       ?: put_mem(device,
				  (UINT64_C(1) << 40) * (device + 1) +
					  UINT64_C(1) * slot * (UINT64_C(1) << 34),
				  (int64_t)size, stack);
}

static int give(unsigned int device)
{
	struct device_state *d = &g.d[device];
	uint32_t k = (uint32_t)(draw() % d->live), slot = d->order[k];
	uint64_t size = d->slots[slot].size, addr = (UINT64_C(1) << 40) * (device + 1) +
						    UINT64_C(1) * slot * (UINT64_C(1) << 34);
	struct mt_rec_free rec;

	d->order[k] = d->order[--d->live];
	d->order[d->live] = slot;
	d->allocated -= size;
	d->frees++;
	if (device < GPUS)
		return put_mem(device, addr, -(int64_t)size, 0);
	rec = (struct mt_rec_free){ .h = header(MT_REC_CPU_DELETE), .addr = addr };
	g.events++;
	return emit(&rec, sizeof(rec));
}

static int step(void)
{
	struct mt_rec_mark rec;
	uint64_t stack;
	int err;

	g.tid = 100;
	err = send_stack(STEP_LINE, &stack);
	rec = (struct mt_rec_mark){ .h = header(MT_REC_SCOPE_END), .stack = stack };
	g.steps++;
	g.events++;
	return err ?: emit(&rec, sizeof(rec));
}

/* The amount of live memory rises and falls slowly, so new peaks occur. */
static int one(void)
{
	unsigned int device = (unsigned int)(draw() % 8);
	struct device_state *d;
	uint32_t want;

	if (g.events % STEP_EVENTS == STEP_EVENTS - 1)
		return step();
	device = device < 5 ? 0 : device < 7 ? 1 : GPUS;
	d = &g.d[device];
	want = 800 + (uint32_t)(g.events / 1000 % 800) + (uint32_t)(draw() % 400);
	if (g.events % 50 == 49) /* every 50th event has a new thread */
		g.tid = 1000 + g.next_tid++ % 4000000;
	else if (g.events % 50 == 5)
		g.tid = 100 + (g.events / 50 & 1);
	if (g.new_line_every && g.events / g.new_line_every >= g.next_line) {
		uint64_t line = LINES + g.next_line++;
		int err = take(device, line);

		return err ?: end_line(line);
	}
	return d->live < want && d->live < SLOTS ? take(device, draw() % (LINES - 2))
						 : give(device);
}

int __wrap_probes__consume(struct probes *p, int (*fn)(void *ctx, const void *rec, size_t len),
			   void *ctx)
{
	int err = 0;

	g.fn = fn;
	g.ctx = ctx;
	/* A round drains twice: records that arrive meanwhile belong to the next round. */
	if (((struct session *)ctx)->queue.len)
		return 0;
	for (int i = 0; i < BATCH && !err && g.events < g.events_max; i++)
		err = one();
	return err < 0 ? err : BATCH;
}

/* ---- the sinks ---- */

struct soak {
	struct sink sink; /* must be the first member */
	struct session *s;
	struct rolling_store *store;
	struct model *m;
	struct flight *flight;
	uint64_t flights;
};

static int on_event(struct sink *sink, const struct event *e)
{
	struct soak *k = (struct soak *)sink;
	int err = rolling_store__event(k->store, e);

	err = err ?: model__event(k->m, e);
	return err ?: k->flight ? flight__event(k->flight, e) : 0;
}

static int no_file(void *ctx, unsigned int number)
{
	return memfd_create("flight", MFD_CLOEXEC);
}

static int flight_done(void *ctx, const struct flight_report *r, int err)
{
	((struct soak *)ctx)->flights++;
	return err;
}

static uint64_t rss(void)
{
	uint64_t all, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f) {
		if (fscanf(f, "%" SCNu64 " %" SCNu64, &all, &resident) != 2)
			resident = 0;
		fclose(f);
	}
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double clock_of(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static int die(const char *what, int err)
{
	fprintf(stderr, "soak: %s: %s\n", what, strerror(err < 0 ? -err : err));
	return 1;
}

/* ---- the checks ---- */

static bool differs, grew, short_run;

static void expect(const char *of, const char *what, uint64_t is, uint64_t want)
{
	if (is == want)
		return;
	printf("DIFFERS: %s: %s is %" PRIu64 ", not %" PRIu64 "\n", of, what, is, want);
	differs = true;
}

static struct device device_of(unsigned int i)
{
	return i < GPUS ? (struct device){ DEVICE_CUDA, (uint8_t)i }
			: (struct device){ DEVICE_CPU, 0 };
}

static uint64_t sum_rows(const struct model *m, size_t i, enum row_when when)
{
	const struct row_opts opts = { .by = BY_LINE, .when = when };
	struct row *rows;
	uint64_t sum = 0;
	size_t n;

	if (model__rows(m, i, &opts, &rows, &n))
		return 0;
	for (size_t k = 0; k < n; k++)
		sum += rows[k].bytes;
	free(rows);
	return sum;
}

static void check_model(const struct model *m, const char *of, bool whole)
{
	for (unsigned int i = 0; i < DEVICES; i++) {
		const struct device_state *want = &g.d[i];
		struct model_device d;
		char name[DEVICE_NAME];
		int at = model__find_device(m, device__name(device_of(i), name, sizeof(name)));

		if (at < 0) {
			expect(of, name, 0, 1);
			continue;
		}
		model__device(m, (size_t)at, &d);
		expect(of, "allocated", d.allocated, want->allocated);
		expect(of, "live bytes", d.live, want->allocated);
		expect(of, "live blocks", d.live_blocks, want->live);
		expect(of, "drift", d.drift, 0);
		expect(of, "rows now", sum_rows(m, (size_t)at, ROWS_NOW), want->allocated);
		if (!whole)
			continue;
		expect(of, "peak", d.peak_allocated, want->peak);
		expect(of, "peak reserved", d.peak_reserved, want->peak_reserved);
		expect(of, "allocations", d.allocs, want->allocs);
		expect(of, "frees", d.frees, want->frees);
		expect(of, "bytes in all", d.total_allocated, want->total);
		expect(of, "rows at the peak", sum_rows(m, (size_t)at, ROWS_AT_MARK), want->peak);
		expect(of, "rows of all", sum_rows(m, (size_t)at, ROWS_TOTAL), want->total);
	}
}

static void check_totals(const struct totals *t)
{
	struct totals_whole whole;
	struct totals_device d;

	totals__whole(t, &whole);
	expect("totals", "events", whole.events, g.events);
	expect("totals", "steps", whole.steps, g.steps);
	expect("totals", "devices", whole.devices, DEVICES);
	for (uint32_t i = 0; totals__device(t, i, &d); i++) {
		const struct device_state
			*want = &g.d[d.device.type == DEVICE_CPU ? GPUS : d.device.index];

		expect("totals", "allocated", d.allocated, want->allocated);
		expect("totals", "peak", d.peak_allocated, want->peak);
		expect("totals", "peak reserved", d.peak_reserved, want->peak_reserved);
		expect("totals", "allocations", d.allocs, want->allocs);
		expect("totals", "frees", d.frees, want->frees);
		expect("totals", "bytes in all", d.total_allocated, want->total);
	}
}

/* The last part alone has the state at the end. All parts together, and the gap, have all
 * events. */
static void check_folder(const char *path)
{
	struct folder *f;
	const struct folder_entry *e;
	const struct folder_gap *gap;
	struct mtr_reader *r;
	struct model *m;
	struct event ev;
	uint64_t events = 0;
	size_t n, n_gaps;
	char *file;

	if (folder__read(path, &f, NULL)) {
		expect(path, "an index", 0, 1);
		return;
	}
	e = folder__entries(f, &n);
	gap = folder__gaps(f, &n_gaps);
	for (size_t i = 0; i < n; i++)
		events += e[i].events;
	for (size_t i = 0; i < n_gaps; i++)
		events += gap[i].events;
	expect("index", "events", events, g.events);
	expect("index", "gaps of more than one piece", n_gaps > 1, 0);
	if (n && asprintf(&file, "%s/%s", path, e[n - 1].file) >= 0) {
		r = mtr_reader__open(file, NULL);
		m = r ? model__new(mtr_reader__dict(r), mtr_reader__facts(r), NULL) : NULL;
		while (m && mtr_reader__next(r, &ev) > 0)
			model__event(m, &ev);
		if (m) {
			expect("last segment", "whole", mtr_reader__end(r, NULL, NULL),
			       MTR_COMPLETE);
			model__finish(m, e[n - 1].to);
			check_model(m, "last segment", false);
		} else {
			expect("last segment", "readable", 0, 1);
		}
		model__free(m);
		mtr_reader__free(r);
		free(file);
	}
	folder__free(f);
}

static void progress(const struct soak *k, double begun)
{
	struct ring_store_sum sum = rolling_store__sum(k->store);
	char n[32], mem[24], disk[24], most[24], when[24];

	printf("%15s events  %8s of the job's time  %7.1f s  memory %s  disk %s (at most %s)  "
	       "%" PRIu64 " segments, %" PRIu64 " gone\n",
	       text__count(n, sizeof(n), g.events), text__time(when, sizeof(when), g.time),
	       clock_of(CLOCK_PROCESS_CPUTIME_ID) - begun, text__bytes(mem, sizeof(mem), rss()),
	       text__bytes(disk, sizeof(disk), sum.bytes),
	       text__bytes(most, sizeof(most), sum.most_bytes), sum.parts, sum.dropped);
	fflush(stdout);
}

static volatile sig_atomic_t told_to_end;

/* Ends the run early; totals are compared all the same. */
static void on_signal(int sig)
{
	told_to_end = 1;
}

static int feed(struct soak *k)
{
	uint64_t next_tick = 0, shown = 0, warm = 0, last = 0, most = 0;
	double begun = clock_of(CLOCK_PROCESS_CPUTIME_ID);
	int err = 0;

	while (!err && (g.events < g.events_max || k->s->queue.len)) {
		if (told_to_end)
			g.events_max = g.events;
		err = session__drain_new(k->s, &k->sink);
		if (!err && g.time >= next_tick) {
			err = rolling_store__tick(k->store, g.time)
				      ?: k->flight ? flight__tick(k->flight, g.time)
						   : 0;
			next_tick = g.time + 1000000000;
		}
		if (!told_to_end && g.events / (g.events_max / 20 + 1) != shown) {
			shown = g.events / (g.events_max / 20 + 1);
			last = rss();
			most = last > most ? last : most;
			if (shown == 2)
				warm = last;
			progress(k, begun);
		}
	}
	if (err)
		return err;
	err = rolling_store__finish(k->store) ?: k->flight ? flight__finish(k->flight) : 0;
	progress(k, begun);
	last = rss();
	if (warm && !short_run && (double)last > (double)warm * GROWTH) {
		printf("GREW: memory, from %" PRIu64 " to %" PRIu64
		       " bytes after a tenth of the way\n",
		       warm, last);
		grew = true;
	}
	printf("%.0f ns an event\n",
	       (clock_of(CLOCK_PROCESS_CPUTIME_ID) - begun) * 1e9 / (double)g.events);
	return err;
}

static struct session *make_session(void)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->opts.no_census = true;
	s->image = -1;
	/* opaque: the wrapped functions above never use it */
	s->probes = (struct probes *)s;
	s->dict = dict__new();
	s->facts = facts__new();
	if (!s->dict || !s->facts)
		return NULL;
	s->decoder = decoder__new(&s->opts, &s->target, s->probes, s->dict, s->facts);
	s->attach = attach_stage__new(&s->target, s->facts, true);
	if (!s->decoder || !s->attach)
		return NULL;
	s->sleep = sleep_stage__new(s->decoder);
	if (!s->sleep)
		return NULL;
	attach_stage__send_to(s->attach, sleep_stage__sink(s->sleep));
	s->decoder->next = attach_stage__sink(s->attach);
	s->decoder->start = 1;
	if (facts__set(s->facts, "pid", "1") || facts__set(s->facts, "comm", "soak") ||
	    facts__set(s->facts, "start", "2026-01-01T00:00:00.000Z"))
		return NULL;
	g.dict = s->dict;
	return s;
}

int main(int argc, char **argv)
{
	struct ring_store_opts ro = { .size = UINT64_C(256) << 20 };
	struct soak k = { .sink = { .event = on_event } };
	struct flight_opts fo = { .window = 10 * UINT64_C(1000000000),
				  .max_bytes = 16 << 20,
				  .open = no_file,
				  .done = flight_done,
				  .ctx = &k };
	bool flight = false;
	int c, err;

	g.events_max = 10000000;
	g.ns = 250000;
	g.new_line_every = 100000;
	while ((c = getopt(argc, argv, "n:s:t:c:Fw")) != -1) {
		if (c == 'n')
			g.events_max = strtoull(optarg, NULL, 0);
		else if (c == 's' && text__parse_size(optarg, &ro.size))
			return die(optarg, EINVAL);
		else if (c == 't')
			g.ns = strtoull(optarg, NULL, 0);
		else if (c == 'c')
			g.new_line_every = strtoull(optarg, NULL, 0);
		else if (c == 'F')
			flight = true;
		else if (c == 'w')
			short_run = true;
		else if (c == '?')
			return 64;
	}
	if (optind + 1 != argc)
		return die("which folder?", EINVAL);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	g.rng = UINT64_C(0x9e3779b97f4a7c15);
	g.time = 1;
	g.tid = 100;
	for (int d = 0; d < DEVICES; d++)
		for (uint32_t i = 0; i < SLOTS; i++)
			g.d[d].order[i] = i;
	k.s = make_session();
	k.m = k.s ? model__new(k.s->dict, k.s->facts, NULL) : NULL;
	k.flight = k.m && flight ? flight__new(k.s->dict, k.s->facts, &fo) : NULL;
	if (!k.m || (flight && !k.flight))
		return die("session", ENOMEM);
	err = rolling_store__open(argv[optind], k.s->dict, k.s->facts, &ro, &k.store);
	if (err) {
		fprintf(stderr, "soak: %s: %s\n", argv[optind], rolling_store__why(NULL, err));
		return 1;
	}
	err = feed(&k);
	if (err) {
		fprintf(stderr, "soak: %s\n", rolling_store__why(k.store, err));
		return 1;
	}
	model__finish(k.m, g.time);
	expect("session", "events whose stack was not known", k.s->decoder->unknown_stacks, 0);
	expect("model", "events", model__events(k.m), g.events);
	expect("model", "steps", model__steps(k.m), g.steps);
	check_model(k.m, "model", true);
	check_totals(rolling_store__totals(k.store));
	check_folder(argv[optind]);
	expect("disk", "within the size", rolling_store__sum(k.store).most_bytes <= ro.size, 1);
	printf("%s: %" PRIu64 " events\n", differs ? "NOT EXACT" : "exact", g.events);
	flight__free(k.flight);
	rolling_store__free(k.store, false);
	model__free(k.m);
	k.s->probes = NULL;
	session__free(k.s);
	return differs || grew;
}
