// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * CUPTI: what a profiler asks about the device is not supported (gen/calls.def). The real library
 * is kept out: it asks the driver for what is not documented, and some versions answer the refusal
 * by calling themselves without end.
 */
#include "lib.h"

API(int, cuptiGetResultString, int result, const char **text)
{
	if (!text)
		return 1; /* CUPTI_ERROR_INVALID_PARAMETER */
	*text = result ? "not supported: this is a dry run" : "no error";
	return 0;
}
