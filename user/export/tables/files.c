/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "export/tables/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "base/outfile.h"
#include "base/text.h"

#define NO_DATE "__HIVE_DEFAULT_PARTITION__" /* Hive's word for null */
#define NAME_MOST 128			     /* bytes of a job or of a recording's name in a path */

struct table_files {
	struct outfile *file[TABLE_NR];
	struct parquet *p[TABLE_NR];
	char *folder;
};

/* Hive's form of a value in a path: other characters than these become %XX. */
static void escape(char *buf, size_t size, const char *s)
{
	size_t n = 0;

	for (size_t i = 0; s[i] && i < NAME_MOST && n + 4 < size; i++) {
		unsigned char b = (unsigned char)s[i];
		bool plain = (b >= '0' && b <= '9') || (b >= 'a' && b <= 'z') ||
			     (b >= 'A' && b <= 'Z') || strchr("-_", b) || (b == '.' && i);

		n += (size_t)snprintf(buf + n, size - n, plain ? "%c" : "%%%02X", b);
	}
	buf[n] = '\0';
}

static void put_date(char *buf, size_t size, uint64_t start)
{
	time_t seconds = (time_t)(start / 1000000000);
	struct tm tm;

	if (!start || !gmtime_r(&seconds, &tm) || !strftime(buf, size, "%Y-%m-%d", &tm))
		snprintf(buf, size, NO_DATE);
}

/* Makes the folders of a path, which it changes and restores. */
static int make_folders(char *path)
{
	for (char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
		int err;

		*s = '\0';
		err = mkdir(path, 0777) && errno != EEXIST ? -errno : 0;
		*s = '/';
		if (err)
			return err;
	}
	return 0;
}

static int open_table(struct table_files *t, enum table table, const char *folder, const char *rest,
		      bool force)
{
	const struct table_schema *s = &table_schemas[table];
	char *path, name[512];
	int err;

	if (asprintf(&path, "%s/%s/%s", folder, s->name, rest) < 0)
		return -ENOMEM;
	err = make_folders(path);
	if (!err)
		err = outfile__create(path, OUTFILE_RENAME, force, &t->file[table]);
	if (err)
		log_err("%s: cannot create: %s",
			text__clean(name, sizeof(name), path, strlen(path)), outfile__why(err));
	free(path);
	if (!err && outfile__stream(t->file[table]))
		t->p[table] = parquet__new(outfile__stream(t->file[table]), s->columns, s->n);
	return err ? err : t->p[table] ? 0 : -ENOMEM;
}

int table_files__open(struct table_files **ret, const struct export_folder *f,
		      const char *recording, int64_t pid, uint64_t start)
{
	char job[4 * NAME_MOST], name[4 * NAME_MOST], date[40], rest[9 * NAME_MOST];
	struct table_files *t = calloc(1, sizeof(*t));
	int err = 0;

	*ret = t;
	if (!t)
		return -ENOMEM;
	t->folder = strdup(f->path);
	if (!t->folder)
		return -ENOMEM;
	escape(job, sizeof(job), f->job && *f->job ? f->job : recording);
	escape(name, sizeof(name), recording);
	put_date(date, sizeof(date), start);
	snprintf(rest, sizeof(rest), "job=%s/date=%s/%s-%" PRId64 ".parquet", job, date, name, pid);
	for (int i = 0; i < TABLE_NR && !err; i++)
		err = open_table(t, i, f->path, rest, f->force);
	return err;
}

struct parquet *table_files__at(const struct table_files *t, enum table table)
{
	return t->p[table];
}

int table_files__commit(struct table_files *t)
{
	char name[512], events[32], blocks[32];
	int err = 0;

	for (int i = 0; i < TABLE_NR && !err; i++)
		err = parquet__finish(t->p[i]);
	for (int i = 0; i < TABLE_NR && !err; i++) {
		err = outfile__commit(t->file[i]);
		t->file[i] = NULL;
	}
	if (!err)
		log_info("wrote %s and %s to %s",
			 text__counted(events, sizeof(events), parquet__rows(t->p[TABLE_EVENTS]),
				       "event"),
			 text__counted(blocks, sizeof(blocks), parquet__rows(t->p[TABLE_BLOCKS]),
				       "block"),
			 text__clean(name, sizeof(name), t->folder, strlen(t->folder)));
	return err;
}

void table_files__free(struct table_files *t)
{
	if (!t)
		return;
	for (int i = 0; i < TABLE_NR; i++) {
		parquet__free(t->p[i]);
		outfile__discard(t->file[i]);
	}
	free(t->folder);
	free(t);
}
