/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Turns growth, advice and failed allocations of one recording into findings. */
#include "report/findings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/dict.h"
#include "report/advice.h"
#include "report/findings/internal.h"
#include "report/leaks.h"
#include "report/leaks/internal.h"

/* Least saving that is a finding: percent of the peak, and bytes. */
#define WORTH_PERCENT 10
#define WORTH_BYTES (UINT64_C(1) << 20)
/* Least saving of cached memory that is a finding, in percent of the device's memory. */
#define CACHED_PERCENT 5
/* Steps, or calls of the model, after which growth of high confidence ends a capture. Calls also
 * need SURE_CALLS_NS, because a long step may begin with many of them. */
#define SURE_STEPS 24
#define SURE_CALLS 100
#define SURE_CALLS_NS UINT64_C(5000000000) /* 5 s */

/* Returns the finding for a kind of advice; FINDING_NR: the advice is a trade-off, such as
 * checkpoints, and no finding. */
static enum finding_code code_of_advice(enum advice_kind k)
{
	switch (k) {
	case ADVICE_GRADIENTS_LATE:
		return FINDING_GRADIENTS_LATE;
	case ADVICE_BUFFERS:
		return FINDING_BUFFERS;
	case ADVICE_CASTS:
		return FINDING_CASTS;
	case ADVICE_LOGITS:
		return FINDING_LOGITS;
	case ADVICE_OUTPUTS_HELD:
		return FINDING_OUTPUTS_HELD;
	case ADVICE_DDP_BUCKETS:
		return FINDING_DDP_BUCKETS;
	case ADVICE_CACHED:
		return FINDING_CACHED;
	case ADVICE_MALLOC_FREE:
		return FINDING_MALLOC_FREE;
	case ADVICE_PINNED_CACHED:
		return FINDING_PINNED_CACHED;
	case ADVICE_PINNED_ROUNDING:
		return FINDING_PINNED_ROUNDING;
	default:
		return FINDING_NR;
	}
}

struct judging {
	const struct findings_source *source;
	struct findings *ret;
	size_t cap;
	bool models; /* the text of a leak already lists the process's models */
};

bool findings__is_whole(const struct finding *f)
{
	return f->text && f->where && f->held_by && f->sure && f->remedy;
}

void findings__free_texts(struct finding *f)
{
	free(f->text);
	free(f->where);
	free(f->held_by);
	free(f->sure);
	free(f->remedy);
}

/* Adds a finding with copies of its texts; NULL is "". Returns 0 or -ENOMEM. */
static int add_finding(struct judging *j, const struct finding *f)
{
	struct finding copy = *f;
	int err = array__grow(&j->ret->all, &j->cap, j->ret->n + 1, sizeof(*j->ret->all));

	if (err)
		return err;
	copy.text = strdup(f->text ? f->text : "");
	copy.where = strdup(f->where ? f->where : "");
	copy.held_by = strdup(f->held_by ? f->held_by : "");
	copy.sure = strdup(f->sure ? f->sure : "");
	copy.remedy = strdup(f->remedy ? f->remedy : "");
	if (!findings__is_whole(&copy)) {
		findings__free_texts(&copy);
		return -ENOMEM;
	}
	j->ret->all[j->ret->n++] = copy;
	return 0;
}

/* ---- one device ---- */

static enum finding_code code_of_growth(const struct growth_summary *s)
{
	switch (s->part) {
	case GROWTH_OF_POOL:
		return FINDING_CACHE_GROWS;
	case GROWTH_OF_OTHERS:
		return FINDING_OTHERS_GROW;
	case GROWTH_OF_PEAKS:
		return FINDING_PEAKS_GROW;
	case GROWTH_OF_CALLS:
		return FINDING_CALLS_KEEP;
	case GROWTH_OF_LINE:
		break;
	}
	return s->holder && growth_summary__of_graph(s->holder) ? FINDING_GRAPH_KEPT : FINDING_LEAK;
}

/* True if a finding about host memory repeats one about the device cpu: the same line grows.
 * Tensors on the CPU are a part of the process's host memory. */
static bool repeats_cpu(const struct findings *found, const struct finding *f)
{
	if (strcmp(f->device, "host") != 0 || !f->where || !*f->where)
		return false;
	for (size_t i = 0; i < found->n; i++)
		if (!strcmp(found->all[i].device, "cpu") && found->all[i].rate > 0 &&
		    !strcmp(found->all[i].where, f->where))
			return true;
	return false;
}

