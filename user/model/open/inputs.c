/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "model/inputs.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/text.h"
#include "model/open/started.h"
#include "record/folder.h"
#include "record/mtr.h"

#define LISTED 12 /* recordings that a message lists */

void inputs__free(struct inputs *in)
{
	for (size_t i = 0; i < in->n; i++) {
		free(in->paths[i]);
		free(in->names[i]);
		free(in->hosts[i]);
	}
	free(in->paths);
	free(in->names);
	free(in->hosts);
	free(in->missing);
	*in = (struct inputs){ 0 };
}

/* Logs it. Returns EXIT_FAILED. */
static int out_of_memory(void)
{
	log_err("out of memory");
	return EXIT_FAILED;
}

int inputs__add(struct inputs *in, char *path, char *name)
{
	char **paths = path ? reallocarray(in->paths, in->n + 1, sizeof(*paths)) : NULL;
	char **names = paths ? reallocarray(in->names, in->n + 1, sizeof(*names)) : NULL;
	char **hosts = names ? reallocarray(in->hosts, in->n + 1, sizeof(*hosts)) : NULL;

	if (paths)
		in->paths = paths;
	if (names)
		in->names = names;
	if (hosts)
		in->hosts = hosts;
	if (!hosts) {
		free(path);
		free(name);
		return out_of_memory();
	}
	in->paths[in->n] = path;
	in->hosts[in->n] = NULL;
	in->names[in->n++] = name;
	return EXIT_OK;
}

/* Writes the entry's name to show, cleaned. Returns buf. */
static const char *title(const struct folder_entry *e, char buf[256])
{
	const char *s = *e->name ? e->name : e->file;

	return text__clean(buf, 256, s, strlen(s));
}

/* Adds an entry: a file of the folder. Returns an exit code, logged. */
static int add_path(struct inputs *in, const struct folder *f, const struct folder_entry *e)
{
	char buf[256], *path, *name = strdup(title(e, buf));
	int status;

	if (!name || asprintf(&path, "%s/%s", folder__path(f), e->file) < 0) {
		free(name);
		return out_of_memory();
	}
	status = inputs__add(in, path, name);
	if (!status && *e->host && !(in->hosts[in->n - 1] = strdup(e->host)))
		status = out_of_memory();
	return status;
}

/* Returns the number that means entry i in FOLDER#NUMBER: a part's own, otherwise its place. */
static unsigned long number_of(const struct folder_entry *e, size_t i)
{
	unsigned long number;

	if (!strcmp(e->kind, "segment") && sscanf(e->file, "segment-%lu.mtr", &number) == 1)
		return number;
	return (unsigned long)i + 1;
}

/* Returns the name of an entry in a list of choices. Parts of one process have the same name, so
 * their file names are shown. */
static const char *choice_of(const struct folder_entry *e, char buf[256])
{
	if (strcmp(e->kind, "segment") != 0)
		return title(e, buf);
	return text__clean(buf, 256, e->file, strlen(e->file));
}

/* Logs why one recording must be chosen, and the recordings to choose from. Returns EXIT_USAGE. */
static int log_choices(const struct folder *f, const char *why)
{
	const struct folder_entry *e;
	char buf[256], clean[512];
	const char *path = text__clean(clean, sizeof(clean), folder__path(f),
				       strlen(folder__path(f)));
	size_t n;

	e = folder__entries(f, &n);
	log_err("%s: %s:", path, why);
	for (size_t i = 0; i < n && i < LISTED; i++)
		log_err("  %s#%lu  %s", path, number_of(&e[i], i), choice_of(&e[i], buf));
	if (n > LISTED)
		log_err("  and %zu more", n - LISTED);
	return EXIT_USAGE;
}

/* Reads the folder's index. Returns an exit code, logged. */
static int open_folder(const char *path, struct folder **f)
{
	const char *why = NULL;
	int err = folder__read(path, f, &why);
	char clean[512];

	if (!err)
		return EXIT_OK;
	text__clean(clean, sizeof(clean), path, strlen(path));
	if (why)
		log_err("%s: %s: %s", clean, folder__why(err), why);
	else
		log_err("%s: %s", clean, folder__why(err));
	return EXIT_UNUSABLE;
}

