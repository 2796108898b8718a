/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "base/text.h"

#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <regex.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* ---- foreign text ---- */

/* True for a character that controls a terminal or changes the order of text. */
bool text__acts(uint32_t c)
{
	if (c < 0x20 || (c >= 0x7f && c <= 0x9f))
		return true;
	/* Arabic letter mark; directional marks, line and paragraph separators, embeddings,
	 * overrides, isolates. */
	return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

char *text__clean(char *dst, size_t size, const char *src, size_t len)
{
	size_t out = 0, i = 0;

	if (!size)
		return dst;
	while (i < len) {
		static const char hex[] = "0123456789abcdef";
		uint32_t c;
		size_t char_len = utf8__decode(src + i, len - i, &c);

		if (char_len && !text__acts(c)) {
			if (char_len > size - 1 - out)
				break;
			memcpy(dst + out, src + i, char_len);
			out += char_len;
			i += char_len;
			continue;
		}
		if (4 > size - 1 - out)
			break;
		dst[out++] = '\\';
		dst[out++] = 'x';
		dst[out++] = hex[(unsigned char)src[i] >> 4];
		dst[out++] = hex[src[i] & 15];
		/* The other bytes of the character are invalid on their own and get escaped
		 * next. */
		i++;
	}
	dst[out] = '\0';
	return dst;
}

size_t text__utf8(char *dst, size_t size, const char *src, size_t len)
{
	static const char replacement[] = "\xef\xbf\xbd";
	size_t out = 0, i = 0;

	while (i < len) {
		uint32_t c;
		size_t char_len = utf8__decode(src + i, len - i, &c);
		size_t put = char_len ? char_len : 3;

		if (put > size - out)
			break;
		memcpy(dst + out, char_len ? src + i : replacement, put);
		out += put;
		i += char_len ? char_len : 1;
	}
	return out;
}

struct range {
	uint32_t first, last;
};

/* True if one of n ranges, which are in order, has the character c. */
static bool in_ranges(const struct range *ranges, size_t n, uint32_t c)
{
	for (size_t i = 0; i < n && ranges[i].first <= c; i++) {
		if (c <= ranges[i].last)
			return true;
	}
	return false;
}

/* Returns the columns that a terminal gives a character. wcwidth() does not work here: in the "C"
 * locale it returns -1. */
static size_t columns_of(uint32_t c)
{
	static const struct range zero_wide[] = {
		{ 0x0300, 0x036f },   { 0x0483, 0x0489 }, { 0x0591, 0x05bd }, { 0x0610, 0x061a },
		{ 0x064b, 0x065f },   { 0x0900, 0x0902 }, { 0x0e34, 0x0e3a }, { 0x0e47, 0x0e4e },
		{ 0x1ab0, 0x1aff },   { 0x1dc0, 0x1dff }, { 0x200b, 0x200f }, { 0x2028, 0x202e },
		{ 0x2060, 0x2064 },   { 0x2066, 0x206f }, { 0x20d0, 0x20ff }, { 0x302a, 0x302d },
		{ 0x3099, 0x309a },   { 0xfe00, 0xfe0f }, { 0xfe20, 0xfe2f }, { 0xfeff, 0xfeff },
		{ 0xe0100, 0xe01ef },
	};
	static const struct range double_wide[] = {
		{ 0x1100, 0x115f },   { 0x231a, 0x231b },   { 0x2329, 0x232a },
		{ 0x23e9, 0x23ec },   { 0x2614, 0x2615 },   { 0x26a1, 0x26a1 },
		{ 0x2705, 0x2705 },   { 0x274c, 0x274c },   { 0x2b50, 0x2b50 },
		{ 0x2e80, 0x3029 },   { 0x302e, 0x303e },   { 0x3041, 0x3098 },
		{ 0x309b, 0x4dbf },   { 0x4e00, 0xa4cf },   { 0xa960, 0xa97f },
		{ 0xac00, 0xd7a3 },   { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },
		{ 0xff01, 0xff60 },   { 0xffe0, 0xffe6 },   { 0x17000, 0x18cff },
		{ 0x1b000, 0x1b2ff }, { 0x1f004, 0x1f004 }, { 0x1f0cf, 0x1f0cf },
		{ 0x1f18e, 0x1f19a }, { 0x1f200, 0x1f320 }, { 0x1f32d, 0x1f64f },
		{ 0x1f680, 0x1f6ff }, { 0x1f7e0, 0x1f7eb }, { 0x1f90c, 0x1f9ff },
		{ 0x1fa70, 0x1faff }, { 0x20000, 0x3fffd },
	};

	if (c < 0x20 || (c >= 0x7f && c <= 0x9f))
		return 0;
	if (c < 0x300)
		return 1;
	if (in_ranges(zero_wide, sizeof(zero_wide) / sizeof(zero_wide[0]), c))
		return 0;
	return in_ranges(double_wide, sizeof(double_wide) / sizeof(double_wide[0]), c) ? 2 : 1;
}

size_t text__width(const char *s)
{
	size_t len = strlen(s), width = 0, i = 0;

	while (i < len) {
		uint32_t c;
		size_t char_len = utf8__decode(s + i, len - i, &c);

		/* A terminal shows a stray byte as one replacement character. */
		width += char_len ? columns_of(c) : 1;
		i += char_len ? char_len : 1;
	}
	return width;
}

char *text__shell(char *buf, size_t size, const char *word)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
	bool quoted = !*word || word[strspn(word, plain)];
	size_t len = strlen(word), out = 0, n;
	uint32_t c;

	for (size_t i = 0; i < len; i += n) {
		n = utf8__decode(word + i, len - i, &c);
		if (!n || text__acts(c))
			return NULL;
	}
	/* A quote becomes four characters. Keep two free, for the closing quote and the NUL. */
	if (size < 3)
		return NULL;
	if (quoted)
		buf[out++] = '\'';
	for (; *word; word++) {
		const char *put = *word == '\'' ? "'\\''" : (char[]){ *word, '\0' };

		n = strlen(put);
		if (out + n + 2 > size)
			return NULL;
		memcpy(buf + out, put, n);
		out += n;
	}
	if (quoted)
		buf[out++] = '\'';
	buf[out] = '\0';
	return buf;
}

