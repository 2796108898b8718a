/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The live view without its drawing: the graph's memory, compared rows, keys, details, lines
 * of JSON. */
#include "unit/model_world.h"

#include <jansson.h>
#include <unistd.h>

#include "base/text.h"
#include "live/rows/bands.h"
#include "live/rows/cells.h"
#include "live/rows/detail.h"
#include "live/rows/graph.h"
#include "live/rows/state.h"
#include "live/rows/words.h"
#include "live/screen/keys.h"
#include "live/screen/paint.h"
#include "live/view/plain.h"
#include "model/words.h"
#include "report/advice.h"

#define S UINT64_C(1000000000)
#define MIB UINT64_C(1048576)

/* ---- words ---- */

static void test_words(void **state)
{
	char buf[24];

	assert_string_equal(live__bytes(buf, 0), "0 B");
	assert_string_equal(live__bytes(buf, 1023), "1023 B");
	assert_string_equal(live__bytes(buf, 1024), "1.0 KiB");
	assert_string_equal(live__bytes(buf, 1023 * 1024), "1023 KiB");
	assert_string_equal(live__bytes(buf, MIB - 1), "1.0 MiB");
	assert_string_equal(live__bytes(buf, 999 * MIB + MIB / 2), "999.5 MiB");
	for (uint64_t v = 1, was = 0; v > was; was = v, v += v / 7 + 1)
		assert_true(strlen(live__bytes(buf, v)) <= 9);
	assert_string_equal(live__bytes(buf, UINT64_MAX), "16.0 EiB");
	assert_string_equal(live__change(buf, 0), "0");
	assert_string_equal(live__change(buf, 1536), "+1.5 KiB");
	assert_string_equal(live__change(buf, -3 * (int64_t)MIB), "-3.0 MiB");
	assert_string_equal(live__change(buf, INT64_MIN), "-8.0 EiB");
	for (double v = 0.01; v < 1e14; v *= 1.7)
		assert_true(strlen(live__rate(buf, v)) <= 6);
	assert_string_equal(live__rate(buf, 0), "0");
	assert_string_equal(live__rate(buf, 999.7), "1.0k");
	assert_string_equal(live__share(buf, 1, 0), "-");
	assert_string_equal(live__share(buf, 0, 0), "0");
	assert_string_equal(live__share(buf, 1, 100000), "<0.1%");
	assert_string_equal(live__share(buf, 99999, 100000), "99.9%");
	assert_string_equal(live__share(buf, 5, 5), "100%");
	assert_string_equal(live__clock(buf, 192 * S), "00:03:12");
	assert_string_equal(live__clock(buf, 3 * 86400 * S + 4 * 3600 * S + 300 * S), "3d 04:05");
}

/* Axes have values with few digits, and so have their halves. */
static void test_axes(void **state)
{
	char buf[24], half[24];

	assert_string_equal(live__ago(buf, 45 * S + S / 2), "45s ago");
	assert_string_equal(live__ago(buf, 134 * S), "2m 14s ago");
	assert_string_equal(live__ago(buf, 3 * 3600 * S + 300 * S), "3h 05m ago");
	assert_string_equal(live__ago(buf, 3 * 86400 * S + 7200 * S), "3d 02h ago");
	assert_int_equal(live__scale(1), 1024);
	assert_int_equal(live__scale(1025), 1536);
	assert_int_equal(live__scale(9 * MIB + 1), 10 * MIB);
	assert_int_equal(live__scale(1024 * MIB + 1), 1536 * MIB);
	assert_true(live__scale(UINT64_MAX / 2) >= UINT64_MAX / 2);
	for (uint64_t v = 1; v < UINT64_C(1) << 60; v += v / 9 + 1) {
		uint64_t top = live__scale(v);
		double shown = atof(live__bytes(buf, top)),
		       at_half = atof(live__bytes(half, top / 2));

		assert_true(top >= v && (v < 1024 || top < 2 * v));
		/* exact in one digit after the point */
		while (top >= 1 << 20)
			top /= 1024;
		assert_true(shown == (double)top / 1024 &&
			    (at_half == shown / 2 || at_half == shown * 512));
	}
}

/* ---- graph ---- */

static uint64_t most_of(const struct graph_column *c, size_t n)
{
	uint64_t most = 0;

	for (size_t i = 0; i < n; i++)
		most = c[i].known && c[i].most > most ? c[i].most : most;
	return most;
}

static void test_graph(void **state)
{
	struct graph *g = graph__new();
	struct graph_column c[60];
	uint64_t width;

	graph__read(g, 5 * S, 0, c, 60);
	assert_int_equal(most_of(c, 60), 0);
	graph__add(g, S, 100, 1000);
	graph__add(g, S + S / 10, 700, 1000); /* a short peak within a step */
	graph__add(g, S + S / 5, 50, 1000);
	graph__extend(g, 10 * S);
	width = graph__read(g, 10 * S, 15 * S, c, 60);
	assert_int_equal(width, GRAPH_STEP);
	assert_int_equal(most_of(c, 60), 700);
	assert_true(c[59].known && c[59].most == 50 && c[59].least == 50 && c[59].reserved == 1000);
	assert_false(c[0].known); /* before the first value */
	/* The column with the event has both the minimum and the maximum. */
	for (size_t i = 0; i < 60; i++)
		if (c[i].known && c[i].most == 700)
			assert_int_equal(c[i].least, 50);
	graph__free(g);
}

/* After days or long idle times a peak stays, and the graph has no gaps. */
static void test_graph_of_days(void **state)
{
	struct graph *g = graph__new();
	struct graph_column c[100];
	const uint64_t hour = 3600 * S;
	size_t known = 0;

	for (uint64_t t = 0; t < 10 * hour; t += 10 * S)
		graph__add(g, t, t == 5 * hour ? 999 : 10 + (t / (10 * S)) % 7, 50);
	graph__extend(g, 30 * 24 * hour);
	graph__read(g, 30 * 24 * hour, 0, c, 100);
	assert_int_equal(most_of(c, 100), 999);
	for (size_t i = 0; i < 100; i++)
		known += c[i].known;
	assert_true(known >= 80);
	for (size_t i = 100 - known + 2; i < 100; i++) /* the value stayed as it was */
		assert_true(c[i].known && c[i].least == c[i].most);
	/* The last minutes have full resolution. */
	graph__add(g, 30 * 24 * hour + S, 77, 50);
	graph__read(g, 30 * 24 * hour + S, 25 * S, c, 100);
	assert_true(c[99].known && c[99].most == 77);
	for (size_t i = 0; i < 99; i++)
		assert_true(c[i].known);
	graph__free(g);
}