/* Adds a finding about growth. advice: the advice about it, for place and remedy; NULL: none. */
static int add_growth(struct judging *j, const struct model_device *d,
		      const struct growth_summary *s, const struct advice *advice)
{
	char said[GROWTH_SUMMARY_TEXT], holder[512] = "", models[WORDS_MODELS];
	char text[GROWTH_SUMMARY_TEXT + WORDS_MODELS + 2];
	struct finding f = {
		.code = code_of_growth(s),
		.rate = s->per_step,
		.rate_key = growth_summary__rate_key(s->clock),
		.text = growth_summary__say(s, said),
		.held_by = holder,
		.sure = (char *)trend__confidence(s->confidence),
	};

	snprintf(f.device, sizeof(f.device), "%s", d->name);
	if (s->holder)
		text__clean(holder, sizeof(holder), s->holder->text, strlen(s->holder->text));
	if (advice) {
		f.bytes = advice->saves;
		f.whole = advice->saves + advice->after;
		f.where = advice->where;
		f.remedy = advice->text;
	}
	if (s->holder && s->line && growth_summary__in_models(s->line, s->holder) &&
	    *words__models(models, sizeof(models), j->source->facts)) {
		snprintf(text, sizeof(text), "%s; %s", said, models);
		f.text = text;
		j->models = true;
	}
	return repeats_cpu(j->ret, &f) ? 0 : add_finding(j, &f);
}

/* Adds a finding about calls that kept memory within a step that has ended, such as an evaluation
 * with gradients. */
static int add_inside(struct judging *j, const struct model_device *d,
		      const struct growth_summary *s)
{
	const struct growth_inside *in = &s->growth.inside;
	char said[GROWTH_SUMMARY_TEXT], where[REPORT_TEXT];
	struct finding f = {
		.code = FINDING_CALLS_KEEP,
		.bytes = in->grown,
		.whole = d->peak_allocated,
		.rate = in->lines_per_call,
		.rate_key = "bytes_per_call",
		.text = growth_summary__inside(in, s->cwd, said),
		.where = words__location(where, &in->line->row, s->cwd, 60),
		.sure = (char *)trend__confidence(in->line->trend.confidence),
		.remedy = (char *)advice_of_calls,
	};

	snprintf(f.device, sizeof(f.device), "%s", d->name);
	return add_finding(j, &f);
}

static int add_out_of_memory(struct judging *j, size_t device, const struct model_device *d)
{
	char where[REPORT_TEXT] = "", text[REPORT_TEXT], asked[24], allocated[24], cached[24],
	     n[32];
	struct finding f = { .text = text, .where = where, .sure = "exact" };
	struct row_frame line;
	struct model_oom oom;
	size_t len;

	if (!d->ooms || !model__oom(j->source->model, device, 0, &oom))
		return 0;
	if (model__stack_line(j->source->model, oom.stack, FRAMES_USER, &line)) {
		struct row row = { .module = "",
				   .module_class = "",
				   .phase = oom.phase,
				   .source = "frame",
				   .file = line.file,
				   .func = line.func,
				   .line = line.line };

		words__location(where, &row, facts__get(j->source->facts, "cwd"), 60);
	}
	snprintf(f.device, sizeof(f.device), "%s", d->name);
	f.bytes = oom.size;
	f.whole = words__device_total(j->source->facts, d);
	text__bytes(asked, sizeof(asked), oom.size);
	text__bytes(allocated, sizeof(allocated), oom.allocated);
	if (*where)
		len = (size_t)snprintf(text, sizeof(text), "at %.200s: %s asked for, %s allocated",
				       where, asked, allocated);
	else
		len = (size_t)snprintf(text, sizeof(text), "%s asked for, %s allocated", asked,
				       allocated);
	if (oom.has_totals && oom.reserved > oom.allocated)
		snprintf(text + len, sizeof(text) - len, ", %s cached",
			 text__bytes(cached, sizeof(cached), oom.reserved - oom.allocated));
	len = strlen(text);
	if (d->ooms > 1)
		snprintf(text + len, sizeof(text) - len, "; %s in all",
			 text__count(n, sizeof(n), d->ooms));
	f.remedy = oom.has_totals && oom.reserved > oom.allocated &&
				   oom.reserved - oom.allocated >= oom.size
			   ? "use the cached memory: PYTORCH_CUDA_ALLOC_CONF="
			     "expandable_segments:True"
			   : "free what this moment holds, or make the request smaller: "
			     "`memtrace-bpf report --at oom` has every line";
	return add_finding(j, &f);
}

