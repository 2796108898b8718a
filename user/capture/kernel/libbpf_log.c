/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "capture/kernel.h"

#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* A verifier's log has up to 16 MiB, and its reason is at the end. */
#define LAST_LINES 40

/* Logs libbpf's messages, of a long one only the last lines. Leaves out its debug messages: an
 * attach has more than a thousand. */
__attribute__((format(printf, 2, 0))) static int print_libbpf(enum libbpf_print_level level,
							      const char *fmt, va_list ap)
{
	char *text, *at, *line;
	int breaks = 0;

	if (level == LIBBPF_DEBUG || vasprintf(&text, fmt, ap) < 0)
		return 0;
	/* Back from the end to the line break before the last lines. */
	at = text + strlen(text);
	while (at > text && breaks <= LAST_LINES) {
		at--;
		if (*at == '\n')
			breaks++;
	}
	while ((line = strsep(&at, "\n")))
		if (*line)
			log_debug("%s", line);
	free(text);
	return 0;
}

void libbpf_log__quiet(void)
{
	libbpf_set_print(print_libbpf);
}
