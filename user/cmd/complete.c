/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "cmd/complete.h"

#include <ctype.h>
#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "capture/capture_args.h"
#include "capture/pick.h"
#include "cmd/options.h"
#include "cmd/usage.h"
#include "estimate/estimate.h"
#include "watch/ps.h"

#define TITLE 60     /* bytes of a process's command line that are shown */
#define PIDS_MAX 500 /* Python processes that are offered */

/* Length of the part of a description that completion shows, up to ";", "(" or ": ". */
static size_t first_part(const char *what)
{
	size_t len = strcspn(what, ";(");
	const char *colon = strstr(what, ": ");

	if (colon && (size_t)(colon - what) < len)
		len = (size_t)(colon - what);
	while (len && what[len - 1] == ' ')
		len--;
	return len;
}

/* Prints word as a candidate if it begins with the typed text. before: text in front of the
 * candidate; what: its description. */
static void offer(const char *typed, const char *before, const char *word, const char *what)
{
	size_t len = first_part(what);

	if (strncmp(word, typed, strlen(typed)) != 0)
		return;
	if (len)
		printf("%s%s\t%.*s\n", before, word, (int)len, what);
	else
		printf("%s%s\n", before, word);
}

/* ---- values ---- */

/* Offers the PIDs of processes with PyTorch, as ps lists them. Returns the number of matches. */
static size_t offer_listed(const char *typed, const char *before)
{
	struct ps *s = ps__new();
	const struct ps_process *const *v;
	size_t n, offered = 0;
	char pid[16], title[TITLE];

	if (!s)
		return 0;
	log__set_level(LOG_ERROR);
	ps__find(s);
	v = ps__list(s, &n);
	for (size_t i = 0; i < n; i++) {
		snprintf(pid, sizeof(pid), "%d", (int)v[i]->pid);
		if (strncmp(pid, typed, strlen(typed)) != 0)
			continue;
		text__clean(title, sizeof(title), v[i]->command, strlen(v[i]->command));
		printf("%s%s\t%s\n", before, pid, title);
		offered++;
	}
	ps__free(s);
	return offered;
}

/* Offers the PIDs of all Python processes: PyTorch may be imported later. */
static void offer_python(const char *typed, const char *before)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	size_t n = 0;

	while (proc && n < PIDS_MAX && (e = readdir(proc))) {
		struct pick_process p = { 0 };
		char title[TITLE];

		if (!isdigit((unsigned char)e->d_name[0]) ||
		    strncmp(e->d_name, typed, strlen(typed)) != 0 ||
		    pick_process__read(atoi(e->d_name), &p))
			continue;
		if (pick_process__is_python(&p)) {
			printf("%s%s\t%s\n", before, e->d_name,
			       pick_process__title(&p, title, sizeof(title)));
			n++;
		}
		pick_process__free(&p);
	}
	if (proc)
		closedir(proc);
}

/* Offers devices that recordings of this host can have: the CPU and the GPUs, at least one. */
static void offer_devices(const char *typed, const char *before)
{
	glob_t g = { 0 };
	size_t n = glob("/dev/nvidia[0-9]*", 0, NULL, &g) ? 0 : g.gl_pathc;
	char name[32];

	globfree(&g);
	for (size_t i = 0; i < n || !i; i++) {
		snprintf(name, sizeof(name), "cuda:%zu", i);
		offer(typed, before, name, "");
	}
	offer(typed, before, "cpu", "");
}

/* Offers the devices that `estimate` knows by name. */
static void offer_kinds(const char *typed, const char *before)
{
	size_t n;
	const struct device_kind *all = device_kinds(&n);

	for (size_t i = 0; i < n; i++)
		offer(typed, before, all[i].option, all[i].name);
}

