/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "unit/cmocka.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf_image.h"
#include "inspect/elf.h"
#include "inspect/proc.h"

static const uint8_t code_a[] = { 0x55, 0xc3 }, code_b[] = { 0x90, 0x90, 0xc3 };
static const struct image_func funcs[] = {
	{ "alpha", code_a, sizeof(code_a) },
	{ "beta", code_b, sizeof(code_b) },
	{ "alphabet", code_a, sizeof(code_a) },
};

static struct elf *open_image(const void *bytes, size_t len)
{
	struct elf *e = elf__open_fd(image_fd(bytes, len));

	assert_non_null(e);
	return e;
}

static int count_symbol(const char *name, const struct elf_sym *sym, void *ctx)
{
	size_t *n = ctx;

	assert_true(name[0] != '\0');
	assert_true(sym->value >= IMAGE_CODE_VADDR);
	++*n;
	return 0;
}

static int stop_at_once(const char *name, const struct elf_sym *sym, void *ctx)
{
	++*(size_t *)ctx;
	return 42;
}

static void check_image(enum image_hash hash)
{
	struct image im;
	struct elf_sym sym;
	uint64_t v, w;
	uint8_t buf[8];
	struct elf *e;
	size_t n = 0;

	image_build(&im, funcs, 3, hash);
	e = open_image(im.bytes, sizeof(im.bytes));
	assert_int_equal(elf__machine(e), ELF_X86_64);
	assert_string_equal(elf__soname(e), "libimage.so.1");
	assert_int_equal(elf__dynsym(e, "beta", &sym), 0);
	assert_true(sym.value == IMAGE_CODE_VADDR + IMAGE_SLOT && sym.size == 3 && sym.type == 2);
	assert_int_equal(elf__dynsym(e, "alphabet", &sym), 0);
	assert_true(sym.value == IMAGE_CODE_VADDR + 2 * IMAGE_SLOT);
	assert_int_equal(elf__dynsym(e, "alpha", &sym), 0);
	assert_true(sym.value == IMAGE_CODE_VADDR);
	sym.value = 7;
	assert_int_equal(elf__dynsym(e, "alph", &sym), -ENOENT);
	assert_int_equal(elf__dynsym(e, "wanted", &sym), -ENOENT);  /* undefined */
	assert_int_equal(elf__dynsym(e, "version", &sym), -ENOENT); /* absolute: not an address */
	assert_int_equal(elf__dynsym(e, "", &sym), -ENOENT);
	assert_true(sym.value == 7);
	assert_int_equal(elf__each_dynsym(e, count_symbol, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(elf__each_dynsym(e, stop_at_once, &n), 42);
	assert_int_equal(n, 4);
	assert_int_equal(elf__section(e, ".text", &v, &w), -ENOENT);
	assert_int_equal(elf__read(e, IMAGE_CODE_VADDR + IMAGE_SLOT, buf, 3), 0);
	assert_memory_equal(buf, code_b, 3);
	assert_int_equal(elf__function(e, IMAGE_CODE_VADDR, &v, &w), -ENOENT);
	elf__free(e);
}

static void test_image_sysv(void **state)
{
	check_image(IMAGE_SYSV_HASH);
}

static void test_image_gnu(void **state)
{
	check_image(IMAGE_GNU_HASH);
}

/* Without hash table and section headers the number of symbols is unknown: none are listed. */
static void test_image_no_hash(void **state)
{
	struct image im;
	struct elf_sym sym;
	struct elf *e;
	size_t n = 0;

	image_build(&im, funcs, 3, IMAGE_NO_HASH);
	e = open_image(im.bytes, sizeof(im.bytes));
	assert_int_equal(elf__dynsym(e, "alpha", &sym), -ENOENT);
	assert_int_equal(elf__each_dynsym(e, count_symbol, &n), 0);
	assert_int_equal(n, 0);
	elf__free(e);
}

static void test_addresses(void **state)
{
	struct image im;
	struct elf *e;
	uint64_t v;
	uint8_t b;

	image_build(&im, funcs, 3, IMAGE_GNU_HASH);
	e = open_image(im.bytes, sizeof(im.bytes));
	assert_int_equal(elf__vaddr_to_offset(e, IMAGE_CODE_VADDR + 5, &v), 0);
	assert_true(v == IMAGE_CODE_OFF + 5);
	assert_int_equal(elf__vaddr_to_offset(e, 0x123, &v), 0);
	assert_true(v == 0x123);
	assert_int_equal(elf__vaddr_to_offset(e, 0x1000, &v), -ERANGE);
	assert_int_equal(elf__vaddr_to_offset(e, IMAGE_CODE_VADDR + 0x1000, &v), -ERANGE);
	assert_int_equal(elf__vaddr_to_offset(e, UINT64_MAX, &v), -ERANGE);
	assert_int_equal(elf__read(e, IMAGE_CODE_VADDR + 0xfff, &b, 1), 0);
	assert_int_equal(elf__read(e, IMAGE_CODE_VADDR + 0xfff, &b, 2), -ERANGE);
	assert_int_equal(elf__read(e, IMAGE_CODE_VADDR, &b, SIZE_MAX), -ERANGE);
	assert_int_equal(elf__bias(e, 0x7f0000000000, 0, &v), 0);
	assert_true(v == 0x7f0000000000);
	assert_int_equal(elf__bias(e, 0x7f0000005000, IMAGE_CODE_OFF, &v), 0);
	assert_true(v == 0x7f0000000000);
	v = 1;
	assert_int_equal(elf__bias(e, 0x7f0000005000, 0x2000, &v), -ERANGE);
	assert_int_equal(elf__bias(e, 0x7f0000005001, 0, &v), -ERANGE);
	assert_int_equal(elf__bias(e, 0x7f0000005000, 0x10, &v), -ERANGE);
	assert_true(v == 1);
	elf__free(e);
}

/* Two segments share a page of the file, each with its own place in memory. */
static void test_shared_page(void **state)
{
	struct image im;
	Elf64_Phdr ph[2];
	struct elf *e;
	uint64_t v;

	image_build(&im, funcs, 3, IMAGE_GNU_HASH);
	memcpy(ph, im.bytes + sizeof(Elf64_Ehdr), sizeof(ph));
	ph[0].p_filesz = ph[0].p_memsz = 0x1400;
	ph[1].p_offset = 0x1400;
	ph[1].p_vaddr = 0x5400;
	ph[1].p_filesz = ph[1].p_memsz = 0xc00;
	memcpy(im.bytes + sizeof(Elf64_Ehdr), ph, sizeof(ph));
	e = open_image(im.bytes, sizeof(im.bytes));
	assert_int_equal(elf__bias(e, 0x10000, 0, &v), 0);
	assert_true(v == 0x10000);
	assert_int_equal(elf__bias(e, 0x15000, 0x1000, &v), 0);
	assert_true(v == 0x10000);
	elf__free(e);
}

static void test_refused(void **state)
{
	static const size_t at[] = { 0, EI_CLASS, EI_DATA, EI_VERSION, 16, 54 };
	struct image im;
	uint8_t old;
	size_t i;
	int fd;

	image_build(&im, funcs, 3, IMAGE_GNU_HASH);
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		old = im.bytes[at[i]];
		im.bytes[at[i]] = 9;
		fd = image_fd(im.bytes, sizeof(im.bytes));
		assert_null(elf__open_fd(fd));
		assert_int_equal(errno, ENOEXEC);
		/* the descriptor was taken over and closed */
		assert_int_equal(fcntl(fd, F_GETFD), -1);
		im.bytes[at[i]] = old;
	}
	assert_null(elf__open_fd(image_fd(im.bytes, 63)));
	assert_int_equal(errno, ENOEXEC);
	assert_null(elf__open_fd(image_fd(im.bytes, 100))); /* cut within the program headers */
	assert_int_equal(errno, ENOEXEC);
	assert_null(elf__open_fd(open("/dev/null", O_RDONLY)));
	assert_int_equal(errno, ENOEXEC);
	assert_null(elf__open_fd(open("/tmp", O_RDONLY)));
	assert_int_equal(errno, ENOEXEC);
	assert_null(elf__open_fd(-1));
	elf__free(NULL);
}

/* ---- arbitrary bytes ---- */

static int touch(const char *name, const struct elf_sym *sym, void *ctx)
{
	*(uint64_t *)ctx += strlen(name) + sym->value;
	return 0;
}

static void use_all(int fd)
{
	struct elf *e = elf__open_fd(fd);
	uint64_t sum = 0, a, b;
	struct elf_sym sym;
	uint8_t buf[32];

	if (!e)
		return;
	(void)elf__dynsym(e, "alpha", &sym);
	(void)elf__dynsym(e, "alphabet", &sym);
	(void)elf__dynsym(e, "wanted", &sym);
	(void)elf__each_dynsym(e, touch, &sum);
	(void)elf__section(e, ".text", &a, &b);
	(void)elf__bias(e, 0x7f0000005000, IMAGE_CODE_OFF, &a);
	(void)elf__vaddr_to_offset(e, IMAGE_CODE_VADDR, &a);
	(void)elf__read(e, IMAGE_CODE_VADDR, buf, sizeof(buf));
	(void)elf__function(e, IMAGE_CODE_VADDR, &a, &b);
	assert_true(strlen(elf__soname(e)) < 256);
	elf__free(e);
}

static const uint64_t extremes[] = {
	0,	   1, 0x1fff, 0x2000, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, UINT64_MAX - 23,
	UINT64_MAX
};

static void overwrite_each(const uint8_t *bytes, size_t len, size_t limit)
{
	static const size_t widths[] = { 1, 2, 4, 8 };
	size_t off, w, x;
	uint8_t *copy = malloc(len);

	assert_non_null(copy);
	for (off = 0; off + 8 <= limit; off += 2) {
		for (w = 0; w < 4; w++) {
			for (x = 0; x < sizeof(extremes) / sizeof(extremes[0]); x++) {
				memcpy(copy, bytes, len);
				memcpy(copy + off, &extremes[x], widths[w]);
				use_all(image_fd(copy, len));
			}
		}
	}
	free(copy);
}

static void test_corrupted(void **state)
{
	struct image im;

	image_build(&im, funcs, 3, IMAGE_GNU_HASH);
	overwrite_each(im.bytes, sizeof(im.bytes), 0x140);
	image_build(&im, funcs, 3, IMAGE_SYSV_HASH);
	overwrite_each(im.bytes, sizeof(im.bytes), 0x140);
}

/* Overwrites the tables after the headers word by word. */
static void test_corrupted_tables(void **state)
{
	static const struct {
		uint32_t from, to;
	} parts[] = { { 0x200, 0x290 }, { 0x400, 0x430 }, { 0x500, 0x560 }, { 0xf80, 0xf94 } };
	enum image_hash hash;
	struct image im, copy;
	size_t i, x;
	uint32_t off;

	for (hash = IMAGE_SYSV_HASH; hash <= IMAGE_GNU_HASH; hash++) {
		image_build(&im, funcs, 3, hash);
		for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
			for (off = parts[i].from; off < parts[i].to; off += 4) {
				for (x = 0; x < sizeof(extremes) / sizeof(extremes[0]); x++) {
					copy = im;
					memcpy(copy.bytes + off, &extremes[x], off % 8 ? 4 : 8);
					use_all(image_fd(copy.bytes, sizeof(copy.bytes)));
				}
			}
		}
	}
}

