/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* For musl: a program without Python that loads the library with PyTorch's hooks and calls one of
 * them every 2 ms. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	void *(*new_block)(void *, void *, unsigned long);

	if (!library)
		return 1;
	*(void **)&new_block = dlsym(library, "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm");
	if (!new_block)
		return 1;
	puts("ready");
	fflush(stdout);
	for (unsigned long i = 0;; i++) {
		new_block(NULL, (void *)(0x100000 + i % 1000 * 64), 64);
		usleep(2000);
	}
}
