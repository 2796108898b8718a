/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grid.h"
#include "base/json.h"
#include "base/text.h"

#define LARGE (UINT64_C(1) << 30) /* RSS, bytes, from which on PSS and USS are not read */

static const struct {
	const char *name;
	const char *second;  /* text after the part's second figure, "4 MiB cached"; NULL: none */
	const char *meaning; /* one sentence for explanations */
} parts[HOST_PART_NR] = {
	[HOST_TOTAL] = { "RSS", NULL, "all resident memory of the process" },
	[HOST_PINNED] = { "pinned memory", "cached", "cudaHostAlloc and cudaHostRegister" },
	[HOST_SHARED_LOADER] = { "shared memory of PyTorch", "in tensors",
				 "DataLoader and torch.multiprocessing" },
	[HOST_SHARED_NCCL] = { "shared memory of NCCL", "in tensors", "buffers between ranks" },
	[HOST_SHARED] = { "other shared memory", "in tensors", "/dev/shm, memfd, System V" },
	[HOST_LIBRARIES] = { "libraries", "private copies", "programs and libraries" },
	[HOST_FILES] = { "mapped files", "private copies", "checkpoints and data sets" },
	[HOST_TENSORS] = { "CPU tensors", NULL, "storages that Python or autograd holds" },
	[HOST_PYTHON] = { "small Python objects", "free inside",
			  "CPython's arenas: objects of up to 512 bytes" },
	[HOST_STACKS] = { "stacks", NULL, "stacks of threads" },
	[HOST_MALLOC] = { "malloc", "free inside", "C and C++, large Python objects, numpy" },
	[HOST_UNKNOWN] = { "unknown", NULL, "memory that no table explains" },
	[HOST_PSS] = { "PSS", NULL, "RSS with shared pages by share" },
	[HOST_USS] = { "USS", NULL, "pages of this process alone" },
	[HOST_SWAP] = { "swap", NULL, "swapped out" },
	[HOST_HUGETLB] = { "huge pages", NULL, "huge pages of hugetlbfs, not in RSS" },
	[HOST_PAGE_TABLES] = { "page tables", NULL, "the kernel's page tables, not in RSS" },
	[HOST_GROUP] = { "control group", "limit", "use of the memory control group" },
	[HOST_GROUP_KERNEL] = { "kernel memory of the group", NULL,
				"kernel stacks, slab, sockets, page tables" },
	[HOST_PINNED_REQUESTED] = { "requested", NULL, "tensors in pinned blocks of PyTorch" },
	[HOST_PINNED_ROUNDING] = { "rounding", NULL, "the rest of these blocks" },
	[HOST_PINNED_CACHED] = { "cached", NULL, "pinned blocks that are not in use" },
	[HOST_PINNED_OTHER] = { "in use without a tensor", NULL, "other pinned blocks in use" },
	[HOST_MALLOC_TRIM] = { "malloc_trim would return", NULL, "whole free pages of malloc" },
	[HOST_MALLOC_ARENAS] = { "free in arenas beyond the main one", "arenas in all",
				 "free memory of arenas of threads" },
	[HOST_JEMALLOC] = { "free pages of jemalloc", "free inside", "dirty and muzzy pages" },
	[HOST_MIMALLOC] = { "free pages of mimalloc", "free inside", "pages that a purge returns" },
	[HOST_TCMALLOC] = { "free pages of tcmalloc", "free inside", "its free spans" },
	[HOST_MALLOC_ENDS] = { "free at the ends of arenas", "beyond the main arena",
			       "malloc's top chunks" },
};

const char *host_words__part(unsigned part)
{
	return part < HOST_PART_NR ? parts[part].name : NULL;
}

struct item {
	uint8_t part;
	uint64_t bytes;
};

static int by_size(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return (int)x->part - (int)y->part;
}

/* Lists the parts that add up to RSS and are not empty, largest first and HOST_UNKNOWN last.
 * Returns their number. */
