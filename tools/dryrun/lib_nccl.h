/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Shared by the NCCL model: lib_nccl.c has the library's functions, lib_nccl_peers.c the data of
 * other ranks. Other ranks' data comes from a folder where ranks that ran earlier stored what they
 * sent (MEMTRACE_DRYRUN_PEERS), or is inferred from this rank's own calls in one group.
 */
#include "lib.h"

struct comm {
	uint32_t magic;
	int ranks; /* number of ranks; 0: unknown, for a communicator that was split off */
	int rank, device;
};

#define NCCL_TO_ALL -1

enum nccl_kind { NCCL_OTHER, NCCL_NUMBERS /* 64-bit numbers */, NCCL_BYTES };

/* This rank sends data to one rank or, as the root of a broadcast, to all. Large data is
 * ignored. */
void nccl__send(const struct comm *c, int to, const void *from, size_t size, enum nccl_kind kind);
/*
 * This rank receives small data. Sources in order: data stored by a rank that ran earlier; at the
 * end of the group, data of this rank's own sends or gather; for numbers, as many as it sent last.
 * Otherwise the buffer is unchanged.
 */
void nccl__receive(const struct comm *c, int from, void *to, size_t size, enum nccl_kind kind);

void nccl__group_start(void);
void nccl__group_end(void);

/*
 * Stores gathered numbers. In its next `reads` reads of an unknown number, the host gets their sum.
 * A gather of one number per rank passes one number: all are equal here. Valid until other data
 * than bytes is sent.
 */
void nccl__gathered(const void *numbers, size_t size, unsigned int reads);
/* Drops gathered numbers: the program made another NCCL call. */
void nccl__not_gathered(void);

/* Number of ranks that PyTorch is splitting off now; 0: unknown or none. */
int nccl__split_size(void);
