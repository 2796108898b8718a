/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/help.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assets.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "cmd/options.h"

#define WIDTH 80     /* characters of a line */
#define CELL_MAX 24  /* characters; longer options have their own line */
#define INDENT 2     /* characters */
#define LINES_MAX 40 /* longer help has no empty lines */

/* ---- help ---- */

/* Headings of the groups of options; NULL: a command gives its own. */
static const char *const titles[OPTIONS_MESSAGES + 1] = {
	[OPTIONS_PROCESS] = "Which process",
	[OPTIONS_COMMAND] = "The command",
	[OPTIONS_TIME] = "How long",
	[OPTIONS_RECORD] = "What to record",
	[OPTIONS_PARTS] = "Only parts of the run",
	[OPTIONS_SHOW] = "What to show",
	[OPTIONS_OUTPUT] = "Output",
	[OPTIONS_MESSAGES] = "Messages",
};

/* True if the option has a letter: argp takes a key that is a character for that. */
static bool is_short(const struct argp_option *o)
{
	return o->key > ' ' && o->key < 127;
}

/* Writes an option as help shows it: "-o, --output=FILE". Returns its length. */
static int write_cell(char *buf, size_t size, const struct argp_option *o)
{
	char value[64] = "", letter[8] = "";

	if (o->arg && o->flags & OPTION_ARG_OPTIONAL)
		snprintf(value, sizeof(value), "[=%s]", o->arg);
	else if (o->arg)
		snprintf(value, sizeof(value), "=%s", o->arg);
	if (is_short(o))
		snprintf(letter, sizeof(letter), "-%c, ", o->key);
	return snprintf(buf, size, "%s--%s%s", letter, o->name, value);
}

/* The command whose help describes the option: another one for rare options that it has, too. */
static const struct command *describes(const struct command *c, const struct argp_option *o)
{
	struct options_list others = { .n = 0 };

	if (!c->shares || !(o->flags & OPTION_RARE))
		return c;
	options_list__fill(&others, c->shares->argp);
	for (size_t i = 0; i < others.n; i++)
		if (others.v[i] == o)
			return c->shares;
	return c;
}

/* Fills list with the headings and options that the help of c describes. */
static void list_described(struct options_list *list, const struct command *c, bool all)
{
	struct options_list every = { .n = 0 };

	options_list__fill(&every, c->argp);
	for (size_t i = 0; i < every.n; i++) {
		const struct argp_option *o = every.v[i];
		bool described = options_list__shows(o) && describes(c, o) == c &&
				 (all || !(o->flags & OPTION_RARE));

		if (!o->name || described)
			list->v[list->n++] = o;
	}
}

/* The heading of a group of options. */
static const char *title_of(const struct options_list *list, int group)
{
	for (size_t i = 0; i < list->n; i++)
		if (!list->v[i]->name && !list->v[i]->key && list->v[i]->group == group)
			return list->v[i]->doc;
	return titles[group] ? titles[group] : "Options";
}

/* The column at which the descriptions of options begin. */
static size_t doc_column(const struct options_list *list)
{
	size_t widest = 0;
	char buf[256];

	for (size_t i = 0; i < list->n; i++) {
		int n = list->v[i]->name ? write_cell(buf, sizeof(buf), list->v[i]) : 0;

		if (n <= CELL_MAX && (size_t)n > widest)
			widest = (size_t)n;
	}
	return INDENT + widest + 2;
}

/* Prints an option, with its description from column `at` on. An option that is too long has its
 * own line. */
static void print_option(FILE *out, const struct argp_option *o, size_t at)
{
	char first[256], rest[WIDTH], name[128];
	int n = write_cell(name, sizeof(name), o);

	snprintf(rest, sizeof(rest), "%*s", (int)at, "");
	if ((size_t)n + INDENT + 2 > at) {
		fprintf(out, "%*s%s\n", INDENT, "", name);
		snprintf(first, sizeof(first), "%s", rest);
	} else {
		snprintf(first, sizeof(first), "%*s%s%*s", INDENT, "", name, (int)at - INDENT - n,
			 "");
	}
	text__paragraph(out, WIDTH, first, rest, "%s", o->doc);
}

/* Prints the options of a group, if any, below its title. gap: text before the title.
 */