/* Columns start at multiples of their width, so past columns do not change. */
static void test_graph_stands_still(void **state)
{
	struct graph *g = graph__new();
	struct graph_column a[40], b[40];
	uint64_t width;

	for (uint64_t t = 0; t < 300 * S; t += S / 10)
		graph__add(g, t, (t / S * 37) % 101, 0);
	width = graph__read(g, 300 * S, 120 * S, a, 40);
	for (uint64_t t = 300 * S; t < 300 * S + width; t += S / 10)
		graph__add(g, t, 5, 0);
	graph__read(g, 300 * S + width, 120 * S, b, 40);
	for (size_t i = 1; i < 39; i++)
		assert_memory_equal(&a[i], &b[i - 1], sizeof(a[i]));
	graph__free(g);
}

/* A time is in the column that has its values, whatever the width of columns. */
static void test_column_of_a_time(void **state)
{
	struct graph *g = graph__new();
	struct graph_column c[40];
	const uint64_t spans[] = { 10 * S, 120 * S, 3600 * S, 0 };

	for (uint64_t t = 0; t < 7200 * S; t += S)
		graph__add(g, t, t == 7195 * S ? 999 : 5, 0);
	for (size_t i = 0; i < N(spans); i++) {
		uint64_t width = graph__read(g, 7200 * S, spans[i], c, 40);
		int at = graph__column(g, 7200 * S, width, 40, 7195 * S);

		assert_true(at >= 0 && at < 40);
		assert_int_equal(c[at].most, 999);
		assert_int_equal(graph__column(g, 7200 * S, width, 40, 7200 * S), 39);
	}
	assert_int_equal(graph__column(g, 7200 * S, GRAPH_STEP, 40, 7000 * S), -1);
	assert_int_equal(graph__column(g, 7200 * S, GRAPH_STEP, 40, 7201 * S), -1);
	graph__free(g);
}

static void test_graph_time_goes_back(void **state)
{
	struct graph *g = graph__new();
	struct graph_column c[10];

	graph__add(g, 9 * S, 10, 0);
	/* threads' events are slightly out of order; a large step back is ignored */
	graph__add(g, 2 * S, 20, 0);
	graph__add(g, UINT64_MAX / 2, 30, 0);
	graph__read(g, UINT64_MAX / 2, 0, c, 10);
	assert_int_equal(most_of(c, 10), 30);
	graph__free(g);
}

/* ---- a process ---- */

struct live_world {
	struct world w;
	struct live_proc *p;
	struct live_state s;
	uint32_t a, b;		  /* stacks */
	struct advisor *recorded; /* takes all events, as does w.m; NULL: neither does */
};

static struct live_world live__new(void)
{
	struct live_world l = { .w = world__new(AT_PEAK, 0) };
	struct frame_spec in_a[] = { { "/home/me/train.py", "main", 0 },
				     { "/home/me/net.py", "forward", 0 } };
	struct frame_spec in_b[] = { { "/home/me/train.py", "main", 0 },
				     { "/home/me/net.py", "head", 0 },
				     { "/home/me/net.py", "head", 0 } };

	l.p = live_proc__new(4242, l.w.d, l.w.f);
	assert_non_null(l.p);
	assert_int_equal(live_state__add(&l.s, l.p), 0);
	l.s.view = VIEW_LINES;
	in_a[0].module = module(&l.w, "", "Net", "Net");
	in_a[1].module = module(&l.w, "blocks.0.attn", "Attention", "Net");
	in_b[1].module = module(&l.w, "head", "Linear", "Net");
	l.a = stack_of(&l.w, in_a, 2, MT_WALK_OK);
	l.b = stack_of(&l.w, in_b, 3, MT_WALK_OK);
	l.s.interval = S;
	return l;
}

static void live__free(struct live_world *l)
{
	live_state__release(&l->s);
	world__free(&l->w);
}

static void give(struct live_world *l, struct event e)
{
	l->w.time += MS;
	e.time = l->w.time;
	e.thread = l->w.main_thread;
	e.device = CUDA(0);
	if (e.kind == EVENT_ALLOC || e.kind == EVENT_FREE) {
		l->w.allocated[0] += e.kind == EVENT_ALLOC ? e.size : 0 - e.size;
		e.totals = true;
		e.allocated = l->w.allocated[0];
		e.reserved = 1000 * MIB;
	}
	assert_int_equal(l->p->sink.event(&l->p->sink, &e), 0);
	if (l->recorded) {
		assert_int_equal(advisor__event(l->recorded, &e), 0);
		assert_int_equal(model__event(l->w.m, &e), 0);
	}
}

static void come(struct live_world *l, uint64_t addr, uint64_t size, uint32_t stack)
{
	give(l, (struct event){ .kind = EVENT_ALLOC, .addr = addr, .size = size, .stack = stack });
}

static void go(struct live_world *l, uint64_t addr, uint64_t size)
{
	give(l, (struct event){ .kind = EVENT_FREE, .addr = addr, .size = size });
}

static void refresh(struct live_world *l, uint64_t seconds)
{
	l->w.time += seconds * S;
	live_proc__set_time(l->p, l->w.time, model__events(l->p->model), 0);
	live_proc__rates(l->p);
	assert_int_equal(live_state__refresh(&l->s), 0);
}

static const struct live_row *find(const struct live_state *s, const char *func, const char *mod)
{
	const struct live_rows *r = live_state__table(s);

	for (size_t i = 0; i < r->n; i++) {
		if (func && r->all[i].row.func && !strcmp(r->all[i].row.func, func))
			return &r->all[i];
		if (mod && r->all[i].row.module && !strcmp(r->all[i].row.module, mod))
			return &r->all[i];
	}
	return NULL;
}

static void test_growth_between_steps(void **state)
{
	struct live_world l = live__new();
	const struct live_row *r;

	come(&l, 0x1000, 4 * MIB, l.a);
	refresh(&l, 1);
	r = find(&l.s, "forward", NULL);
	assert_true(r && !r->growth_known && !r->rates_known && r->row.bytes == 4 * MIB);
	give(&l, (struct event){ .kind = EVENT_STEP }); /* had begun before attach */
	for (unsigned step = 0; step < 4; step++) {
		come(&l, 0x100000, 100 * MIB, l.b);	  /* allocated and freed within the step */
		come(&l, 0x2000 + step * 0x10, MIB, l.a); /* stays */
		refresh(&l, 1);				  /* in the middle of the step */
		go(&l, 0x100000, 100 * MIB);
		give(&l, (struct event){ .kind = EVENT_STEP });
		refresh(&l, 1);
	}
	r = find(&l.s, "forward", NULL);
	assert_true(r && r->growth_known && r->growth == 3 * (int64_t)MIB &&
		    r->row.bytes == 8 * MIB);
	assert_true(r->pace_known && r->pace == (int64_t)MIB); /* in three steps */
	assert_string_equal(live_cells__title(COL_GROWTH, live_state__table(&l.s)), "GROWTH/STEP");
	/* A row without live blocks shows its allocations and has not grown. */
	r = find(&l.s, "head", NULL);
	assert_true(r && r->row.bytes == 0 && r->growth_known && r->growth == 0);
	assert_int_equal(r->at_peak, 100 * MIB);
	/* Other views have the same data. */
	live_state__choose_view(&l.s, VIEW_MODULES);
	refresh(&l, 1);
	give(&l, (struct event){ .kind = EVENT_STEP });
	refresh(&l, 1);
	r = find(&l.s, NULL, "blocks.0.attn");
	assert_true(r && r->row.bytes == 8 * MIB && r->growth_known &&
		    r->growth == 3 * (int64_t)MIB);
	live_proc__reset(l.p);
	refresh(&l, 1);
	assert_false(find(&l.s, NULL, "blocks.0.attn")->growth_known);
	live__free(&l);
}