/* ---- numbers for people ---- */

char *text__bytes(char *buf, size_t size, uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	unsigned int unit;

	if (bytes < 1024) {
		snprintf(buf, size, "%u B", (unsigned int)bytes);
		return buf;
	}
	for (unit = 0; unit < sizeof(units) - 1; unit++) {
		unsigned int shift = 10 * (unit + 1);
		/* KiB need no second decimal, and from 1000 on there is no room for it. */
		unsigned int scale = unit == 0 || bytes >> shift >= 1000 ? 10 : 100;
		unsigned __int128 half = (unsigned __int128)1 << (shift - 1);
		uint64_t scaled = (uint64_t)(((unsigned __int128)bytes * scale + half) >> shift);

		/* 1023.996 MiB is printed as 1.00 GiB, not as 1024.0 MiB. */
		if (scaled >= 1024 * (uint64_t)scale && unit + 1 < sizeof(units) - 1)
			continue;
		if (scale == 100 && scaled >= 100000) { /* 999.996 rounds into the next width */
			scale = 10;
			scaled = (uint64_t)(((unsigned __int128)bytes * scale + half) >> shift);
		}
		snprintf(buf, size, "%u.%0*u %ciB", (unsigned int)(scaled / scale),
			 scale == 100 ? 2 : 1, (unsigned int)(scaled % scale), units[unit]);
		break;
	}
	return buf;
}

char *text__count(char *buf, size_t size, uint64_t n)
{
	char digits[24], out[32];
	int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);
	size_t pos = 0;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			out[pos++] = ',';
		out[pos++] = digits[i];
	}
	out[pos] = '\0';
	snprintf(buf, size, "%s", out);
	return buf;
}

char *text__counted(char *buf, size_t size, uint64_t n, const char *noun)
{
	char count[32];

	snprintf(buf, size, "%s %s%s", text__count(count, sizeof(count), n), noun,
		 n == 1 ? "" : "s");
	return buf;
}

char *text__step(char *buf, uint64_t step)
{
	char count[32];

	snprintf(buf, 40, "step %s", text__count(count, sizeof(count), step + 1));
	return buf;
}