static int add_advice(struct judging *j, const struct model_device *d, const struct advice *a)
{
	char text[REPORT_TEXT];
	struct finding f = {
		.code = code_of_advice(a->kind),
		.bytes = a->saves,
		.whole = a->saves + a->after,
		.text = text,
		.where = a->where,
		.sure = (char *)advice_figures[a->figure],
		.remedy = a->text,
	};

	if (f.code == FINDING_NR || a->saves < WORTH_BYTES ||
	    a->saves < f.whole / 100 * WORTH_PERCENT)
		return 0;
	/* Cached memory does no harm if it is a small part of the device's memory. */
	if (f.code == FINDING_CACHED &&
	    a->saves < words__device_total(j->source->facts, d) / 100 * CACHED_PERCENT)
		return 0;
	snprintf(f.device, sizeof(f.device), "%s", a->of_host ? "host" : d->name);
	if (*a->where)
		snprintf(text, sizeof(text), "at %s: %s", a->where, a->basis);
	else
		snprintf(text, sizeof(text), "%s", a->basis);
	return add_finding(j, &f);
}

/* Adds a device's growth, or what calls within a step kept. list: its advice. */
static int judge_growth(struct judging *j, const struct model_device *d,
			const struct growth_summary *s, const struct advice_list *list)
{
	const struct advice *growth = NULL;

	for (size_t i = 0; i < list->n; i++)
		if (list->all[i].kind == ADVICE_GROWTH)
			growth = &list->all[i];
	if (s->verdict == GROWTH_VERDICT_GROWS)
		return add_growth(j, d, s, growth);
	return s->inside ? add_inside(j, d, s) : 0;
}

/* Keeps the verdict on the main device's growth as text. Returns 0 or -ENOMEM. */
static int note_growth(struct findings *ret, const struct growth_summary *s)
{
	char said[GROWTH_SUMMARY_TEXT];

	ret->judged = growth_summary__is_known(s);
	ret->growth = strdup(growth_summary__say(s, said));
	return ret->growth ? 0 : -ENOMEM;
}

/* Adds a device's findings. is_main: true for the main device, which also gets the findings about
 * host memory from its advice. */
static int judge_device(struct judging *j, size_t device, bool is_main)
{
	const struct findings_source *source = j->source;
	struct growth_summary s;
	struct advice_list list;
	struct model_device d;
	bool takes_advice;
	int err;

	model__device(source->model, device, &d);
	/* CPU memory is advised about only if it is all that the job uses. */
	takes_advice = is_main || !device__on_host(d.device);
	err = advisor__advise(source->advisor, device, source->duration, &list);
	if (err)
		return err;
	err = growth_summary__of(source->model, source->facts, device, source->duration, &s);
	if (err)
		goto free_list;
	err = add_out_of_memory(j, device, &d);
	if (err)
		goto free_growth;
	err = judge_growth(j, &d, &s, &list);
	for (size_t i = 0; i < list.n && !err; i++)
		if (list.all[i].of_host ? is_main : takes_advice)
			err = add_advice(j, &d, &list.all[i]);
	if (is_main && !err)
		err = note_growth(j->ret, &s);
free_growth:
	growth_summary__free(&s);
free_list:
	advice__free_list(&list);
	return err;
}

/* ---- the process ---- */

/* Adds a finding about several models of one class, unless a leak's text already lists them. */
static int add_models(struct judging *j)
{
	char models[WORDS_MODELS];
	struct finding f = {
		.code = FINDING_MODEL_COPIES,
		.text = models,
		.sure = "exact",
		.remedy = "drop the copies that nothing needs, or keep them on the host (.cpu())",
	};

	return *words__models(models, sizeof(models), j->source->facts) && !j->models
		       ? add_finding(j, &f)
		       : 0;
}

