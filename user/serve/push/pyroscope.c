/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Profiles for Pyroscope's POST /ingest. The URL names the process; the body is a form with two
 * files. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/push/push.h"

/* 128 random bits, so that no profile contains the boundary. */
#define BOUNDARY "memtrace-bpf-5d1f0c7a9b3e48629f6a2c84d0e7b513"

const char pyroscope_type[] = "multipart/form-data; boundary=" BOUNDARY;

/* Memory in use is averaged over time; allocated memory is added up. */
static const char config[] = "{\"inuse_space\":{\"units\":\"bytes\",\"display-name\":\"inuse_"
			     "space\",\"aggregation\":\"average\",\"sampled\":false},"
			     "\"inuse_objects\":{\"units\":\"objects\",\"display-name\":\"inuse_"
			     "objects\",\"aggregation\":\"average\",\"sampled\":false},"
			     "\"alloc_space\":{\"units\":\"bytes\",\"display-name\":\"alloc_"
			     "space\",\"aggregation\":\"sum\",\"sampled\":false},"
			     "\"alloc_objects\":{\"units\":\"objects\",\"display-name\":\"alloc_"
			     "objects\",\"aggregation\":\"sum\",\"sampled\":false}}";

static bool is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

/* Writes s for a URL; replaces special characters with underscores. */
static void put_plain(FILE *out, const char *s)
{
	for (; *s; s++)
		fputc(is_plain(*s) ? *s : '_', out);
}

/* Writes ",key=value" with comma and equals sign percent-encoded. */
static void put_label(FILE *out, const char *key, const char *value, bool more)
{
	fprintf(out, "%s%s%%3D", more ? "%2C" : "", key);
	put_plain(out, value);
}

int pyroscope__url(const char *base, const struct profile_of *of, char **url)
{
	const struct state_process *p = of->process;
	size_t len = strlen(base), size;
	char *text = NULL, number[24];
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return -ENOMEM;
	while (len && base[len - 1] == '/')
		len--;
	fprintf(out, "%.*s/ingest?name=", (int)len, base);
	put_plain(out, *p->target ? p->target : "pytorch");
	fputs("%7B", out);
	snprintf(number, sizeof(number), "%u", p->slot);
	put_label(out, "process", number, false);
	if (p->rank >= 0) {
		snprintf(number, sizeof(number), "%" PRId64, p->rank);
		put_label(out, "rank", number, true);
	}
	if (of->host)
		put_label(out, "hostname", of->host, true);
	if (*p->pod)
		put_label(out, "pod_uid", p->pod, true);
	if (*p->container)
		put_label(out, "container_id", p->container, true);
	fprintf(out, "%%7D&from=%" PRIu64 "&until=%" PRIu64 "&format=pprof&spyName=memtrace-bpf",
		of->from / 1000000000, of->until / 1000000000);
	if (fclose(out)) {
		free(text);
		return -ENOMEM;
	}
	*url = text;
	return 0;
}

int pyroscope__body(const void *profile, size_t size, char **body, size_t *body_size)
{
	char *text = NULL;
	size_t all;
	FILE *out = open_memstream(&text, &all);

	if (!out)
		return -ENOMEM;
	fputs("--" BOUNDARY
	      "\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"profile.pprof\"\r\n"
	      "Content-Type: application/octet-stream\r\n\r\n",
	      out);
	fwrite(profile, 1, size, out);
	fputs("\r\n--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"sample_type_config\"; "
	      "filename=\"sample_type_config.json\"\r\n"
	      "Content-Type: application/json\r\n\r\n",
	      out);
	fputs(config, out);
	fputs("\r\n--" BOUNDARY "--\r\n", out);
	if (fclose(out)) {
		free(text);
		return -ENOMEM;
	}
	*body = text;
	*body_size = all;
	return 0;
}