char *text__percent(char *buf, uint64_t part, uint64_t whole)
{
	uint64_t percent = whole ? (uint64_t)(((unsigned __int128)part * 100 + whole / 2) / whole)
				 : 0;

	if (part && whole && (unsigned __int128)part * 100 < whole)
		return strcpy(buf, "<1");
	if (part < whole && percent > 99)
		return strcpy(buf, ">99");
	snprintf(buf, 8, "%u", (unsigned int)(percent < 999999 ? percent : 999999));
	return buf;
}

/* Returns n in units of `by`, rounded to the nearest. */
static uint64_t rounded(uint64_t n, uint64_t by)
{
	return n / by + (n % by >= by / 2);
}

/* Returns the unit's name, as the terminal can show it. */
static const char *microseconds(void)
{
	return text__unicode() ? "\xc2\xb5s" : "us";
}

char *text__time(char *buf, size_t size, uint64_t ns)
{
	static const struct {
		uint64_t digit;	  /* ns that the last digit stands for */
		unsigned int per; /* how many of them are one unit */
		uint64_t limit;	  /* in last digits; from here on, the next row applies */
		int places;	  /* digits after the point */
		const char *name; /* NULL: microseconds */
	} units[] = { { 100, 10, 10000, 1, NULL },
		      { 100000, 10, 1000, 1, "ms" },
		      { 10000000, 100, 1000, 2, "s" },
		      { 100000000, 10, 600, 1, "s" } };
	uint64_t seconds = rounded(ns, 1000000000);

	if (ns < 1000) {
		snprintf(buf, size, "%u ns", (unsigned int)ns);
		return buf;
	}
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		uint64_t last_digits = rounded(ns, units[i].digit);

		if (last_digits < units[i].limit) {
			snprintf(buf, size, "%u.%0*u %s",
				 (unsigned int)(last_digits / units[i].per), units[i].places,
				 (unsigned int)(last_digits % units[i].per),
				 units[i].name ?: microseconds());
			return buf;
		}
	}
	if (seconds < 3600)
		snprintf(buf, size, "%um %02us", (unsigned int)(seconds / 60),
			 (unsigned int)(seconds % 60));
	else
		snprintf(buf, size, "%lluh %02um", (unsigned long long)(seconds / 3600),
			 (unsigned int)(seconds / 60 % 60));
	return buf;
}

/* ---- parsing ---- */

struct unit {
	const char *name;
	uint64_t factor;
};

/* Parses digits with at most one point, without floating point: the number is *whole + *frac /
 * *denominator. *end: the rest of s. Returns 0, -EINVAL or -ERANGE. */
static int parse_decimal(const char *s, uint64_t *whole, uint64_t *frac, uint64_t *denominator,
			 const char **end)
{
	bool digits = false;

	*whole = *frac = 0;
	*denominator = 1;
	for (; *s >= '0' && *s <= '9'; s++, digits = true) {
		if (__builtin_mul_overflow(*whole, 10, whole) ||
		    __builtin_add_overflow(*whole, *s - '0', whole))
			return -ERANGE;
	}
	if (*s == '.') {
		for (s++; *s >= '0' && *s <= '9'; s++, digits = true) {
			if (*denominator >= UINT64_C(1000000000000000000))
				return -EINVAL;
			*denominator *= 10;
			*frac = *frac * 10 + (uint64_t)(*s - '0');
		}
	}
	*end = s;
	return digits ? 0 : -EINVAL;
}

/* Parses a number with one of n units, in upper or lower case. Sets *ret to the number times the
 * unit's factor. Returns 0, -EINVAL or -ERANGE. */
static int parse_units(const char *s, const struct unit *units, size_t n, uint64_t *ret)
{
	uint64_t whole, frac, denominator;
	const char *suffix;
	int err = parse_decimal(s, &whole, &frac, &denominator, &suffix);

	if (err)
		return err;
	for (size_t i = 0; i < n; i++) {
		unsigned __int128 value;

		if (strcasecmp(suffix, units[i].name))
			continue;
		value = (unsigned __int128)whole * units[i].factor +
			(unsigned __int128)frac * units[i].factor / denominator;
		if (value > UINT64_MAX)
			return -ERANGE;
		*ret = (uint64_t)value;
		return 0;
	}
	return -EINVAL;
}

