/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Whether a process has PyTorch: by few reads, whatever its files claim to have. */
#include "unit/cmocka.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "elf_image.h"
#include "inspect/proc.h"
#include "unit/scratch.h"

#define FILES 8
#define BOUND (4u << 20) /* bytes that a look at all of them may read */
#define SYMBOLS (16u << 20)
#define NAMES (256u << 20)

/* Bytes that this process has read by system calls. */
static unsigned long long bytes_read(void)
{
	unsigned long long n = 0;
	FILE *f = fopen("/proc/self/io", "re");

	if (!f || fscanf(f, "rchar: %llu", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

static int new_file(unsigned int i)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%u", scratch__path(), i);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%u/libc10.so", scratch__path(), i);
	unlink(path);
	return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
}

static void put(int fd, uint64_t at, const void *data, size_t len)
{
	assert_int_equal(pwrite(fd, data, len, (off_t)at), len);
}

/* A file whose symbols, names and hash table are holes: 100 kB on the disk, or less. */
static void write_sparse(int fd, enum image_hash hash, bool sections)
{
	const uint64_t sym = 0x10000, str = sym + SYMBOLS * 24ull, table = str + NAMES,
		       size = table + (1ull << 30);
	Elf64_Phdr ph[2] = { { PT_LOAD, PF_R | PF_X, 0, 0, 0, size, size, 4096 },
			     { PT_DYNAMIC, PF_R, 0x1000, 0x1000, 0x1000, 80, 80, 8 } };
	Elf64_Dyn dyn[5] = { { DT_SYMTAB, { sym } },
			     { DT_STRTAB, { str } },
			     { DT_STRSZ, { NAMES } } };
	Elf64_Shdr sh[3] = { { 0 },
			     { 0, SHT_DYNSYM, 2, sym, sym, SYMBOLS * 24ull, 2, 0, 8, 24 },
			     { 0, SHT_STRTAB, 2, str, str, NAMES, 0, 0, 1, 0 } };
	uint32_t head[7] = { 1, 1, 1, 6, UINT32_MAX, UINT32_MAX, 1 };
	Elf64_Ehdr eh = { .e_type = ET_DYN,
			  .e_machine = EM_X86_64,
			  .e_version = EV_CURRENT,
			  .e_phoff = sizeof(eh),
			  .e_shoff = sections ? 0x2000 : 0,
			  .e_ehsize = sizeof(eh),
			  .e_phentsize = sizeof(ph[0]),
			  .e_phnum = 2,
			  .e_shentsize = sizeof(sh[0]),
			  .e_shnum = sections ? 3 : 0 };

	if (hash == IMAGE_SYSV_HASH) {
		head[1] = SYMBOLS;
		head[2] = 7;
		/* the chain's entry 7 leads to itself */
		put(fd, table + 8 + 4 + 4 * 7, &(uint32_t){ 7 }, 4);
	}
	if (hash != IMAGE_NO_HASH)
		dyn[3] = (Elf64_Dyn){ hash == IMAGE_GNU_HASH ? DT_GNU_HASH : DT_HASH, { table } };
	put(fd, table, head, hash == IMAGE_GNU_HASH ? sizeof(head) : 12);
	memcpy(eh.e_ident, ELFMAG "\2\1\1", 7);
	put(fd, 0, &eh, sizeof(eh));
	put(fd, sizeof(eh), ph, sizeof(ph));
	put(fd, 0x1000, dyn, sizeof(dyn));
	put(fd, 0x2000, sh, sizeof(sh));
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
}

static void *map(int fd)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	assert_true(p != MAP_FAILED);
	close(fd);
	return p;
}

static void test_symbols_are_looked_up(void **state)
{
	static const uint8_t code[] = { 0xc3 };
	static const enum image_hash kinds[] = { IMAGE_GNU_HASH, IMAGE_SYSV_HASH };
	struct image_func f[] = { { "other", code, 1 }, { "_ZN3c1015GetCPUAllocatorEv", code, 1 } };
	struct image im;
	void *p;
	int fd;

	for (size_t i = 0; i < 4; i++) {
		image_build(&im, f, i < 2 ? 2 : 1, kinds[i % 2]);
		fd = new_file(0);
		put(fd, 0, im.bytes, sizeof(im.bytes));
		p = map(fd);
		assert_int_equal(descendants__has_torch(getpid()), i < 2);
		munmap(p, 4096);
	}
}

