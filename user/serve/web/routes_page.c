/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Pages for browsers: the dashboard and the API documentation. All files are compressed into the
 * program. They contain no data and need no token; their scripts call the API. */
#include <string.h>

#include "base/assets.h"
#include "serve/web/web.h"

struct page_asset {
	const char *path, *type;
	struct packed content;
};

#include "assets/serve_pages.h"

/* Cache-Control of files with the hash of their content in the name */
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

/* The file with this name in a folder of the pages; NULL: none. */
static struct page_asset *find_asset(const char *folder, const char *name)
{
	size_t n = strlen(folder);

	for (size_t i = 0; i < sizeof(page_assets) / sizeof(*page_assets); i++)
		if (!strncmp(page_assets[i].path, folder, n) &&
		    !strcmp(page_assets[i].path + n, name))
			return &page_assets[i];
	return NULL;
}

/* True if the client takes gzip. */
static bool accepts_gzip(struct request *r)
{
	const char *accept = MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND,
							 "Accept-Encoding");
	const char *gzip = accept ? strcasestr(accept, "gzip") : NULL;

	/* "gzip;q=0" means that gzip is not accepted. */
	return gzip && !(gzip[4] == ';' && strspn(gzip + 4, ";q=0. ") >= strcspn(gzip + 4, ","));
}

/* Sends the file compressed if the client accepts that. */
static void send_asset(struct request *r, struct page_asset *a, const char *cache_control)
{
	struct packed *p = &a->content;
	bool gzip = accepts_gzip(r);
	const void *data = gzip ? p->data : packed__unpack(p);

	if (!data) {
		request__error(r, 503, NULL, "the server is out of memory; try again");
		return;
	}
	if (gzip)
		request__header(r, "Content-Encoding", "gzip");
	request__header(r, "Vary", "Accept-Encoding");
	request__header(r, "Cache-Control", cache_control);
	request__respond(r, 200,
			 MHD_create_response_from_buffer(gzip ? p->size : p->full, (void *)data,
							 MHD_RESPMEM_PERSISTENT),
			 a->type);
}

/* Sends a page with the headers that protect it. path: of a file that exists. */
static void send_page(struct request *r, const char *path, const char *policy)
{
	request__header(r, "Content-Security-Policy", policy);
	request__header(r, "Cross-Origin-Opener-Policy", "same-origin");
	request__header(r, "X-Frame-Options", "DENY");
	/* The address stays the same when the program changes, so browsers must check for a new
	 * version. */
	send_asset(r, find_asset("", path), "no-cache");
}

static void send_dashboard(struct request *r)
{
	send_page(r, "/", POLICY_DASHBOARD);
}

static void send_docs(struct request *r)
{
	send_page(r, "/api/docs", POLICY_DOCS);
}

static void send_redoc(struct request *r)
{
	send_page(r, "/api/redoc", POLICY_DOCS);
}

static void send_named_asset(struct request *r)
{
	struct page_asset *a = find_asset("/assets/", request__path(r, "file"));

	if (a)
		send_asset(r, a, FOR_EVER);
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
	  .handle = send_dashboard },
	{ .method = "GET",
	  .path = "/api/docs",
	  .id = "docs",
	  .tag = "pages",
	  .summary = "This documentation, to try out",
	  .help = "Swagger UI, built into the program.",
	  .answers = html_answers,
	  .flags = OPEN,
	  .handle = send_docs },
	{ .method = "GET",
	  .path = "/api/redoc",
	  .id = "redoc",
	  .tag = "pages",
	  .summary = "This documentation, to read",
	  .help = "Redoc, built into the program.",
	  .answers = html_answers,
	  .flags = OPEN,
	  .handle = send_redoc },
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
	  .handle = send_named_asset },
	{ .method = NULL },
};
