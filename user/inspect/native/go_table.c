/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "inspect/native/go_table.h"

#include <string.h>

#include "base/text.h"

#define MAGIC_118 0xfffffff0u
#define MAGIC_120 0xfffffff1u
#define HEADER (8 + 8 * 8) /* bytes: magic, sizes, and eight words */
#define ENTRY 8		   /* bytes of an entry of the list of functions: address, offset */
#define STEPS_MAX 1000000  /* steps of a list of values that are followed */

/* Words after the magic and the sizes. */
enum { N_FUNCTIONS, N_FILES, TEXT, NAMES, UNITS, FILES, PCS, DATA };
/* 32-bit words of a function's description. */
enum { F_ENTRY, F_NAME, F_PCFILE = 5, F_PCLN = 6, F_UNIT = 8 };

static bool read32(const struct go_table *table, uint64_t at, uint32_t *ret)
{
	if (at > table->size || table->size - at < sizeof(*ret))
		return false;
	memcpy(ret, table->v + at, sizeof(*ret));
	return true;
}

/* Returns the text at an offset. NULL: it has no end. */
static const char *read_text(const struct go_table *table, uint64_t at)
{
	if (at >= table->size || !memchr(table->v + at, '\0', table->size - at))
		return NULL;
	return (const char *)table->v + at;
}

bool go_table__read(const uint8_t *bytes, size_t size, uint64_t first_code, struct go_table *table)
{
	uint64_t word[DATA + 1];
	uint32_t magic;

	*table = (struct go_table){ .v = bytes, .size = size };
	if (!read32(table, 0, &magic) || (magic != MAGIC_118 && magic != MAGIC_120) ||
	    table->size < HEADER || table->v[7] != 8)
		return false;
	memcpy(word, table->v + 8, sizeof(word));
	for (int i = NAMES; i <= DATA; i++)
		if (word[i] > table->size)
			return false;
	table->quantum = table->v[6];
	table->functions = word[N_FUNCTIONS];
	/* Position-independent programs have the address only after their relocation. */
	table->text = word[TEXT] ? word[TEXT] : first_code;
	table->names = word[NAMES];
	table->units = word[UNITS];
	table->files = word[FILES];
	table->pcs = word[PCS];
	table->data = word[DATA];
	return table->functions && table->functions <= (table->size - table->data) / ENTRY;
}

/* Reads a number of seven bits a byte at *at, and moves *at behind it. False: it has no end. */
static bool read_varint(const struct go_table *table, uint64_t *at, uint32_t *ret)
{
	*ret = 0;
	for (unsigned shift = 0; shift < 35 && *at < table->size; shift += 7) {
		uint8_t byte = table->v[(*at)++];

		*ret |= (uint32_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

/* Finds the value at an address in a list of steps: how much the value and the address grow. start:
 * the function's address. False: not found. */
static bool find_value(const struct go_table *table, uint32_t list, uint64_t start,
		       uint64_t address, int32_t *ret)
{
	uint64_t at = table->pcs + (uint64_t)list, pc = start;
	uint32_t value = UINT32_MAX, step, bytes;

	for (int i = 0; i < STEPS_MAX; i++) {
		if (!read_varint(table, &at, &step) || (!step && i) ||
		    !read_varint(table, &at, &bytes))
			return false;
		value += step & 1 ? ~(step >> 1) : step >> 1;
		pc += (uint64_t)bytes * table->quantum;
		if (address < pc) {
			*ret = (int32_t)value;
			return true;
		}
	}
	return false;
}

/* Returns the offset of the description of the function at an address, and sets *start to the
 * function's own address. 0: not found. */
static uint64_t find_function(const struct go_table *table, uint64_t address, uint64_t *start)
{
	uint64_t lo = 0, hi = table->functions;
	uint32_t entry, offset;

	if (address < table->text)
		return 0;
	while (hi - lo > 1) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (!read32(table, table->data + mid * ENTRY, &entry))
			return 0;
		if (entry <= address - table->text)
			lo = mid;
		else
			hi = mid;
	}
	if (!read32(table, table->data + lo * ENTRY, &entry) ||
	    !read32(table, table->data + lo * ENTRY + 4, &offset))
		return 0;
	*start = table->text + entry;
	return address < *start ? 0 : table->data + (uint64_t)offset;
}

/* Returns the file with this number in a unit. NULL: not known. */
static const char *find_file(const struct go_table *table, uint32_t unit, int32_t number)
{
	uint32_t offset;

	if (number < 0 ||
	    !read32(table, table->units + 4 * ((uint64_t)unit + (uint32_t)number), &offset) ||
	    offset == UINT32_MAX)
		return NULL;
	return read_text(table, table->files + (uint64_t)offset);
}

bool go_table__find(const struct go_table *table, uint64_t address, struct go_place *ret)
{
	uint32_t name, pcfile, pcln, unit;
	uint64_t start, function = find_function(table, address, &start);
	int32_t file, line;

	if (!function || !read32(table, function + 4 * F_NAME, &name) ||
	    !read32(table, function + 4 * F_PCFILE, &pcfile) ||
	    !read32(table, function + 4 * F_PCLN, &pcln) ||
	    !read32(table, function + 4 * F_UNIT, &unit))
		return false;
	*ret = (struct go_place){ .function = read_text(table, table->names + (uint64_t)name) };
	if (!ret->function)
		return false;
	if (find_value(table, pcfile, start, address, &file))
		ret->file = find_file(table, unit, file);
	if (ret->file && find_value(table, pcln, start, address, &line) && line > 0)
		ret->line = line;
	return true;
}

/* True if the addresses are right: the program begins in Go's code. If C's linker made it, C's code
 * is first, and the table does not say where Go's is. */
static bool fits(const struct go_table *table, Elf *elf)
{
	struct go_place place;
	GElf_Ehdr header;

	return gelf_getehdr(elf, &header) && go_table__find(table, header.e_entry, &place) &&
	       text__starts(place.function, "_rt0_");
}

bool go_table__open(Elf *elf, struct go_table *ret)
{
	uint64_t first_code = 0;
	Elf_Scn *scn = NULL, *found = NULL;
	const char *name;
	Elf_Data *data;
	GElf_Shdr sh;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return false;
	while ((scn = elf_nextscn(elf, scn)) && gelf_getshdr(scn, &sh)) {
		name = elf_strptr(elf, names, sh.sh_name);
		if (name && !strcmp(name, ".text"))
			first_code = sh.sh_addr;
		if (name &&
		    (!strcmp(name, ".gopclntab") || !strcmp(name, ".data.rel.ro.gopclntab")))
			found = scn;
	}
	data = found ? elf_rawdata(found, NULL) : NULL;
	if (!data || !data->d_buf)
		return false;
	return go_table__read(data->d_buf, data->d_size, first_code, ret) && fits(ret, elf);
}
