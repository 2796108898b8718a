/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Bounds of a record stream: numbers of entries in a dict, and sizes of facts in bytes. struct dict
 * and struct facts enforce them, so a writer never writes more than a reader accepts. */
#define DICT_MAX_STRINGS (4u << 20)
#define DICT_MAX_STRING_BYTES (256u << 20) /* sum over all strings */
#define DICT_MAX_LOCS (4u << 20)
#define DICT_MAX_MODULES (1u << 20)
#define DICT_MAX_STACKS (4u << 20)
#define DICT_MAX_FRAMES (64u << 20) /* sum over all stacks */
#define DICT_MAX_STACK_FRAMES 1024  /* of one stack; frames further out are cut */
#define DICT_MAX_THREADS (1u << 20)
#define DICT_MAX_NODES (1u << 20)

#define FACTS_MAX 4096
#define FACTS_MAX_KEY 255
#define FACTS_MAX_VALUE (1u << 20)
#define FACTS_MAX_BYTES (4u << 20) /* sum over all keys and values */
