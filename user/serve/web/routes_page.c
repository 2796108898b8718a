/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Pages for browsers: the dashboard and the API documentation. All files are compressed into the
 * program. They contain no data and need no token; their scripts call the API. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "serve/web/route.h"

struct page_asset {
	const char *path, *type;
	const unsigned char *data; /* gzip */
	size_t size, full;	   /* bytes of data, and bytes after decompression */
};

#include "assets/serve_pages.h"

#define FOR_EVER "public, max-age=31536000, immutable"

/* Pages may connect only to this server, and other sites cannot frame them. */
#define POLICY                                                                                     \
	"default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; "            \
	"frame-ancestors 'none'; "
#define POLICY_DASHBOARD                                                                           \
	POLICY "script-src 'self'; style-src 'self'; img-src 'self' data:; "                       \
	       "require-trusted-types-for 'script'; trusted-types 'none'"
/* Swagger UI and Redoc both add style elements, and Redoc's search runs in a worker made from a
 * blob. */
#define POLICY_DOCS                                                                                \
	POLICY "script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "       \
	       "font-src data:; worker-src blob:"

static const struct page_asset *find(const char *folder, const char *name)
{
	size_t n = strlen(folder);

	for (size_t i = 0; i < sizeof(page_assets) / sizeof(*page_assets); i++)
		if (!strncmp(page_assets[i].path, folder, n) &&
		    !strcmp(page_assets[i].path + n, name))
			return &page_assets[i];
	return NULL;
}

/* The decompressed asset from malloc(), or NULL if there is no memory. The data is valid,
 * because the build made it. */
static char *unpacked(const struct page_asset *a)
{
	z_stream z = { .next_in = (unsigned char *)a->data, .avail_in = a->size };
	char *text = malloc(a->full);

	if (!text || inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) {
		free(text);
		return NULL;
	}
	z.next_out = (unsigned char *)text;
	z.avail_out = a->full;
	if (inflate(&z, Z_FINISH) != Z_STREAM_END || z.avail_out) {
		free(text);
		text = NULL;
	}
	inflateEnd(&z);
	return text;
}

/* The decompressed asset for clients without gzip. Kept for the life of the process, because
 * many slow clients may read it at once. */
static const char *plain(const struct page_asset *a)
{
	static char *texts[sizeof(page_assets) / sizeof(*page_assets)];
	char **text = &texts[a - page_assets];

	if (!*text)
		*text = unpacked(a);
	return *text;
}

static void answer(struct request *r, const struct page_asset *a, const char *kept)
{
	bool packed = request__accepts_gzip(r);
	const void *data = packed ? (const void *)a->data : plain(a);

	if (!data) {
		request__error(r, 503, NULL, "the server is out of memory; try again");
		return;
	}
	if (packed)
		request__header(r, "Content-Encoding", "gzip");
	request__header(r, "Vary", "Accept-Encoding");
	request__header(r, "Cache-Control", kept);
	request__constant(r, 200, a->type, data, packed ? a->size : a->full);
}

static void page(struct request *r, const char *path, const char *policy)
{
	request__header(r, "Content-Security-Policy", policy);
	request__header(r, "Cross-Origin-Opener-Policy", "same-origin");
	request__header(r, "X-Frame-Options", "DENY");
	/* The address stays the same when the program changes, so browsers must check for a new
	 * version. */
	answer(r, find("", path), "no-cache");
}

static void dashboard(struct request *r)
{
	page(r, "/", POLICY_DASHBOARD);
}

static void docs(struct request *r)
{
	page(r, "/api/docs", POLICY_DOCS);
}

static void redoc(struct request *r)
{
	page(r, "/api/redoc", POLICY_DOCS);
}

static void asset(struct request *r)
{
	const struct page_asset *a = find("/assets/", request__path(r, "file"));

	if (a)
		answer(r, a, FOR_EVER);
	else
		request__error(r, 404, "file",
			       "no such file; the page may be from another version: reload it");
}

static const struct field asset_path[] = {
	{ .name = "file",
	  .type = FIELD_STRING,
	  .required = true,
	  .shortest = 1,
	  .longest = 80,
	  .help = "A file name from a page.",
	  .example = "\"licences.txt\"" },
	{ .name = NULL },
};

static const struct answer html_answers[] = {
	{ 200, "text/html", NULL, "The page." },
	{ 0 },
};

static const struct answer asset_answers[] = {
	{ 200, "application/octet-stream", NULL, "The file, with its own content type." },
	{ 0 },
};

/* Pages ignore unknown query parameters such as utm_source. */
#define OPEN (ROUTE_OPEN | ROUTE_ANY_QUERY)

const struct route page_routes[] = {
	{ .method = "GET",
	  .path = "/",
	  .id = "dashboard",
	  .tag = "pages",
	  .summary = "The dashboard",
	  .help = "The dashboard; every file it uses comes from this server.",
	  .answers = html_answers,
	  .flags = OPEN,
	  .handle = dashboard },
	{ .method = "GET",
	  .path = "/api/docs",
	  .id = "docs",
	  .tag = "pages",
	  .summary = "This documentation, to try out",
	  .help = "Swagger UI, built into the program.",
	  .answers = html_answers,
	  .flags = OPEN,
	  .handle = docs },
	{ .method = "GET",
	  .path = "/api/redoc",
	  .id = "redoc",
	  .tag = "pages",
	  .summary = "This documentation, to read",
	  .help = "Redoc, built into the program.",
	  .answers = html_answers,
	  .flags = OPEN,
	  .handle = redoc },
	{ .method = "GET",
	  .path = "/assets/{file}",
	  .id = "asset",
	  .tag = "pages",
	  .summary = "Files of the pages",
	  .help = "Styles and scripts. Their names contain the hash of their content, so they "
		  "never change.",
	  .in_path = asset_path,
	  .answers = asset_answers,
	  .flags = OPEN,
	  .handle = asset },
	{ .method = NULL },
};
