/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Capabilities by their two system calls: libcap would be a dependency for 40 lines. */
#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/kernel.h"

static const struct {
	unsigned bit;
	const char *name;
} needed[] = {
	{ CAP_BPF, "CAP_BPF" },
	{ CAP_PERFMON, "CAP_PERFMON" },
	{ CAP_SYS_PTRACE, "CAP_SYS_PTRACE" },
	{ CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH" },
};
#define TO_READ 2 /* index in needed[] of the first capability for reading a process */

static int get_caps(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &h, data) ? -errno : 0;
}

static bool has(const struct __user_cap_data_struct data[2], unsigned bit)
{
	return data[bit / 32].effective & 1u << (bit % 32);
}

/* The capabilities of needed[] that we lack, from index first on, as static text; "" if there are
 * none. */
static const char *missing(size_t first)
{
	static char text[96];
	struct __user_cap_data_struct data[2] = { 0 };
	size_t i, len = 0;

	text[0] = '\0';
	if (get_caps(data))
		return text;
	for (i = first; i < sizeof(needed) / sizeof(needed[0]); i++) {
		/* As in the kernel, CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON, and
		 * CAP_DAC_OVERRIDE includes reading. */
		if (has(data, needed[i].bit) ||
		    (needed[i].bit >= CAP_PERFMON && has(data, CAP_SYS_ADMIN)) ||
		    (needed[i].bit == CAP_DAC_READ_SEARCH && has(data, CAP_DAC_OVERRIDE)))
			continue;
		len += snprintf(text + len, sizeof(text) - len, "%s%s", len ? ", " : "",
				needed[i].name);
	}
	return text;
}

const char *caps__missing(void)
{
	return missing(0);
}

const char *caps__missing_to_read(void)
{
	return missing(TO_READ);
}

bool caps__reach_replaced(void)
{
	struct __user_cap_data_struct data[2] = { 0 };

	return !get_caps(data) && (has(data, CAP_CHECKPOINT_RESTORE) || has(data, CAP_SYS_ADMIN));
}

bool caps__sys_admin(void)
{
	struct __user_cap_data_struct data[2] = { 0 };

	return !get_caps(data) && has(data, CAP_SYS_ADMIN);
}

static void add_bits(uint32_t mask[2], const unsigned *bits, size_t n)
{
	for (size_t i = 0; i < n; i++)
		mask[bits[i] / 32] |= 1u << (bits[i] % 32);
}

/* Keeps dropped capabilities from coming back with an exec, and core files, with the target's data,
 * from being written. Ignores refusals. */
static void lock_caps(const uint32_t mask[2])
{
	for (unsigned bit = 0; bit <= CAP_LAST_CAP; bit++) {
		if (!(mask[bit / 32] & 1u << (bit % 32)))
			prctl(PR_CAPBSET_DROP, bit, 0, 0, 0);
	}
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* Drops all capabilities but those for `keep`, a set of CAPS_* bits, and, if capturing, those that
 * a capture needs. 0 or -errno. */
static int limit_caps(unsigned int keep, bool capturing)
{
	/* BPF, PERFMON: to add probes, for the first module and for missing pages. SYS_PTRACE,
	 * DAC_READ_SEARCH: to read names. CHECKPOINT_RESTORE: for /proc/PID/map_files. */
	static const unsigned always[] = { CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE,
					   CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE };
	static const unsigned for_perf[] = { CAP_SYS_ADMIN };
	static const unsigned for_signals[] = { CAP_KILL };
	/* for files that belong to the user behind sudo, in that user's folder */
	static const unsigned for_files[] = { CAP_DAC_OVERRIDE, CAP_CHOWN, CAP_FOWNER };
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	uint32_t mask[2] = { 0 };
	int i, err;

	if (capturing)
		add_bits(mask, always, sizeof(always) / sizeof(always[0]));
	if (keep & CAPS_PERF)
		add_bits(mask, for_perf, 1);
	if (keep & CAPS_KILL)
		add_bits(mask, for_signals, 1);
	if (keep & CAPS_FILES)
		add_bits(mask, for_files, sizeof(for_files) / sizeof(for_files[0]));
	err = get_caps(data);
	if (err)
		return err;
	lock_caps(mask);
	for (i = 0; i < 2; i++) {
		data[i].effective &= mask[i];
		data[i].permitted &= mask[i];
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &h, data) ? -errno : 0;
}

int caps__limit(unsigned int keep)
{
	return limit_caps(keep, /*capturing=*/true);
}

int caps__only(unsigned int keep)
{
	return limit_caps(keep, /*capturing=*/false);
}
