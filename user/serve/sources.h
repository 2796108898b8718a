/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Hosts from a batch system or a cluster, through its own client program. */
#include "serve/fetch/hosts.h"

/* Adds the hosts of a Slurm job: of a list such as "node[1-8]" (NULL: SLURM_JOB_NODELIST), which
 * `scontrol` expands. Returns 0 or an exit code, logged. */
int sources__slurm(struct hosts *h, const char *nodes);
/*
 * Adds the memtrace-bpf pods (the DaemonSet of the Helm chart) on the nodes of the job's pods,
 * which the label selector chooses, through `kubectl`. Only processes of the job's pods count:
 * h->pods. space: the namespace of the DaemonSet. Anybody who may make pods in another namespace
 * can give them its label, and would get the token. Nodes with no running pod of memtrace-bpf, or
 * several, are added as missing. Returns as sources__slurm().
 */
int sources__kubernetes(struct hosts *h, const char *selector, const char *space);
