/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "live/rows/proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "live/rows/graph.h"
#include "live/rows/words.h"
#include "model/holders.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/dict.h"
#include "report/advice.h"
#include "report/filter.h"

#define JUDGE_EVERY UINT64_C(2000000000) /* ns */
#define JUDGE_PART 400			 /* judging takes at most 1/400 of the time */
#define STEP_MOVES (UINT32_C(1) << 18)	 /* longest step that findings analyse */
#define FIRST_WHOLE_STEP 2		 /* the first step that ends may have begun before attach */
#define RSS_LEAST (UINT64_C(32) << 20)	 /* growth of RSS worth a mention, bytes */
#define HOLDERS_NAMED 2			 /* holders that the row "before attach" names */
#define HOLDER_COLUMNS 48		 /* maximum width of a holder's name */
#define MORE_HOLDERS 40			 /* bytes kept free for ", + N more" */
/* A step is recent until STALE ns and STALE_STEPS times the duration of a step have passed. */
#define STALE UINT64_C(3000000000)
#define STALE_STEPS 3

/* Finds or adds the graph of a device. NULL: no room or no memory. */
static struct live_graph *find_graph(struct live_proc *p, struct device d)
{
	if (p->last_graph < p->ngraphs && device__same(p->graphs[p->last_graph].device, d))
		return &p->graphs[p->last_graph];
	for (size_t i = 0; i < p->ngraphs; i++) {
		if (device__same(p->graphs[i].device, d)) {
			p->last_graph = i;
			return &p->graphs[i];
		}
	}
	if (p->ngraphs == LIVE_DEVICES)
		return NULL;
	p->graphs[p->ngraphs] = (struct live_graph){ .device = d, .graph = graph__new() };
	if (!p->graphs[p->ngraphs].graph)
		return NULL;
	p->last_graph = p->ngraphs;
	return &p->graphs[p->ngraphs++];
}

const struct live_graph *live_proc__graph(const struct live_proc *p, struct device d)
{
	for (size_t i = 0; i < p->ngraphs; i++)
		if (device__same(p->graphs[i].device, d))
			return &p->graphs[i];
	return NULL;
}

/* Handles the end of an optimizer step. Growth is measured from the end of the first whole step to
 * the last step end, so that memory that lives only within a step does not count, and blocks of the
 * step in which the capture began, some of which have other lines, do not either. */
static void note_step_end(struct live_proc *p, uint64_t time)
{
	int device = model__main_device(p->model);
	struct model_device d;

	p->ends++;
	if (p->ends <= FIRST_WHOLE_STEP || !model__noted(p->model, ROWS_AT_BASE, /*time=*/NULL)) {
		p->by_steps = true;
		p->base_end = p->ends;
		model__note(p->model, ROWS_AT_BASE, time);
	} else {
		p->growth_known = true;
	}
	model__note(p->model, ROWS_AT_STEP, time);
	if (device < 0)
		return;
	model__device(p->model, (size_t)device, &d);
	p->growth = (int64_t)(d.allocated -
			      model__noted_allocated(p->model, (size_t)device, ROWS_AT_BASE));
}

/* Keeps a mark of the user or the program, the newest LIVE_MARKS of them. */
static void keep_mark(struct live_proc *p, const struct event *e)
{
	uint64_t ignored;

	/* The recorder's own marks about its detail are not the user's. */
	if (!detail__from_mark(dict__str(p->dict, e->name), &ignored))
		p->marks[p->nmarks++ % LIVE_MARKS] = (struct live_mark){ e->time, e->name };
}

const char *live_proc__mark(const struct live_proc *p, size_t back, uint64_t *time)
{
	const struct live_mark *m;

	if (back >= LIVE_MARKS || back >= p->nmarks)
		return NULL;
	m = &p->marks[(p->nmarks - 1 - back) % LIVE_MARKS];
	*time = m->time;
	return dict__str(p->dict, m->name);
}

/* Hands the event to the advisor, the model and the recording, and keeps what the screen shows of
 * it. Returns 0 or a negative error. */
