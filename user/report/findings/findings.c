/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Turns growth, advice and failed allocations of one recording into findings. */
#include "report/findings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/growth_summary.h"
#include "model/words.h"
#include "record/detail.h"
#include "record/dict.h"
#include "record/files.h"
#include "record/oom.h"
#include "report/advice.h"
#include "report/findings/internal.h"

/* Least saving that is a finding: percent of the peak, and bytes. */
#define WORTH_PERCENT 10
#define WORTH_BYTES (UINT64_C(1) << 20)
/* Least saving of cached memory that is a finding, in percent of the device's memory. */
#define CACHED_PERCENT 5
/* Least memory that came once and is mentioned, in percent of the peak. */
#define ONCE_PERCENT 2
/* Least share of the job's time that tracing added for a finding. */
#define TRACING_SHARE 0.05
/* Steps, or calls of the model, after which growth of high confidence ends a capture. Calls also
 * need SURE_CALLS_NS, because a long step may begin with many of them. */
#define SURE_STEPS 24
#define SURE_CALLS 100
#define SURE_CALLS_NS UINT64_C(5000000000) /* 5 s */
#define HOST_LEAST (UINT64_C(8) << 20)	   /* growth of host memory worth a longer look, bytes */
#define HOST_OBSERVED 40		   /* measured values that make it unnecessary */

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

/* Writes the line of user code that called the model of a stack, or findings__place(). Returns
 * buf. */