static size_t sort_parts(const struct host_sheet *s, struct item *items)
{
	size_t n = 0;

	for (uint8_t i = 1; i < HOST_UNKNOWN; i++)
		if (s->part[i].bytes)
			items[n++] = (struct item){ i, s->part[i].bytes };
	qsort(items, n, sizeof(*items), by_size);
	if (s->part[HOST_UNKNOWN].bytes)
		items[n++] = (struct item){ HOST_UNKNOWN, s->part[HOST_UNKNOWN].bytes };
	return n;
}

char *host_words__line(char *buf, size_t size, const struct host_sheet *s, size_t columns)
{
	struct item items[HOST_PARTS_END];
	size_t n_items = sort_parts(s, items), len = 0;
	uint64_t other = 0;
	char bytes[24];

	*buf = '\0';
	for (size_t i = 0; i < n_items && len < size; i++) {
		if (items[i].bytes < s->part[HOST_TOTAL].bytes / 100)
			other += items[i].bytes;
		else
			len += snprintf(buf + len, size - len, "%s%s %s", len ? ", " : "",
					parts[items[i].part].name,
					text__bytes(bytes, sizeof(bytes), items[i].bytes));
	}
	if (other && len < size)
		snprintf(buf + len, size - len, "%sother %s", len ? ", " : "",
			 text__bytes(bytes, sizeof(bytes), other));
	while (strlen(buf) > columns) {
		char *last = strrchr(buf, ',');

		*(last ? last : buf) = '\0';
	}
	return buf;
}

enum { COL_SIZE, COL_PERCENT, COL_PART, COL_SECOND, COL_NR };

/* Adds a part's row. */
static void put_cells(struct grid *grid, const struct host_sheet *s, unsigned part)
{
	const struct host_figure *figure = &s->part[part];
	char text[64], bytes[24];

	grid__row(grid);
	grid__put(grid, COL_SIZE, text__bytes(bytes, sizeof(bytes), figure->bytes), NULL);
	grid__put(grid, COL_PERCENT, text__percent(text, figure->bytes, s->part[HOST_TOTAL].bytes),
		  NULL);
	grid__put(grid, COL_PART, parts[part].name, NULL);
	if (!parts[part].second)
		return;
	if (!figure->has_second)
		snprintf(text, sizeof(text), "unknown %s", parts[part].second);
	else if (!figure->second)
		return;
	else
		snprintf(text, sizeof(text), "%s %s",
			 text__bytes(bytes, sizeof(bytes), figure->second), parts[part].second);
	grid__put(grid, COL_SECOND, text, NULL);
}

/* Prints a table of the parts that add up to RSS. Returns 0 or -ENOMEM. */
static int print_parts(FILE *out, const struct host_sheet *s, size_t columns)
{
	static const struct column cols[COL_NR] = {
		[COL_SIZE] = { .title = "Size", .right = true, .least = 10 },
		[COL_PERCENT] = { .title = "%", .right = true, .least = 3 },
		[COL_PART] = { .title = "Part" },
		[COL_SECOND] = { .title = "Of it", .goes = 2 },
	};
	struct item items[HOST_PARTS_END];
	size_t n_items = sort_parts(s, items), room;
	struct grid *grid = grid__new(cols, COL_NR);
	int err;

	if (!grid)
		return -ENOMEM;
	for (size_t i = 0; i < n_items; i++)
		put_cells(grid, s, items[i].part);
	err = grid__error(grid);
	if (err)
		goto out;
	grid__last_goes(grid, /*goes=*/1);
	room = grid__fit(grid, columns, /*wanted=*/40, COL_NR);
	grid__print_titles(grid, out, text__colour(out), "Contains");
	for (size_t i = 0; i < n_items; i++) {
		const char *meaning = parts[items[i].part].meaning;

		grid__print(grid, out, i, text__width(meaning) > room ? "" : meaning);
	}
out:
	grid__free(grid);
	return err;
}

/* Prints the figures next to RSS that are known and not zero: "PSS 1.1 GiB, USS 1.0 GiB", then the
 * control group. */
