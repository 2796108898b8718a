/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/advice/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "model/words.h"
#include "report/advice.h"

const char *advice__kind(enum advice_kind k)
{
	static const char *const names[ADVICE_KINDS] = {
		[ADVICE_GROWTH] = "growth",
		[ADVICE_CHECKPOINT] = "checkpoint",
		[ADVICE_OPTIMIZER_8BIT] = "optimizer_8bit",
		[ADVICE_OPTIMIZER_FOREACH] = "optimizer_foreach",
		[ADVICE_GRADIENTS_LATE] = "gradients_late",
		[ADVICE_BUFFERS] = "buffers",
		[ADVICE_CASTS] = "autocast_casts",
		[ADVICE_LOGITS] = "logits",
		[ADVICE_OUTPUTS_HELD] = "outputs_held",
		[ADVICE_DDP_BUCKETS] = "ddp_buckets",
		[ADVICE_CACHED] = "cached",
		[ADVICE_MALLOC_FREE] = "malloc_free",
		[ADVICE_PINNED_CACHED] = "pinned_cached",
		[ADVICE_PINNED_ROUNDING] = "pinned_rounding",
	};

	return (unsigned)k < ADVICE_KINDS ? names[k] : "";
}

/* For qsort(): growth first, then the device's allocated memory, its reserved memory, and host
 * memory; the largest saving first. */
static int cmp_saving(const void *x, const void *y)
{
	const struct advice *a = x, *b = y;

	if ((a->kind == ADVICE_GROWTH) != (b->kind == ADVICE_GROWTH))
		return a->kind == ADVICE_GROWTH ? -1 : 1;
	if (a->of_host != b->of_host)
		return a->of_host - b->of_host;
	if (a->of_reserved != b->of_reserved)
		return a->of_reserved - b->of_reserved;
	if (a->saves != b->saves)
		return a->saves > b->saves ? -1 : 1;
	return (int)a->kind - (int)b->kind;
}

static void sort_list(struct advice_list *list)
{
	if (list->n)
		qsort(list->all, list->n, sizeof(*list->all), cmp_saving);
}

/* Advises about memory that the allocator keeps cached. Returns 0 or -ENOMEM. */
static int advise_cached(struct advising *a, const struct model_device *d)
{
	struct advice entry = { .kind = ADVICE_CACHED,
				.figure = ADVICE_UP_TO,
				.of_reserved = true };

	if (!d->has_totals || d->peak_reserved <= d->peak_allocated)
		return 0;
	entry.saves = d->peak_reserved - d->peak_allocated;
	if (entry.saves < d->peak_reserved / 20)
		return 0;
	entry.after = d->peak_allocated;
	entry.text = advice__format("other settings of the allocator (PYTORCH_CUDA_ALLOC_CONF): "
				    "`memtrace-bpf replay FILE --search` tries them");
	entry.where = advice__format("%s", "");
	entry.basis = advice__format(
		"peak reserved minus peak allocated: memory that the allocator keeps cached");
	return advising__add(a, &entry);
}

/* Adds all advice about the device's memory. Returns 0 or -ENOMEM. */
static int advise_device(struct advising *a, size_t device, const struct model_device *d)
{
	static int (*const advise[])(struct advising *) = { advice_checkpoint, advice_lasting,
							    advice_gradients, advice_step,
							    advice_casts };
	int err = advice_growth(a, device, d);

	if (err)
		return err;
	if (!a->t || !a->t->nkept || a->list->peak_too_long)
		return advise_cached(a, d);
	for (size_t i = 0; i < sizeof(advise) / sizeof(*advise); i++) {
		err = advise[i](a);
		if (err)
			return err;
	}
	return advise_cached(a, d);
}

/* Makes *copy the device's track as if it ended now, and sets a->t to it if the device has one.
 * Returns 0 or -ENOMEM. */
static int end_track(struct advising *a, struct device device, struct track *copy)
{
	for (uint32_t i = 0; i < a->v->ntracks; i++) {
		if (!device__same(a->v->tracks[i]->device, device))
			continue;
		a->t = copy;
		return track__end(a->v->tracks[i], copy);
	}
	return 0;
}

/* Sets a->highest and a->peak from the windows to replay, and what the list says about them. */
static void summarize_track(struct advising *a)
{
	const struct track *t = a->t;

	for (uint32_t i = 0; i < t->nkept; i++)
		if (!i || t->kept[i].peak > a->highest->peak)
			a->highest = &t->kept[i];
	a->peak = a->highest ? a->highest->peak : 0;
	a->list->steps = t->nkept;
	a->list->other_peak = t->other_peak;
	a->list->peak_too_long = t->other_peak > a->peak && t->too_long;
}

int advisor__advise(const struct advisor *v, size_t device, uint64_t duration,
		    struct advice_list *ret)
{
	struct advice_list list = { 0 };
	struct track at_end = { .nkept = 0 };
	struct advising advising = {
		.v = v,
		.m = v->model,
		.d = v->dict,
		.f = v->facts,
		.duration = duration,
		.list = &list,
	};
	struct model_device dev;
	int err;