static void test_truncated(void **state)
{
	struct image im;
	size_t len;

	image_build(&im, funcs, 3, IMAGE_GNU_HASH);
	for (len = 1; len < sizeof(im.bytes); len += 13)
		use_all(image_fd(im.bytes, len));
}

/* A file that shrinks while it is open. */
static void test_shrinking(void **state)
{
	struct elf_sym sym;
	struct image im;
	uint8_t buf[4];
	struct elf *e;
	int fd, other;

	image_build(&im, funcs, 3, IMAGE_GNU_HASH);
	fd = image_fd(im.bytes, sizeof(im.bytes));
	other = dup(fd);
	e = elf__open_fd(fd);
	assert_non_null(e);
	assert_int_equal(ftruncate(other, 0x100), 0);
	assert_int_equal(elf__dynsym(e, "alpha", &sym), -ENOENT);
	assert_int_equal(elf__read(e, IMAGE_CODE_VADDR, buf, 4), -EIO);
	elf__free(e);
	close(other);
}

/* ---- real files ---- */

static char *libc_path(void)
{
	Dl_info info;
	char *path;

	assert_true(dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &info) != 0);
	path = realpath(info.dli_fname, NULL);
	assert_non_null(path);
	return path;
}

struct seen {
	const struct elf *e;
	size_t n, lost, functions, exact;
};