/* After the end of a process all rows have 0 B: those that had most at the peak come first. */
static void test_order_of_empty_rows(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct live_world l = live__new();
		uint64_t of_a = i ? 4 * MIB : 2 * MIB, of_b = 6 * MIB - of_a;

		come(&l, 0x1000, of_a, l.a);
		come(&l, 0x2000, of_b, l.b);
		go(&l, 0x1000, of_a);
		go(&l, 0x2000, of_b);
		refresh(&l, 1);
		assert_int_equal(live_state__table(&l.s)->all[0].at_peak, 4 * MIB);
		assert_int_equal(live_state__table(&l.s)->all[1].at_peak, 2 * MIB);
		live__free(&l);
	}
}

static void test_rates(void **state)
{
	struct live_world l = live__new();
	const struct live_row *r;

	come(&l, 0x1000, MIB, l.a);
	refresh(&l, 1);
	for (unsigned i = 0; i < 30; i++) {
		come(&l, 0x5000, 2 * MIB, l.b);
		go(&l, 0x5000, 2 * MIB);
	}
	refresh(&l, 3);
	r = find(&l.s, "head", NULL);
	assert_true(r && r->rates_known && r->row.bytes == 0);
	/* 30 allocations in 3 s, plus the events' own 60 ms */
	assert_true(r->allocs > 9.7 && r->allocs < 10 && r->churn > 9.7 * 2 * MIB &&
		    r->churn < 20.0 * MIB);
	r = find(&l.s, "forward", NULL);
	assert_true(r->rates_known && r->allocs == 0);
	assert_true(l.p->rate > 19 && l.p->rate < 20);
	live__free(&l);
}

static void step(struct live_world *l)
{
	give(l, (struct event){ .kind = EVENT_STEP });
	refresh(l, 1);
}

/* A view without faults says that resident memory grows, which it cannot explain. */
static void test_rss_grows(void **state)
{
	struct live_world l = live__new();
	char said[LIVE_RSS_TEXT];

	l.p->pid = 4242;
	l.p->rss_first = 1024 * MIB;
	l.p->rss_since = l.p->now;
	l.p->now += 20000000000;
	l.p->rss = 1060 * MIB;
	assert_string_equal(live_proc__say_rss(l.p, said), "");
	l.p->rss = 1124 * MIB;
	assert_string_equal(live_proc__say_rss(l.p, said),
			    "But RSS grew by 100.00 MiB in 20.0 s, and this view does not see what "
			    "is in it: `memtrace-bpf diagnose -p 4242` does.");
	l.p->findings.faults = 1;
	assert_string_equal(live_proc__say_rss(l.p, said), "");
	live__free(&l);
}

/* The judgement of a report, while the process runs; in JSON, too. It is not made anew at each
 * refresh. */
static void test_judgement(void **state)
{
	struct live_world l = live__new();
	struct live_table t = { .sort = SORT_LIVE, .top = 1 };
	char *text = NULL, brief[GROWTH_SUMMARY_TEXT];
	const struct growth_summary *s;
	FILE *out;
	size_t size;
	json_t *doc, *g;

	facts__set(l.w.f, "attached_at", "start");
	for (unsigned i = 0; i < 40; i++) {
		come(&l, 0x2000 + i * 0x10, MIB, l.a);
		step(&l);
		s = live_proc__growth(l.p, CUDA(0));
		assert_non_null(s);
		assert_true(i > 21 || s->verdict == GROWTH_VERDICT_UNKNOWN);
	}
	/* judged at every second refresh, since a step takes about 1 s */
	assert_int_equal(s->verdict, GROWTH_VERDICT_GROWS);
	assert_in_range(s->steps, 39, 40);
	growth_summary__brief(s, 80, brief);
	assert_string_equal(brief, "growth +1.00 MiB/step, 59.88 MiB/min at net.py:2");
	growth_summary__brief(s, 36, brief);
	assert_string_equal(brief, "growth +1.00 MiB/step at net.py:2");
	growth_summary__brief(s, 24, brief);
	assert_string_equal(brief, "growth +1.00 MiB/step");
	growth_summary__brief(s, 12, brief);
	assert_string_equal(brief, "");
	out = open_memstream(&text, &size);
	assert_int_equal(live_plain__json_line(out, l.p, &t, ""), 0);
	fclose(out);
	doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	g = json_object_get(json_array_get(json_object_get(doc, "devices"), 0), "growth");
	assert_string_equal(json_string_value(json_object_get(g, "verdict")), "grows");
	assert_true(json_number_value(json_object_get(g, "bytes_per_step")) == (double)MIB);
	json_decref(doc);
	free(text);
	live_proc__end(l.p, "has ended");
	refresh(&l, 0);
	assert_int_equal(s->steps, 40);
	live__free(&l);
}

/* The findings are judged while their view is shown, and not at each refresh. At the end they are
 * those of a recording with the same events. */
static void test_findings(void **state)
{
	struct live_world l = live__new();
	struct findings_source source = { .model = l.w.m, .dict = l.w.d, .facts = l.w.f };
	struct findings want;
	char *live_text = NULL, *text = NULL;
	size_t size;
	FILE *out;

	facts__set(l.w.f, "attached_at", "start");
	source.advisor = advisor__new(l.w.m, l.w.d, l.w.f);
	l.recorded = source.advisor;
	assert_int_equal(live_proc__watch_findings(l.p), 0);
	for (unsigned i = 0; i < 40; i++) {
		come(&l, 0x2000 + i * 0x10, MIB, l.a);
		come(&l, 0x900000, 3 * MIB, l.b);
		go(&l, 0x900000, 3 * MIB);
		step(&l);
		if (i == 5) {
			assert_false(l.p->findings_known);
			live_keys__press(&l.s, '0', 10);
			assert_int_equal(l.s.view, VIEW_FINDINGS);
		}
	}
	assert_int_equal(l.p->findings.faults, 1);
	assert_int_equal(l.p->findings.all[0].code, FINDING_LEAK);
	assert_true(l.p->findings_due > l.p->now);
	source.duration = l.p->now;
	live_proc__end(l.p, "has ended");
	assert_null(l.p->advisor);
	model__finish(l.w.m, l.p->now);
	assert_int_equal(findings__judge(&source, &want), 0);
	out = open_memstream(&text, &size);
	findings__list(out, &want, 60);
	fclose(out);
	out = open_memstream(&live_text, &size);
	findings__list(out, &l.p->findings, 60);
	fclose(out);
	assert_string_equal(live_text, text);
	assert_non_null(strstr(text, " 1. Leak on cuda:0: +1.00 MiB/step"));
	free(live_text);
	free(text);
	findings__free(&want);
	advisor__free(source.advisor);
	live__free(&l);
}

