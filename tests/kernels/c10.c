/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A library with the names of PyTorch's hooks and nothing behind them, for machines too small for PyTorch. */
#include <stddef.h>
#include <stdint.h>

/* Registers that a callee must save make the compiler begin with a push, as the real ones do. */
#define KEEP(...) __asm__ volatile("" : : __VA_ARGS__ : "rbx", "r12")

void report(void *ptr, int64_t size, size_t allocated, size_t reserved, int device)
	__asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void cpu_new(void *self, void *ptr, size_t size) __asm__("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm");
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
	".size _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm, . - _ZN3c1025ProfiledCPUMemoryReporter3NewEPvm\n");
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
