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

/* Programs that look for CUPTI ask before they use a device. The number of CUDA 13.2's. */
API(int, cuptiGetVersion, uint32_t *version)
{
	if (!version)
		return 1;
	*version = 130200;
	return 0;
}
