/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Step figures of captured processes as JSON messages, for programs of the processes' users
 * (--figures): docs/reference/figures.md describes them. Each process has a model, so the figures
 * are those of a report.
 */
#include "capture/recording.h"

struct step_figures;

struct step_figures *step_figures__new(void);	       /* NULL: no memory */
void step_figures__free(struct step_figures *figures); /* NULL is fine */
/* The callbacks for a recording, owned by figures. */
const struct recording_figures *step_figures__calls(struct step_figures *figures);
