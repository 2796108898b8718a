/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/outfile.h"
#include "serve/fetch/internal.h"

bool fetch__call(struct fetch_host *h, const char *method, const char *path, const char *body,
		 uint64_t after, void (*done)(void *ctx, const struct http_answer *a), void *ctx)
{
	char url[512];
	bool once = !strcmp(method, "POST");
	struct http_call c = { .method = method,
			       .url = url,
			       .body = body,
			       .most = strcmp(path, "/api/trace/list") ? FETCH_ANSWER : FETCH_LIST,
			       .fd = -1,
			       .after = after,
			       .of_host = &h->busy,
			       /* A capture that starts later is of another window. */
			       .until = once ? h->f->begin_monotonic : h->f->until,
			       .once = once,
			       .done = done,
			       .ctx = ctx };
	int err = snprintf(url, sizeof(url), "%s%s", h->is->url, path) >= (int)sizeof(url)
			  ? -ENOMEM
			  : http__call(h->f->http, &c);

	h->f->no_memory |= err;
	return !err;
}

void fetch__miss(struct fetch_process *p, const char *fmt, ...)
{
	char text[HTTP_WHY]; /* fmt's arguments may be p->why */
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	memcpy(p->why, text, sizeof(p->why));
	p->state = FETCH_MISSING;
	outfile__discard(p->file);
	p->file = NULL;
}

size_t fetch__count(const struct fetch *f, enum fetch_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		for (size_t k = 0; k < f->hosts[i].n; k++)
			n += f->hosts[i].processes[k].state == state;
	return n;
}

bool fetch__interrupted(struct fetch *f)
{
	f->interrupted |= sigtimedwait(&f->signals, NULL, &(struct timespec){ 0 }) > 0;
	return f->interrupted;
}

json_t *fetch__parse(const struct http_answer *a)
{
	return json__memory_of(a->data, a->size) > FETCH_PARSED
		       ? NULL
		       : json_loadb(a->data, a->size, 0, NULL);
}
