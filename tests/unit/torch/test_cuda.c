/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf_image.h"
#include "inspect/cuda.h"

/* ---- the table ---- */

static uint32_t number(const char *name)
{
	uint32_t i;

	for (i = 0; i < cuda__functions(); i++)
		if (!strcmp(cuda__function(i)->name, name))
			return i;
	fail_msg("no %s", name);
	return 0;
}

static void test_table(void **state)
{
	bool takes[MEM_HOW_NR] = { false }, gives[MEM_HOW_NR] = { false };
	uint32_t i, k;

	assert_null(cuda__function(cuda__functions()));
	assert_null(cuda__function(UINT32_MAX));
	assert_true(cuda__functions() <= CUDA_SITES_MAX);
	for (i = 0; i < cuda__functions(); i++) {
		const struct cuda_function *f = cuda__function(i);
		bool out = f->flags & MT_CALL_OUT;

		for (k = 0; k < i; k++)
			assert_string_not_equal(cuda__function(k)->name, f->name);
		assert_int_equal(strncmp(f->name, "cu", 2), 0);
		assert_true(f->op > CUDA_RETAIN ? !f->how : f->how > 0 && f->how < MEM_HOW_NR);
		/* The flags for the kernel side agree with how size and device are computed. */
		assert_int_equal(!!(f->flags & MT_CALL_PITCH), f->size == CUDA_SIZE_PITCH);
		assert_int_equal(!!(f->flags & MT_CALL_EXTENT), f->size == CUDA_SIZE_EXTENT);
		assert_int_equal(!!(f->flags & MT_CALL_PROP), f->device == CUDA_DEVICE_PROP);
		assert_int_equal(!!(f->flags & MT_CALL_WALK), f->op == CUDA_TAKE);
		assert_int_equal(!!(f->flags & MT_CALL_POOL), f->op == CUDA_POOL);
		/* flags of a file, not of a function */
		assert_int_equal(f->flags & (MT_CALL_RUNTIME | MT_CALL_DRIVER), 0);
		switch (f->op) {
		case CUDA_TAKE:
			assert_int_not_equal(f->size, CUDA_SIZE_NONE);
			/* All except these return an address or a handle. */
			assert_int_equal(out, f->how != MEM_REGISTERED && f->how != MEM_MAPPED);
			takes[f->how] = true;
			break;
		case CUDA_GIVE:
			assert_false(out);
			assert_int_equal(f->device, CUDA_DEVICE_NONE);
			gives[f->how] = true;
			break;
		case CUDA_RETAIN:
			assert_true(out && f->how == MEM_PHYSICAL);
			break;
		default:
			assert_true(f->op <= CUDA_CTX_POP);
			/* Functions that return a handle. */
			assert_int_equal(out, f->op == CUDA_IMPORT || f->op == CUDA_POOL ||
						      f->op == CUDA_CTX_RETAIN ||
						      f->op == CUDA_CTX_CREATE);
		}
	}
	for (i = 1; i < MEM_HOW_NR; i++) {
		assert_true(takes[i]);
		/* freed by the functions that free any device memory */
		assert_int_equal(gives[i], i != MEM_MANAGED);
	}
}

/* The functions for another default stream, and the driver's counterparts of the runtime's. */
static void test_twins(void **state)
{
	static const char *const twins[][2] = {
		{ "cudaMallocAsync", "cudaMallocAsync_ptsz" },
		{ "cudaMallocFromPoolAsync", "cudaMallocFromPoolAsync_ptsz" },
		{ "cudaFreeAsync", "cudaFreeAsync_ptsz" },
		{ "cuMemAllocAsync", "cuMemAllocAsync_ptsz" },
		{ "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz" },
		{ "cuMemFreeAsync", "cuMemFreeAsync_ptsz" },
		{ "cudaMalloc", "cuMemAlloc_v2" },
		{ "cudaMallocPitch", "cuMemAllocPitch_v2" },
		{ "cudaFree", "cuMemFree_v2" },
		{ "cudaMallocAsync", "cuMemAllocAsync" },
		{ "cudaMallocFromPoolAsync", "cuMemAllocFromPoolAsync" },
		{ "cudaFreeAsync", "cuMemFreeAsync" },
		{ "cudaMallocManaged", "cuMemAllocManaged" },
		{ "cudaHostAlloc", "cuMemHostAlloc" },
		{ "cudaMallocHost", "cuMemAllocHost_v2" },
		{ "cudaFreeHost", "cuMemFreeHost" },
		{ "cudaHostRegister", "cuMemHostRegister_v2" },
		{ "cudaHostUnregister", "cuMemHostUnregister" },
		{ "cudaMemPoolCreate", "cuMemPoolCreate" },
		{ "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2" },
	};
	size_t i;

	for (i = 0; i < sizeof(twins) / sizeof(twins[0]); i++) {
		struct cuda_function a = *cuda__function(number(twins[i][0])),
				     b = *cuda__function(number(twins[i][1]));

		if (a.op != b.op || a.how != b.how || a.size != b.size || a.device != b.device ||
		    a.flags != b.flags)
			fail_msg("%s is not as %s", twins[i][1], twins[i][0]);
	}
}

