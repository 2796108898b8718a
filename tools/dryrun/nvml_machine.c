// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "nvml_machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX 8192

/* Opened at load time: the program may later drop the right to open it. */
static int file = -1;
static bool named;

__attribute__((constructor)) static void open_file(void)
{
	const char *path = getenv("MEMTRACE_DRYRUN_NVML");

	named = path && *path;
	if (named)
		file = open(path, O_RDONLY | O_CLOEXEC);
}

/* Reads the words after BYTES of a process. False: another word. */
static bool take_words(struct machine *m, const char *words)
{
	unsigned int i = m->n_processes, n;
	char word[32];
	int len;

	for (; sscanf(words, "%31s%n", word, &len) == 1; words += len) {
		if (!strcmp(word, "graphics"))
			m->process[i].kinds = MACHINE_GRAPHICS;
		else if (!strcmp(word, "mps"))
			m->process[i].kinds = MACHINE_MPS;
		else if (!strcmp(word, "both"))
			m->process[i].kinds = MACHINE_COMPUTE | MACHINE_GRAPHICS;
		else if (sscanf(word, "slice=%u", &n) == 1)
			m->process[i].slice = n;
		else if (sscanf(word, "worked=%u", &m->process[i].ago) == 1)
			m->process[i].worked = true;
		else
			return false;
	}
	return true;
}

static bool take_process(struct machine *m, unsigned int device, unsigned int pid, const char *size,
			 const char *words)
{
	unsigned int i = m->n_processes;

	if (i == MACHINE_PROCESSES || device >= DRYRUN_MAX_DEVICES)
		return false;
	m->process[i].device = (int)device;
	m->process[i].pid = pid;
	m->process[i].kinds = MACHINE_COMPUTE;
	m->process[i].slice = UINT32_MAX;
	m->process[i].used = UINT64_MAX;
	if (strcmp(size, "-") != 0 && !dryrun__parse_size(size, &m->process[i].used))
		return false;
	if (!take_words(m, words))
		return false;
	m->n_processes++;
	return true;
}

static bool take_slice(struct machine *m, unsigned int device, unsigned int number, uint64_t total)
{
	unsigned int *n = &m->device[device].n_slices;

	if (*n == MACHINE_SLICES)
		return false;
	m->device[device].slice[*n].number = number;
	m->device[device].slice[(*n)++].total = total;
	return true;
}

/* A directive of a device with a size. */
static bool take_size(struct machine *m, const char *line)
{
	unsigned int device = 0, n = 0;
	char size[32] = "";
	uint64_t bytes = 0;

	if (sscanf(line, "slice %u %u %31s", &device, &n, size) == 3)
		return device < DRYRUN_MAX_DEVICES && dryrun__parse_size(size, &bytes) &&
		       take_slice(m, device, n, bytes);
	if (sscanf(line, "reserved %u %31s", &device, size) != 2 &&
	    sscanf(line, "more %u %31s", &device, size) != 2 &&
	    sscanf(line, "vgpu %u %31s", &device, size) != 2)
		return false;
	if (device >= DRYRUN_MAX_DEVICES || !dryrun__parse_size(size, &bytes))
		return false;
	if (*line == 'r')
		m->device[device].reserved = bytes;
	else if (*line == 'v')
		m->device[device].vgpu = bytes;
	else
		m->device[device].more = bytes;
	return true;
}

static bool take_line(struct machine *m, const char *line)
{
	unsigned int device = 0, n = 0;
	char size[32] = "";
	int end = 0;

	if (!*line || *line == '#')
		return true;
	if (sscanf(line, "process %u %u %31s%n", &device, &n, size, &end) == 3)
		return take_process(m, device, n, size, line + end);
	if (take_size(m, line))
		return true;
	if (sscanf(line, "minor %u %u", &device, &n) == 2 && device < DRYRUN_MAX_DEVICES)
		m->device[device].minor = n;
	else if (sscanf(line, "mig %u %u", &device, &n) == 2 && device < DRYRUN_MAX_DEVICES)
		m->device[device].mig = n;
	else if (sscanf(line, "delay %u", &n) == 1)
		m->delay_ms = n;
	else if (!strcmp(line, "hang"))
		m->hang = true;
	else if (!strcmp(line, "no_v2"))
		m->no_v2 = true;
	else if (!strcmp(line, "no_memory"))
		m->no_memory = true;
	else if (!strcmp(line, "no_processes"))
		m->no_processes = true;
	else
		return false;
	return true;
}

bool machine__read(struct machine *m)
{
	char text[TEXT_MAX + 1], *line, *end;
	ssize_t n;

	memset(m, 0, sizeof(*m));
	for (unsigned int i = 0; i < DRYRUN_MAX_DEVICES; i++)
		m->device[i].minor = i;
	if (!named)
		return true;
	n = file < 0 ? -1 : pread(file, text, TEXT_MAX, 0);
	if (n < 0 || n == TEXT_MAX)
		return false;
	text[n] = '\0';
	for (line = text; *line; line = end) {
		end = line + strcspn(line, "\n");
		if (*end)
			*end++ = '\0';
		if (!take_line(m, line))
			return false;
	}
	return true;
}

void machine__wait(const struct machine *m)
{
	struct timespec t = { m->delay_ms / 1000, (long)(m->delay_ms % 1000) * 1000000 };

	while (m->hang)
		pause();
	if (m->delay_ms)
		nanosleep(&t, NULL);
}
