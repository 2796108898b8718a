/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "report/advice.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"

#define LEAST_WIDTH 60

static void print_one(FILE *out, const struct advice *a, unsigned width)
{
	static const char indent[] = "              ", at[] = "           at ",
			  costs[] = "        costs ";
	char saves[24], after[24], first[16];

	snprintf(first, sizeof(first), "  %10s  ", text__bytes(saves, sizeof(saves), a->saves));
	text__paragraph(out, width, first, indent, "%s", a->text);
	text__paragraph(out, width, indent, indent, "%s would be %s%s%s",
			a->of_host	 ? "RSS"
			: a->of_reserved ? "reserved memory"
					 : "the peak",
			a->figure == ADVICE_ESTIMATE ? "about " : "",
			text__bytes(after, sizeof(after), a->after),
			a->figure == ADVICE_EXACT || a->figure == ADVICE_ESTIMATE ? ""
										  : " at best");
	/* One pattern of modules is in the text. */
	if (*a->where && (a->kind != ADVICE_CHECKPOINT || strchr(a->where, ',')))
		text__paragraph(out, width,
				a->kind == ADVICE_BUFFERS || a->kind == ADVICE_CHECKPOINT ? indent
											  : at,
				indent, "%s", a->where);
	text__paragraph(out, width, indent, indent, "%s", a->basis);
	if (a->costs)
		text__paragraph(out, width, costs, indent, "%s", a->costs);
}

void advice__text(FILE *out, const struct advice_list *list, size_t top, unsigned width)
{
	size_t shown = top && top < list->n ? top : list->n;
	char bytes[24];

	width = width < LEAST_WIDTH ? LEAST_WIDTH : width > 120 ? 120 : width;
	fprintf(out, "%s: ways to save memory at the peak of %s (savings do not add up)\n",
		list->device, text__bytes(bytes, sizeof(bytes), list->peak));
	for (size_t i = 0; i < shown; i++)
		print_one(out, &list->all[i], width);
	if (shown < list->n)
		fprintf(out, "  + %zu more (--top 0 shows all)\n", list->n - shown);
	if (!list->n && !list->too_long)
		fprintf(out, "  found no way to save %d %% of it\n", ADVICE_LEAST_PERCENT);
	if (list->too_long)
		fputs("  no advice: the step of the peak has too many allocations to analyse\n",
		      out);
	else if (list->others > list->peak / 2)
		fprintf(out, "  analysed %llu steps; another step has a peak of %s\n",
			(unsigned long long)list->steps,
			text__bytes(bytes, sizeof(bytes), list->others));
	if (list->unnamed)
		fprintf(out, "  %s allocated before attach could be analysed only in part\n",
			text__bytes(bytes, sizeof(bytes), list->unnamed));
}

void advice__json(struct json *j, const struct advice_list *list)
{
	json__open_array(j, "advice");
	for (size_t i = 0; i < list->n; i++) {
		const struct advice *a = &list->all[i];

		json__open_object(j, NULL);
		json__string(j, "kind", advice__kind(a->kind));
		json__uint(j, "saves_bytes", a->saves);
		json__string(j, "of",
			     a->of_host	      ? "host"
			     : a->of_reserved ? "reserved"
					      : "allocated");
		json__string(j, "figure", advice__figure(a->figure));
		json__uint(j, "peak_after", a->after);
		json__string(j, "where", a->where);
		json__string(j, "text", a->text);
		json__string(j, "basis", a->basis);
		json__string(j, "costs", a->costs);
		json__close_object(j);
	}
	json__close_array(j);
}
