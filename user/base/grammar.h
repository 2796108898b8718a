/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The words that options of the command line and the HTTP API share. Each list names its words
 * once; the macros make an array of names or a regular expression of a list. Expressions are
 * extended regular expressions that JavaScript reads as well, except for [:cntrl:], which
 * openapi.c translates.
 */

/* --by, in the order of enum group (model/model.h). */
#define GROUP_WORDS(first, next)                                                                   \
	first(line) next(stack) next(module) next(layer) next(phase) next(thread) next(category)   \
		next(scope)
/* Words of --by that may be combined: "category,module". */
#define SPLIT_WORDS(first, next)                                                                   \
	first(line) next(module) next(phase) next(thread) next(category) next(scope)
/* --by of leaks. */
#define LEAK_GROUP_WORDS(first, next) first(line) next(stack) next(module) next(category)
/* --at, in the order of enum moment (model/model.h). */
#define MOMENT_WORDS(first, next) first(peak) next(end) next(oom)
/* Export formats, in the order of help. */
#define EXPORT_WORDS(first, next)                                                                  \
	first(html) next(flamegraph) next(folded) next(speedscope) next(timeline) next(perfetto)   \
		next(pprof) next(otlp) next(snapshot) next(tensorboard) next(openmetrics)          \
			next(csv) next(ndjson)

#define WORD_ITEM(word) #word, /* an item of an array of names */
#define WORD_ARRAY(words) words(WORD_ITEM, WORD_ITEM)
#define WORD_FIRST(word) #word
#define WORD_NEXT(word) "|" #word
#define WORD_CHOICE(words) words(WORD_FIRST, WORD_NEXT) /* "a|b|c" */

/* The expression for a moment. `name` is the expression for one character of a mark's name, which
 * has at most 127 bytes. */
#define MOMENT(name)                                                                               \
	"(" WORD_CHOICE(                                                                           \
		MOMENT_WORDS) "|[0-9]{1,9}(\\.[0-9]{1,9})?(ns|us|ms|s|m|min|h|d)?|mark:" name      \
			      "{1,127})"
#define COMBINED_GROUPS "(" WORD_CHOICE(SPLIT_WORDS) ")(,(" WORD_CHOICE(SPLIT_WORDS) ")){1,5}"

#define PATTERN_AT "^" MOMENT("[^[:cntrl:]]") "$"
/* The expression for one moment, or two: OLD,NEW. */
#define PATTERN_AT_PAIR "^" MOMENT("[^,[:cntrl:]]") "(," MOMENT("[^,[:cntrl:]]") ")?$"
#define PATTERN_GROUPS "^(" WORD_CHOICE(GROUP_WORDS) "|segment|" COMBINED_GROUPS ")$"
/* Groups of report --together. */
#define PATTERN_GROUPS_TOGETHER "^(" WORD_CHOICE(SPLIT_WORDS) "|layer|" COMBINED_GROUPS ")$"
#define PATTERN_DEVICE "^(cpu|host|[a-z]{1,9}:[0-9]{1,3})$"

/* Descriptions of what the expressions accept, for help and messages. */
#define HELP_AT                                                                                    \
	"peak (default), end, oom, seconds since the capture's start, or mark:NAME (at most "      \
	"127 bytes)"
#define HELP_AT_PAIR HELP_AT "; OLD,NEW: one for each recording"
#define HELP_COMBINED                                                                              \
	"several of line, module, phase, thread, category and scope with commas, such as "         \
	"module,category"
#define HELP_GROUPS                                                                                \
	"line (default), stack, module, layer, phase, thread, category, scope, segment, "          \
	"or " HELP_COMBINED
#define HELP_GROUPS_TOGETHER                                                                       \
	"line (default), module, layer, phase, thread, category, scope, or " HELP_COMBINED