static int look_up_again(const char *name, const struct elf_sym *sym, void *ctx)
{
	struct seen *s = ctx;
	uint64_t start, size;
	struct elf_sym again;

	s->n++;
	if (elf__dynsym(s->e, name, &again))
		s->lost++;
	if (sym->type == STT_FUNC && sym->size) {
		s->functions++;
		if (!elf__function(s->e, sym->value, &start, &size) && start == sym->value &&
		    size == sym->size)
			s->exact++;
	}
	return 0;
}

static void test_libc(void **state)
{
	char *path = libc_path();
	struct seen seen = { 0 };
	struct elf_sym sym;
	uint64_t v, w;
	struct elf *e;

	e = elf__open_fd(open(path, O_RDONLY));
	assert_non_null(e);
	assert_string_equal(elf__soname(e), "libc.so.6");
	seen.e = e;
	assert_int_equal(elf__each_dynsym(e, look_up_again, &seen), 0);
	assert_true(seen.n > 2000);
	assert_int_equal(seen.lost, 0);
	/* a few are written in assembler, in parts */
	assert_true(seen.functions > 2000 && seen.exact > seen.functions / 100 * 99);
	assert_int_equal(elf__section(e, ".text", &v, &w), 0);
	assert_int_equal(elf__dynsym(e, "gnu_get_libc_version", &sym), 0);
	assert_true(sym.value >= v && sym.value < v + w && sym.size);
	assert_int_equal(elf__function(e, sym.value + sym.size - 1, &v, &w), 0);
	assert_true(v == sym.value && w == sym.size);
	elf__free(e);
	free(path);
}

