/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Advice about memory that grows from step to step: it comes first. */
#include "report/advice/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/growth_summary.h"
#include "model/words.h"

#define HOLDER_CHARS 128 /* most characters of a holder's name in the text */

const char advice_of_calls[] = "free what each call of the model keeps: without a backward pass, "
			       "use torch.no_grad() and keep numbers (loss.item())";

/* Returns the bytes that the growth has added until the end of the recording. */
static uint64_t count_grown(const struct growth_summary *s)
{
	const struct growth *g = &s->growth;
	uint64_t bytes = 0;

	if (s->part == GROWTH_OF_POOL)
		return g->reserved.trend.grown;
	if (s->part == GROWTH_OF_PEAKS)
		return g->peaks.trend.grown;
	if (s->part == GROWTH_OF_CALLS)
		return g->inside.grown;
	for (size_t i = 0; i < g->n; i++) {
		const struct growth_line *line = &g->lines[i];

		if (trend__counts(&line->trend, GROWTH_SUMMARY_CONFIDENCE))
			bytes += line->kind == GROWTH_PILES_UP
					 ? growth__in_all_steps(g, line, line->old)
					 : line->trend.grown;
	}
	return bytes;
}

/* True if private pools of CUDA graphs have most of the cached memory. */
static bool graphs_have_cache(const struct advising *a, size_t device)
{
	struct model_segments segments;
	bool has;

	if (model__segments(a->m, device, ROWS_NOW, FRAMES_USER, &segments))
		return false;
	has = model_segments__graphs_keep(&segments);
	model__free_segments(&segments);
	return has;
}

/* Returns the remedy for memory that autograd's graph keeps. holder: one of the graph's names. */
static char *graph_remedy(const struct advising *a, const struct growth_name *holder)
{
	struct model_phase backward;
	char graph[512];

	model__phase(a->m, PHASE_BACKWARD, &backward);
	return advice__format("stop the leak: %s stays; %s",
			      growth_summary__graph_words(holder->text, /*brief=*/true, graph,
							  sizeof(graph)),
			      growth_summary__graph_remedy(holder->text, backward.count > 0));
}

/* Returns the remedy for models that pile up. */
static char *models_remedy(const struct advising *a)
{
	char models[WORDS_MODELS];

	if (strstr(words__models(models, sizeof(models), a->f), "; reference cycles stay"))
		return advice__format("stop the leak: these models are in reference cycles; break "
				      "them (weakref.ref() in hooks and callbacks), or call "
				      "gc.collect() now and then");
	return advice__format("keep one copy of the model, or its state_dict() on the host");
}

/* True for the name of a device whose memory is the host's. */
static bool is_on_host(const char *device)
{
	return !strcmp(device, "cpu") || !strcmp(device, "host");
}

/* Returns the remedy for what grows, for free(). NULL if memory is short. */
static char *say_remedy(const struct advising *a, size_t device, const struct growth_summary *s)
{
	const struct growth_name *holder = s->holder;

	if (s->part == GROWTH_OF_POOL && graphs_have_cache(a, device))
		return advice__format("stop the growth of reserved memory: captures of CUDA graphs "
				      "keep a private pool each; capture once and replay, or give "
				      "all captures one pool (torch.cuda.graph_pool_handle())");
	if (s->part == GROWTH_OF_POOL)
		return advice__format(
			"stop the growth of reserved memory: PYTORCH_CUDA_ALLOC_CONF="
			"expandable_segments:True, or tensors of fewer different sizes");
	if (s->part == GROWTH_OF_PEAKS)
		return advice__format("limit the size of a batch: the peak of each %s grows, as "
				      "with inputs that get longer (truncate them, or put fewer "
				      "of them into a batch)",
				      growth_summary__unit(&s->growth));
	if (s->part == GROWTH_OF_CALLS && s->line->row.phase == PHASE_FORWARD)
		return advice__format("%s", advice_of_calls);
	if (holder && growth_summary__of_graph(holder))
		return graph_remedy(a, holder);
	if (holder && growth_summary__in_models(s->line, holder))
		return models_remedy(a);
	if (holder && strstr(holder->text, "'s cache["))
		return advice__format("stop the leak: %.*s holds more each %s; bound it "
				      "(functools.lru_cache(maxsize=N)), or call cache_clear()",
				      HOLDER_CHARS, holder->text, growth_summary__unit(&s->growth));
	if (holder && growth_summary__is_holder(holder) && is_on_host(s->device))
		return advice__format("stop the leak: %.*s holds more each %s; bound its size, or "
				      "empty it",
				      HOLDER_CHARS, holder->text, growth_summary__unit(&s->growth));
	if (holder && growth_summary__is_holder(holder))
		return advice__format("stop the leak: %.*s holds more each %s; keep numbers "
				      "(.item()) or copies on "
				      "the host (.cpu()) there, or empty it",
				      HOLDER_CHARS, holder->text, growth_summary__unit(&s->growth));
	if (holder)
		return advice__format("stop the leak: %.*s piles up; drop those that nothing needs",
				      HOLDER_CHARS, holder->text);
	if (s->line->kind == GROWTH_ENLARGED)
		return advice__format("stop the growth: this tensor is replaced by a larger one "
				      "each %s (as torch.cat does)",
				      growth_summary__unit(&s->growth));
	if (!facts__get(a->f, "python"))
		return advice__format("stop the leak: what this function allocates is never freed");
	return advice__format(
		"stop the leak: what this line allocates is never freed; "
		"`memtrace-bpf leaks -p PID` says what holds it in a running process");
}

/* Adds the advice to stop the growth s of a device. Returns 0 or -ENOMEM. */
static int add_advice(struct advising *a, size_t device, const struct growth_summary *s,
		      const struct model_device *d)
{
	bool of_pool = s->part == GROWTH_OF_POOL;
	uint64_t whole = of_pool ? d->peak_reserved : d->peak_allocated, grown = count_grown(s);
	char said[GROWTH_SUMMARY_TEXT];
	struct advice entry = {
		.kind = ADVICE_GROWTH,
		.figure = ADVICE_UP_TO,
		.of_reserved = of_pool,
		.saves = grown < whole ? grown : whole,
	};

	entry.after = whole - entry.saves;
	entry.text = say_remedy(a, device, s);
	entry.where = s->line ? advice__location(a, &s->line->row) : strdup("");
	entry.basis = advice__format("memory grows: %s", growth_summary__say(s, said));
	return advising__add(a, &entry);
}

int advice_growth(struct advising *a, size_t device, const struct model_device *d)
{
	struct growth_summary s;
	int err = growth_summary__of(a->m, a->f, device, a->duration, &s);

	if (err)
		return err == -EINVAL ? 0 : err;
	/* Memory of other libraries is not in the peak. */
	if (s.verdict == GROWTH_VERDICT_GROWS && s.part != GROWTH_OF_OTHERS)
		err = add_advice(a, device, &s, d);
	growth_summary__free(&s);
	return err;
}
