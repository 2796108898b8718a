/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/tables/parquet.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/text.h"

/* ---- Thrift's compact protocol ---- */

/* A struct is its fields with their numbers (`field`) and a byte 0. Elements of a list have no
 * field number. */

enum thrift_type { THRIFT_I32 = 5, THRIFT_I64 = 6, THRIFT_BINARY = 8, THRIFT_STRUCT = 12 };

enum {
	LIST = 9,	      /* type */
	LIST_SHORT_MOST = 14, /* most elements whose number is in the head byte */
	LIST_LONG = 0xf0,     /* head byte of longer lists */
};

/* Appends bytes; without memory, sets t->err. */
static void thrift_bytes(struct thrift *t, const void *bytes, size_t n)
{
	if (t->err || !n)
		return;
	t->err = array__grow(&t->buf, &t->cap, t->n + n, 1);
	if (t->err)
		return;
	memcpy(t->buf + t->n, bytes, n);
	t->n += n;
}

static void put_byte(struct thrift *t, unsigned v)
{
	uint8_t b = (uint8_t)v;

	thrift_bytes(t, &b, 1);
}

/* Appends a number, 7 bits a byte, lowest first; the top bit says that more follow. */
static void thrift_varint(struct thrift *t, uint64_t v)
{
	for (; v > 127; v >>= 7)
		put_byte(t, (unsigned)(v & 127) | 128);
	put_byte(t, (unsigned)v);
}