/* Adds the parts in a folder of --rolling. Unless any number of inputs will do, there must be one.
 * Returns an exit code, logged. */
static int add_rolling(struct inputs *in, const char *path, enum inputs_of wanted)
{
	const struct folder_entry *entries;
	struct folder *f;
	int status = open_folder(path, &f);
	size_t n;

	if (status)
		return status;
	entries = folder__entries(f, &n);
	if (n > 1 && wanted != INPUTS_EACH)
		status = log_choices(f, "which one?");
	for (size_t i = 0; i < n && !status; i++)
		status = add_path(in, f, &entries[i]);
	folder__free(f);
	return status;
}

/* Adds an entry: a recording, or a folder of --rolling in the folder. Returns an exit code, logged.
 * */
static int add_entry(struct inputs *in, const struct folder *f, const struct folder_entry *e,
		     enum inputs_of wanted)
{
	char *path;
	int status;

	if (strcmp(e->kind, "rolling") || wanted == INPUTS_REPORT)
		return add_path(in, f, e);
	if (asprintf(&path, "%s/%s", folder__path(f), e->file) < 0)
		return out_of_memory();
	status = add_rolling(in, path, wanted);
	free(path);
	return status;
}

/* Adds the entry that FOLDER#name means: the one with this file or name, otherwise with this
 * number. Returns an exit code, logged. */
static int add_named(struct inputs *in, const struct folder *f, const char *name,
		     enum inputs_of wanted)
{
	const struct folder_entry *entries;
	size_t n, found = SIZE_MAX, matches = 0;
	unsigned long number;
	char *end;

	entries = folder__entries(f, &n);
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(entries[i].file, name) || !strcmp(entries[i].name, name)) {
			found = i;
			matches++;
		}
	}
	number = strtoul(name, &end, 10);
	for (size_t i = 0; !matches && !*end && i < n; i++) {
		if (number_of(&entries[i], i) == number) {
			found = i;
			matches = 1;
		}
	}
	if (matches == 1)
		return add_entry(in, f, &entries[found], wanted);
	return log_choices(f, matches ? "several have this name" : "unknown name; use one of");
}

/* Adds the recordings that fetch did not get. Returns an exit code, logged. */
static int add_missing(struct inputs *in, const struct folder *f)
{
	size_t n;
	const struct folder_missing *missing = folder__missing(f, &n);
	struct folder_missing *bigger;

	if (!n)
		return EXIT_OK;
	bigger = reallocarray(in->missing, in->n_missing + n, sizeof(*missing));
	if (!bigger)
		return out_of_memory();
	memcpy(bigger + in->n_missing, missing, n * sizeof(*missing));
	in->missing = bigger;
	in->n_missing += n;
	return EXIT_OK;
}

