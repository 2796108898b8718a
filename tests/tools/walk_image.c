/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Saves what the kernel side's walk reads from a stopped process (tests/workloads/walk_stack.py):
 * an image for tests/unit/bpf/test_walk.c and tests/fuzz/fuzz_walk.c. Prints the frames found by
 * user/inspect/python/pythread.c.
 *
 *   walk_image PID IMAGE [ADDRESS ...]
 *
 * ADDRESS: an object whose _wrapped_call_impl is on the stack.
 */
#include <inttypes.h>
#include <stdio.h>

#include "bpf_host.h"
#include "inspect/proc.h"
#include "inspect/pyobj.h"
#include "walk_image.h"

#define MAX_DEPTH 64

static const struct proc *live;

static int die(const char *what)
{
	fprintf(stderr, "walk_image: %s\n", what);
	return 1;
}

static long read_live(void *dst, size_t size, uint64_t addr)
{
	if (proc__read(live, addr, dst, size)) {
		memset(dst, 0, size);
		return -EFAULT;
	}
	image_touch(addr, size);
	return 0;
}

static bool read_now(void *dst, size_t size, uint64_t addr)
{
	return proc__read(live, addr, dst, size) == 0;
}

int main(int argc, char **argv)
{
	struct pyframe frames[MAX_DEPTH];
	struct image_head h = { 0 };
	struct pt_regs regs = { 0 };
	struct mt_py_layout layout;
	struct pythread *threads;
	const char *why = "";
	struct pyslot slot;
	struct python *p;
	struct maps maps;
	size_t n, codes = 0;
	int depth, arg = 3;
	FILE *f;

	if (argc < 3)
		return die("usage: walk_image PID IMAGE [ADDRESS ...]");
	live = proc__open(atoi(argv[1]));
	if (!live || proc__maps(live, &maps))
		return die("no such process");
	p = python__open(live, &maps, &why);
	if (!p || python__slot(p, &slot, &why) || python__threads(p, &threads, &n) || !n)
		return die(why);
	depth = python__stack(p, &threads[n - 1], frames, MAX_DEPTH);
	for (int i = 0; i < depth; i++) {
		bool known = false, module;
		struct pycode c;

		if (pyobj__code(p, frames[i].code, &c))
			return die("a code object cannot be read");
		printf("%" PRIx64 " %d %s\n", frames[i].code, frames[i].at, c.name);
		module = strstr(c.name, "_wrapped_call_impl") && !strstr(c.name, "inner");
		if (module && arg < argc)
			printf("self %" PRIx64 "\n", strtoul(argv[arg++], NULL, 0));
		for (size_t k = 0; k < codes; k++)
			known = known || h.module_code[k] == frames[i].code;
		if (module && !known && codes < MT_MAX_MODULE_CODES)
			h.module_code[codes++] = frames[i].code;
		pycode__free(&c);
		image_touch(frames[i].addr, 128);
	}
	h.minor = python__layout(p)->minor;
	h.free_threaded = python__layout(p)->free_threaded;
	h.slot = slot.kind;
	h.off1 = slot.first;
	h.off2 = slot.second;
	h.thread = threads[n - 1].thread_id;
	h.type_cell = python__symbol(p, "PyCell_Type");
	host_reset();
	host.live = read_live;
	host.task.thread.fsbase = h.thread;
	layout = image_layout(python__layout(p), slot, h.type_cell);
	memcpy((void *)&py, &layout, sizeof(py));
	memcpy(module_code, h.module_code, sizeof(module_code));
	regs.si = 64;
	host_run(report, &regs);
	f = fopen(argv[2], "w");
	if (!f || fwrite(&h, sizeof(h), 1, f) != 1 || !image_save(f, read_now) || fclose(f))
		return die("cannot write the image");
	return 0;
}