/* Appends a signed number: 0, -1, 1, -2, ... as 0, 1, 2, 3, ... */
static void put_zigzag(struct thrift *t, int64_t v)
{
	thrift_varint(t, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

/* Writes the head of a field: its distance from the last field in four bits, which suffice for
 * Parquet, and its type. */
static void put_field_head(struct thrift *t, int field, unsigned type)
{
	int16_t *last = &t->last[t->depth];

	put_byte(t, (unsigned)(field - *last) << 4 | type);
	*last = (int16_t)field;
}

static void thrift_i32(struct thrift *t, int field, int32_t v)
{
	put_field_head(t, field, THRIFT_I32);
	put_zigzag(t, v);
}

static void thrift_i64(struct thrift *t, int field, int64_t v)
{
	put_field_head(t, field, THRIFT_I64);
	put_zigzag(t, v);
}

static void thrift_text_element(struct thrift *t, const char *s)
{
	thrift_varint(t, strlen(s));
	thrift_bytes(t, s, strlen(s));
}

static void thrift_text(struct thrift *t, int field, const char *s)
{
	put_field_head(t, field, THRIFT_BINARY);
	thrift_text_element(t, s);
}

static void thrift_i32_element(struct thrift *t, int32_t v)
{
	put_zigzag(t, v);
}

/* Opens a struct. field: 0: it is the whole text, or an element of a list. */
static void thrift_open(struct thrift *t, int field)
{
	if (field)
		put_field_head(t, field, THRIFT_STRUCT);
	if (t->depth + 1 == THRIFT_DEPTH)
		t->err = -EOVERFLOW;
	else
		t->last[++t->depth] = 0;
}

static void thrift_close(struct thrift *t)
{
	put_byte(t, 0);
	if (t->depth)
		t->depth--;
}

/* Opens a list of n elements, which the caller writes. */
static void thrift_list(struct thrift *t, int field, enum thrift_type of, size_t n)
{
	put_field_head(t, field, LIST);
	if (n <= LIST_SHORT_MOST) {
		put_byte(t, (unsigned)n << 4 | of);
		return;
	}
	put_byte(t, LIST_LONG | of);
	thrift_varint(t, n);
}

/* ---- levels: Parquet's RLE and bit-packing hybrid ---- */

#define GROUP 8	  /* numbers that are packed together */
#define GROUPS 63 /* most groups of a packed run, so that its head takes one byte */

unsigned parquet__level_width(size_t n)
{
	unsigned width = 1;

	while (width < 32 && (size_t)1 << width < n)
		width++;
	return width;
}

/* Returns how many numbers from v[at] on are equal. */
static size_t run_at(const uint32_t *v, size_t n, size_t at)
{
	size_t end = at + 1;

	while (end < n && v[end] == v[at])
		end++;
	return end - at;
}

/* Writes a number that comes n times. */
static void put_run(struct thrift *t, uint32_t v, size_t n, unsigned width)
{
	uint8_t bytes[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16),
			     (uint8_t)(v >> 24) };

	thrift_varint(t, (uint64_t)n << 1); /* lowest bit 0: a run */
	thrift_bytes(t, bytes, (width + 7) / 8);
}

/* Writes n numbers one after the other, each in `width` bits, lowest first; the last group is
 * filled up with zeroes. */
static void put_packed(struct thrift *t, const uint32_t *v, size_t n, unsigned width)
{
	size_t groups = (n + GROUP - 1) / GROUP;

	thrift_varint(t, (uint64_t)groups << 1 | 1); /* lowest bit 1: packed */
	for (size_t g = 0; g < groups; g++) {
		uint8_t bytes[4 * GROUP] = { 0 }; /* 8 numbers of `width` bits are `width` bytes */

		for (size_t i = 0; i < GROUP && g * GROUP + i < n; i++)
			for (unsigned b = 0; b < width; b++)
				if (v[g * GROUP + i] >> b & 1)
					bytes[(i * width + b) / 8] |= (uint8_t)(1U << (i * width +
										       b) % 8);
		thrift_bytes(t, bytes, width);
	}
}

void parquet__put_levels(struct thrift *t, const uint32_t *v, size_t n, unsigned width)
{
	size_t packed = 0, run; /* packed: numbers before `at` that wait for put_packed() */

	for (size_t at = 0; at < n;) {
		run = run_at(v, n, at);
		if (run >= GROUP) {
			if (packed)
				put_packed(t, v + at - packed, packed, width);
			packed = 0;
			put_run(t, v[at], run, width);
			at += run;
			continue;
		}
		run = n - at < GROUP ? n - at : GROUP;
		packed += run;
		at += run;
		if (packed == GROUPS * GROUP || at == n) {
			put_packed(t, v + at - packed, packed, width);
			packed = 0;
		}
	}
}

/* ---- columns and pages ---- */

#define ROWS 65536	 /* rows of a row group; memory has one group at a time */
#define TEXTS (32 << 20) /* bytes of texts after which a row group ends earlier */
#define TEXT_MOST 65536	 /* bytes of the longest text; longer ones are cut */
#define LEVEL 3		 /* compression level of zstd */
#define MAGIC "PAR1"

/* Numbers of parquet.thrift. */
enum { BOOLEAN = 0, INT64 = 2, DOUBLE = 5, BYTE_ARRAY = 6 };
enum { OPTIONAL = 1 };
enum { UTF8 = 0, TIMESTAMP_MICROS = 10 };
enum { PLAIN = 0, RLE = 3, RLE_DICTIONARY = 8 };
enum { ZSTD = 6 };
enum { DATA_PAGE = 0, DICTIONARY_PAGE = 2 };
/* Its fields: of PageHeader, DataPageHeader and DictionaryPageHeader (the first two are the same). */
enum { PAGE_TYPE = 1, PAGE_PLAIN, PAGE_STORED, PAGE_DATA = 5, PAGE_DICTIONARY = 7 };
enum { VALUES_NUMBER = 1, VALUES_ENCODING, VALUES_DEFINITION, VALUES_REPETITION };
/* FileMetaData, SchemaElement, RowGroup. */
enum { FILE_VERSION = 1, FILE_SCHEMA, FILE_ROWS, FILE_GROUPS, FILE_CREATOR = 6 };
enum { SCHEMA_TYPE = 1, SCHEMA_REPETITION = 3, SCHEMA_NAME, SCHEMA_CHILDREN, SCHEMA_CONVERTED };
enum { GROUP_COLUMNS = 1, GROUP_PLAIN, GROUP_ROWS };
/* ColumnChunk, ColumnMetaData. */
enum { CHUNK_OFFSET = 2, CHUNK_COLUMN };
enum {
	META_TYPE = 1,
	META_ENCODINGS,
	META_PATH,
	META_CODEC,
	META_VALUES,
	META_PLAIN,
	META_STORED,
	META_DATA = 9,
	META_DICTIONARY = 11,
};

/* A column's values of the row group. */
struct values {
	uint32_t *present;	      /* for each row: 1, or 0 if the value is null */
	uint64_t *v;		      /* the values that are not null; for a text its number */
	size_t n, present_cap, v_cap; /* n: number of values in v */
	struct strings *set;	      /* the different texts, with numbers from 0 */
	struct thrift texts; /* the texts in the order of their numbers, as in the dictionary page */
	uint32_t ntexts;
	/* The last text: its number, and its place in texts. The next text is often equal. */
	uint32_t last;
	size_t last_at, last_len;
};

/* A column of a row group that is in the file. */
struct chunk {
	uint64_t dictionary, data; /* offsets of the pages in the file; dictionary 0: none */
	uint64_t values;	   /* number of values */
	uint64_t plain, stored;	   /* bytes uncompressed, and in the file */
};

struct group {
	uint64_t rows;
	struct chunk *chunks;
};

struct parquet {
	FILE *out;
	const struct column *columns;
	size_t n, at; /* number of columns; the column that gets the next value */
	struct values *values;
	uint64_t offset; /* number of bytes written */
	size_t rows;	 /* number of rows in the present row group */
	uint64_t all;	 /* number of all rows */
	struct group *groups;
	size_t ngroups, groups_cap;
	struct thrift page, header; /* the page that is being written */
	void *stored;		    /* the page, compressed */
	size_t stored_cap;
	int err;
};

/* Appends to the file. After a failure, it does nothing. */
static void write_bytes(struct parquet *p, const void *bytes, size_t n)
{
	if (!p->err && fwrite(bytes, 1, n, p->out) != n)
		p->err = -EIO;
	p->offset += n;
}

struct parquet *parquet__new(FILE *out, const struct column *columns, size_t n)
{
	struct parquet *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct parquet){ .out = out, .columns = columns, .n = n };
	p->values = calloc(n, sizeof(*p->values));
	for (size_t i = 0; p->values && i < n; i++)
		if (columns[i].type == COLUMN_TEXT && !(p->values[i].set = strings__new()))
			p->err = -ENOMEM;
	if (!p->values || p->err) {
		parquet__free(p);
		return NULL;
	}
	write_bytes(p, MAGIC, 4);
	return p;
}