static int64_t growth_of(struct live_world *l, const char *mod)
{
	const struct live_row *r = find(&l->s, NULL, mod);

	assert_true(r && r->growth_known);
	return r->growth;
}

/* Gradients of the step in which the capture began have another line than those of later steps. */
static void test_first_step_is_no_growth(void **state)
{
	struct live_world l = live__new();

	live_state__choose_view(&l.s, VIEW_MODULES);
	come(&l, 0x1000, 8 * MIB, l.b);
	step(&l);
	go(&l, 0x1000, 8 * MIB);
	come(&l, 0x1000, 8 * MIB, l.a);
	step(&l);
	step(&l);
	assert_int_equal(growth_of(&l, "blocks.0.attn"), 0);
	live__free(&l);
}

/* A census some time after attach: blocks that it finds from before attach are no growth. */
static void test_late_census_is_no_growth(void **state)
{
	struct live_world l = live__new();

	l.w.allocated[0] = 100 * MIB; /* before attach */
	come(&l, 0x1000, MIB, l.a);
	step(&l);
	step(&l);
	come(&l, 0x2000, MIB, l.a);
	step(&l);
	give(&l, (struct event){ .kind = EVENT_TENSOR,
				 .addr = 0x900000000,
				 .size = 60 * MIB,
				 .flags = CENSUS_FIRST,
				 .category = CATEGORY_PARAMETER,
				 .module = module(&l.w, "head", "Linear", "Net") });
	give(&l, (struct event){ .kind = EVENT_CENSUS, .flags = CENSUS_FIRST });
	live_state__choose_view(&l.s, VIEW_MODULES);
	step(&l);
	assert_int_equal(growth_of(&l, "head"), 0);
	assert_int_equal(growth_of(&l, ""), 0); /* growth of the row for the 40 MiB without names */
	assert_int_equal(growth_of(&l, "blocks.0.attn"), MIB);
	live__free(&l);
}

/* A later census moves a block to another row: neither row has grown or shrunk. */
static void test_block_named_later_is_no_growth(void **state)
{
	static const enum live_view views[] = { VIEW_MODULES, VIEW_TREE, VIEW_CATEGORIES };
	struct live_world l = live__new();

	live_state__choose_view(&l.s, VIEW_MODULES);
	come(&l, 0x1000, 50 * MIB, l.a);      /* named, stays live */
	come(&l, 0x100000000, 20 * MIB, l.a); /* named, freed later */
	step(&l);
	step(&l);
	come(&l, 0x200000000, MIB, l.a); /* grows */
	step(&l);
	for (uint64_t addr = 0x1000; addr <= 0x100000000; addr += 0x100000000 - 0x1000)
		give(&l, (struct event){ .kind = EVENT_TENSOR,
					 .addr = addr,
					 .size = MIB,
					 .category = CATEGORY_OPTIMIZER_STATE,
					 .module = module(&l.w, "head", "Linear", "Net") });
	go(&l, 0x100000000, 20 * MIB);
	step(&l);
	for (size_t i = 0; i < N(views); i++) {
		int64_t sum = 0;
		const struct live_rows *r = live_state__table(&l.s);

		live_state__choose_view(&l.s, views[i]);
		refresh(&l, 1);
		r = live_state__table(&l.s);
		for (size_t k = 0; k < r->n; k++) {
			assert_true(r->all[k].growth_known);
			sum += r->by == LIVE_LAYER ? 0 : r->all[k].growth;
		}
		if (views[i] == VIEW_CATEGORIES) {
			assert_int_equal(sum, -19 * (int64_t)MIB);
			continue;
		}
		assert_int_equal(growth_of(&l, "blocks.0.attn"), MIB);
		assert_int_equal(growth_of(&l, "head"), -20 * (int64_t)MIB);
	}
	live__free(&l);
}

/* A filter selects rows; their growth and its start stay known. */
static void test_filter_keeps_growth(void **state)
{
	struct live_world l = live__new();
	const struct live_row *r;
	uint64_t since;

	come(&l, 0x1000, 4 * MIB, l.a);
	come(&l, 0x100000000, 4 * MIB, l.b);
	step(&l);
	step(&l);
	come(&l, 0x200000000, MIB, l.a);
	come(&l, 0x300000000, 2 * MIB, l.b);
	step(&l);
	since = live_state__table(&l.s)->since;
	refresh(&l, 60);
	assert_int_equal(live_state__set_filter(&l.s, "func:forward", NULL, 0), 0);
	refresh(&l, 1);
	r = find(&l.s, "forward", NULL);
	assert_true(r && r->growth_known && r->growth == (int64_t)MIB);
	assert_int_equal(live_state__table(&l.s)->since, since);
	assert_int_equal(live_state__set_filter(&l.s, "", NULL, 0), 0);
	refresh(&l, 1);
	r = find(&l.s, "head", NULL);
	assert_true(r && r->growth_known && r->growth == 2 * (int64_t)MIB);
	live__free(&l);
}

static void check_detail(struct live_world *l, size_t row, bool before, const char *category,
			 uint64_t bytes)
{
	const struct live_row *r;

	refresh(l, 1);
	l->s.selected = row;
	r = live_state__row(&l->s);
	assert_non_null(r);
	assert_int_equal(r->row.before_attach, before);
	if (category)
		assert_string_equal(r->row.category, category);
	live_keys__press(&l->s, KEY_LIVE_ENTER, 10);
	refresh(l, 1);
	assert_int_equal(l->s.detailed.bytes, bytes);
	live_keys__press(&l->s, KEY_LIVE_ESCAPE, 10);
}

/* Memory from before attach without a category has its own row, apart from new blocks without
 * one. */
static void test_before_attach_is_a_category_of_its_own(void **state)
{
	struct live_world l = live__new();
	const struct live_rows *r;

	l.w.allocated[0] = 12 * MIB;
	live_state__choose_view(&l.s, VIEW_CATEGORIES);
	come(&l, 0x1000, MIB, l.a);
	step(&l);
	step(&l);
	come(&l, 0x100000000, 3 * MIB, l.a);
	step(&l);
	r = live_state__table(&l.s);
	assert_int_equal(r->n, 2);
	assert_true(r->all[0].row.before_attach && r->all[0].row.bytes == 12 * MIB);
	assert_true(r->all[0].growth_known && r->all[0].growth == 0);
	assert_false(r->all[1].row.before_attach);
	assert_string_equal(r->all[1].row.category, "unknown");
	assert_int_equal(r->all[1].row.bytes, 4 * MIB);
	assert_true(r->all[1].growth_known && r->all[1].growth == 3 * (int64_t)MIB);
	/* Details differ likewise, also from memory of before attach whose category is known. */
	give(&l, (struct event){ .kind = EVENT_TENSOR,
				 .addr = 0x900000000,
				 .size = 2 * MIB,
				 .flags = CENSUS_FIRST,
				 .category = CATEGORY_PARAMETER,
				 .module = module(&l.w, "head", "Linear", "Net") });
	give(&l, (struct event){ .kind = EVENT_TENSOR,
				 .addr = 0xa00000000,
				 .size = 5 * MIB,
				 .flags = CENSUS_FIRST,
				 .module = module(&l.w, "head", "Linear", "Net") });
	/* 5 of the 10 MiB are known blocks */
	check_detail(&l, 0, true, NULL, 5 * MIB);
	assert_int_equal(l.s.detailed.held.n, 1);
	assert_int_equal(l.s.detailed.held.all[0].bytes, 10 * MIB);
	check_detail(&l, 1, false, "unknown", 4 * MIB);
	check_detail(&l, 2, false, "parameter", 2 * MIB);
	live__free(&l);
}

