/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Removes sites, asks and labels that are not in use, and ended threads. Functions return 0 or
 * -ENOMEM. */

struct model;

#define THREADS_KEPT 1024 /* exceeded if more are running */

int gc__all(struct model *m);
int gc__threads(struct model *m);
