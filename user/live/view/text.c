/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Text output of a live view. */
#include "live/view/json.h"

#include <string.h>

#include "base/text.h"
#include "live/rows/cells.h"
#include "live/rows/words.h"
#include "model/host_words.h"
#include "model/words.h"

/* As the screen: while steps run, the current value changes all the time. */
static void print_allocated(FILE *out, const struct live_proc *p, const struct model_device *d)
{
	struct model_step s;
	char a[24], b[24];

	if (!live_proc__last_step(p, (size_t)model__main_device(p->model), &s))
		fprintf(out, "allocated %s", live__bytes(a, d->allocated));
	else
		fprintf(out, "live %s  %s %s", live__bytes(a, s.end_allocated),
			model__steps_are_calls(p->model) ? "call peak" : "step peak",
			live__bytes(b, s.peak));
}

static void print_head(FILE *out, const struct live_proc *p, const struct model_device *d, bool who,
		       int width)
{
	char time[24], bytes[24], step[24], count[32], said[GROWTH_SUMMARY_TEXT];
	const struct growth_summary *growth;
	const struct model_host *host = model__host(p->model);
	char parts[1024];

	if (who)
		fprintf(out, "PID %d  ", (int)p->pid);
	fprintf(out, "%s  %s  ", text__time(time, sizeof(time), p->now), d->name);
	print_allocated(out, p, d);
	if (d->has_totals)
		fprintf(out, "  reserved %s", live__bytes(bytes, d->reserved));
	fprintf(out, "  peak %s%s", words__about(d->peak_is),
		live__bytes(bytes, d->peak_allocated));
	if (d->has_totals)
		fprintf(out, "  before attach %s", live__bytes(bytes, d->before_attach_start));
	fprintf(out, "\n  ");
	if (model__whole_steps(p->model))
		fprintf(out, "step %s (%s)  ",
			text__count(count, sizeof(count), model__whole_steps(p->model)),
			text__time(step, sizeof(step), model__step_time(p->model)));
	fprintf(out, "%s events/s", live__rate(bytes, p->rate));
	fprintf(out, "  %s lost\n", text__count(count, sizeof(count), p->lost));
	growth = live_proc__growth(p, d->device);
	if (growth && *growth_summary__brief(growth, (size_t)width - 2, said))
		fprintf(out, "  %s\n", said);
	if (host)
		fprintf(out, "  RSS %s: %s\n",
			live__bytes(bytes, host->last.sheet.part[HOST_TOTAL].bytes),
			words__cut(host_words__line(parts, sizeof(parts), &host->last.sheet),
				   (size_t)width - 18));
}

static void put(FILE *out, enum live_col c, const char *text)
{
	int room = live_columns[c].width - (int)text__width(text);

	room = room > 0 ? room : 0;
	if (live_columns[c].left)
		fprintf(out, "%s%*s ", text, room, "");
	else
		fprintf(out, "%*s%s ", room, "", text);
}

/* Prints the cells before the row's name; r NULL: the titles. Returns the remaining columns. */
static int print_cells(FILE *out, enum live_by by, const struct live_rows *rows,
		       const struct live_table *t, const struct live_row *r, int width)
{
	int module = live_cells__module_width(by, width), left = width - 1;
	char buf[24], text[REPORT_TEXT];

	for (int c = 0; c < COL_NR; c++) {
		if (!live_cells__shown(by, t->sort, width, c))
			continue;
		put(out, c, r ? live_cells__text(buf, c, r, rows) : live_cells__title(c, rows));
		left -= live_columns[c].width + 1;
	}
	if (module) {
		strcpy(text, "MODULE");
		if (r)
			words__cut_front(words__module(text, &r->row), (size_t)module - 1);
		fprintf(out, " %s%*s", text, module - (int)text__width(text), "");
		left -= module + 1;
	}
	fputc(' ', out);
	return left > 4 ? left : 4;
}

static void print_table(FILE *out, const struct live_proc *p, const struct live_rows *rows,
			const struct live_table *t, int width)
{
	const struct growth_summary *growth = live_proc__growth(p, rows->device);
	char where[REPORT_TEXT], bytes[24];
	uint64_t rest = 0;
	size_t more = 0;
	int left;

	print_cells(out, p->by, rows, t, NULL, width);
	fprintf(out, "%s\n", live_cells__where_title(p->by));
	for (size_t i = 0; i < rows->n; i++) {
		const struct live_row *r = &rows->all[i];

		if (live_table__cuts(t, i, r)) {
			rest += r->row.bytes;
			more++;
			continue;
		}
		left = print_cells(out, p->by, rows, t, r, width);
		fprintf(out, "%s\n",
			live_cells__where(where, p->by, p->facts, r, growth, left, false));
	}
	if (more && p->by != LIVE_LAYER)
		fprintf(out, "%9s  + %zu more rows\n", live__bytes(bytes, rest), more);
}

void live_text__block(FILE *out, const struct live_proc *p, const struct live_table *t, bool who,
		      int width)
{
	int device = model__main_device(p->model);
	struct model_device d;
	char bytes[24];

	if (device < 0)
		return;
	model__device(p->model, (size_t)device, &d);
	print_head(out, p, &d, who, width);
	print_table(out, p, &p->rows[p->by], t, width);
	if (p->host.n) {
		fprintf(out, "\n  host %s resident, by who mapped it\n",
			live__bytes(bytes, p->host.total));
		print_table(out, p, &p->host, t, width);
	}
	fprintf(out, "\n");
}