static void press(struct live_world *l, const char *keys)
{
	for (; *keys; keys++)
		if (live_keys__press(&l->s, *keys == '\n' ? KEY_LIVE_ENTER : *keys, 10) ==
		    ACT_REFRESH)
			refresh(l, 1);
}

/* The details of memory from before attach are what holds it. */
static void test_holders_of_before_attach(void **state)
{
	struct live_world l = live__new();
	const struct live_detail *x = &l.s.detailed;
	char where[REPORT_TEXT];

	l.w.allocated[0] = 20 * MIB;
	come(&l, 0x1000, MIB, l.a);
	for (uint64_t i = 1; i <= 3; i++)
		give(&l, (struct event){ .kind = EVENT_TENSOR,
					 .addr = i << 32,
					 .size = 5 * MIB,
					 .flags = CENSUS_FIRST,
					 .name = str(&l.w, "global history[*]") });
	give(&l, (struct event){ .kind = EVENT_CENSUS, .flags = CENSUS_FIRST });
	refresh(&l, 1);
	assert_true(live_state__row(&l.s)->row.before_attach);
	assert_string_equal(live_cells__where(where, LIVE_LINE, l.w.f, live_state__row(&l.s), NULL,
					      80, false),
			    "before attach: global history[*]");
	press(&l, "\n");
	assert_true(l.s.detail);
	assert_int_equal(x->held.n, 2);
	assert_string_equal(x->held.all[0].name, "global history[*]");
	assert_int_equal(x->held.all[0].bytes, 15 * MIB);
	assert_int_equal(x->held.all[0].count, 3);
	assert_null(x->held.all[1].name);
	assert_int_equal(x->held.all[1].bytes, 5 * MIB);
	/* A row of recorded memory has stacks instead. */
	live_keys__press(&l.s, KEY_LIVE_ESCAPE, 10);
	live_keys__press(&l.s, KEY_LIVE_DOWN, 10);
	press(&l, "\n");
	assert_int_equal(x->nstacks, 1);
	assert_int_equal(x->held.n, 0);
	live__free(&l);
}

/* Calls of a model in inference are no optimizer steps: growth is counted per refresh. */
static void test_growth_without_an_optimizer(void **state)
{
	struct live_world l = live__new();

	live_state__choose_view(&l.s, VIEW_MODULES);
	come(&l, 0x1000, MIB, l.a);
	refresh(&l, 1);
	for (uint64_t call = 1; call < 4; call++) {
		give(&l, (struct event){ .kind = EVENT_CALL,
					 .module = module(&l.w, "", "Net", "Net") });
		come(&l, call << 32, MIB, l.a);
		refresh(&l, 1);
	}
	assert_int_equal(growth_of(&l, "blocks.0.attn"), 3 * MIB);
	/* A rate per minute needs some time. */
	assert_false(find(&l.s, NULL, "blocks.0.attn")->pace_known);
	refresh(&l, 87);
	assert_in_range(find(&l.s, NULL, "blocks.0.attn")->pace, 2 * MIB - 9999, 2 * MIB);
	assert_string_equal(live_cells__title(COL_GROWTH, live_state__table(&l.s)), "GROWTH/MIN");
	live__free(&l);
}

static void test_keys(void **state)
{
	struct live_world l = live__new();

	come(&l, 0x1000, 9 * MIB, l.a);
	come(&l, 0x900000000, 3 * MIB, l.b);
	refresh(&l, 1);
	assert_int_equal(live_state__rows(&l.s), 2);
	assert_string_equal(live_state__row(&l.s)->row.func, "forward");
	live_keys__press(&l.s, KEY_LIVE_DOWN, 10);
	assert_string_equal(live_state__row(&l.s)->row.func, "head");
	/* The selection follows its row. */
	come(&l, 0x800000000, 20 * MIB, l.b);
	refresh(&l, 1);
	assert_int_equal(l.s.selected, 0);
	assert_string_equal(live_state__row(&l.s)->row.func, "head");
	press(&l, "l");
	assert_int_equal(live_state__by(&l.s), LIVE_FUNCTION);
	press(&l, "3");
	assert_int_equal(l.s.view, VIEW_CATEGORIES);
	press(&l, "1l");
	/* An invalid filter is reported and stays in the prompt. */
	press(&l, "/func:head\n");
	assert_int_equal(l.s.typing, TYPING_NOTHING);
	assert_string_equal(live_state__row(&l.s)->row.func, "head");
	assert_true(live_state__table(&l.s)->all[1].row.filtered);
	press(&l, "/");
	live_keys__press(&l.s, 'U' - '@', 10);
	press(&l, "size:>\n");
	assert_int_equal(l.s.typing, TYPING_FILTER);
	assert_int_equal(live_state__message(&l.s, 0)->level, LOG_WARN);
	for (unsigned i = 0; i < 3 * LIVE_TYPED; i++)
		live_keys__press(&l.s, 'x', 10);
	assert_int_equal(strlen(l.s.typed), LIVE_TYPED - 1);
	live_keys__press(&l.s, KEY_LIVE_ESCAPE, 10);
	assert_string_equal(l.s.filter, "func:head");
	press(&l, " ");
	assert_true(l.s.paused);
	assert_int_equal(live_keys__press(&l.s, 'q', 10), ACT_QUIT);
	assert_int_equal(live_keys__press(&l.s, 'w', 10), ACT_SAVE);
	press(&l, "m");
	assert_string_equal(l.s.typed, "mark 1");
	assert_int_equal(live_keys__press(&l.s, KEY_LIVE_ENTER, 10), ACT_MARK);
	/* Random keys must not break anything. */
	for (unsigned i = 0; i < 20000; i++) {
		if (live_keys__press(&l.s,
				     i % 3 ? (int)(i * 2654435761u >> 8) % 300
					   : KEY_LIVE_UP + (int)(i * 40503u >> 4) % 12,
				     i % 20) == ACT_REFRESH &&
		    i % 7 == 0)
			refresh(&l, 0);
		assert_true(!live_state__rows(&l.s) || l.s.selected < live_state__rows(&l.s));
	}
	live__free(&l);
}