static int on_event(struct sink *s, const struct event *e)
{
	struct live_proc *p = (struct live_proc *)s;
	int err = p->advisor ? advisor__event(p->advisor, e) : 0;
	struct live_graph *g;

	if (err)
		return err;
	err = model__event(p->model, e);
	if (err)
		return err;
	if (p->also)
		p->also->event(p->also, e);
	if (e->totals && (e->kind == EVENT_ALLOC || e->kind == EVENT_FREE)) {
		g = find_graph(p, e->device);
		if (g)
			graph__add(g->graph, e->time, e->allocated, e->reserved);
	} else if (e->kind == EVENT_STEP) {
		note_step_end(p, e->time);
	} else if (e->kind == EVENT_MARK) {
		keep_mark(p, e);
	} else if (e->kind == EVENT_USED && e->device.index != DEVICE_UNKNOWN) {
		g = find_graph(p, e->device);
		if (g) {
			g->used_known = true;
			g->used = e->size;
		}
	}
	return 0;
}

/* Sets what the table r shows. Forgets its rows if that is another set of blocks than before. */
static void select_rows(const struct live_proc *p, struct live_rows *r, enum live_by by,
			const struct live_selection *a)
{
	struct row_opts o = { 0 };

	report_select__apply(a->select, &o);
	if (r->asked && (!device__same(r->device, a->device) || r->keep != o.keep ||
			 r->which_line != a->which_line))
		live_rows__forget(r);
	r->asked = true;
	r->by = by;
	r->device = a->device;
	r->which_line = a->which_line;
	r->hide = o.hide;
	r->keep = o.keep;
	r->ctx = o.ctx;
	r->steps = p->ends - p->base_end;
}

void live_proc__select(struct live_proc *p, enum live_by by, const struct live_selection *a)
{
	p->by = by;
	for (int i = 0; i < LIVE_BY_NR; i++)
		select_rows(p, &p->rows[i], i, a);
}

int live_proc__refresh_host(struct live_proc *p, const struct live_selection *a,
			    enum live_sort sort)
{
	struct live_selection host = *a;
	struct model_device d;
	int device = model__find_device(p->model, "host"), err;

	if (device < 0 || a->device.type == DEVICE_HOST)
		return 0;
	model__device(p->model, (size_t)device, &d);
	host.device = d.device;
	select_rows(p, &p->host, p->by, &host);
	err = live_proc__judge(p, (size_t)device);
	if (err)
		return err;
	p->host.holders = live_proc__holders(p, d.device);
	err = live_rows__refresh(&p->host, p->model, p->now);
	if (!err)
		live_rows__sort(&p->host, sort);
	return err;
}

struct live_proc *live_proc__new(pid_t pid, struct dict *dict, struct facts *facts)
{
	const struct model_opts mo = { .at = AT_PEAK };
	struct live_proc *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->sink.event = on_event;
	p->pid = pid;
	p->dict = dict;
	p->facts = facts;
	p->model = model__new(dict, facts, &mo);
	if (!p->model || growth__watch(p->model, BY_LINE)) {
		model__free(p->model);
		free(p);
		return NULL;
	}
	return p;
}

void live_proc__free(struct live_proc *p)
{
	if (!p)
		return;
	for (int by = 0; by < LIVE_BY_NR; by++)
		live_rows__release(&p->rows[by]);
	live_rows__release(&p->host);
	for (size_t i = 0; i < p->njudgements; i++)
		growth_summary__free(&p->judgements[i].growth);
	findings__free(&p->findings);
	advisor__free(p->advisor);
	model__free(p->model);
	for (size_t i = 0; i < p->ngraphs; i++)
		graph__free(p->graphs[i].graph);
	if (p->owns) {
		dict__free(p->dict);
		facts__free(p->facts);
	}
	free(p);
}

