/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Control of a running recording: actions of `memtrace-bpf ctl`, SIGUSR1 and SIGUSR2. */
#include <stdbool.h>

struct recording;

/* Opens the socket and the signalfd, once the loop is open. Without them the capture goes on. */
void recording_control__open(struct recording *r);
void recording_control__close(struct recording *r);
/* Handles a signal to this program. False: it does not concern the recording. */
bool recording_control__signal(struct recording *r, int number);
