/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Several recordings as one page: the template of page/, with the JSON document in it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "assets/ranks.html.h"
#include "base/json.h"
#include "report/ranks/ranks.h"

#define HOLE "<!--HEAD-->"

int ranks__html(FILE *out, const struct ranks *r)
{
	const char *html = packed__unpack(&asset_ranks_html), *hole;
	struct json *j = json__new(out, false);
	int err;

	if (!html || !j) {
		json__free(j);
		return -ENOMEM;
	}
	hole = memmem(html, asset_ranks_html.full, HOLE, strlen(HOLE));
	if (!hole)
		abort(); /* impossible: the template is built in */
	fwrite(html, 1, (size_t)(hole - html), out);
	err = ranks__json(j, r, 0);
	json__free(j);
	hole += strlen(HOLE);
	fwrite(hole, 1, asset_ranks_html.full - (size_t)(hole - html), out);
	return err;
}