/* Offers the lower-case words between "|", as in "peak|end|oom|SECONDS". */
static void offer_words(const char *typed, const char *before, const char *words)
{
	char word[64];

	for (const char *s = words; *s;) {
		size_t n = strcspn(s, "|");

		snprintf(word, sizeof(word), "%.*s", (int)n, s);
		if (strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789.") == n)
			offer(typed, before, word, "");
		s += n + (s[n] == '|');
	}
}

/* Offers values of an option. before: the text in front of the value in the same word. */
static void offer_values(const struct argp_option *o, const char *typed, const char *before)
{
	static const struct {
		const char *value, *directive;
	} shells[] = { { "FILE", ":file" }, { "FOLDER", ":folder" }, { "USER", ":user" } };

	for (size_t i = 0; i < sizeof(shells) / sizeof(*shells); i++)
		if (!strcmp(o->arg, shells[i].value))
			puts(shells[i].directive);
	if (!strcmp(o->arg, "PID") && !offer_listed(typed, before))
		offer_python(typed, before);
	else if (!strcmp(o->arg, "DEVICE"))
		offer_devices(typed, before);
	else if (!strcmp(o->arg, "KIND"))
		offer_kinds(typed, before);
	else if (strchr(o->arg, '|'))
		offer_words(typed, before, o->arg);
}

/* ---- words of a command ---- */

/* Offers the command's options, with "=" after those that need a value. */
static void offer_options(const struct options_list *list, const char *typed)
{
	char word[128];

	for (size_t i = 0; i < list->n; i++) {
		const struct argp_option *o = list->v[i];

		/* argp takes the first of two options with one name */
		if (!options_list__suggests(o) ||
		    options_list__named(list, o->name, strlen(o->name)) != o)
			continue;
		snprintf(word, sizeof(word), "--%s%s", o->name,
			 options_list__takes_next(o) ? "=" : "");
		offer(typed, "", word, o->doc);
	}
	offer(typed, "", "--help", "Print the help");
}

/* For a word such as "--by=li": offers values of the option in front of "=". */
static void offer_assigned(const struct options_list *list, const char *word)
{
	size_t len = strcspn(word, "=");
	const struct argp_option *o = options_list__named(list, word + 2, len - 2);
	char before[128];

	snprintf(before, sizeof(before), "%.*s=", (int)len, word);
	if (o && o->arg)
		offer_values(o, word + len + 1, before);
}

/* Offers arguments that are not options. given: such an argument stands before it; has_word: one of
 * them is a word of the command. */
static void offer_argument(const struct command *c, bool given, bool has_word, const char *typed)
{
	const char *form = c->argp->args_doc ? c->argp->args_doc : "";
	bool takes_file = strstr(form, "FILE") || strstr(form, "OLD");

	if (c->word && !has_word && (takes_file || !given))
		for (size_t k = 0; c->word(k).name; k++)
			offer(typed, "", c->word(k).name, c->word(k).help);
	if (takes_file && (has_word || !c->word || !given))
		puts(":recording");
}

/* True if the argument is a word of the command, such as a format of `export`. */
static bool is_word_of(const struct command *c, const char *argument)
{
	for (size_t k = 0; c->word && c->word(k).name; k++)
		if (!strcmp(c->word(k).name, argument))
			return true;
	return false;
}

/* The option of an argument "-x..." whose value is the next argument. NULL: none. */
static const struct argp_option *short_value(const struct options_list *list, const char *argument)
{
	for (const char *c = argument + 1; *c; c++) {
		const struct argp_option *o = options_list__short(list, *c);

		if (options_list__takes_next(o))
			return c[1] ? NULL : o;
	}
	return NULL;
}

/* Offers what the last word can be: goes through the words before it, from words[first] on, to know
 * what is expected. If a command of the program begins at word N, prints ":command N" instead, and
 * the shell's script completes that command itself. */
static void offer_for_command(const struct command *c, int n, char *const *words, int first)
{
	struct options_list list = { .n = 0 };
	bool starts_command = c->argp->args_doc && strstr(c->argp->args_doc, "COMMAND");
	const struct argp_option *pending = NULL; /* option whose value is the next word */
	const char *typed = words[n - 1];
	/* given: an argument that is no option came; has_word: one of the command's words */
	bool after_dashes = false, given = false, has_word = false;

	options_list__fill(&list, c->argp);
	for (int i = first; i < n - 1; i++) {
		const char *w = words[i];

		if (pending) {
			pending = NULL;
		} else if (!after_dashes && !strcmp(w, "--")) {
			after_dashes = true;
		} else if (!after_dashes && text__starts(w, "--")) {
			pending = options_list__named(&list, w + 2, strcspn(w + 2, "="));
			pending = options_list__takes_next(pending) && !strchr(w, '=') ? pending
										       : NULL;
		} else if (!after_dashes && w[0] == '-' && w[1]) {
			pending = short_value(&list, w);
		} else if (starts_command) {
			printf(":command %d\n", i);
			return;
		} else {
			given = true;
			has_word |= is_word_of(c, w);
		}
	}
	if (pending)
		offer_values(pending, typed, "");
	else if (!after_dashes && text__starts(typed, "--") && strchr(typed, '='))
		offer_assigned(&list, typed);
	else if (!after_dashes && typed[0] == '-')
		offer_options(&list, typed);
	else if (starts_command)
		printf(":command %d\n", n - 1);
	else
		offer_argument(c, given, has_word, typed);
}

/* Offers the names of the commands. */
static void offer_commands(const struct command *const *commands, size_t n, const char *typed)
{
	for (size_t i = 0; i < n; i++)
		offer(typed, "", commands[i]->name, commands[i]->summary);
	offer(typed, "", "help", "print the help of a command");
}

/* Number of words in front of the command: options of all commands, with their values. */
static int count_common(int n, char *const *words)
{
	struct options_list common = { .n = 0 };
	int i = 0;

	options_list__fill(&common, &log_argp);
	while (i < n - 1) {
		const char *w = words[i];
		const struct argp_option *o = NULL;

		if (text__starts(w, "--"))
			o = options_list__named(&common, w + 2, strcspn(w + 2, "="));
		else if (w[0] == '-' && w[1] && !w[2])
			o = options_list__short(&common, w[1]);
		if (!o || !(o->flags & OPTION_COMMON))
			break;
		i += options_list__takes_next(o) && !strchr(w, '=') ? 2 : 1;
	}
	return i < n ? i : 0; /* 0: the last word is a value */
}

/* The word after common options is a command, or an option of the live view, or a recording for
 * report. */
void complete__print(const struct command *const *commands, size_t n_commands, int n,
		     char *const *words)
{
	int first = count_common(n, words);

	if (n < 1)
		return;
	if (n == first + 1 && words[first][0] != '-') {
		offer_commands(commands, n_commands, words[first]);
		offer(words[first], "", "version", "print the version");
		puts(":recording");
		return;
	}
	if (!strcmp(words[first], "help")) {
		offer_commands(commands, n_commands, words[n - 1]);
		offer(words[n - 1], "", "--all", "Describe all options");
		return;
	}
	for (size_t i = 0; i < n_commands; i++)
		if (!strcmp(words[first], commands[i]->name)) {
			offer_for_command(commands[i], n, words, first + 1);
			return;
		}
	if (words[first][0] == '-')
		offer_for_command(&command_live, n, words, first);
	else
		offer_for_command(&command_report, n, words, first);
}
