/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Groups of options in help, by task. Each entry of an argp table names its group. Help prints the
 * groups in this order, and the options of a group in the order of the tables. A command may use
 * the numbers below OPTIONS_PROCESS for groups of its own; an entry without name and key is the
 * heading of its group.
 *
 * The name of an option's value is for people and for completion: PID, FILE, FOLDER, DEVICE and
 * USER are completed as such, lower-case words between "|" are all possible values.
 */
#include <argp.h>

enum option_group {
	OPTIONS_PROCESS = 10,
	OPTIONS_COMMAND,
	OPTIONS_TIME,
	OPTIONS_RECORD,
	OPTIONS_SHOW,
	OPTIONS_PARTS,
	OPTIONS_OUTPUT,
	OPTIONS_MESSAGES
};

/* Option flag: the short help prints only the name of this option. */
#define OPTION_RARE OPTION_NO_USAGE