void parquet__free(struct parquet *p)
{
	if (!p)
		return;
	for (size_t i = 0; p->values && i < p->n; i++) {
		free(p->values[i].present);
		free(p->values[i].v);
		free(p->values[i].texts.buf);
		strings__free(p->values[i].set);
	}
	for (size_t i = 0; i < p->ngroups; i++)
		free(p->groups[i].chunks);
	free(p->groups);
	free(p->values);
	free(p->page.buf);
	free(p->header.buf);
	free(p->stored);
	free(p);
}

/* ---- values ---- */

/* Sets the next column of the row. known: false: the value is null. */
static void put(struct parquet *p, bool known, uint64_t v)
{
	struct values *c = &p->values[p->at++];

	if (!p->err)
		p->err = array__grow(&c->present, &c->present_cap, p->rows + 1,
				     sizeof(*c->present));
	if (!p->err && known)
		p->err = array__grow(&c->v, &c->v_cap, c->n + 1, sizeof(*c->v));
	if (p->err)
		return;
	c->present[p->rows] = known;
	if (known)
		c->v[c->n++] = v;
}

void parquet__int(struct parquet *p, bool known, int64_t v)
{
	put(p, known, (uint64_t)v);
}

void parquet__uint(struct parquet *p, bool known, uint64_t v)
{
	put(p, known && v <= INT64_MAX, v);
}

void parquet__double(struct parquet *p, bool known, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	put(p, known && isfinite(v), bits);
}

void parquet__bool(struct parquet *p, bool known, bool v)
{
	put(p, known, v);
}

static void put_u32(struct thrift *t, uint32_t v)
{
	v = htole32(v);
	thrift_bytes(t, &v, sizeof(v));
}