int text__parse_size(const char *s, uint64_t *ret)
{
	/* "KB" is missing, because it can mean 1000 or 1024 bytes. */
	static const struct unit units[] = {
		{ "", 1 },
		{ "B", 1 },
		{ "K", UINT64_C(1) << 10 },
		{ "KiB", UINT64_C(1) << 10 },
		{ "M", UINT64_C(1) << 20 },
		{ "MiB", UINT64_C(1) << 20 },
		{ "G", UINT64_C(1) << 30 },
		{ "GiB", UINT64_C(1) << 30 },
		{ "T", UINT64_C(1) << 40 },
		{ "TiB", UINT64_C(1) << 40 },
		{ "P", UINT64_C(1) << 50 },
		{ "PiB", UINT64_C(1) << 50 },
		{ "E", UINT64_C(1) << 60 },
		{ "EiB", UINT64_C(1) << 60 },
	};

	return parse_units(s, units, sizeof(units) / sizeof(units[0]), ret);
}

int text__parse_time(const char *s, uint64_t *ret)
{
	static const struct unit units[] = {
		{ "ns", 1 },
		{ "us", 1000 },
		{ "ms", 1000000 },
		{ "", UINT64_C(1000000000) },
		{ "s", UINT64_C(1000000000) },
		{ "m", UINT64_C(60000000000) },
		{ "min", UINT64_C(60000000000) },
		{ "h", UINT64_C(3600000000000) },
		{ "d", UINT64_C(86400000000000) },
	};

	return parse_units(s, units, sizeof(units) / sizeof(units[0]), ret);
}

bool text__matches(const char *s, const char *pattern)
{
	regex_t regex;
	int err = regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB);

	if (err)
		return false;
	err = regexec(&regex, s, 0, NULL, 0);
	regfree(&regex);
	return !err;
}

int text__parse_date(const char *s, uint64_t *ret)
{
	struct tm tm = { 0 };
	const char *rest = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
	uint64_t ns = 0, digit = 100000000;
	time_t seconds;

	if (rest && *rest == '.')
		for (rest++; *rest >= '0' && *rest <= '9'; rest++, digit /= 10)
			ns += (uint64_t)(*rest - '0') * digit;
	if (!rest || strcmp(rest, "Z"))
		return -EINVAL;
	seconds = timegm(&tm);
	/* Formats with 63 bits for the time end in 2262. */
	if (seconds < 0 || seconds >= INT64_MAX / 1000000000)
		return -EINVAL;
	*ret = (uint64_t)seconds * 1000000000 + ns;
	return 0;
}

char *text__date(char *buf, size_t size, uint64_t ns)
{
	time_t seconds = (time_t)(ns / 1000000000);
	char when[32];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf, size, "%s.%03uZ", when, (unsigned int)(ns / 1000000 % 1000));
	return buf;
}

