/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Saves what the readers of Python objects read from a process (tests/workloads/object_image.py),
 * for tests/fuzz/fuzz_objects.c.
 *
 *   object_image PID FILE KIND ADDRESS ...
 */
#include <stdio.h>
#include <sys/uio.h>

#include "image_memory.h"
#include "inspect/proc.h"
#include "object_readers.h"

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long m, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long m, unsigned long flags);
void __real_pymem__init(struct pymem *m, const struct python *py, bool paging);
void __wrap_pymem__init(struct pymem *m, const struct python *py, bool paging);

static const struct proc *live;

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n,
				const struct iovec *remote, unsigned long m, unsigned long flags)
{
	ssize_t got = __real_process_vm_readv(pid, local, n, remote, m, flags), left = got;

	for (unsigned long i = 0; i < m && left > 0; left -= (ssize_t)remote[i++].iov_len)
		image_touch((uintptr_t)remote[i].iov_base,
			    (ssize_t)remote[i].iov_len < left ? remote[i].iov_len : (size_t)left);
	return got;
}

/* Without paging: whole pages are far more than the readers need. */
void __wrap_pymem__init(struct pymem *m, const struct python *py, bool paging)
{
	__real_pymem__init(m, py, false);
}

static bool read_now(void *dst, size_t size, uint64_t addr)
{
	struct iovec local = { dst, size }, remote = { (void *)(uintptr_t)addr, size };

	return __real_process_vm_readv(proc__pid(live), &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static int die(const char *what)
{
	fprintf(stderr, "object_image: %s\n", what);
	return 1;
}

int main(int argc, char **argv)
{
	struct object_head h = { 0 };
	const char *why = "";
	struct python *py;
	struct maps maps;
	FILE *f;

	if (argc < 3)
		return die("usage: object_image PID FILE KIND ADDRESS ...");
	live = proc__open(atoi(argv[1]));
	if (!live || proc__maps(live, &maps))
		return die("no such process");
	py = python__open(live, &maps, &why);
	if (!py)
		return die(why);
	image_clear();
	h.minor = (uint8_t)py->minor;
	h.runtime = py->runtime;
	for (size_t i = 0; i < SYMBOLS; i++)
		h.symbol[i] = python__symbol(py, symbol_names[i]);
	if (python__cross_check(py, &why))
		return die(why);
	read_interpreter(py);
	read_locals(py);
	for (int i = 3; i + 1 < argc && h.n_roots < ROOTS_MAX; i += 2) {
		uint64_t kind = 0;

		while (kind < ROOT_KINDS && strcmp(root_names[kind], argv[i]))
			kind++;
		if (kind == ROOT_KINDS)
			return die("no such kind");
		h.root[h.n_roots].kind = kind;
		h.root[h.n_roots].addr = strtoul(argv[i + 1], NULL, 0);
		read_object(py, kind, h.root[h.n_roots++].addr);
	}
	f = fopen(argv[2], "w");
	if (!f || fwrite(&h, sizeof(h), 1, f) != 1 || !image_save(f, read_now) || fclose(f))
		return die("cannot write the image");
	return 0;
}