static void test_sparse_files_cost_little(void **state)
{
	unsigned long long before, after;
	void *p[FILES];

	for (int kind = IMAGE_NO_HASH; kind <= IMAGE_GNU_HASH; kind++) {
		for (int sections = 0; sections < 2; sections++) {
			for (unsigned int i = 0; i < FILES; i++) {
				int fd = new_file(i);

				write_sparse(fd, (enum image_hash)kind, sections);
				p[i] = map(fd);
			}
			before = bytes_read();
			assert_false(descendants__has_torch(getpid()));
			after = bytes_read();
			if (!before)
				skip(); /* this kernel does not count */
			if (after - before > BOUND)
				fail_msg("hash %d, sections %d: %llu bytes read", kind, sections,
					 after - before);
			for (unsigned int i = 0; i < FILES; i++)
				munmap(p[i], 4096);
		}
	}
}

/* Maps PyTorch's library in a child of a child, which lives until the pipe is closed. Returns its
 * PID, and the child's in *child. */
static pid_t start_grandchild(pid_t *child, int stay[2], const char *path)
{
	int ready[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready) | pipe(stay), 0);
	*child = fork();
	if (!*child) {
		close(stay[1]);
		pid = fork();
		if (pid) {
			waitpid(pid, NULL, 0);
			_exit(0);
		}
		pid = getpid();
		map(open(path, O_RDONLY));
		if (write(ready[1], &pid, sizeof(pid)) != sizeof(pid) || read(stay[0], &c, 1))
			_exit(1);
		_exit(0);
	}
	close(stay[0]);
	assert_int_equal(read(ready[0], &pid, sizeof(pid)), sizeof(pid));
	close(ready[0]);
	close(ready[1]);
	return pid;
}

/* PyTorch is often in a process that a launcher's worker starts. */
static void test_children_of_children(void **state)
{
	static const uint8_t code[] = { 0xc3 };
	struct image_func f[] = { { "_ZN3c1015GetCPUAllocatorEv", code, 1 } };
	struct image im;
	pid_t pid, child, found[2];
	char path[128];
	int fd, stay[2];

	image_build(&im, f, 1, IMAGE_GNU_HASH);
	fd = new_file(0);
	put(fd, 0, im.bytes, sizeof(im.bytes));
	close(fd);
	snprintf(path, sizeof(path), "%s/0/libc10.so", scratch__path());
	pid = start_grandchild(&child, stay, path);
	assert_int_equal(descendants__with_torch(getpid(), found, 2), 1);
	assert_int_equal(found[0], pid);
	close(stay[1]);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

/* A child's main function: waits until its parent closes the pipe. */
static int wait_for_end(void *arg)
{
	const int *stay = arg;
	char c;

	close(stay[1]);
	return read(stay[0], &c, 1) != 0;
}

/* A child between vfork() and the program that it executes has no PyTorch of its own. */
static void test_children_that_share_memory(void **state)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	pid_t pids[2], found[2];
	char path[128];
	int stay[2];

	snprintf(path, sizeof(path), "%s/0/libc10.so", scratch__path());
	map(open(path, O_RDONLY));
	assert_true(descendants__has_torch(getpid()));
	assert_int_equal(pipe(stay), 0);
	pids[0] = clone(wait_for_end, stack + sizeof(stack), CLONE_VM | SIGCHLD, stay);
	assert_true(pids[0] > 0);
	assert_int_equal(descendants__with_torch(getpid(), found, 2), 0);
	pids[1] = fork();
	if (!pids[1])
		_exit(wait_for_end(stay));
	assert_int_equal(descendants__with_torch(getpid(), found, 2), 1);
	assert_int_equal(found[0], pids[1]);
	close(stay[1]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symbols_are_looked_up),
		cmocka_unit_test(test_sparse_files_cost_little),
		cmocka_unit_test(test_children_of_children),
		cmocka_unit_test(test_children_that_share_memory),
	};

	return cmocka_run_group_tests(tests, scratch__make, scratch__drop);
}
