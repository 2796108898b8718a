/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A libc10_cuda with PyTorch's probe pytorch:malloc and nothing else. -DPLACE: the instructions of
 * the probe. */
#include <stddef.h>
#include <stdint.h>

#define NOP1 "nop\n"
#define NOP5 ".byte 0x0f, 0x1f, 0x44, 0, 0\n"
#define NOP10 ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n"

/* Marks the library as PyTorch's allocator. */
void *allocator __asm__("_ZN3c104cuda20CUDACachingAllocator9allocatorE");

extern const volatile uint16_t malloc_semaphore __attribute__((visibility("hidden")));
__asm__(".pushsection .probes, \"aw\", \"progbits\"\n.hidden malloc_semaphore\n"
	"malloc_semaphore: .2byte 0\n.popsection\n"
	".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"
	"_.stapsdt.base: .space 1\n.popsection\n");

/* Returns the sum of its arguments, which are below the stack pointer while it passes the probe. */
uint64_t take(void *ptr, int8_t device, size_t size, int64_t stream)
{
	uint64_t sum = (uint64_t)ptr + (uint64_t)device + size + (uint64_t)stream;

	if (malloc_semaphore)
		__asm__ volatile(
			"990: " PLACE ".pushsection .note.stapsdt, \"?\", \"note\"\n.balign 4\n"
			".4byte 992f - 991f, 994f - 993f, 3\n991: .asciz \"stapsdt\"\n"
			"992: .balign 4\n993: .8byte 990b, _.stapsdt.base, malloc_semaphore\n"
			".asciz \"pytorch\"\n.asciz \"malloc\"\n"
			".asciz \"-8@%%rdi -1@%%dl 8@%%rsi -8@%%rcx\"\n994: .balign 4\n"
			".popsection\n"
			:
			: "D"(ptr), "d"((int64_t)device), "S"(size), "c"(stream));
	return sum;
}
