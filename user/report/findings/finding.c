/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A list of findings that owns its texts, and places in them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "record/dict.h"
#include "report/findings/internal.h"

bool findings__is_whole(const struct finding *f)
{
	return f->text && f->where && f->held_by && f->sure && f->remedy;
}

void findings__free_texts(struct finding *f)
{
	free(f->text);
	free(f->where);
	free(f->held_by);
	free(f->sure);
	free(f->remedy);
}

int findings__add(struct judging *j, const struct finding *f)
{
	struct finding copy = *f;
	int err = array__grow(&j->ret->all, &j->cap, j->ret->n + 1, sizeof(*j->ret->all));

	if (err)
		return err;
	copy.text = strdup(f->text ? f->text : "");
	copy.where = strdup(f->where ? f->where : "");
	copy.held_by = strdup(f->held_by ? f->held_by : "");
	copy.sure = strdup(f->sure ? f->sure : "");
	copy.remedy = strdup(f->remedy ? f->remedy : "");
	if (!findings__is_whole(&copy)) {
		findings__free_texts(&copy);
		return -ENOMEM;
	}
	j->ret->all[j->ret->n++] = copy;
	return 0;
}

char *findings__write_line(const struct findings_source *source, const struct row_frame *line,
			   char buf[REPORT_TEXT])
{
	const struct row row = { .module = "",
				 .module_class = "",
				 .source = "frame",
				 .file = line->file,
				 .func = line->func,
				 .line = line->line };

	return words__location(buf, &row, facts__get(source->facts, "cwd"), /*columns=*/60);
}

char *findings__place(const struct findings_source *source, uint32_t stack, char buf[REPORT_TEXT])
{
	struct row_frame line;

	*buf = '\0';
	if (!model__stack_line(source->model, stack, FRAMES_USER, &line))
		return buf;
	return findings__write_line(source, &line, buf);
}

size_t findings__at(char text[REPORT_TEXT], const char *where)
{
	*text = '\0';
	return *where ? (size_t)snprintf(text, REPORT_TEXT, "at %.200s: ", where) : 0;
}