void live_proc__set_time(struct live_proc *p, uint64_t now, uint64_t events, uint64_t lost)
{
	p->now = now > p->now ? now : p->now;
	p->events = events;
	p->lost = lost;
	if (!p->by_steps && model__devices(p->model) &&
	    !model__noted(p->model, ROWS_AT_BASE, /*time=*/NULL))
		model__note(p->model, ROWS_AT_BASE, p->now);
	for (size_t i = 0; i < model__devices(p->model); i++) {
		struct model_device d;
		struct live_graph *g;

		model__device(p->model, i, &d);
		g = find_graph(p, d.device);
		if (!g)
			continue;
		if (d.has_totals && graph__extend(g->graph, p->now))
			continue;
		graph__add(g->graph, p->now, d.allocated, d.has_totals ? d.reserved : 0);
		if (d.peak_allocated > g->peak)
			graph__peak(g->graph, d.peak_allocated);
		g->peak = d.peak_allocated;
	}
}

void live_proc__reset(struct live_proc *p)
{
	p->growth_known = false;
	model__forget(p->model, ROWS_AT_BASE);
}

bool live_proc__last_step(const struct live_proc *p, size_t device, struct model_step *ret)
{
	if (p->ended || !model__last_step(p->model, device, ret))
		return false;
	return p->now < ret->end + STALE_STEPS * model__step_time(p->model) + STALE;
}