bool text__unicode(void)
{
	return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

const char *text__dot(void)
{
	return text__unicode() ? " \xc2\xb7 " : " - ";
}

/* ---- terminals ---- */

unsigned text__columns(FILE *out)
{
	const char *columns = getenv("COLUMNS");
	bool number = columns && *columns && !columns[strspn(columns, "0123456789")];
	unsigned long width = number ? strtoul(columns, NULL, 10) : 0;
	struct winsize ws;

	if (!width && !isatty(fileno(out)))
		return TEXT_NO_LIMIT;
	if (!width && !ioctl(fileno(out), TIOCGWINSZ, &ws))
		width = ws.ws_col;
	if (!width)
		width = 80;
	if (width < 40)
		return 40;
	return width > 1000 ? 1000 : width;
}

unsigned text__prose(unsigned width)
{
	return width < TEXT_NO_LIMIT ? width : TEXT_PROSE;
}

unsigned text__one_line(unsigned width)
{
	/* below TEXT_NO_LIMIT, so that text__prose() keeps it */
	return width < TEXT_NO_LIMIT ? width : TEXT_NO_LIMIT - 1;
}

bool text__colour(FILE *out)
{
	const char *term = getenv("TERM");
	const char *no = getenv("NO_COLOR");

	return isatty(fileno(out)) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

/* Returns the columns of a prefix, without its escape sequences for colours. */
static size_t prefix_width(const char *s)
{
	size_t hidden = 0, width = text__width(s);

	for (const char *at = s; (at = strstr(at, "\033[")); at++) {
		size_t len = strcspn(at, "m") + 1;
		char sequence[16];

		snprintf(sequence, sizeof(sequence), "%.*s", (int)len, at);
		hidden += text__width(sequence);
	}
	return width > hidden ? width - hidden : 0;
}

void text__paragraph(FILE *out, size_t width, const char *first, const char *rest, const char *fmt,
		     ...)
{
	char text[TEXT_PARAGRAPH];
	bool begun = false;
	size_t at = 0;
	va_list ap;

	width = text__prose(width);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fputs(first, out);
	at = prefix_width(first);
	for (char *word = text, *next; word; word = next) {
		next = strchr(word, ' ');
		/* A number stays with its unit. */
		while (next && next > word && next[-1] >= '0' && next[-1] <= '9')
			next = strchr(next + 1, ' ');
		if (next)
			*next++ = '\0';
		if (begun && at + 1 + text__width(word) > width) {
			fprintf(out, "\n%s", rest);
			at = prefix_width(rest);
		} else if (begun) {
			at += fprintf(out, " ");
		}
		fputs(word, out);
		at += text__width(word);
		begun = true;
	}
	fputc('\n', out);
}

char *text__bar(char *buf, uint64_t part, uint64_t whole, unsigned columns, bool unicode, bool fill)
{
	/* steps: parts of a column. U+2588 is a full block, each of the seven characters after it
	 * has one eighth less. */
	const unsigned steps = unicode ? 8 : 1;
	unsigned max_steps, filled;
	char *end = buf;

	columns = columns < TEXT_BAR_MAX ? columns : TEXT_BAR_MAX;
	max_steps = columns * steps;
	part = part < whole ? part : whole;
	filled = whole ? (unsigned)((unsigned __int128)part * max_steps / whole) : 0;
	if (part && !filled)
		filled = 1;
	for (unsigned column = 0; column < columns; column++) {
		unsigned in_column = filled > column * steps ? filled - column * steps : 0;

		in_column = in_column < steps ? in_column : steps;
		if (in_column && unicode) {
			memcpy(end, "\xe2\x96", 2);
			end[2] = (char)(0x90 - in_column);
			end += 3;
		} else if (in_column || fill) {
			*end++ = in_column ? '#' : ' ';
		}
	}
	*end = '\0';
	return buf;
}

#define LONGEST 63 /* bytes of a word that is compared */
#define SHORTEST 3 /* shortest prefix that counts as the word */

static unsigned smaller(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Optimal string alignment: row[k] is the distance between the first i bytes of a and the first k
 * of b. Keeps three rows of the table, because a swap needs the row before the last. */
unsigned nearest__distance(const char *a, const char *b)
{
	unsigned rows[3][LONGEST + 1], *row_before_last = rows[0], *last_row = rows[1],
				       *row = rows[2];
	size_t len_a = strlen(a);
	size_t len_b = strlen(b);

	if (len_a > LONGEST || len_b > LONGEST)
		return UINT_MAX;
	for (size_t k = 0; k <= len_b; k++)
		last_row[k] = (unsigned)k;
	for (size_t i = 1; i <= len_a; i++) {
		unsigned *free_row = row_before_last;

		row[0] = (unsigned)i;
		for (size_t k = 1; k <= len_b; k++) {
			row[k] = smaller(smaller(last_row[k], row[k - 1]) + 1,
					 last_row[k - 1] + (a[i - 1] != b[k - 1]));
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
				row[k] = smaller(row[k], row_before_last[k - 2] + 1);
		}
		row_before_last = last_row;
		last_row = row;
		row = free_row;
	}
	return last_row[len_b];
}

void nearest__try(struct nearest *n, const char *candidate)
{
	size_t len = strlen(n->word);
	unsigned distance = nearest__distance(n->word, candidate), begins = 0;

	if (len >= SHORTEST && !strncmp(n->word, candidate, len))
		distance = 0; /* prefers "status" to "start" for "stat" */
	while (n->word[begins] && n->word[begins] == candidate[begins])
		begins++;
	if (distance > smaller((unsigned)(len + 1) / 3, 3) ||
	    (n->best &&
	     (distance > n->distance || (distance == n->distance && begins <= n->begins))))
		return;
	n->best = candidate;
	n->distance = distance;
	n->begins = begins;
}
