/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Capabilities, with the two system calls themselves: libcap would be one more dependency for 40 lines. */
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/attach.h"

static const struct {
	unsigned bit;
	const char *name;
} needed[] = {
	{ CAP_BPF, "CAP_BPF" },
	{ CAP_PERFMON, "CAP_PERFMON" },
	{ CAP_SYS_PTRACE, "CAP_SYS_PTRACE" },
};

static int get(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &h, data) ? -errno : 0;
}

const char *caps__missing(void)
{
	static char text[96];
	struct __user_cap_data_struct data[2] = { 0 };
	size_t i, len = 0;

	text[0] = '\0';
	if (get(data))
		return text;
	for (i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		uint32_t set = data[needed[i].bit / 32].effective;

		/* CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON, as it does in the kernel. */
		if (set & (1u << (needed[i].bit % 32)) ||
		    (needed[i].bit >= CAP_PERFMON && data[0].effective & (1u << CAP_SYS_ADMIN)))
			continue;
		len += snprintf(text + len, sizeof(text) - len, "%s%s", len ? ", " : "", needed[i].name);
	}
	return text;
}

int caps__limit(unsigned int keep)
{
	/*
	 * BPF, PERFMON: probes are added when the first module is seen and when pages are missing.
	 * SYS_PTRACE, DAC_READ_SEARCH: reading names. CHECKPOINT_RESTORE, SYS_ADMIN: /proc/PID/map_files, and perf
	 * uprobes on kernels without uprobe.multi.
	 */
	static const unsigned always[] = { CAP_BPF,	      CAP_PERFMON,	    CAP_SYS_PTRACE,
					 CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN };
	/* In the folder of the user behind sudo, which belong to them. */
	static const unsigned for_files[] = { CAP_DAC_OVERRIDE, CAP_CHOWN, CAP_FOWNER };
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	uint32_t mask[2] = { 0 };
	size_t i;
	int err;

	for (i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		mask[always[i] / 32] |= 1u << (always[i] % 32);
	if (keep & CAPS_KILL)
		mask[CAP_KILL / 32] |= 1u << (CAP_KILL % 32);
	for (i = 0; keep & CAPS_FILES && i < sizeof(for_files) / sizeof(for_files[0]); i++)
		mask[for_files[i] / 32] |= 1u << (for_files[i] % 32);
	err = get(data);
	if (err)
		return err;
	for (i = 0; i < 2; i++) {
		data[i].effective &= mask[i];
		data[i].permitted &= mask[i];
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &h, data) ? -errno : 0;
}
