/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The description of the terminal that TERM names. If the host has none, xterm's is used, which is
 * part of this program. It suits terminals that use xterm's sequences. */
#include <curses.h>
#include <stdbool.h>
#include <stdio.h>

/* Loads the description, for tigetstr() and others. False: TERM names a terminal that neither the
 * host nor this program describes. */
bool terminal__load(void);
/* newterm() with the same description. NULL: it failed. */
SCREEN *terminal__open(FILE *out, FILE *in);
