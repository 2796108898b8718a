/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef MT_TORCH_AUTOGRAD_H
#define MT_TORCH_AUTOGRAD_H
/*
 * PyTorch's autograd nodes, as their first words tell: which class, which one of that class, made
 * by which thread.
 *
 * A node is known again by its address, its class's table of functions, its sequence number (which
 * counts the nodes of a thread) and the thread's number. Where the two lie depends on the version;
 * the version's own place is believed as long as what is read there behaves like it, else the other
 * one that does, else none.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memtrace.h"

struct proc;

/* torch/csrc/autograd/function.h, struct Node; places in words of 8 bytes. */
struct node_layout {
	uint8_t sequence; /* sequence_nr_ */
	uint8_t thread;	  /* thread_id_ */
	uint16_t size;	  /* sizeof(Node), bytes: where the members of a class made from it begin */
};

#define NODE_NO_SEQUENCE UINT64_MAX /* AccumulateGrad's: it is to run before all others */
#define NODE_LAYOUTS 2
#define NODE_THREADS 64

/* What has been seen of nodes when they were made. Zeroed, then node_guess__init(). */
struct node_guess {
	unsigned int first; /* the version's own, of the layouts */
	uint64_t good[NODE_LAYOUTS], bad[NODE_LAYOUTS];
	uint64_t seen;
	struct {
		uint32_t tid;
		uint64_t node, sequence[NODE_LAYOUTS], thread[NODE_LAYOUTS];
	} last[NODE_THREADS]; /* by tid */
};

void node_guess__init(struct node_guess *g, const char *torch_version);
/* A node was made by this thread of the target. */
void node_guess__see(struct node_guess *g, uint32_t tid, uint64_t node,
		     const __u64 head[MT_NODE_WORDS]);
/* NULL: none of those that are known. */
const struct node_layout *node_guess__layout(const struct node_guess *g);

/*
 * The class of an object, without its namespaces ("AddmmBackward0"), from the name of its type that
 * stands before its table of functions (Itanium C++ ABI). 0, -EBADMSG: no such name, -EFAULT,
 * -ESRCH.
 */
int autograd_node__class(const struct proc *p, uint64_t vptr, char *buf, size_t size);
/* The last part of a mangled type name: "N5torch8autograd14AccumulateGradE" -> "AccumulateGrad".
 * False: it is none. */
bool autograd_node__plain_name(const char *mangled, char *buf, size_t size);

#endif
