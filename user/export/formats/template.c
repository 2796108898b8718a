/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/formats/template.h"

#include <stdlib.h>
#include <string.h>

const char *template__until(FILE *out, const char *html, const char *end, const char *mark)
{
	const char *at = memmem(html, end - html, mark, strlen(mark));

	if (!at)
		abort(); /* impossible: the template is built in */
	fwrite(html, 1, at - html, out);
	return at + strlen(mark);
}