static void print_group(FILE *out, const struct options_list *list, int group, const char *title,
			const char *gap)
{
	size_t at = doc_column(list);
	bool any = false;

	for (size_t i = 0; i < list->n; i++) {
		if (!list->v[i]->name || list->v[i]->group != group)
			continue;
		if (!any)
			fprintf(out, "%s%s:\n", gap, title);
		any = true;
		print_option(out, list->v[i], at);
	}
}

/* Prints all groups of options. gap: text before each title. */
static void print_groups(FILE *out, const struct options_list *list, const char *gap)
{
	for (int group = 0; group <= OPTIONS_MESSAGES; group++)
		print_group(out, list, group, title_of(list, group), gap);
}

/* Names the rare options of c that the complete help of a command describes: c, or c->shares. */
static void name_rare(FILE *out, const struct command *c, const struct command *describing,
		      const char *gap)
{
	struct options_list list = { .n = 0 };
	char *names = NULL;
	size_t size;
	FILE *f = open_memstream(&names, &size);
	bool any = false;

	options_list__fill(&list, c->argp);
	for (size_t i = 0; f && i < list.n; i++) {
		const struct argp_option *o = list.v[i];

		if (!options_list__shows(o) || !(o->flags & OPTION_RARE) ||
		    describes(c, o) != describing)
			continue;
		fprintf(f, "%s--%s", any ? ", " : "", o->name);
		any = true;
	}
	if (f && !fclose(f) && any) {
		fprintf(out, "%sMore options, which `memtrace-bpf help %s --all` describes:\n", gap,
			describing->name);
		text__paragraph(out, WIDTH, "  ", "  ", "%s", names);
	}
	free(names);
}

/* Prints the words of a command, such as the formats of `export`, with their descriptions. */
static void print_words(FILE *out, const struct command *c)
{
	int widest = 0;

	for (size_t i = 0; c->word(i).name; i++) {
		int n = (int)strlen(c->word(i).name);

		widest = n > widest ? n : widest;
	}
	for (size_t i = 0; c->word(i).name; i++) {
		char first[WIDTH], rest[WIDTH];

		snprintf(first, sizeof(first), "  %-*s  ", widest, c->word(i).name);
		snprintf(rest, sizeof(rest), "%*s", widest + 4, "");
		text__paragraph(out, WIDTH, first, rest, "%s", c->word(i).help);
	}
}

/* Prints lines, indented. */
static void print_lines(FILE *out, const char *lines)
{
	for (const char *s = lines; *s;) {
		size_t n = strcspn(s, "\n");

		fprintf(out, "  %.*s\n", (int)n, s);
		s += n + (s[n] == '\n');
	}
}

/* True for the live view, which is called without the name of a command. */
static bool is_live(const struct command *c)
{
	return !strcmp(c->name, "live");
}

/* Prints a line for each form of the command, such as "Usage: memtrace-bpf diff [OPTION...] OLD
 * NEW". */
static void print_usage(FILE *out, const struct command *c)
{
	const char *form = c->argp->args_doc ? c->argp->args_doc : "";

	for (bool first = true; first || *form; first = false) {
		size_t n = strcspn(form, "\n");

		fputs(first ? "Usage: memtrace-bpf" : "       memtrace-bpf", out);
		if (!is_live(c)) /* the live view is called without a command's name */
			fprintf(out, " %s", c->name);
		fprintf(out, " [OPTION...]%s%.*s\n", n ? " " : "", (int)n, form);
		form += n + (form[n] == '\n');
	}
}

/* Prints the help of a command. gap: text between sections, an empty line or nothing. */
static void print_help(FILE *out, const struct command *c, bool all, const char *gap)
{
	struct options_list list = { .n = 0 };

	list_described(&list, c, all);
	print_usage(out, c);
	text__paragraph(out, WIDTH, "", "", "%s", c->argp->doc);
	if (!*gap)
		fputc('\n', out);
	if (c->word) {
		fprintf(out, "%s%s:\n", gap, c->words);
		print_words(out, c);
	}
	print_groups(out, &list, gap);
	if (!all)
		name_rare(out, c, c, gap);
	if (c->shares)
		name_rare(out, c, c->shares, gap);
	fprintf(out, "%sExamples:\n", gap);
	print_lines(out, c->examples);
	fputs(gap, out);
	text__paragraph(out, WIDTH, "Exit status: ", "  ", "%s.", c->status);
}

