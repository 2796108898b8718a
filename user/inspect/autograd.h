/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * PyTorch's autograd nodes, read from their first words: class, sequence number and thread.
 * A node is identified by its address, its class's vtable, its sequence number (counted per thread)
 * and its thread's number. The offsets of the two numbers depend on the PyTorch version. The
 * version's own layout is used as long as its values are possible and the other layout does not fit
 * clearly better, otherwise the other layout, otherwise none.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"

struct proc;

/* Layout of struct Node (torch/csrc/autograd/function.h); offsets in words of 8 bytes. */
struct node_layout {
	uint8_t sequence; /* sequence_nr_ */
	uint8_t thread;	  /* thread_id_ */
	/* sizeof(Node) in bytes, where the members of a derived class begin */
	uint16_t size;
};

#define NODE_NO_SEQUENCE UINT64_MAX /* sequence number of AccumulateGrad, which runs first */
#define NODE_LAYOUTS 2
#define NODE_THREADS 64

/* Statistics of new nodes, for each layout. Zero it, then call node_guess__init(). */
struct node_guess {
	unsigned int first; /* layout of the PyTorch version */
	/* good: in the order in which a thread makes nodes; bad: impossible values */
	uint64_t good[NODE_LAYOUTS], bad[NODE_LAYOUTS];
	uint64_t seen;
	struct {
		uint32_t tid;
		uint64_t node, sequence[NODE_LAYOUTS], thread[NODE_LAYOUTS];
	} last[NODE_THREADS]; /* last node of a thread, by tid */
};

void node_guess__init(struct node_guess *g, const char *torch_version);
/* Adds a node that this thread of the target has just made. */
void node_guess__see(struct node_guess *g, uint32_t tid, uint64_t node,
		     const __u64 head[MT_NODE_WORDS]);
/* The layout to use; NULL: none is plausible. */
const struct node_layout *node_guess__layout(const struct node_guess *g);

/* Class of an object without namespaces ("AddmmBackward0"), from the type name in front of its
 * vtable (Itanium C++ ABI). 0, -EBADMSG: no such name, -EFAULT, -ESRCH. */
int autograd_node__class(const struct proc *p, uint64_t vptr, char *buf, size_t size);
/* Last component of a mangled type name: "N5torch8autograd14AccumulateGradE" -> "AccumulateGrad".
 * False: not a type name. */
bool autograd_node__plain_name(const char *mangled, char *buf, size_t size);