/* ---- files: a built library, mapped into this process ---- */

#define CODE_MAPPED (IMAGE_SIZE - IMAGE_CODE_OFF)

struct file {
	char path[64];
	int fd;
	void *code;
	struct proc *proc;
	struct maps maps;
	const struct map *map;
};

static void file_open(struct file *f, const void *bytes, size_t len)
{
	strcpy(f->path, "/tmp/memtrace-cuda-XXXXXX");
	f->fd = mkstemp(f->path);
	assert_true(f->fd >= 0);
	assert_int_equal(pwrite(f->fd, bytes, len, 0), len);
	f->code = mmap(NULL, CODE_MAPPED, PROT_READ | PROT_EXEC, MAP_PRIVATE, f->fd,
		       IMAGE_CODE_OFF);
	assert_true(f->code != MAP_FAILED);
	f->proc = proc__open(getpid());
	assert_non_null(f->proc);
	assert_int_equal(proc__maps(f->proc, &f->maps), 0);
	f->map = maps__find(&f->maps, (uintptr_t)f->code);
	assert_non_null(f->map);
}

static void file_close(struct file *f)
{
	maps__free(&f->maps);
	proc__free(f->proc);
	munmap(f->code, CODE_MAPPED);
	close(f->fd);
	unlink(f->path);
}

static int look(const void *bytes, size_t len, struct cuda_file *ret, uint64_t *start)
{
	struct stat ours, its;
	char name[ELF_NAME];
	struct file f;
	int err;

	file_open(&f, bytes, len);
	err = cuda__look(f.proc, &f.maps, f.map, ret);
	if (start)
		*start = f.map->start;
	if (!err && ret->elf) { /* the kernel gets this very file */
		assert_true(ret->n || ret->allocator);
		assert_int_equal(fstat(f.fd, &ours), 0);
		assert_int_equal(stat(elf__name(ret->elf, name), &its), 0);
		assert_true(ours.st_ino == its.st_ino && ours.st_dev == its.st_dev);
		elf__free(ret->elf);
	} else if (!err) {
		assert_true(!ret->n && !ret->allocator);
	}
	file_close(&f);
	return err;
}

static const uint8_t push[] = { 0x55, 0x31, 0xc0, 0x5d, 0xc3 };
static const uint8_t endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3 };
static const uint8_t late_push[] = {
	0x48, 0x89, 0xd8, 0x55, 0x5d, 0xc3
}; /* mov %rbx,%rax; push %rbp; pop; ret */
static const uint8_t long_nop[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3 };
static const uint8_t not_code[] = { 0x06, 0x06 };

#define CODE(bytes) bytes, sizeof(bytes)

static const struct image_func funcs[] = {
	{ "cudaMalloc", CODE(push) },
	{ "cudaFree", CODE(endbr) },
	{ "cudaMallocAsync", CODE(late_push) },
	{ "cudaSetDevice", CODE(late_push) },
	{ "cudaHostAlloc", CODE(long_nop) },
	{ "cudaFreeHost", CODE(not_code) },
	{ "cudaMalloc2", CODE(push) },
	{ "cuMemCreate", CODE(push) },
	{ "memtrace_dryrun_usage", CODE(push) },
};
#define FUNCS (sizeof(funcs) / sizeof(funcs[0]))

static const struct cuda_site *site(const struct cuda_file *f, const char *name)
{
	size_t i;

	for (i = 0; i < f->n; i++)
		if (!strcmp(cuda__function(f->site[i].fn)->name, name))
			return &f->site[i];
	return NULL;
}

