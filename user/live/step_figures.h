/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Step figures of captured processes as JSON messages, for programs of the processes' users
 * (--figures): docs/reference/figures.md describes them. Each process has a model, so the figures
 * are those of a report. The last STEP_FIGURES_KEPT messages are kept for readers that come late.
 */
#include "capture/recording.h"

#define STEP_FIGURES_KEPT 4096	      /* messages */
#define STEP_FIGURES_BYTES (8u << 20) /* bytes of their texts together, at most */
#define STEP_FIGURES_TEXT 65536	      /* bytes of a message, at most */

struct step_figures;

struct step_figures *step_figures__new(void);	       /* NULL: no memory */
void step_figures__free(struct step_figures *figures); /* NULL is fine */
/* The callbacks for a recording, owned by figures. */
const struct recording_figures *step_figures__calls(struct step_figures *figures);
