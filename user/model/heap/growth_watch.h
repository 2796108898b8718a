/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The model's events, for the growth of units. Call these only if m->growth is set; those that
 * return int return 0 or -ENOMEM. */
#include <stdint.h>

#include "model/heap/steps.h"

struct dev;
struct model;
struct rec;

int growth__came(struct model *m, uint32_t site);
int growth__left(struct model *m, const struct dev *dev, const struct rec *rec);
int growth__step(struct model *m, enum step_kind kind);
int growth__time(struct model *m, uint64_t time);
/* Sets the flag of each site that growth refers to. */
void growth__mark_sites(const struct model *m, uint8_t *used);
/* The site is removed. */
void growth__drop_site(struct model *m, uint32_t site);
void growth__unwatch(struct model *m);