static void test_file(void **state)
{
	struct cuda_file f;
	struct image im;
	uint64_t start;

	image_build(&im, funcs, FUNCS, IMAGE_GNU_HASH);
	assert_int_equal(look(&im, sizeof(im.bytes), &f, &start), 0);
	assert_int_equal(f.n, 5);
	assert_int_equal(f.refused, 2); /* a 5-byte nop, and an invalid instruction */
	assert_string_equal(f.refused_take, "cudaHostAlloc");
	assert_true(!f.throws && !f.newer[0]);
	assert_false(f.allocator);
	/* A dry run's table, at its address in the process. */
	assert_int_equal(f.usage, start + 8 * IMAGE_SLOT);
	/* At the first instruction, even if a later one is cheaper: the return address must be on
	 * top of the stack. */
	assert_int_equal(site(&f, "cudaMalloc")->offset, IMAGE_CODE_OFF);
	assert_int_equal(site(&f, "cudaFree")->offset, IMAGE_CODE_OFF + IMAGE_SLOT);
	assert_int_equal(site(&f, "cudaMallocAsync")->offset, IMAGE_CODE_OFF + 2 * IMAGE_SLOT);
	assert_int_equal(site(&f, "cuMemCreate")->offset, IMAGE_CODE_OFF + 7 * IMAGE_SLOT);
	/* A function without a return probe. */
	assert_int_equal(site(&f, "cudaSetDevice")->offset, IMAGE_CODE_OFF + 3 * IMAGE_SLOT + 3);
}

static Elf64_Sym *symbol(struct image *im, uint32_t i)
{
	return (Elf64_Sym *)(void *)(im->bytes + im->symtab) + i + 1;
}

static void test_odd_symbols(void **state)
{
	struct cuda_file f;
	struct image im;

	/* A function with two names is probed once. */
	image_build(&im, funcs, FUNCS, IMAGE_SYSV_HASH);
	symbol(&im, 7)->st_value = symbol(&im, 0)->st_value;
	assert_int_equal(look(&im, sizeof(im.bytes), &f, NULL), 0);
	assert_int_equal(f.n, 4);
	assert_non_null(site(&f, "cudaMalloc"));
	assert_null(site(&f, "cuMemCreate"));
	/* Not a function; outside of code; beyond the end of the file. */
	image_build(&im, funcs, FUNCS, IMAGE_SYSV_HASH);
	symbol(&im, 0)->st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
	symbol(&im, 1)->st_value = im.symtab;
	/* an instruction that may extend beyond the end */
	symbol(&im, 2)->st_value = IMAGE_CODE_VADDR + CODE_MAPPED - 4;
	symbol(&im, 2)->st_size = 0;
	symbol(&im, 3)->st_value = UINT64_MAX - 2;
	symbol(&im, 7)->st_value = IMAGE_CODE_VADDR + CODE_MAPPED;
	assert_int_equal(look(&im, sizeof(im.bytes), &f, NULL), 0);
	assert_int_equal(f.n, 0);
}

/* The variant for per-thread default streams is the same function; a later form has unknown
 * arguments. */
static void test_forms(void **state)
{
	static const struct image_func forms[] = {
		{ "cuMemFree_v2_ptds", CODE(push) },	{ "cuMemAlloc_v3", CODE(push) },
		{ "cuMemAlloc_v2", CODE(push) },	{ "cuMemAlloc", CODE(push) },
		{ "cuMemAllocAsync_ptsz", CODE(push) }, { "cuMemRelease_v10_ptsz", CODE(push) },
		{ "cuMemFree_v2_ptsy", CODE(push) },
	};
	struct cuda_file f;
	struct image im;

	image_build(&im, forms, 5, IMAGE_GNU_HASH);
	assert_int_equal(look(&im, sizeof(im.bytes), &f, NULL), 0);
	assert_int_equal(f.n, 3);
	assert_int_equal(site(&f, "cuMemFree_v2")->offset, IMAGE_CODE_OFF);
	/* the current form, not that of CUDA 2 */
	assert_int_equal(site(&f, "cuMemAlloc_v2")->offset, IMAGE_CODE_OFF + 2 * IMAGE_SLOT);
	assert_non_null(site(&f, "cuMemAllocAsync_ptsz"));
	assert_string_equal(f.newer, "cuMemAlloc_v3");
	image_build(&im, forms + 4, 3, IMAGE_SYSV_HASH);
	assert_int_equal(look(&im, sizeof(im.bytes), &f, NULL), 0);
	assert_int_equal(f.n, 1);
	assert_string_equal(f.newer, "cuMemRelease_v10_ptsz");
}

