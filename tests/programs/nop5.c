/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Shows what a probe on a 5-byte nop does to a process on kernels that turn such a nop into a call.
 * The process is a child of this program. Prints, for the process that called the function:
 *
 *   kernel errno N       result of the system call in the kernel's trampoline: ENXIO if the kernel
 *                        has the defect, EPROTO if it is fixed, ENOSYS if nops stay nops
 *   forked signal N      signal that ended a child forked after the first hits; 0: none
 *   wrong N of M         wrong results of a function that uses the red zone below its stack pointer
 *
 * Sets probes through perf events and needs root.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYS_UPROBE 336 /* Linux 6.18 */
#define CALLS 1000
#define NOP5 "\t.byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"

uint64_t at_entry(uint64_t);
uint64_t red_zone(uint64_t);
extern const char red_zone_nop[];

__asm__(".globl at_entry, red_zone, red_zone_nop\n"
	"at_entry:\n" NOP5 "\tlea 1(%rdi), %rax\n\tret\n"
	"red_zone:\n\tmov %rdi, -8(%rsp)\n\tmov %rdi, -16(%rsp)\n"
	"red_zone_nop:\n" NOP5
	"\tmov -8(%rsp), %rax\n\tmov -16(%rsp), %rdx\n\tadd %rdx, %rax\n\tret\n");

/* Offset of an address in this program's file. */
static uint64_t file_offset(const void *address)
{
	unsigned long start, end, offset, ret = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 &&
		    (unsigned long)address >= start && (unsigned long)address < end)
			ret = (unsigned long)address - start + offset;
	if (f)
		fclose(f);
	return ret;
}

static int probe(pid_t pid, const void *address)
{
	struct perf_event_attr attr = { .size = sizeof(attr),
					.config1 = (uintptr_t) "/proc/self/exe",
					.disabled = 0 };
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	unsigned type;

	if (!f || fscanf(f, "%u", &type) != 1)
		return -1;
	fclose(f);
	attr.type = type;
	attr.config2 = file_offset(address);
	return (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, 0);
}

/* In the child: prints a line to request a probe and waits until it is set. */
static void pause_for_probe(int out, int in)
{
	char c = 0;

	if (write(out, &c, 1) != 1 || read(in, &c, 1) != 1)
		_exit(1);
}

static int forked(void)
{
	volatile uint64_t sum = 0;
	int status;
	pid_t pid;
	int i;

	for (i = 0; i < CALLS; i++)
		sum += at_entry(i);
	pid = fork();
	if (!pid) {
		for (i = 0; i < CALLS; i++)
			sum += at_entry(i);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static int wrong(void)
{
	int n = 0;
	uint64_t i;

	for (i = 0; i < CALLS; i++)
		n += red_zone(i) != 2 * i;
	return n;
}

static int child(int out, int in)
{
	pause_for_probe(out, in);
	printf("forked signal %d\n", forked());
	pause_for_probe(out, in);
	printf("wrong %d of %d\n", wrong(), CALLS);
	return fflush(stdout) ? 1 : 0;
}

int main(void)
{
	const void *const where[] = { (const void *)at_entry, red_zone_nop };
	int to[2], from[2], status, i;
	pid_t pid;
	char c = 0;

	errno = 0;
	syscall(SYS_UPROBE);
	printf("kernel errno %d\n", errno);
	fflush(stdout);
	if (pipe(to) || pipe(from))
		return 1;
	pid = fork();
	if (!pid)
		_exit(child(from[1], to[0]));
	for (i = 0; i < 2; i++) {
		if (read(from[0], &c, 1) != 1)
			return 1;
		if (probe(pid, where[i]) < 0) {
			fprintf(stderr, "cannot attach: %s\n", strerror(errno));
			return 77;
		}
		if (write(to[1], &c, 1) != 1)
			return 1;
	}
	if (waitpid(pid, &status, 0) != pid)
		return 1;
	if (WIFSIGNALED(status))
		printf("child signal %d\n", WTERMSIG(status));
	return 0;
}
