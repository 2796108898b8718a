/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Runs a workload in a real interpreter for unit tests. Tests read its output line by line and
 * write commands to it. The workload ends when its input is closed. For inclusion in one test
 * program.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct live {
	pid_t pid;
	FILE *out, *in; /* the workload's output and input */
	char *line;
	size_t line_cap;
};

#define LIVE_FIELDS 8

static void live__start(struct live *l, const char *python, const char *script)
{
	int out[2], in[2];

	memset(l, 0, sizeof(*l));
	if (pipe(out) || pipe(in)) {
		perror("pipe");
		abort();
	}
	l->pid = fork();
	if (!l->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		close(in[0]);
		close(in[1]);
		execlp(python, python, script, (char *)NULL);
		perror(python);
		_exit(127);
	}
	close(out[1]);
	close(in[0]);
	l->out = fdopen(out[0], "r");
	l->in = fdopen(in[1], "w");
	if (l->pid < 0 || !l->out || !l->in) {
		perror("live");
		abort();
	}
}

/* Reads the next line, separated by tabs. Returns the number of fields; 0: end of output. */
static size_t live__next(struct live *l, char **fields)
{
	ssize_t len = getline(&l->line, &l->line_cap, l->out);
	size_t n = 0;
	char *s;

	if (len <= 0)
		return 0;
	if (l->line[len - 1] == '\n')
		l->line[len - 1] = '\0';
	s = l->line;
	while (n < LIVE_FIELDS) {
		fields[n++] = s;
		s = strchr(s, '\t');
		if (!s)
			break;
		*s++ = '\0';
	}
	return n;
}

__attribute__((unused)) static void live__tell(struct live *l, const char *command)
{
	fprintf(l->in, "%s\n", command);
	fflush(l->in);
}

/* True if the workload exited with 0. */
static bool live__stop(struct live *l)
{
	int status;

	fclose(l->in);
	while (getline(&l->line, &l->line_cap, l->out) > 0)
		;
	fclose(l->out);
	free(l->line);
	return waitpid(l->pid, &status, 0) == l->pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* Hex digits to text; "-" is the empty text. malloc'd. */
__attribute__((unused)) static char *live__unhex(const char *hex, size_t *len)
{
	size_t n = strcmp(hex, "-") ? strlen(hex) / 2 : 0;
	char *s = malloc(n + 1);

	for (size_t i = 0; s && i < n; i++) {
		unsigned byte;

		if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
			abort();
		s[i] = (char)byte;
	}
	if (!s)
		abort();
	s[n] = '\0';
	if (len)
		*len = n;
	return s;
}
