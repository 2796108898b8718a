/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The options of a command, with those of the children of its argp parser. */
#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#define OPTIONS_MAX 128

struct options_list {
	const struct argp_option *v[OPTIONS_MAX]; /* headings and hidden options, too */
	size_t n;
};

/* Fills the list in the order of the tables. */
void options_list__fill(struct options_list *list, const struct argp *argp);
/* Finds an option by its name of len bytes. NULL: none. */
const struct argp_option *options_list__named(const struct options_list *list, const char *name,
					      size_t len);
/* Finds an option by its letter. NULL: none. */
const struct argp_option *options_list__short(const struct options_list *list, int key);
/* True if the command's own help shows the option: it is neither hidden nor OPTION_COMMON. */
bool options_list__shows(const struct argp_option *o);
/* True if the option may be suggested and completed: it is not hidden. */
bool options_list__suggests(const struct argp_option *o);
/* True if the option's value is the next argument, unless it follows "=". False for NULL. */
bool options_list__takes_next(const struct argp_option *o);