	model__device(advising.m, device, &dev);
	err = end_track(&advising, dev.device, &at_end);
	if (err)
		return err;
	snprintf(list.device, sizeof(list.device), "%s", dev.name);
	list.peak = dev.peak_allocated;
	list.reserved = dev.has_totals ? dev.peak_reserved : 0;
	list.before_attach = dev.before_attach;
	list.history = model__is_snapshot(advising.m);
	if (advising.t)
		summarize_track(&advising);
	err = advise_device(&advising, device, &dev);
	if (err)
		goto fail;
	sort_list(&list); /* so that the limit drops the smallest savings */
	/* Advice about host memory comes after this limit, so that it displaces no other. */
	while (list.n > ADVICE_MOST)
		advice__free_texts(&list.all[--list.n]);
	err = advice_host(&advising);
	if (err)
		goto fail;
	sort_list(&list);
	track__release_end(&at_end);
	*ret = list;
	return 0;
fail:
	track__release_end(&at_end);
	advice__free_list(&list);
	return err;
}

void advice__free_list(struct advice_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		advice__free_texts(&list->all[i]);
	free(list->all);
	*list = (struct advice_list){ 0 };
}

/* ---- printing ---- */

#define LEAST_WIDTH 60 /* columns */
#define MOST_WIDTH 120

/* Returns the memory that the saving is of, as a JSON value or in words. */
static const char *subject_of(const struct advice *a, bool json)
{
	if (a->of_host)
		return json ? "host" : "RSS";
	if (a->of_reserved)
		return json ? "reserved" : "reserved memory";
	return json ? "allocated" : "the peak";
}

/* Prints an entry: saving and remedy, the new peak, the place, the reasons and the costs. */
static void print_advice(FILE *out, const struct advice *a, unsigned width)
{
	static const char indent[] = "              ", at[] = "           at ",
			  costs[] = "        costs ";
	const char *place = at, *about = "", *at_best = "";
	char saves[24], after[24], first[16];

	if (a->kind == ADVICE_BUFFERS || a->kind == ADVICE_CHECKPOINT)
		place = indent;
	if (a->figure == ADVICE_ESTIMATE)
		about = "about ";
	else if (a->figure == ADVICE_UP_TO)
		at_best = " at best";
	snprintf(first, sizeof(first), "  %10s  ", text__bytes(saves, sizeof(saves), a->saves));
	text__paragraph(out, width, first, indent, "%s", a->text);
	text__paragraph(out, width, indent, indent, "%s would be %s%s%s",
			subject_of(a, /*json=*/false), about,
			text__bytes(after, sizeof(after), a->after), at_best);
	/* The text of a checkpoint names a single pattern of modules already. */
	if (*a->where && (a->kind != ADVICE_CHECKPOINT || strchr(a->where, ',')))
		text__paragraph(out, width, place, indent, "%s", a->where);
	text__paragraph(out, width, indent, indent, "%s", a->basis);
	if (a->costs)
		text__paragraph(out, width, costs, indent, "%s", a->costs);
}

void advice__text(FILE *out, const struct advice_list *list, size_t top, unsigned width)
{
	size_t shown = top && top < list->n ? top : list->n;
	char bytes[24];

	if (width < LEAST_WIDTH)
		width = LEAST_WIDTH;
	if (width > MOST_WIDTH)
		width = MOST_WIDTH;
	fprintf(out, "%s: ways to save memory at the peak of %s (savings do not add up)\n",
		list->device, text__bytes(bytes, sizeof(bytes), list->peak));
	for (size_t i = 0; i < shown; i++)
		print_advice(out, &list->all[i], width);
	if (shown < list->n)
		fprintf(out, "  + %zu more (--top 0 shows all)\n", list->n - shown);
	if (!list->n && !list->peak_too_long)
		fprintf(out, "  found no way to save %d %% of it\n", ADVICE_LEAST_PERCENT);
	if (list->peak_too_long)
		fputs("  no advice: the step of the peak has too many allocations to analyse\n",
		      out);
	else if (list->other_peak > list->peak / 2)
		fprintf(out, "  analysed %llu steps; another step has a peak of %s\n",
			(unsigned long long)list->steps,
			text__bytes(bytes, sizeof(bytes), list->other_peak));
	if (list->before_attach)
		fprintf(out, "  %s allocated %s could be analysed only in part\n",
			text__bytes(bytes, sizeof(bytes), list->before_attach),
			words__before(list->history));
}

const char *const advice_figures[] = {
	[ADVICE_EXACT] = "exact", [ADVICE_ESTIMATE] = "estimate", [ADVICE_UP_TO] = "upper_bound"
};

void advice__json(struct json *j, const struct advice_list *list)
{
	json__open_array(j, "advice");
	for (size_t i = 0; i < list->n; i++) {
		const struct advice *a = &list->all[i];

		json__open_object(j, NULL);
		json__string(j, "kind", advice__kind(a->kind));
		json__uint(j, "saves_bytes", a->saves);
		json__string(j, "of", subject_of(a, /*json=*/true));
		json__string(j, "figure", advice_figures[a->figure]);
		json__uint(j, "peak_after", a->after);
		json__string(j, "where", a->where);
		json__string(j, "text", a->text);
		json__string(j, "basis", a->basis);
		json__string(j, "costs", a->costs);
		json__close_object(j);
	}
	json__close_array(j);
}
