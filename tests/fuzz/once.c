// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The program around a fuzzer in `make check`: runs it on each file of the folders that the command
 * line names, once, without libFuzzer. Ends with a line of cmocka's form, which tests/run.py
 * counts. Standard output may be a fuzzer's own.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
/* libFuzzer's, which fuzzers with checksums in their input call to change it. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
	(void)data, (void)max_size;
	return size;
}

static void fail(const char *path)
{
	perror(path);
	exit(1);
}

static void run_file(const char *path)
{
	struct stat st;
	uint8_t *data;
	FILE *f = fopen(path, "re");

	if (!f || fstat(fileno(f), &st) || !(data = malloc(st.st_size + 1)) ||
	    fread(data, 1, st.st_size, f) != (size_t)st.st_size)
		fail(path);
	fclose(f);
	/* A crash ends the program: the last line of the log is the input's name. */
	fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(data, st.st_size);
	free(data);
}

/* The number of files. */
static int run_folder(const char *folder)
{
	struct dirent **found;
	int count = scandir(folder, &found, NULL, alphasort), n = 0;

	if (count < 0)
		fail(folder);
	for (int i = 0; i < count; i++) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/%s", folder, found[i]->d_name);
		if (found[i]->d_name[0] != '.' && ++n)
			run_file(path);
		free(found[i]);
	}
	free(found);
	return n;
}

int main(int argc, char **argv)
{
	int n = 0;

	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&argc, &argv);
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	for (int i = 1; i < argc; i++)
		n += run_folder(argv[i]);
	fprintf(stderr, "[       OK ] %d inputs\n", n);
	return 0;
}