static void check_says(struct live_world *l, const char *keys, const char *want)
{
	enum live_view v = l->s.view;

	l->s.nmessages = 0;
	press(l, keys);
	assert_int_equal(l->s.nmessages, 1);
	assert_non_null(strstr(live_state__message(&l->s, 0)->text, want));
	assert_int_equal(l->s.view, v);
}

/* A key without effect says why; views without content are not offered. */
static void test_keys_without_effect(void **state)
{
	struct live_world l = live__new();

	come(&l, 0x1000, MIB, l.a);
	refresh(&l, 1);
	check_says(&l, "g", "only device");
	check_says(&l, "P", "only process");
	check_says(&l, "6", "only process");
	check_says(&l, "y", "? lists all keys");
	press(&l, "5");
	assert_int_equal(l.s.view, VIEW_SEGMENTS);
	check_says(&l, "t", "one order");
	press(&l, "\t");
	assert_int_equal(l.s.view, VIEW_FINDINGS);
	live_keys__press(&l.s, KEY_LIVE_BACKTAB, 10);
	assert_int_equal(l.s.view, VIEW_SEGMENTS);
	/* The CPU has no segments. */
	assert_int_equal(l.p->sink.event(&l.p->sink,
					 &(struct event){ .kind = EVENT_ALLOC,
							  .time = l.w.time,
							  .thread = l.w.main_thread,
							  .device = { .type = DEVICE_CPU },
							  .addr = 0x900000,
							  .size = 64,
							  .stack = l.a }),
			 0);
	press(&l, "g");
	assert_int_equal(l.s.view, VIEW_LINES);
	check_says(&l, "5", "no segments: g");
	press(&l, "0");
	assert_int_equal(l.s.view, VIEW_FINDINGS);
	check_says(&l, "t", "one order");
	check_says(&l, "\n", "no row");
	live_keys__press(&l.s, KEY_LIVE_DOWN, 10);
	assert_int_equal(l.s.first, 1);
	live_keys__press(&l.s, KEY_LIVE_BACKTAB, 10);
	assert_int_equal(l.s.view, VIEW_TREE);
	assert_int_equal(live_keys__press(&l.s, KEY_LIVE_QUIT, 10), ACT_QUIT);
	for (int times = 0; times < 2; times++) {
		live_keys__press(&l.s, KEY_LIVE_HELP, 10);
		assert_true(l.s.help == !times);
	}
	live__free(&l);
}

/* All keys fit into their column, and the legend explains the columns. */
static void test_help(void **state)
{
	bool growth = false;

	for (const struct live_key_help *h = live_keys__help; h->does; h++) {
		assert_true(!h->keys || text__width(h->keys) <= LIVE_KEYS_WIDTH);
		growth |= h->keys && !strncmp(h->keys, "GROWTH", 6);
	}
	assert_true(growth);
}

/* A click selects a row, and opens the selected one; the wheel scrolls. Titles and views act as
 * their keys. */
static void test_mouse(void **state)
{
	struct live_world l = live__new();
	struct paint p = { .rows = 24, .columns = 80, .rows_y = 10, .rows_n = 5 };

	come(&l, 0x1000, 9 * MIB, l.a);
	come(&l, 0x900000000, 3 * MIB, l.b);
	refresh(&l, 1);
	paint__hit(&p, 8, 10, 9, '2');
	assert_int_equal(paint__clicked(&p, 8, 9), 0);
	assert_int_equal(paint__clicked(&p, 8, 10), '2');
	assert_int_equal(paint__clicked(&p, 8, 18), '2');
	assert_int_equal(paint__clicked(&p, 8, 19), 0);
	assert_int_equal(paint__clicked(&p, 15, 10), 0);
	for (unsigned i = 0; i < 2 * PAINT_HITS; i++)
		paint__hit(&p, 9, 0, 1, 'x');
	assert_int_equal(p.nhits, PAINT_HITS);
	live_keys__press(&l.s, paint__clicked(&p, 11, 3), 10);
	assert_int_equal(l.s.selected, 1);
	assert_false(l.s.detail);
	live_keys__press(&l.s, paint__clicked(&p, 14, 3), 10); /* no such row */
	assert_int_equal(l.s.selected, 1);
	live_keys__press(&l.s, KEY_LIVE_WHEEL_UP, 10);
	assert_int_equal(l.s.selected, 0);
	live_keys__press(&l.s, KEY_LIVE_WHEEL_DOWN, 10);
	assert_int_equal(l.s.selected, 1);
	live_keys__press(&l.s, paint__clicked(&p, 11, 3), 10);
	assert_true(l.s.detail);
	live_keys__press(&l.s, KEY_LIVE_WHEEL_DOWN, 10);
	assert_int_equal(l.s.detail_first, 3);
	live__free(&l);
}

/* The graph's zoom stays within the available time: keys at the limits have no effect. */
static void test_zoom(void **state)
{
	struct live_world l = live__new();

	come(&l, 0x1000, MIB, l.a);
	refresh(&l, 45);
	press(&l, "+");
	assert_int_equal(l.s.span, 30 * S);
	press(&l, "+");
	assert_int_equal(l.s.span, 30 * S);
	press(&l, "-");
	assert_int_equal(l.s.span, 0);
	press(&l, "-");
	assert_int_equal(l.s.span, 0);
	refresh(&l, 7200);
	press(&l, "+");
	assert_int_equal(l.s.span, 3600 * S);
	press(&l, "++");
	assert_int_equal(l.s.span, 120 * S);
	press(&l, "--");
	assert_int_equal(l.s.span, 3600 * S);
	press(&l, "-");
	assert_int_equal(l.s.span, 0);
	live__free(&l);
}

/* Typing replaces the suggested name; after Backspace the suggestion can be edited. */
static void test_mark_prompt(void **state)
{
	struct live_world l = live__new();

	press(&l, "mepoch 3");
	assert_string_equal(l.s.typed, "epoch 3");
	live_keys__press(&l.s, KEY_LIVE_ESCAPE, 10);
	press(&l, "m");
	live_keys__press(&l.s, KEY_LIVE_BACKSPACE, 10);
	press(&l, "7");
	assert_string_equal(l.s.typed, "mark 7");
	live_keys__press(&l.s, KEY_LIVE_ESCAPE, 10);
	/* Without a prompt or details, Esc goes nowhere. */
	assert_int_equal(live_keys__press(&l.s, KEY_LIVE_ESCAPE, 10), ACT_DRAW);
	/* A right filter removes the message about a wrong one. */
	press(&l, "/foo:x\n");
	assert_int_equal(l.s.nmessages, 2);
	press(&l, "\x15role:\"no role found\"|kv-cache block:>1K\n");
	assert_int_equal(l.s.nmessages, 1);
	press(&l, "/\x15\n");
	/* The prompt starts with the current filter. */
	press(&l, "/head\n/x");
	assert_string_equal(l.s.typed, "headx");
	live__free(&l);
}

