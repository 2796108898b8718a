/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A library with the names of PyTorch's hooks. Each hook checks its arguments by adding them up and
 * throws when told to. The hooks start with different classes of probed instructions, so that all
 * of them are tested. The kernel emulates push, jcc, jmp and call, on AArch64 cbz, b, bl and adrp;
 * it steps over a mov, on AArch64 over stp.
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
#ifdef __aarch64__
ENTRY("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
      "\tstp x29, x30, [sp, #-16]!\n\tbl hooks_nothing\n\tldp x29, x30, [sp], #16\n"
      "\tb hooks_oom");
ENTRY("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm", "\tcbz x2, 1f\n1:\tb hooks_new");
ENTRY("_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv", "\tb hooks_delete");
ENTRY("_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE",
      "\tadrp x9, hooks_edge_at\n\tldr x9, [x9, :lo12:hooks_edge_at]\n\tbr x9");
#else
ENTRY("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
      "\tcall hooks_nothing\n\tjmp hooks_oom@PLT");

/* -DNOP5: two hooks start with a nop that the kernel may turn into a call, where no probe is
 * allowed. */
#define NOP5_BYTES "\t.byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
#ifdef NOP5
#define NOP NOP5_BYTES
#else
#define NOP
#endif
#ifdef NOP5_LOOP /* a hook without any probe site: a branch leads behind the nop */
ENTRY("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
      NOP5_BYTES "1:\ttest %rdx, %rdx\n\tjs 1b\n\tjmp hooks_new@PLT");
#else
ENTRY("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm",
      NOP "\ttest %rdx, %rdx\n\tje 1f\n1:\tjmp hooks_new@PLT");
#endif
ENTRY("_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv", NOP "\tjmp hooks_delete@PLT");
ENTRY("_ZN5torch8autograd4impl17set_gradient_edgeERKN2at6TensorENS0_4EdgeE",
      "\tmov %rdi, %rax\n\tjmp *hooks_edge_at(%rip)");
#endif
__asm__(".section .data.rel.local, \"aw\"\nhooks_edge_at:\n\t.quad hooks_edge\n.text\n");

/* These two start with saving the registers that they use: push, stp. */
#ifdef __aarch64__
#define KEEP(...) __asm__ volatile("" : : __VA_ARGS__ : "x19", "x20")
#else
#define KEEP(...) __asm__ volatile("" : : __VA_ARGS__ : "rbx", "r12")
#endif

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