/* Memory at a mapping's load bias equals the file. */
static void test_bias_of_libc(void **state)
{
	uint64_t addr = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), bias = 0;
	struct proc *p = proc__open(getpid());
	const struct map *map;
	struct elf_sym sym;
	uint8_t buf[16];
	struct maps m;
	struct elf *e;
	size_t i;

	assert_non_null(p);
	assert_int_equal(proc__maps(p, &m), 0);
	map = maps__find(&m, addr);
	assert_non_null(map);
	e = elf__open_fd(proc__open_map(p, map));
	assert_non_null(e);
	assert_int_equal(elf__dynsym(e, "gnu_get_libc_version", &sym), 0);
	for (i = 0; i < m.n; i++) {
		if (m.v[i].inode != map->inode)
			continue;
		assert_int_equal(elf__bias(e, m.v[i].start, m.v[i].offset, &bias), 0);
		assert_true(bias + sym.value == addr);
	}
	assert_int_equal(elf__read(e, addr - bias, buf, sizeof(buf)), 0);
	assert_memory_equal(buf, (const void *)(uintptr_t)addr, sizeof(buf));
	elf__free(e);
	maps__free(&m);
	proc__free(p);
}

/* Without section headers, and then also without hash table, the same symbols are found. */
static void test_stripped_libc(void **state)
{
	char *path = libc_path();
	struct seen whole = { 0 }, stripped = { 0 };
	struct elf_sym sym;
	struct stat st;
	uint8_t *bytes;
	struct elf *e;
	int fd;

	fd = open(path, O_RDONLY);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	bytes = malloc((size_t)st.st_size);
	assert_non_null(bytes);
	assert_int_equal(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
	whole.e = e = elf__open_fd(fd);
	assert_non_null(e);
	assert_int_equal(elf__each_dynsym(e, look_up_again, &whole), 0);
	elf__free(e);
	memset(bytes + offsetof(Elf64_Ehdr, e_shoff), 0, 8);
	stripped.e = e = open_image(bytes, (size_t)st.st_size);
	assert_int_equal(elf__each_dynsym(e, look_up_again, &stripped), 0);
	assert_int_equal(stripped.n, whole.n);
	assert_int_equal(stripped.lost, 0);
	assert_int_equal(elf__dynsym(e, "gnu_get_libc_version", &sym), 0);
	elf__free(e);
	/* also a few words of a real file's headers */
	overwrite_each(bytes, (size_t)st.st_size, 10);
	free(bytes);
	free(path);
}

/* A table as CPython's and PyTorch's are: a name, and a function. */
static const struct entry {
	const char *name;
	void (*function)(void **state);
} table[] = { { "__first__", test_libc }, { "__second__", test_stripped_libc } };

/* The file says what its pointers are; what the process writes to its memory does not count. */
static void test_pointers(void **state)
{
	static const struct entry *volatile kept = table;
	struct proc *p = proc__open(getpid());
	uint64_t bias, value, at[8], here = (uintptr_t)kept;
	const struct map *map;
	struct maps m;
	struct elf *e;
	char name[16];
	size_t n;

	assert_non_null(p);
	assert_int_equal(proc__maps(p, &m), 0);
	map = maps__find(&m, (uintptr_t)test_libc);
	e = elf__open_map(p, map);
	assert_non_null(e);
	assert_int_equal(elf__bias(e, map->start, map->offset, &bias), 0);
	here -= bias;
	for (size_t i = 0; i < 2; i++) {
		uint64_t function = (uintptr_t)table[i].function - bias;

		assert_int_equal(elf__pointer(e, here + i * sizeof(*table), &value), 0);
		assert_int_equal(elf__read(e, value, name, strlen(table[i].name) + 1), 0);
		assert_string_equal(name, table[i].name);
		assert_int_equal(elf__pointer(e, here + i * sizeof(*table) + 8, &value), 0);
		assert_int_equal(value, function);
		n = elf__pointers_to(e, function, at, 8);
		while (n && at[n - 1] != here + i * sizeof(*table) + 8)
			n--;
		assert_true(n > 0);
		assert_int_equal(elf__pointers_to(e, function + 1, at, 8), 0);
	}
	assert_true(elf__pointer(e, UINT64_MAX - 8, &value) < 0);
	assert_int_equal(elf__pointers_to(e, 0, at, 8), 0);
	elf__free(e);
	maps__free(&m);
	proc__free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pointers),	 cmocka_unit_test(test_image_sysv),
		cmocka_unit_test(test_image_gnu),	 cmocka_unit_test(test_image_no_hash),
		cmocka_unit_test(test_addresses),	 cmocka_unit_test(test_shared_page),
		cmocka_unit_test(test_refused),		 cmocka_unit_test(test_corrupted),
		cmocka_unit_test(test_corrupted_tables), cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_shrinking),	 cmocka_unit_test(test_libc),
		cmocka_unit_test(test_bias_of_libc),	 cmocka_unit_test(test_stripped_libc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