/* The last marks have names, whoever set them. Changes of detail do not count. */
static void test_marks(void **state)
{
	struct live_world l = live__new();
	char name[64];
	uint64_t time;

	assert_null(live_proc__mark(l.p, 0, &time));
	for (unsigned i = 0; i <= LIVE_MARKS; i++) {
		snprintf(name, sizeof(name), "epoch %u", i);
		give(&l, (struct event){ .kind = EVENT_MARK, .name = str(&l.w, name) });
	}
	give(&l, (struct event){ .kind = EVENT_MARK, .name = str(&l.w, "detail: all") });
	assert_int_equal(l.p->nmarks, LIVE_MARKS + 1);
	assert_string_equal(live_proc__mark(l.p, 0, &time), "epoch 64");
	assert_int_equal(time, l.w.time - MS);
	assert_string_equal(live_proc__mark(l.p, LIVE_MARKS - 1, &time), "epoch 1");
	assert_null(live_proc__mark(l.p, LIVE_MARKS, &time));
	live__free(&l);
}

/* The head shows the end and the peak of the last step, while there are steps. */
static void test_last_step(void **state)
{
	struct live_world l = live__new();
	struct model_step last;

	come(&l, 0x1000, MIB, l.a);
	refresh(&l, 1);
	assert_false(live_proc__last_step(l.p, 0, &last));
	come(&l, 0x100000000, 8 * MIB, l.b);
	go(&l, 0x100000000, 8 * MIB);
	step(&l);
	come(&l, 0x200000000, 3 * MIB, l.b); /* the next step */
	refresh(&l, 1);
	assert_true(live_proc__last_step(l.p, 0, &last));
	assert_int_equal(last.end_allocated, MIB);
	assert_int_equal(last.peak, 9 * MIB);
	refresh(&l, 60);
	assert_false(live_proc__last_step(l.p, 0, &last));
	go(&l, 0x200000000, 3 * MIB);
	step(&l);
	assert_true(live_proc__last_step(l.p, 0, &last));
	assert_int_equal(last.peak, 4 * MIB);
	assert_false(live_proc__graph(l.p, CUDA(0))->used_known);
	give(&l, (struct event){ .kind = EVENT_USED, .size = 70 * MIB });
	assert_true(live_proc__graph(l.p, CUDA(0))->used_known);
	assert_int_equal(live_proc__graph(l.p, CUDA(0))->used, 70 * MIB);
	live_proc__end(l.p, "has ended");
	assert_false(live_proc__last_step(l.p, 0, &last));
	live__free(&l);
}

static void test_rss(void **state)
{
	struct live_world l = live__new();

	l.p->pid = getpid();
	refresh(&l, 1);
	assert_true(l.p->rss > MIB / 2 && l.p->rss % 4096 == 0);
	l.p->pid = -1;
	refresh(&l, 1);
	assert_int_equal(l.p->rss, 0);
	live__free(&l);
}

/* ---- tree ---- */

static void test_tree(void **state)
{
	static const char *const names[] = { "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn",
					     "blocks-x", "head" };
	struct live_world l = live__new();
	const struct live_rows *r;

	for (size_t i = 0; i < N(names); i++) {
		struct dict_frame f[] = {
			{ .loc = loc(&l.w, "/home/me/net.py", "f", 7),
			  .module = module(&l.w, names[i], "M", "Net") },
			{ .loc = loc(&l.w, "/home/me/net.py", "main", 1),
			  .module = module(&l.w, "", "Net", "Net") },
		};

		come(&l, 0x1000 * (i + 1), (i + 1) * MIB, dict__stack(l.w.d, f, 2, MT_WALK_OK));
	}
	live_state__choose_view(&l.s, VIEW_TREE);
	refresh(&l, 1);
	r = live_state__table(&l.s);
	/* <Net> contains by size: blocks (6), head (5), blocks-x (4); blocks is open, sorted
	 * by size. */
	assert_int_equal(r->all[0].depth, 0);
	assert_int_equal(r->all[0].row.bytes, 15 * MIB);
	assert_string_equal(r->all[1].row.module, "blocks");
	assert_true(r->all[1].open && r->all[1].depth == 1);
	assert_string_equal(r->all[2].row.module, "blocks.0");
	assert_false(r->all[2].open);
	assert_string_equal(r->all[3].row.module, "blocks.1");
	assert_string_equal(r->all[4].row.module, "head");
	assert_string_equal(r->all[5].row.module, "blocks-x");
	assert_int_equal(r->shown, 6);
	assert_true(r->n > r->shown);
	/* An unfolded row stays unfolded. */
	live_keys__press(&l.s, KEY_LIVE_DOWN, 10);
	live_keys__press(&l.s, KEY_LIVE_DOWN, 10);
	live_keys__press(&l.s, KEY_LIVE_RIGHT, 10);
	refresh(&l, 1);
	r = live_state__table(&l.s);
	assert_string_equal(r->all[3].row.module, "blocks.0.mlp");
	assert_string_equal(r->all[3].under, "blocks.0");
	assert_string_equal(r->all[4].row.module, "blocks.0.attn");
	/* Left selects the parent row, and there folds it. */
	live_keys__press(&l.s, KEY_LIVE_DOWN, 10);
	live_keys__press(&l.s, KEY_LIVE_LEFT, 10);
	assert_int_equal(l.s.selected, 2);
	live_keys__press(&l.s, KEY_LIVE_LEFT, 10);
	assert_int_equal(live_state__rows(&l.s), 6);
	live__free(&l);
}

/* ---- detail ---- */

static void test_detail(void **state)
{
	struct live_world l = live__new();
	const struct live_detail *x = &l.s.detailed;

	for (unsigned i = 0; i < 5; i++)
		come(&l, 0x1000 * (i + 1), MIB, l.a);
	l.w.time += 100 * S;
	come(&l, 0x100000, 16 * MIB, l.a);
	come(&l, 0x200000, 64 * MIB, l.b);
	refresh(&l, 1);
	live_keys__press(&l.s, KEY_LIVE_DOWN, 10); /* b is larger, so a is second */
	assert_string_equal(live_state__row(&l.s)->row.func, "forward");
	press(&l, "\n");
	assert_true(l.s.detail);
	assert_int_equal(x->nstacks, 1);
	assert_int_equal(x->stacks[0].bytes, 21 * MIB);
	assert_int_equal(x->nsizes, 2);
	assert_true(x->sizes[0].size == 16 * MIB && x->sizes[0].count == 1);
	assert_true(x->sizes[1].size == MIB && x->sizes[1].count == 5);
	assert_int_equal(x->bytes, 21 * MIB);
	assert_true(x->ages[AGE_TEN].count == 1 && x->ages[AGE_TEN_MINUTES].count == 5);
	/* The same blocks by module, by category, and by module with submodules. */
	press(&l, "2");
	live_keys__press(&l.s, KEY_LIVE_DOWN, 10);
	press(&l, "\n");
	assert_int_equal(x->bytes, 21 * MIB);
	press(&l, "3\n");
	assert_int_equal(x->bytes, 85 * MIB);
	press(&l, "4\n");
	assert_int_equal(x->bytes, 85 * MIB);
	assert_int_equal(x->nstacks, 2);
	live_keys__press(&l.s, KEY_LIVE_ESCAPE, 10);
	assert_false(l.s.detail);
	live__free(&l);
}

