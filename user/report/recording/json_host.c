/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/json.h"
#include "model/host_words.h"
#include "report/doc.h"

static void point_json(struct json *j, const char *key, const struct host_point *p)
{
	json__open_object(j, key);
	json__seconds(j, "time", p->time, 9);
	json__uint(j, "rss", p->sheet.part[HOST_TOTAL].bytes);
	host_words__json(j, &p->sheet);
	json__close_object(j);
}

void report_json__host(struct json *j, const struct model *m)
{
	const struct model_host *h = model__host(m);

	if (!h) {
		json__null(j, "host");
		return;
	}
	json__open_object(j, "host");
	json__uint(j, "readings", h->readings);
	point_json(j, "moment", &h->at_moment);
	point_json(j, "first", &h->first);
	point_json(j, "highest", &h->highest);
	point_json(j, "last", &h->last);
	json__close_object(j);
}
