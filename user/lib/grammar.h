/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * The words of options that the command line and the HTTP API share. Each list names its words
 * once; the macros make an array of names or a regular expression of a list. Expressions are
 * extended regular expressions that JavaScript reads as well.
 */

/* --by, in the order of enum group (model/model.h). */
#define GROUP_WORDS(first, next)                                                                   \
	first(line) next(stack) next(module) next(layer) next(phase) next(thread) next(category)
/* Words of --by that may be combined: "category,module". */
#define SPLIT_WORDS(first, next) first(line) next(module) next(phase) next(thread) next(category)
/* --at, in the order of enum moment (model/model.h). */
#define MOMENT_WORDS(first, next) first(peak) next(end) next(oom)
/* Export formats, in the order of help. */
#define EXPORT_WORDS(first, next)                                                                  \
	first(html) next(flamegraph) next(folded) next(speedscope) next(timeline) next(perfetto)   \
		next(pprof) next(snapshot) next(tensorboard) next(openmetrics) next(csv)           \
			next(ndjson)

#define WORD_ITEM(word) #word, /* of an array */
#define WORD_ARRAY(words) words(WORD_ITEM, WORD_ITEM)
#define WORD_FIRST(word) #word
#define WORD_NEXT(word) "|" #word
#define WORD_CHOICE(words) words(WORD_FIRST, WORD_NEXT) /* "a|b|c" */

#define PATTERN_AT "^(" WORD_CHOICE(MOMENT_WORDS) "|[0-9]{1,9}(\\.[0-9]{1,9})?)$"
#define PATTERN_GROUP "^(" WORD_CHOICE(GROUP_WORDS) ")$"
#define PATTERN_GROUPS                                                                             \
	"^(" WORD_CHOICE(GROUP_WORDS) "|segment|(" WORD_CHOICE(SPLIT_WORDS) ")(,(" WORD_CHOICE(    \
		SPLIT_WORDS) ")){1,4})$"
#define PATTERN_DEVICE "^(cpu|host|[a-z]{1,9}:[0-9]{1,3})$"
