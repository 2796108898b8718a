/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A library with the names of PyTorch's hooks: each checks that its arguments are what its caller
 * gave it, by adding them up, and each throws when told to. Their beginnings are one of each class
 * of instruction that a probe can sit on (the kernel emulates push, jcc, jmp and call, and steps
 * over a mov), so that whatever is done to a process is done to all of them.
 */
#include "hooks.h"

namespace
{

thread_local uint64_t sum;

void take(uint64_t words, bool throws)
{
	if (throws)
		throw hooks::thrown{ words };
	sum += words;
}

} // namespace

extern "C" {

__attribute__((visibility("default"))) uint64_t hooks_sum()
{
	return sum;
}

void hooks_oom(int64_t size, size_t allocated, size_t reserved, c10::Device device)
{
	take(hooks::mix(size, allocated, reserved, device.index), size & 1);
}

void hooks_new(const void *, void *ptr, size_t size)
{
	take(hooks::mix(reinterpret_cast<uint64_t>(ptr), size, 1, 2), size & 1);
}

void hooks_delete(const void *, void *ptr)
{
	take(hooks::mix(reinterpret_cast<uint64_t>(ptr), 3, 4, 5),
	     reinterpret_cast<uint64_t>(ptr) & 1);
}

void hooks_edge(const at::Tensor &tensor, torch::autograd::Edge &edge)
{
	take(hooks::mix(tensor.number, edge.input_nr, 6, 7), tensor.number & 1);
}
}

#define ENTRY(name, body)                                                                          \
	__asm__(".globl " name "\n.type " name ", @function\n" name ":\n" body "\n.size " name     \
		", . - " name "\n")

__asm__(".text\nhooks_nothing:\n\tret\n");
ENTRY("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
      "\tcall hooks_nothing\n\tjmp hooks_oom@PLT");

/* With NOP5 two of them begin with the nop that the kernel may turn into a call: nothing may be put
 * there. */
#define NOP5_BYTES "\t.byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
#ifdef NOP5
#define NOP NOP5_BYTES
#else
#define NOP
#endif
#ifdef NOP5_LOOP /* and one where a branch leads to what is behind it: no place is left */
ENTRY("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
      NOP5_BYTES "1:\ttest %rdx, %rdx\n\tjs 1b\n\tjmp hooks_new@PLT");
#else
ENTRY("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
      NOP "\ttest %rdx, %rdx\n\tje 1f\n1:\tjmp hooks_new@PLT");
#endif
ENTRY("_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv", NOP "\tjmp hooks_delete@PLT");
ENTRY("_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE",
      "\tmov %rdi, %rax\n\tjmp *hooks_edge_at(%rip)");
__asm__(".section .data.rel.local, \"aw\"\nhooks_edge_at:\n\t.quad hooks_edge\n.text\n");

/* These two begin with a push, as the compiler makes them of registers that are to be kept. */
#define KEEP(...) __asm__ volatile("" : : __VA_ARGS__ : "rbx", "r12")

__attribute__((visibility("default"))) void c10::reportMemoryUsageToProfiler(
	void *ptr, int64_t size, size_t allocated, size_t reserved, Device device)
{
	KEEP("r"(ptr), "r"(size), "r"(allocated));
	take(hooks::mix(reinterpret_cast<uint64_t>(ptr), size, allocated, reserved + device.index),
	     size & 1);
}

__attribute__((visibility("default"))) void torch::autograd::Engine::evaluate_function(
	std::shared_ptr<GraphTask> &, Node *func, InputBuffer &inputs,
	const std::shared_ptr<ReadyQueue> &)
{
	KEEP("r"(func), "r"(&inputs));
	func->run(inputs);
	take(hooks::mix(func->number, inputs.number, 8, 9), func->number & 1);
}