/* Another library's cudaMalloc in C++ may throw: it gets no return probe. The real one below
 * it does. */
static void test_interposer(void **state)
{
	static const struct image_func in_cpp[] = { { "cudaMalloc", CODE(push) },
						    { "__cxa_throw", CODE(push) } };
	static const char driver[] = "libcuda.so.1";
	struct cuda_file f;
	struct image im;
	char *soname;

	image_build(&im, in_cpp, 2, IMAGE_SYSV_HASH);
	assert_int_equal(look(&im, sizeof(im.bytes), &f, NULL), 0);
	assert_true(f.n == 1 && !f.throws); /* libcudart's functions are its own */
	symbol(&im, 1)->st_shndx = SHN_UNDEF;
	assert_int_equal(look(&im, sizeof(im.bytes), &f, NULL), 0);
	assert_true(f.n == 0 && f.throws);
	/* CUDA's libraries are recognized by name. */
	soname = memmem(im.bytes, sizeof(im.bytes), "libimage.so.1", 13);
	assert_non_null(soname);
	memcpy(soname, driver, sizeof(driver));
	assert_int_equal(look(&im, sizeof(im.bytes), &f, NULL), 0);
	assert_true(f.n == 1 && !f.throws);
}

static void test_nothing_in_it(void **state)
{
	static const struct image_func other = { "cudaMallocs", CODE(push) };
	static const struct image_func allocator = {
		"_ZN3c104cuda20CUDACachingAllocator9allocatorE", CODE(push)
	};
	struct cuda_file f = { .n = 77 };
	struct image im;

	image_build(&im, &other, 1, IMAGE_GNU_HASH);
	assert_int_equal(look(&im, sizeof(im.bytes), &f, NULL), 0);
	assert_true(!f.n && !f.refused && !f.usage && !f.allocator);
	image_build(&im, &allocator, 1, IMAGE_GNU_HASH);
	assert_int_equal(look(&im, sizeof(im.bytes), &f, NULL), 0);
	assert_true(!f.n && f.allocator);
	/* an object file is not a program: *ret is unchanged */
	f.n = 77;
	memset(im.bytes, 'x', sizeof(im.bytes));
	assert_true(look(&im, sizeof(im.bytes), &f, NULL) < 0);
	assert_int_equal(f.n, 77);
}

/* Another architecture has no known instructions. */
static void test_other_machine(void **state)
{
	struct cuda_file f;
	struct image im;

	image_build(&im, funcs, FUNCS, IMAGE_GNU_HASH);
	((Elf64_Ehdr *)(void *)im.bytes)->e_machine = EM_RISCV;
	if (look(&im, sizeof(im.bytes), &f, NULL) == 0)
		assert_int_equal(f.n, 0);
}

/* For any damaged file, probe sites are in mapped code. */
static void test_damaged(void **state)
{
	struct cuda_file f;
	struct file file;
	struct image im;
	unsigned seed = 1;
	size_t i, k, whole = 0;

	image_build(&im, funcs, FUNCS, IMAGE_GNU_HASH);
	file_open(&file, &im, sizeof(im.bytes));
	for (i = 0; i < 20000; i++) {
		struct image bad = im;

		for (k = 0; k < 1 + i % 8; k++) {
			seed = seed * 1103515245 + 12345;
			bad.bytes[(seed >> 8) %
				  (i & 1 ? 0x900 : IMAGE_CODE_OFF + FUNCS * IMAGE_SLOT)] =
				(uint8_t)(seed >> 24);
		}
		assert_int_equal(pwrite(file.fd, &bad, sizeof(bad.bytes), 0), sizeof(bad.bytes));
		if (cuda__look(file.proc, &file.maps, file.map, &f))
			continue;
		assert_true(f.n <= FUNCS);
		whole += f.n == 5;
		for (k = 0; k < f.n; k++) {
			assert_non_null(cuda__function(f.site[k].fn));
			assert_in_range(f.site[k].offset, IMAGE_CODE_OFF, IMAGE_SIZE - 1);
		}
		assert_int_equal(!f.n && !f.allocator, !f.elf);
		elf__free(f.elf);
	}
	assert_true(whole > 1000);
	file_close(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),	      cmocka_unit_test(test_twins),
		cmocka_unit_test(test_file),	      cmocka_unit_test(test_odd_symbols),
		cmocka_unit_test(test_forms),	      cmocka_unit_test(test_interposer),
		cmocka_unit_test(test_nothing_in_it), cmocka_unit_test(test_other_machine),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
