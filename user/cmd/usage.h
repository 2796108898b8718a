/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_CMD_USAGE_H
#define MT_CMD_USAGE_H
/* What is said of a command line that cannot be understood, the same way for every command. */
#include <argp.h>

/*
 * To be called with ARGP_KEY_INIT by a parser that every command has. From then on a complaint of
 * argp_error() ends with one line about where the command's options are listed. Ends the program
 * (exit code 64) when a long option is unknown: names the one that was probably meant.
 */
void usage__begin(struct argp_state *state);

#endif