void help__print(FILE *out, const struct command *c, bool all)
{
	char *text = NULL;
	size_t size, lines = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return;
	print_help(f, c, all, "\n");
	fclose(f);
	for (const char *s = text; *s; s++)
		lines += *s == '\n';
	if (all || lines <= LINES_MAX)
		fputs(text, out);
	else
		print_help(out, c, all, "");
	free(text);
}

/* ---- the list of commands ---- */

static const char *const group_titles[COMMANDS_GROUPS] = {
	[COMMANDS_LOOK] = "Look at a job",
	[COMMANDS_RECORD] = "Record a job",
	[COMMANDS_READ] = "Read recordings",
	[COMMANDS_MORE] = "More",
};

/* Adds the options of a group that several commands have to list, each once. */
static void list_common(struct options_list *list, const struct command *const *commands, size_t n,
			int group)
{
	for (size_t i = 0; i < n; i++) {
		struct options_list its = { .n = 0 };

		options_list__fill(&its, commands[i]->argp);
		for (size_t k = 0; k < its.n; k++) {
			const struct argp_option *o = its.v[k];

			if (!o->name || !(o->flags & OPTION_COMMON) || o->group != group ||
			    options_list__named(list, o->name, strlen(o->name)))
				continue;
			list->v[list->n++] = o;
		}
	}
}

/* Names the options that several commands have. */
static void name_common(FILE *out, const struct options_list *list)
{
	char names[512] = "";
	size_t used = 0;

	for (size_t i = 0; i < list->n && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s--%s",
					 i ? ", " : "", list->v[i]->name);
	fputs("Options of several commands, which `memtrace-bpf help --all` describes:\n", out);
	text__paragraph(out, WIDTH, "  ", "  ", "%s", names);
}

void help__print_list(FILE *out, const struct command *const *commands, size_t n, bool all)
{
	struct options_list common = { .n = 0 };

	fputs("memtrace-bpf attaches to a running PyTorch process and shows which Python line,\n"
	      "module and phase holds its memory.\n\n"
	      "Usage: memtrace-bpf COMMAND [OPTION...]\n"
	      "       sudo memtrace-bpf -p PID [OPTION...]    the live view\n"
	      "       memtrace-bpf FILE.mtr [OPTION...]       the report of a recording\n\n",
	      out);
	for (int group = 0; group < COMMANDS_GROUPS; group++) {
		fprintf(out, "%s:\n", group_titles[group]);
		for (size_t i = 0; i < n; i++)
			if ((int)commands[i]->group == group)
				fprintf(out, "  %-8s  %s\n", commands[i]->name,
					commands[i]->summary);
	}
	fputs("  help      print the help of a command, such as `memtrace-bpf help record`\n"
	      "  version   print the version and the features of this build\n",
	      out);
	list_common(&common, commands, n, OPTIONS_MESSAGES);
	list_common(&common, commands, n, OPTIONS_OUTPUT);
	if (all) {
		print_group(out, &common, OPTIONS_MESSAGES,
			    "Options of all commands, before or after the command's name", "\n");
		print_group(out, &common, OPTIONS_OUTPUT, "Options of several commands", "\n");
	} else {
		name_common(out, &common);
	}
	fputs("\nExamples:\n"
	      "  sudo memtrace-bpf diagnose -p 4242            what is wrong with its memory\n"
	      "  sudo memtrace-bpf -p 4242                     which lines hold memory now\n"
	      "  sudo memtrace-bpf record -p 4242 -o run.mtr   record, then:\n"
	      "  memtrace-bpf report run.mtr                   which lines make the peak\n\n",
	      out);
	fputs("Manual: man memtrace-bpf, man memtrace-bpf-record, ...\n", out);
	fprintf(out, "Guide:  %s\n", docs__path("guide"));
}

/* ---- manual page ---- */

/* Writes n bytes of text as a line of a manual page, with the escapes of mdoc. A sentence begins a
 * new line, as mdoc wants it. */
static void text_line(FILE *out, const char *s, size_t n)
{
	if (n && strchr(".'", s[0]))
		fputs("\\&", out);
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '\\')
			fputs("\\e", out);
		else if (s[i] == '-')
			fputs("\\-", out);
		else if (s[i] == '`')
			fputs("\\(oq", out);
		else if (s[i] == '\'')
			fputs("\\(aq", out);
		else if (s[i] == ' ' && i && strchr(".;", s[i - 1]) &&
			 isupper((unsigned char)s[i + 1]))
			fputc('\n', out);
		else
			fputc(s[i], out);
	}
	fputc('\n', out);
}