/* Adds a text to the set of the row group, and sets c->last to its number. The set takes no empty
 * text, so a byte is put before each text. Returns 0 or -ENOMEM. */
static int add_text(struct values *c, const char *s, size_t len)
{
	/* Each invalid byte becomes U+FFFD, which has 3 bytes. */
	const size_t most = 3 * len + 1;
	char *clean = malloc(most + 1);
	uint32_t number;
	size_t n;
	int err;

	if (!clean)
		return -ENOMEM;
	clean[0] = 't';
	n = text__utf8(clean + 1, most, s, len);
	err = strings__number(c->set, clean, n + 1, &number);
	if (!err && number == c->ntexts) {
		put_u32(&c->texts, (uint32_t)n);
		c->last_at = c->texts.n;
		thrift_bytes(&c->texts, clean + 1, n);
		c->ntexts++;
		err = c->texts.err;
		c->last_len = n;
	} else {
		c->last_len = SIZE_MAX; /* its place is not known */
	}
	c->last = number;
	free(clean);
	return err;
}

void parquet__text(struct parquet *p, const char *s)
{
	struct values *c = &p->values[p->at];
	size_t len = s ? strlen(s) : 0;
	bool again = s && c->ntexts && len == c->last_len &&
		     !memcmp(s, c->texts.buf + c->last_at, len);

	len = len > TEXT_MOST ? TEXT_MOST : len;
	if (s && !again && !p->err)
		p->err = add_text(c, s, len);
	put(p, s != NULL, c->last);
}

/* ---- pages ---- */

/* Compresses p->page into p->stored. Sets *stored to its size. Returns 0 or -errno. */
static int compress_page(struct parquet *p, size_t *stored)
{
	size_t n = ZSTD_compressBound(p->page.n);
	int err = p->page.err;

	if (err)
		return err;
	if (p->page.n > INT32_MAX)
		return -EFBIG;
	err = array__grow(&p->stored, &p->stored_cap, n, 1);
	if (err)
		return err;
	*stored = ZSTD_compress(p->stored, p->stored_cap, p->page.buf, p->page.n, LEVEL);
	return ZSTD_isError(*stored) ? -EIO : 0;
}

/* Writes the page in p->page with its header, and adds its bytes to *k. type: DATA_PAGE or
 * DICTIONARY_PAGE. values: their number. encoding: of the values. */
static void put_page(struct parquet *p, int type, size_t values, int encoding, struct chunk *k)
{
	struct thrift *h = &p->header;
	size_t stored = 0;

	if (!p->err)
		p->err = compress_page(p, &stored);
	if (p->err)
		return;
	h->n = 0;
	thrift_open(h, 0);
	thrift_i32(h, PAGE_TYPE, type);
	thrift_i32(h, PAGE_PLAIN, (int32_t)p->page.n);
	thrift_i32(h, PAGE_STORED, (int32_t)stored);
	thrift_open(h, type == DATA_PAGE ? PAGE_DATA : PAGE_DICTIONARY);
	thrift_i32(h, VALUES_NUMBER, (int32_t)values);
	thrift_i32(h, VALUES_ENCODING, encoding);
	if (type == DATA_PAGE) {
		thrift_i32(h, VALUES_DEFINITION, RLE);
		thrift_i32(h, VALUES_REPETITION, RLE); /* this file has none */
	}
	thrift_close(h);
	thrift_close(h);
	p->err = h->err;
	k->plain += h->n + p->page.n;
	k->stored += h->n + stored;
	write_bytes(p, h->buf, h->n);
	write_bytes(p, p->stored, stored);
}

/* Appends to the page which values are not null: Parquet's definition levels, with their length in
 * bytes before them. */
static void put_present(struct parquet *p, const struct values *c)
{
	size_t at = p->page.n;
	uint32_t len;

	put_u32(&p->page, 0);
	parquet__put_levels(&p->page, c->present, p->rows, 1);
	if (p->page.err)
		return;
	len = htole32((uint32_t)(p->page.n - at - sizeof(len)));
	memcpy(p->page.buf + at, &len, sizeof(len));
}