static int by_rank(const void *a, const void *b)
{
	const struct folder_entry *x = *(const struct folder_entry *const *)a;
	const struct folder_entry *y = *(const struct folder_entry *const *)b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Lists the entries, by rank if each is a process with a rank, otherwise by time. The caller frees
 * the list; NULL: out of memory. *n: number of entries. */
static const struct folder_entry **in_order(const struct folder *f, size_t *n)
{
	const struct folder_entry *entries = folder__entries(f, n);
	const struct folder_entry **all = calloc(*n + 1, sizeof(*all));
	bool ranks = true;

	for (size_t i = 0; all && i < *n; i++) {
		all[i] = &entries[i];
		ranks &= entries[i].rank >= 0 && !strcmp(entries[i].kind, "process");
	}
	if (all && ranks)
		qsort(all, *n, sizeof(*all), by_rank);
	return all;
}

/* Adds all entries, or with ends the first and the last one. Returns an exit code, logged. */
static int add_entries(struct inputs *in, const struct folder *f, enum inputs_of wanted, bool ends)
{
	size_t n;
	const struct folder_entry **entries = in_order(f, &n);
	int status = entries ? EXIT_OK : out_of_memory();

	for (size_t i = 0; i < n && !status; i += ends ? n - 1 : 1)
		status = add_entry(in, f, entries[i], wanted);
	free(entries);
	return status;
}

/* Adds the recordings of a folder. n_others: number of the command line's other inputs. Returns an
 * exit code, logged. */
static int add_folder(struct inputs *in, const struct folder *f, enum inputs_of wanted,
		      size_t n_others)
{
	const struct folder_entry *entries;
	/* the figures of all recordings are added, so each must be of another process */
	bool added_up = wanted == INPUTS_PROCESSES || wanted == INPUTS_REPORT;
	int status;
	size_t n;

	entries = folder__entries(f, &n);
	if (!n) {
		log_err("%s: contains no recording", folder__path(f));
		return EXIT_UNUSABLE;
	}
	if (n > 1 && wanted == INPUTS_ENDS && !n_others)
		return add_entries(in, f, wanted, /*ends=*/true);
	if (n > 1 && (wanted == INPUTS_ONE || wanted == INPUTS_ENDS))
		return log_choices(f, "which one?");
	if (wanted == INPUTS_REPORT && rolling_view__is(folder__path(f)))
		return inputs__add(in, strdup(folder__path(f)), NULL);
	for (size_t i = 0; added_up && i < n; i++) {
		for (size_t k = 0; k < i; k++) {
			if (entries[k].pid == entries[i].pid &&
			    !strcmp(entries[k].host, entries[i].host))
				return log_choices(f, "several recordings are of one process, and "
						      "their memory cannot be added; choose one");
		}
	}
	status = add_entries(in, f, wanted, /*ends=*/false);
	return status ? status : add_missing(in, f);
}

/* Splits "FOLDER#NAME". Returns the folder's path, which the caller frees, and *name within arg.
 * Returns NULL if arg is a file, or FOLDER is no folder with an index. */
static char *split_folder_and_name(const char *arg, const char **name)
{
	const char *hash = strrchr(arg, '#');
	char *path;

	if (!hash || hash == arg || !hash[1] || !access(arg, F_OK))
		return NULL;
	path = strndup(arg, (size_t)(hash - arg));
	if (path && !folder__is(path)) {
		free(path);
		return NULL;
	}
	*name = hash + 1;
	return path;
}

static bool is_plain_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int is_snapshot(const struct dirent *e)
{
	return e->d_name[0] != '.' && mtr_reader__names_snapshot(e->d_name);
}

/* Finds the snapshots of PyTorch in a folder, by their names, in the order of the numbers in them.
 * Returns their number or -errno; the caller frees (*ret)[i] and *ret. */
static int find_snapshots(const char *path, struct dirent ***ret)
{
	int n = scandir(path, ret, is_snapshot, versionsort);

	return n < 0 ? -errno : n;
}

/* Logs that one of a folder's snapshots must be chosen. Returns EXIT_USAGE. */
static int log_snapshots(const char *path, struct dirent *const *found, size_t n)
{
	char clean[512];

	log_err("%s: which one of its %zu snapshots?",
		text__clean(clean, sizeof(clean), path, strlen(path)), n);
	for (size_t i = 0; i < n && i < LISTED; i++)
		log_err("  %s", text__clean(clean, sizeof(clean), found[i]->d_name,
					    strlen(found[i]->d_name)));
	if (n > LISTED)
		log_err("  and %zu more", n - LISTED);
	log_err("Name one of them. memtrace-bpf report --format html FOLDER writes a page of all "
		"ranks.");
	return EXIT_USAGE;
}

/* Returns the path of a folder's file, for free(). NULL if memory is short. */
static char *path_in(const char *folder, const char *name)
{
	char *ret;

	return asprintf(&ret, "%s/%s", folder, name) < 0 ? NULL : ret;
}

/* Adds the snapshots in a folder without an index: the ranks of a job. *found: there are any, or it
 * failed. Returns an exit code, logged. */
static int add_snapshots(struct inputs *in, const char *path, enum inputs_of wanted,
			 size_t n_others, bool *found)
{
	bool ends = wanted == INPUTS_ENDS && !n_others;
	struct dirent **all = NULL;
	int got = find_snapshots(path, &all);
	int status = got == -ENOMEM ? out_of_memory() : EXIT_OK;
	size_t n = got > 0 ? (size_t)got : 0;

	*found = n > 0 || status;
	if (n > 1 && (wanted == INPUTS_ONE || (wanted == INPUTS_ENDS && !ends)))
		status = log_snapshots(path, all, n);
	for (size_t i = 0; i < n && !status; i += ends && n > 1 ? n - 1 : 1)
		status = inputs__add(in, path_in(path, all[i]->d_name), NULL);
	for (size_t i = 0; i < n; i++)
		free(all[i]);
	free(all);
	return status;
}

/* Logs that a folder has no index. Returns EXIT_UNUSABLE. */
static int log_no_index(const char *path)
{
	char clean[512], word[PATH_MAX], *pattern = NULL;
	const char *shell;
	glob_t found = { 0 };

	text__clean(clean, sizeof(clean), path, strlen(path));
	shell = text__shell(word, sizeof(word), path) ?: clean;
	if (asprintf(&pattern, "%s/*.mtr", path) >= 0)
		glob(pattern, 0, NULL, &found);
	if (found.gl_pathc)
		log_err("%s: it is a folder without an index.json; name its %zu recording%s: "
			"%s/*.mtr",
			clean, found.gl_pathc, found.gl_pathc == 1 ? "" : "s", shell);
	else
		log_err("%s: it is a folder without a recording in it", clean);
	globfree(&found);
	free(pattern);
	return EXIT_UNUSABLE;
}

/* Says that the processes that a recorded process started have recordings, too. */
static void log_started(const char *path, size_t n)
{
	size_t len = strlen(path);
	char clean[512], stem[PATH_MAX], word[PATH_MAX];
	bool has_extension = len > strlen(".mtr") && !strcmp(path + len - strlen(".mtr"), ".mtr");

	text__clean(clean, sizeof(clean), path, len);
	if (has_extension)
		len -= strlen(".mtr");
	snprintf(stem, sizeof(stem), "%.*s", (int)len, path);
	if (!text__shell(word, sizeof(word), stem))
		text__clean(word, sizeof(word), stem, strlen(stem));
	log_info("%s: recordings of processes that it started, %zu in all: %s.*%s", clean, n, word,
		 has_extension ? ".mtr" : "");
}

/*
 * Adds a file. If it is the only argument, looks for recordings of the processes that its process
 * started. They are added to the recording of a launcher, which has no memory itself.
 */
static int add_file(struct inputs *in, const char *path, enum inputs_of wanted, size_t n_others)
{
	bool together = wanted == INPUTS_PROCESSES || wanted == INPUTS_REPORT;
	int status = inputs__add(in, strdup(path), NULL);
	struct started started = { 0 };

	if (!status && !n_others && started__find(path, &started))
		status = out_of_memory();
	if (started.n && !(together && started.launcher))
		log_started(path, started.n);
	for (size_t i = 0; together && started.launcher && i < started.n && !status; i++)
		status = inputs__add(in, strdup(started.paths[i]), NULL);
	started__free(&started);
	return status;
}

/* Adds the recordings of an argument: FILE, FOLDER (all in it), or FOLDER#NAME (one in it).
 * n_others: number of the other arguments. Returns an exit code, logged. */
static int expand_argument(struct inputs *in, const char *arg, enum inputs_of wanted,
			   size_t n_others)
{
	const char *name = NULL;
	char *folder = split_folder_and_name(arg, &name);
	struct folder *f = NULL;
	bool found;
	int status;

	if (!folder && !folder__is(arg) && !is_plain_folder(arg))
		return add_file(in, arg, wanted, n_others);
	if (!folder && !folder__is(arg)) {
		status = add_snapshots(in, arg, wanted, n_others, &found);
		return found ? status : log_no_index(arg);
	}
	status = open_folder(folder ? folder : arg, &f);
	if (!status)
		status = folder ? add_named(in, f, name, wanted)
				: add_folder(in, f, wanted, n_others);
	folder__free(f);
	free(folder);
	return status;
}

int inputs__expand(char *const *args, size_t n, enum inputs_of wanted, struct inputs *ret)
{
	int status = EXIT_OK;

	*ret = (struct inputs){ 0 };
	for (size_t i = 0; i < n && !status; i++)
		status = expand_argument(ret, args[i], wanted, n - 1);
	if (status)
		inputs__free(ret);
	return status;
}
