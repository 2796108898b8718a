/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A library with the names of PyTorch's hooks and empty functions, for machines too small for
 * PyTorch. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Clobbered callee-saved registers make the function save them first, as the real ones do. */
#ifdef __aarch64__
#define KEEP(...) __asm__ volatile("" : : __VA_ARGS__ : "x19", "x20", "x30")
#else
#define KEEP(...) __asm__ volatile("" : : __VA_ARGS__ : "rbx", "r12")
#endif

void report(void *ptr, int64_t size, size_t allocated, size_t reserved,
	    int device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void cpu_new(void *self, void *ptr,
	     size_t size) __asm__("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm");
void cpu_delete(void *self, void *ptr) __asm__("_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv");

void report(void *ptr, int64_t size, size_t allocated, size_t reserved, int device)
{
	KEEP("r"(ptr), "r"(size), "r"(allocated), "r"(reserved), "r"(device));
}

/* -DPROLOGUE='"..."': a function of exactly these instructions, to test the choice of probe
 * sites. */
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

/* Nanoseconds for n calls of cpu_new(). */
int64_t calls_take(int n)
{
	struct timespec begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int i = 0; i < n; i++)
		cpu_new(NULL, (void *)0x40000000, 64);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (end.tv_sec - begin.tv_sec) * INT64_C(1000000000) + end.tv_nsec - begin.tv_nsec;
}

/* ---- autograd ---- */

#define NODE_WORDS                                                                                 \
	59 /* words of torch::autograd::Node up to PyTorch 2.12: user/inspect/torch/autograd.c */
#define NODE_SEQUENCE 3
#define NODE_THREAD 6
#define NODES_MAX 4096

void set_gradient_edge(void *tensor, void **edge) __asm__(
	"_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE");
void evaluate(void *engine, void *task, void *node,
	      uintptr_t block) __asm__("_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_"
				       "ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferE"
				       "RKS2_INS0_10ReadyQueueEE");

/* C++ ABI: the type information before a vtable points to the class's name. */
static const void *const type[] = { NULL, "N5torch8autograd9generated12MulBackward0E" };
static const void *const functions[] = { type, NULL };

static uintptr_t nodes[NODES_MAX][NODE_WORDS];
static size_t made;

void set_gradient_edge(void *tensor, void **edge)
{
	KEEP("r"(tensor), "r"(edge));
}

/* Allocates in the running node. */
void evaluate(void *engine, void *task, void *node, uintptr_t block)
{
	KEEP("r"(engine), "r"(task), "r"(node));
	cpu_new(NULL, (void *)block, 64);
	KEEP("r"(engine), "r"(node)); /* prevents a tail call of cpu_new() */
}

/* A line of forward that makes a node. */
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

/* Runs all nodes on a thread of the engine, as in backward; each allocates 64 bytes, the first at
 * `block`. */
int backward(void *block)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, block))
		return -1;
	return pthread_join(thread, NULL);
}