/* Writes text in upper case. */
static void write_upper(FILE *out, const char *s)
{
	for (; *s; s++)
		fputc(toupper((unsigned char)*s), out);
}

/* Writes the beginning of a manual page: title, name and synopsis. */
static void print_head(FILE *out, const struct command *c)
{
	const char *form = c->argp->args_doc ? c->argp->args_doc : "";

	fputs(".ds doc-volume-operating-system Linux\n",
	      out); /* not "BSD System Manager's Manual" */
	fputs(".Dt MEMTRACE-BPF-", out);
	write_upper(out, c->name);
	fprintf(out,
		" 8\n.Os Linux\n.Sh NAME\n.Nm memtrace-bpf-%s\n.Nd %s\n.Sh SYNOPSIS\n.Bd "
		"-literal\n",
		c->name, c->summary);
	do {
		size_t n = strcspn(form, "\n");

		fputs("memtrace\\-bpf", out);
		if (!is_live(c))
			fprintf(out, " %s", c->name);
		fputs(" [OPTION...] ", out);
		text_line(out, form, n);
		form += n + (form[n] == '\n');
	} while (*form);
	fputs(".Ed\n", out);
}

/* Writes an option as an item of a list in a manual page. */
static void write_option(FILE *out, const struct argp_option *o)
{
	bool optional = o->flags & OPTION_ARG_OPTIONAL;

	fputs(".It ", out);
	if (o->key > ' ' && o->key < 127)
		fprintf(out, "Fl %c , ", o->key);
	fprintf(out, "Fl -%s", o->name);
	if (o->arg)
		fprintf(out, optional ? " Ns Op = Ns Ar %s" : " Ns = Ns Ar %s", o->arg);
	fputc('\n', out);
	text_line(out, o->doc, strlen(o->doc));
}

/* Names the options that the page of another command describes. */
static void print_shared(FILE *out, const struct command *c)
{
	struct options_list list = { .n = 0 };
	bool any = false;

	options_list__fill(&list, c->argp);
	fprintf(out, ".Ss Options of %s\n.Xr memtrace-bpf-%s 8\ndescribes more options:\n",
		c->shares->name, c->shares->name);
	for (size_t i = 0; i < list.n; i++) {
		if (!options_list__shows(list.v[i]) || describes(c, list.v[i]) == c)
			continue;
		fprintf(out, "%s.Fl -%s", any ? " ,\n" : "", list.v[i]->name);
		any = true;
	}
	fputs(" .\n", out);
}

/* Writes the section OPTIONS of a manual page. */
static void print_options(FILE *out, const struct command *c)
{
	struct options_list list = { .n = 0 };

	list_described(&list, c, /*all=*/true);
	fputs(".Sh OPTIONS\n", out);
	for (int group = 0; group <= OPTIONS_MESSAGES; group++) {
		bool any = false;

		for (size_t i = 0; i < list.n; i++) {
			if (!list.v[i]->name || list.v[i]->group != group)
				continue;
			if (!any)
				fprintf(out, ".Ss %s\n.Bl -tag -width Ds\n",
					title_of(&list, group));
			any = true;
			write_option(out, list.v[i]);
		}
		if (any)
			fputs(".El\n", out);
	}
	if (c->shares)
		print_shared(out, c);
	fputs(".Ss Options of all commands\n"
	      ".Xr memtrace-bpf 8\ndescribes options that several commands have.\n",
	      out);
}

/* Writes the last sections of a manual page. */
static void print_tail(FILE *out, const struct command *c)
{
	fputs(".Sh EXIT STATUS\n", out);
	text_line(out, c->status, strlen(c->status));
	fputs(".Sh EXAMPLES\n.Bd -literal\n", out);
	for (const char *s = c->examples; *s;) {
		size_t n = strcspn(s, "\n");

		text_line(out, s, n);
		s += n + (s[n] == '\n');
	}
	fputs(".Ed\n.Sh SEE ALSO\n.Xr memtrace-bpf 8\n", out);
}

void help__manual(FILE *out, const struct command *c, FILE *in)
{
	char line[4096];

	fputs(".\\\" SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause\n", out);
	for (bool first = true; fgets(line, sizeof(line), in); first = false) {
		fputs(line, out);
		if (first)
			print_head(out, c);
	}
	print_options(out, c);
	print_tail(out, c);
}