static char *write_caller(const struct findings_source *source, uint32_t stack,
			  char buf[REPORT_TEXT])
{
	struct dict_stack frames = dict__get_stack(source->dict, stack);
	uint32_t i_model = frames.n;

	for (uint32_t i = 0; i < frames.n; i++) /* from the innermost frame on */
		if (frames.frames[i].module)
			i_model = i;
	for (uint32_t i = i_model + 1; i < frames.n; i++) {
		struct dict_loc loc = dict__get_loc(source->dict, frames.frames[i].loc);
		struct row_frame line = { .file = dict__str(source->dict, loc.file),
					  .func = dict__str(source->dict, loc.func),
					  .line = loc.line };

		if (loc.line && files__origin(line.file, source->facts) == FILE_USER)
			return findings__write_line(source, &line, buf);
	}
	return findings__place(source, stack, buf);
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

/* Adds a finding about growth. advice: the advice about it, for place and remedy; NULL: none.
 * Returns 0 or -ENOMEM. */
static int add_growth(struct judging *j, const struct model_device *d,
		      const struct growth_summary *s, const struct advice *advice)
{
	char said[GROWTH_SUMMARY_TEXT], holder[512] = "", models[WORDS_MODELS];
	char text[GROWTH_SUMMARY_TEXT + WORDS_MODELS + 2];
	struct finding finding = {
		.code = code_of_growth(s),
		.rate = s->per_step,
		.rate_key = growth_summary__rate_key(s->clock),
		.text = growth_summary__say(s, said),
		.held_by = holder,
		.sure = (char *)trend__confidence(s->confidence),
	};

	snprintf(finding.device, sizeof(finding.device), "%s", d->name);
	if (s->full_known) {
		finding.full_in_steps = s->steps_left;
		finding.full_in_seconds = s->seconds_left;
	}
	if (s->holder)
		text__clean(holder, sizeof(holder), s->holder->text, strlen(s->holder->text));
	if (advice) {
		finding.bytes = advice->saves;
		finding.whole = advice->saves + advice->after;
		finding.where = advice->where;
		finding.remedy = advice->text;
	}
	if (s->holder && s->line && growth_summary__in_models(s->line, s->holder) &&
	    *words__models(models, sizeof(models), j->source->facts)) {
		snprintf(text, sizeof(text), "%s; %s", said, models);
		finding.text = text;
		j->models = true;
	}
	return findings__add(j, &finding);
}

/* Adds a finding about calls that kept memory within a step that has ended, such as an evaluation
 * with gradients. Returns 0 or -ENOMEM. */
static int add_inside(struct judging *j, const struct model_device *d,
		      const struct growth_summary *s)
{
	const struct growth_inside *in = &s->growth.inside;
	char said[GROWTH_SUMMARY_TEXT], where[REPORT_TEXT];
	struct finding finding = {
		.code = FINDING_CALLS_KEEP,
		.bytes = in->grown,
		.whole = d->peak_allocated,
		.rate = in->lines_per_call,
		.rate_key = "bytes_per_call",
		.text = growth_summary__inside(in, s->cwd, said),
		.where = words__location(where, &in->line->row, s->cwd, /*columns=*/60),
		.sure = (char *)trend__confidence(in->line->trend.confidence),
		.remedy = (char *)advice_of_calls,
	};

	snprintf(finding.device, sizeof(finding.device), "%s", d->name);
	return findings__add(j, &finding);
}

/* Returns what to do about a failed allocation. What grows needs more than the cached memory soon.
 * inside: a library made the request, so the user's lines may be too few to choose from. */
static char *remedy_of_oom(const struct model_oom *oom, const struct growth_summary *growth,
			   bool inside)
{
	uint64_t cached_bytes = oom->has_totals && oom->reserved > oom->allocated
					? oom->reserved - oom->allocated
					: 0;
	/* A few percent are gone with the next request. */
	bool cached = cached_bytes && cached_bytes >= oom->size &&
		      cached_bytes >= oom->reserved / 10;

	if (growth->verdict == GROWTH_VERDICT_GROWS && cached)
		return "stop the growth, the finding after this one; until then "
		       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True uses the cached memory";
	if (growth->verdict == GROWTH_VERDICT_GROWS)
		return "stop the growth, the finding after this one; `memtrace-bpf report --at "
		       "oom` has every line";
	if (words__oom_fits(oom))
		return "the free memory is another stream's or pool's: allocate on one stream, or "
		       "call torch.cuda.empty_cache() when the other one is done; `memtrace-bpf "
		       "report --at oom` has all pools";
	if (cached)
		return "use the cached memory: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
	if (inside)
		return "free what this moment holds, or make the request smaller: `memtrace-bpf "
		       "report --at oom --frames all` has every line, also of libraries";
	return "free what this moment holds, or make the request smaller: `memtrace-bpf report "
	       "--at oom` has every line";
}

/* Adds the largest tensor of the failed call to a finding's text. Without memory for it, nothing. */
static void add_largest_tensor(const struct judging *j, const struct model_oom *oom,
			       const char *device, char text[REPORT_TEXT])
{
	struct oom_tensors tensors;
	char tensor[WORDS_TENSOR];
	size_t len = strlen(text);

	words__oom_tensors(j->source->model, j->source->facts, oom, FRAMES_USER, &tensors);
	if (tensors.n)
		snprintf(text + len, REPORT_TEXT - len, "; largest tensor there: %s",
			 words__oom_tensor(tensor, &tensors.v[0], device));
	oom__free(&tensors);
}

/* Adds a finding about the first request that failed. Returns 0 or -ENOMEM. */
static int add_out_of_memory(struct judging *j, size_t device, const struct model_device *d,
			     const struct growth_summary *growth)
{
	char where[REPORT_TEXT] = "", text[REPORT_TEXT], inside[REPORT_TEXT], asked[24],
	     allocated[24], cached[24], times[32];
	struct finding finding = { .text = text, .where = where, .sure = "exact" };
	struct model_oom oom;
	size_t len;

	if (!d->ooms || !model__oom(j->source->model, device, 0, &oom))
		return 0;
	findings__place(j->source, oom.stack, where);
	snprintf(finding.device, sizeof(finding.device), "%s", d->name);
	finding.bytes = oom.size;
	finding.whole = words__device_total(j->source->facts, d);
	words__oom_inside(inside, j->source->model, j->source->facts, &oom);
	text__bytes(asked, sizeof(asked), oom.size);
	text__bytes(allocated, sizeof(allocated), oom.allocated);
	len = findings__at(text, where);
	len += (size_t)snprintf(text + len, sizeof(text) - len, "%s asked for%s, %s allocated",
				asked, inside, allocated);
	if (oom.has_totals && oom.reserved > oom.allocated)
		snprintf(text + len, sizeof(text) - len, ", %s cached",
			 text__bytes(cached, sizeof(cached), oom.reserved - oom.allocated));
	len = strlen(text);
	if (d->ooms > 1)
		snprintf(text + len, sizeof(text) - len, "; %s in all",
			 text__count(times, sizeof(times), d->ooms));
	add_largest_tensor(j, &oom, d->name, text);
	finding.remedy = remedy_of_oom(&oom, growth, *inside != '\0');
	return findings__add(j, &finding);
}

/* Adds a finding if the first request failed although enough memory was cached, in pieces. Returns
 * 0 or -ENOMEM. */
static int add_fragments(struct judging *j, size_t device, const struct model_device *d)
{
	char text[REPORT_TEXT], cached[24], asked[24], gap[24];
	struct fragments fragments;
	struct model_oom oom;
	struct finding finding = { .code = FINDING_FRAGMENTATION,
				   .text = text,
				   .where = fragments.where,
				   .sure = "estimate",
				   .remedy = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or "
					     "allocate what lasts before what comes and goes" };
	size_t len;
	int err;

	if (!d->ooms || !model__oom(j->source->model, device, 0, &oom) || !oom.has_totals ||
	    oom.reserved < oom.allocated)
		return 0;
	finding.bytes = oom.reserved - oom.allocated;
	if (finding.bytes < oom.size || (oom.gap_known && oom.largest_gap >= oom.size))
		return 0;
	/* If less was cached, memory outside of PyTorch is the reason. */
	if (finding.bytes < oom.reserved / 100 * WORTH_PERCENT)
		return 0;
	err = fragments__find(j->source, device, &fragments);
	if (err)
		return err;
	finding.whole = oom.reserved;
	snprintf(finding.device, sizeof(finding.device), "%s", d->name);
	len = (size_t)snprintf(text, sizeof(text), "%s were cached when %s were asked for",
			       text__bytes(cached, sizeof(cached), finding.bytes),
			       text__bytes(asked, sizeof(asked), oom.size));
	if (oom.gap_known)
		len += (size_t)snprintf(text + len, sizeof(text) - len, ", in pieces of at most %s",
					text__bytes(gap, sizeof(gap), oom.largest_gap));
	if (*fragments.where && fragments.of_line > fragments.stuck / 2)
		snprintf(text + len, sizeof(text) - len,
			 "; at the peak, most of the free pieces were between blocks of %.200s",
			 fragments.where);
	return findings__add(j, &finding);
}

/* Adds a finding about advice, if its saving is worth one. Returns 0 or -ENOMEM. */
static int add_advice(struct judging *j, const struct model_device *d, const struct advice *advice)
{
	char text[REPORT_TEXT];
	struct finding finding = {
		.code = code_of_advice(advice->kind),
		.bytes = advice->saves,
		.whole = advice->saves + advice->after,
		.text = text,
		.where = advice->where,
		.sure = (char *)advice_figures[advice->figure],
		.remedy = advice->text,
	};

	if (finding.code == FINDING_NR || advice->saves < WORTH_BYTES ||
	    advice->saves < finding.whole / 100 * WORTH_PERCENT)
		return 0;
	/* Cached memory does no harm if it is a small part of the device's memory. */
	if (finding.code == FINDING_CACHED &&
	    advice->saves < words__device_total(j->source->facts, d) / 100 * CACHED_PERCENT)
		return 0;
	snprintf(finding.device, sizeof(finding.device), "%s", advice->of_host ? "host" : d->name);
	if (*advice->where)
		snprintf(text, sizeof(text), "at %s: %s", advice->where, advice->basis);
	else
		snprintf(text, sizeof(text), "%s", advice->basis);
	return findings__add(j, &finding);
}

/* Adds a finding about calls of the model that keep activations for a backward that does not
 * run. Returns 0 or -ENOMEM. */
static int add_thrown_graphs(struct judging *j, size_t device, const struct model_device *d)
{
	char where[REPORT_TEXT], text[REPORT_TEXT], kept[24], count[32];
	struct thrown_graphs thrown;
	size_t len;
	struct finding finding = {
		.code = FINDING_NO_GRAD,
		.whole = d->peak_allocated,
		.text = text,
		.where = where,
		.sure = (char *)advice_figures[ADVICE_UP_TO],
		.remedy = "call the model in torch.no_grad() or torch.inference_mode()",
	};

	if (!advisor__thrown_graphs(j->source->advisor, device, &thrown) ||
	    thrown.kept < WORTH_BYTES || thrown.kept < finding.whole / 100 * WORTH_PERCENT)
		return 0;
	finding.bytes = thrown.kept;
	snprintf(finding.device, sizeof(finding.device), "%s", d->name);
	write_caller(j->source, thrown.stack, where);
	len = findings__at(text, where);
	snprintf(text + len, sizeof(text) - len,
		 "%s of the model kept activations for a backward that did not run, up to %s each",
		 text__counted(count, sizeof(count), thrown.calls, "call"),
		 text__bytes(kept, sizeof(kept), thrown.kept));
	return findings__add(j, &finding);
}

/* Adds memory that is not needed, although it does not grow. Returns 0 or -ENOMEM. */
static int add_excess(struct judging *j, size_t device, const struct model_device *d)
{
	int err = add_thrown_graphs(j, device, d);

	return err ? err : duplicates__add(j, device, d);
}

/* Adds a device's growth, or what calls within a step kept. list: its advice. Returns 0 or -ENOMEM.
 */
static int judge_growth(struct judging *j, const struct model_device *d,
			const struct growth_summary *summary, const struct advice_list *list)
{
	const struct advice *growth = NULL;
	struct growth_summary tensors;
	int err;

	for (size_t i = 0; i < list->n; i++)
		if (list->all[i].kind == ADVICE_GROWTH)
			growth = &list->all[i];
	if (summary->verdict == GROWTH_VERDICT_GROWS && host_findings__is_pinned(j, summary)) {
		if (j->pinned)
			return 0;
		return host_findings__add_pinned(j, summary, growth ? growth->where : NULL);
	}
	if (summary->verdict == GROWTH_VERDICT_GROWS && d->device.type == DEVICE_HOST &&
	    host_findings__tensors_grow(j, &tensors)) {
		err = host_findings__add_beside(j, d, summary, &tensors);
		growth_summary__free(&tensors);
		return err;
	}
	if (summary->verdict == GROWTH_VERDICT_GROWS)
		return add_growth(j, d, summary, growth);
	return summary->inside ? add_inside(j, d, summary) : 0;
}

/* Keeps the verdict on the main device's growth as text. Returns 0 or -ENOMEM. */
static int note_growth(struct findings *ret, const struct growth_summary *s)
{
	char said[GROWTH_SUMMARY_TEXT];

	ret->judged = growth_summary__is_known(s);
	ret->growth = strdup(growth_summary__say(s, said));
	return ret->growth ? 0 : -ENOMEM;
}

/* Appends "NAME SIZE" to a list if it is worth a mention. */
static void append_once(char *list, size_t size, const char *name, uint64_t bytes, uint64_t peak)
{
	size_t len = strlen(list);
	char text[24];

	if (bytes < WORTH_BYTES || bytes < peak / 100 * ONCE_PERCENT)
		return;
	snprintf(list + len, size - len, "%s%s %s", len ? ", " : "", name,
		 text__bytes(text, sizeof(text), bytes));
}

/* Writes what the first steps add to a job that does not grow: people take it for a leak. Memory
 * from before the first event came earlier. Returns 0 or -ENOMEM. */
static int note_once(const struct judging *j, size_t device, const struct model_device *d)
{
	static const enum category lasting[] = { CATEGORY_OPTIMIZER_STATE, CATEGORY_WORKSPACE,
						 CATEGORY_BUCKET };
	uint64_t bytes[CATEGORY_NR] = { 0 };
	struct findings *ret = j->ret;
	struct model_segments segments;
	struct live_block *all;
	size_t n;
	int err = model__live_blocks(j->source->model, device, ROWS_NOW, &all, &n);

	if (err)
		return err == -ENOENT ? 0 : err;
	for (size_t i = 0; i < n; i++)
		bytes[all[i].category] += all[i].older ? 0 : all[i].size;
	free(all);
	for (size_t i = 0; i < sizeof(lasting) / sizeof(*lasting); i++)
		append_once(ret->once, sizeof(ret->once), words__role(category__name(lasting[i])),
			    bytes[lasting[i]], d->peak_allocated);
	if (device__on_host(d->device))
		return 0;
	err = model__segments(j->source->model, device, ROWS_NOW, FRAMES_USER, &segments);
	if (err)
		return err == -ENOMEM ? err : 0;
	append_once(ret->once, sizeof(ret->once), "libraries", segments.others_bytes,
		    d->peak_allocated);
	model__free_segments(&segments);
	return 0;
}

/* Adds a device's findings. is_main: true for the main device, which also gets the findings about
 * host memory from its advice, and the verdict on growth. Returns 0 or -ENOMEM. */
static int judge_device(struct judging *j, size_t device, bool is_main)
{
	const struct findings_source *source = j->source;
	struct growth_summary growth;
	struct advice_list advice;
	struct model_device dev;
	bool takes_advice;
	int err;

	model__device(source->model, device, &dev);
	/* CPU memory is advised about only if it is all that the job uses. */
	takes_advice = is_main || !device__on_host(dev.device);
	err = advisor__advise(source->advisor, device, source->duration, &advice);
	if (err)
		return err;
	err = growth_summary__of(source->model, source->facts, device, source->duration, &growth);
	if (err)
		goto free_list;
	err = add_out_of_memory(j, device, &dev, &growth);
	if (err)
		goto free_growth;
	err = add_fragments(j, device, &dev);
	if (err)
		goto free_growth;
	err = driver_findings__add(j, device, &dev);
	if (err)
		goto free_growth;
	err = judge_growth(j, &dev, &growth, &advice);
	if (err)
		goto free_growth;
	if (takes_advice) {
		err = add_excess(j, device, &dev);
		if (err)
			goto free_growth;
	}
	for (size_t i = 0; i < advice.n && !err; i++)
		if (advice.all[i].of_host ? is_main : takes_advice)
			err = add_advice(j, &dev, &advice.all[i]);
	if (is_main && !err)
		err = note_growth(j->ret, &growth);
	if (is_main && !err && growth.verdict == GROWTH_VERDICT_NONE)
		err = note_once(j, device, &dev);
free_growth:
	growth_summary__free(&growth);
free_list:
	advice__free_list(&advice);
	return err;
}

/* ---- the process ---- */

/* Adds a finding about several models of one class, unless a leak's text already lists them.
 * Returns 0 or -ENOMEM. */
static int add_models(struct judging *j)
{
	char models[WORDS_MODELS];
	struct finding f = {
		.code = FINDING_MODEL_COPIES,
		.text = models,
		.sure = "exact",
		.remedy = "drop the copies that nothing needs, or keep them on the host (.cpu())",
	};

	if (j->models || !*words__models(models, sizeof(models), j->source->facts))
		return 0;
	return findings__add(j, &f);
}

/* Adds what tracing added to the job's time, if it was measured and was more than a little, or if
 * detail was left out. Returns 0 or -ENOMEM. */
static int add_tracing(struct judging *j)
{
	char text[DETAIL_TEXT];
	struct finding f = {
		.code = FINDING_TRACING,
		.text = text,
		.sure = "estimate",
		.remedy = "capture for a shorter time, or look at one moment: memtrace-bpf dump",
	};
	struct detail detail;

	if (!detail__read(j->source->facts, &detail) ||
	    (detail.share < TRACING_SHARE && !detail.steps && !detail.n))
		return 0;
	return *detail__sentence(text, sizeof(text), j->source->facts) ? findings__add(j, &f) : 0;
}

static double share_of(const struct finding *f)
{
	return f->whole ? (double)f->bytes / (double)f->whole : 0;
}

/* Place of a fault: by its code, but growth of host memory after a graph that is kept. The graph's
 * nodes are host memory, so the graph may be the cause. */
static int place_of(const struct finding *f)
{
	bool of_host = f->code == FINDING_LEAK && !strcmp(f->device, "host");

	return of_host ? 2 * FINDING_GRAPH_KEPT + 1 : 2 * (int)f->code;
}

int findings__compare(const struct finding *a, const struct finding *b)
{
	bool fault = finding__is_fault(a->code);

	if (fault != finding__is_fault(b->code))
		return fault ? -1 : 1;
	if (fault && place_of(a) != place_of(b))
		return place_of(a) - place_of(b);
	if ((a->code == FINDING_TRACING) != (b->code == FINDING_TRACING))
		return a->code == FINDING_TRACING ? 1 : -1;
	if (share_of(a) != share_of(b))
		return share_of(a) > share_of(b) ? -1 : 1;
	return strcmp(a->device, b->device);
}

static int worst_first(const void *x, const void *y)
{
	return findings__compare(x, y);
}

/* Replaces the verdict about growth if the recording lacks PyTorch's tensors. Returns 0 or -ENOMEM.
 */
static int unjudge_tensors(const struct facts *f, struct findings *ret)
{
	if (!facts__get(f, "torch_came"))
		return 0;
	free(ret->growth);
	ret->growth = strdup("PyTorch was imported after the attach, and its tensors are not "
			     "recorded");
	ret->judged = false;
	return ret->growth ? 0 : -ENOMEM;
}

int findings__judge(const struct findings_source *source, struct findings *ret)
{
	struct judging j = { .source = source, .ret = ret };
	int main = model__main_device(source->model), err = 0;

	*ret = (struct findings){ .n = 0 };
	host_findings__judge(&j);
	for (size_t i = 0; i < model__devices(source->model); i++) {
		struct model_device d;

		/* Its memory is a part of the device host, and begins with nothing at attach. */
		model__device(source->model, i, &d);
		if (d.device.type == DEVICE_MALLOC)
			continue;
		err = judge_device(&j, i, (int)i == main);
		if (err)
			goto failed;
	}
	ret->growth = ret->growth ?: strdup("no memory of PyTorch was seen");
	err = ret->growth ? add_models(&j) : -ENOMEM;
	if (err)
		goto failed;
	err = host_findings__add(&j);
	if (err)
		goto failed;
	err = unjudge_tensors(source->facts, ret);
	if (err)
		goto failed;
	err = add_tracing(&j);
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

/* True if an eighth of the growth, or more, is in the last quarter of the values. */
static bool still_rises(const struct growth *g)
{
	const uint64_t *values = g->allocated.values;
	size_t n = g->values, recent = n / 4;
	uint64_t grown, grown_lately;

	if (!recent || values[n - 1] <= values[n - 1 - recent])
		return false;
	grown = values[n - 1] > values[0] ? values[n - 1] - values[0] : 0;
	grown_lately = values[n - 1] - values[n - 1 - recent];
	return grown_lately >= grown / 8;
}

/* Bytes from the first value to the last; 0: it shrank. */
static uint64_t risen(const struct growth *g)
{
	const uint64_t *values = g->allocated.values;

	return g->values && values[g->values - 1] > values[0] ? values[g->values - 1] - values[0]
							      : 0;
}

bool findings__host_may_grow(const struct model *m, const struct facts *f, uint64_t now)
{
	int device = model__find_device(m, "host");
	struct growth_summary s;
	bool may;

	if (device < 0 || growth_summary__of(m, f, (size_t)device, now, &s))
		return false;
	may = s.verdict != GROWTH_VERDICT_GROWS && s.growth.observed < HOST_OBSERVED &&
	      still_rises(&s.growth) && risen(&s.growth) >= HOST_LEAST;
	growth_summary__free(&s);
	return may;
}

/* True if host memory may have a leak of its own beside these tensors on the CPU, and is measured
 * too shortly to say so. */
static bool host_may_grow_beside(const struct model *m, const struct facts *f, uint64_t now,
				 const struct growth_summary *tensors)
{
	int device = model__find_device(m, "host");
	struct growth_summary s;
	bool may;

	if (device < 0 || strcmp(tensors->device, "cpu") != 0 ||
	    growth_summary__of(m, f, (size_t)device, now, &s))
		return false;
	may = s.growth.observed < HOST_OBSERVED && still_rises(&s.growth) &&
	      risen(&s.growth) >= risen(&tensors->growth) + HOST_LEAST;
	growth_summary__free(&s);
	return may;
}

/* True for growth of high confidence in enough steps or calls. Growth of a line needs a holder,
 * too. now: ns since the start. */
static bool is_sure_growth(const struct growth_summary *s, uint64_t now)
{
	bool explained = s->part != GROWTH_OF_LINE || s->holder;

	if (s->confidence != TREND_HIGH || !explained)
		return false;
	if (s->clock == GROWTH_CALLS)
		return s->steps >= SURE_CALLS && now >= SURE_CALLS_NS;
	return s->clock == GROWTH_STEPS && s->steps >= SURE_STEPS;
}

bool findings__are_sure(const struct model *m, const struct facts *f, uint64_t now)
{
	int device = model__main_device(m);
	struct growth_summary s;
	bool sure;

	if (device < 0 || growth_summary__of(m, f, (size_t)device, now, &s))
		return false;
	if (s.verdict == GROWTH_VERDICT_GROWS)
		sure = is_sure_growth(&s, now) && !host_may_grow_beside(m, f, now, &s);
	else
		sure = s.verdict == GROWTH_VERDICT_NONE && s.clock == GROWTH_STEPS &&
		       !findings__host_may_grow(m, f, now);
	growth_summary__free(&s);
	return sure;
}
