/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * What the answers for NCCL share: lib_nccl.c has the library's functions, lib_nccl_peers.c what
 * comes from the other ranks: a folder where each rank that was run before this one has left what
 * it sent (MEMTRACE_DRYRUN_PEERS), and what can be told from what this rank itself does in one
 * group of calls.
 */
#include "lib.h"

struct comm {
	uint32_t magic;
	int ranks; /* 0: not known, of one that was split off */
	int rank, device;
};

#define NCCL_TO_ALL -1

enum nccl_kind { NCCL_OTHER, NCCL_NUMBERS /* of 64 bits */, NCCL_BYTES };

/* This rank sends small data, to one or, as the root of a broadcast, to all. Larger data is not
 * looked at. */
void nccl__send(const struct comm *c, int to, const void *from, size_t size, enum nccl_kind kind);
/*
 * This rank receives from another: small data that a rank which was run before has left, or, at the
 * end of the group of calls, what this rank sent that same one or all, or gave itself in a gather;
 * of numbers, as many as it sent last. Else the receiver keeps what it has.
 */
void nccl__receive(const struct comm *c, int from, void *to, size_t size, enum nccl_kind kind);

void nccl__group_start(void);
void nccl__group_end(void);

/*
 * Numbers that came from the others: where the host reads one next that a kernel has made and that
 * is not known, it is made of these: their sum; of a gather of one number of each, which are all
 * alike here, their largest. For so many reads, and no longer than until other than bytes are sent.
 */
void nccl__gathered(const void *numbers, size_t size, unsigned int reads);
/* That is over: something else was asked of NCCL. */
void nccl__not_gathered(void);

/* How many ranks PyTorch is just splitting off; 0: it is not, or that is not known. */
int nccl__split_size(void);
