// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * CUPTI: profilers' questions about the device are not supported (gen/calls.def). The real library
 * must not load: it uses undocumented driver functions, and some versions recurse endlessly when
 * refused.
 */
#include "lib.h"

API(int, cuptiGetResultString, int result, const char **text)
{
	if (!text)
		return 1; /* CUPTI_ERROR_INVALID_PARAMETER */
	*text = result ? "not supported: this is a dry run" : "no error";
	return 0;
}
