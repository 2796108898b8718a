/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A library with the names of PyTorch's hooks and nothing behind them, for machines too small for
 * PyTorch. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Registers that a callee must save make the compiler begin with a push, as the real ones do. */
#define KEEP(...) __asm__ volatile("" : : __VA_ARGS__ : "rbx", "r12")

void report(void *ptr, int64_t size, size_t allocated, size_t reserved,
	    int device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void cpu_new(void *self, void *ptr,
	     size_t size) __asm__("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm");
void cpu_delete(void *self, void *ptr) __asm__("_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv");

void report(void *ptr, int64_t size, size_t allocated, size_t reserved, int device)
{
	KEEP("r"(ptr), "r"(size), "r"(allocated), "r"(reserved), "r"(device));
}

/* -DPROLOGUE='"..."': a function of just these instructions, for tests of where a probe is put. */
#ifdef PROLOGUE
__asm__(".globl _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm\n"
	".type _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm, @function\n"
	"_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm:\n" PROLOGUE "\n"
	".size _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm, . - "
	"_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm\n");
#else
void cpu_new(void *self, void *ptr, size_t size)
{
	KEEP("r"(self), "r"(ptr), "r"(size));
}
#endif

void cpu_delete(void *self, void *ptr)
{
	KEEP("r"(self), "r"(ptr));
}

/* ---- autograd ---- */

#define NODE_WORDS                                                                                 \
	59 /* sizeof(torch::autograd::Node) up to PyTorch 2.12, in words: user/torch/autograd.c */
#define NODE_SEQUENCE 3
#define NODE_THREAD 6
#define NODES_MAX 4096

void set_gradient_edge(void *tensor, void **edge) __asm__(
	"_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE");
void evaluate(void *engine, void *task, void *node,
	      uintptr_t block) __asm__("_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_"
				       "ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferE"
				       "RKS2_INS0_10ReadyQueueEE");

/* As the C++ ABI has it: before a class's table of functions, its type, which points to its name. */
static const void *const type[] = { NULL, "N5torch8autograd9generated12MulBackward0E" };
static const void *const functions[] = { type, NULL };

static uintptr_t nodes[NODES_MAX][NODE_WORDS];
static size_t made;

void set_gradient_edge(void *tensor, void **edge)
{
	KEEP("r"(tensor), "r"(edge));
}

/* Allocates while the node runs. */
void evaluate(void *engine, void *task, void *node, uintptr_t block)
{
	KEEP("r"(engine), "r"(task), "r"(node));
	cpu_new(NULL, (void *)block, 64);
	KEEP("r"(engine), "r"(node)); /* not a jump to cpu_new() */
}

/* A line of forward: makes a node. */
void forward(void)
{
	void *edge[2] = { nodes[made], NULL };

	nodes[made][0] = (uintptr_t)&functions[1];
	nodes[made][NODE_SEQUENCE] = made;
	nodes[made][NODE_THREAD] = 1;
	made++;
	set_gradient_edge(NULL, edge);
}

static void *run(void *block)
{
	for (uintptr_t at = (uintptr_t)block; made; at += 64)
		evaluate(NULL, NULL, nodes[--made], at);
	return NULL;
}

/* All nodes made so far run on a thread of the engine's own, as in backward; each allocates 64
 * bytes, the first at block. */
int backward(void *block)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, block))
		return -1;
	return pthread_join(thread, NULL);
}
