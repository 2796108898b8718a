/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#pragma once
/* Shared by torch.c and hook_address.c. */
#include "inspect/torch.h"

/* The hook cannot be set: closes its file. why: static text. Returns err. */
int torch__refuse_hook(struct hook *h, int err, const char *why);
/*
 * Picks the site of a function and sets the hook. map: the executable mapping with the function.
 * vaddr, offset, func_size: the function's in the file; size 0: not known. args: as for
 * site__pick(). 0 or -errno with why_not.
 */
int torch__set_hook(const struct proc *p, struct elf *e, const struct map *map, uint64_t vaddr,
		    uint64_t offset, uint64_t func_size, unsigned args, struct hook *h);
