/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The recordings below a folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "serve/mcp/answer.h"

#define DEPTH 6	      /* folders below the folder */
#define ENTRIES 20000 /* entries of folders to look at */

struct list {
	struct json *j;
	FILE *f;
	size_t most; /* bytes of the answer */
	size_t seen, left_out;
	char path[PATH_MAX];
};

static bool is_recording(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && !strcmp(name + n - 4, ".mtr");
}

static void put(struct list *l, const struct stat *st)
{
	char date[40];

	fflush(l->f);
	if ((size_t)ftell(l->f) + 2 * strlen(l->path) + 200 > l->most) {
		l->left_out++;
		return;
	}
	json__open_object(l->j, NULL);
	json__string(l->j, "path", l->path);
	json__uint(l->j, "bytes", (uint64_t)st->st_size);
	json__string(l->j, "modified",
		     text__date(date, sizeof(date),
				(uint64_t)st->st_mtim.tv_sec * 1000000000 +
					(uint64_t)st->st_mtim.tv_nsec));
	json__close_object(l->j);
}

static void walk(struct list *l, int fd, int depth);

/* Links are not followed, and hidden entries and recordings under construction are not shown. */
static void visit(struct list *l, int folder, const struct dirent *e, int depth)
{
	size_t at = strlen(l->path);
	struct stat st;

	if (e->d_name[0] == '.' || ++l->seen > ENTRIES ||
	    fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
	    at + strlen(e->d_name) + 2 > sizeof(l->path))
		return;
	snprintf(l->path + at, sizeof(l->path) - at, "%s%s", at ? "/" : "", e->d_name);
	if (S_ISREG(st.st_mode) && is_recording(e->d_name))
		put(l, &st);
	else if (S_ISDIR(st.st_mode) && depth < DEPTH)
		walk(l, openat(folder, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
		     depth + 1);
	l->path[at] = '\0';
}

/* Closes fd. */
static void walk(struct list *l, int fd, int depth)
{
	struct dirent **all = NULL;
	int n = fd < 0 ? 0 : scandirat(fd, ".", &all, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		visit(l, fd, all[i], depth);
		free(all[i]);
	}
	free(all);
	if (fd >= 0)
		close(fd);
}

int mcp_answer__of_list(struct mcp_answer *ret, const struct mcp_opts *o)
{
	struct list *l = calloc(1, sizeof(*l));

	*ret = (struct mcp_answer){ 0 };
	if (l)
		l->f = open_memstream(&ret->text, &ret->len);
	if (l && l->f)
		l->j = json__new(l->f, false);
	if (!l || !l->f || !l->j) {
		if (l && l->f)
			fclose(l->f);
		free(l);
		return -ENOMEM;
	}
	l->most = o->max_answer;
	json__open_object(l->j, NULL);
	json__open_array(l->j, "recordings");
	walk(l, openat(o->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
	json__close_array(l->j);
	json__uint(l->j, "left_out", l->left_out);
	json__bool(l->j, "complete", !l->left_out && l->seen <= ENTRIES);
	json__close_object(l->j);
	json__free(l->j);
	fclose(l->f);
	free(l);
	return 0;
}
