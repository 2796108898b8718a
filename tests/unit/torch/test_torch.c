/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Searches hooks in this process, which maps generated library files. */
#include "unit/cmocka.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf_image.h"
#include "inspect/cudaalloc.h"
#include "inspect/torch.h"
#include "unit/scratch.h"

static const uint8_t push_r14[] = { 0x41, 0x56, 0x41, 0x5e, 0xc3 };
static const uint8_t mov_push[] = { 0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x41, 0x56, 0x41, 0x5e, 0xc3 };
static const uint8_t cmp_je[] = { 0x80, 0x7f, 0x68, 0x00, 0x74, 0x01, 0xc3, 0xc3 };
static const uint8_t bad_code[] = { 0x06, 0xc3 };

#define REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define OOM_OTHER "_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE"
#define CPU_NEW "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm"
#define ENTER_NEW "_ZN5torch8autograd8profiler25record_function_enter_newERK"
#define ENTER_NEW_OLD_ABI ENTER_NEW "SsRKN3c108optionalISsEE"
#define CPU_DELETE "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv"

static const struct image_func c10_funcs[] = {
	{ REPORT, mov_push, sizeof(mov_push) },
	{ CPU_NEW, cmp_je, sizeof(cmp_je) },
	{ CPU_DELETE, push_r14, sizeof(push_r14) },
	{ OOM_OTHER, push_r14, sizeof(push_r14) },
};
#define C10_FUNCS c10_funcs, sizeof(c10_funcs) / sizeof(*c10_funcs)
static const struct image_func other_funcs[] = { { "something_else", push_r14, sizeof(push_r14) } };

struct lib {
	char path[160];
	void *mem;
	size_t size; /* size of the mapping */
};

static char dir[64]; /* folder of the current test */
static const char *const folders[] = { "torch", "torch/lib", "other", "other/torch",
				       "other/torch/lib" };
#define FOLDERS (sizeof(folders) / sizeof(folders[0]))

struct world {
	struct lib libs[8];
	size_t n;
	struct proc *p;
	struct maps m;
	struct hook hooks[HOOK_NR];
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	char path[128];

	assert_non_null(w);
	strcpy(dir, "/tmp/test_torch.XXXXXX");
	assert_non_null(mkdtemp(dir));
	for (size_t i = 0; i < FOLDERS; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, folders[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	w->p = proc__open(getpid());
	assert_non_null(w->p);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < w->n; i++)
		munmap(w->libs[i].mem, w->libs[i].size);
	hook__close_all(w->hooks);
	assert_int_equal(scratch__remove(dir), 0);
	maps__free(&w->m);
	proc__free(w->p);
	free(w);
	return 0;
}

static struct lib *write_lib(struct world *w, const char *name, const struct image_func *f,
			     uint32_t n, int *ret)
{
	struct lib *lib = &w->libs[w->n++];
	struct image im;
	int fd;

	snprintf(lib->path, sizeof(lib->path), "%s/%s", dir, name);
	image_build(&im, f, n, IMAGE_GNU_HASH);
	fd = open(lib->path, O_RDWR | O_CREAT | O_EXCL, 0700);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, im.bytes, sizeof(im.bytes)), sizeof(im.bytes));
	*ret = fd;
	return lib;
}

