/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The last look at the machine's GPUs, for metrics. A look takes about a second, or longer if the
 * driver hangs. So an answer never waits for it: it shows the last one, and asks for the next. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "serve/web/web.h"

#define SECOND UINT64_C(1000000000)
#define PAUSE (5 * SECOND)	     /* between two looks */
#define PAUSE_WITHOUT (300 * SECOND) /* the same, at most, while there is no GPU */
#define GIVEN_UP (60 * SECOND)	     /* a question that has no answer for so long gets none */
#define KEPT (300 * SECOND)	     /* an older look is not shown */
#define DOCUMENT_MAX (16 << 20)	     /* bytes */

static void forget(struct web *web)
{
	json_decref(web->state.gpus);
	web->state.gpus = NULL;
}

void web_devices__renew(struct web *web)
{
	struct web_devices *d = &web->devices;

	if (web->state.gpus && web->now - d->taken > KEPT)
		forget(web);
	if (d->asked && web->now - d->asked_at < GIVEN_UP)
		return;
	if (web->now < d->next || !json_is_true(json_object_get(web->state.hello, "can_trace")))
		return;
	web->state.gpu_looks_failed += d->asked != 0;
	d->asked = ++web->last_id;
	d->asked_at = web->now;
	if (link__send(web->link,
		       json_pack("{s:I, s:s}", "id", (json_int_t)d->asked, "do", "devices"),
		       /*fd=*/-1))
		d->asked = 0;
}

/* Reads the document. NULL: it is not valid. */
static json_t *read_document(int fd)
{
	size_t size;
	char *text = fd < 0 ? NULL : io__load(fd, DOCUMENT_MAX, &size);
	json_t *doc = text ? json_loadb(text, size, 0, NULL) : NULL;

	free(text);
	if (json_is_array(json_object_get(doc, "devices")))
		return doc;
	json_decref(doc);
	return NULL;
}

bool web_devices__take(struct web *web, const json_t *answer, int fd)
{
	struct web_devices *d = &web->devices;
	const json_t *id = json_object_get(answer, "id");
	json_t *doc;
	bool none;

	if (!d->asked || !json_is_integer(id) || (json_int_t)d->asked != json_integer_value(id))
		return false;
	d->asked = 0;
	doc = read_document(fd);
	if (fd >= 0)
		close(fd);
	none = !json_array_size(json_object_get(doc, "devices"));
	/* Without a GPU, or while its driver is not ready, the pauses become longer. */
	d->pause = doc && none && d->pause ? 2 * d->pause : PAUSE;
	if (d->pause > PAUSE_WITHOUT)
		d->pause = PAUSE_WITHOUT;
	d->next = web->now + d->pause;
	web->state.gpu_looks_failed += !doc;
	web->state.gpu_looks_done += doc != NULL;
	if (none) {
		json_decref(doc);
		return true;
	}
	forget(web);
	web->state.gpus = doc;
	web->state.gpus_time = clock__date();
	d->taken = web->now;
	return true;
}
