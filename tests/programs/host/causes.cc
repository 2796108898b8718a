/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* As causes.c, in C++: a vector of strings that only grows. Runs with glibc's malloc and with
 * others. */
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static std::vector<std::string> kept;

static __attribute__((noinline)) void take(size_t mib)
{
	for (size_t i = 0; i < mib * 64; i++)
		kept.emplace_back(16000, 'x'); /* LEAK: vector */
}

int main(int argc, char **argv)
{
	char line[8];

	if (argc != 3)
		return 64;
	setvbuf(stdout, nullptr, _IOLBF, 0);
	puts("ready");
	if (!fgets(line, sizeof(line), stdin))
		return 0;
	take(strtoul(argv[2], nullptr, 10));
	puts("grown");
	return !fgets(line, sizeof(line), stdin);
}
