/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_LIB_STRINGS_H
#define MT_LIB_STRINGS_H
/* Strings kept beyond what they came from, one for all that are alike: two of one set are equal if
 * their addresses are. */

struct strings;

struct strings *strings__new(void);    /* NULL on ENOMEM */
void strings__free(struct strings *s); /* with all its strings; NULL is fine */
/* Puts the set's own in the place of *text; NULL stays. 0, or -ENOMEM, and then *text is as it was.
 */
int strings__keep(struct strings *s, const char **text);

#endif
