/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Patterns that cover the names of several modules. */
#include "model/model.h"

#include <string.h>

static size_t count_components(const char *s)
{
	size_t n = 1;

	for (; *s; s++)
		n += *s == '.';
	return n;
}

/* Writes the new pattern over the old one, component by component; out never passes in. */
void pattern__cover(char *pattern, const char *name)
{
	bool same_depth = count_components(pattern) == count_components(name), more = true;
	char *out = pattern, *in = pattern;

	if (!*pattern) { /* the root module's name "" has no component in common with others */
		strcpy(pattern, "*");
		return;
	}
	while (more) {
		size_t in_len = strcspn(in, ".");
		size_t name_len = strcspn(name, ".");
		bool equal = in_len == name_len && !memcmp(in, name, in_len);

		more = in[in_len] && name[name_len];
		if (equal) {
			memmove(out, in, in_len);
			out += in_len;
		} else if (in_len) {
			/* an empty component has no room for "*"; module names have none */
			*out++ = '*';
		}
		if (!same_depth && (!equal || !more)) {
			if (equal) {
				*out++ = '.';
				*out++ = '*';
			}
			break;
		}
		in += in_len + more;
		name += name_len + more;
		if (more)
			*out++ = '.';
	}
	*out = '\0';
}

/* True if the names have equally many components and the same first and last one; only those
 * between may differ. */
bool pattern__alike(const char *a, const char *b)
{
	size_t first = strcspn(a, ".");
	const char *last_a = strrchr(a, '.');
	const char *last_b = strrchr(b, '.');

	return last_a && last_b && !strcmp(last_a, last_b) &&
	       count_components(a) == count_components(b) && !strncmp(a, b, first + 1) &&
	       !strchr(a, ' ') && !strchr(b, ' ');
}
