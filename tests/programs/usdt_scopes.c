/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A library with the USDT probes of a provider "trainer", as <sys/sdt.h> writes them: step__begin
 * with a name in a register, in memory, or in a page that nothing has touched; step__end;
 * save__begin with a number; save__end; and alone__begin, which has no end. */
#include <stddef.h>
#include <stdint.h>

#define SDT(name, semaphore, args)                                                                 \
	"990: nop\n.pushsection .note.stapsdt, \"?\", \"note\"\n.balign 4\n"                       \
	".4byte 992f - 991f, 994f - 993f, 3\n991: .asciz \"stapsdt\"\n"                            \
	"992: .balign 4\n993: .8byte 990b, _.stapsdt.base, " semaphore "\n"                        \
	".asciz \"trainer\"\n.asciz \"" name "\"\n.asciz \"" args "\"\n994: .balign 4\n"           \
	".popsection\n"

extern const volatile uint16_t step_semaphore __attribute__((visibility("hidden")));
__asm__(".pushsection .probes, \"aw\", \"progbits\"\n.hidden step_semaphore\n"
	"step_semaphore: .2byte 0\n.popsection\n"
	".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"
	"_.stapsdt.base: .space 1\n.popsection\n");

/* The kernel maps the pages around a touched one, too: 16 of them. */
#define FAR (128 << 10)
static const char far_name[2 * FAR] = { [FAR] = 'f', 'a', 'r', ' ', 'n', 'a', 'm', 'e' };

struct step {
	uint64_t number;
	const char *name;
};

unsigned watched(void)
{
	return step_semaphore;
}

void begin(const char *name)
{
	if (step_semaphore)
		__asm__ volatile(SDT("step__begin", "step_semaphore", "8@%%rdi") : : "D"(name));
}

void begin_step(const struct step *step)
{
	if (step_semaphore)
		__asm__ volatile(SDT("step__begin", "step_semaphore", "-8@8(%%rsi)")
				 :
				 : "S"(step), "m"(*step));
}

void begin_far(void)
{
	begin(far_name + FAR);
}

void end(void)
{
	__asm__ volatile(SDT("step__end", "0", ""));
}

void save(int number)
{
	__asm__ volatile(SDT("save__begin", "0", "-4@%%edi") : : "D"(number));
}

void saved(void)
{
	__asm__ volatile(SDT("save__end", "0", ""));
}

void alone(void)
{
	__asm__ volatile(SDT("alone__begin", "0", ""));
}

/* Begins and ends n scopes. */
void loop(long n)
{
	while (n-- > 0) {
		begin("loop");
		end();
	}
}