/* ---- JSON ---- */

static void test_json(void **state)
{
	struct live_world l = live__new();
	struct live_table t = { .sort = SORT_LIVE, .top = 1 };
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	json_t *doc, *rows;

	come(&l, 0x1000, 9 * MIB, l.a);
	come(&l, 0x900000000, 3 * MIB, l.b);
	refresh(&l, 2);
	assert_int_equal(live_plain__json_line(out, l.p, &t, ""), 0);
	fclose(out);
	assert_int_equal(strchr(text, '\n') - text, (long)size - 1); /* JSON in one line */
	doc = json_loads(text, 0, NULL);
	assert_non_null(doc);
	rows = json_object_get(doc, "rows");
	assert_int_equal(json_array_size(rows), 1);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 0), "bytes")),
			 9 * MIB);
	assert_int_equal(json_integer_value(json_object_get(doc, "more_rows")), 1);
	assert_int_equal(json_integer_value(json_object_get(doc, "more_bytes")), 3 * MIB);
	assert_int_equal(json_integer_value(json_object_get(
				 json_array_get(json_object_get(doc, "devices"), 0), "allocated")),
			 12 * MIB);
	assert_null(json_object_get(doc, "end"));
	json_decref(doc);
	free(text);
	live__free(&l);
}

/* ---- scopes below the graph ---- */

static void tell_scope(struct world *w, uint64_t time, uint8_t flags, const char *name)
{
	w->time = time - MS; /* feed() adds it */
	feed(w, (struct event){ .kind = EVENT_SCOPE,
				.how = SCOPE_PHASE,
				.flags = flags,
				.name = str(w, name) });
}

/* Each column shows the outermost scope that ran longest. An open scope goes on. */
static void test_bands(void **state)
{
	struct world w = world__new(AT_END, 0);
	size_t scope[10];

	(void)state;
	assert_false(live_bands__read(w.m, 10 * S, S, scope, 10));
	tell_scope(&w, 2 * S, SCOPE_BEGIN, "rollout");
	tell_scope(&w, 2 * S + S / 4, SCOPE_BEGIN, "inner");
	tell_scope(&w, 4 * S, SCOPE_END, "inner");
	tell_scope(&w, 4 * S + S / 4, SCOPE_END, "rollout");
	tell_scope(&w, 4 * S + S / 4, SCOPE_BEGIN, "train");
	tell_scope(&w, 6 * S, SCOPE_END, "train");
	tell_scope(&w, 7 * S, SCOPE_BEGIN, "sync"); /* too short for its column */
	tell_scope(&w, 7 * S + S / 100, SCOPE_END, "sync");
	tell_scope(&w, 9 * S, SCOPE_BEGIN, "rollout");
	assert_true(live_bands__read(w.m, 10 * S + S / 2, S, scope, 10));
	/* The last column begins at 10 s, the first one at 1 s. */
	for (size_t i = 0; i < N(scope); i++) {
		static const char *const wanted[] = { NULL,	 "rollout", "rollout", "train",
						      "train",	 NULL,	    NULL,      NULL,
						      "rollout", "rollout" };
		struct model_scope s;

		if (!wanted[i]) {
			assert_true(scope[i] == BAND_NONE);
			continue;
		}
		model__scope(w.m, scope[i], &s);
		assert_string_equal(s.path, wanted[i]);
	}
	/* The graph begins before the capture. */
	assert_true(live_bands__read(w.m, 10 * S, 5 * S, scope, 10));
	assert_true(scope[0] == BAND_NONE);
	world__free(&w);
}

/* The begin that all names have goes where the rest is a word or a number. */
static void test_prefix_of_bands(void **state)
{
	static const struct {
		const char *names[3];
		size_t prefix;
	} cases[] = {
		{ { "train/forward", "train/step", "train/forward" }, 6 },
		{ { "rollout1", "rollout2", "rollout12" }, 7 },
		{ { "rank 11", "rank 12", "rank 13" }, 5 },
		{ { "train", "test", "try" }, 0 },
		{ { "train", "train_step", "train" }, 0 },
		{ { "train/step", "train/step", "train/step" }, 0 },
	};

	(void)state;
	for (size_t i = 0; i < N(cases); i++) {
		struct world w = world__new(AT_END, 0);
		size_t scope[5];

		for (uint64_t k = 0; k < 3; k++) {
			tell_scope(&w, (2 * k + 1) * S, SCOPE_BEGIN, cases[i].names[k]);
			tell_scope(&w, (2 * k + 2) * S, SCOPE_END, cases[i].names[k]);
		}
		assert_true(live_bands__read(w.m, 5 * S + S / 2, S, scope, 5));
		assert_int_equal(live_bands__prefix(w.m, scope, 5), cases[i].prefix);
		world__free(&w);
	}
}

/* The model remembers the last runs only. */
static void test_forgotten_bands(void **state)
{
	struct world w = world__new(AT_END, 0);
	size_t scope[100];

	(void)state;
	for (uint64_t i = 0; i < 1000; i++) {
		tell_scope(&w, (i + 1) * S, SCOPE_BEGIN, "step");
		tell_scope(&w, (i + 1) * S + S * 3 / 4, SCOPE_END, "step");
	}
	assert_true(live_bands__read(w.m, 1001 * S, 10 * S, scope, 100));
	assert_true(scope[0] == BAND_UNKNOWN);
	assert_true(scope[90] < BAND_UNKNOWN);
	world__free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bands),
		cmocka_unit_test(test_prefix_of_bands),
		cmocka_unit_test(test_forgotten_bands),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_axes),
		cmocka_unit_test(test_graph),
		cmocka_unit_test(test_graph_of_days),
		cmocka_unit_test(test_graph_stands_still),
		cmocka_unit_test(test_column_of_a_time),
		cmocka_unit_test(test_graph_time_goes_back),
		cmocka_unit_test(test_growth_between_steps),
		cmocka_unit_test(test_first_step_is_no_growth),
		cmocka_unit_test(test_order_of_empty_rows),
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_rss_grows),
		cmocka_unit_test(test_judgement),
		cmocka_unit_test(test_findings),
		cmocka_unit_test(test_late_census_is_no_growth),
		cmocka_unit_test(test_block_named_later_is_no_growth),
		cmocka_unit_test(test_filter_keeps_growth),
		cmocka_unit_test(test_before_attach_is_a_category_of_its_own),
		cmocka_unit_test(test_holders_of_before_attach),
		cmocka_unit_test(test_growth_without_an_optimizer),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_keys_without_effect),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_mouse),
		cmocka_unit_test(test_zoom),
		cmocka_unit_test(test_mark_prompt),
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_last_step),
		cmocka_unit_test(test_rss),
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_detail),
		cmocka_unit_test(test_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
