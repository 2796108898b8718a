/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* The model reports its events to growth.c here. Call these functions only if m->growth is set.
 * Those that return int return 0 or -ENOMEM. */
#include <stdint.h>

struct dev;
struct model;
struct rec;

int growth__block_allocated(struct model *m, uint32_t site);
int growth__block_freed(struct model *m, const struct dev *dev, const struct rec *rec);
/* An optimizer's step ended. */
int growth__end_step(struct model *m);
/* A call of the model ended: a value of growth inside an optimizer's step. */
int growth__end_call(struct model *m);
/* The next call begins, or the optimizer: a value of growth from call to call. */
int growth__settle_call(struct model *m);
int growth__advance_time(struct model *m, uint64_t time);
/* Sets used[site] for each site that growth refers to. */
void growth__mark_sites(const struct model *m, uint8_t *used);
/* Forgets a site that the model removes. */
void growth__drop_site(struct model *m, uint32_t site);
void growth__unwatch(struct model *m);