/* Appends the numbers of the texts to the page, with their width in bits before them. Returns 0 or
 * -ENOMEM. */
static int put_numbers(struct parquet *p, const struct values *c)
{
	uint32_t *numbers = calloc(c->n + 1, sizeof(*numbers));
	uint8_t width = (uint8_t)parquet__level_width(c->ntexts);

	if (!numbers)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++)
		numbers[i] = (uint32_t)c->v[i];
	thrift_bytes(&p->page, &width, 1);
	parquet__put_levels(&p->page, numbers, c->n, width);
	free(numbers);
	return 0;
}

/* Appends the values to the page: 8 bytes each, or a bit for a boolean. */
static void put_plain(struct parquet *p, const struct values *c, enum column_type type)
{
	uint8_t bits = 0; /* up to 8 booleans */

	for (size_t i = 0; i < c->n && type != COLUMN_BOOL; i++) {
		uint64_t v = htole64(c->v[i]);

		thrift_bytes(&p->page, &v, sizeof(v));
	}
	for (size_t i = 0; i < c->n && type == COLUMN_BOOL; i++) {
		bits |= (uint8_t)(c->v[i] << i % 8);
		if (i % 8 == 7 || i + 1 == c->n) {
			thrift_bytes(&p->page, &bits, 1);
			bits = 0;
		}
	}
}

/* Writes the pages of column i, and empties it for the next row group. Failures are in p->err. */
static void put_chunk(struct parquet *p, size_t i, struct chunk *k)
{
	struct values *c = &p->values[i];
	bool text = p->columns[i].type == COLUMN_TEXT;

	k->values = p->rows;
	if (text) {
		k->dictionary = p->offset;
		p->page.n = 0;
		thrift_bytes(&p->page, c->texts.buf, c->texts.n);
		put_page(p, DICTIONARY_PAGE, c->ntexts, PLAIN, k);
	}
	k->data = p->offset;
	p->page.n = 0;
	put_present(p, c);
	if (text)
		p->err = p->err ?: put_numbers(p, c);
	else
		put_plain(p, c, p->columns[i].type);
	put_page(p, DATA_PAGE, p->rows, text ? RLE_DICTIONARY : PLAIN, k);
	c->n = 0;
	if (!text)
		return;
	strings__free(c->set);
	c->set = strings__new();
	if (!c->set)
		p->err = -ENOMEM;
	c->texts.n = c->ntexts = 0;
}

/* Writes the row group and begins the next one. Returns 0 or -errno. */
static int end_group(struct parquet *p)
{
	struct chunk *chunks = calloc(p->n, sizeof(*chunks));

	if (!chunks)
		return -ENOMEM;
	if (!p->err)
		p->err = array__grow(&p->groups, &p->groups_cap, p->ngroups + 1,
				     sizeof(*p->groups));
	for (size_t i = 0; i < p->n && !p->err; i++)
		put_chunk(p, i, &chunks[i]);
	if (p->err) {
		free(chunks);
		return p->err;
	}
	p->groups[p->ngroups++] = (struct group){ p->rows, chunks };
	p->rows = 0;
	return 0;
}

/* Returns the bytes of all texts in the row group. */
static size_t text_bytes(const struct parquet *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		n += p->values[i].texts.n;
	return n;
}

int parquet__row(struct parquet *p)
{
	if (p->at != p->n)
		p->err = p->err ?: -EINVAL;
	p->at = 0;
	if (p->err)
		return p->err;
	p->rows++;
	p->all++;
	return p->rows == ROWS || text_bytes(p) > TEXTS ? end_group(p) : 0;
}

uint64_t parquet__rows(const struct parquet *p)
{
	return p->all;
}

/* ---- the file's end ---- */

/* Returns Parquet's type of a column. */
static int physical(enum column_type type)
{
	static const int types[] = { [COLUMN_INT] = INT64,
				     [COLUMN_TIME] = INT64,
				     [COLUMN_DOUBLE] = DOUBLE,
				     [COLUMN_BOOL] = BOOLEAN,
				     [COLUMN_TEXT] = BYTE_ARRAY };

	return types[type];
}