static void print_others(FILE *out, const struct host_sheet *s, size_t columns)
{
	char text[256], bytes[24];
	size_t len = 0;

	for (unsigned i = HOST_PARTS_END; i < HOST_GROUP; i++)
		if (s->part[i].known && s->part[i].bytes)
			len += snprintf(text + len, sizeof(text) - len, "%s%s %s", len ? ", " : "",
					parts[i].name,
					text__bytes(bytes, sizeof(bytes), s->part[i].bytes));
	if (len)
		text__paragraph(out, columns, "", "  ", "%s", text);
	if (!s->part[HOST_USS].known && s->part[HOST_TOTAL].bytes >= LARGE)
		text__paragraph(out, columns, "", "  ",
				"PSS, USS and private copies are not read for a process of this "
				"size: the kernel would lock its address space meanwhile");
	if (!s->part[HOST_GROUP].known)
		return;
	text__bytes(bytes, sizeof(bytes), s->part[HOST_GROUP].bytes);
	len = snprintf(text, sizeof(text), "control group %s", bytes);
	if (s->part[HOST_GROUP].has_second)
		len += snprintf(text + len, sizeof(text) - len, " of %s",
				text__bytes(bytes, sizeof(bytes), s->part[HOST_GROUP].second));
	if (s->part[HOST_GROUP_KERNEL].known)
		snprintf(text + len, sizeof(text) - len, ", of it kernel memory %s",
			 text__bytes(bytes, sizeof(bytes), s->part[HOST_GROUP_KERNEL].bytes));
	text__paragraph(out, columns, "", "  ", "%s", text);
}

/* Prints "pinned blocks of PyTorch: 32.00 GiB = 20.00 GiB requested + 12.00 GiB rounding". */
static void print_pinned(FILE *out, const struct host_sheet *s, size_t columns)
{
	char text[256] = "", bytes[24];
	uint64_t all = 0;
	size_t len = 0;

	for (unsigned i = HOST_PINNED_REQUESTED; i <= HOST_PINNED_OTHER; i++) {
		const struct host_figure *f = &s->part[i];

		if (f->known && f->bytes)
			len += snprintf(text + len, sizeof(text) - len, "%s%s %s", len ? " + " : "",
					text__bytes(bytes, sizeof(bytes), f->bytes), parts[i].name);
		all += f->known ? f->bytes : 0;
	}
	if (len && s->part[HOST_PINNED_REQUESTED].known)
		text__paragraph(out, columns, "", "  ", "pinned blocks of PyTorch: %s = %s",
				text__bytes(bytes, sizeof(bytes), all), text);
}

/* Prints which parts could not be read, so that their memory is in other parts. */
static void print_unread(FILE *out, const struct host_sheet *s, size_t columns)
{
	char text[256] = "";
	size_t len = 0;

	for (unsigned i = 1; i < HOST_UNKNOWN; i++)
		if (!s->part[i].known)
			len += snprintf(text + len, sizeof(text) - len, "%s%s", len ? ", " : "",
					parts[i].name);
	if (len)
		text__paragraph(out, columns, "", "  ",
				"not read: %s (their memory is in the other parts)", text);
}

int host_words__table(FILE *out, const struct host_sheet *s, size_t columns)
{
	int err = print_parts(out, s, columns);

	if (err)
		return err;
	fputc('\n', out);
	print_pinned(out, s, columns);
	print_others(out, s, columns);
	print_unread(out, s, columns);
	return 0;
}

void host_words__json(struct json *j, const struct host_sheet *s)
{
	json__open_object(j, "parts");
	for (unsigned i = 1; i < HOST_PART_NR; i++) {
		const struct host_figure *figure = &s->part[i];

		if (!parts[i].name || (!host_part__adds_up(i) && !figure->known))
			continue;
		json__open_object(j, host_part__name(i));
		json__string(j, "label", parts[i].name);
		json__bool(j, "of_rss", host_part__adds_up(i));
		json__uint(j, "bytes", figure->bytes);
		json__bool(j, "known", figure->known);
		if (parts[i].second) {
			json__uint_or_null(j, "second", figure->has_second, figure->second);
			json__string(j, "second_label", parts[i].second);
		}
		json__close_object(j);
	}
	json__close_object(j);
}
