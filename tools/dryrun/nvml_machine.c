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

static bool add_process(struct machine *m, unsigned int device, unsigned int pid, uint64_t used)
{
	if (m->n_processes == MACHINE_PROCESSES)
		return false;
	m->process[m->n_processes].device = (int)device;
	m->process[m->n_processes].pid = pid;
	m->process[m->n_processes++].used = used;
	return true;
}

static bool take_line(struct machine *m, const char *line)
{
	unsigned int device = 0, n = 0;
	char size[32] = "";
	uint64_t bytes = 0;

	if (!*line || *line == '#')
		return true;
	if (sscanf(line, "process %u %u %31s", &device, &n, size) == 3 &&
	    device < DRYRUN_MAX_DEVICES && dryrun__parse_size(size, &bytes))
		return add_process(m, device, n, bytes);
	if (sscanf(line, "reserved %u %31s", &device, size) == 2 && device < DRYRUN_MAX_DEVICES &&
	    dryrun__parse_size(size, &bytes))
		m->device[device].reserved = bytes;
	else if (sscanf(line, "minor %u %u", &device, &n) == 2 && device < DRYRUN_MAX_DEVICES)
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
