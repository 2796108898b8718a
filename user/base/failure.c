/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/exit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

int failure__set(struct failure *f, int status, int err, const char *fmt, ...)
{
	char text[sizeof(f->text)];
	va_list ap;

	f->status = status;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* the message can contain the target's file names */
	text__clean(f->text, sizeof(f->text), text, strlen(text));
	return err;
}
