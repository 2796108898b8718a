/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_LIMITS_H
#define MT_RECORD_LIMITS_H
/*
 * Bounds of a record stream. dict and facts keep them while a capture fills them, so that a writer
 * never writes what a reader refuses; a reader gets them for free, since it fills the same
 * structures.
 */
#define DICT_MAX_STRINGS (4u << 20)
#define DICT_MAX_STRING_BYTES (256u << 20) /* all strings together */
#define DICT_MAX_LOCS (4u << 20)
#define DICT_MAX_MODULES (1u << 20)
#define DICT_MAX_STACKS (4u << 20)
#define DICT_MAX_FRAMES (64u << 20) /* all stacks together */
#define DICT_MAX_STACK_FRAMES 1024  /* in one stack; the outermost ones are cut */
#define DICT_MAX_THREADS (1u << 20)
#define DICT_MAX_NODES (1u << 20)

#define FACTS_MAX 4096
#define FACTS_MAX_KEY 255
#define FACTS_MAX_VALUE (1u << 20)
#define FACTS_MAX_BYTES (4u << 20) /* all keys and values together */

#endif
