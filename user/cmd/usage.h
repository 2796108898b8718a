/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CMD_USAGE_H
#define MT_CMD_USAGE_H
/* Error messages for a wrong command line, the same for every command. */
#include <argp.h>

/* Call it in ARGP_KEY_INIT of a parser that every command has. It ends messages of argp_error()
 * with a line that names the help. It exits with code 64 for an unknown long option, and
 * suggests a similar one. */
void usage__begin(struct argp_state *state);

#endif