/* Writes the names and types of the columns: a list with a root element before them. */
static void put_schema(struct parquet *p, struct thrift *t)
{
	thrift_list(t, FILE_SCHEMA, THRIFT_STRUCT, p->n + 1);
	thrift_open(t, 0);
	thrift_text(t, SCHEMA_NAME, "schema");
	thrift_i32(t, SCHEMA_CHILDREN, (int32_t)p->n);
	thrift_close(t);
	for (size_t i = 0; i < p->n; i++) {
		thrift_open(t, 0);
		thrift_i32(t, SCHEMA_TYPE, physical(p->columns[i].type));
		thrift_i32(t, SCHEMA_REPETITION, OPTIONAL);
		thrift_text(t, SCHEMA_NAME, p->columns[i].name);
		if (p->columns[i].type == COLUMN_TEXT)
			thrift_i32(t, SCHEMA_CONVERTED, UTF8);
		else if (p->columns[i].type == COLUMN_TIME)
			thrift_i32(t, SCHEMA_CONVERTED, TIMESTAMP_MICROS);
		thrift_close(t);
	}
}

/* Writes what the file says about a column of a row group. */
static void put_column(struct thrift *t, const struct column *column, const struct chunk *k)
{
	thrift_open(t, 0);
	thrift_i64(t, CHUNK_OFFSET, (int64_t)(k->dictionary ? k->dictionary : k->data));
	thrift_open(t, CHUNK_COLUMN);
	thrift_i32(t, META_TYPE, physical(column->type));
	thrift_list(t, META_ENCODINGS, THRIFT_I32, k->dictionary ? 3 : 2);
	thrift_i32_element(t, PLAIN);
	thrift_i32_element(t, RLE);
	if (k->dictionary)
		thrift_i32_element(t, RLE_DICTIONARY);
	thrift_list(t, META_PATH, THRIFT_BINARY, 1);
	thrift_text_element(t, column->name);
	thrift_i32(t, META_CODEC, ZSTD);
	thrift_i64(t, META_VALUES, (int64_t)k->values);
	thrift_i64(t, META_PLAIN, (int64_t)k->plain);
	thrift_i64(t, META_STORED, (int64_t)k->stored);
	thrift_i64(t, META_DATA, (int64_t)k->data);
	if (k->dictionary)
		thrift_i64(t, META_DICTIONARY, (int64_t)k->dictionary);
	thrift_close(t);
	thrift_close(t);
}

/* Writes what the file says about a row group. */
static void put_group(struct parquet *p, struct thrift *t, const struct group *g)
{
	uint64_t bytes = 0;

	thrift_open(t, 0);
	thrift_list(t, GROUP_COLUMNS, THRIFT_STRUCT, p->n);
	for (size_t i = 0; i < p->n; i++) {
		put_column(t, &p->columns[i], &g->chunks[i]);
		bytes += g->chunks[i].plain;
	}
	thrift_i64(t, GROUP_PLAIN, (int64_t)bytes);
	thrift_i64(t, GROUP_ROWS, (int64_t)g->rows);
	thrift_close(t);
}

int parquet__finish(struct parquet *p)
{
	struct thrift t = { 0 };
	uint32_t len;
	int err = p->rows ? end_group(p) : p->err;

	if (err)
		return err;
	thrift_open(&t, 0);
	thrift_i32(&t, FILE_VERSION, 1);
	put_schema(p, &t);
	thrift_i64(&t, FILE_ROWS, (int64_t)p->all);
	thrift_list(&t, FILE_GROUPS, THRIFT_STRUCT, p->ngroups);
	for (size_t i = 0; i < p->ngroups; i++)
		put_group(p, &t, &p->groups[i]);
	thrift_text(&t, FILE_CREATOR, "memtrace-bpf version " MEMTRACE_VERSION);
	thrift_close(&t);
	err = t.err;
	if (!err) {
		len = htole32((uint32_t)t.n);
		write_bytes(p, t.buf, t.n);
		write_bytes(p, &len, sizeof(len));
		write_bytes(p, MAGIC, 4);
		err = p->err;
	}
	free(t.buf);
	return err;
}
