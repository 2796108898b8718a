/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* A command's option table, with those of its children. */
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
/* Finds an option by the first len bytes of its name; getopt accepts abbreviations. NULL: none. */
const struct argp_option *options_list__named(const struct options_list *list, const char *name,
					      size_t len);
/* Finds a short option. NULL: none. */
const struct argp_option *options_list__short(const struct options_list *list, int key);
/* Returns whether it is an option that help shows. */
bool options_list__shows(const struct argp_option *o);
/* Returns whether the next argument is its value, if none follows "=". NULL: false. */
bool options_list__takes_next(const struct argp_option *o);