/* Writes a library and maps its code as the dynamic loader does. */
static struct lib *add_lib(struct world *w, const char *name, const struct image_func *f,
			   uint32_t n)
{
	int fd;
	struct lib *lib = write_lib(w, name, f, n, &fd);

	lib->size = IMAGE_SIZE;
	lib->mem = mmap(NULL, lib->size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_true(lib->mem != MAP_FAILED);
	close(fd);
	return lib;
}

/* The same at the distances in its headers, so that its symbols can be read. */
static struct lib *load_lib(struct world *w, const char *name, const struct image_func *f,
			    uint32_t n)
{
	int fd;
	struct lib *lib = write_lib(w, name, f, n, &fd);

	lib->size = IMAGE_CODE_VADDR + IMAGE_SIZE - IMAGE_CODE_OFF;
	lib->mem = mmap(NULL, lib->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(lib->mem != MAP_FAILED);
	assert_true(mmap(lib->mem, IMAGE_CODE_OFF, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) !=
		    MAP_FAILED);
	assert_true(mmap((char *)lib->mem + IMAGE_CODE_VADDR, IMAGE_SIZE - IMAGE_CODE_OFF,
			 PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd,
			 IMAGE_CODE_OFF) != MAP_FAILED);
	close(fd);
	return lib;
}

static void write_version_in(const char *folder, const char *text)
{
	char path[160];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/version.py", dir, folder);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void write_version(const char *text)
{
	write_version_in("torch", text);
}

static int find_hooks(struct world *w)
{
	maps__free(&w->m);
	assert_int_equal(proc__maps(w->p, &w->m), 0);
	return torch__hooks(w->p, &w->m, w->hooks);
}

/* Bytes at the hook's file and offset, as the kernel reads them. */
static void read_hook(const struct hook *h, uint8_t *buf, size_t len)
{
	char name[ELF_NAME];
	int fd = open(elf__name(h->elf, name), O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, buf, len, (off_t)h->offset), len);
	close(fd);
}

static void test_no_torch(void **state)
{
	struct world *w = *state;
	struct torch_info info;
	int i;

	w->hooks[HOOK_OOM].found = true;
	assert_int_equal(find_hooks(w), -ENOENT);
	for (i = 0; i < HOOK_NR; i++) {
		assert_false(w->hooks[i].found);
		assert_non_null(w->hooks[i].why_not);
		assert_int_equal(w->hooks[i].id, i);
	}
	assert_true(w->hooks[HOOK_REPORT].required && w->hooks[HOOK_CPU_NEW].required);
	assert_true(w->hooks[HOOK_CPU_DELETE].required && !w->hooks[HOOK_OOM].required);
	assert_false(w->hooks[HOOK_SCOPE_END].required || w->hooks[HOOK_CODE_GONE].required);
	torch__info(w->p, &w->m, &info);
	assert_false(info.found || info.cuda);
	assert_string_equal(info.version, "");
	assert_string_equal(info.cuda_runtime, "");
}

static void test_hooks(void **state)
{
	struct world *w = *state;
	uint8_t buf[2];
	struct lib *c10;
	struct hook *h;

	c10 = add_lib(w, "torch/lib/libc10.so", C10_FUNCS);
	assert_int_equal(find_hooks(w), 0);
	h = &w->hooks[HOOK_REPORT];
	assert_true(h->found && h->site.cls == SITE_PUSH && h->site.offset == 7);
	assert_true(h->offset == IMAGE_CODE_OFF + 7 && h->others == 0 && !h->why_not);
	assert_string_equal(h->file, c10->path);
	assert_string_equal(h->symbol, REPORT);
	read_hook(h, buf, 2);
	assert_true(buf[0] == 0x41 && buf[1] == 0x56);
	h = &w->hooks[HOOK_OOM];
	assert_true(h->found && h->offset == IMAGE_CODE_OFF + 3 * IMAGE_SLOT);
	assert_string_equal(h->symbol, OOM_OTHER);
	h = &w->hooks[HOOK_CPU_NEW];
	assert_true(h->found && h->site.cls == SITE_JCC && h->site.offset == 4);
	assert_false(w->hooks[HOOK_SCOPE_END].found);
}

/* record_function_enter_new() of PyTorch 2.1, whose std::string has the old ABI. The probed
 * instruction must come before one that overwrites the name's address, rsi. */
static void test_record_function(void **state)
{
	static const uint8_t code[] = { 0x55, 0x48, 0x89, 0xd6, 0x5d, 0xc3 };
	static const struct image_func funcs[] = { { ENTER_NEW_OLD_ABI, code, sizeof(code) } };
	struct world *w = *state;
	struct hook *h = &w->hooks[HOOK_SCOPE_BEGIN];

	add_lib(w, "torch/lib/libc10.so", C10_FUNCS);
	assert_int_equal(find_hooks(w), 0);
	assert_true(!h->found && !h->required && strstr(h->why_not, "record_function"));
	add_lib(w, "torch/lib/libtorch_cpu.so", funcs, 1);
	assert_int_equal(find_hooks(w), 0);
	assert_true(h->found && h->fixed && h->site.offset == 0);
	assert_string_equal(h->symbol, ENTER_NEW_OLD_ABI);
}

/* A library replaced while mapped: the path must lead to the old file. */
static void test_replaced(void **state)
{
	struct world *w = *state;
	struct lib *old = add_lib(w, "torch/lib/libc10.so", C10_FUNCS);
	struct torch_info info;
	uint8_t buf[2];
	int err;

	write_version("__version__ = '9.9'\n");
	assert_int_equal(unlink(old->path), 0);
	err = find_hooks(w);
	if (err) {
		/* Another file may have its name by then. */
		assert_true(err == -ENOENT || err == -ESTALE);
		assert_non_null(strstr(w->hooks[HOOK_REPORT].why_not, "cannot be opened"));
		print_message("note: map_files is not permitted here; a replaced file was refused, "
			      "not opened\n");
	} else {
		assert_non_null(strstr(w->hooks[HOOK_REPORT].file, "libc10.so (deleted)"));
		read_hook(&w->hooks[HOOK_REPORT], buf, 2);
		assert_true(buf[0] == 0x41 && buf[1] == 0x56);
	}
	torch__info(w->p, &w->m, &info);
	assert_true(info.found);
	assert_string_equal(info.version, ""); /* the version of the new files does not apply */
}

/* The same symbols twice: Python uses the library next to libtorch_python. */
static void test_two_libraries(void **state)
{
	struct world *w = *state;
	struct lib *mine;

	add_lib(w, "libc10-other.so", C10_FUNCS);
	mine = add_lib(w, "torch/lib/libc10.so", C10_FUNCS);
	add_lib(w, "torch/lib/libtorch_python.so", other_funcs, 1);
	add_lib(w, "libc10-third.so", C10_FUNCS);
	assert_int_equal(find_hooks(w), 0);
	assert_string_equal(w->hooks[HOOK_REPORT].file, mine->path);
	assert_int_equal(w->hooks[HOOK_REPORT].others, 2);
}

/* An allocator not created yet, and one at an address. */
#define ALLOCATOR "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
static const uint8_t not_made[8] = { 0 }, made[8] = { 0, 0, 0, 0, 0, 1 };
static const struct image_func mine_funcs[] = { { ALLOCATOR, not_made, sizeof(not_made) } };
static const struct image_func other_allocator[] = { { ALLOCATOR, made, sizeof(made) } };

/* Version and allocator belong to the PyTorch with the probed functions, whatever the order of
 * addresses. */
static void two_versions(struct world *w, bool other_first)
{
	struct torch_info info;
	struct cudaalloc *a;
	const char *why;

	if (other_first)
		load_lib(w, "other/torch/lib/libc10_cuda.so", other_allocator, 1);
	load_lib(w, "torch/lib/libc10_cuda.so", mine_funcs, 1);
	add_lib(w, "torch/lib/libc10.so", C10_FUNCS);
	add_lib(w, "torch/lib/libtorch_python.so", other_funcs, 1);
	if (!other_first)
		load_lib(w, "other/torch/lib/libc10_cuda.so", other_allocator, 1);
	write_version_in("torch", "__version__ = '2.7.1'\n");
	write_version_in("other/torch", "__version__ = '2.1.0'\n");
	assert_int_equal(find_hooks(w), 0);
	torch__info(w->p, &w->m, &info);
	assert_string_equal(info.version, "2.7.1");
	a = cudaalloc__open(w->p, &w->m, &why);
	assert_non_null(a);
	assert_int_equal(cudaalloc__backend(a), ALLOC_NONE);
	cudaalloc__free(a);
}

static void test_two_versions(void **state)
{
	two_versions(*state, true);
}

static void test_two_versions_turned(void **state)
{
	two_versions(*state, false);
}

/* The owner of a file with an allocator. */
static void test_other_pytorch(void **state)
{
	struct world *w = *state;
	struct lib *other = add_lib(w, "other/torch/lib/libc10_cuda.so", other_allocator, 1), *mine;

	assert_int_equal(find_hooks(w), -ENOENT);
	assert_false(torch__is_other(&w->m, other->path)); /* the only file with an allocator */
	mine = add_lib(w, "torch/lib/libc10_cuda.so", mine_funcs, 1);
	add_lib(w, "torch/lib/libtorch_python.so", other_funcs, 1);
	assert_int_equal(find_hooks(w), -ENOENT);
	assert_true(torch__is_other(&w->m, other->path));
	assert_false(torch__is_other(&w->m, mine->path));
	assert_false(torch__is_other(&w->m, "/usr/bin/engine")); /* linked into the executable */
}

/* Linked into a library of another name. */
static void test_other_name(void **state)
{
	struct world *w = *state;
	struct lib *other = add_lib(w, "engine.bin", C10_FUNCS);

	assert_int_equal(find_hooks(w), 0);
	assert_string_equal(w->hooks[HOOK_REPORT].file, other->path);
}

static void test_missing_and_bad(void **state)
{
	static const struct image_func bad[] = {
		{ REPORT, bad_code, sizeof(bad_code) },
		{ CPU_NEW, cmp_je, sizeof(cmp_je) },
	};
	struct world *w = *state;

	add_lib(w, "torch/lib/libc10.so", bad, 2);
	assert_int_equal(find_hooks(w), -ENOENT);
	assert_false(w->hooks[HOOK_REPORT].found);
	assert_non_null(strstr(w->hooks[HOOK_REPORT].why_not, "no instruction"));
	assert_true(w->hooks[HOOK_CPU_NEW].found);
	assert_false(w->hooks[HOOK_CPU_DELETE].found);
	assert_non_null(strstr(w->hooks[HOOK_CPU_DELETE].why_not, "no mapped file exports it"));
}

static void test_version(void **state)
{
	static const struct {
		const char *text, *version;
	} c[] = {
		{ "__version__ = '2.11.0+cu130'\n", "2.11.0+cu130" },
		{ "from typing import Optional\n\n__all__ = ['__version__']\n__version__ = "
		  "'2.1.2'\n",
		  "2.1.2" },
		{ "__version__: str = \"2.0.1\"", "2.0.1" },
		{ "__version__='1.13.1'  # made by setup.py\r\n", "1.13.1" },
		{ "__version__ = '2.0\n", "" },
		{ "__version__ = \"2.0'\n", "" },
		{ "__version__ = ''\n", "" },
		{ "__version__ = '\033[2J'\n", "" },
		{ "__version__ = version()\n", "" },
		{ "__version__\n", "" },
		{ "__version__ =", "" },
		{ "__version__2 = '7'\n__version__ = '8'\n", "8" },
		{ "__version__ = "
		  "'1234567890123456789012345678901234567890123456789012345678901234'\n",
		  "" },
		{ "", "" },
	};
	struct world *w = *state;
	struct torch_info info;
	size_t i;

	add_lib(w, "torch/lib/libc10.so", C10_FUNCS);
	add_lib(w, "torch/lib/libc10_cuda.so", other_funcs, 1);
	add_lib(w, "torch/lib/libcudart-d0da41ae.so.11.0", other_funcs, 1);
	assert_int_equal(proc__maps(w->p, &w->m), 0);
	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		write_version(c[i].text);
		torch__info(w->p, &w->m, &info);
		assert_true(info.found && info.cuda);
		if (strcmp(info.version, c[i].version))
			fail_msg("%s gave \"%s\"", c[i].text, info.version);
		assert_string_equal(info.cuda_runtime, "libcudart-d0da41ae.so.11.0");
	}
}

static const struct hook_file in_libc = { HOOK_OF_CODE, "gnu_get_libc_version", NULL, 0 };

/* A process may write any address: it counts in one file only. */
static void test_address_in_the_right_file_only(void **state)
{
	static const struct hook_file in_python = { HOOK_OF_TYPE, "PyCode_Type", NULL, 48 },
				      in_torch = { HOOK_OF_CODE, "THPVariableClass", NULL, 0 },
				      of_type = { HOOK_OF_TYPE, "gnu_get_libc_version", NULL, 0 },
				      of_table = { HOOK_OF_TABLE, "gnu_get_libc_version",
						   "__call__", 16 };
	uint64_t addr = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
	struct hook h = { .id = HOOK_CODE_GONE };
	struct world *w = *state;

	assert_int_equal(proc__maps(w->p, &w->m), 0);
	assert_int_equal(hook__at_address(w->p, &w->m, addr, &in_python, 1, &h), -EXDEV);
	assert_true(!h.found && !h.elf && strstr(h.why_not, "another file"));
	assert_int_equal(hook__at_address(w->p, &w->m, addr, &in_torch, 1, &h), -EXDEV);
	assert_true(!h.found && !h.elf);
	/* in its file, which does not say that it is the one */
	assert_int_equal(hook__at_address(w->p, &w->m, addr, &in_libc, 1, &h), 0);
	assert_true(h.found && !h.fixed);
	assert_int_equal(hook__at_address(w->p, &w->m, addr, &of_type, 1, &h), 0);
	assert_true(h.found && !h.fixed);
	assert_int_equal(hook__at_address(w->p, &w->m, addr, &of_table, 1, &h), 0);
	assert_true(h.found && !h.fixed);
	elf__free(h.elf);
}

/* A user can mount any file under the name of PyTorch's library: its functions are not PyTorch's. */
static void test_address_in_a_file_of_the_right_name(void **state)
{
	static const struct hook_file in_torch = { HOOK_OF_CODE, "THPVariableClass", NULL, 0 };
	struct hook h = { .id = HOOK_SCOPE_END };
	struct world *w = *state;
	char path[160], copy[512];
	void *library;
	Dl_info info;

	assert_true(dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &info));
	snprintf(path, sizeof(path), "%s/torch/lib/libtorch_python.so", dir);
	snprintf(copy, sizeof(copy), "cp \"$(dirname %s)/libm.so.6\" %s", info.dli_fname, path);
	if (system(copy) || !(library = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
		skip();
	assert_int_equal(proc__maps(w->p, &w->m), 0);
	assert_int_equal(hook__at_address(w->p, &w->m,
					  (uint64_t)(uintptr_t)dlsym(library, "frexpf"), &in_torch,
					  1, &h),
			 -EXDEV);
	assert_true(!h.found && !h.elf);
	dlclose(library);
	unlink(path);
}

static void test_at_address(void **state)
{
	uint64_t addr = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
	struct world *w = *state;
	struct hook h = { .id = HOOK_CODE_GONE, .symbol = "PyCode_Type.tp_dealloc" };
	uint8_t buf[8];
	void *anon;

	assert_int_equal(proc__maps(w->p, &w->m), 0);
	assert_int_equal(hook__at_address(w->p, &w->m, addr, &in_libc, 1, &h), 0);
	assert_true(h.found && h.id == HOOK_CODE_GONE && h.site.cls != SITE_NONE);
	assert_string_equal(h.symbol, "PyCode_Type.tp_dealloc");
	read_hook(&h, buf, sizeof(buf));
	assert_memory_equal(buf, (const void *)(uintptr_t)(addr + h.site.offset), sizeof(buf));

	/* inside a function, in data, unmapped */
	assert_int_equal(hook__at_address(w->p, &w->m, addr + 1, &in_libc, 1, &h), -EINVAL);
	assert_false(h.found);
	assert_non_null(h.why_not);
	assert_int_equal(hook__at_address(w->p, &w->m, (uint64_t)(uintptr_t)&h, &in_libc, 1, &h),
			 -EFAULT);
	assert_int_equal(hook__at_address(w->p, &w->m, 0, &in_libc, 1, &h), -EFAULT);
	assert_int_equal(hook__at_address(w->p, &w->m, UINT64_MAX, &in_libc, 1, &h), -EFAULT);
	anon = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(anon != MAP_FAILED);
	maps__free(&w->m);
	assert_int_equal(proc__maps(w->p, &w->m), 0);
	assert_int_equal(hook__at_address(w->p, &w->m, (uint64_t)(uintptr_t)anon, &in_libc, 1, &h),
			 -ENOENT);
	munmap(anon, 4096);
	elf__free(h.elf);
}

static void test_names(void **state)
{
	int i;

	for (i = 0; i < HOOK_NR; i++)
		assert_string_not_equal(hook__name((enum hook_id)i), "unknown");
	assert_string_equal(hook__name(HOOK_NR), "unknown");
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_no_torch),
		WORLD_TEST(test_hooks),
		WORLD_TEST(test_record_function),
		WORLD_TEST(test_replaced),
		WORLD_TEST(test_two_libraries),
		WORLD_TEST(test_two_versions),
		WORLD_TEST(test_two_versions_turned),
		WORLD_TEST(test_other_pytorch),
		WORLD_TEST(test_other_name),
		WORLD_TEST(test_missing_and_bad),
		WORLD_TEST(test_version),
		WORLD_TEST(test_address_in_a_file_of_the_right_name),
		WORLD_TEST(test_at_address),
		WORLD_TEST(test_address_in_the_right_file_only),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
