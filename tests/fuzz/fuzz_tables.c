/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * libFuzzer target: the Parquet files of any recording (recording_file.h). Either all six tables
 * are written, in folders of the names that engines expect, or none; each file has Parquet's magic
 * at both ends and a footer that fits in. Messages must be harmless on a terminal.
 */
#include <fcntl.h>
#include <ftw.h>

#include "cmd/commands.h"
#include "recording_file.h"
#include "terminal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TABLES 6

static size_t files;

static void check_file(const char *path, off_t size)
{
	uint8_t begin[4], end[8];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || size < 12 || pread(fd, begin, 4, 0) != 4 || pread(fd, end, 8, size - 8) != 8)
		abort();
	if (memcmp(begin, "PAR1", 4) || memcmp(end + 4, "PAR1", 4))
		abort();
	if ((off_t)(end[0] | end[1] << 8 | end[2] << 16 | (uint32_t)end[3] << 24) > size - 12)
		abort();
	close(fd);
}

/* FOLDER/TABLE/job=JOB/date=DATE/NAME.parquet; removes it, too. */
static int look(const char *path, const struct stat *st, int type, struct FTW *at)
{
	const char *base = path + at->base;

	if (!terminal__harmless(path, strlen(path)))
		abort();
	if (type == FTW_F) {
		if (at->level != 4 || strcmp(base + strlen(base) - 8, ".parquet"))
			abort();
		check_file(path, st->st_size);
		files++;
	} else if ((at->level == 2 && strncmp(base, "job=", 4)) ||
		   (at->level == 3 && strncmp(base, "date=", 5)) || at->level > 3) {
		abort();
	}
	return remove(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *messages, *old = stderr;
	char *text = NULL, *argv[6] = { strdup("export"), strdup("-f"), strdup("-o"), NULL };
	char folder[] = "/tmp/memtrace-fuzz-XXXXXX";
	size_t said = 0;
	int status;

	if (!mkdtemp(folder))
		abort();
	argv[3] = strdup(folder);
	argv[4] = strdup("parquet");
	argv[5] = strdup(size ? recording_file(data, size) : "/dev/null");
	messages = open_memstream(&text, &said);
	if (!messages)
		abort();
	stderr = messages;
	status = command_export.run(6, argv);
	stderr = old;
	fclose(messages);
	files = 0;
	if (nftw(folder, look, 8, FTW_DEPTH | FTW_PHYS) || files != (status ? 0 : TABLES))
		abort();
	for (char *line = text, *end; *line; line = end + 1) {
		end = strchrnul(line, '\n');
		if (!terminal__harmless(line, (size_t)(end - line)))
			abort();
		if (!*end)
			break;
	}
	free(text);
	for (size_t i = 0; i < 6; i++)
		free(argv[i]);
	return 0;
}
