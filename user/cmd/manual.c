/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/manual.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "capture/option_groups.h"
#include "cmd/help.h"
#include "cmd/options.h"

/* Writes text on a line of its own. */
static void text_line(FILE *out, const char *s, size_t n)
{
	if (n && strchr(".'", s[0]))
		fputs("\\&", out);
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '\\')
			fputs("\\e", out);
		else if (s[i] == '-')
			fputs("\\-", out);
		else if (s[i] == '`' || s[i] == '\'')
			fputs(s[i] == '`' ? "\\(oq" : "\\(aq", out);
		else if (s[i] == ' ' && i && strchr(".;", s[i - 1]) &&
			 isupper((unsigned char)s[i + 1]))
			fputc('\n', out); /* mdoc has a sentence on a line */
		else
			fputc(s[i], out);
	}
	fputc('\n', out);
}

static void upper(FILE *out, const char *s)
{
	for (; *s; s++)
		fputc(toupper((unsigned char)*s), out);
}

static bool is_live(const struct command *c)
{
	return !strcmp(c->name, "live");
}

static void print_head(FILE *out, const struct command *c)
{
	const char *form = c->argp->args_doc ? c->argp->args_doc : "";

	fputs(".ds doc-volume-operating-system Linux\n",
	      out); /* not "BSD System Manager's Manual" */
	fputs(".Dt MEMTRACE-BPF-", out);
	upper(out, c->name);
	fprintf(out,
		" 8\n.Os Linux\n.Sh NAME\n.Nm memtrace-bpf-%s\n.Nd %s\n.Sh SYNOPSIS\n.Bd "
		"-literal\n",
		c->name, c->summary);
	do {
		size_t n = strcspn(form, "\n");

		fprintf(out, "memtrace\\-bpf%s%s [OPTION...] ", is_live(c) ? "" : " ",
			is_live(c) ? "" : c->name);
		text_line(out, form, n);
		form += n + (form[n] == '\n');
	} while (*form);
	fputs(".Ed\n", out);
}

static void print_option(FILE *out, const struct argp_option *o)
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

static void print_options(FILE *out, const struct command *c)
{
	struct options_list list = { .n = 0 };

	options_list__fill(&list, c->argp);
	fputs(".Sh OPTIONS\n", out);
	for (int group = 0; group <= OPTIONS_MESSAGES; group++) {
		bool any = false;

		for (size_t i = 0; i < list.n; i++) {
			if (!options_list__shows(list.v[i]) || list.v[i]->group != group)
				continue;
			if (!any)
				fprintf(out, ".Ss %s\n.Bl -tag -width Ds\n",
					help__title(&list, group));
			any = true;
			print_option(out, list.v[i]);
		}
		if (any)
			fputs(".El\n", out);
	}
}

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

void manual__print(FILE *out, const struct command *c, FILE *in)
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
