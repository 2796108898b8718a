/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_RECORD_MTR_DICT_H
#define MT_RECORD_MTR_DICT_H
/* Payloads of dictionary and facts blocks into a dict and facts. Nothing in them is trusted. */
#include <stddef.h>
#include <stdint.h>

struct dict;
struct facts;

/*
 * version is that of the file. 0, -ENOMEM, or -EBADMSG and *why, a static text: then entries before
 * the bad one may have been added.
 */
int mtr_dict__read(struct dict *d, uint32_t version, const uint8_t *data, size_t len,
		   const char **why);
int mtr_dict__read_facts(struct facts *f, const uint8_t *data, size_t len, const char **why);

#endif
