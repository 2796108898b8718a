/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/*
 * Reads a word of the target's memory through the program's stack. Kernels with
 * CONFIG_HARDENED_USERCOPY check the destination of every read, and look into several of the
 * kernel's tables for memory of a map. That takes longer than the read itself.
 * 0, or -errno with *to = 0.
 */
static __always_inline long read_word(__u64 *to, __u64 addr)
{
	__u64 word;
	long err = bpf_probe_read_user(&word, sizeof(word), (const void *)addr);

	*to = word;
	return err;
}
