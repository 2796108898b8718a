// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "dryrun.h"
#include "core.h"
#include "truth.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define G (1ull << 30)
#define VRAM_MAX (4096 * G) /* 64 devices of this size, with addresses, fit into 47 bits */
#define DEFAULT_NAME "NVIDIA A100-SXM4-80GB (dry run)"
#define DEFAULT_VRAM (80 * G)
#define DEFAULT_CONTEXT (512ull << 20)
#define DEFAULT_WORKSPACE (32ull << 20)

static struct dryrun_config config = {
	.vram = DEFAULT_VRAM,
	.context = DEFAULT_CONTEXT,
	.cudnn_workspace = DEFAULT_WORKSPACE,
	.n_devices = 1,
	.sm_major = 8,
	.name = DEFAULT_NAME,
};

const struct dryrun_config *dryrun__config(void)
{
	return &config;
}

bool dryrun__parse_size(const char *text, uint64_t *size)
{
	static const char units[] = "KMGT";
	unsigned long long n;
	const char *unit;
	char *end;
	int shift = 0;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return false;
	if (*end) {
		unit = strchr(units, toupper((unsigned char)*end));
		if (!unit)
			return false;
		shift = 10 * (int)(unit - units + 1);
		end++;
		if (end[0] == 'i' && end[1] == 'B')
			end += 2;
		else if (end[0] == 'B')
			end++;
		if (*end)
			return false;
	}
	if (n > UINT64_MAX >> shift)
		return false;
	*size = n << shift;
	return true;
}

static void __attribute__((noreturn)) bad(const char *name, const char *value, const char *expected)
{
	/* Print at most one line of the value, and no control characters. */
	fprintf(stderr, "memtrace-bpf: dry run: %s=", name);
	for (int i = 0; value[i] && i < 80; i++)
		fputc(isprint((unsigned char)value[i]) ? value[i] : '?', stderr);
	fprintf(stderr, ": expected %s\n", expected);
	fflush(stderr);
	_exit(EX_USAGE);
}

static void read_size(const char *name, uint64_t *size, uint64_t low, uint64_t high,
		      const char *expected)
{
	const char *value = getenv(name);

	if (!value)
		return;
	if (!dryrun__parse_size(value, size) || *size < low || *size > high)
		bad(name, value, expected);
}

/* Sizes with commas between them, one a device. */
static void read_sizes(const char *name, uint64_t *sizes, int most, const char *expected)
{
	const char *value = getenv(name), *at = value;
	char one[32];

	for (int i = 0; at; i++) {
		size_t len = strcspn(at, ",");

		if (i == most || len >= sizeof(one))
			bad(name, value, expected);
		memcpy(one, at, len);
		one[len] = '\0';
		if (!dryrun__parse_size(one, &sizes[i]) || sizes[i] > VRAM_MAX)
			bad(name, value, expected);
		at = at[len] ? at + len + 1 : NULL;
	}
}

static void read_number(const char *name, int *number, int high, const char *expected)
{
	const char *value = getenv(name);
	char *end;
	long n;

	if (!value)
		return;
	n = strtol(value, &end, 10);
	if (!isdigit((unsigned char)*value) || *end || n < 1 || n > high)
		bad(name, value, expected);
	*number = (int)n;
}

static void read_values(void)
{
	static const char name[] = "MEMTRACE_DRYRUN_VALUES";
	const char *value = getenv(name);

	if (!value || !*value)
		return;
	if (!values__valid(value))
		bad(name, value,
		    "FILE:LINE=VALUE, VALUE@READ from a read on or VALUE@N* at every Nth, more "
		    "after a comma; "
		    "a value is true, false or a number");
	config.values = value;
}

static void read_flag(const char *name, bool *flag)
{
	const char *value = getenv(name);

	if (!value)
		return;
	if (strcmp(value, "0") && strcmp(value, "1"))
		bad(name, value, "0 or 1");
	*flag = *value == '1';
}

static void read_factor(const char *name, double *factor)
{
	const char *value = getenv(name);
	double n;
	char *end;

	if (!value || !strcmp(value, "0"))
		return;
	n = strtod(value, &end);
	if (!isdigit((unsigned char)*value) || strpbrk(value, "xX") || *end ||
	    !(n >= 0.001 && n <= 1000))
		bad(name, value, "0, or a factor of durations from 0.001 to 1000; 1 is the model");
	*factor = n;
}

static void read_sm(void)
{
	static const char name[] = "MEMTRACE_DRYRUN_SM";
	/* Kinds with properties in props.c. */
	static const char *const known[] = { "7.0", "7.5",  "8.0",  "8.6", "8.9",
					     "9.0", "10.0", "10.3", "12.0" };
	const char *value = getenv(name);

	if (!value)
		return;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (strcmp(value, known[i]))
			continue;
		config.sm_major = atoi(value);
		config.sm_minor = atoi(strchr(value, '.') + 1);
		return;
	}
	bad(name, value, "one of 7.0 7.5 8.0 8.6 8.9 9.0 10.0 10.3 12.0");
}

static void read_name(void)
{
	static const char name[] = "MEMTRACE_DRYRUN_NAME";
	const char *value = getenv(name);

	if (!value)
		return;
	if (!*value || strlen(value) >= sizeof(config.name))
		bad(name, value, "1 to 255 bytes");
	strcpy(config.name, value);
}

__attribute__((constructor)) static void read_environment(void)
{
	const char *log = getenv("MEMTRACE_DRYRUN_LOG");

	read_size("MEMTRACE_DRYRUN_VRAM", &config.vram, 16ull << 20, VRAM_MAX,
		  "a size from 16M to 4T, as 80G, 512M or bytes");
	read_size("MEMTRACE_DRYRUN_CONTEXT", &config.context, 0, VRAM_MAX,
		  "a size from 0 to 4T, as 512M or bytes");
	read_size("MEMTRACE_DRYRUN_CUDNN_WORKSPACE", &config.cudnn_workspace, 0, VRAM_MAX,
		  "a size from 0 to 4T, as 32M or bytes");
	read_sizes("MEMTRACE_DRYRUN_HELD", config.held, DRYRUN_MAX_DEVICES,
		   "a size for each device with commas between them, as 20G,512M");
	read_number("MEMTRACE_DRYRUN_DEVICES", &config.n_devices, DRYRUN_MAX_DEVICES,
		    "a number of devices from 1 to 64");
	read_sm();
	read_number("MEMTRACE_DRYRUN_PROCESSORS", &config.processors, 1024,
		    "a number of multiprocessors from 1 to 1024");
	read_number("MEMTRACE_DRYRUN_PACED", &config.paced, 1000000,
		    "a number of kernels from 1 to 1000000");
	read_name();
	read_flag("MEMTRACE_DRYRUN_HOST_INIT", &config.host_init);
	read_flag("MEMTRACE_DRYRUN_BYPASS", &config.bypass);
	read_factor("MEMTRACE_DRYRUN_CLOCK", &config.clock);
	read_values();
	if (log && *log) {
		config.log = log;
		log__open();
	}
	config.vram &= ~(uint64_t)(DRYRUN_GRANULE - 1);
	if (config.context >= config.vram)
		bad("MEMTRACE_DRYRUN_CONTEXT", getenv("MEMTRACE_DRYRUN_CONTEXT") ?: "512M",
		    "less than MEMTRACE_DRYRUN_VRAM");
}