/* Resident memory of the process in bytes; 0: not known, as after its end. */
static uint64_t read_rss(pid_t pid)
{
	unsigned long long all, resident;
	char buf[128];

	io__text_of_process(pid, "statm", buf, sizeof(buf));
	if (sscanf(buf, "%llu %llu", &all, &resident) != 2)
		return 0;
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void live_proc__rates(struct live_proc *p)
{
	uint64_t span = p->now - p->rate_time;

	if (!span || p->ended)
		return;
	p->rss = read_rss(p->pid);
	if (!p->rss_first) {
		p->rss_first = p->rss;
		p->rss_since = p->now;
	}
	p->rate = (double)(p->events - p->rate_events) * 1e9 / (double)span;
	p->rate_events = p->events;
	p->rate_time = p->now;
}

/* Index of a device's judgement; njudgements: none. */
static size_t find_judgement(const struct live_proc *p, struct device d)
{
	size_t i = 0;

	while (i < p->njudgements && !device__same(p->judgements[i].device, d))
		i++;
	return i;
}

const struct growth_summary *live_proc__growth(const struct live_proc *p, struct device d)
{
	size_t i = find_judgement(p, d);

	return i < p->njudgements ? &p->judgements[i].growth : NULL;
}

const char *live_proc__holders(const struct live_proc *p, struct device d)
{
	size_t i = find_judgement(p, d);

	return i < p->njudgements && *p->judgements[i].holders ? p->judgements[i].holders : NULL;
}

/* Writes the names of the largest holders of memory from before attach. 0 or -ENOMEM. */
static int name_holders(const struct live_proc *p, size_t device, char buf[LIVE_HOLDERS])
{
	const struct row_opts o = { .by = BY_LINE, .when = ROWS_NOW };
	const char *cwd = facts__get(p->facts, "cwd");
	char name[REPORT_TEXT];
	struct holder_rows h;
	size_t named = 0, others = 0, len = 0;
	uint64_t unnamed = 0; /* bytes that no object holds, in rows larger than the current one */
	char bytes[24];
	int err = holder_rows__of(p->model, device, &o, /*names=*/true, &h);

	if (err)
		return err;
	for (size_t i = 0; i < h.n; i++) {
		if (!h.all[i].before_attach)
			continue;
		if (!h.all[i].name) {
			unnamed += h.all[i].bytes;
			continue;
		}
		/* Memory without a holder comes first if its rows above the largest holder's sum to
		 * more than that. */
		if (!named && unnamed > h.all[i].bytes)
			len = (size_t)snprintf(buf, LIVE_HOLDERS, "%s " WORDS_UNHELD ", ",
					       live__bytes(bytes, unnamed));
		words__location(name, &h.all[i], cwd, HOLDER_COLUMNS);
		if (named == HOLDERS_NAMED || len + strlen(name) > LIVE_HOLDERS - MORE_HOLDERS) {
			others++;
			continue;
		}
		len += (size_t)snprintf(buf + len, LIVE_HOLDERS - len, "%s%s", named++ ? ", " : "",
					name);
	}
	if (named && others)
		snprintf(buf + len, LIVE_HOLDERS - len, ", + %zu more", others);
	holder_rows__free(&h);
	return 0;
}

/* The earliest time of the next judgement, ns since the start of the capture, so that judging takes
 * at most 1/JUDGE_PART of the time. begin: this thread's processor time, ns, when the last one
 * began. */
static uint64_t next_judgement(const struct live_proc *p, uint64_t begin)
{
	uint64_t pause = (clock__read(CLOCK_THREAD_CPUTIME_ID) - begin) * JUDGE_PART;

	return p->now + (pause > JUDGE_EVERY ? pause : JUDGE_EVERY);
}

int live_proc__judge(struct live_proc *p, size_t device)
{
	char holders[LIVE_HOLDERS] = "";
	uint64_t begin = clock__read(CLOCK_THREAD_CPUTIME_ID);
	struct growth_summary fresh;
	struct model_device d;
	size_t i;
	int err;

	model__device(p->model, device, &d);
	i = find_judgement(p, d.device);
	if (i == LIVE_DEVICES || (i < p->njudgements && p->now < p->judgements[i].due))
		return 0;
	err = name_holders(p, device, holders)
		      ?: growth_summary__of(p->model, p->facts, device, p->now, &fresh);
	if (err)
		return err;
	if (i < p->njudgements)
		growth_summary__free(&p->judgements[i].growth);
	else
		p->njudgements++;
	p->judgements[i] = (struct live_judgement){
		.device = d.device,
		.growth = fresh,
		.due = next_judgement(p, begin),
	};
	memcpy(p->judgements[i].holders, holders, sizeof(holders));
	return 0;
}

void live_proc__judge_anew(struct live_proc *p)
{
	for (size_t i = 0; i < p->njudgements; i++)
		p->judgements[i].due = 0;
}

int live_proc__watch_findings(struct live_proc *p)
{
	p->advisor = advisor__new(p->model, p->dict, p->facts);
	if (!p->advisor)
		return -ENOMEM;
	advisor__limit_steps(p->advisor, STEP_MOVES);
	return 0;
}

int live_proc__judge_findings(struct live_proc *p)
{
	const struct findings_source source = {
		.model = p->model,
		.dict = p->dict,
		.facts = p->facts,
		.advisor = p->advisor,
		.duration = p->now,
	};
	uint64_t begin = clock__read(CLOCK_THREAD_CPUTIME_ID);
	struct findings fresh;
	int err;

	if (!p->advisor || (p->findings_known && p->now < p->findings_due))
		return 0;
	err = findings__judge(&source, &fresh);
	if (err)
		return err;
	findings__free(&p->findings);
	p->findings = fresh;
	p->findings_known = true;
	p->findings_due = next_judgement(p, begin);
	return 0;
}

const char *live_proc__say_rss(const struct live_proc *p, char buf[LIVE_RSS_TEXT])
{
	uint64_t grown = p->rss > p->rss_first ? p->rss - p->rss_first : 0;
	char bytes[24], time[24];

	*buf = '\0';
	if (!p->rss_first || grown < RSS_LEAST || grown < p->rss_first / 20 || p->findings.faults ||
	    model__find_device(p->model, "host") >= 0)
		return buf;
	snprintf(buf, LIVE_RSS_TEXT,
		 "But RSS grew by %s in %s, and this view does not see what is in it: "
		 "`memtrace-bpf diagnose -p %d` does.",
		 text__bytes(bytes, sizeof(bytes), grown),
		 text__time(time, sizeof(time), p->now - p->rss_since), (int)p->pid);
	return buf;
}

void live_proc__end(struct live_proc *p, const char *why)
{
	p->ended = true;
	live_proc__judge_anew(p);
	p->rate = 0;
	snprintf(p->end, sizeof(p->end), "%s", why);
	model__finish(p->model, p->now);
	/* Without memory, the findings from before the end remain. */
	p->findings_due = 0;
	live_proc__judge_findings(p);
	advisor__free(p->advisor);
	p->advisor = NULL;
}
