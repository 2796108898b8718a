/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "record/mark.h"

#include <fnmatch.h>
#include <string.h>

bool mark__is(const char *name, const char *asked)
{
	return !strcmp(name, asked) || !fnmatch(asked, name, FNM_NOESCAPE);
}
