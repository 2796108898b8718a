/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_SAVE_RECORDING_CONTROL_H
#define MT_SAVE_RECORDING_CONTROL_H
/* How a recording that runs is told what to do: the words of `memtrace-bpf ctl`, SIGUSR1 and
 * SIGUSR2. */
#include <stdbool.h>

struct recording;

/* Where it cannot be had, the capture goes on without. Once the loop is open, until it has run. */
void recording_control__open(struct recording *r);
void recording_control__close(struct recording *r);
/* A signal that came to this program. False: it is none of the recording's. */
bool recording_control__signal(struct recording *r, int number);

#endif
