/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The html format: one page with the whole history. The template is made from page/ at build
 * time; two parts are filled in here. */
#include <errno.h>
#include <stdlib.h>

#include "assets/page.html.h"
#include "export/formats/template.h"
#include "export/page/html.h"
#include "model/growth.h"

static int html_begin(struct export_ctx *c, void **state)
{
	struct page_data *p = malloc(sizeof(*p));

	*state = p;
	if (!p)
		return -ENOMEM;
	html_moments__init(p, c);
	return growth__watch(c->model, BY_LINE);
}

static int html_event(struct export_ctx *c, void *state, const struct event *e)
{
	(void)c;
	return html_moments__event(state, e);
}

/* Reduces moments chosen during streaming to the final number. */
static int choose(struct page_data *p)
{
	int err = 0;

	while (!err && p->chosen) {
		size_t moments = 0;

		for (size_t i = 0; i < p->n; i++)
			moments += p->devices[i].n;
		if (moments <= 2 * MOMENTS_CHOSEN)
			break;
		err = html_moments__thin(p);
	}
	return err == -EFBIG ? 0 : err;
}

/* Makes the payload, as complete as the size limit allows: first without addresses, then with
 * fewer moments. */
static int make(struct page_data *p, struct bytes *payload)
{
	int err = choose(p);

	while (!err) {
		err = html_payload__make(p, payload);
		if (err || payload->n <= p->limits.payload)
			break;
		bytes__free(payload);
		if (!p->no_addresses)
			p->no_addresses = true;
		else
			err = html_moments__thin(p);
	}
	return err;
}

static int html_end(struct export_ctx *c, void *state)
{
	const char *html = packed__unpack(&asset_page_html), *end;
	struct bytes payload = { 0 };
	struct page_data *p = state;
	struct model_device d;
	bool marked = false;
	int err = model__watched(c->model);

	for (size_t i = 0; i < model__devices(c->model); i++) {
		model__device(c->model, i, &d);
		marked |= d.marked && (c->device < 0 || (size_t)c->device == i);
	}
	if (!html)
		return -ENOMEM;
	end = html + asset_page_html.full;
	if (!model__devices(c->model))
		return -ENODATA;
	if (!marked)
		return -ENOENT;
	if (!err)
		err = html_moments__end(p);
	if (!err)
		err = make(p, &payload);
	if (!err) {
		html = template__until(c->out, html, end, "<!--HEAD-->");
		err = html_head__put(p);
		html = template__until(c->out, html, end, "<!--DATA-->");
		html_payload__base64(c->out, &payload);
		fwrite(html, 1, end - html, c->out);
	}
	bytes__free(&payload);
	return err;
}

static void html_release(void *state)
{
	if (state)
		html_moments__free(state);
	free(state);
}

const struct export_format export_html = {
	.name = "html",
	.suffix = ".html",
	.help = "one page with the whole history (timeline, table, flame graph, segments), for any "
		"browser, offline",
	.next = "any browser opens it, without a network",
	.begin = html_begin,
	.event = html_event,
	.end = html_end,
	.release = html_release,
};
