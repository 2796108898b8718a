/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Reads the payloads of dictionary and facts blocks into a dict and facts, and checks all input. */
#include <stddef.h>
#include <stdint.h>

struct dict;
struct facts;

/* version: of the file. Both return 0, -ENOMEM, or -EBADMSG and *why, a static text. Entries before
 * a bad one stay added. */
int mtr_dict__read(struct dict *d, uint32_t version, const uint8_t *data, size_t len,
		   const char **why);
int mtr_dict__read_facts(struct facts *f, const uint8_t *data, size_t len, const char **why);
