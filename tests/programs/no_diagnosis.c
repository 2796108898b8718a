/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Preloaded: ends a program whose first argument is "diagnose" before it begins. */
#include <signal.h>
#include <string.h>

__attribute__((constructor)) static void end(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "diagnose"))
		raise(SIGKILL);
}
