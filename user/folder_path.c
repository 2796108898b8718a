/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "folder_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"
#include "lib/exit.h"
#include "lib/log.h"
#include "lib/text.h"

static const struct folder_entry *find(const struct folder *f, unsigned long number)
{
	const struct folder_entry *e;
	char end[32];
	size_t n;

	e = folder__entries(f, &n);
	snprintf(end, sizeof(end), "#%lu", number);
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(e[i].name);

		if (len > strlen(end) && !strcmp(e[i].name + len - strlen(end), end))
			return &e[i];
	}
	/* Segments have numbers of their own, and the first ones go. */
	return number && number <= n && strcmp(e[number - 1].kind, "segment") ? &e[number - 1] : NULL;
}

int folder_path__resolve(const char *path, char **ret)
{
	const char *hash = strrchr(path, '#'), *why = NULL;
	const struct folder_entry *e;
	char *folder, *end, name[512];
	struct folder *f = NULL;
	unsigned long number;
	int err, status = EXIT_OK;

	*ret = NULL;
	if (!hash || hash == path || hash[1] < '0' || hash[1] > '9' || !access(path, F_OK))
		return EXIT_OK;
	number = strtoul(hash + 1, &end, 10);
	folder = strndup(path, (size_t)(hash - path));
	if (!folder)
		goto nomem;
	if (*end || !folder__is(folder)) {
		free(folder);
		return EXIT_OK;
	}
	text__clean(name, sizeof(name), folder, strlen(folder));
	err = folder__read(folder, &f, &why);
	e = err ? NULL : find(f, number);
	if (err) {
		log_err("%s: %s", name, why ? why : folder__why(err));
		status = EXIT_UNUSABLE;
	} else if (!e) {
		log_err("%s: there is no #%lu in it, or not any more", name, number);
		status = EXIT_UNUSABLE;
	} else if (asprintf(ret, "%s/%s", folder__path(f), e->file) < 0) {
		*ret = NULL;
		goto nomem_folder;
	}
	folder__free(f);
	free(folder);
	return status;
nomem_folder:
	folder__free(f);
	free(folder);
nomem:
	log_err("out of memory");
	return EXIT_FAILED;
}

int folder_path__say_folder(const char *path)
{
	struct folder *f = NULL;
	const struct folder_entry *e;
	char name[512], first[160], last[160];
	size_t n = 0;

	text__clean(name, sizeof(name), path, strlen(path));
	if (!folder__is(path) || folder__read(path, &f, NULL)) {
		log_err("%s: it is a folder, and no recordings with an index are in it", name);
		return EXIT_UNUSABLE;
	}
	e = folder__entries(f, &n);
	if (!n)
		log_err("%s: it is a folder, and no recording is in it", name);
	else
		log_err("%s: it is a folder of %zu recording%s: name one, %s to %s in it, or as FOLDER#N", name, n, n == 1 ? "" : "s",
			text__clean(first, sizeof(first), e[0].file, strlen(e[0].file)),
			text__clean(last, sizeof(last), e[n - 1].file, strlen(e[n - 1].file)));
	folder__free(f);
	return EXIT_UNUSABLE;
}