/* Adds growth of host memory that no line of the program has. */
static int add_host(struct judging *j)
{
	const struct leaks_opts o = { .min_confidence = GROWTH_SUMMARY_CONFIDENCE,
				      .min_growth = GROWTH_SUMMARY_LEAST };
	char text[256], rate[40], all[24], cached[24];
	struct finding f = { .device = "host", .text = text, .sure = "medium" };
	struct leaks_host h;
	int err = 0;

	leaks_host__judge(j->source->model, &o, &h);
	if (h.pinned) {
		f.code = FINDING_PINNED_GROWS;
		f.bytes = h.cached;
		f.whole = h.pinned_all;
		f.remedy = "pin tensors of one size, so that PyTorch can use its cached pinned "
			   "memory again";
		snprintf(text, sizeof(text), "%s/s of pinned memory: %s of %s are cached",
			 growth_summary__signed(rate, sizeof(rate), h.pinned_rate),
			 text__bytes(cached, sizeof(cached), h.cached),
			 text__bytes(all, sizeof(all), h.pinned_all));
		err = add_finding(j, &f);
	}
	if (!err && h.copies) {
		f.code = FINDING_COPIES_GROW;
		f.bytes = h.to > h.from ? h.to - h.from : 0;
		f.whole = h.to;
		f.remedy = "keep data that workers read in arrays or tensors instead of lists of "
			   "Python objects: reading an object writes its reference count";
		snprintf(text, sizeof(text),
			 "%s/s of private memory, resident memory is steady: pages shared with the "
			 "parent process are copied",
			 growth_summary__signed(rate, sizeof(rate), h.copied));
		err = add_finding(j, &f);
	}
	return err;
}

static double share_of(const struct finding *f)
{
	return f->whole ? (double)f->bytes / (double)f->whole : 0;
}

int findings__compare(const struct finding *a, const struct finding *b)
{
	bool fault = finding__is_fault(a->code);

	if (fault != finding__is_fault(b->code))
		return fault ? -1 : 1;
	if (fault && a->code != b->code)
		return (int)a->code - (int)b->code;
	if (share_of(a) != share_of(b))
		return share_of(a) > share_of(b) ? -1 : 1;
	return strcmp(a->device, b->device);
}

static int worst_first(const void *x, const void *y)
{
	return findings__compare(x, y);
}

int findings__judge(const struct findings_source *source, struct findings *ret)
{
	struct judging j = { .source = source, .ret = ret };
	int main = model__main_device(source->model), err = 0;

	*ret = (struct findings){ .n = 0 };
	for (size_t i = 0; i < model__devices(source->model); i++) {
		err = judge_device(&j, i, (int)i == main);
		if (err)
			goto failed;
	}
	ret->growth = ret->growth ?: strdup("no memory of PyTorch was seen");
	err = ret->growth ? add_models(&j) : -ENOMEM;
	if (err)
		goto failed;
	err = add_host(&j);
	if (err)
		goto failed;
	if (ret->n)
		qsort(ret->all, ret->n, sizeof(*ret->all), worst_first);
	for (size_t i = 0; i < ret->n; i++)
		ret->faults += finding__is_fault(ret->all[i].code);
	return 0;
failed:
	findings__free(ret);
	return err;
}

void findings__free(struct findings *f)
{
	for (size_t i = 0; i < f->n; i++)
		findings__free_texts(&f->all[i]);
	free(f->all);
	free(f->growth);
	*f = (struct findings){ .n = 0 };
}

bool findings__are_sure(const struct model *m, const struct facts *f, uint64_t now)
{
	int device = model__main_device(m);
	struct growth_summary s;
	bool sure;

	if (device < 0 || growth_summary__of(m, f, (size_t)device, now, &s))
		return false;
	if (s.verdict == GROWTH_VERDICT_GROWS)
		sure = s.confidence == TREND_HIGH && (s.part != GROWTH_OF_LINE || s.holder) &&
		       ((s.clock == GROWTH_STEPS && s.steps >= SURE_STEPS) ||
			(s.clock == GROWTH_CALLS && s.steps >= SURE_CALLS && now >= SURE_CALLS_NS));
	else
		sure = s.verdict == GROWTH_VERDICT_NONE && s.clock == GROWTH_STEPS;
	growth_summary__free(&s);
	return sure;
}
