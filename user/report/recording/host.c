/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The host memory of a recording: the ledger's readings. */
#include <inttypes.h>

#include "base/text.h"
#include "model/words.h"
#include "report/text.h"

#define OLD UINT64_C(1000000000) /* ns: a last reading that is older says so */

static uint64_t rss(const struct host_point *p)
{
	return p->sheet.part[HOST_TOTAL].bytes;
}

/* Writes "end 1.20 GiB", or "last read 1.20 GiB, 8.1 s before the end": the memory of the end is
 * not known then. */
static char *end_words(char *buf, size_t size, const struct model_host *h, const struct facts *f)
{
	uint64_t duration = words__fact_number(f, "duration_ns"),
		 ended = words__fact_number(f, "end_time"),
		 end = ended > duration ? ended : duration;
	char bytes[24], time[24];

	text__bytes(bytes, sizeof(bytes), rss(&h->last));
	if (end > h->last.time && end - h->last.time > OLD)
		snprintf(buf, size, "last read %s, %s before the end", bytes,
			 text__time(time, sizeof(time), end - h->last.time));
	else
		snprintf(buf, size, "end %s", bytes);
	return buf;
}

void report_text__host_line(FILE *out, const struct model *m, const struct facts *f,
			    const struct report_text_opts *o)
{
	const struct model_host *h = model__host(m);
	char bytes[24], time[24], end[96], parts[1024];
	bool device = model__find_device(m, "host") >= 0;

	if (!h)
		return;
	/* The device's line has the peak and the end. Readings are fewer. */
	text__paragraph(out, text__prose(report_text__width(out, o)), "", "  ",
			"host  %s %s RSS at %s%s%s%s%s%s(--device host)",
			device ? "highest reading" : "peak",
			text__bytes(bytes, sizeof(bytes), rss(&h->highest)),
			text__time(time, sizeof(time), h->highest.time), text__dot(),
			device ? "" : end_words(end, sizeof(end), h, f), device ? "" : text__dot(),
			host_words__line(parts, sizeof(parts), &h->highest.sheet), text__dot());
}

/* Says which parts grew most between the first and the last reading. */
static void print_growth(FILE *out, const struct model_host *h, size_t columns)
{
	char from[24], to[24], bytes[24], text[1024] = "";
	size_t at = 0;

	for (unsigned i = 1; i < HOST_PARTS_END; i++) {
		uint64_t was = h->first.sheet.part[i].bytes, is = h->last.sheet.part[i].bytes,
			 by = is > was ? is - was : was - is;

		if (by > rss(&h->last) / 100 && at < sizeof(text))
			at += snprintf(text + at, sizeof(text) - at, "%s%s %c%s", at ? ", " : "",
				       host_words__part(i), is > was ? '+' : '-',
				       text__bytes(bytes, sizeof(bytes), by));
	}
	if (h->readings < 2)
		return;
	text__paragraph(out, columns, "", "  ", "from %s to %s: %s",
			text__time(from, sizeof(from), h->first.time),
			text__time(to, sizeof(to), h->last.time),
			at ? text : "no part changed by more than 1 % of RSS");
}

int report_text__host(FILE *out, const struct model *m, const struct report_text_opts *o)
{
	const struct model_host *h = model__host(m);
	const struct host_point *p;
	unsigned width = report_text__width(out, o);
	char bytes[24], time[24], n[32];
	int err;

	if (!h)
		return 0;
	p = &h->at_moment;
	fprintf(out, "\nHost memory at %s: %s resident (RSS), %s of %s readings\n\n",
		text__time(time, sizeof(time), p->time), text__bytes(bytes, sizeof(bytes), rss(p)),
		p->time == h->highest.time ? "the highest" : "one",
		text__count(n, sizeof(n), h->readings));
	err = host_words__table(out, &p->sheet, width);
	if (!err)
		print_growth(out, h, text__prose(width));
	return err;
}
