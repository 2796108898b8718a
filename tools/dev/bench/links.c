/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Cost of uprobe.multi links by PID, one for each of N processes, and of one link for all, on one
 * function that all of them map. As root, on Linux 6.10 or newer:
 *
 *   cc -O1 -shared -fPIC -DLIBRARY -o /tmp/hit.so tools/dev/bench/links.c
 *   cc -O1 -o /tmp/links tools/dev/bench/links.c -lbpf && /tmp/links /tmp/hit.so pid|all N
 *
 * Prints the time to attach and to detach all links, and a call of the function with an empty
 * program: in a process with a link, in a bystander, and before.
 */
#ifdef LIBRARY
/* The probe is on the first instruction, a push: as at the real functions. */
__attribute__((noinline)) int hit(int x)
{
	__asm__ volatile("push %%rbx\n\tpop %%rbx" : : : "memory");
	return x + 1;
}
#else
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINK_CREATE 28
#define TRACE_UPROBE_MULTI 48
#define CALLS 20000
#define ROUNDS 5
#define MAX 1000

static const char *library;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int attach(int program, uint64_t offset, pid_t pid)
{
	struct {
		uint32_t program, target, type, flags;
		uint64_t path, offsets, ref_ctrs, cookies;
		uint32_t n, uflags, pid, pad;
	} attr = { .program = (uint32_t)program,
		   .type = TRACE_UPROBE_MULTI,
		   .path = (uintptr_t)library,
		   .offsets = (uintptr_t)&offset,
		   .n = 1,
		   .pid = (uint32_t)pid };

	return (int)syscall(SYS_bpf, LINK_CREATE, &attr, sizeof(attr));
}

struct job {
	pid_t pid;
	int to, from;
};

/* Calls the function at each byte of input, and answers with the time of one call in ns. */
static void work(int in, int out)
{
	int (*hit)(int) = (int (*)(int))dlsym(dlopen(library, RTLD_NOW), "hit");
	double begin, ns;
	char c;

	hit(1);
	if (write(out, "r", 1) != 1)
		_exit(1);
	while (read(in, &c, 1) == 1 && c == 'g') {
		begin = now();
		for (int i = 0; i < CALLS; i++)
			hit(i);
		ns = (now() - begin) / CALLS * 1e9;
		if (write(out, &ns, sizeof(ns)) != sizeof(ns))
			_exit(1);
	}
	_exit(0);
}

static struct job start(void)
{
	int in[2], out[2];
	struct job j;
	char c;

	if (pipe(in) || pipe(out))
		exit(1);
	j.pid = fork();
	if (!j.pid)
		work(in[0], out[1]);
	close(in[0]);
	close(out[1]);
	j.to = in[1];
	j.from = out[0];
	if (read(j.from, &c, 1) != 1)
		exit(1);
	return j;
}

static double call(const struct job *j)
{
	double best = 1e9, ns;

	for (int i = 0; i < ROUNDS; i++) {
		if (write(j->to, "g", 1) != 1 || read(j->from, &ns, sizeof(ns)) != sizeof(ns))
			exit(1);
		best = ns < best ? ns : best;
	}
	return best;
}

static void *close_one(void *fd)
{
	close((int)(intptr_t)fd);
	return NULL;
}

/* As memtrace-bpf does, all at the same time. */
static double detach(const int *link, int n)
{
	static pthread_t thread[MAX];
	double begin = now();

	for (int i = 0; i < n; i++)
		pthread_create(&thread[i], NULL, close_one, (void *)(intptr_t)link[i]);
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	return now() - begin;
}

int main(int argc, char **argv)
{
	const struct bpf_insn insns[] = { { .code = BPF_ALU64 | BPF_MOV | BPF_K },
					  { .code = BPF_JMP | BPF_EXIT } };
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = TRACE_UPROBE_MULTI);
	struct rlimit files = { 16384, 16384 };
	static struct job job[MAX + 1];
	static int link[MAX];
	int n = argc > 3 ? atoi(argv[3]) : 0, links, program;
	double begin, attached, plain;
	struct link_map *at;
	uint64_t offset;

	if (n < 1 || n > MAX)
		return 2;
	library = argv[1];
	at = dlopen(library, RTLD_NOW);
	offset = at ? (uintptr_t)dlsym(at, "hit") - at->l_addr : 0;
	setrlimit(RLIMIT_NOFILE, &files);
	program = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "bench", "GPL", insns, 2, &opts);
	if (!offset || program < 0)
		return 1;
	for (int i = 0; i <= n; i++)
		job[i] = start();
	plain = call(&job[n]);
	links = strcmp(argv[2], "pid") ? 1 : n;
	begin = now();
	for (int i = 0; i < links; i++) {
		link[i] = attach(program, offset,
				 links == n && strcmp(argv[2], "all") ? job[i].pid : 0);
		if (link[i] < 0)
			return 1;
	}
	attached = now() - begin;
	printf("%d processes, %s: attach %.1f ms, hit %.0f ns, bystander %.0f ns, before %.0f ns, ",
	       n, argv[2], attached * 1e3, call(&job[0]), call(&job[n]), plain);
	printf("detach %.1f ms\n", detach(link, links) * 1e3);
	for (int i = 0; i <= n; i++) {
		if (write(job[i].to, "e", 1) != 1)
			return 1;
		waitpid(job[i].pid, NULL, 0);
	}
	return 0;
}
#endif
